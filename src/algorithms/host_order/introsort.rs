//! libstdc++'s `std::sort`, replayed on [`Item`]s: the same permutation, equal items included.
//!
//! Introsort: a range of more than 16 is partitioned around the median of its second, middle and
//! last item, both parts likewise; after `2 floor(log2 n)` levels a heap sort takes over. At the
//! end an insertion sort, which is stable, orders what is left, and as no two items that are not
//! equal can change sides any more, that is a stable sort of each part by itself. Parts do not
//! depend on each other, so they are taken in any order, and those that nobody asks for are left.
//!
//! Hoare's partition exchanges the i-th item from the left that does not belong there with the
//! i-th from the right. Collecting the places of both in blocks, without a branch that depends on
//! an item, pairs them alike (BlockQuicksort, Edelkamp and Weiss 2016).

use std::ops::Range;

use super::heap;
use super::item::{Item, key};

/// Parts of so many items or fewer are left to the insertion sort.
const LEAF: usize = 16;
/// So many items of each side are looked at at once.
const BLOCK: usize = 64;

/// What a caller wants of the order.
pub trait Wanted {
    /// Whether the order within these places is wanted; otherwise they are left as they are.
    fn wants(&mut self, items: &mut [Item], places: Range<usize>) -> bool;

    /// Items that are in order now, and their places. Called from the first place on, in order.
    /// Returns whether to go on.
    fn take(&mut self, items: &[Item], places: Range<usize>) -> bool;
}

/// All of it.
pub struct All;

impl Wanted for All {
    fn wants(&mut self, _: &mut [Item], _: Range<usize>) -> bool {
        true
    }

    fn take(&mut self, _: &[Item], _: Range<usize>) -> bool {
        true
    }
}

/// A part that waits.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    end: usize,
    levels: u32,
    /// Whether its items are known to be equal.
    equal: bool,
}

/// Sorts `items` as far as `wanted` asks for.
#[expect(
    clippy::indexing_slicing,
    reason = "parts lie within the items; fewer wait than there are levels, at most 62 for 2^31 items"
)]
pub fn sort(items: &mut [Item], wanted: &mut impl Wanted) {
    let mut waiting = [Part::default(); 64];
    let mut n_waiting = 0;
    let mut part = Part {
        start: 0,
        end: items.len(),
        levels: 2 * items.len().checked_ilog2().unwrap_or(0),
        equal: false,
    };
    loop {
        let places = part.start..part.end;
        let range = &mut items[places.clone()];
        if !wanted.wants(range, places.clone()) {
            // Left as it is.
        } else if range.len() > LEAF && part.levels > 0 {
            let (cut, equal) = split(range, part.equal);
            let levels = part.levels - 1;
            waiting[n_waiting] = Part {
                start: part.start + cut,
                levels,
                equal,
                ..part
            };
            n_waiting += 1;
            part = Part {
                end: part.start + cut,
                levels,
                equal,
                ..part
            };
            continue;
        } else {
            finish(range, part.equal);
            if !wanted.take(range, places) {
                return;
            }
        }
        if n_waiting == 0 {
            return;
        }
        n_waiting -= 1;
        part = waiting[n_waiting];
    }
}

/// Sorts a part that is not split any more.
fn finish(range: &mut [Item], equal: bool) {
    if range.len() > LEAF {
        heap::partial_sort(range, range.len());
    } else if !equal {
        sort_stably(range);
    }
}

/// Partitions a range. Returns where the second part begins, and whether all items are equal.
#[expect(clippy::indexing_slicing, reason = "there are more than `LEAF` items")]
fn split(range: &mut [Item], equal: bool) -> (usize, bool) {
    let median = median_place(range);
    let equal = equal || all_equal(range, key(range[median]));
    range.swap(0, median);
    let pivot = key(range[0]);
    let rest = &mut range[1..];
    if equal {
        // Every item stops both searches.
        rest.reverse();
        return (1 + rest.len() / 2, true);
    }
    (1 + partition(rest, pivot), false)
}

/// Where the median of the second, the middle and the last item is.
#[expect(clippy::indexing_slicing, reason = "there are more than `LEAF` items")]
fn median_place(range: &[Item]) -> usize {
    let (a, b, c) = (1, range.len() / 2, range.len() - 1);
    let (x, y, z) = (key(range[a]), key(range[b]), key(range[c]));
    if x < y {
        return if y < z {
            b
        } else if x < z {
            c
        } else {
            a
        };
    }
    if x < z {
        a
    } else if y < z {
        c
    } else {
        b
    }
}

