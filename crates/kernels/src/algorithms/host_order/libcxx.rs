//! Replays libc++'s `std::sort` on [`Item`]s, with the same permutation, even of equal items.
//!
//! It is an introsort, like libstdc++'s: a range is partitioned around a pivot, and both parts
//! likewise. After `2 floor(log2 n)` levels a heap sort takes over, and short ranges are left to an
//! insertion sort, which is stable. Unlike in libstdc++, the pivot ends between the parts and
//! belongs to neither. If a partition finds no misplaced items, an insertion sort is tried on both
//! parts. A part in which it has moved eight items is partitioned after all. If the pivot is found
//! to be the least of its range, all items equal to it are moved to the front, and are then in
//! order.
//!
//! A [`Scheme`] holds the differences between versions: how many items make a short range, which
//! item is the pivot, where items equal to it go, and how the heap sort builds its heap.

use std::ops::Range;

use super::heap;
use super::item::{Item, key, order};
use super::wanted::Wanted;

/// The number of moved items at which the insertion sort gives up.
const MOST_MOVED: usize = 8;

/// The choices that a version of the library makes.
#[derive(Clone, Copy)]
pub(super) struct Scheme {
    /// The largest number of items in a range that is left to the insertion sort.
    leaf: usize,
    /// Partitions a range of more than `leaf` items. The second argument is the key of the pivot
    /// before the range, if any: no item of the range comes before that pivot.
    split: fn(&mut [Item], Option<u32>) -> Split,
    /// Sorts a range that has used up its levels.
    heap_sort: fn(&mut [Item]),
}

/// The scheme of LLVM 14 to 16.
pub(super) const LLVM_14: Scheme = Scheme {
    leaf: 30,
    split: split_around_middle,
    heap_sort,
};

/// The scheme of LLVM 17 and later.
pub(super) const LLVM_17: Scheme = Scheme {
    leaf: 23,
    split: split_around_first,
    heap_sort,
};

/// The scheme of LLVM 22 and later, for numbers.
pub(super) const LLVM_22_NUMBERS: Scheme = Scheme {
    heap_sort: |items| {
        heap::make_heap_of_numbers(items);
        heap::sort_heap::<true>(items);
    },
    ..LLVM_17
};

/// A partitioned range.
struct Split {
    /// The range of the items that come before the pivot, or of those equal to it if these were
    /// moved to the front.
    left: Range<usize>,
    /// The start of the second part.
    right: usize,
    /// The pivot's key.
    pivot: u32,
    /// True if the left part is in order.
    settled: bool,
    /// True if no two items were exchanged.
    kept: bool,
}

/// A part of the items that is to be sorted.
struct Part {
    places: Range<usize>,
    levels: u32,
    /// The key of the pivot before it.
    before: Option<u32>,
}

/// Sorts the parts of `items` that `wanted` selects.
pub(super) fn sort(items: &mut [Item], wanted: &mut impl Wanted, scheme: Scheme) {
    let part = Part {
        places: 0..items.len(),
        levels: 2 * items.len().checked_ilog2().unwrap_or(0),
        before: None,
    };
    Sorting {
        items,
        wanted,
        scheme,
    }
    .sort(part);
}

struct Sorting<'a, W> {
    items: &'a mut [Item],
    wanted: &'a mut W,
    scheme: Scheme,
}

impl<W: Wanted> Sorting<'_, W> {
    /// Sorts a part. Returns false if sorting may end. Recurses at most once for each level.
    // In bounds: parts lie within the items.
    fn sort(&mut self, mut part: Part) -> bool {
        loop {
            let places = part.places.clone();
            let range = &mut self.items[places.clone()];
            if range.is_empty() || !self.wanted.wants(range, places.clone()) {
                return true;
            }
            if range.len() <= self.scheme.leaf {
                insertion_sort(range, usize::MAX);
                return self.wanted.take(range, places);
            }
            if part.levels == 0 {
                (self.scheme.heap_sort)(range);
                return self.wanted.take(range, places);
            }
            let split = (self.scheme.split)(range, part.before);
            let (left, right) = (split.left, split.right);
            let tried = |range: &mut [Item]| split.kept && insertion_sort(range, MOST_MOVED);
            let left_settled = split.settled || tried(&mut range[left.clone()]);
            let right_settled = tried(&mut range[right..]);
            let at = |within: usize| places.start + within;
            let levels = part.levels - 1;
            // libc++ forgets this pivot if the first part was already in order and had no pivot
            // before it.
            let before = Some(split.pivot).filter(|_| !left_settled || part.before.is_some());
            let goes_on = match left_settled {
                true => self.settled(at(left.start)..at(left.end)),
                false => self.sort(Part {
                    places: at(left.start)..at(left.end),
                    levels,
                    before: part.before,
                }),
            };
            if !goes_on || !self.settled(at(left.end)..at(right)) {
                return false;
            }
            let places = at(right)..places.end;
            if right_settled {
                return self.settled(places);
            }
            part = Part {
                places,
                levels,
                before,
            };
        }
    }

    /// Passes on items that are in order. Returns false if sorting may end.
    // In bounds: parts lie within the items.
    fn settled(&mut self, places: Range<usize>) -> bool {
        let range = &mut self.items[places.clone()];
        let is_wanted = !range.is_empty() && self.wanted.wants(range, places.clone());
        !is_wanted || self.wanted.take(range, places)
    }
}

