//! libstdc++'s heap functions, replayed on [`Item`]s.
//!
//! `std::partial_sort` makes a heap of the first k items whose root is the one that comes last,
//! exchanges each later item that comes before the root for it, and sorts the heap. Which of
//! several equal items it keeps, and in what order, follows from each single step: these are the
//! steps.

use super::item::{Item, key};

/// Makes a heap of `items`: no item comes before its parent's place in a reversed order.
#[expect(clippy::indexing_slicing, reason = "`parent` is below half the length")]
pub(super) fn make_heap(items: &mut [Item]) {
    for parent in (0..items.len() / 2).rev() {
        let item = items[parent];
        sift(items, parent, item);
    }
}

/// Exchanges the root of a heap for `item`, if that comes before it.
#[inline]
pub(super) fn offer(heap: &mut [Item], item: Item) {
    if heap.first().is_some_and(|&root| key(item) < key(root)) {
        sift(heap, 0, item);
    }
}

/// Sorts a heap.
pub(super) fn sort_heap(heap: &mut [Item]) {
    match all_equal(heap) {
        true => sort_heap_of_equals(heap),
        false => sort_any_heap(heap),
    }
}

#[expect(
    clippy::indexing_slicing,
    reason = "`last` runs below the length, from 1 on"
)]
fn sort_any_heap(heap: &mut [Item]) {
    for last in (1..heap.len()).rev() {
        let item = heap[last];
        heap[last] = heap[0];
        sift(&mut heap[..last], 0, item);
    }
}

/// Sorts a heap of equal items: the same permutation.
///
/// Then the hole always moves to the right child, so that only the right spine of the heap takes
/// part, the places 0, 2, 6, 14 and so on. It is a queue: what leaves at the root is the item that
/// came in first, and the last item of the heap comes in at its end. All masked candidates are
/// equal, and the general way takes some twenty dependent loads for each.
#[expect(
    clippy::indexing_slicing,
    reason = "places of the spine are below `len`; of it there are at most as many as `QUEUE` has room for"
)]
fn sort_heap_of_equals(heap: &mut [Item]) {
    const QUEUE: usize = 64;
    let mut queue = [0; QUEUE];
    let (mut first, mut end) = (0usize, 0usize);
    // The place on the spine behind the last one.
    let mut next = 0;
    while next < heap.len() {
        queue[end] = heap[next];
        end += 1;
        next = 2 * next + 2;
    }
    for len in (1..heap.len()).rev() {
        if (next - 2) / 2 == len {
            // The heap's last item is the spine's.
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

/// Leaves the first `k` of `items` in order, as `std::partial_sort` does. What it leaves behind
/// them differs.
pub(super) fn partial_sort(items: &mut [Item], k: usize) {
    let (heap, rest) = items.split_at_mut(k.min(items.len()));
    make_heap(heap);
    for &mut item in rest {
        offer(heap, item);
    }
    sort_heap(heap);
}

fn all_equal(items: &[Item]) -> bool {
    let first = items.first().map_or(0, |&item| key(item));
    items.iter().all(|&item| key(item) == first)
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
