//! The passes over whole arrays, written once for every instruction set. Each gives exactly what
//! its namesake in [`scalar`](super::scalar) gives.
//!
//! # Sums in the order of the array, but not one by one
//!
//! The built-ins add `float`s one by one, and their cuts depend on the last bit. While a sum S
//! stays in one binade [c, 2c), whose floats are the multiples of u, adding a term t gives S + (t
//! rounded to a multiple of u), whatever S is, but for one case: t exactly half-way between two
//! multiples, where the parity of S / u decides. So a block of terms can be rounded to multiples of
//! u and added in any order, without error, if no term is half-way and the sum does not leave the
//! binade; otherwise the block is added one by one. Adding c to a term and subtracting it again is
//! the rounding. Terms far below u round to nothing, as they do in the built-in.
//!
//! That happens about once per doubling of the sum, and for one term in S / t half-way: some dozens
//! of blocks per array. Bounding the error of a plain vector sum lost: with 2^17 terms the bound is
//! far wider than the distance of most decisions from their threshold.
//!
//! Sums in `double` are like that, too, but terms of 24 bits are half-way between multiples of 53
//! bits all the time, as soon as they are 2^30 times smaller than the sum: see
//! [`portable_wide`](super::portable_wide).
//!
//! # Backwards and forwards
//!
//! An array of a large vocabulary does not fit the second-level cache. A host fills it from its
//! beginning, so what the cache still has is its end: passes that are alone with the array begin
//! there. Where several follow each other, each begins where the one before it ended: reading
//! 128,256 candidates again takes 37 us that way and 60 from the beginning, rewriting them 42 and
//! 62. What keeps candidates in their order (min-p) and the sums that are added in order go
//! forwards. Where the logits are copied, backwards lost, 20 in 100 of the softmax that follows.
//!
//! Reading them for the first time takes 62 us (25 GB/s, one core of a Cascade Lake from its
//! third-level cache) and no less with registers that do not cross cache lines, with lines asked
//! for 0.8 to 6 KB ahead, with two streams, or in either direction; and rewriting them takes as
//! long as reading. What can be helped is stores to lines that were not read (`AHEAD`), and buffers
//! beside the array: a cold one of 4 bytes per candidate costs 25 us to write.

// No closure may hold vector code: only what is marked for inlining is compiled with the
// instructions of the function it ends in.

use std::mem::MaybeUninit;

use super::exp::{C, LOWEST, ROUND, SCALE};
use super::math::binade;
pub use super::portable_near::{nearness, rounded_sum, softmax_sum, surprisals};
use super::portable_wide::add_floats_in_order;
pub use super::portable_wide::{divide_p_double, exp_double, set_quotients, write_quotients};
use super::scalar::TWO_23;
use super::vector::{LnParts, MAX_LANES, Vector, push_lanes};
use super::{BLOCK, Column, Curve, GROUP, Squares, ln, scalar};
use crate::token::{TokenData, comparable};

/// Candidates whose logits do not matter: they fill an array up to whole registers.
const PADDING: TokenData = TokenData {
    id: 0,
    logit: f32::NEG_INFINITY,
    p: 0.0,
};

/// The last candidates, fewer than a register's, and padding.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: fewer than a register's"
)]
fn padded(rest: &[TokenData]) -> [TokenData; MAX_LANES] {
    let mut padded = [PADDING; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Reads 12 bytes per candidate.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a pair has twice the lanes")]
pub fn max<V: Vector>(v: V, data: &[TokenData]) -> f32 {
    let mut a = v.splat(f32::NEG_INFINITY);
    let mut b = a;
    let mut pairs = data.chunks_exact(2 * V::LANES);
    for pair in &mut pairs {
        a = v.max(v.logits(pair), a);
        b = v.max(v.logits(&pair[V::LANES..]), b);
    }
    if let Some(last) = data.last_chunk_of::<V>() {
        if pairs.remainder().len() > V::LANES {
            a = v.max(v.logits(pairs.remainder()), a);
        }
        return v.largest(v.max(v.max(v.logits(last), b), a));
    }
    let logits = data.iter().map(|c| comparable(c.logit));
    logits.fold(f32::NEG_INFINITY, f32::max)
}

/// The last elements of an array, as many as a register has lanes. Passes whose results do not
/// depend on what comes twice end with them, instead of going through the remainder one by one;
/// some of the elements then belong to the register before, too.
trait LastChunk {
    /// `None` if there are too few.
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self>;

    /// The same, to rewrite.
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self>;
}

impl<T> LastChunk for [T] {
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the subtraction would have failed")]
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self> {
        self.len().checked_sub(V::LANES).map(|at| &self[at..])
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "the subtraction would have failed")]
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self> {
        self.len().checked_sub(V::LANES).map(|at| &mut self[at..])
    }
}

/// Reads 12 bytes per candidate once, and those of one group again. The last ones first: of equals
/// the one that comes later in the pass is the first.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a pair has twice the lanes; `start` is below the length"
)]
pub fn argmax<V: Vector>(v: V, data: &[TokenData]) -> usize {
    // Minus infinity is never above that.
    let mut best = f32::MIN;
    let mut bests = v.splat(best);
    let mut found = None;
    let whole = data.len() - data.len() % (2 * V::LANES);
    for (i, candidate) in data.iter().enumerate().skip(whole) {
        if candidate.logit > best || (found.is_none() && candidate.logit == best) {
            best = candidate.logit;
            bests = v.splat(best);
            found = Some(i);
        }
    }
    let lowest = v.splat(f32::NEG_INFINITY);
    for (i, pair) in data.chunks_exact(2 * V::LANES).enumerate().rev() {
        let (x, y) = (v.logits(pair), v.logits(&pair[V::LANES..]));
        if v.ge(x, bests) | v.ge(y, bests) != 0 {
            best = v.largest(v.max(y, v.max(x, lowest)));
            bests = v.splat(best);
            found = Some(i * 2 * V::LANES);
        }
    }
    let Some(start) = found else {
        return 0;
    };
    let place = data[start..].iter().position(|c| c.logit == best);
    start + place.unwrap_or(0)
}

/// Reads 12 bytes per candidate and writes 4.
#[inline(always)]
pub fn logits<V: Vector>(v: V, data: &[TokenData], to: &mut [f32]) -> f32 {
    assert_eq!(data.len(), to.len());
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    let (Some(last), Some(to_last)) = (data.last_chunk_of::<V>(), to.last_chunk_of_mut::<V>())
    else {
        return scalar::logits(data, to);
    };
    // NaN becomes minus infinity.
    let x = v.max(v.logits(last), lowest);
    v.store(to_last, x);
    max = v.max(x, max);
    let chunks = data.chunks_exact(V::LANES);
    for (chunk, to) in chunks.zip(to.chunks_exact_mut(V::LANES)) {
        let x = v.max(v.logits(chunk), lowest);
        v.store(to, x);
        max = v.max(x, max);
    }
    v.largest(max)
}

