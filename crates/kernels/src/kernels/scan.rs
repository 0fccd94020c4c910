//! Passes that only read: they find the maximum, its index, or a value in a range, or count.
//!
//! An array of a large vocabulary does not fit the second-level cache. A host fills it from its
//! beginning, so the cache still holds its end, where a single pass such as [`argmax`] begins. Of
//! several passes in a row, most begin where the previous one ended. Passes that keep candidates in
//! order, and sequential sums, go forwards.

use super::layout::GROUP;
use super::registers::LastChunk;
use crate::simd::{Vector, dispatched};
use crate::token::{TokenData, comparable};

dispatched! {
    /// Returns the largest logit; minus infinity if there is none. Reads 12 bytes per candidate.
    pub fn max(data: &[TokenData]) -> f32 => max_on;
    /// Returns the index of the largest logit, the first of equals; 0 if there is none.
    fn index_of_max(data: &[TokenData]) -> usize => argmax_on;
    /// Returns true if a logit is at or above `low` and below `high`. Reads 12 bytes per candidate.
    pub fn any_between(data: &[TokenData], low: f32, high: f32) -> bool => any_between_on;
    /// Returns true if an element is at or above `low` and below `high`. Reads 4 bytes per element.
    pub fn has_between(xs: &[f32], low: f32, high: f32) -> bool => has_between_on;
    /// Returns the number of elements at or above `threshold`. Reads 4 bytes per element.
    pub fn count_at_least(xs: &[f32], threshold: f32) -> usize => count_at_least_on;
    /// Returns the sum of those of `xs` whose keys are at or above `from`, added in any order.
    /// Reads 8 bytes per element.
    pub fn sum_from(keys: &[f32], xs: &[f32], from: f32) -> f64 => sum_from_on;
    /// Returns the first index, from `start` on, whose element is above the previous one; the
    /// length if there is none. `start` is at least 1. Reads 4 bytes per element.
    pub fn next_rise(xs: &[f32], start: usize) -> usize => next_rise_on;
}

/// Returns the largest logit; that of the first candidate if the array is `sorted`. Minus infinity
/// for an empty array. Reads 12 bytes per candidate.
pub fn max_logit(data: &[TokenData], sorted: bool) -> f32 {
    match data.first() {
        Some(first) if sorted => comparable(first.logit),
        _ => max(data),
    }
}

/// Returns the index of the largest logit, the first of equals; `None` for an empty array. Reads 12
/// bytes per candidate.
pub fn argmax(data: &[TokenData]) -> Option<usize> {
    (!data.is_empty()).then(|| index_of_max(data))
}

/// Returns the index of the first element equal to `x`. Reads 4 bytes per element.
pub fn position_of(xs: &[f32], x: f32) -> Option<usize> {
    // Without a branch per element, so that the loop is vectorized.
    let has = |group: &[f32]| group.iter().fold(false, |has, &other| has | (other == x));
    let mut groups = xs.chunks(GROUP).zip((0..).step_by(GROUP));
    let (group, start) = groups.find(|&(group, _)| has(group))?;
    let place = group.iter().position(|&other| other == x)?;
    Some(start + place)
}

/// Returns the logit that counts as the largest: the first, if the candidates are marked as sorted,
/// otherwise `largest`.
#[inline]
pub fn claimed_max(data: &[TokenData], sorted: bool, largest: f32) -> f32 {
    match data.first() {
        Some(first) if sorted => comparable(first.logit),
        _ => largest,
    }
}

/// Implements [`max`] on one instruction set.
#[inline(always)]
pub fn max_on<V: Vector>(v: V, data: &[TokenData]) -> f32 {
    let mut a = v.splat(f32::NEG_INFINITY);
    let mut b = a;
    let mut pairs = data.chunks_exact(2 * V::LANES);
    for pair in &mut pairs {
        a = v.max(v.load_logits(pair), a);
        b = v.max(v.load_logits(&pair[V::LANES..]), b);
    }
    if let Some(last) = data.last_chunk_of::<V>() {
        if pairs.remainder().len() > V::LANES {
            a = v.max(v.load_logits(pairs.remainder()), a);
        }
        return v.reduce_max(v.max(v.max(v.load_logits(last), b), a));
    }
    let logits = data.iter().map(|c| comparable(c.logit));
    logits.fold(f32::NEG_INFINITY, f32::max)
}

