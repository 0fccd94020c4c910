//! Finds the ties in an order, at which the host's sort has to be replayed.

use std::ops::Range;

use super::item::{Item, key};
use super::wanted::Wanted;
use crate::algorithms::scratch::Room;
use crate::token::comparable;

const BITS: usize = u64::BITS as usize;

/// A bitmap of the ranks whose logit is equal to that of the next rank.
#[derive(Clone, Debug, Default)]
pub(super) struct Ties {
    words: Vec<u64>,
    len: usize,
    /// A bitmap of the ranks that were passed to `keep_runs_of`.
    named: Vec<u64>,
}

impl Room for Ties {
    fn warm_up(&mut self, n: usize) {
        self.words.warm_up(n.div_ceil(BITS));
        self.named.warm_up(n.div_ceil(BITS));
    }
}

impl Ties {
    /// Records the ties in descending logits, and returns true if there are any. If `cut` is true,
    /// the last logit counts as tied, since it may equal a logit that is not in `sorted`.
    pub(super) fn find(&mut self, sorted: &[f32], cut: bool) -> bool {
        self.len = sorted.len();
        self.words.clear();
        let mut any = 0;
        for (block, first) in sorted.chunks(BITS).zip((0..).step_by(BITS)) {
            let next = sorted.get(first + 1..).unwrap_or_default();
            let word = equal_bits(block, next);
            any |= word;
            self.words.push(word);
        }
        if let Some(last) = self.len.checked_sub(1).filter(|_| cut) {
            self.set(last);
            any = 1;
        }
        any != 0
    }

    /// Removes the ties to which none of `ranks` belongs.
    pub(super) fn keep_runs_of(&mut self, ranks: &[u32]) {
        self.named.clear();
        self.named.resize(self.words.len(), 0);
        for &rank in ranks {
            if let Some(word) = self.named.get_mut(rank as usize / BITS) {
                *word |= 1 << (rank as usize % BITS);
            }
        }
        let mut start = 0;
        while let Some(run) = self.next_run(start) {
            start = run.end;
            // Searches only up to the end of the run.
            let named = self.named.get(..run.end.div_ceil(BITS)).unwrap_or_default();
            if next_set(named, run.start).is_none_or(|rank| rank >= run.end) {
                clear(&mut self.words, run);
            }
        }
    }

    /// Returns the next run of ranks with equal logits, from `start` on: two or more, or only the
    /// last rank if [`find`](Self::find) was called with `cut`.
    pub(super) fn next_run(&self, start: usize) -> Option<Range<usize>> {
        let first = next_set(&self.words, start)?;
        Some(first..self.len.min(next_clear(&self.words, first) + 1))
    }

    fn is_set(&self, rank: usize) -> bool {
        let word = self.words.get(rank / BITS);
        word.is_some_and(|word| word >> (rank % BITS) & 1 == 1)
    }

    fn set(&mut self, rank: usize) {
        if let Some(word) = self.words.get_mut(rank / BITS) {
            *word |= 1 << (rank % BITS);
        }
    }

    /// Returns true if one of these ranks is tied with the next, which may be outside the range.
    pub(super) fn any_from(&self, ranks: Range<usize>) -> bool {
        next_set(&self.words, ranks.start).is_some_and(|tied| tied < ranks.end)
    }

    /// Returns true if two of these ranks are tied.
    pub(super) fn any_in(&self, ranks: Range<usize>) -> bool {
        let last = ranks.end.saturating_sub(1);
        let words = self.words.get(..last.div_ceil(BITS)).unwrap_or(&self.words);
        next_set(words, ranks.start).is_some_and(|tied| tied < last)
    }
}

/// Returns the index of the first set bit from `start` on.
fn next_set(words: &[u64], start: usize) -> Option<usize> {
    let (first, later) = words.get(start / BITS..)?.split_first()?;
    let first = first & u64::MAX << (start % BITS);
    let mut words = std::iter::once(&first).chain(later).enumerate();
    let (number, word) = words.find(|&(_, &word)| word != 0)?;
    Some((start / BITS + number) * BITS + word.trailing_zeros() as usize)
}

/// Returns the index of the first clear bit from `start` on.
fn next_clear(words: &[u64], start: usize) -> usize {
    let mut mask = u64::MAX << (start % BITS);
    let words = words.iter().enumerate().skip(start / BITS);
    for (number, word) in words {
        let clear = !word & std::mem::replace(&mut mask, u64::MAX);
        if clear != 0 {
            return number * BITS + clear.trailing_zeros() as usize;
        }
    }
    usize::MAX - 1
}

/// Clears the bits at the indices `bits`.
fn clear(words: &mut [u64], bits: Range<usize>) {
    let first = bits.start / BITS;
    for (number, word) in words.iter_mut().enumerate().skip(first) {
        let start = number * BITS;
        if start >= bits.end {
            return;
        }
        let from = u64::MAX << bits.start.saturating_sub(start).min(BITS - 1);
        let kept_behind = u64::MAX.checked_shl((bits.end - start) as u32).unwrap_or(0);
        *word &= !from | kept_behind;
    }
}

/// Returns a word with a bit for each of at most 64 logits, set if the logit is equal to the
/// corresponding element of `next`.
fn equal_bits(block: &[f32], next: &[f32]) -> u64 {
    let equal = |(&a, &b): (&f32, &f32)| comparable(a) == comparable(b);
    let pairs = || block.iter().zip(next);
    // Usually no two are equal, which is found without computing the bits.
    if pairs().map(|pair| u32::from(equal(pair))).sum::<u32>() == 0 {
        return 0;
    }
    let bits = pairs().enumerate();
    bits.fold(0, |bits, (i, pair)| bits | u64::from(equal(pair)) << i)
}

/// The wanted part of an order that consists of the tied items of a range.
pub(super) struct Tied<'a> {
    pub ties: &'a Ties,
    /// The rank of the range's first item.
    pub first: usize,
}

impl Wanted for Tied<'_> {
    fn wants(&mut self, items: &mut [Item], places: Range<usize>) -> bool {
        let ranks = self.first + places.start..self.first + places.end;
        if self.ties.any_in(ranks.clone()) {
            return true;
        }
        // One item may belong to a tie that begins in the part before this one, and another to a
        // tie that continues in the next part. In order, they are the first and the last of this
        // part, and differ from all others.
        if ranks.start > 0 && self.ties.is_set(ranks.start - 1) {
            bring(items, 0, |a, b| a < b);
        }
        if ranks.end > ranks.start && self.ties.is_set(ranks.end - 1) {
            bring(items, items.len() - 1, |a, b| a > b);
        }
        false
    }

    fn take(&mut self, _: &[Item], _: Range<usize>) -> bool {
        true
    }
}

/// Swaps the item at `place` with the one that comes first by `before`.
fn bring(items: &mut [Item], place: usize, before: impl Fn(u32, u32) -> bool) {
    let mut best = place;
    for (i, &item) in items.iter().enumerate() {
        if before(key(item), key(items[best])) {
            best = i;
        }
    }
    items.swap(place, best);
}