/// e^x of two registers of doubles, which is rounded later.
#[inline(always)]
fn exp<V: Vector>(v: V, [a, b]: [V::D; 2]) -> [V::D; 2] {
    let (a, k_a) = exp2_of_rest(v, a);
    let (b, k_b) = exp2_of_rest(v, b);
    let [scale_a, scale_b] = v.exp2_32nds([k_a, k_b]);
    [v.mul_d(a, scale_a), v.mul_d(b, scale_b)]
}

/// 2^(r/32), and a double whose low bits are k.
#[inline(always)]
fn exp2_of_rest<V: Vector>(v: V, x: V::D) -> (V::D, V::D) {
    let scale = v.splat_d(SCALE);
    let round = v.splat_d(ROUND);
    // Fused or not, k is the same for every float from LOWEST to HIGHEST.
    let shifted = v.fma_d(x, scale, round);
    let k = v.sub_d(shifted, round);
    let r = v.fms_d(x, scale, k);
    let high = v.fma_d(v.splat_d(C[0]), r, v.splat_d(C[1]));
    let low = v.fma_d(v.splat_d(C[2]), r, v.splat_d(1.0));
    (v.fma_d(high, v.mul_d(r, r), low), shifted)
}

/// Replaces every x, of a block at most, by e^(x - max).
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a remainder has fewer elements than a register has lanes"
)]
pub(super) fn exponentiate<V: Vector>(v: V, xs: &mut [f32], max: f32) {
    if V::WIDENS_LOADS {
        for chunk in xs.chunks_exact_mut(V::LANES) {
            v.store(chunk, difference(v, chunk, max));
        }
    }
    let mut chunks = xs.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        let x = if V::WIDENS_LOADS {
            v.load_wide(chunk)
        } else {
            v.widen(difference(v, chunk, max))
        };
        let exponentials = exp(v, x);
        v.store_narrow(chunk, exponentials);
    }
    let rest = chunks.into_remainder();
    if rest.is_empty() {
        return;
    }
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let exponentials = exp(v, v.widen(difference(v, &padded, max)));
    v.store_narrow(&mut padded, exponentials);
    rest.copy_from_slice(&padded[..rest.len()]);
}

#[inline(always)]
fn difference<V: Vector>(v: V, chunk: &[f32], max: f32) -> V::F {
    difference_of(v, v.load(chunk), max)
}

#[inline(always)]
fn difference_of<V: Vector>(v: V, x: V::F, max: f32) -> V::F {
    let x = v.sub(x, v.splat(max));
    // What is below rounds to 0 all the same; NaN stays.
    v.max(v.splat(LOWEST), x)
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn exp_sum<V: Vector>(v: V, start: f32, xs: &mut [f32], max: f32) -> f32 {
    let mut sum = start;
    for block in xs.chunks_mut(BLOCK) {
        exponentiate(v, block, max);
        sum = add_block(v, sum, block);
    }
    sum
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn exp_sum_double<V: Vector>(v: V, xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64 {
    let mut sum = 0.0;
    for (block, to) in xs.chunks_mut(BLOCK).zip(sums) {
        exponentiate(v, block, max);
        sum = add_floats_in_order(v, sum, block);
        *to = sum;
    }
    sum
}

/// Reads 4 bytes per element.
#[inline(always)]
pub fn sum<V: Vector>(v: V, start: f32, xs: &[f32]) -> f32 {
    let mut sum = start;
    for block in xs.chunks(BLOCK) {
        sum = add_block(v, sum, block);
    }
    sum
}

/// Reads 4 bytes per element.
#[inline(always)]
pub fn sum_double<V: Vector>(v: V, xs: &[f32], sums: &mut [f64]) -> f64 {
    let mut sum = 0.0;
    for (block, to) in xs.chunks(BLOCK).zip(sums) {
        sum += block_sum_double(v, block);
        *to = sum;
    }
    sum
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a remainder has fewer elements than a register has lanes"
)]
pub fn exp_wide<V: Vector>(v: V, xs: &mut [f32], max: f32) -> f64 {
    let mut chunks = xs.chunks_exact_mut(V::LANES);
    let mut sums = [v.splat_d(0.0); 2];
    for chunk in &mut chunks {
        let halves = exp_wide_chunk(v, chunk, max);
        sums[0] = v.add_d(sums[0], halves[0]);
        sums[1] = v.add_d(sums[1], halves[1]);
    }
    let mut sum = v.total_d(v.add_d(sums[0], sums[1]));
    let rest = chunks.into_remainder();
    if rest.is_empty() {
        return sum;
    }
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    for chunk in padded.chunks_exact_mut(V::LANES) {
        let halves = exp_wide_chunk(v, chunk, max);
        sum += v.total_d(v.add_d(halves[0], halves[1]));
    }
    rest.copy_from_slice(&padded[..rest.len()]);
    sum
}

/// Replaces every x, none of them NaN, by e^(x - max), and gives the exponentials before they are
/// rounded to floats.
#[inline(always)]
fn exp_wide_chunk<V: Vector>(v: V, chunk: &mut [f32], max: f32) -> [V::D; 2] {
    let lowest = v.splat_d(f64::from(LOWEST));
    let max = v.splat_d(f64::from(max));
    let [a, b] = v.load_wide(chunk);
    let a = v.max_d(v.sub_d(a, max), lowest);
    let b = v.max_d(v.sub_d(b, max), lowest);
    let exponentials = exp(v, [a, b]);
    v.store_narrow(chunk, exponentials);
    exponentials
}

/// The smallest sum with which blocks are added at once: below, the halves of units come near to
/// where floats lose bits.
const SMALLEST: f32 = 1e-30;

/// `sum` and the terms, which are not negative, as if added one by one. A block that does not go at
/// once is tried in parts.
#[inline(always)]
pub(super) fn add_block<V: Vector>(v: V, sum: f32, terms: &[f32]) -> f32 {
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

/// What is tried at once before the parts are.
const QUARTER: usize = BLOCK / 4;

/// What is added one by one where a whole block cannot be.
const PART: usize = 32;

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
    let total = sum + v.total(added);
    // Nothing is further off than half a unit. NaN is not below anything, and so refused, too.
    let stays = total < 2.0 * c;
    if v.largest(furthest) >= c * (f32::EPSILON / 2.0) || !stays {
        return None;
    }
    Some(chunks.remainder().iter().fold(total, |sum, t| sum + t))
}

/// The sum of the terms in `double`, in any order: eight partial sums.
#[inline(always)]
pub(super) fn block_sum_double<V: Vector>(v: V, terms: &[f32]) -> f64 {
    let mut a = v.splat_d(0.0);
    let mut b = a;
    let mut chunks = terms.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let [low, high] = v.load_wide(chunk);
        a = v.add_d(a, low);
        b = v.add_d(b, high);
    }
    let mut sum = v.total_d(v.add_d(a, b));
    for &t in chunks.remainder() {
        sum += f64::from(t);
    }
    sum
}

/// Reads 12 bytes per candidate. The sum in order is given up when it needs the order of too many
/// blocks, as one does that wanders around 0.
#[inline(always)]
pub fn moments<V: Vector>(
    v: V,
    data: &[TokenData],
    sums: &mut [[f64; 2]],
    maxima: &mut [f32],
    in_order: bool,
) -> (f32, Option<f32>) {
    let sum = match in_order {
        true => moments_and_sum::<V, true>(v, data, sums, maxima),
        false => moments_and_sum::<V, false>(v, data, sums, maxima),
    };
    let mut total = [0.0; 2];
    for sums in sums {
        total = [total[0] + sums[0], total[1] + sums[1]];
        *sums = total;
    }
    (
        maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        sum,
    )
}

/// The same; `sums` takes those of each block.
#[inline(always)]
fn moments_and_sum<V: Vector, const IN_ORDER: bool>(
    v: V,
    data: &[TokenData],
    sums: &mut [[f64; 2]],
    maxima: &mut [f32],
) -> Option<f32> {
    let mut sum = 0.0;
    let mut refused = 0;
    let most = 16 + data.len().div_ceil(BLOCK) / 8;
    let largest = maxima.chunks_mut(BLOCK / GROUP);
    for ((block, sums), maxima) in data.chunks(BLOCK).zip(sums).zip(largest) {
        let (moments, after) = block_moments::<V, IN_ORDER>(v, block, maxima, sum);
        *sums = moments;
        if !IN_ORDER {
            continue;
        }
        sum = match after {
            Some(after) => after,
            None if refused <= most => {
                refused += 1;
                in_order(v, sum, block)
            }
            None => sum,
        };
    }
    (IN_ORDER && refused <= most).then_some(sum)
}

/// `sum` plus the logits of a block, which does not go at once.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has at most `BLOCK` candidates"
)]
fn in_order<V: Vector>(v: V, sum: f32, block: &[TokenData]) -> f32 {
    let mut values = [0.0; BLOCK];
    let values = &mut values[..block.len()];
    logits(v, block, values);
    add_signed_block(v, (sum, 0), values).0
}

