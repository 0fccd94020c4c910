//! Keys that sort floats as integers, and the passes of a radix sort.

use super::layout::TWO_23;
use crate::simd::{Vector, dispatched};
use crate::token::comparable;

dispatched! {
    /// Writes for each x the bits of 2^23 + min((`max` - x) * `factor`, `last`); `last` is below
    /// 2^23, and no x is NaN. The low bits are the step of x only if `max` is finite and no x
    /// exceeds it. Reads and writes 4 bytes per element.
    pub fn steps(xs: &[f32], max: f32, factor: f32, last: f32, to: &mut [u32]) => steps_on;
    /// Copies the elements of `from` at `indices` to `to`. Adjacent elements that rise may be
    /// swapped, with their indices. Reads 8 bytes per element, 4 of them in random order, and
    /// writes 8.
    ///
    /// # Panics
    /// If an index is out of range.
    pub fn fetch(from: &[f32], indices: &mut [u32], to: &mut [f32]) => fetch_on;
}

/// Returns a key that falls as `logit` rises; equal for -0 and +0, and for NaN and minus infinity.
#[inline]
pub fn descending_key(logit: f32) -> u32 {
    let bits = (comparable(logit) + 0.0).to_bits();
    bits ^ reversed(bits)
}

/// Returns the bits to invert for a descending key. Negative floats already fall as their bits
/// rise; positive ones must come before them, in reverse order. There is no branch, since signs are
/// hard to predict.
#[inline]
fn reversed(bits: u32) -> u32 {
    ((!bits as i32) >> 31) as u32 >> 1
}

/// Returns the logit of a key, except for the sign of 0 and for NaN.
#[inline]
pub fn logit_of(key: u32) -> f32 {
    f32::from_bits(key ^ reversed(key))
}

#[inline(always)]
fn steps_on<V: Vector>(v: V, xs: &[f32], max: f32, factor: f32, last: f32, to: &mut [u32]) {
    assert_eq!(xs.len(), to.len());
    let (maxima, factors, lasts) = (v.splat(max), v.splat(factor), v.splat(last));
    let two_23 = v.splat(TWO_23);
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let step = v.mul(v.sub(maxima, v.load(chunk)), factors);
        let step = v.select_lt(step, lasts, step, lasts);
        v.store_u32(to, v.add(step, two_23));
    }
    for (x, to) in chunks.remainder().iter().zip(rest.into_remainder()) {
        let step = (max - x) * factor;
        // This form turns NaN into the last step.
        let step = if step < last { step } else { last };
        *to = (step + TWO_23).to_bits();
    }
}

/// The number of rounds of an odd-even transposition sort that each register gets.
const EXCHANGES: usize = 2;

/// Implements `fetch`. It waits for memory anyway, so the swaps cost no time.
#[inline(always)]
fn fetch_on<V: Vector>(v: V, from: &[f32], indices: &mut [u32], to: &mut [f32]) {
    assert_eq!(indices.len(), to.len());
    let mut chunks = indices.chunks_exact_mut(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let mut pair = (v.gather(from, chunk), v.load_u32(chunk));
        for _ in 0..EXCHANGES {
            pair = v.compare_exchange_even(pair.0, pair.1);
            pair = v.compare_exchange_odd(pair.0, pair.1);
        }
        v.store(to, pair.0);
        v.store_u32(chunk, pair.1);
    }
    for (&mut i, to) in chunks
        .into_remainder()
        .iter_mut()
        .zip(rest.into_remainder())
    {
        *to = from[i as usize];
    }
}
