//! Ranks plain floats in descending order (an argsort).
//!
//! The range from the largest to the smallest float is divided into 2^22 equal steps, and the
//! floats are sorted by the numbers of their steps: a radix sort with two digits of 11 bits, least
//! significant first. It moves 4 bytes per element: a word with the higher digit and the index. The
//! lower digit is not needed once the elements are in its order, and the floats are fetched at the
//! end. In a vocabulary one logit in a few dozen shares its step with another, and a final
//! insertion sort puts these in order. If too many share a step, for example because of a few
//! distant outliers, a comparison sort is used instead.
//!
//! A few thousand elements are sorted with digits of 8 bits, whose counts take less time to clear
//! and to add up. Ranking the logits of 1000 candidates then takes half the time of a comparison
//! sort. Tens of thousands of floats that were rounded to bf16 are sorted in one pass, by their
//! upper halves.
//!
//! Per element, 24 bytes are read and 16 written sequentially; 8 are written and 4 read at
//! scattered places.

use super::scratch::{Room, room_to_write_over};
use crate::kernels::column::{Column, copy_column};
use crate::kernels::scan::next_rise;
use crate::kernels::sort_key::{descending_key, fetch, logit_of, steps};
use crate::per_thread::lent_per_thread;
use crate::simd::{Vector, dispatched, prefetch};
use crate::token::TokenData;

/// Buffers for ranking, and the last ranking.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// The floats in their original order, if they were copied from candidates.
    values: Vec<f32>,
    once: Vec<u32>,
    /// The indices in order; before the sort, the steps.
    indices: Vec<u32>,
    sorted: Vec<f32>,
    keys: Vec<u64>,
    /// The number of elements with each value of a digit; for two digits, one table after the
    /// other.
    counts: Vec<u32>,
}

lent_per_thread!(Ranking);

/// The number of values of a digit, if there are many elements. Digits of 10 bits, which need one
/// more pass, take 1.05 times as long, and digits of 12 bits equally long. Sorting by the highest
/// digit first, and then each of its buckets in the nearest cache, takes 2 times as long.
const VALUES_OF_MANY: usize = 1 << 11;
/// The number of values of a digit for fewer elements than [`MANY`].
const VALUES_OF_FEW: usize = 1 << 8;
/// The number of bits of a word that remain for the index next to the higher digit.
const INDEX_BITS: u32 = u32::BITS - VALUES_OF_MANY.ilog2();
/// The number of elements below which digits are shorter.
const MANY: usize = 4096;
/// The number of values of the upper half of a float.
const HALVES: usize = 1 << 16;
/// The number of elements from which counting upper halves is worth its cost.
const MANY_FOR_HALVES: usize = HALVES / 2;
/// The number of elements up to which comparisons sort faster.
pub(super) const FEW: usize = 256;

/// Reserves memory without losing the last ranking.
impl Room for Ranking {
    fn warm_up(&mut self, n: usize) {
        room_to_write_over(&mut self.values, n);
        self.reserve_order(n);
    }
}

impl Ranking {
    /// Reserves memory for the order of `n` floats, but not for their values, which the caller may
    /// have in a buffer of its own.
    fn reserve_order(&mut self, n: usize) {
        room_to_write_over(&mut self.once, n);
        room_to_write_over(&mut self.indices, n);
        room_to_write_over(&mut self.sorted, n);
        room_to_write_over(&mut self.keys, n);
        let counts = match n {
            0..MANY => 2 * VALUES_OF_FEW,
            MANY..MANY_FOR_HALVES => 2 * VALUES_OF_MANY,
            _ => HALVES,
        };
        room_to_write_over(&mut self.counts, counts);
    }

    /// Ranks the logits of `data`, whatever their ids; NaN counts as minus infinity.
    pub fn rank_logits(&mut self, data: &[TokenData]) -> Column {
        let column = self.take_logits(data);
        self.rank_taken(column);
        column
    }

    /// Sets the ranking of `xs` to an order found elsewhere: `indices`.
    // In bounds: the indices name elements of `xs`.
    pub fn set(&mut self, xs: &[f32], indices: impl Iterator<Item = u32>) {
        self.indices.clear();
        self.indices.extend(indices);
        let sorted = self.indices.iter().map(|&i| xs[i as usize]);
        self.sorted.clear();
        self.sorted.extend(sorted);
    }