/// The sum of the logits of one block and that of their squares; leaves the largest of each group.
/// `IN_ORDER`: also `sum` plus the logits as if added one by one, where they go at once; see
/// [`try_signed_block`].
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "four groups are chunks of a quarter of their length; a pair has twice the lanes"
)]
fn block_moments<V: Vector, const IN_ORDER: bool>(
    v: V,
    block: &[TokenData],
    maxima: &mut [f32],
    sum: f32,
) -> ([f64; 2], Option<f32>) {
    let (lowest, zero) = (v.splat(f32::NEG_INFINITY), v.splat(0.0));
    let fit = (SMALLEST..f32::INFINITY).contains(&sum.abs());
    let c = binade(if fit { sum.abs() } else { 1.0 });
    let middle = v.splat(1.5 * c);
    let (mut a, mut b) = ([zero; 4], [zero; 4]);
    let mut fours = block.chunks_exact(4 * GROUP);
    let (of_fours, of_rest) = maxima.split_at_mut(4 * fours.len());
    for (four, to) in (&mut fours).zip(of_fours.chunks_exact_mut(4)) {
        let mut largest = [lowest; 4];
        for (group, largest) in four.chunks_exact(GROUP).zip(&mut largest) {
            for pair in group.chunks_exact(2 * V::LANES) {
                ask_for(v, pair.as_ptr().wrapping_add(FAR));
                ask_for(v, pair.as_ptr().wrapping_add(FAR + V::LANES));
                let x = v.logits(pair);
                let y = v.logits(&pair[V::LANES..]);
                *largest = v.max(y, v.max(x, *largest));
                a = add_moments::<V, IN_ORDER>(v, a, x, middle);
                b = add_moments::<V, IN_ORDER>(v, b, y, middle);
            }
        }
        to.copy_from_slice(&v.largest_of_each(largest));
    }
    let mut rest = [0.0; 2];
    for (group, to) in fours.remainder().chunks(GROUP).zip(of_rest) {
        let mut largest = lowest;
        let mut chunks = group.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = v.logits(chunk);
            largest = v.max(x, largest);
            a = add_moments::<V, false>(v, a, x, middle);
        }
        *to = v.largest(largest);
        for candidate in chunks.remainder() {
            let x = f64::from(candidate.logit);
            rest = [rest[0] + x, rest[1] + x * x];
            *to = to.max(comparable(candidate.logit));
        }
    }
    let squares = v.total(v.add(a[1], b[1]));
    let moments = [
        rest[0] + f64::from(v.total(v.add(a[0], b[0]))),
        rest[1] + f64::from(squares),
    ];
    if !IN_ORDER || !fit || !fours.remainder().is_empty() {
        return (moments, None);
    }
    let added = v.total(v.add(a[2], b[2]));
    // Cauchy and Schwarz: no less than the sum of the absolute logits.
    let absolute = (squares * BLOCK as f32).sqrt();
    let decided = v.largest(v.max_abs(a[3], b[3])) < c * (f32::EPSILON / 2.0);
    if !decided || !stays(sum, c, absolute, added) {
        return (moments, None);
    }
    (moments, Some(sum + added))
}

/// The sums of x and of its squares. `IN_ORDER`: also the sum of x rounded to the units of
/// `middle`, and the furthest that an x is off.
#[inline(always)]
fn add_moments<V: Vector, const IN_ORDER: bool>(
    v: V,
    sums: [V::F; 4],
    x: V::F,
    middle: V::F,
) -> [V::F; 4] {
    let moments = [v.add(sums[0], x), v.fma(x, x, sums[1])];
    if !IN_ORDER {
        return [moments[0], moments[1], sums[2], sums[3]];
    }
    let rounded = v.sub(v.add(x, middle), middle);
    let off = v.max_abs(v.sub(x, rounded), sums[3]);
    [moments[0], moments[1], v.add(sums[2], rounded), off]
}

/// Reads 12 bytes per candidate.
#[inline(always)]
pub fn any_between<V: Vector>(v: V, data: &[TokenData], low: f32, high: f32) -> bool {
    let Some(last) = data.last_chunk_of::<V>() else {
        return scalar::any_between(data, low, high);
    };
    let (lows, highs) = (v.splat(low), v.splat(high));
    let last = v.logits(last);
    if v.ge(last, lows) & v.lt(last, highs) != 0 {
        return true;
    }
    for chunk in data.chunks_exact(V::LANES) {
        let x = v.logits(chunk);
        if v.ge(x, lows) & v.lt(x, highs) != 0 {
            return true;
        }
    }
    false
}

/// Reads 12 bytes per candidate. Of a sum that wanders around 0 every block is added one by one.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has at most `BLOCK` candidates"
)]
pub fn signed_sum<V: Vector>(v: V, data: &[TokenData]) -> (f32, usize) {
    let mut values = [0.0; BLOCK];
    let mut sum = (0.0, 0);
    for block in data.chunks(BLOCK) {
        let values = &mut values[..block.len()];
        logits(v, block, values);
        sum = match try_signed_block(v, sum.0, values) {
            Some((added, counted)) => (added, sum.1 + counted),
            None => add_signed_block(v, sum, values),
        };
    }
    sum
}

