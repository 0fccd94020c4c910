//! What the replayed sorts move.

use crate::kernels::sort_key::descending_key;

/// What is sorted: a key, by which alone items are compared, above a number that tells them apart.
pub type Item = u64;

/// What an item is compared by: the smaller one comes first.
#[inline(always)]
pub(super) fn key(item: Item) -> u32 {
    (item >> 32) as u32
}

/// What tells an item apart.
#[inline(always)]
pub fn place(item: Item) -> usize {
    item as u32 as usize
}

/// The item of `x` at `place`: a larger one comes first, NaN last.
#[inline(always)]
pub fn item(x: f32, place: usize) -> Item {
    u64::from(descending_key(x)) << 32 | place as u64
}