    /// Copies the logits into `sorted`. Returns the properties of the logits and the ids. The last
    /// ranking wrote `sorted` after `values`, so it is more likely to be in a cache.
    fn take_logits(&mut self, data: &[TokenData]) -> Column {
        self.sorted.resize(data.len(), 0.0);
        copy_column(data, &mut self.sorted)
    }

    /// Ranks the copied logits.
    fn rank_taken(&mut self, column: Column) {
        let n = self.sorted.len();
        self.warm_up(n);
        std::mem::swap(&mut self.values, &mut self.sorted);
        let values = std::mem::take(&mut self.values);
        self.rank_between(&values, None, column);
        self.values = values;
    }

    /// Ranks `xs`, none of which is NaN.
    pub fn rank(&mut self, xs: &[f32]) {
        self.rank_between(xs, None, extremes(xs));
    }

    /// Ranks the elements of `xs` at `indices`, which ascend. `picked` holds these elements. None
    /// of `xs` is NaN.
    pub fn rank_selected(&mut self, xs: &[f32], indices: &[u32], picked: &[f32]) {
        self.rank_between(xs, Some((indices, picked)), extremes(picked));
    }

    /// Sorts `keys`, whose upper halves are the keys of logits or of similar numbers. All keys
    /// differ, and keys with equal upper halves are already in ascending order.
    // In bounds: as many floats as keys were ranked.
    pub fn sort(&mut self, keys: &mut Vec<u64>) {
        // Keys are distinct, so an unstable sort has only one result.
        if keys.len() < FEW {
            return keys.sort_unstable();
        }
        let mut values = std::mem::take(&mut self.values);
        values.clear();
        values.extend(keys.iter().map(|&key| logit_of((key >> 32) as u32)));
        self.rank(&values);
        self.values = values;
        self.keys.clear();
        let ranked = self.indices.iter().map(|&i| keys[i as usize]);
        self.keys.extend(ranked);
        std::mem::swap(keys, &mut self.keys);
    }

    /// Returns the indices in descending order of their elements, those of equal elements
    /// ascending.
    #[inline]
    pub fn indices(&self) -> &[u32] {
        &self.indices
    }

    /// Returns the floats that were ranked, in descending order.
    #[inline]
    pub fn sorted(&self) -> &[f32] {
        &self.sorted
    }