/// A sum and how many there are, with a block added that does not go at once.
#[inline(always)]
fn add_signed_block<V: Vector>(v: V, sum: (f32, usize), block: &[f32]) -> (f32, usize) {
    let (mut sum, mut count) = sum;
    for quarter in block.chunks(QUARTER) {
        if let Some((added, counted)) = try_signed_block(v, sum, quarter) {
            sum = added;
            count += counted;
            continue;
        }
        for part in quarter.chunks(PART) {
            if let Some((added, counted)) = try_signed_block(v, sum, part) {
                sum = added;
                count += counted;
                continue;
            }
            for &x in part.iter().filter(|&&x| x != f32::NEG_INFINITY) {
                sum += x;
                count += 1;
            }
        }
    }
    (sum, count)
}

/// As [`try_block`] for terms of both signs: here the sum must be far enough from both ends of the
/// binade for any order of the terms.
#[inline(always)]
fn try_signed_block<V: Vector>(v: V, sum: f32, xs: &[f32]) -> Option<(f32, usize)> {
    let magnitude = sum.abs();
    if !(SMALLEST..f32::INFINITY).contains(&magnitude) {
        return None;
    }
    let c = binade(magnitude);
    // From the middle of the binade a term of either sign stays in it.
    let middle = v.splat(1.5 * c);
    let masked = v.splat(f32::NEG_INFINITY);
    let zero = v.splat(0.0);
    let mut added = zero;
    let mut absolute = zero;
    let mut furthest = zero;
    let mut n_masked = 0;
    let mut chunks = xs.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let x = v.load(chunk);
        n_masked += v.eq(x, masked).count_ones();
        let t = v.if_lt(x, v.splat(f32::MIN), zero, x);
        let rounded = v.sub(v.add(t, middle), middle);
        furthest = v.max_abs(v.sub(t, rounded), furthest);
        added = v.add(added, rounded);
        absolute = v.add(absolute, v.abs(t));
    }
    let added = v.total(added);
    let decided = v.largest(furthest) < c * (f32::EPSILON / 2.0);
    if !decided || !stays(sum, c, v.total(absolute), added) {
        return None;
    }
    let mut sum = sum + added;
    let mut count = xs.len() - chunks.remainder().len() - n_masked as usize;
    for &x in chunks.remainder() {
        if x != f32::NEG_INFINITY {
            sum += x;
            count += 1;
        }
    }
    Some((sum, count))
}

/// Whether a sum, of which `c` is the binade, stays in it in whatever order terms come that sum up
/// to `added` and whose absolute values sum up to `absolute` at most: neither sum need be exact. No
/// term is then so large that it leaves the binade from its middle.
#[inline(always)]
fn stays(sum: f32, c: f32, absolute: f32, added: f32) -> bool {
    // For the roundings of the terms, and of what is computed here.
    let (absolute, slack) = (1.001 * absolute, 1e-3 * c);
    // What goes up and what goes down.
    let (up, down) = (0.5 * (absolute + added), 0.5 * (absolute - added));
    let (outwards, inwards) = if sum < 0.0 { (down, up) } else { (up, down) };
    let magnitude = sum.abs();
    magnitude - inwards > c + slack && magnitude + outwards < 2.0 * c - slack && absolute < 0.45 * c
}

/// Adds a block, in parts if it does not go at once.
#[inline(always)]
fn add_squares<V: Vector>(v: V, squares: &mut Squares, block: &[f32]) {
    let mean = squares.mean;
    if let Some(sum) = try_squares(v, squares.sum, block, mean) {
        squares.sum = sum;
        return;
    }
    for quarter in block.chunks(QUARTER) {
        if let Some(sum) = try_squares(v, squares.sum, quarter, mean) {
            squares.sum = sum;
            continue;
        }
        for part in quarter.chunks(PART) {
            match try_squares(v, squares.sum, part, mean) {
                Some(sum) => squares.sum = sum,
                None => part.iter().for_each(|&x| squares.add(x)),
            }
        }
    }
}

/// Reads 12 bytes per candidate, and writes where something changes.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has at most `BLOCK` candidates"
)]
pub fn squares_masking<V: Vector>(v: V, data: &mut [TokenData], mean: f32, threshold: f32) -> f32 {
    let mut values = [0.0; BLOCK];
    let mut squares = Squares { mean, sum: 0.0 };
    for block in data.chunks_mut(BLOCK) {
        let values = &mut values[..block.len()];
        match try_near_squares(v, &squares, block, threshold, values) {
            Some(sum) => squares.sum = sum,
            None => add_squares(v, &mut squares, values),
        }
    }
    squares.sum
}

/// Copies the logits of a block to `values` and makes those below `threshold` minus infinity. The
/// sum with their squares, if these go at once in single precision: a rounded square decides as the
/// square itself does unless it is as near to half-way as its own rounding error. That is likely
/// only of the first few thousand, since the units grow with the sum.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`values` is as long as the block; what is left of it is less than a register"
)]
fn try_near_squares<V: Vector>(
    v: V,
    squares: &Squares,
    block: &mut [TokenData],
    threshold: f32,
    values: &mut [f32],
) -> Option<f32> {
    let sum = squares.sum;
    let fit = (SMALLEST..f32::INFINITY).contains(&sum);
    let c = binade(if fit { sum } else { 1.0 });
    let (unit, means) = (v.splat(c), v.splat(squares.mean));
    let (thresholds, masked) = (v.splat(threshold), v.splat(f32::NEG_INFINITY));
    let error = v.splat(f32::EPSILON);
    let mut added = v.splat(0.0);
    let mut furthest = added;
    let whole = block.len() - block.len() % V::LANES;
    let (whole, rest) = block.split_at_mut(whole);
    for (chunk, value) in whole
        .chunks_exact_mut(V::LANES)
        .zip(values.chunks_exact_mut(V::LANES))
    {
        ask_for(v, chunk.as_ptr().wrapping_add(FAR));
        let x = v.logits(chunk);
        if v.lt(x, thresholds) != 0 {
            // A NaN is not below anything, and stays.
            v.set_logits(chunk, v.if_lt(x, thresholds, masked, x));
        }
        // Now NaN counts as minus infinity, and that deviates by nothing.
        let x = v.max(x, masked);
        v.store(value, x);
        let deviation = v.sub(v.if_lt(x, v.splat(f32::MIN), means, x), means);
        let square = v.mul(deviation, deviation);
        let rounded = v.sub(v.add(square, unit), unit);
        let off = v.fma(square, error, v.abs(v.sub(square, rounded)));
        furthest = v.max(off, furthest);
        added = v.add(added, rounded);
    }
    scalar::logits(rest, &mut values[whole.len()..]);
    scalar::mask_below(rest, threshold);
    let total = sum + v.total(added);
    // An infinite square is nowhere near; NaN is not below anything.
    let decided = v.largest(furthest) < c * (f32::EPSILON / 2.0) * 0.999_99;
    if !fit || !decided || total.is_nan() || total >= 2.0 * c {
        return None;
    }
    let mut after = Squares {
        mean: squares.mean,
        sum: total,
    };
    values[whole.len()..].iter().for_each(|&x| after.add(x));
    Some(after.sum)
}

