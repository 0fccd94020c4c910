//! Sums floats as if they were added one by one in the order of the array.
//!
//! The built-ins add `float`s one by one, and their cuts depend on the last bit. While a sum S
//! stays in one binade [c, 2c), whose floats are the multiples of u, adding a term t gives S + (t
//! rounded to a multiple of u), whatever S is. The one exception is a t exactly half-way between
//! two multiples, for which the parity of S / u decides. So a block of terms can be rounded to
//! multiples of u and added in any order, without error (Rump's error-free extraction), if no term
//! is half-way and the sum does not leave the binade. Otherwise this is tried with each [`PART`] of
//! the block, and only the terms of a part for which it fails, too, are added one by one. A term is
//! rounded by adding c and subtracting it again. Terms far below u round to nothing, as they do in
//! the built-in.
//!
//! A block fails about once per doubling of the sum, and at each half-way term, of which there is
//! about one in S / t: some dozens of blocks per array. A bound on the error of a plain vector sum
//! does not help: with 2^17 terms it is far wider than the distance of most decisions from their
//! threshold.

use super::layout::{SUM_BLOCK, binade};
use crate::simd::{Vector, dispatched};

dispatched! {
    /// Returns `start` plus all terms, which are not negative, as if added one by one. Reads 4
    /// bytes per element.
    pub fn sum(start: f32, xs: &[f32]) -> f32 => sum_on;
    /// Returns the sum of all terms, which are not negative, in `double`, whose last bits depend on
    /// the instruction set. `sums` receives the sum up to the end of each block of [`SUM_BLOCK`].
    /// Reads 4 bytes per element.
    pub fn sum_double(xs: &[f32], sums: &mut [f64]) -> f64 => sum_double_on;
    /// Returns the sum of all terms whose keys are above `above` and below `below`, each rounded to
    /// a multiple of the unit of floats from `c`, a power of two, to 2 c. The result is exact, or
    /// at least 2 c. Terms half-way between two multiples are excluded, and their indices appended
    /// to `halfway`. Reads 8 bytes per element, or 4 if the keys are the terms, and a block with a
    /// half-way term twice.
    pub fn rounded_tail(
        keys: &[f32], terms: &[f32], above: f32, below: f32, c: f32, halfway: Option<&mut Vec<u32>>,
    ) -> f32 => rounded_tail_on;
}

/// Returns the sum of the probabilities whose keys are above `above`, with an error of at most
/// 1e-4. Reads 8 bytes per element.
pub fn sum_above(keys: &[f32], ps: &[f32], above: f32) -> f32 {
    sum_between(keys, ps, above, f32::INFINITY)
}

/// Returns the sum of the probabilities whose keys are above `above` and below `below`, with an
/// error of at most 1e-4.
pub fn sum_between(keys: &[f32], ps: &[f32], above: f32, below: f32) -> f32 {
    // The units are so small that rounding to them changes nothing.
    const FINE: f32 = f32::from_bits(27 << 23);
    rounded_tail(keys, ps, above, below, FINE, None)
}

/// The smallest sum to which blocks are added at once. Below it, half a unit comes near the range
/// of denormal floats.
pub const SMALLEST: f32 = 1e-30;

/// The number of terms that are tried at once before parts are tried.
pub const QUARTER: usize = SUM_BLOCK / 4;

/// The number of terms that are tried at once if a larger block cannot be added at once. If that
/// fails, too, they are added one by one.
pub const PART: usize = 32;

#[inline(always)]
fn sum_on<V: Vector>(v: V, start: f32, xs: &[f32]) -> f32 {
    let mut sum = start;
    for block in xs.chunks(SUM_BLOCK) {
        sum = add_block(v, sum, block);
    }
    sum
}

#[inline(always)]
fn sum_double_on<V: Vector>(v: V, xs: &[f32], sums: &mut [f64]) -> f64 {
    let mut sum = 0.0;
    for (block, to) in xs.chunks(SUM_BLOCK).zip(sums) {
        sum += block_sum_double(v, block);
        *to = sum;
    }
    sum
}

/// Returns `sum` plus the terms, which are not negative, as if added one by one. A block that
/// cannot be added at once is tried in parts.
#[inline(always)]
pub fn add_block<V: Vector>(v: V, sum: f32, terms: &[f32]) -> f32 {
    if let Some(sum) = try_block(v, sum, terms) {
        return sum;
    }
    let mut sum = sum;
    for part in terms.chunks(PART) {
        sum = match try_block(v, sum, part) {
            Some(sum) => sum,
            None => part.iter().fold(sum, |sum, t| sum + t),
        };
    }
    sum
}