    /// Returns the indices and the floats, to be rewritten.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut [u32], &mut [f32]) {
        (&mut self.indices, &mut self.sorted)
    }

    fn rank_between(&mut self, xs: &[f32], selected: Option<(&[u32], &[f32])>, column: Column) {
        let picked = selected.map_or(xs, |(_, picked)| picked);
        let n = picked.len();
        self.reserve_order(n);
        if n < FEW || xs.len() >= 1 << INDEX_BITS {
            return self.rank_by_comparisons(xs, selected);
        }
        for buffer in [&mut self.once, &mut self.indices] {
            buffer.resize(n, 0);
        }
        self.sorted.resize(n, 0.0);
        if n >= MANY_FOR_HALVES && selected.is_none() && are_halves(xs) {
            return self.rank_by_halves(xs);
        }
        if n < MANY {
            self.rank_by_steps::<VALUES_OF_FEW, false>(picked, selected, column);
        } else {
            self.rank_by_steps::<VALUES_OF_MANY, true>(picked, selected, column);
        }
        fetch(xs, &mut self.indices, &mut self.sorted);
        if !mend(&mut self.sorted, &mut self.indices) {
            self.rank_by_comparisons(xs, selected);
        }
    }

    /// Sorts the indices of `picked` by steps, of which there are `VALUES * VALUES` of equal size.
    // In bounds: there is an index for each picked float.
    fn rank_by_steps<const VALUES: usize, const ASKS: bool>(
        &mut self,
        picked: &[f32],
        selected: Option<(&[u32], &[f32])>,
        column: Column,
    ) {
        let last = (VALUES * VALUES - 1) as f32;
        // Infinities may get wrong steps. The insertion sort corrects their order.
        let factor = last / (column.max - column.min);
        steps(picked, column.max, factor, last, &mut self.indices);
        match selected {
            Some((indices, _)) => self.distribute::<VALUES, ASKS>(|i| indices[i]),
            None => self.distribute::<VALUES, ASKS>(|i| i as u32),
        }
    }

    /// Ranks floats whose lower halves are zero, as those of bf16, in one pass.
    // In bounds: a half is below `HALVES`; there are as many indices and sorted floats as floats,
    // which the counts add up to.
    fn rank_by_halves(&mut self, xs: &[f32]) {
        self.counts.resize(HALVES, 0);
        let Some(counts) = self.counts.first_chunk_mut::<HALVES>() else {
            return;
        };
        write_halves(xs, &mut self.once);
        counts.fill(0);
        for &half in &self.once {
            counts[half as usize % HALVES] += 1;
        }
        let mut start = 0;
        for (upper, count) in (0u32..)
            .zip(counts.iter_mut())
            .filter(|(_, count)| **count > 0)
        {
            let end = start + *count;
            // Keys of positive floats are inverted, and with them the lower half.
            let lower = if upper < 1 << 15 { 0xffff } else { 0 };
            self.sorted[start as usize..end as usize].fill(logit_of(upper << 16 | lower));
            *count = std::mem::replace(&mut start, end);
        }
        let zeros = counts[half(0.0) as usize] as usize;
        let digit = |i: usize| self.once[i] as usize;
        // SAFETY: the halves were counted above, and the places made from the counts.
        unsafe { deal::<_, HALVES, true>(counts, &mut self.indices, digit, |i| i as u32) };
        // Zeros of both signs have one key, so their signs are restored here.
        let are_zero = self.sorted[zeros..].iter().take_while(|&&x| x == 0.0);
        let zeros = zeros..zeros + are_zero.count();
        for (x, &i) in self.sorted[zeros.clone()]
            .iter_mut()
            .zip(&self.indices[zeros])
        {
            *x = xs[i as usize];
        }
    }

    /// Sorts the indices by their steps.
    // In bounds: digits are taken modulo `VALUES`; `once` has as many elements as there are
    // indices.
    fn distribute<const VALUES: usize, const ASKS: bool>(&mut self, name: impl Fn(usize) -> u32) {
        if self.counts.len() < 2 * VALUES {
            self.counts.resize(2 * VALUES, 0);
        }
        let Some((low, rest)) = self.counts.split_first_chunk_mut::<VALUES>() else {
            return;
        };
        let Some(high) = rest.first_chunk_mut::<VALUES>() else {
            return;
        };
        let bits = VALUES.ilog2();
        let index_bits = u32::BITS - bits;
        low.fill(0);
        high.fill(0);
        for &step in &self.indices {
            low[step as usize % VALUES] += 1;
            high[(step >> bits) as usize % VALUES] += 1;
        }
        // Arrays of a known length: indices need no check.
        for counts in [&mut *low, &mut *high] {
            let mut start = 0;
            for count in counts {
                start += std::mem::replace(count, start);
            }
        }
        let (once, indices) = (&mut self.once[..], &mut self.indices[..]);
        let digit = |i: usize| indices[i] as usize % VALUES;
        // The bits above the higher digit are shifted out.
        let word = |i: usize| indices[i] >> bits << index_bits | name(i);
        // SAFETY: these digits were counted above, and the places made from the counts.
        unsafe { deal::<_, VALUES, ASKS>(low, once, digit, word) };
        let digit = |i: usize| (once[i] >> index_bits) as usize;
        let index = |i: usize| once[i] & ((1 << index_bits) - 1);
        // SAFETY: as before; the order of the elements does not matter to the counts.
        unsafe { deal::<_, VALUES, ASKS>(high, indices, digit, index) };
    }

    // In bounds: the indices name elements of `xs`.
    fn rank_by_comparisons(&mut self, xs: &[f32], selected: Option<(&[u32], &[f32])>) {
        self.keys.clear();
        let key = |(&x, i): (&f32, u32)| u64::from(descending_key(x)) << 32 | u64::from(i);
        match selected {
            Some((indices, picked)) => {
                let keys = picked.iter().zip(indices.iter().copied());
                self.keys.extend(keys.map(key));
            }
            None => self.keys.extend(xs.iter().zip(0..).map(key)),
        }
        // Keys are distinct, so an unstable sort has only one result.
        self.keys.sort_unstable();
        self.indices.clear();
        self.indices.extend(self.keys.iter().map(|&key| key as u32));
        self.sorted.clear();
        let sorted = self.indices.iter().map(|&i| xs[i as usize]);
        self.sorted.extend(sorted);
    }
}

