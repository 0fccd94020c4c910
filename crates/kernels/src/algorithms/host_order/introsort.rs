//! Replays libstdc++'s `std::sort` on [`Item`]s, with the same permutation, even of equal items.
//!
//! It is an introsort: a range of more than 16 items is partitioned around the median of its
//! second, middle and last item, and so are both parts. After `2 floor(log2 n)` levels a heap sort
//! takes over. At the end a stable insertion sort orders all short parts. No item then moves from
//! one part to another, so it is a stable sort of each part by itself. Parts do not depend on each
//! other, so they may be sorted in any order, and those that are not wanted are left unsorted.
//!
//! Hoare's partition exchanges the i-th misplaced item from the left with the i-th from the right.
//! Collecting both in blocks, without a branch that depends on an item, gives the same pairs
//! (BlockQuicksort, Edelkamp and Weiss 2016). Here a block is a word with a bit for each item,
//! computed by vector comparisons.

use std::ops::Range;

use super::heap;
use super::item::{Item, key};
use super::wanted::Wanted;
use crate::simd::{Kernel, Vector, dispatch};

/// The largest number of items in a part that is left to the insertion sort.
const LEAF: usize = 16;
/// The number of items of each side that are compared at once.
const BLOCK: usize = u64::BITS as usize;

/// A part that waits to be sorted.
#[derive(Clone, Copy, Default)]
struct Part {
    start: usize,
    end: usize,
    levels: u32,
    /// True if its items are known to be equal.
    equal: bool,
}

/// Sorts the parts of `items` that `wanted` selects.
pub(super) fn sort(items: &mut [Item], wanted: &mut impl Wanted) {
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
// In bounds: parts lie within the items; at most as many parts wait as there are levels, 62 for
// 2^31 items.
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
            // The part is left as it is.
        } else if range.len() > LEAF && part.levels > 0 && !settle_run(range) {
            let (cut, equal) = split(v, items, places, part.equal);
            let levels = part.levels - 1;
            waiting[n_waiting] = Part {
                start: cut,
                levels,
                equal,
                ..part
            };
            n_waiting += 1;
            part = Part {
                end: cut,
                levels,
                equal,
                ..part
            };
            continue;
        } else {
            finish(v, range, part);
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

/// Sorts a part that is not partitioned further, unless it is already in order.
#[inline(always)]
fn finish<V: Vector>(v: V, range: &mut [Item], part: Part) {
    if range.len() <= LEAF {
        if !part.equal {
            sort_stably(v, range);
        }
    } else if part.levels == 0 {
        heap::partial_sort_by::<false>(range, range.len());
    }
}

/// Sorts a range of different keys that, except for its first and its last item, is in ascending or
/// descending order, as parts of sorted arrays are. Different keys have only one order. Returns
/// true if it was such a range. Reads all items only if the first few are in order.
#[inline(always)]
// In bounds: there are more than `LEAF` items, and `at` and `from` are indices of them.
fn settle_run(range: &mut [Item]) -> bool {
    const FEW: usize = 8;
    let n = range.len();
    let (first, inner, last) = (range[0], &range[1..n - 1], range[n - 1]);
    let (few, next) = (&inner[..FEW], &inner[1..=FEW]);
    let comes_before = all_pairs(few, next, |a, b| a < b);
    let comes_behind = all_pairs(few, next, |a, b| a > b);
    if !(comes_before | comes_behind) {
        return false;
    }
    let stands_before = |a: u32, b: u32| if comes_before { a < b } else { a > b };
    let mut blocks = inner.chunks(BLOCK).zip(inner[1..].chunks(BLOCK));
    if !blocks.all(|(block, next)| all_pairs(block, next, stands_before)) {
        return false;
    }
    let is_among = |x: u32| {
        let at = inner.partition_point(|&item| stands_before(key(item), x));
        inner.get(at).is_some_and(|&item| key(item) == x)
    };
    if key(first) == key(last) || is_among(key(first)) || is_among(key(last)) {
        return false;
    }
    if !comes_before {
        range[1..n - 1].reverse();
    }
    let comes_before = |x: Item| move |&item: &Item| key(item) < key(x);
    let from = 1 + range[1..n - 1].partition_point(comes_before(last));
    range[from..].rotate_right(1);
    let at = range[1..].partition_point(comes_before(first));
    range[..=at].rotate_left(1);
    true
}

/// Returns true if `is_so` holds for each key and the next one.
#[inline(always)]
fn all_pairs(items: &[Item], next: &[Item], is_so: impl Fn(u32, u32) -> bool) -> bool {
    let pairs = items.iter().zip(next);
    // Without a branch for each, so that it is vectorized.
    pairs.fold(true, |so_far, (&a, &b)| so_far & is_so(key(a), key(b)))
}

/// Partitions the items at `places`. Returns the start of the second part, and true if all are
/// equal.
#[inline(always)]
// In bounds: there are more than `LEAF` items.
fn split<V: Vector>(v: V, items: &mut [Item], places: Range<usize>, equal: bool) -> (usize, bool) {
    let range = &mut items[places.clone()];
    let median = median_place(range);
    let equal = equal || all_equal(range, key(range[median]));
    range.swap(0, median);
    let pivot = key(range[0]);
    if equal {
        // Equal items stop both searches, so the partition only reverses them.
        let rest = &mut range[1..];
        rest.reverse();
        return (places.start + 1 + rest.len() / 2, true);
    }
    let rest = places.start + 1..places.end;
    (partition(v, items, rest, pivot), false)
}

/// Returns the index of the median of the second, the middle and the last item.
#[inline(always)]
// In bounds: there are more than `LEAF` items.
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

/// Returns true if all keys are `of`. Reads all of them only if the first, the second and the last
/// are.
#[inline(always)]
// In bounds: there are more than `LEAF` items.
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

/// Partitions the items at `places` around `pivot` as Hoare does. At least one item does not come
/// before the pivot, and at least one does not come after it. Returns the start of the second part.
#[inline(always)]
fn partition<V: Vector>(v: V, items: &mut [Item], places: Range<usize>, pivot: u32) -> usize {
    let (mut start, mut end) = (places.start, places.end);
    // The lengths of the blocks at both ends, and the items in these at which a search stops and
    // that are not paired yet.
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
            lefts = left_stops(v, items, start..start + left_len, pivot);
        }
        if right_empty {
            right_len = most.min(BLOCK);
            rights = right_stops(v, items, end - right_len..end, pivot);
        }
        let right_start = end - right_len;
        if is_run(lefts) && is_run(rights) {
            // This happens if the items are in reverse order, or many are equal.
            exchange_runs(items, (start, &mut lefts), (right_start, &mut rights));
        }
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
    // Unpaired items are found again; exchanged ones are not read again.
    if lefts != 0 {
        start += first_bit(lefts);
    }
    if rights != 0 {
        end = end - right_len + last_bit(rights) + 1;
    }
    start + partition_block(v, items, start..end, pivot)
}

