//! Sums terms of both signs as if they were added one by one in the order of the array. The method
//! is that of [`sequential_sum`](super::sequential_sum), but the sum must be so far from both ends
//! of its binade that it stays there with any order of the terms.

use super::column::copy_logits_on;
use super::layout::{SUM_BLOCK, binade};
use super::sequential_sum::{PART, QUARTER, SMALLEST};
use crate::simd::{Vector, dispatched};
use crate::token::{TokenData, comparable};

dispatched! {
    /// Returns the sum of all logits except minus infinity, as if added in order, and their number.
    /// NaN counts as minus infinity. Reads 12 bytes per candidate.
    pub fn signed_sum(data: &[TokenData]) -> (f32, usize) => signed_sum_on;
    /// Returns the sum of all logits of a column except minus infinity, as if added in order, and
    /// their number. None of them may be NaN. Reads 4 bytes per logit.
    pub fn signed_sum_of_logits(logits: &[f32]) -> (f32, usize) => signed_sum_of_logits_on;
}

/// Returns the sum and the number of logits. A sum that varies around 0 leaves its binade in every
/// block, and then hardly any [`PART`] can be added at once.
#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` candidates.
fn signed_sum_on<V: Vector>(v: V, data: &[TokenData]) -> (f32, usize) {
    let mut values = [0.0; SUM_BLOCK];
    let mut sum = (0.0, 0);
    if data.len() < SUM_BLOCK {
        // A few terms are added faster one by one than with all the checks for adding them at once.
        return add_each(sum, data.iter().map(|c| comparable(c.logit)));
    }
    for block in data.chunks(SUM_BLOCK) {
        let values = &mut values[..block.len()];
        if copy_logits_on(v, block, values) == f32::NEG_INFINITY {
            continue;
        }
        sum = match try_signed_block(v, sum.0, values) {
            Some((added, counted)) => (added, sum.1 + counted),
            None => add_signed_block(v, sum, values),
        };
    }
    sum
}

#[inline(always)]
fn signed_sum_of_logits_on<V: Vector>(v: V, logits: &[f32]) -> (f32, usize) {
    logits.chunks(SUM_BLOCK).fold((0.0, 0), |sum, block| {
        match try_signed_block(v, sum.0, block) {
            Some((added, counted)) => (added, sum.1 + counted),
            None => add_signed_block(v, sum, block),
        }
    })
}

/// Returns a sum and a count, to which all numbers except minus infinity have been added one by
/// one.
#[inline(always)]
fn add_each((mut sum, mut count): (f32, usize), xs: impl Iterator<Item = f32>) -> (f32, usize) {
    for x in xs.filter(|&x| x != f32::NEG_INFINITY) {
        sum += x;
        count += 1;
    }
    (sum, count)
}

/// Returns a sum and a count, to which a block has been added that cannot be added at once.
#[inline(always)]
pub fn add_signed_block<V: Vector>(v: V, sum: (f32, usize), block: &[f32]) -> (f32, usize) {
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
            (sum, count) = add_each((sum, count), part.iter().copied());
        }
    }
    (sum, count)
}

/// Adds terms of both signs as `sequential_sum::try_block` adds terms of one sign.
#[inline(always)]
fn try_signed_block<V: Vector>(v: V, sum: f32, xs: &[f32]) -> Option<(f32, usize)> {
    let magnitude = sum.abs();
    if !(SMALLEST..f32::INFINITY).contains(&magnitude) {
        return None;
    }
    let c = binade(magnitude);
    // Starting in the middle of the binade, terms of either sign stay within it.
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
        let t = v.select_lt(x, v.splat(f32::MIN), zero, x);
        let rounded = v.sub(v.add(t, middle), middle);
        furthest = v.max_abs(v.sub(t, rounded), furthest);
        added = v.add(added, rounded);
        absolute = v.add(absolute, v.abs(t));
    }
    let added = v.reduce_add(added);
    let decided = v.reduce_max(furthest) < c * (f32::EPSILON / 2.0);
    if !decided || !stays(sum, c, v.reduce_add(absolute), added) {
        return None;
    }
    let count = xs.len() - chunks.remainder().len() - n_masked as usize;
    Some(add_each(
        (sum + added, count),
        chunks.remainder().iter().copied(),
    ))
}

/// Returns true if a sum in the binade from `c` on stays in it with any order of terms that add up
/// to `added` and whose absolute values add up to at most `absolute`. Neither `added` nor
/// `absolute` has to be exact. No term is then so large that it leaves the binade from its middle.
#[inline(always)]
pub fn stays(sum: f32, c: f32, absolute: f32, added: f32) -> bool {
    // Margins for the rounding of the terms, and for that of this computation.
    let (absolute, slack) = (1.001 * absolute, 1e-3 * c);
    // The sums of the positive and of the negative terms, as absolute values.
    let (up, down) = (0.5 * (absolute + added), 0.5 * (absolute - added));
    let (outwards, inwards) = if sum < 0.0 { (down, up) } else { (up, down) };
    let magnitude = sum.abs();
    magnitude - inwards > c + slack && magnitude + outwards < 2.0 * c - slack && absolute < 0.45 * c
}
