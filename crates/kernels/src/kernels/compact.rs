//! Copies the candidates or values that pass a threshold.

use std::mem::MaybeUninit;

use super::layout::SUM_BLOCK;
use super::registers::padded_candidates;
use super::scan::max_on;
use crate::simd::bits::push_indices;
use crate::simd::{MAX_LANES, Vector, dispatched};
use crate::token::TokenData;

dispatched! {
    fn push_at_least(data: &[TokenData], first: u32, threshold: f32, to: &mut Vec<u32>) => at_least_on;
    /// Returns the largest logit, or `known` if that is larger. Appends to `to`, in order, all
    /// candidates whose logits are at or above the largest plus `below`, which is not positive.
    /// Also appends some that only reach the largest logit before them plus `below`. Reads 12 bytes
    /// per candidate.
    fn near_max_from(data: &[TokenData], known: f32, below: f32, to: &mut Vec<TokenData>) -> f32
        => near_max_on;
    /// Appends the values at or above `threshold`, and their indices. Reads 4 bytes per element.
    pub fn select(xs: &[f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>)
        => select_on;
    /// Appends the values at or above `threshold`, in order. Reads 4 bytes per element.
    pub fn pick_at_least(xs: &[f32], threshold: f32, to: &mut Vec<f32>) => pick_at_least_on;
    /// Appends those of `xs` whose keys are at or above `low` and below `high`, in order. Reads 4
    /// bytes per element, or 8 if `keys` is another array.
    pub fn pick(keys: &[f32], xs: &[f32], low: f32, high: f32, to: &mut Vec<f32>) => pick_on;
}

/// Appends the indices, counted from `first`, of all logits at or above `threshold`. Reads 12 bytes
/// per candidate.
pub fn at_least(data: &[TokenData], first: usize, threshold: f32, to: &mut Vec<u32>) {
    push_at_least(data, first as u32, threshold, to);
}

/// Returns the largest logit that is not minus infinity; [`f32::MIN`] if there is none. Appends to
/// `to`, in order, all candidates whose logits are at or above the largest plus `below`, which is
/// not positive, and a few others. Reads 12 bytes per candidate.
pub fn near_max(data: &[TokenData], below: f32, to: &mut Vec<TokenData>) -> f32 {
    // Most rising arrays are recognized in the first part, before much of them is kept.
    const FIRST: usize = 2 * SUM_BLOCK;
    const PART: usize = 32 * SUM_BLOCK;
    let before = to.len();
    let (mut max, mut end) = (f32::MIN, 0);
    while end < data.len() {
        let start = end;
        end = data
            .len()
            .min(if start == 0 { FIRST } else { start + PART });
        let part = data.get(start..end).unwrap_or_default();
        max = near_max_from(part, max, below, to);
        let most = if start == 0 { FIRST / 2 } else { PART };
        if to.len() - before > most && end < data.len() {
            // In a rising array every logit is near the largest before it.
            max = max.max(super::scan::max(data.get(end..).unwrap_or_default()));
            to.truncate(before);
            return near_max_from(data, max, below, to);
        }
    }
    max
}

#[inline(always)]
fn at_least_on<V: Vector>(v: V, data: &[TokenData], first: u32, threshold: f32, to: &mut Vec<u32>) {
    let thresholds = v.splat(threshold);
    let mut base = first;
    let mut pairs = data.chunks_exact(2 * V::LANES);
    for pair in &mut pairs {
        let (low, high) = pair.split_at(V::LANES);
        let of_low = v.ge(v.load_logits(low), thresholds);
        let of_high = v.ge(v.load_logits(high), thresholds);
        if of_low | of_high != 0 {
            v.push_indices(of_low, base, to);
            v.push_indices(of_high, base + V::LANES as u32, to);
        }
        base += 2 * V::LANES as u32;
    }
    let mut chunks = pairs.remainder().chunks_exact(V::LANES);
    for chunk in &mut chunks {
        v.push_indices(v.ge(v.load_logits(chunk), thresholds), base, to);
        base += V::LANES as u32;
    }
    let rest = padded_candidates(chunks.remainder());
    let in_rest = (1u32 << chunks.remainder().len()) - 1;
    let mut bits = 0;
    for (i, lanes) in rest.chunks_exact(V::LANES).enumerate() {
        bits |= v.ge(v.load_logits(lanes), thresholds) << (i * V::LANES);
    }
    push_indices(bits & in_rest, base, to);
}

/// Implements `near_max_from`. Reads the first candidates twice, since most superfluous ones would
/// be kept there, before a large logit is met. Few superfluous ones are kept later unless the
/// logits rise.
#[inline(always)]
fn near_max_on<V: Vector>(
    v: V,
    data: &[TokenData],
    known: f32,
    below: f32,
    to: &mut Vec<TokenData>,
) -> f32 {
    let mut max = known;
    if known == f32::MIN {
        max = max_on(v, data.get(..2 * SUM_BLOCK).unwrap_or(data)).max(known);
    }
    let mut pairs = data.chunks_exact(2 * V::LANES);
    let mut thresholds = v.splat(max + below);
    for pair in &mut pairs {
        let (chunk, next) = pair.split_at(V::LANES);
        let (x, y) = (v.load_logits(chunk), v.load_logits(next));
        if v.ge(x, thresholds) | v.ge(y, thresholds) == 0 {
            continue;
        }
        let maxima = v.splat(max);
        if v.lt(maxima, x) | v.lt(maxima, y) != 0 {
            // If either operand is NaN, `max` returns the second one.
            max = v.reduce_max(v.max(y, v.max(x, maxima)));
            thresholds = v.splat(max + below);
        }
        v.push_candidates(v.ge(x, thresholds), chunk, to);
        v.push_candidates(v.ge(y, thresholds), next, to);
    }
    let mut rest = pairs.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        max = near_max_of_chunk(v, max, chunk, below, to);
    }
    for chunk in padded_candidates(rest.remainder()).chunks_exact(V::LANES) {
        max = near_max_of_chunk(v, max, chunk, below, to);
    }
    max
}

