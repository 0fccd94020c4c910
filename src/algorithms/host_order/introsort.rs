//! libstdc++'s `std::sort`, replayed on [`Item`]s: the same permutation, equal items included.
//!
//! Introsort: a range of more than 16 is partitioned around the median of its second, middle and
//! last item, both parts likewise; after `2 floor(log2 n)` levels a heap sort takes over. At the
//! end an insertion sort, which is stable, orders what is left, and as no two items that are not
//! equal can change sides any more, that is a stable sort of each part by itself. Parts do not
//! depend on each other, so they are taken in any order, and those that nobody asks for are left.
//!
//! Hoare's partition exchanges the i-th item from the left that does not belong there with the
//! i-th from the right. Collecting both in blocks, without a branch that depends on an item, pairs
//! them alike (BlockQuicksort, Edelkamp and Weiss 2016). Here a block is a word with a bit for each
//! item, which vector registers compare.

use std::ops::Range;

use super::heap;
use super::item::{Item, key};
use crate::simd::{Kernel, Vector, dispatch};

/// Parts of so many items or fewer are left to the insertion sort.
const LEAF: usize = 16;
/// So many items of each side are looked at at once.
const BLOCK: usize = u64::BITS as usize;

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
pub fn sort(items: &mut [Item], wanted: &mut impl Wanted) {
    dispatch(Sort { items, wanted });
}

struct Sort<'a, W> {
    items: &'a mut [Item],
    wanted: &'a mut W,
}

impl<W: Wanted> Kernel for Sort<'_, W> {
    type Output = ();
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        sort_on(v, self.items, self.wanted);
    }
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "parts lie within the items; fewer wait than there are levels, at most 62 for 2^31 items"
)]
fn sort_on<V: Vector>(v: V, items: &mut [Item], wanted: &mut impl Wanted) {
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
            let (cut, equal) = split(v, range, part.equal);
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
            finish(v, range, part.equal);
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
#[inline(always)]
fn finish<V: Vector>(v: V, range: &mut [Item], equal: bool) {
    if range.len() > LEAF {
        heap::partial_sort(range, range.len());
    } else if !equal {
        sort_stably(v, range);
    }
}

/// Partitions a range. Returns where the second part begins, and whether all items are equal.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "there are more than `LEAF` items")]
fn split<V: Vector>(v: V, range: &mut [Item], equal: bool) -> (usize, bool) {
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
    (1 + partition(v, rest, pivot), false)
}

/// Where the median of the second, the middle and the last item is.
#[inline(always)]
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
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "there are more than `LEAF` items")]
fn all_equal(range: &[Item], of: u32) -> bool {
    let (first, second, last) = (range[0], range[1], range[range.len() - 1]);
    if key(first) != of || key(second) != of || key(last) != of {
        return false;
    }
    for chunk in range.chunks(BLOCK) {
        let mut different = 0;
        for &item in chunk {
            different |= key(item) ^ of;
        }
        if different != 0 {
            return false;
        }
    }
    true
}

/// Hoare's partition around `pivot`, which some item does not come before and some item not after.
/// Returns where the second part begins.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "blocks are taken from what lies between `start` and `end`"
)]
fn partition<V: Vector>(v: V, items: &mut [Item], pivot: u32) -> usize {
    let (mut start, mut end) = (0, items.len());
    // The blocks at both ends, and the stops in them that are not paired yet.
    let (mut left_len, mut right_len) = (0, 0);
    let (mut lefts, mut rights) = (0u64, 0u64);
    loop {
        let between = end - start - left_len - right_len;
        if between == 0 || end - start <= BLOCK {
            break;
        }
        let (left_empty, right_empty) = (left_len == 0, right_len == 0);
        let most = match left_empty && right_empty {
            true => between / 2,
            false => between,
        };
        if left_empty {
            left_len = most.min(BLOCK);
            lefts = left_stops(v, &items[start..start + left_len], pivot);
        }
        if right_empty {
            right_len = most.min(BLOCK);
            rights = right_stops(v, &items[end - right_len..end], pivot);
        }
        let right_start = end - right_len;
        for _ in 0..lefts.count_ones().min(rights.count_ones()) {
            let (left, right) = (first_bit(lefts), last_bit(rights));
            items.swap(start + left, right_start + right);
            lefts &= lefts - 1;
            rights ^= 1 << right;
        }
        if lefts == 0 {
            start += left_len;
            left_len = 0;
        }
        if rights == 0 {
            end = right_start;
            right_len = 0;
        }
    }
    // What is not paired is found again; what was exchanged is not looked at again.
    if lefts != 0 {
        start += first_bit(lefts);
    }
    if rights != 0 {
        end = end - right_len + last_bit(rights) + 1;
    }
    start + partition_block(v, &mut items[start..end], pivot)
}