/// Returns true if the set bits, if any, are contiguous.
#[inline(always)]
fn is_run(word: u64) -> bool {
    let run = word.checked_shr(word.trailing_zeros()).unwrap_or(0);
    run & run.wrapping_add(1) == 0
}

/// Exchanges the i-th marked item from the left for the i-th from the right, until one side has no
/// more. The marks of each side are the set bits of a block that begins at some index. Clears the
/// bits of exchanged items.
#[inline(always)]
// In bounds: both runs lie within the items.
fn exchange_runs(
    items: &mut [Item],
    (left, lefts): (usize, &mut u64),
    (right, rights): (usize, &mut u64),
) {
    let n = lefts.count_ones().min(rights.count_ones()) as usize;
    if n == 0 {
        return;
    }
    let (first, last) = (first_bit(*lefts), last_bit(*rights));
    let (before, after) = items.split_at_mut(right);
    let from_left = &mut before[left + first..left + first + n];
    let from_right = &mut after[last + 1 - n..=last];
    for (a, b) in from_left.iter_mut().zip(from_right.iter_mut().rev()) {
        std::mem::swap(a, b);
    }
    *lefts &= !(first_bits(n) << first);
    *rights &= !(first_bits(n) << (last + 1 - n));
}

/// Partitions at most one block of items; both searches stop at its ends. Returns the start of the
/// second part. Indices are counted from the start of the block.
#[inline(always)]
// In bounds: the bits are those of `places`.
fn partition_block<V: Vector>(v: V, items: &mut [Item], places: Range<usize>, pivot: u32) -> usize {
    let mut lefts = left_stops(v, items, places.clone(), pivot);
    let mut rights = right_stops(v, items, places.clone(), pivot);
    if lefts != 0 && rights != 0 {
        let (first, last) = (first_bit(lefts), last_bit(rights));
        let between = first_bits((last + 1).saturating_sub(first)) << first;
        if first < last && lefts & rights & between == between {
            // This happens if all items in between are equal, so that each stops both searches.
            items[places.start + first..=places.start + last].reverse();
            return first + (last + 1 - first) / 2;
        }
    }
    // An exchanged item stops the search from the other side, too.
    let mut exchanged = places.len();
    loop {
        let left = match lefts {
            0 => exchanged,
            _ => exchanged.min(first_bit(lefts)),
        };
        if rights == 0 || left >= last_bit(rights) {
            return left;
        }
        exchanged = last_bit(rights);
        items.swap(places.start + left, places.start + exchanged);
        lefts &= lefts - 1;
        rights ^= 1 << exchanged;
    }
}

