//! Changes logits and probabilities in place.

use super::layout::SUM_BLOCK;
use super::registers::{AHEAD, FAR, LastChunk, prefetch_candidates};
use crate::simd::libm::fma;
use crate::simd::{Vector, dispatched};
use crate::token::{Token, TokenData, comparable};

/// The curve `peak - sharpness * d^2 / (1 + d)`, with d the distance from `target` multiplied by
/// `per_width`.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    /// The probability at which the curve is highest.
    pub target: f32,
    /// The factor by which distances from `target` are multiplied.
    pub per_width: f32,
    /// The height of the curve at `target`.
    pub peak: f32,
    /// The steepness with which the curve falls.
    pub sharpness: f32,
}

impl Curve {
    fn at(self, p: f32) -> f32 {
        let d = ((p - self.target) * self.per_width).abs();
        self.peak - self.sharpness * d * d / (1.0 + d)
    }
}

/// A [`Curve`] with its parameters in every lane of a vector.
struct CurveOn<V: Vector> {
    v: V,
    target: V::F,
    per_width: V::F,
    peak: V::F,
    sharpness: V::F,
    one: V::F,
}

impl<V: Vector> CurveOn<V> {
    #[inline(always)]
    fn new(v: V, curve: Curve) -> Self {
        Self {
            v,
            target: v.splat(curve.target),
            per_width: v.splat(curve.per_width),
            peak: v.splat(curve.peak),
            sharpness: v.splat(curve.sharpness),
            one: v.splat(1.0),
        }
    }

    #[inline(always)]
    fn at(&self, p: V::F) -> V::F {
        let v = self.v;
        let d = v.abs(v.mul(v.sub(p, self.target), self.per_width));
        let fall = v.div(v.mul(v.mul(self.sharpness, d), d), v.add(self.one, d));
        v.sub(self.peak, fall)
    }
}

/// The cubic `max + (cube * d - square) * d^2`, where d, at or below 0, is the logit minus `max`.
/// The products `cube * d` and that with `d^2` are fused with the subtraction and the addition
/// after them. If `square` and `cube` are at or above 0, and not both 0, the value never rises as d
/// falls, and is minus infinity where d^2 overflows.
#[derive(Clone, Copy, Debug)]
pub struct Cubic {
    /// The logit at which d is 0, and the value there.
    pub max: f32,
    /// The factor of the square.
    pub square: f32,
    /// The factor of the cube.
    pub cube: f32,
}

impl Cubic {
    /// Returns the value at a logit. Minus infinity and NaN stay unchanged.
    fn at(self, logit: f32) -> f32 {
        // No minus infinity, whose product with a cube of 0 is NaN.
        let d = (logit - self.max).max(f32::MIN);
        let slope = fma(self.cube, d, -self.square);
        let bent = fma(slope, d * d, self.max);
        if logit > f32::NEG_INFINITY {
            bent
        } else {
            logit
        }
    }

    /// Returns the value at each logit of a register.
    #[inline(always)]
    fn at_each<V: Vector>(self, v: V, logits: V::F) -> V::F {
        let max = v.splat(self.max);
        let d = v.max(v.sub(logits, max), v.splat(f32::MIN));
        let slope = v.fma(v.splat(self.cube), d, v.splat(-self.square));
        let bent = v.fma(slope, v.mul(d, d), max);
        v.select_lt(v.splat(f32::NEG_INFINITY), logits, bent, logits)
    }
}