/// As [`try_block`], but each term is a square in `double`, and a sum is rounded to a `double`
/// before it is rounded to a `float`. That first rounding, to units 2^29 times finer, can only
/// matter to a term that is as near as that to half-way; what is refused is wider.
#[inline(always)]
fn try_squares<V: Vector>(v: V, sum: f32, xs: &[f32], mean: f32) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) {
        return None;
    }
    let c = f64::from(binade(sum));
    // The doubles from here on are the multiples of the unit of the floats from c on.
    let unit = v.splat_d(c * (1u64 << 29) as f64);
    let nearly_half = c * f64::from(f32::EPSILON / 2.0) * 0.999_999;
    let means = v.splat(mean);
    let zero = v.splat_d(0.0);
    let mut added = [zero; 2];
    let mut furthest = [zero; 2];
    let mut chunks = xs.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let x = v.load(chunk);
        // A masked logit deviates by nothing.
        let x = v.if_lt(x, v.splat(f32::MIN), means, x);
        let [a, b] = v.widen(v.sub(x, means));
        let [a, b] = [v.mul_d(a, a), v.mul_d(b, b)];
        let rounded_a = v.sub_d(v.add_d(a, unit), unit);
        let rounded_b = v.sub_d(v.add_d(b, unit), unit);
        furthest[0] = v.max_d(v.abs_d(v.sub_d(a, rounded_a)), furthest[0]);
        furthest[1] = v.max_d(v.abs_d(v.sub_d(b, rounded_b)), furthest[1]);
        added[0] = v.add_d(added[0], rounded_a);
        added[1] = v.add_d(added[1], rounded_b);
    }
    let total = f64::from(sum) + v.total_d(v.add_d(added[0], added[1]));
    let stays = total < 2.0 * c;
    if v.largest_d(v.max_d(furthest[0], furthest[1])) >= nearly_half || !stays {
        return None;
    }
    let mut rest = Squares {
        mean,
        sum: total as f32,
    };
    chunks.remainder().iter().for_each(|&x| rest.add(x));
    Some(rest.sum)
}

/// How far ahead, in candidates, a pass that writes without having read asks for the cache lines.
/// The processor asks early for what a loop reads, but not for what it writes, and the stores wait
/// for one line after the other: 92 us for the probabilities of 128,256 candidates, 62 so.
pub(super) const AHEAD: usize = 128;

/// The same for a pass that computes so much with what it reads that the processor has little of
/// what comes next in view.
const FAR: usize = 2 * AHEAD;

/// Asks for the cache lines of the candidates of a register; they may be outside of the array.
#[inline(always)]
pub(super) fn ask_for<V: Vector>(v: V, at: *const TokenData) {
    for offset in (0..V::LANES * size_of::<TokenData>()).step_by(64) {
        v.prefetch(at.wrapping_byte_add(offset));
    }
}

/// Reads 4 bytes per candidate, and reads and writes its 12, the last ones first.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the lengths are equal: asserted; `at` is less by a register at least"
)]
pub fn set_p<V: Vector>(v: V, data: &mut [TokenData], ps: &[f32]) {
    assert_eq!(data.len(), ps.len());
    let (Some(last), Some(from)) = (data.last_chunk_of_mut::<V>(), ps.last_chunk_of::<V>()) else {
        return scalar::set_p(data, ps);
    };
    v.set_p(last, v.load(from));
    let mut at = data.len() - data.len() % V::LANES;
    while at > 0 {
        at -= V::LANES;
        ask_for(v, data.as_ptr().wrapping_add(at).wrapping_sub(AHEAD));
        v.set_p(&mut data[at..], v.load(&ps[at..]));
    }
}

/// Reads and writes 12 bytes per candidate.
#[inline(always)]
pub fn exp_p<V: Vector>(
    v: V,
    data: &mut [TokenData],
    max: f32,
    values: &mut [f32; BLOCK],
    sums: &mut [f64],
) -> f64 {
    let mut sum = 0.0;
    for (block, to) in data.chunks_mut(BLOCK).zip(sums) {
        let next = block.as_ptr().wrapping_add(BLOCK);
        let values = exponentials_of(v, block, max, next, values);
        sum = add_floats_in_order(v, sum, values);
        *to = sum;
        write_p(v, block, values);
    }
    sum
}

/// Reads and writes 12 bytes per candidate.
#[inline(always)]
pub fn exp_p_in_order<V: Vector>(
    v: V,
    data: &mut [TokenData],
    max: f32,
    values: &mut [f32; BLOCK],
) -> f32 {
    let mut sum = 0.0;
    for block in data.chunks_mut(BLOCK) {
        let next = block.as_ptr().wrapping_add(BLOCK);
        let values = exponentials_of(v, block, max, next, values);
        sum = add_block(v, sum, values);
        write_p(v, block, values);
    }
    sum
}

/// e^(logit - max) of a block, in `values`. Meanwhile the block at `next` comes into the
/// first-level cache, since what is computed takes longer than reading.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has at most `BLOCK` candidates, and a remainder less than a register's"
)]
fn exponentials_of<'v, V: Vector>(
    v: V,
    block: &[TokenData],
    max: f32,
    next: *const TokenData,
    values: &'v mut [f32; BLOCK],
) -> &'v [f32] {
    let lowest = v.splat(f32::NEG_INFINITY);
    let values = &mut values[..block.len()];
    let chunks = block.chunks_exact(V::LANES);
    let rest = chunks.remainder();
    for (chunk, to) in chunks.zip(values.chunks_exact_mut(V::LANES)) {
        let x = v.max(v.logits(chunk), lowest);
        v.store(to, difference_of(v, x, max));
    }
    let mut next = next;
    let mut to = values.chunks_exact_mut(V::LANES);
    for chunk in &mut to {
        ask_for(v, next);
        next = next.wrapping_add(V::LANES);
        let exponentials = exp(v, v.load_wide(chunk));
        v.store_narrow(chunk, exponentials);
    }
    if rest.is_empty() {
        return values;
    }
    let mut last = [f32::NEG_INFINITY; MAX_LANES];
    for (candidate, x) in rest.iter().zip(&mut last) {
        *x = comparable(candidate.logit);
    }
    let exponentials = exp(v, v.widen(difference(v, &last, max)));
    v.store_narrow(&mut last, exponentials);
    to.into_remainder().copy_from_slice(&last[..rest.len()]);
    values
}

/// As [`set_p`], of a block that is in the first-level cache.
#[inline(always)]
fn write_p<V: Vector>(v: V, block: &mut [TokenData], ps: &[f32]) {
    let mut chunks = block.chunks_exact_mut(V::LANES);
    let mut from = ps.chunks_exact(V::LANES);
    for (chunk, from) in (&mut chunks).zip(&mut from) {
        v.set_p(chunk, v.load(from));
    }
    scalar::set_p(chunks.into_remainder(), from.remainder());
}

