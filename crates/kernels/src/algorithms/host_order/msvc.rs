//! Replays the `std::sort` of Microsoft's C++ library on [`Item`]s, with the same permutation, even
//! of equal items.
//!
//! It is an introsort, like libstdc++'s. But a partition makes three parts; the middle one holds
//! the items equal to the pivot and is then in order. The pivot is the median of three items or, in
//! a range of more than 41, the median of three such medians. Up to 32 items are left to an
//! insertion sort, which is stable. A budget limits the depth: it begins as the number of items,
//! and each level leaves three quarters of it. When it is used up, a heap sort takes over, whose
//! heaps are those of libstdc++.

use std::cmp::Ordering;
use std::ops::Range;

use super::heap;
use super::item::{Item, key, order};
use super::wanted::Wanted;

/// The largest number of items in a range that is left to the insertion sort.
const LEAF: usize = 32;
/// The largest number of items in a range whose pivot is the median of three.
const FEW: usize = 41;

/// A part of the items that is to be sorted.
struct Part {
    places: Range<usize>,
    budget: usize,
}

/// Sorts the parts of `items` that `wanted` selects.
pub(super) fn sort(items: &mut [Item], wanted: &mut impl Wanted) {
    let part = Part {
        places: 0..items.len(),
        budget: items.len(),
    };
    sort_part(items, wanted, part);
}

/// Sorts a part. Returns false if sorting may end. Recurses at most once for each level.
// In bounds: parts lie within the items.
fn sort_part(items: &mut [Item], wanted: &mut impl Wanted, mut part: Part) -> bool {
    loop {
        let places = part.places.clone();
        let range = &mut items[places.clone()];
        if range.is_empty() || !wanted.wants(range, places.clone()) {
            return true;
        }
        if range.len() <= LEAF || part.budget == 0 {
            finish(range);
            return wanted.take(range, places);
        }
        let equal = split(range);
        let budget = part.budget / 2 + part.budget / 4;
        let (start, end) = (places.start + equal.start, places.start + equal.end);
        let first = Part {
            places: places.start..start,
            budget,
        };
        if !sort_part(items, wanted, first) {
            return false;
        }
        let range = &mut items[start..end];
        if wanted.wants(range, start..end) && !wanted.take(range, start..end) {
            return false;
        }
        part = Part {
            places: end..places.end,
            budget,
        };
    }
}

/// Sorts a range that is not partitioned further.
fn finish(range: &mut [Item]) {
    match range.len() {
        ..=LEAF => range.sort_by_key(|&item| key(item)),
        n => heap::partial_sort_by::<false>(range, n),
    }
}

/// Partitions into the items before a pivot, those equal to it and those after it. Returns the
/// range of the equal ones.
// In bounds: there are more than `LEAF` items.
fn split(range: &mut [Item]) -> Range<usize> {
    let n = range.len();
    let (middle, last) = (n / 2, n - 1);
    if n > FEW {
        let step = n / 8;
        for [a, b, c] in [
            [0, step, 2 * step],
            [middle - step, middle, middle + step],
            [last - 2 * step, last - step, last],
            [step, middle, last - step],
        ] {
            order(range, [a, b, c]);
        }
    } else {
        order(range, [0, middle, last]);
    }
    let pivot = middle..middle + 1;
    let sides = Sides {
        pivot: key(range[middle]),
        range,
        equal: pivot.clone(),
        seen: pivot,
    };
    sides.grow()
}

/// A range whose inner part is already partitioned.
struct Sides<'a> {
    range: &'a mut [Item],
    pivot: u32,
    /// The range of the items equal to the pivot.
    equal: Range<usize>,
    /// The range that is partitioned: first the items before the pivot, then those equal to it,
    /// then those after it.
    seen: Range<usize>,
}

// In bounds: `seen` lies within the range, and `equal` within `seen`.
impl Sides<'_> {
    /// Partitions the range, from the inside to both ends. Returns the range of the items equal to
    /// the pivot.
    fn grow(mut self) -> Range<usize> {
        loop {
            match (self.misplaced_below(), self.misplaced_above()) {
                (true, true) => self.exchange(),
                (true, false) => self.move_up(),
                (false, true) => self.move_down(),
                (false, false) => return self.equal,
            }
        }
    }

    /// Searches up for an item that comes before the pivot, and returns true if there is one. Items
    /// equal to the pivot are swapped with the first item that comes after the pivot.
    fn misplaced_above(&mut self) -> bool {
        while let Some(&next) = self.range.get(self.seen.end) {
            match key(next).cmp(&self.pivot) {
                Ordering::Less => return true,
                Ordering::Greater => {}
                Ordering::Equal => {
                    self.range.swap(self.equal.end, self.seen.end);
                    self.equal.end += 1;
                }
            }
            self.seen.end += 1;
        }
        false
    }

    /// Searches down for an item that comes after the pivot, and returns true if there is one.
    /// Items equal to the pivot are swapped with the last item that comes before the pivot.
    fn misplaced_below(&mut self) -> bool {
        while let Some(next) = self.seen.start.checked_sub(1) {
            match key(self.range[next]).cmp(&self.pivot) {
                Ordering::Greater => return true,
                Ordering::Less => {}
                Ordering::Equal => {
                    self.equal.start -= 1;
                    self.range.swap(self.equal.start, next);
                }
            }
            self.seen.start = next;
        }
        false
    }

    /// Exchanges the misplaced items of both sides.
    fn exchange(&mut self) {
        self.seen.start -= 1;
        self.range.swap(self.seen.start, self.seen.end);
        self.seen.end += 1;
    }

    /// Moves the misplaced item of the lower side to the place after the equal items, if the upper
    /// side has no misplaced item. The last item that comes before the pivot moves to where that
    /// item was, and the last equal item moves to where the last item before the pivot was.
    fn move_up(&mut self) {
        self.seen.start -= 1;
        self.equal.start -= 1;
        self.equal.end -= 1;
        self.range.swap(self.seen.start, self.equal.start);
        self.range.swap(self.equal.start, self.equal.end);
    }

    /// Moves the misplaced item of the upper side to the place before the equal items, if the lower
    /// side has no misplaced item. The first item that comes after the pivot moves to where that
    /// item was, and the first equal item moves to where the first item after the pivot was.
    fn move_down(&mut self) {
        self.range.swap(self.seen.end, self.equal.end);
        self.range.swap(self.equal.end, self.equal.start);
        self.seen.end += 1;
        self.equal.start += 1;
        self.equal.end += 1;
    }
}