/// Implements `index_of_max`. Each candidate is read once, and those of one pair of registers
/// twice. The pass goes backwards, so that the last of several equal ones that it meets is the
/// first in the array.
#[inline(always)]
// In bounds: a pair has twice the lanes; `start` is below the length.
fn argmax_on<V: Vector>(v: V, data: &[TokenData]) -> usize {
    // Minus infinity never exceeds this.
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
        let (x, y) = (v.load_logits(pair), v.load_logits(&pair[V::LANES..]));
        if v.ge(x, bests) | v.ge(y, bests) != 0 {
            best = v.reduce_max(v.max(y, v.max(x, lowest)));
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

#[inline(always)]
fn any_between_on<V: Vector>(v: V, data: &[TokenData], low: f32, high: f32) -> bool {
    let Some(last) = data.last_chunk_of::<V>() else {
        return data.iter().any(|c| c.logit >= low && c.logit < high);
    };
    let (lows, highs) = (v.splat(low), v.splat(high));
    let last = v.load_logits(last);
    if v.ge(last, lows) & v.lt(last, highs) != 0 {
        return true;
    }
    for chunk in data.chunks_exact(V::LANES) {
        let x = v.load_logits(chunk);
        if v.ge(x, lows) & v.lt(x, highs) != 0 {
            return true;
        }
    }
    false
}

#[inline(always)]
// In bounds: a register has as many elements as it has lanes, and `GROUP` has whole registers.
fn has_between_on<V: Vector>(v: V, xs: &[f32], low: f32, high: f32) -> bool {
    let (lows, highs) = (v.splat(low), v.splat(high));
    let mut groups = xs.chunks_exact(GROUP);
    for group in &mut groups {
        // One branch for the group.
        let lanes = group.chunks_exact(V::LANES).fold(0, |lanes, register| {
            let x = v.load(register);
            lanes | v.ge(x, lows) & v.lt(x, highs)
        });
        if lanes != 0 {
            return true;
        }
    }
    let rest = groups.remainder();
    rest.iter().any(|&x| x >= low && x < high)
}

#[inline(always)]
fn sum_from_on<V: Vector>(v: V, keys: &[f32], xs: &[f32], from: f32) -> f64 {
    assert_eq!(keys.len(), xs.len());
    let (lowest, zero) = (v.splat(from), v.splat(0.0));
    let mut sums = [v.splat_d(0.0); 2];
    let mut key_chunks = keys.chunks_exact(V::LANES);
    let mut chunks = xs.chunks_exact(V::LANES);
    for (keys, xs) in (&mut key_chunks).zip(&mut chunks) {
        let x = v.select_lt(v.load(keys), lowest, zero, v.load(xs));
        let [a, b] = v.widen(x);
        sums = [v.add_d(sums[0], a), v.add_d(sums[1], b)];
    }
    let rest = key_chunks.remainder().iter().zip(chunks.remainder());
    let rest = rest.filter(|&(&key, _)| key >= from);
    let rest: f64 = rest.map(|(_, &x)| f64::from(x)).sum();
    v.reduce_add_d(v.add_d(sums[0], sums[1])) + rest
}

#[inline(always)]
fn count_at_least_on<V: Vector>(v: V, xs: &[f32], threshold: f32) -> usize {
    let thresholds = v.splat(threshold);
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut count = 0;
    for chunk in &mut chunks {
        count += v.ge(v.load(chunk), thresholds).count_ones() as usize;
    }
    let rest = chunks.remainder().iter();
    count + rest.filter(|&&x| x >= threshold).count()
}

#[inline(always)]
// In bounds: `at` starts above 0, and a whole register more is there.
fn next_rise_on<V: Vector>(v: V, xs: &[f32], start: usize) -> usize {
    let mut at = start;
    while at + V::LANES <= xs.len() {
        let rises = v.lt(v.load(&xs[at - 1..]), v.load(&xs[at..]));
        if rises != 0 {
            return at + rises.trailing_zeros() as usize;
        }
        at += V::LANES;
    }
    (at..xs.len())
        .find(|&i| xs[i - 1] < xs[i])
        .unwrap_or(xs.len())
}
