//! Descending order of plain floats by buckets that registers can sort.
//!
//! A sample says how the floats are spread, and so which of some thousand buckets each goes to,
//! such that each bucket gets about [`PER_BUCKET`]. Counted, every element is brought to its bucket
//! as one word of 64 bits, float and index. Then [`WINDOW`] words at a time are sorted in
//! registers: behind the last bucket that a window holds whole come words of later buckets, which
//! are larger than all of it and stay behind it. Whatever the sample says, the order is right: a
//! bucket that is larger than a window is sorted by comparisons.
//!
//! As the words hold all of the float and the index, nothing is fetched, mended or compared in the
//! end: equal floats have their order by the index.
//!
//! Per element: 18 bytes read and 10 written in order, 8 written out of it. Of the cycles that
//! 128,256 logits take, 1 each goes into the numbers of the buckets, 2 into counting, 6 to 8 into
//! dealing, 4.5 into sorting.
//!
//! What lost: buckets of 64, each with less room in a window (1.15 times the time of sorting); 1000
//! buckets and fewer larger than a window (twice); positions within a bucket found while counting,
//! so that dealing reads no count that it writes (5.5 cycles instead of 4.6, and 2 more of
//! counting); AVX-512's own scatters (12 cycles); positions of 64 elements ahead in a buffer, and
//! words made by vector instructions there (1.2 times the time of dealing); pages of 2 MiB (0.96
//! times the time of all, but a megabyte more of memory); words for 1000 logits (1.4 times the time
//! of their ranking by digits).

use super::order::logit_of;
use super::ranking::deal;
use super::{current, prefetch};

/// Buffers for this.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    /// The bucket of each float.
    numbers: Vec<u16>,
    words: Vec<u64>,
    places: Vec<[u32; MOST]>,
    /// How many buckets there are.
    used: usize,
}

/// How the floats are spread, as a sample tells: how many buckets lie above each of [`SEGMENTS`]
/// equal parts of the range, and how many in it.
#[derive(Clone, Debug)]
pub struct Spread {
    /// The largest of the sample.
    pub top: f32,
    /// Segments per unit below it.
    pub per_unit: f32,
    /// The first bucket of each segment.
    pub first: [f32; SEGMENTS],
    /// How many buckets a segment has.
    pub many: [f32; SEGMENTS],
}

/// Of floats and their spread: gives the number of each one's bucket, which never falls as the
/// float falls. Says whether no float is -0, which would have to count as 0.
type Number = fn(&[f32], &Spread, &mut [u16]) -> bool;

/// Of words and the end of each bucket: sorts by descending floats and ascending indices. Behind
/// the last word there is room for [`WINDOW`] more.
type Sort = fn(&mut [u64], &[u32], &mut [u32], &mut [f32]);

/// What an instruction set does of this.
#[derive(Clone, Copy)]
pub struct Passes {
    pub number: Number,
    pub sort: Sort,
}

/// So many words are sorted in registers.
pub const WINDOW: usize = 128;
/// How many parts of the range have their own share of buckets.
pub const SEGMENTS: usize = 32;
/// No more buckets are used.
const MOST: usize = 4096;
/// How many elements a bucket should have: the more, the more of a window is left over behind its
/// last bucket.
const PER_BUCKET: usize = 32;
/// Of so many the spread is estimated.
const SAMPLE: usize = 512;
/// So many neighbours are taken together: a cache line.
const GROUP: usize = 16;
/// Fewer are ranked otherwise.
const SMALLEST: usize = 2048;
/// The bits of the index in a word, above which lies the float.
pub const INDEX_BITS: u32 = 20;
/// The exponent of 1: the words are doubles from 1 to 2, which registers can compare.
pub const ONE: u64 = 0x3FF << 52;
/// Turned over in the words of positive floats, which makes the words rise as the floats fall.
pub const REVERSED: u64 = 0x7FFF_FFFF << INDEX_BITS;

