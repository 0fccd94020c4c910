//! The items that the replayed sorts move.

use crate::kernels::sort_key::{descending_key, logit_of};
use crate::simd::{Vector, dispatched};

/// An item to sort: a key in the upper 32 bits, the only part that is compared, and a number that
/// identifies the item in the lower 32.
pub type Item = u64;

/// Returns the key of an item. Items with smaller keys come first.
#[inline(always)]
pub(super) fn key(item: Item) -> u32 {
    (item >> 32) as u32
}

/// Returns the number that identifies an item.
#[inline(always)]
pub fn place(item: Item) -> usize {
    item as u32 as usize
}

/// Returns the item of the logit `x` with the index `place`. Larger logits come first; NaN counts
/// as minus infinity.
#[inline(always)]
pub fn item(x: f32, place: usize) -> Item {
    u64::from(descending_key(x)) << 32 | place as u64
}

/// Returns the least logit that comes before the logits with this key.
pub(super) fn above(key: u32) -> f32 {
    logit_of(key).next_up()
}

/// Fills `items` with the items of all of `xs`.
pub fn items_of(xs: &[f32], items: &mut Vec<Item>) {
    items.resize(xs.len(), 0);
    write_items(xs, 0, items);
}

dispatched! {
    /// Writes the items of `xs`, whose indices begin at `first`, into `to`, which must be as long
    /// as `xs`.
    pub fn write_items(xs: &[f32], first: usize, to: &mut [Item]) => write_items_on;
}

#[inline(always)]
fn write_items_on<V: Vector>(_: V, xs: &[f32], first: usize, to: &mut [Item]) {
    for ((i, to), &x) in to.iter_mut().enumerate().zip(xs) {
        *to = item(x, first + i);
    }
}

/// Stably sorts the items at the indices `places`. Returns true if they were already in order.
// In bounds: callers pass indices of `items`.
pub(super) fn order<const N: usize>(items: &mut [Item], places: [usize; N]) -> bool {
    let mut of = places.map(|place| items[place]);
    of.sort_by_key(|&item| key(item));
    let kept = places.iter().zip(&of).all(|(&at, &item)| items[at] == item);
    places
        .iter()
        .zip(of)
        .for_each(|(&at, item)| items[at] = item);
    kept
}