/// Writes `element(i)` of each i to the next position of its digit.
///
/// With `ASKS`, the cache lines of the positions are prefetched some elements ahead. Stores that
/// miss the first-level cache are slow when mixed with stores that hit it, as those to the counts
/// do: without prefetching, 128,256 elements took 1.5 times as long.
///
/// `digit` is taken modulo `DIGITS`.
///
/// # Safety
/// `places` holds the index at which the elements of each digit begin, made from counts of the
/// digits of exactly these elements.
#[inline(always)]
// In bounds: `digit` is taken modulo `DIGITS`.
unsafe fn deal<T: Copy, const DIGITS: usize, const ASKS: bool>(
    places: &mut [u32; DIGITS],
    to: &mut [T],
    digit: impl Fn(usize) -> usize,
    mut element: impl FnMut(usize) -> T,
) {
    const AHEAD: usize = 32;
    const UNROLLED: usize = 4;
    let n = to.len();
    let mut put = |i: usize, next: Option<usize>| {
        if let Some(next) = next {
            prefetch(to, places[digit(next) % DIGITS] as usize);
        }
        let place = &mut places[digit(i) % DIGITS];
        let at = *place as usize;
        // The place is advanced before the element is written: for all the compiler knows, that
        // write might change the place.
        *place += 1;
        debug_assert!(at < to.len());
        // SAFETY: the caller promises that no digit has more elements than were counted, and these
        // end where those of the next begin.
        unsafe { *to.get_unchecked_mut(at) = element(i) };
    };
    let asking = if ASKS { n.saturating_sub(AHEAD) } else { 0 };
    let asking = asking - asking % UNROLLED;
    // Unrolled by hand: a loop this short can take 1.5 times as long, depending on the address of
    // its branch.
    for first in (0..asking).step_by(UNROLLED) {
        for i in 0..UNROLLED {
            put(first + i, Some(first + i + AHEAD));
        }
    }
    (asking..n).for_each(|i| put(i, None));
}

/// Returns the upper half of the key of `x`.
#[inline(always)]
fn half(x: f32) -> u32 {
    descending_key(x) >> 16
}

dispatched! {
    /// Writes the upper halves of `xs` into `to`, which is as long.
    fn write_halves(xs: &[f32], to: &mut [u32]) => write_halves_on;
}

#[inline(always)]
fn write_halves_on<V: Vector>(_: V, xs: &[f32], to: &mut [u32]) {
    for (to, &x) in to.iter_mut().zip(xs) {
        *to = half(x);
    }
}

/// Returns true if the lower halves of these floats are zero.
fn are_halves(xs: &[f32]) -> bool {
    // The first few floats usually decide.
    let any_lower = |xs: &[f32]| xs.iter().fold(0, |bits, x| bits | x.to_bits()) & 0xffff != 0;
    !xs.chunks(1024).any(any_lower)
}

/// Returns the properties of `xs`, computed in several lanes, which the compiler vectorizes.
fn extremes(xs: &[f32]) -> Column {
    const LANES: usize = 16;
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut min = [f32::MAX; LANES];
    let mut take = |xs: &[f32]| {
        for ((&x, max), min) in xs.iter().zip(&mut max).zip(&mut min) {
            *max = if *max < x { x } else { *max };
            let x = if x < f32::MIN { f32::MAX } else { x };
            *min = if x < *min { x } else { *min };
        }
    };
    let mut chunks = xs.chunks_exact(LANES);
    (&mut chunks).for_each(&mut take);
    take(chunks.remainder());
    Column {
        max: max.into_iter().fold(f32::NEG_INFINITY, f32::max),
        min: min.into_iter().fold(f32::MAX, f32::min),
        plain: true,
    }
}

/// Sorts almost sorted floats, and their indices with them, in descending order by insertion. Gives
/// up, and returns false, after about four moves per float, when a full sort is cheaper.
// In bounds: `next_rise` returns an index or the length, and there are as many indices as floats;
// `at` falls from there, and is above 0 where 1 is subtracted.
fn mend(xs: &mut [f32], indices: &mut [u32]) -> bool {
    let mut left = 4 * xs.len();
    let mut i = 0;
    loop {
        i = next_rise(xs, i + 1);
        if i == xs.len() {
            return true;
        }
        let (x, index) = (xs[i], indices[i]);
        let mut at = i;
        while at > 0 && xs[at - 1] < x {
            xs[at] = xs[at - 1];
            indices[at] = indices[at - 1];
            at -= 1;
        }
        xs[at] = x;
        indices[at] = index;
        left = left.saturating_sub(i - at);
        if left == 0 {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
