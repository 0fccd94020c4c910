//! Replays the heap functions of the C++ libraries on [`Item`]s.
//!
//! `std::partial_sort` makes a heap of the first k items, whose root is the item that comes last.
//! It replaces the root with each later item that comes before it, and sorts the heap. Every step
//! affects which of several equal items it keeps, and in what order, so all steps are replayed
//! here. libstdc++ and libc++ differ in which of two equal children moves up (`LEFT`). From LLVM 22
//! on, libc++ also makes heaps of numbers differently ([`make_heap_of_numbers`]).

use super::item::{Item, above, item, key};
use crate::host_profile::HostProfile;
use crate::simd::{Kernel, Vector, dispatch};
use crate::token::TokenData;

/// The number of offered items, as a multiple of the heap's size, that an array in random order
/// does not reach. In an array with more, the choice of the child is predictable.
const OFTEN: usize = 32;

/// Makes a heap of `items`: no item comes after its parent.
// In bounds: `parent` is below half the length.
pub(super) fn make_heap<const LEFT: bool>(items: &mut [Item]) {
    for parent in (0..items.len() / 2).rev() {
        let item = items[parent];
        sift::<LEFT, false>(items, parent, item);
    }
}

/// Makes a heap of `items` as libc++ from LLVM 22 on does for numbers: if the last item has no
/// sibling, it is inserted after a heap has been made of the others.
pub(super) fn make_heap_of_numbers(items: &mut [Item]) {
    let n = items.len();
    let paired = n - usize::from(n > 0 && n.is_multiple_of(2));
    if let Some(paired) = items.get_mut(..paired) {
        make_heap::<true>(paired);
    }
    if let Some(&last) = items.last() {
        rise(items, 0, n - 1, last);
    }
}

/// Replaces the root of a heap with `item`, if `item` comes before the root.
#[inline]
pub(super) fn offer<const LEFT: bool>(heap: &mut [Item], item: Item) {
    offer_and::<LEFT, false>(heap, item);
}

#[inline(always)]
fn offer_and<const LEFT: bool, const FORESEEN: bool>(heap: &mut [Item], item: Item) {
    if heap.first().is_some_and(|&root| key(item) < key(root)) {
        sift::<LEFT, FORESEEN>(heap, 0, item);
    }
}

/// Offers the candidates of `data` from `start` on to the heap.
///
/// In random order the heap changes about `k ln(n / k)` times, and only for a logit above that of
/// its root. So most of the array is only compared with the root, in vector registers. In a rising
/// array the heap changes all the time, so each pair of registers is compared with the current
/// root.
pub(super) fn offer_all<const LEFT: bool>(heap: &mut [Item], data: &[TokenData], start: usize) {
    dispatch(OfferAll::<LEFT> { heap, data, start });
}

struct OfferAll<'a, const LEFT: bool> {
    heap: &'a mut [Item],
    data: &'a [TokenData],
    start: usize,
}

impl<const LEFT: bool> Kernel for OfferAll<'_, LEFT> {
    type Output = ();
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        offer_all_on::<V, LEFT>(v, self.heap, self.data, self.start);
    }
}

#[inline(always)]
// In bounds: a pair has twice as many candidates as a register has lanes, and a bit for each may be
// set.
fn offer_all_on<V: Vector, const LEFT: bool>(
    v: V,
    heap: &mut [Item],
    data: &[TokenData],
    start: usize,
) {
    let Some((&mut mut root, offered)) = heap.first_mut().zip(data.get(start..)) else {
        return;
    };
    let mut roots = v.splat(above(key(root)));
    let pairs = offered.chunks_exact(2 * V::LANES);
    let (rest, mut place) = (pairs.remainder(), start);
    let mut offers = 0;
    for pair in pairs {
        let (low, high) = pair.split_at(V::LANES);
        let of_low = v.ge(v.load_logits(low), roots);
        let of_high = v.ge(v.load_logits(high), roots);
        if of_low | of_high != 0 {
            let mut bits = u64::from(of_low) | u64::from(of_high) << V::LANES;
            offers += bits.count_ones() as usize;
            let foreseen = offers > OFTEN * heap.len();
            while bits != 0 {
                let lane = bits.trailing_zeros() as usize;
                let item = item(pair[lane].logit, place + lane);
                if foreseen {
                    offer_and::<LEFT, true>(heap, item);
                } else {
                    offer_and::<LEFT, false>(heap, item);
                }
                bits &= bits - 1;
            }
            root = heap[0];
            roots = v.splat(above(key(root)));
        }
        place += 2 * V::LANES;
    }
    for (candidate, place) in rest.iter().zip(place..) {
        offer::<LEFT>(heap, item(candidate.logit, place));
    }
}

/// Sorts a heap, as `std::sort_heap` does.
pub(super) fn sort_heap<const LEFT: bool>(heap: &mut [Item]) {
    if !LEFT && all_equal(heap) {
        sort_heap_of_equals(heap);
    } else if are_mostly_equal(heap) {
        sort_any_heap::<LEFT, true>(heap);
    } else {
        sort_any_heap::<LEFT, false>(heap);
    }
}