impl Buckets {
    /// Makes room for what ranking `n` floats can take.
    pub fn reserve(&mut self, n: usize) {
        if current().buckets.is_none() {
            return;
        }
        let (numbers, words) = (&mut self.numbers, &mut self.words);
        numbers.reserve(n.saturating_sub(numbers.len()));
        words.reserve((n + WINDOW).saturating_sub(words.len()));
        self.places
            .reserve(1usize.saturating_sub(self.places.len()));
    }

    /// Brings each of `picked`, of which none is NaN, to its bucket, with its index or the one that
    /// `indices` tells; all are below `names`. Says whether it could: with some instruction sets,
    /// of many floats, and not if one is -0. Then the floats are needed no more.
    pub fn deal(&mut self, picked: &[f32], indices: Option<&[u32]>, names: usize) -> bool {
        let Some(passes) = current().buckets else {
            return false;
        };
        let n = picked.len();
        if n < SMALLEST || names > 1 << INDEX_BITS {
            return false;
        }
        self.numbers.resize(n, 0);
        if self.words.len() < n + WINDOW {
            self.words.resize(n + WINDOW, 0);
        }
        self.places.resize(1, [0; MOST]);
        self.used = (n / PER_BUCKET).clamp(2, MOST);
        let spread = spread(picked, self.used);
        spread.is_some_and(|spread| (passes.number)(picked, &spread, &mut self.numbers))
            && match indices {
                Some(indices) => self.deal_words(picked, indices.iter().copied()),
                None => self.deal_words(picked, 0..),
            }
    }

    /// Sorts what was dealt: the indices, and what they name.
    pub fn sort(&mut self, indices: &mut Vec<u32>, sorted: &mut Vec<f32>) {
        let n = self.numbers.len();
        let ends = self.places.first().and_then(|ends| ends.get(..self.used));
        let (Some(passes), Some(ends)) = (current().buckets, ends) else {
            return;
        };
        indices.resize(n + WINDOW, 0);
        sorted.resize(n + WINDOW, 0.0);
        // No more of them: what lies behind belongs to larger arrays, and is filled up to the end.
        let Some(words) = self.words.get_mut(..n + WINDOW) else {
            return;
        };
        (passes.sort)(words, ends, indices, sorted);
        indices.truncate(n);
        sorted.truncate(n);
    }

    /// Brings each float with its index to its bucket; then the places are the ends of the buckets.
    /// Says whether it could: not if some float is in none of those `used`.
    #[expect(
        clippy::indexing_slicing,
        reason = "buckets are taken modulo the number of places, of which `used` are no more; there are as many words as floats"
    )]
    fn deal_words(&mut self, xs: &[f32], indices: impl Iterator<Item = u32>) -> bool {
        let used = self.used;
        let (numbers, words) = (&self.numbers[..xs.len()], &mut self.words[..xs.len()]);
        let [places] = &mut self.places[..] else {
            return false;
        };
        places[..used].fill(0);
        for (line, numbers) in numbers.chunks(8).enumerate() {
            // Counting leaves the memory idle, and dealing will want all of the words, in no order.
            prefetch(words, 8 * line);
            for &number in numbers {
                places[usize::from(number) % MOST] += 1;
            }
        }
        let mut start = 0;
        for place in &mut places[..used] {
            start += std::mem::replace(place, start);
        }
        if start as usize != xs.len() {
            return false;
        }
        let mut indices = indices;
        let word = |i: usize| {
            let index = indices.next().unwrap_or(0);
            u64::from(xs[i].to_bits()) << INDEX_BITS | u64::from(index) | ONE
        };
        // SAFETY: counted above, all in places of which each begins where those before it end.
        unsafe { deal::<_, MOST, true>(places, words, |i| usize::from(numbers[i]), word) };
        true
    }
}