/// Reads and writes 12 bytes per candidate, the last ones first.
#[inline(always)]
pub fn divide_p<V: Vector>(v: V, data: &mut [TokenData], by: f32, sums: &mut [f64]) -> f64 {
    let divisor = v.splat(by);
    for (block, to) in data.chunks_mut(BLOCK).zip(sums.iter_mut()).rev() {
        let mut added = [v.splat_d(0.0); 2];
        let mut chunks = block.chunks_exact_mut(V::LANES);
        for chunk in &mut chunks {
            ask_for(v, chunk.as_ptr().wrapping_sub(BLOCK));
            let p = v.div(v.probabilities(chunk), divisor);
            v.set_p(chunk, p);
            let [low, high] = v.widen(p);
            added = [v.add_d(added[0], low), v.add_d(added[1], high)];
        }
        let rest = scalar::divide_p(chunks.into_remainder(), by, &mut [0.0]);
        *to = v.total_d(v.add_d(added[0], added[1])) + rest;
    }
    let mut sum = 0.0;
    for to in sums {
        sum += *to;
        *to = sum;
    }
    sum
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn divide<V: Vector>(v: V, xs: &mut [f32], by: f32) {
    let divisor = v.splat(by);
    let Some(last) = xs.last_chunk_of::<V>() else {
        return scalar::divide(xs, by);
    };
    let last = v.div(v.load(last), divisor);
    for chunk in xs.chunks_exact_mut(V::LANES) {
        v.store(chunk, v.div(v.load(chunk), divisor));
    }
    if let Some(to) = xs.last_chunk_of_mut::<V>() {
        v.store(to, last);
    }
}

/// Reads and writes 12 bytes per candidate.
#[inline(always)]
pub fn divide_logits<V: Vector>(v: V, data: &mut [TokenData], by: f32) {
    let divisor = v.splat(by);
    let Some(last) = data.last_chunk_of::<V>() else {
        return scalar::divide_logits(data, by);
    };
    let last = v.div(v.logits(last), divisor);
    for chunk in data.chunks_exact_mut(V::LANES).rev() {
        let x = v.div(v.logits(chunk), divisor);
        v.set_logits(chunk, x);
    }
    if let Some(to) = data.last_chunk_of_mut::<V>() {
        v.set_logits(to, last);
    }
}

/// Reads 12 bytes per candidate, and writes where something changes; the last ones first, where the
/// pass before has ended.
#[inline(always)]
pub fn mask_below<V: Vector>(v: V, data: &mut [TokenData], threshold: f32) {
    let thresholds = v.splat(threshold);
    let masked = v.splat(f32::NEG_INFINITY);
    let Some(last) = data.last_chunk_of_mut::<V>() else {
        return scalar::mask_below(data, threshold);
    };
    // A NaN is not below anything, and stays.
    let x = v.logits(last);
    v.set_logits(last, v.if_lt(x, thresholds, masked, x));
    for chunk in data.chunks_exact_mut(V::LANES).rev() {
        let x = v.logits(chunk);
        if v.lt(x, thresholds) == 0 {
            continue;
        }
        let x = v.if_lt(x, thresholds, masked, x);
        v.set_logits(chunk, x);
    }
}

/// Reads 12 bytes per candidate.
#[inline(always)]
pub fn at_least<V: Vector>(
    v: V,
    data: &[TokenData],
    first: u32,
    threshold: f32,
    to: &mut Vec<u32>,
) {
    let thresholds = v.splat(threshold);
    let mut chunks = data.chunks_exact(V::LANES);
    let mut base = first;
    for chunk in &mut chunks {
        let lanes = v.ge(v.logits(chunk), thresholds);
        if lanes != 0 {
            v.push_numbers(lanes, base, to);
        }
        base += V::LANES as u32;
    }
    let rest = padded(chunks.remainder());
    let in_rest = (1u32 << chunks.remainder().len()) - 1;
    let mut bits = 0;
    for (i, lanes) in rest.chunks_exact(V::LANES).enumerate() {
        bits |= v.ge(v.logits(lanes), thresholds) << (i * V::LANES);
    }
    push_lanes(bits & in_rest, base, to);
}

/// Reads 12 bytes per candidate, and the first ones twice: what would be kept before a large logit
/// came is mostly there. What is kept on the way is little unless the logits rise.
#[inline(always)]
pub fn near_max<V: Vector>(v: V, data: &[TokenData], below: f32, to: &mut Vec<TokenData>) -> f32 {
    let first = data.get(..2 * BLOCK).unwrap_or(data);
    let mut max = max(v, first).max(f32::MIN);
    let mut pairs = data.chunks_exact(2 * V::LANES);
    let mut thresholds = v.splat(max + below);
    for pair in &mut pairs {
        let (chunk, next) = pair.split_at(V::LANES);
        let (x, y) = (v.logits(chunk), v.logits(next));
        if v.ge(x, thresholds) | v.ge(y, thresholds) == 0 {
            continue;
        }
        let maxima = v.splat(max);
        if v.lt(maxima, x) | v.lt(maxima, y) != 0 {
            // NaN leaves what is on the right.
            max = v.largest(v.max(y, v.max(x, maxima)));
            thresholds = v.splat(max + below);
        }
        v.push_candidates(v.ge(x, thresholds), chunk, to);
        v.push_candidates(v.ge(y, thresholds), next, to);
    }
    let mut rest = pairs.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        max = near_max_of_chunk(v, max, chunk, below, to);
    }
    for chunk in padded(rest.remainder()).chunks_exact(V::LANES) {
        max = near_max_of_chunk(v, max, chunk, below, to);
    }
    max
}

/// The same of one register, after candidates whose largest was `max`.
#[inline(always)]
fn near_max_of_chunk<V: Vector>(
    v: V,
    max: f32,
    chunk: &[TokenData],
    below: f32,
    to: &mut Vec<TokenData>,
) -> f32 {
    let x = v.logits(chunk);
    let max = v.largest(v.max(x, v.splat(max)));
    v.push_candidates(v.ge(x, v.splat(max + below)), chunk, to);
    max
}

/// The numbers of the lanes.
static NUMBERS: [u32; MAX_LANES] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];

/// Appends elements and their indices register by register. Whole registers are written, also
/// behind the last.
struct Selection<'a, V: Vector> {
    indices: &'a mut [MaybeUninit<f32>],
    picked: &'a mut [MaybeUninit<f32>],
    /// Of the lanes of the register that comes next.
    numbers: V::F,
    thresholds: V::F,
    count: usize,
}

impl<'a, V: Vector> Selection<'a, V> {
    /// One to which nothing is pushed.
    #[inline(always)]
    fn none(v: V) -> Self {
        Self {
            indices: &mut [],
            picked: &mut [],
            numbers: v.splat(0.0),
            thresholds: v.splat(0.0),
            count: 0,
        }
    }

    /// Behind what is in both, with room for `n` more, and a register.
    #[inline(always)]
    fn new(
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
            numbers: v.load_bits(&NUMBERS),
            thresholds: v.splat(threshold),
            count: 0,
        }
    }

    /// Appends what of a register is at or above the threshold.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "no more are appended than were looked at, and there is room for all and a register"
    )]
    fn push(&mut self, v: V, x: V::F) {
        let lanes = v.ge(x, self.thresholds);
        if lanes != 0 {
            v.pack(lanes, self.numbers, &mut self.indices[self.count..]);
            v.pack(lanes, x, &mut self.picked[self.count..]);
            self.count += lanes.count_ones() as usize;
        }
        let step = v.splat(f32::from_bits(V::LANES as u32));
        self.numbers = v.add_bits(self.numbers, step);
    }
}