/// The same of at most one block, beyond which the searches stop.
#[inline(always)]
fn partition_block<V: Vector>(v: V, items: &mut [Item], pivot: u32) -> usize {
    let mut lefts = left_stops(v, items, pivot);
    let mut rights = right_stops(v, items, pivot);
    // An item that was exchanged stops the search from the other side, too.
    let mut exchanged = items.len();
    loop {
        let left = match lefts {
            0 => exchanged,
            _ => exchanged.min(first_bit(lefts)),
        };
        if rights == 0 || left >= last_bit(rights) {
            return left;
        }
        exchanged = last_bit(rights);
        items.swap(left, exchanged);
        lefts &= lefts - 1;
        rights ^= 1 << exchanged;
    }
}

/// A bit for each item of at most a block at which the search from the left stops: what does not
/// come before the pivot.
#[inline(always)]
fn left_stops<V: Vector>(v: V, items: &[Item], pivot: u32) -> u64 {
    at_least(v, items, u64::from(pivot) << 32)
}

/// The same from the right: what does not come after the pivot. No item is at the last place that
/// there is.
#[inline(always)]
fn right_stops<V: Vector>(v: V, items: &[Item], pivot: u32) -> u64 {
    let after = at_least(v, items, u64::from(pivot) << 32 | u64::from(u32::MAX));
    let all = u64::MAX.checked_shr((BLOCK - items.len()) as u32);
    !after & all.unwrap_or(0)
}

/// A bit for each item of at most a block that is `least` or more.
#[inline(always)]
fn at_least<V: Vector>(v: V, items: &[Item], least: u64) -> u64 {
    let chunks = items.chunks_exact(V::LANES);
    let rest = chunks.remainder();
    let mut bits = 0;
    let mut at = 0;
    for chunk in chunks {
        bits |= u64::from(v.ge_u64(chunk, least)) << at;
        at += V::LANES;
    }
    if !rest.is_empty() {
        bits |= u64::from(v.ge_u64(rest, least)) << at;
    }
    bits
}

#[inline(always)]
fn first_bit(word: u64) -> usize {
    word.trailing_zeros() as usize
}

/// The last bit of a word that is not 0.
#[inline(always)]
fn last_bit(word: u64) -> usize {
    BLOCK - 1 - word.leading_zeros() as usize
}

/// Sorts at most [`LEAF`] items stably: each goes to the place that is the number of those before
/// it. All pairs are compared, which needs no branch and suits vector registers.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the caller passes at most `LEAF` items; a rank is below their number"
)]
fn sort_stably<V: Vector>(v: V, items: &mut [Item]) {
    let mut copy = [0; LEAF];
    copy[..items.len()].copy_from_slice(items);
    // Equal keys are told apart by where they stand now; what is behind the items comes last.
    let mut ordered = [Item::MAX; LEAF];
    for (i, (to, &item)) in ordered.iter_mut().zip(items.iter()).enumerate() {
        *to = u64::from(key(item)) << 32 | i as u64;
    }
    for (&item, &this) in copy[..items.len()].iter().zip(&ordered) {
        let not_before = at_least(v, &ordered, this).count_ones() as usize;
        items[LEAF - not_before] = item;
    }
}