dispatched! {
    /// Replaces every logit by its value on `curve`. Reads and writes 12 bytes per candidate.
    pub fn cube_logits(data: &mut [TokenData], curve: Cubic) => cube_logits_on;
    /// Replaces every logit of a column by its value on `curve`. Reads and writes 4 bytes per
    /// logit.
    pub fn cube(logits: &mut [f32], curve: Cubic) => cube_on;
    /// Divides every logit by `by`. Reads and writes 12 bytes per candidate.
    pub fn divide_logits(data: &mut [TokenData], by: f32) => divide_logits_on;
    /// Sets every logit below `threshold` to minus infinity. Reads 12 bytes per candidate, and
    /// writes the vectors in which a logit is below it, and the last vector.
    pub fn mask_below(data: &mut [TokenData], threshold: f32) => mask_below_on;
    /// Sets every logit of a column below `threshold` to minus infinity. Reads and writes 4 bytes
    /// per logit.
    pub fn mask_logits_below(logits: &mut [f32], threshold: f32) => mask_logits_below_on;
    /// Divides all numbers by `by`. Reads and writes 4 bytes per element.
    pub fn divide(xs: &mut [f32], by: f32) => divide_on;
    /// Writes the probabilities. Reads 4 bytes per candidate, and reads and writes its 12 bytes.
    pub fn set_p(data: &mut [TokenData], ps: &[f32]) => set_p_on;
    /// Divides the probabilities by `by` and returns their sum in `double`, whose last bits depend
    /// on the instruction set. `sums` has one element for each block of [`SUM_BLOCK`], and receives
    /// the sum up to its end. Reads and writes 12 bytes per candidate.
    pub fn divide_p(data: &mut [TokenData], by: f32, sums: &mut [f64]) -> f64 => divide_p_on;
    /// Writes whole candidates, with each of `ps` divided by `by`. Reads 12 bytes per candidate and
    /// writes 12.
    pub fn write_divided(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f32)
        => write_divided_on;
    /// Writes every `p` divided by `by` into `original`, and replaces the logit by the curve's
    /// value at that quotient, except for masked candidates. Returns the largest new logit, and
    /// false if a new one is NaN. Reads and writes 12 bytes per candidate, and writes 4.
    pub fn bend(data: &mut [TokenData], by: f32, original: &mut [f32], curve: Curve) -> (f32, bool)
        => bend_on;
    /// Replaces each logit by the curve's value at its element of `es` divided by `by`, except
    /// masked ones. Returns the largest new logit, and false if one is NaN. None of the logits may
    /// be NaN. Reads 8 bytes per logit, and writes 4.
    pub fn bend_logits(logits: &mut [f32], es: &[f32], by: f32, curve: Curve) -> (f32, bool)
        => bend_logits_on;
}

/// Implements `set_p`, from the last candidates to the first.
#[inline(always)]
// In bounds: the lengths are equal: asserted; `at` is less by a register at least.
fn set_p_on<V: Vector>(v: V, data: &mut [TokenData], ps: &[f32]) {
    assert_eq!(data.len(), ps.len());
    let (Some(last), Some(from)) = (data.last_chunk_of_mut::<V>(), ps.last_chunk_of::<V>()) else {
        return set_each_p(data, ps);
    };
    v.store_probabilities(last, v.load(from));
    let mut at = data.len() - data.len() % V::LANES;
    while at > 0 {
        at -= V::LANES;
        prefetch_candidates(v, data.as_ptr().wrapping_add(at).wrapping_sub(AHEAD));
        v.store_probabilities(&mut data[at..], v.load(&ps[at..]));
    }
}

/// Writes the probabilities one by one.
#[inline(always)]
fn set_each_p(data: &mut [TokenData], ps: &[f32]) {
    for (candidate, &p) in data.iter_mut().zip(ps) {
        candidate.p = p;
    }
}

/// Writes the probabilities of a block that is in the first-level cache, as [`set_p`] does.
#[inline(always)]
pub fn write_p<V: Vector>(v: V, block: &mut [TokenData], ps: &[f32]) {
    let mut chunks = block.chunks_exact_mut(V::LANES);
    let mut from = ps.chunks_exact(V::LANES);
    for (chunk, from) in (&mut chunks).zip(&mut from) {
        v.store_probabilities(chunk, v.load(from));
    }
    set_each_p(chunks.into_remainder(), from.remainder());
}

/// Implements `divide_p`, from the last candidates to the first.
#[inline(always)]
fn divide_p_on<V: Vector>(v: V, data: &mut [TokenData], by: f32, sums: &mut [f64]) -> f64 {
    let divisor = v.splat(by);
    for (block, to) in data.chunks_mut(SUM_BLOCK).zip(sums.iter_mut()).rev() {
        let mut added = [v.splat_d(0.0); 2];
        let mut chunks = block.chunks_exact_mut(V::LANES);
        for chunk in &mut chunks {
            prefetch_candidates(v, chunk.as_ptr().wrapping_sub(SUM_BLOCK));
            let p = v.div(v.load_probabilities(chunk), divisor);
            v.store_probabilities(chunk, p);
            let [low, high] = v.widen(p);
            added = [v.add_d(added[0], low), v.add_d(added[1], high)];
        }
        let mut rest = 0.0;
        for candidate in chunks.into_remainder() {
            candidate.p /= by;
            rest += f64::from(candidate.p);
        }
        *to = v.reduce_add_d(v.add_d(added[0], added[1])) + rest;
    }
    let mut sum = 0.0;
    for to in sums {
        sum += *to;
        *to = sum;
    }
    sum
}