/// The spread of `xs`, at least [`SMALLEST`], over so many buckets; `None` if hardly any of a
/// sample is finite.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: longer than a group; segments are taken modulo their number"
)]
fn spread(xs: &[f32], buckets: usize) -> Option<Spread> {
    const GROUPS: usize = SAMPLE / GROUP;
    let (mut tops, mut bottoms) = ([f32::NEG_INFINITY; GROUP], [f32::INFINITY; GROUP]);
    let mut sample = [[0.0; GROUP]; GROUPS];
    for (i, group) in sample.iter_mut().enumerate() {
        let start = i * (xs.len() - GROUP) / GROUPS;
        group.copy_from_slice(&xs[start..start + GROUP]);
        // Lane by lane, which the compiler makes vectors of; infinities count for nothing.
        for ((&x, top), bottom) in group.iter().zip(&mut tops).zip(&mut bottoms) {
            let (high, low) = (x > *top && x <= f32::MAX, x < *bottom && x >= f32::MIN);
            *top = if high { x } else { *top };
            *bottom = if low { x } else { *bottom };
        }
    }
    let top = tops.into_iter().fold(f32::NEG_INFINITY, f32::max);
    let bottom = bottoms.into_iter().fold(f32::INFINITY, f32::min);
    let per_unit = (SEGMENTS as f32 - 0.01) / (top - bottom);
    // One more in each, so that what the sample has missed is not all in one bucket.
    let mut counts = [1u32; SEGMENTS];
    let mut taken = 0;
    for &x in sample.iter().flatten().filter(|x| x.is_finite()) {
        counts[((top - x) * per_unit) as usize % SEGMENTS] += 1;
        taken += 1;
    }
    if taken < SAMPLE / 16 {
        return None;
    }
    let scale = (buckets - 1) as f32 / (taken + SEGMENTS) as f32;
    let mut spread = Spread {
        top,
        per_unit,
        first: [0.0; SEGMENTS],
        many: [0.0; SEGMENTS],
    };
    let mut above = 0;
    let segments = spread.first.iter_mut().zip(&mut spread.many);
    for ((first, many), count) in segments.zip(counts) {
        *first = above as f32 * scale;
        above += count;
        // So that the end of one is the beginning of the next, or below it.
        *many = (above as f32 * scale).next_down() - *first;
    }
    Some(spread)
}

/// A word that sorts by itself as the words in registers do, from one that was dealt.
fn rising(word: u64) -> u64 {
    let negative = word >> (INDEX_BITS + 31) & 1;
    word ^ (REVERSED & negative.wrapping_sub(1))
}

/// Sorts a bucket that is larger than a window by comparisons.
#[cold]
pub fn sort_large(words: &mut [u64], indices: &mut [u32], sorted: &mut [f32]) {
    words.iter_mut().for_each(|word| *word = rising(*word));
    // Words are distinct, so an unstable sort leaves no choice.
    words.sort_unstable();
    for ((word, index), x) in words.iter().zip(indices).zip(sorted) {
        *index = *word as u32 & ((1 << INDEX_BITS) - 1);
        *x = logit_of((*word >> INDEX_BITS) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "has no vector instructions")]
    fn a_small_array_after_a_large_one_leaves_its_words_alone() {
        const MARK: u64 = 7;
        let mut buckets = Buckets::default();
        let (mut indices, mut sorted) = (Vec::new(), Vec::new());
        for n in [1 << 17, 2100] {
            let xs: Vec<f32> = (0..n).map(|i| (i * 7919 % n) as f32).collect();
            if !buckets.deal(&xs, None, n) {
                return; // There are no buckets on this processor.
            }
            buckets.words[n + WINDOW..].fill(MARK);
            buckets.sort(&mut indices, &mut sorted);
            assert!(sorted.is_sorted_by(|a, b| a > b) && sorted.len() == n);
            let behind = &buckets.words[n + WINDOW..];
            assert!(behind.iter().all(|&word| word == MARK), "{n}");
        }
    }
}