/// Returns the largest logit of one register and `max`, the largest before it. Appends the
/// candidates of the register that are at or above the result plus `below`.
#[inline(always)]
fn near_max_of_chunk<V: Vector>(
    v: V,
    max: f32,
    chunk: &[TokenData],
    below: f32,
    to: &mut Vec<TokenData>,
) -> f32 {
    let x = v.load_logits(chunk);
    let max = v.reduce_max(v.max(x, v.splat(max)));
    v.push_candidates(v.ge(x, v.splat(max + below)), chunk, to);
    max
}

/// The indices of the lanes.
static NUMBERS: [u32; MAX_LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Appends elements and their indices register by register. Whole registers are written, even past
/// the last element.
pub struct Selection<'a, V: Vector> {
    indices: &'a mut [MaybeUninit<f32>],
    picked: &'a mut [MaybeUninit<f32>],
    /// The indices of the lanes of the next register.
    numbers: V::F,
    thresholds: V::F,
    /// The number of elements appended.
    pub count: usize,
}

impl<'a, V: Vector> Selection<'a, V> {
    /// Returns an empty selection that has no room: nothing may be pushed to it.
    #[inline(always)]
    pub fn none(v: V) -> Self {
        Self {
            indices: &mut [],
            picked: &mut [],
            numbers: v.splat(0.0),
            thresholds: v.splat(0.0),
            count: 0,
        }
    }

    /// Returns a selection that appends the elements at or above `threshold` to both vectors.
    /// Reserves memory in these for `n` more elements and a register.
    #[inline(always)]
    pub fn new(
        v: V,
        n: usize,
        threshold: f32,
        indices: &'a mut Vec<u32>,
        picked: &'a mut Vec<f32>,
    ) -> Self {
        indices.reserve(n + MAX_LANES);
        picked.reserve(n + MAX_LANES);
        let room: *mut [_] = indices.spare_capacity_mut();
        Self {
            // SAFETY: the same memory; floats are as large as these numbers, and their bits are
            // moved as they are.
            indices: unsafe { &mut *(room as *mut [MaybeUninit<f32>]) },
            picked: picked.spare_capacity_mut(),
            numbers: v.load_u32(&NUMBERS),
            thresholds: v.splat(threshold),
            count: 0,
        }
    }