/// Sorts `items` stably, but stops after the `most`-th move, not counting the first three items.
/// Returns true if all are sorted.
// In bounds: `i` is below the length, and `to` is at most `i`.
fn insertion_sort(items: &mut [Item], most: usize) -> bool {
    const FREE: usize = 3;
    let n = items.len();
    let mut moved = 0;
    for i in 1..n {
        let item = items[i];
        if key(items[i - 1]) <= key(item) {
            continue;
        }
        let to = items[..i].partition_point(|&other| key(other) <= key(item));
        items[to..=i].rotate_right(1);
        moved += usize::from(i >= FREE);
        if moved == most {
            return i + 1 == n;
        }
    }
    true
}

fn heap_sort(items: &mut [Item]) {
    heap::partial_sort_by::<true>(items, items.len());
}

/// Exchanges, within `places`, the i-th item from the left that belongs on the right with the i-th
/// from the right that belongs on the left. Returns the start of the second part, and true if
/// nothing was exchanged. `follow` is the index of an item that belongs on the right, and is
/// updated when that item moves.
// In bounds: `i` and `j` stay within the indices.
fn partition(
    items: &mut [Item],
    places: Range<usize>,
    follow: &mut usize,
    belongs_left: impl Fn(u32) -> bool,
) -> (usize, bool) {
    let (mut i, mut j) = (places.start, places.end);
    let mut kept = true;
    loop {
        while i < j && belongs_left(key(items[i])) {
            i += 1;
        }
        while i < j && !belongs_left(key(items[j - 1])) {
            j -= 1;
        }
        if i >= j {
            return (i, kept);
        }
        j -= 1;
        items.swap(i, j);
        kept = false;
        if *follow == i {
            *follow = j;
        }
        i += 1;
    }
}

/// Partitions as LLVM 14 to 16 does: the median of three items, or of five in a range of a thousand
/// or more, stays in the middle while the others are partitioned. Items equal to it come after it.
// In bounds: there are more than `leaf` items.
fn split_around_middle(items: &mut [Item], _: Option<u32>) -> Split {
    const MANY: usize = 1000;
    let (n, mut middle) = (items.len(), items.len() / 2);
    let ordered = match n < MANY {
        true => order(items, [0, middle, n - 1]),
        false => order(items, [0, middle / 2, middle, middle + middle / 2, n - 1]),
    };
    let pivot = key(items[middle]);
    let comes_before = |key: u32| key < pivot;
    if !comes_before(key(items[0])) && !items[1..n - 1].iter().any(|&item| comes_before(key(item)))
    {
        return split_off_least(items, pivot);
    }
    let (second, kept) = partition(items, 0..n - 1, &mut middle, comes_before);
    let in_place = key(items[second]) <= pivot;
    if !in_place {
        items.swap(second, middle);
    }
    Split {
        left: 0..second,
        right: second + 1,
        pivot,
        settled: false,
        kept: ordered && kept && in_place,
    }
}

/// Partitions as LLVM 17 and later does: the median of three items, or the median of three such
/// medians in a range of more than 128, is moved to the front, and then between the parts. Items
/// equal to it come after it; but if it is equal to the pivot before the range, they come before
/// it.
// In bounds: there are more than `leaf` items.
fn split_around_first(items: &mut [Item], before: Option<u32>) -> Split {
    const MANY: usize = 128;
    let (n, half) = (items.len(), items.len() / 2);
    if n > MANY {
        for [a, b, c] in [
            [0, half, n - 1],
            [1, half - 1, n - 2],
            [2, half + 1, n - 3],
            [half - 1, half, half + 1],
        ] {
            order(items, [a, b, c]);
        }
        items.swap(0, half);
    } else {
        order(items, [half, 0, n - 1]);
    }
    let pivot = key(items[0]);
    if before.is_some_and(|before| before >= pivot) {
        let split = split_off_least(items, pivot);
        items.swap(0, split.right - 1);
        return split;
    }
    let (second, kept) = partition(items, 1..n, &mut 0, |key| key < pivot);
    items.swap(0, second - 1);
    Split {
        left: 0..second - 1,
        right: second,
        pivot,
        settled: false,
        kept,
    }
}

/// Moves all items with the key `pivot`, the least key, to the front. The first item already has
/// it.
// In bounds: there are more than `leaf` items.
fn split_off_least(items: &mut [Item], pivot: u32) -> Split {
    let (second, _) = partition(items, 1..items.len(), &mut 0, |key| key <= pivot);
    Split {
        left: 0..second,
        right: second,
        pivot,
        settled: true,
        kept: false,
    }
}