// In bounds: `last` runs below the length, from 1 on.
fn sort_any_heap<const LEFT: bool, const FORESEEN: bool>(heap: &mut [Item]) {
    for last in (1..heap.len()).rev() {
        let item = heap[last];
        heap[last] = heap[0];
        sift::<LEFT, FORESEEN>(&mut heap[..last], 0, item);
    }
}

/// Sorts a heap of equal items by libstdc++'s permutation.
///
/// The hole then always moves to the right child, so only the right spine of the heap takes part,
/// at the indices 0, 2, 6, 14 and so on. The spine is a queue: the item that entered first leaves
/// at the root, and the last item of the heap enters at its end. All masked candidates are equal,
/// and the general algorithm takes about twenty dependent loads for each.
// In bounds: indices of the spine are below `len`, and there are at most as many as `QUEUE` has
// room for.
fn sort_heap_of_equals(heap: &mut [Item]) {
    const QUEUE: usize = 64;
    let mut queue = [0; QUEUE];
    let (mut first, mut end) = (0usize, 0usize);
    // The index on the spine after the last one that is in use.
    let mut next = 0;
    while next < heap.len() {
        queue[end] = heap[next];
        end += 1;
        next = 2 * next + 2;
    }
    for len in (1..heap.len()).rev() {
        if (next - 2) / 2 == len {
            // The last item of the heap is also the last of the spine.
            next = len;
            end -= 1;
            heap[len] = queue[end % QUEUE];
        }
        let item = heap[len];
        heap[len] = queue[first % QUEUE];
        first += 1;
        queue[end % QUEUE] = if next == len && len > 1 {
            // The hole ends at a left child, whose item moves up.
            std::mem::replace(&mut heap[len - 1], item)
        } else {
            item
        };
        end += 1;
    }
    if let Some(root) = heap.first_mut() {
        *root = queue[first % QUEUE];
    }
}

/// Puts the first `k` of `items` in order, as the host's `std::partial_sort` does. The order of the
/// rest differs from the host's.
pub(super) fn partial_sort(items: &mut [Item], k: usize) {
    match HostProfile::current().sort.left_child_first() {
        false => partial_sort_by::<false>(items, k),
        true => partial_sort_by::<true>(items, k),
    }
}

/// Sorts as [`partial_sort`] does, by one of the two kinds of heap.
pub(super) fn partial_sort_by<const LEFT: bool>(items: &mut [Item], k: usize) {
    let (heap, rest) = items.split_at_mut(k.min(items.len()));
    make_heap::<LEFT>(heap);
    for &mut item in rest {
        offer::<LEFT>(heap, item);
    }
    sort_heap::<LEFT>(heap);
}

fn all_equal(items: &[Item]) -> bool {
    let first = items.first().map_or(0, |&item| key(item));
    items.iter().all(|&item| key(item) == first)
}

/// Returns true if most items are equal to the root, as in an array in which most candidates are
/// masked.
fn are_mostly_equal(heap: &[Item]) -> bool {
    const SAMPLE: usize = 64;
    let root = heap.first().map_or(0, |&root| key(root));
    let sample = heap.iter().step_by(heap.len().div_ceil(SAMPLE).max(1));
    let (mut seen, mut equal) = (0, 0);
    for &item in sample {
        seen += 1;
        equal += usize::from(key(item) == root);
    }
    equal > seen / 4 * 3
}

/// Moves the hole at `top` down to a leaf, each time to the child that comes later; of equal
/// children to the right one, or to the left one if `LEFT`. Then moves `item` up from there, past
/// items that come before it.
///
/// On the way down, libc++ either stops at the final position of `item`, or still has `item` at the
/// end of the heap, among the children. The item ends in the same place.
///
/// With `FORESEEN` it uses branches, since the choice of the child is predictable.
#[inline]
// In bounds: children are looked at only below the length.
fn sift<const LEFT: bool, const FORESEEN: bool>(heap: &mut [Item], top: usize, item: Item) {
    let len = heap.len();
    let mut hole = top;
    while 2 * hole + 2 < len {
        let right = 2 * hole + 2;
        let is_left = match LEFT {
            false => key(heap[right]) < key(heap[right - 1]),
            true => key(heap[right]) <= key(heap[right - 1]),
        };
        if FORESEEN && is_left {
            heap[hole] = heap[std::hint::black_box(right - 1)];
            hole = right - 1;
            continue;
        }
        let child = right - usize::from(is_left);
        heap[hole] = heap[child];
        hole = child;
    }
    if 2 * hole + 2 == len {
        heap[hole] = heap[len - 1];
        hole = len - 1;
    }
    rise(heap, top, hole, item);
}

/// Moves `item` up from the hole, past items that come before it, at most to `top`.
#[inline(always)]
// In bounds: a parent's index is below its child's.
fn rise(heap: &mut [Item], top: usize, mut hole: usize, item: Item) {
    while hole > top {
        let parent = (hole - 1) / 2;
        if key(heap[parent]) >= key(item) {
            break;
        }
        heap[hole] = heap[parent];
        hole = parent;
    }
    heap[hole] = item;
}