/// Says that `n` more are in both.
///
/// # Safety
/// They were written.
#[inline(always)]
unsafe fn extend(n: usize, indices: &mut Vec<u32>, picked: &mut Vec<f32>) {
    let (end_of_indices, end_of_picked) = (indices.len() + n, picked.len() + n);
    // SAFETY: as the caller says.
    unsafe {
        indices.set_len(end_of_indices);
        picked.set_len(end_of_picked);
    }
}

/// Reads 4 bytes per element.
#[inline(always)]
pub fn select<V: Vector>(
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
    // SAFETY: so many were appended.
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

/// Reads 4 bytes per element, or 8 where the keys are others.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "no more are picked than were read, and there is room for all and a register: just reserved"
)]
pub fn pick<V: Vector>(v: V, keys: &[f32], xs: &[f32], low: f32, high: f32, to: &mut Vec<f32>) {
    assert_eq!(keys.len(), xs.len());
    // Whole registers are written, also behind the last.
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
            picked += v.pack(lanes, v.load(chunk), &mut room[picked..]);
        }
    }
    // SAFETY: so many were written.
    unsafe { to.set_len(len + picked) };
    scalar::pick(key_chunks.remainder(), chunks.remainder(), low, high, to);
}

/// Reads 8 bytes per element, or 4 where the keys are the terms; those of a block with a term
/// half-way twice.
#[inline(always)]
pub fn tail<V: Vector>(
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
    // Nothing is called in the inner loop: that would take all registers.
    for (keys, terms) in keys.chunks(BLOCK).zip(terms.chunks(BLOCK)) {
        let mut added = zero;
        let mut any_halfway = 0;
        let mut key_chunks = keys.chunks_exact(V::LANES);
        let mut chunks = terms.chunks_exact(V::LANES);
        for (keys, chunk) in (&mut key_chunks).zip(&mut chunks) {
            let (key, x) = (v.load(keys), v.load(chunk));
            // Outside the range it becomes 0, which rounds to 0.
            let x = v.if_lt(key, highest, x, zero);
            let x = v.if_lt(lowest, key, x, zero);
            let rounded = v.sub(v.add(x, unit), unit);
            let off = v.abs(v.sub(x, rounded));
            any_halfway |= v.eq(off, half);
            added = v.add(added, v.if_lt(off, half, rounded, zero));
        }
        sum += v.total(added);
        let (rest_keys, rest) = (key_chunks.remainder(), chunks.remainder());
        sum += scalar::tail(rest_keys, rest, above, below, c, None);
        if let Some(halfway) = &mut halfway
            && (any_halfway != 0 || !rest.is_empty())
        {
            push_halfway(keys, terms, [above, below, c], base, halfway);
        }
        base += BLOCK as u32;
    }
    sum
}

/// Appends the indices, counted from `first`, of the terms that are half-way, as [`tail`] has it.
#[inline(never)]
#[expect(
    clippy::indexing_slicing,
    reason = "`start` is what the length was, and `tail` only appends"
)]
fn push_halfway(keys: &[f32], terms: &[f32], range: [f32; 3], first: u32, to: &mut Vec<u32>) {
    let [above, below, c] = range;
    let start = to.len();
    scalar::tail(keys, terms, above, below, c, Some(to));
    to[start..].iter_mut().for_each(|i| *i += first);
}

/// Reads 12 bytes per candidate and writes 4.
#[inline(always)]
pub fn column<V: Vector>(v: V, data: &[TokenData], to: &mut [f32]) -> Column {
    column_and::<V, false>(v, data, to, &mut Selection::none(v))
}

/// Reads 12 bytes per candidate and writes 4.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the lengths are equal: asserted; `whole` is at most that"
)]
pub fn column_selecting<V: Vector>(
    v: V,
    data: &[TokenData],
    to: &mut [f32],
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) -> Column {
    let mut selection = Selection::new(v, data.len(), threshold, indices, picked);
    let column = column_and::<V, true>(v, data, to, &mut selection);
    let count = selection.count;
    // SAFETY: so many were appended.
    unsafe { extend(count, indices, picked) };
    let whole = data.len() - data.len() % V::LANES;
    for (&x, i) in to[whole..].iter().zip(whole as u32..) {
        if x >= threshold {
            indices.push(i);
            picked.push(x);
        }
    }
    column
}

#[inline(always)]
fn column_and<V: Vector, const SELECT: bool>(
    v: V,
    data: &[TokenData],
    to: &mut [f32],
    selection: &mut Selection<'_, V>,
) -> Column {
    assert_eq!(data.len(), to.len());
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    let mut min = v.splat(f32::MAX);
    let mut plain = true;
    let mut first = 0;
    let mut chunks = data.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let x = v.logits(chunk);
        plain &= v.ids_count_from(chunk, first) && v.eq(x, x).count_ones() as usize == V::LANES;
        // NaN becomes minus infinity.
        let x = v.max(x, lowest);
        v.store(to, x);
        if SELECT {
            selection.push(v, x);
        }
        max = v.max(x, max);
        let x = v.if_lt(x, v.splat(f32::MIN), v.splat(f32::MAX), x);
        min = v.if_lt(x, min, x, min);
        first += V::LANES as u32;
    }
    let mut column = Column {
        max: v.largest(max),
        min: -v.largest(v.sub(v.splat(0.0), min)),
        plain,
    };
    for (candidate, to) in chunks.remainder().iter().zip(rest.into_remainder()) {
        *to = comparable(candidate.logit);
        column.plain &= candidate.id as u32 == first && !candidate.logit.is_nan();
        column.max = column.max.max(*to);
        if *to != f32::NEG_INFINITY {
            column.min = column.min.min(*to);
        }
        first += 1;
    }
    column
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn steps<V: Vector>(v: V, xs: &[f32], max: f32, factor: f32, last: f32, to: &mut [u32]) {
    assert_eq!(xs.len(), to.len());
    let (maxima, factors, lasts) = (v.splat(max), v.splat(factor), v.splat(last));
    let two_23 = v.splat(TWO_23);
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let step = v.mul(v.sub(maxima, v.load(chunk)), factors);
        let step = v.if_lt(step, lasts, step, lasts);
        v.store_bits(to, v.add(step, two_23));
    }
    scalar::steps(chunks.remainder(), max, factor, last, rest.into_remainder());
}

/// Reads 8 bytes per element, 4 of them in no order, and writes 8. Waiting for memory, it has time
/// for the exchanges.
#[inline(always)]
pub fn fetch<V: Vector>(v: V, from: &[f32], indices: &mut [u32], to: &mut [f32]) {
    assert_eq!(indices.len(), to.len());
    let mut chunks = indices.chunks_exact_mut(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let mut pair = (v.gather(from, chunk), v.load_bits(chunk));
        for _ in 0..EXCHANGES {
            pair = v.exchange_even(pair.0, pair.1);
            pair = v.exchange_odd(pair.0, pair.1);
        }
        v.store(to, pair.0);
        v.store_bits(chunk, pair.1);
    }
    scalar::fetch(from, chunks.into_remainder(), rest.into_remainder());
}

