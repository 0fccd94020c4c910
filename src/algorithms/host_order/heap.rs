//! libstdc++'s heap functions, replayed on [`Item`]s.
//!
//! `std::partial_sort` makes a heap of the first k items whose root is the one that comes last,
//! exchanges each later item that comes before the root for it, and sorts the heap. Which of
//! several equal items it keeps, and in what order, follows from each single step: these are the
//! steps.

use super::{Item, key};

/// Makes a heap of `items`: no item comes before its parent's place in a reversed order.
#[expect(clippy::indexing_slicing, reason = "`parent` is below half the length")]
pub fn make_heap(items: &mut [Item]) {
    for parent in (0..items.len() / 2).rev() {
        let item = items[parent];
        sift(items, parent, item);
    }
}

/// Replaces the root of a heap, which is not empty, by `item`.
#[inline]
pub fn replace_root(heap: &mut [Item], item: Item) {
    sift(heap, 0, item);
}

/// Sorts a heap.
#[expect(
    clippy::indexing_slicing,
    reason = "`last` runs below the length, from 1 on"
)]
pub fn sort_heap(heap: &mut [Item]) {
    for last in (1..heap.len()).rev() {
        let item = heap[last];
        heap[last] = heap[0];
        sift(&mut heap[..last], 0, item);
    }
}

/// Leaves the first `k` of `items` in order, as `std::partial_sort` does. What it leaves behind
/// them differs.
#[expect(clippy::indexing_slicing, reason = "`k` is at most the length")]
pub fn partial_sort(items: &mut [Item], k: usize) {
    let (heap, rest) = items.split_at_mut(k.min(items.len()));
    make_heap(heap);
    if !heap.is_empty() {
        for &mut item in rest {
            if key(item) < key(heap[0]) {
                replace_root(heap, item);
            }
        }
    }
    sort_heap(heap);
}

/// Moves the hole at `top` down to a leaf, always to the child that comes later, and of equal ones
/// to the right one; then `item` up from there, past what comes before it.
#[inline]
#[expect(
    clippy::indexing_slicing,
    reason = "children are looked at only below the length"
)]
fn sift(heap: &mut [Item], top: usize, item: Item) {
    let len = heap.len();
    let mut hole = top;
    while 2 * hole + 2 < len {
        let right = 2 * hole + 2;
        let child = right - usize::from(key(heap[right]) < key(heap[right - 1]));
        heap[hole] = heap[child];
        hole = child;
    }
    if 2 * hole + 2 == len {
        heap[hole] = heap[len - 1];
        hole = len - 1;
    }
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