#[inline(always)]
fn divide_on<V: Vector>(v: V, xs: &mut [f32], by: f32) {
    let divisor = v.splat(by);
    let Some(last) = xs.last_chunk_of::<V>() else {
        return xs.iter_mut().for_each(|x| *x /= by);
    };
    let last = v.div(v.load(last), divisor);
    for chunk in xs.chunks_exact_mut(V::LANES) {
        v.store(chunk, v.div(v.load(chunk), divisor));
    }
    if let Some(to) = xs.last_chunk_of_mut::<V>() {
        v.store(to, last);
    }
}

/// Implements `divide_logits`, from the last candidates to the first.
#[inline(always)]
fn divide_logits_on<V: Vector>(v: V, data: &mut [TokenData], by: f32) {
    let divisor = v.splat(by);
    let Some(last) = data.last_chunk_of::<V>() else {
        return data.iter_mut().for_each(|c| c.logit /= by);
    };
    let last = v.div(v.load_logits(last), divisor);
    for chunk in data.chunks_exact_mut(V::LANES).rev() {
        let x = v.div(v.load_logits(chunk), divisor);
        v.store_logits(chunk, x);
    }
    if let Some(to) = data.last_chunk_of_mut::<V>() {
        v.store_logits(to, last);
    }
}

#[inline(always)]
fn cube_on<V: Vector>(v: V, logits: &mut [f32], curve: Cubic) {
    let mut chunks = logits.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        v.store(chunk, curve.at_each(v, v.load(chunk)));
    }
    let rest = chunks.into_remainder();
    rest.iter_mut().for_each(|x| *x = curve.at(*x));
}

/// Implements `cube_logits`, from the last candidates, where the previous pass ended, to the first.
#[inline(always)]
fn cube_logits_on<V: Vector>(v: V, data: &mut [TokenData], curve: Cubic) {
    let mut chunks = data.rchunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        let x = curve.at_each(v, v.load_logits(chunk));
        v.store_logits(chunk, x);
    }
    let rest = chunks.into_remainder();
    rest.iter_mut().for_each(|c| c.logit = curve.at(c.logit));
}

/// Implements `mask_below`, from the last candidates, where the previous pass ended, to the first.
#[inline(always)]
fn mask_below_on<V: Vector>(v: V, data: &mut [TokenData], threshold: f32) {
    let thresholds = v.splat(threshold);
    let masked = v.splat(f32::NEG_INFINITY);
    let Some(last) = data.last_chunk_of_mut::<V>() else {
        for candidate in data.iter_mut().filter(|c| c.logit < threshold) {
            candidate.logit = f32::NEG_INFINITY;
        }
        return;
    };
    // NaN is not below anything, and so stays.
    let x = v.load_logits(last);
    v.store_logits(last, v.select_lt(x, thresholds, masked, x));
    for chunk in data.chunks_exact_mut(V::LANES).rev() {
        let x = v.load_logits(chunk);
        if v.lt(x, thresholds) == 0 {
            continue;
        }
        let x = v.select_lt(x, thresholds, masked, x);
        v.store_logits(chunk, x);
    }
}

#[inline(always)]
fn mask_logits_below_on<V: Vector>(v: V, logits: &mut [f32], threshold: f32) {
    let (thresholds, masked) = (v.splat(threshold), v.splat(f32::NEG_INFINITY));
    let mut chunks = logits.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        let x = v.load(chunk);
        v.store(chunk, v.select_lt(x, thresholds, masked, x));
    }
    let rest = chunks.into_remainder().iter_mut();
    rest.filter(|x| **x < threshold)
        .for_each(|x| *x = f32::NEG_INFINITY);
}