#[inline(always)]
fn try_block<V: Vector>(v: V, sum: f32, terms: &[f32]) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) {
        return None;
    }
    let c = binade(sum);
    let unit = v.splat(c);
    let mut added = v.splat(0.0);
    let mut furthest = added;
    let mut chunks = terms.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let t = v.load(chunk);
        let rounded = v.sub(v.add(t, unit), unit);
        furthest = v.max_abs(v.sub(t, rounded), furthest);
        added = v.add(added, rounded);
    }
    let total = sum + v.reduce_add(added);
    // No rounding error exceeds half a unit. The comparison is false for NaN, which is thus
    // refused, too.
    let stays = total < 2.0 * c;
    if v.reduce_max(furthest) >= c * (f32::EPSILON / 2.0) || !stays {
        return None;
    }
    Some(chunks.remainder().iter().fold(total, |sum, t| sum + t))
}

/// Returns the sum of the terms in `double`, from a partial sum for each of [`Vector::LANES`].
#[inline(always)]
pub fn block_sum_double<V: Vector>(v: V, terms: &[f32]) -> f64 {
    let mut a = v.splat_d(0.0);
    let mut b = a;
    let mut chunks = terms.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let [low, high] = v.load_widened(chunk);
        a = v.add_d(a, low);
        b = v.add_d(b, high);
    }
    let mut sum = v.reduce_add_d(v.add_d(a, b));
    for &t in chunks.remainder() {
        sum += f64::from(t);
    }
    sum
}

#[inline(always)]
fn rounded_tail_on<V: Vector>(
    v: V,
    keys: &[f32],
    terms: &[f32],
    above: f32,
    below: f32,
    c: f32,
    mut halfway: Option<&mut Vec<u32>>,
) -> f32 {
    assert_eq!(keys.len(), terms.len());
    let (unit, zero) = (v.splat(c), v.splat(0.0));
    let half = v.splat(c * (f32::EPSILON / 2.0));
    let (lowest, highest) = (v.splat(above), v.splat(below));
    let mut sum = 0.0;
    let mut base = 0;
    // Nothing is called in the inner loop, since a call would spill all registers.
    for (keys, terms) in keys.chunks(SUM_BLOCK).zip(terms.chunks(SUM_BLOCK)) {
        let mut added = zero;
        let mut any_halfway = 0;
        let mut key_chunks = keys.chunks_exact(V::LANES);
        let mut chunks = terms.chunks_exact(V::LANES);
        for (keys, chunk) in (&mut key_chunks).zip(&mut chunks) {
            let (key, x) = (v.load(keys), v.load(chunk));
            // A term outside the range is replaced by 0, which rounds to 0.
            let x = v.select_lt(key, highest, x, zero);
            let x = v.select_lt(lowest, key, x, zero);
            let rounded = v.sub(v.add(x, unit), unit);
            let off = v.abs(v.sub(x, rounded));
            any_halfway |= v.eq(off, half);
            added = v.add(added, v.select_lt(off, half, rounded, zero));
        }
        sum += v.reduce_add(added);
        let (rest_keys, rest) = (key_chunks.remainder(), chunks.remainder());
        sum += tail_one_by_one(rest_keys, rest, [above, below, c], |_| ());
        if let Some(halfway) = &mut halfway
            && (any_halfway != 0 || !rest.is_empty())
        {
            push_halfway(keys, terms, [above, below, c], base, halfway);
        }
        base += SUM_BLOCK as u32;
    }
    sum
}

/// Appends the indices, counted from `first`, of the terms that are half-way.
#[inline(never)]
fn push_halfway(keys: &[f32], terms: &[f32], range: [f32; 3], first: u32, to: &mut Vec<u32>) {
    tail_one_by_one(keys, terms, range, |i| to.push(first + i as u32));
}

/// Returns the rounded sum of terms in a range (above, below, and c), added one by one. Calls
/// `halfway` with the index of each half-way term.
#[inline(always)]
fn tail_one_by_one(
    keys: &[f32],
    terms: &[f32],
    [above, below, c]: [f32; 3],
    mut halfway: impl FnMut(usize),
) -> f32 {
    let half = c * (f32::EPSILON / 2.0);
    let mut sum = 0.0;
    for (i, (&key, &x)) in keys.iter().zip(terms).enumerate() {
        if !(key > above && key < below) {
            continue;
        }
        let rounded = (x + c) - c;
        if (x - rounded).abs() == half {
            halfway(i);
        } else {
            sum += rounded;
        }
    }
    sum
}