/// Whether all keys are `of`. Looks at all only where the first, the second and the last agree.
#[expect(clippy::indexing_slicing, reason = "there are more than `LEAF` items")]
fn all_equal(range: &[Item], of: u32) -> bool {
    let ends = [range[0], range[1], range[range.len() - 1]];
    if ends.iter().any(|&item| key(item) != of) {
        return false;
    }
    let differs = |chunk: &[Item]| {
        let different = chunk.iter().map(|&item| u32::from(key(item) != of));
        different.sum::<u32>() > 0
    };
    !range.chunks(BLOCK).any(differs)
}

/// Places of one block where a search stops.
struct Stops {
    offsets: [u8; BLOCK],
    next: usize,
    len: usize,
}

impl Stops {
    const NONE: Self = Self {
        offsets: [0; BLOCK],
        next: 0,
        len: 0,
    };

    fn is_empty(&self) -> bool {
        self.next == self.len
    }

    /// Collects the offsets for which `stops` holds, without a branch on it.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "taken modulo the length")]
    fn collect(&mut self, stops: impl Fn(usize) -> bool) {
        (self.next, self.len) = (0, 0);
        for offset in 0..BLOCK {
            self.offsets[self.len % BLOCK] = offset as u8;
            self.len += usize::from(stops(offset));
        }
    }

    /// The offset of the i-th stop that is not paired yet.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "taken modulo the length")]
    fn offset(&self, i: usize) -> usize {
        usize::from(self.offsets[(self.next + i) % BLOCK])
    }
}

/// Hoare's partition around `pivot`, which some item does not come before and some item not after.
/// Returns where the second part begins.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "blocks are taken from what lies between `start` and `end`"
)]
fn partition(items: &mut [Item], pivot: u32) -> usize {
    let (mut start, mut end) = (0, items.len());
    let (mut left, mut right) = (Stops::NONE, Stops::NONE);
    while end - start > 2 * BLOCK {
        if left.is_empty() {
            let block = &items[start..start + BLOCK];
            left.collect(|i| key(block[i]) >= pivot);
        }
        if right.is_empty() {
            let block = &items[end - BLOCK..end];
            right.collect(|i| key(block[BLOCK - 1 - i]) <= pivot);
        }
        let pairs = (left.len - left.next).min(right.len - right.next);
        for i in 0..pairs {
            items.swap(start + left.offset(i), end - 1 - right.offset(i));
        }
        left.next += pairs;
        right.next += pairs;
        if left.is_empty() {
            start += BLOCK;
        }
        if right.is_empty() {
            end -= BLOCK;
        }
    }
    // What is not paired is found again.
    if !left.is_empty() {
        start += left.offset(0);
    }
    if !right.is_empty() {
        end -= right.offset(0);
    }
    start + partition_few(&mut items[start..end], pivot)
}

/// The same of at most two blocks, beyond which the searches stop.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "places are below the number of items, and taken modulo the length of the buffers"
)]
fn partition_few(items: &mut [Item], pivot: u32) -> usize {
    const MOST: usize = 2 * BLOCK;
    let (mut lefts, mut rights) = ([0u8; MOST], [0u8; MOST]);
    let (mut n_lefts, mut n_rights) = (0, 0);
    for (i, &item) in items.iter().enumerate() {
        lefts[n_lefts % MOST] = i as u8;
        n_lefts += usize::from(key(item) >= pivot);
    }
    for (i, &item) in items.iter().enumerate().rev() {
        rights[n_rights % MOST] = i as u8;
        n_rights += usize::from(key(item) <= pivot);
    }
    // An item that was exchanged stops the search from the other side, too.
    let mut exchanged = items.len();
    for i in 0..MOST {
        let left = match i < n_lefts {
            true => exchanged.min(usize::from(lefts[i])),
            false => exchanged,
        };
        let right = usize::from(rights[i]);
        if i >= n_rights || left >= right {
            return left;
        }
        items.swap(left, right);
        exchanged = right;
    }
    exchanged
}

/// Sorts at most [`LEAF`] items stably: each goes to the place that is the number of those before
/// it. All pairs are compared, which needs no branch and suits vector registers.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the caller passes at most `LEAF` items; a rank is below their number"
)]
fn sort_stably(items: &mut [Item]) {
    let mut keys = [u32::MAX; LEAF];
    let mut copy = [0; LEAF];
    copy[..items.len()].copy_from_slice(items);
    for (to, &item) in keys.iter_mut().zip(items.iter()) {
        *to = key(item);
    }
    let mut ranks = [0u32; LEAF];
    for i in 0..items.len() {
        let key = keys[i];
        for (j, (rank, &other)) in ranks.iter_mut().zip(&keys).enumerate() {
            // Places behind the items have the last key there is; what comes of them is not used.
            *rank += u32::from(key < other.wrapping_add(u32::from(j > i)));
        }
    }
    for (&item, &rank) in copy.iter().zip(&ranks[..items.len()]) {
        items[rank as usize] = item;
    }
}