/// Twice so many neighbours in a row come into order.
const EXCHANGES: usize = 2;

/// Reads 4 bytes per element.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`at` starts above 0, and a whole register more is there"
)]
pub fn next_rise<V: Vector>(v: V, xs: &[f32], start: usize) -> usize {
    let mut at = start;
    while at + V::LANES <= xs.len() {
        let rises = v.lt(v.load(&xs[at - 1..]), v.load(&xs[at..]));
        if rises != 0 {
            return at + rises.trailing_zeros() as usize;
        }
        at += V::LANES;
    }
    scalar::next_rise(xs, at)
}

/// Reads 12 bytes per candidate and writes 12.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the lengths are equal: asserted; `whole` is at most that"
)]
pub fn write_divided<V: Vector>(
    v: V,
    data: &mut [TokenData],
    ids: &[u32],
    logits: &[f32],
    ps: &[f32],
    by: f32,
) {
    let n = data.len();
    assert!(n == ids.len() && n == logits.len() && n == ps.len());
    let divisor = v.splat(by);
    let whole = n - n % V::LANES;
    for at in (0..whole).step_by(V::LANES) {
        ask_for(v, data.as_ptr().wrapping_add(at + AHEAD));
        let p = v.div(v.load(&ps[at..]), divisor);
        v.set_all(&mut data[at..], &ids[at..], v.load(&logits[at..]), p);
    }
    let (ids, logits, ps) = (&ids[whole..], &logits[whole..], &ps[whole..]);
    scalar::write_divided(&mut data[whole..], ids, logits, ps, by);
}

/// ln x of one register of positive normal floats.
#[inline(always)]
pub(super) fn ln_of_normal<V: Vector>(v: V, x: V::F) -> V::F {
    let parts = v.ln_parts(x);
    v.narrow([ln_of_half(v, &parts, 0), ln_of_half(v, &parts, 1)])
}

#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "`i` is 0 or 1")]
fn ln_of_half<V: Vector>(v: V, parts: &LnParts<V::D>, i: usize) -> V::D {
    let r = v.fms_d(parts.z[i], parts.inverse[i], v.splat_d(1.0));
    let whole = v.fma_d(parts.k[i], v.splat_d(ln::LN_2), parts.ln[i]);
    let r2 = v.mul_d(r, r);
    let y = v.fma_d(v.splat_d(ln::A[1]), r, v.splat_d(ln::A[2]));
    let y = v.fma_d(v.splat_d(ln::A[0]), r2, y);
    v.fma_d(y, r2, v.add_d(whole, r))
}

/// The bits of the lanes that are no positive normal number.
#[inline(always)]
pub(super) fn not_normal<V: Vector>(v: V, x: V::F) -> u32 {
    let normal = v.ge(x, v.splat(f32::MIN_POSITIVE)) & v.lt(x, v.splat(f32::INFINITY));
    !normal & ((1u64 << V::LANES) - 1) as u32
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn lns<V: Vector>(v: V, xs: &[f32], to: &mut [f32]) {
    assert_eq!(xs.len(), to.len());
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let x = v.load(chunk);
        if not_normal(v, x) == 0 {
            v.store(to, ln_of_normal(v, x));
        } else {
            lns_by_host(chunk, to);
        }
    }
    scalar::lns(chunks.remainder(), rest.into_remainder());
}

/// Out of line, so that the loop keeps its registers.
#[cold]
#[inline(never)]
fn lns_by_host(xs: &[f32], to: &mut [f32]) {
    scalar::lns(xs, to);
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn entropies<V: Vector>(v: V, ps: &[f32], to: &mut [f32]) -> f32 {
    assert_eq!(ps.len(), to.len());
    let (zero, one) = (v.splat(0.0), v.splat(1.0));
    let mut smallest = one;
    let mut chunks = ps.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let p = v.load(chunk);
        smallest = v.if_lt(p, smallest, p, smallest);
        // What is not above 0 becomes 0, times the logarithm of 1.
        let x = v.if_lt(zero, p, p, one);
        if not_normal(v, x) == 0 {
            let p = v.if_lt(zero, p, p, zero);
            // Minus p, not minus the product: the sign of a term of 0 does not matter.
            v.store(to, v.mul(v.sub(zero, p), ln_of_normal(v, x)));
        } else {
            entropies_by_host(chunk, to);
        }
    }
    let smallest = -v.largest(v.sub(zero, smallest));
    let of_rest = scalar::entropies(chunks.remainder(), rest.into_remainder());
    if of_rest < smallest {
        of_rest
    } else {
        smallest
    }
}

#[cold]
#[inline(never)]
fn entropies_by_host(ps: &[f32], to: &mut [f32]) {
    scalar::entropies(ps, to);
}

/// Reads and writes 12 bytes per candidate, the last ones first, and writes 4. Two divisions take
/// as long.
#[inline(always)]
pub fn bend<V: Vector>(
    v: V,
    data: &mut [TokenData],
    by: f32,
    original: &mut [f32],
    curve: Curve,
) -> (f32, bool) {
    assert_eq!(data.len(), original.len());
    let (target, per_width) = (v.splat(curve.target), v.splat(curve.per_width));
    let (peak, sharpness) = (v.splat(curve.peak), v.splat(curve.sharpness));
    let (one, lowest) = (v.splat(1.0), v.splat(f32::NEG_INFINITY));
    let divisor = v.splat(by);
    let mut max = lowest;
    let mut all_numbers = true;
    let whole = data.len() - data.len() % V::LANES;
    let (data, last) = data.split_at_mut(whole);
    let (original, last_original) = original.split_at_mut(whole);
    let chunks = data.chunks_exact_mut(V::LANES);
    for (chunk, original) in chunks.zip(original.chunks_exact_mut(V::LANES)).rev() {
        ask_for(v, chunk.as_ptr().wrapping_sub(FAR));
        let p = v.div(v.probabilities(chunk), divisor);
        v.store(original, p);
        let d = v.abs(v.mul(v.sub(p, target), per_width));
        let fall = v.div(v.mul(v.mul(sharpness, d), d), v.add(one, d));
        let bent = v.sub(peak, fall);
        let old = v.logits(chunk);
        // NaN counts as minus infinity, which is below every number.
        let known = v.max(old, lowest);
        let value = v.if_lt(known, v.splat(f32::MIN), lowest, bent);
        all_numbers &= v.eq(value, value).count_ones() as usize == V::LANES;
        max = v.max(value, max);
        v.set_logits(chunk, v.if_lt(known, v.splat(f32::MIN), old, bent));
    }
    let (max_of_rest, rest_numbers) = scalar::bend(last, by, last_original, curve);
    let max = v.largest(max);
    let max = if max < max_of_rest { max_of_rest } else { max };
    (max, all_numbers && rest_numbers)
}