/// Returns a word, for at most a block of items at `places`, with a bit for each item at which the
/// search from the left stops: an item that does not come before the pivot.
#[inline(always)]
fn left_stops<V: Vector>(v: V, items: &[Item], places: Range<usize>, pivot: u32) -> u64 {
    at_least_of(v, items, places, u64::from(pivot) << 32)
}

/// Returns a word, for at most a block of items at `places`, with a bit for each item at which the
/// search from the right stops: an item that does not come after the pivot. No item may have the
/// index `u32::MAX`.
#[inline(always)]
fn right_stops<V: Vector>(v: V, items: &[Item], places: Range<usize>, pivot: u32) -> u64 {
    let n = places.len();
    let least = u64::from(pivot) << 32 | u64::from(u32::MAX);
    !at_least_of(v, items, places, least) & first_bits(n)
}

/// Returns a word, for at most a block of items at `places`, with a bit for each item that is at
/// least `least`.
///
/// Compares a whole block around them if there is one: loops whose length changes from one part to
/// the next cost more than the comparisons.
#[inline(always)]
// In bounds: `places` are indices of `items`.
fn at_least_of<V: Vector>(v: V, items: &[Item], places: Range<usize>, least: u64) -> u64 {
    let n = places.len();
    // The block that begins with these items, or the last one of the array.
    let start = places.start.min(items.len().saturating_sub(BLOCK));
    let Some(block) = items[start..].first_chunk::<BLOCK>() else {
        return at_least(v, &items[places], least);
    };
    at_least(v, block, least) >> (places.start - start) & first_bits(n)
}

/// Returns a word whose lowest `n` bits are set. `n` is at most 64.
#[inline(always)]
fn first_bits(n: usize) -> u64 {
    u64::MAX.checked_shr((BLOCK - n) as u32).unwrap_or(0)
}

/// Returns a word, for at most a block of items, with a bit for each item that is at least `least`.
#[inline(always)]
fn at_least<V: Vector>(v: V, items: &[Item], least: u64) -> u64 {
    let chunks = items.chunks_exact(V::LANES);
    let rest = chunks.remainder();
    let mut bits = match rest.is_empty() {
        true => 0,
        false => u64::from(v.ge_u64(rest, least)),
    };
    // The last chunk first: the bits of each chunk are shifted into position by those of the chunks
    // before it. The compiler does not vectorize that.
    for chunk in chunks.rev() {
        bits = bits << V::LANES | u64::from(v.ge_u64(chunk, least));
    }
    bits
}

#[inline(always)]
fn first_bit(word: u64) -> usize {
    word.trailing_zeros() as usize
}

/// Returns the index of the highest set bit of a word, which must not be 0.
#[inline(always)]
fn last_bit(word: u64) -> usize {
    BLOCK - 1 - word.leading_zeros() as usize
}

/// Sorts at most [`LEAF`] items stably: each moves to the index given by the number of items before
/// it. All pairs are compared, which needs no branch and suits vector registers.
#[inline(always)]
// In bounds: the caller passes at most `LEAF` items; a rank is below the number of items.
fn sort_stably<V: Vector>(v: V, items: &mut [Item]) {
    let next = items.get(1..).unwrap_or_default();
    if all_pairs(items, next, |a, b| a <= b) {
        return;
    }
    let mut copy = [0; LEAF];
    copy[..items.len()].copy_from_slice(items);
    // Equal keys are ordered by their present indices; the padding after the items comes last.
    let mut ordered = [Item::MAX; LEAF];
    for (i, (to, &item)) in ordered.iter_mut().zip(items.iter()).enumerate() {
        *to = u64::from(key(item)) << 32 | i as u64;
    }
    for (&item, &this) in copy[..items.len()].iter().zip(&ordered) {
        let not_before = at_least(v, &ordered, this).count_ones() as usize;
        items[LEAF - not_before] = item;
    }
}