#[inline(always)]
// In bounds: the lengths are equal: asserted; `whole` is at most that.
fn write_divided_on<V: Vector>(
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
        prefetch_candidates(v, data.as_ptr().wrapping_add(at + AHEAD));
        let p = v.div(v.load(&ps[at..]), divisor);
        v.store_candidates(&mut data[at..], &ids[at..], v.load(&logits[at..]), p);
    }
    for i in whole..n {
        data[i] = TokenData {
            id: ids[i] as Token,
            logit: logits[i],
            p: ps[i] / by,
        };
    }
}

/// Implements `bend`, from the last candidates to the first.
#[inline(always)]
fn bend_on<V: Vector>(
    v: V,
    data: &mut [TokenData],
    by: f32,
    original: &mut [f32],
    curve: Curve,
) -> (f32, bool) {
    assert_eq!(data.len(), original.len());
    let on_lanes = CurveOn::new(v, curve);
    let lowest = v.splat(f32::NEG_INFINITY);
    let divisor = v.splat(by);
    let mut max = lowest;
    let mut all_numbers = true;
    let whole = data.len() - data.len() % V::LANES;
    let (data, last) = data.split_at_mut(whole);
    let (original, last_original) = original.split_at_mut(whole);
    let chunks = data.chunks_exact_mut(V::LANES);
    for (chunk, original) in chunks.zip(original.chunks_exact_mut(V::LANES)).rev() {
        prefetch_candidates(v, chunk.as_ptr().wrapping_sub(FAR));
        let p = v.div(v.load_probabilities(chunk), divisor);
        v.store(original, p);
        let bent = on_lanes.at(p);
        let old = v.load_logits(chunk);
        // NaN counts as minus infinity, which is below every number.
        let known = v.max(old, lowest);
        let value = v.select_lt(known, v.splat(f32::MIN), lowest, bent);
        all_numbers &= v.eq(value, value).count_ones() as usize == V::LANES;
        max = v.max(value, max);
        v.store_logits(chunk, v.select_lt(known, v.splat(f32::MIN), old, bent));
    }
    let (max_of_rest, rest_numbers) = bend_each(last, by, last_original, curve);
    let max = v.reduce_max(max);
    let max = if max < max_of_rest { max_of_rest } else { max };
    (max, all_numbers && rest_numbers)
}

#[inline(always)]
fn bend_logits_on<V: Vector>(
    v: V,
    logits: &mut [f32],
    es: &[f32],
    by: f32,
    curve: Curve,
) -> (f32, bool) {
    assert_eq!(logits.len(), es.len());
    let on_lanes = CurveOn::new(v, curve);
    let lowest = v.splat(f32::NEG_INFINITY);
    let divisor = v.splat(by);
    let mut max = lowest;
    let mut all_numbers = true;
    let mut chunks = logits.chunks_exact_mut(V::LANES);
    let mut of_es = es.chunks_exact(V::LANES);
    for (chunk, es) in (&mut chunks).zip(&mut of_es) {
        let bent = on_lanes.at(v.div(v.load(es), divisor));
        let old = v.load(chunk);
        let value = v.select_lt(old, v.splat(f32::MIN), lowest, bent);
        all_numbers &= v.eq(value, value).count_ones() as usize == V::LANES;
        max = v.max(value, max);
        v.store(chunk, value);
    }
    let mut max = v.reduce_max(max);
    for (logit, e) in chunks.into_remainder().iter_mut().zip(of_es.remainder()) {
        if *logit == f32::NEG_INFINITY {
            continue;
        }
        *logit = curve.at(e / by);
        all_numbers &= !logit.is_nan();
        max = if max < *logit { *logit } else { max };
    }
    (max, all_numbers)
}

/// Implements `bend` for one candidate after the other.
fn bend_each(data: &mut [TokenData], by: f32, original: &mut [f32], curve: Curve) -> (f32, bool) {
    let mut max = f32::NEG_INFINITY;
    let mut all_numbers = true;
    for (candidate, original) in data.iter_mut().zip(original) {
        *original = candidate.p / by;
        if comparable(candidate.logit) == f32::NEG_INFINITY {
            continue;
        }
        let value = curve.at(*original);
        candidate.logit = value;
        all_numbers &= !value.is_nan();
        max = if max < value { value } else { max };
    }
    (max, all_numbers)
}