    /// Appends the elements of a register that are at or above the threshold.
    #[inline(always)]
    // In bounds: no more are appended than were looked at, and there is room for all and a
    // register.
    pub fn push(&mut self, v: V, x: V::F) {
        let lanes = v.ge(x, self.thresholds);
        if lanes != 0 {
            v.compress_store(lanes, self.numbers, &mut self.indices[self.count..]);
            v.compress_store(lanes, x, &mut self.picked[self.count..]);
            self.count += lanes.count_ones() as usize;
        }
        let step = v.splat(f32::from_bits(V::LANES as u32));
        self.numbers = v.add_bits(self.numbers, step);
    }
}

/// Adds `n` to the lengths of both vectors.
///
/// # Safety
/// The elements must have been written.
#[inline(always)]
pub unsafe fn extend(n: usize, indices: &mut Vec<u32>, picked: &mut Vec<f32>) {
    let (end_of_indices, end_of_picked) = (indices.len() + n, picked.len() + n);
    // SAFETY: as the caller says.
    unsafe {
        indices.set_len(end_of_indices);
        picked.set_len(end_of_picked);
    }
}

#[inline(always)]
fn select_on<V: Vector>(
    v: V,
    xs: &[f32],
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) {
    let mut selection = Selection::new(v, xs.len(), threshold, indices, picked);
    let mut chunks = xs.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        selection.push(v, v.load(chunk));
    }
    let count = selection.count;
    // SAFETY: that many were appended.
    unsafe { extend(count, indices, picked) };
    let rest = chunks.remainder();
    let first = (xs.len() - rest.len()) as u32;
    for (&x, i) in rest.iter().zip(first..) {
        if x >= threshold {
            indices.push(i);
            picked.push(x);
        }
    }
}

#[inline(always)]
// In bounds: no more are picked than were read, and there is room for all and a register: just
// reserved.
fn pick_on<V: Vector>(v: V, keys: &[f32], xs: &[f32], low: f32, high: f32, to: &mut Vec<f32>) {
    assert_eq!(keys.len(), xs.len());
    // Whole registers are written, even past the last element.
    to.reserve(xs.len() + MAX_LANES);
    let len = to.len();
    let room = to.spare_capacity_mut();
    let (lowest, highest) = (v.splat(low), v.splat(high));
    let mut picked = 0;
    let mut key_chunks = keys.chunks_exact(V::LANES);
    let mut chunks = xs.chunks_exact(V::LANES);
    for (keys, chunk) in (&mut key_chunks).zip(&mut chunks) {
        let key = v.load(keys);
        let lanes = v.ge(key, lowest) & v.lt(key, highest);
        if lanes != 0 {
            picked += v.compress_store(lanes, v.load(chunk), &mut room[picked..]);
        }
    }
    // SAFETY: that many were written.
    unsafe { to.set_len(len + picked) };
    for (&key, &x) in key_chunks.remainder().iter().zip(chunks.remainder()) {
        if key >= low && key < high {
            to.push(x);
        }
    }
}

#[inline(always)]
// In bounds: no more are picked than were read, and there is room for all and a register: just
// reserved.
fn pick_at_least_on<V: Vector>(v: V, xs: &[f32], threshold: f32, to: &mut Vec<f32>) {
    // Whole registers are written, even past the last element.
    to.reserve(xs.len() + MAX_LANES);
    let len = to.len();
    let room = to.spare_capacity_mut();
    let thresholds = v.splat(threshold);
    let mut picked = 0;
    let mut chunks = xs.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let x = v.load(chunk);
        picked += v.compress_store(v.ge(x, thresholds), x, &mut room[picked..]);
    }
    // SAFETY: that many were written.
    unsafe { to.set_len(len + picked) };
    to.extend(chunks.remainder().iter().filter(|&&x| x >= threshold));
}
