//! Sums of exponentials of raw logits in one pass, relative to the largest so far (online softmax).
//!
//! If the reference, which is the largest logit so far, is within 40 of 0 and the logits of a chunk
//! are not far from it, the approximation [`Vector::exp_approx`] needs no scaling and no bound.
//! With AVX-512 the sum of the terms shows afterwards if that was the case. Without it, the sum of
//! the squares shows it in advance. Each lane has four `float` sums of up to 8 terms, whose total
//! is then added to a `double`. Altogether the relative error of the sums is at most 5e-7, and
//! mostly 1e-7. Their last bits depend on the instruction set.

use std::hint::black_box;

use super::layout::{CHUNK, GROUP};
use super::logits::{Load, Logits, each, widen_into};
use super::reference::{NEAR_REFERENCE, Reference, term};
use crate::simd::libm::exp_f64;
use crate::simd::{MAX_LANES, Vector, dispatched};
use crate::token::comparable;

/// Sums over all logits x except one of the largest, with d = x - max. Every metric is computed
/// from them.
///
/// A logit of plus infinity has all the probability; the sums are then 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// The largest logit.
    pub max: f32,
    /// The sum of e^d.
    pub rest: f64,
    /// The sum of -d e^d.
    pub spread: f64,
    /// The number of logits above minus infinity.
    pub unmasked: usize,
}

impl Default for Sums {
    /// Returns the sums over no logits.
    fn default() -> Self {
        Self {
            max: f32::NEG_INFINITY,
            rest: 0.0,
            spread: 0.0,
            unmasked: 0,
        }
    }
}

impl Sums {
    /// Adds `logits`, and leaves the largest of each group in `maxima`, if that is not empty.
    pub fn add(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        add(self, logits, maxima);
    }

    /// Adds `logits` as [`add`](Self::add) does, but without the spread, in less time. All logits
    /// of the same sums must be added by the same function.
    pub fn add_mass(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        add_mass(self, logits, maxima);
        self.spread = 0.0;
    }

    /// Makes the sums relative to `max`, which is not below the maximum so far. They then include
    /// the term of that earlier maximum.
    pub fn raise(&mut self, max: f32) {
        if max == f32::INFINITY {
            // An infinite logit has all the probability.
            (self.rest, self.spread) = (0.0, 0.0);
        } else if self.max > f32::NEG_INFINITY {
            let d = f64::from(self.max) - f64::from(max);
            let factor = exp_f64(d);
            let mass = 1.0 + self.rest;
            self.spread = (self.spread - d * mass) * factor;
            self.rest = mass * factor;
        }
        self.max = max;
    }

    /// Adds the sums of other logits.
    pub fn merge(&mut self, other: &Self) {
        let (mut high, mut low) = (*self, *other);
        if low.max > high.max {
            std::mem::swap(&mut high, &mut low);
        }
        if low.max > f32::NEG_INFINITY {
            low.raise(high.max);
            high.rest += low.rest;
            high.spread += low.spread;
        }
        high.unmasked += low.unmasked;
        *self = high;
    }
}

dispatched! {
    fn add(sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) => add_on;
    fn add_mass(sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) => add_mass_on;
    fn maxima_and_count(xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize)
        => block_maxima_and_count_on;
}

impl Logits<'_> {
    /// Writes and returns the maxima as [`block_maxima`](Self::block_maxima) does, and also returns
    /// the number of logits that are not masked. Reads each number once, and a chunk with masked
    /// ones twice.
    pub fn block_maxima_and_count(&self, maxima: &mut [f32]) -> (f32, usize) {
        maxima_and_count(*self, maxima)
    }
}

/// The result of the first pass over a chunk.
struct Scanned {
    /// The largest number.
    max: f32,
    /// True if no number is masked or infinite.
    finite: bool,
    /// With `NEAR`, true if all numbers are in the range of [`exp_approx`](Vector::exp_approx),
    /// provided that the reference is near 0.
    near: bool,
}

/// A bound on a chunk's largest logit, at or below which the terms may be too small for a `float`.
const NEAR_MAX: f32 = -60.0;

/// Returns the largest of each lane of a block. Adds the squares (with `NEAR`) or the products with
/// 0 to `signs`, of which there are four, since each addition waits for the previous one.
#[inline(always)]
// In bounds: `i` is below 4, and `four` has four times the lanes.
fn scan_block<V: Vector, T: Load, const NEAR: bool>(
    v: V,
    block: &[T],
    signs: &mut [V::F; 4],
) -> V::F {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 2];
    for four in block.chunks_exact(4 * V::LANES) {
        for i in 0..4 {
            let x = T::load(v, &four[i * V::LANES..]);
            lanes[i % 2] = v.max(x, lanes[i % 2]);
            signs[i] = v.fma(x, if NEAR { x } else { v.splat(0.0) }, signs[i]);
        }
    }
    v.max(lanes[0], lanes[1])
}

/// Returns the largest of a chunk, and writes that of each of its blocks if `WANTED`. Masked
/// numbers are detected without a comparison of each: all are multiplied by 0, or with `NEAR` by
/// themselves, and added up, which is one operation per register. The sum shows if any was masked.
#[inline(always)]
fn scan<V: Vector, T: Load, const NEAR: bool, const WANTED: bool>(
    v: V,
    chunk: &[T],
    maxima: &mut [f32],
) -> Scanned {
    let lowest = v.splat(f32::NEG_INFINITY);
    let zero = v.splat(0.0);
    let (mut all, mut signs) = ([lowest; 2], [zero; 4]);
    let mut to = maxima.iter_mut();
    let mut groups = chunk.chunks_exact(4 * GROUP);
    for group in &mut groups {
        let mut of_each = [lowest; 4];
        // Hides the length of the loop, as in `near_terms`.
        for (block, lanes) in black_box(group).chunks_exact(GROUP).zip(&mut of_each) {
            *lanes = scan_block::<V, T, NEAR>(v, block, &mut signs);
            all[0] = v.max(*lanes, all[0]);
        }
        if WANTED {
            for (max, to) in v.reduce_max_each(of_each).into_iter().zip(&mut to) {
                *to = max;
            }
        }
    }
    let mut blocks = groups.remainder().chunks_exact(GROUP);
    for block in &mut blocks {
        let lanes = scan_block::<V, T, NEAR>(v, block, &mut signs);
        all[1] = v.max(lanes, all[1]);
        if let Some(to) = to.next() {
            *to = v.reduce_max(lanes);
        }
    }
    let mut max = v.reduce_max(v.max(all[0], all[1]));
    let [a, b, c, d] = signs;
    let signs = v.add(v.add(a, b), v.add(c, d));
    let every = u32::MAX >> (32 - V::LANES);
    let mut finite = v.lt(signs, v.splat(f32::INFINITY)) == every;
    let mut near = NEAR && v.lt(signs, v.splat(V::EXP_APPROX_SQUARES)) == every;
    let rest = blocks.remainder();
    if !rest.is_empty() {
        let mut of_rest = f32::NEG_INFINITY;
        for x in rest {
            let x = comparable(x.to_f32());
            of_rest = if x > of_rest { x } else { of_rest };
            finite &= x.abs() < f32::INFINITY;
            near &= x * x < V::EXP_APPROX_SQUARES;
        }
        max = if of_rest > max { of_rest } else { max };
        if let Some(to) = to.next() {
            *to = of_rest;
        }
    }
    near &= max > NEAR_MAX;
    Scanned { max, finite, near }
}

/// Returns the number of values above minus infinity.
#[inline(always)]
fn count<V: Vector, T: Load>(v: V, chunk: &[T]) -> usize {
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut chunks = chunk.chunks_exact(V::LANES);
    let mut count = 0;
    for chunk in &mut chunks {
        count += v.lt(lowest, T::load(v, chunk)).count_ones() as usize;
    }
    let rest = chunks.remainder().iter();
    count + rest.filter(|x| x.to_f32() > f32::NEG_INFINITY).count()
}

#[inline(always)]
fn block_maxima_and_count_on<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize) {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    each!(xs, xs => {
        let (mut max, mut unmasked) = (f32::NEG_INFINITY, 0);
        for (chunk, maxima) in xs.chunks(CHUNK).zip(maxima.chunks_mut(CHUNK / GROUP)) {
            let scanned = scan::<V, _, false, true>(v, chunk, maxima);
            max = max.max(scanned.max);
            unmasked += if scanned.finite { chunk.len() } else { count(v, chunk) };
        }
        (max, unmasked)
    })
}

/// Adds logits to the sums. Reads each number once from memory, and again from the first-level
/// cache.
#[inline(always)]
fn add_on<V: Vector>(v: V, sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    each!(xs, xs => add_all::<V, _, true>(v, sums, xs, maxima));
}

#[inline(always)]
fn add_mass_on<V: Vector>(v: V, sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    each!(xs, xs => add_all::<V, _, false>(v, sums, xs, maxima));
}

#[inline(always)]
fn add_all<V: Vector, T: Load, const SPREAD: bool>(
    v: V,
    sums: &mut Sums,
    xs: &[T],
    maxima: &mut [f32],
) {
    assert!(maxima.is_empty() || maxima.len() == xs.len().div_ceil(GROUP));
    let mut maxima = maxima.chunks_mut(CHUNK / GROUP);
    let mut reference = Reference::of(sums.max);
    let mut wide = [0.0; CHUNK];
    for chunk in xs.chunks(CHUNK) {
        let maxima = maxima.next().unwrap_or_default();
        if V::EXP_APPROX_TELLS
            && add_at_once::<V, T, SPREAD>(v, sums, &mut reference, chunk, maxima)
        {
            continue;
        }
        // Widens the numbers once, since `add_chunk` reads them twice.
        let chunk = T::widened(v, chunk, &mut wide);
        add_chunk::<V, SPREAD>(v, sums, &mut reference, chunk, maxima);
    }
}

/// The smallest sum of a chunk that is reliable: a smaller one may lack terms that were too small
/// for a `float`.
const LEAST_MASS: f64 = 1e-25;

/// Adds a whole chunk and returns true if, as usual, no logit is masked, infinite or far from the
/// reference. Otherwise adds nothing and returns false. Reads the chunk once, for maxima and sums
/// together, since the sum shows afterwards if a logit was unusual. If the chunk has a new largest
/// logit, its other logits are summed again.
#[inline(always)]
fn add_at_once<V: Vector, T: Load, const SPREAD: bool>(
    v: V,
    sums: &mut Sums,
    reference: &mut Reference,
    chunk: &[T],
    maxima: &mut [f32],
) -> bool {
    if chunk.len() < CHUNK || reference.max.abs() >= NEAR_REFERENCE {
        return false;
    }
    let (max, mass, spread) = match maxima {
        [] => near_terms::<V, T, SPREAD, false>(v, chunk, reference, maxima),
        maxima => near_terms::<V, T, SPREAD, true>(v, chunk, reference, maxima),
    };
    if max > sums.max {
        return mass < f64::INFINITY && add_others::<V, T, SPREAD>(v, sums, reference, chunk, max);
    }
    add_near(sums, reference, mass, spread)
}

/// Adds all logits of a chunk except its largest, `max`, which becomes the reference, and returns
/// true. Adds nothing and returns false if their terms are too small, or if `max` is too far from
/// 0.
#[inline(always)]
fn add_others<V: Vector, T: Load, const SPREAD: bool>(
    v: V,
    sums: &mut Sums,
    reference: &mut Reference,
    chunk: &[T],
    max: f32,
) -> bool {
    if max.abs() >= NEAR_REFERENCE {
        return false;
    }
    let mut copy = [0.0; CHUNK];
    widen_into(v, chunk, &mut copy);
    leave_out(v, &mut copy, max);
    let raised = Reference::of(max);
    let (_, mass, spread) = near_terms::<V, f32, SPREAD, false>(v, &copy, &raised, &mut []);
    let mut sums_raised = *sums;
    sums_raised.raise(max);
    if !add_near(&mut sums_raised, &raised, mass, spread) {
        return false;
    }
    (*sums, *reference) = (sums_raised, raised);
    true
}

/// A number so low that [`exp_approx`](Vector::exp_approx) returns 0 for it.
const NOTHING: f32 = -1e4;

/// Replaces the first element equal to `max` by a number whose exponential is 0.
#[inline(always)]
fn leave_out<V: Vector>(v: V, xs: &mut [f32; CHUNK], max: f32) {
    let wanted = v.splat(max);
    for register in xs.chunks_exact_mut(V::LANES) {
        let lanes = v.eq(v.load(register), wanted);
        if lanes == 0 {
            continue;
        }
        if let Some(largest) = register.get_mut(lanes.trailing_zeros() as usize) {
            *largest = NOTHING;
        }
        return;
    }
}

/// Adds the sums of a chunk and returns true, if no term was lost or undefined. Otherwise adds
/// nothing and returns false.
fn add_near(sums: &mut Sums, reference: &Reference, mass: f64, spread: f64) -> bool {
    if !(mass > LEAST_MASS && mass < f64::INFINITY) {
        return false;
    }
    sums.rest += mass * reference.near_unit;
    sums.spread -= spread * reference.near_unit;
    sums.unmasked += CHUNK;
    true
}

/// Returns the largest logit of a chunk, and the sums of e^x and, if `SPREAD`, of (x - the
/// reference) e^x. With `WANTED` also writes the largest of each block. Meanwhile the next numbers
/// are prefetched into the first-level cache.
#[inline(always)]
// In bounds: `i` is below 4, and `four` has four times the lanes.
fn near_terms<V: Vector, T: Load, const SPREAD: bool, const WANTED: bool>(
    v: V,
    chunk: &[T],
    reference: &Reference,
    maxima: &mut [f32],
) -> (f32, f64, f64) {
    let lowest = v.splat(f32::NEG_INFINITY);
    let zero = v.splat_d(0.0);
    let (mut all, mut doubles) = (lowest, [[zero; 2]; 2]);
    let mut to = maxima.chunks_exact_mut(4);
    for group in chunk.chunks_exact(4 * ADDED * V::LANES) {
        let zero = v.splat(0.0);
        let mut floats = [[zero; 2]; 4];
        for blocks in group.chunks_exact(4 * GROUP) {
            let mut of_each = [lowest; 4];
            // Hides the length of the loop from the compiler. It would unroll the loop, load
            // everything first, and spill most of it to memory, which is half as fast.
            for (block, of_block) in black_box(blocks).chunks_exact(GROUP).zip(&mut of_each) {
                let mut largest = lowest;
                for four in block.chunks_exact(4 * V::LANES) {
                    let x: [V::F; 4] = std::array::from_fn(|i| {
                        let numbers = &four[i * V::LANES..];
                        v.prefetch(numbers.as_ptr().wrapping_add(AHEAD));
                        T::load(v, numbers)
                    });
                    largest = x.into_iter().fold(largest, |max, x| v.max(x, max));
                    let e = v.exp_approx_each(x);
                    for ((x, e), sums) in x.into_iter().zip(e).zip(&mut floats) {
                        add_weighted::<V, SPREAD>(v, x, e, reference, sums);
                    }
                }
                all = v.max(largest, all);
                *of_block = largest;
            }
            if WANTED && let Some(to) = to.next() {
                to.copy_from_slice(&v.reduce_max_each(of_each));
            }
        }
        let [a, b, c, d] = floats;
        let [a, b] = [add_both(v, a, b), add_both(v, c, d)];
        add_widened::<V, SPREAD>(v, add_both(v, a, b), &mut doubles);
    }
    let [mass, spread] = doubles.map(|[a, b]| v.reduce_add_d(v.add_d(a, b)));
    (v.reduce_max(all), mass, spread)
}

/// The prefetch distance in numbers: half a chunk.
const AHEAD: usize = 512;

#[inline(always)]
fn add_chunk<V: Vector, const SPREAD: bool>(
    v: V,
    sums: &mut Sums,
    reference: &mut Reference,
    chunk: &[f32],
    maxima: &mut [f32],
) {
    let Scanned { max, finite, near } = match maxima {
        [] => scan::<V, f32, true, false>(v, chunk, maxima),
        maxima => scan::<V, f32, true, true>(v, chunk, maxima),
    };
    sums.unmasked += if finite { chunk.len() } else { count(v, chunk) };
    let rises = max > sums.max;
    if rises {
        sums.raise(max);
        *reference = Reference::of(max);
    }
    if sums.max == f32::INFINITY || max == f32::NEG_INFINITY {
        return;
    }
    let (mass, spread) = if rises || reference.far {
        let mut copy = [0.0; CHUNK];
        let copy = changed(chunk, &mut copy, reference, rises);
        terms::<V, false, SPREAD>(v, copy, reference)
    } else if near && reference.max.abs() < NEAR_REFERENCE {
        terms::<V, true, SPREAD>(v, chunk, reference)
    } else {
        terms::<V, false, SPREAD>(v, chunk, reference)
    };
    sums.rest += mass;
    sums.spread += spread;
}

/// Returns a copy of a chunk of at most [`CHUNK`] numbers. With `leave_out_max`, its largest logit,
/// which is the reference, is excluded. The reference is subtracted from the others if it is far
/// from 0. Few chunks need a copy.
// In bounds: a chunk has at most `CHUNK` numbers.
fn changed<'c>(
    chunk: &[f32],
    copy: &'c mut [f32; CHUNK],
    reference: &Reference,
    leave_out_max: bool,
) -> &'c [f32] {
    let copy = &mut copy[..chunk.len()];
    copy.copy_from_slice(chunk);
    if leave_out_max && let Some(max) = copy.iter_mut().find(|x| **x == reference.max) {
        *max = f32::NEG_INFINITY;
    }
    if reference.far {
        copy.iter_mut().for_each(|x| *x -= reference.max);
    }
    copy
}

/// The number of terms in each of the four sums of floats in one lane, before these are added up
/// and widened.
pub const ADDED: usize = 8;

/// Returns the sum of e^d and, if `SPREAD`, that of -d e^d. With `NEAR` all d are in the range of
/// [`exp_approx`](Vector::exp_approx); without it some may be far below the reference or NaN.
/// Prefetches the next [`CHUNK`].
#[inline(always)]
// In bounds: `i` is below 4, and `four` has four times the lanes.
fn terms<V: Vector, const NEAR: bool, const SPREAD: bool>(
    v: V,
    xs: &[f32],
    reference: &Reference,
) -> (f64, f64) {
    let zero = v.splat_d(0.0);
    let mut doubles = [[zero; 2]; 2];
    let mut groups = xs.chunks_exact(4 * ADDED * V::LANES);
    for group in &mut groups {
        let zero = v.splat(0.0);
        let mut floats = [[zero; 2]; 4];
        for four in group.chunks_exact(4 * V::LANES) {
            for (i, floats) in floats.iter_mut().enumerate() {
                let numbers = &four[i * V::LANES..];
                if i * V::LANES % 16 == 0 {
                    v.prefetch(numbers.as_ptr().wrapping_add(CHUNK));
                }
                let x = v.load(numbers);
                add_term::<V, NEAR, SPREAD>(v, x, reference, floats);
            }
        }
        let [a, b, c, d] = floats;
        let [a, b] = [add_both(v, a, b), add_both(v, c, d)];
        let floats = add_both(v, a, b);
        add_widened::<V, SPREAD>(v, floats, &mut doubles);
    }
    let mut rest = groups.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        let mut floats = [v.splat(0.0); 2];
        add_term::<V, NEAR, SPREAD>(v, v.load(chunk), reference, &mut floats);
        add_widened::<V, SPREAD>(v, floats, &mut doubles);
    }
    let rest = rest.remainder();
    if !rest.is_empty() {
        let (mut last, mut inside) = ([reference.origin; MAX_LANES], [0.0; MAX_LANES]);
        for ((x, to), inside) in rest.iter().zip(&mut last).zip(&mut inside) {
            (*to, *inside) = (*x, 1.0);
        }
        let lasts = last.chunks_exact(V::LANES);
        for (last, inside) in lasts.zip(inside.chunks_exact(V::LANES)) {
            let mut floats = [v.splat(0.0); 2];
            add_term::<V, NEAR, SPREAD>(v, v.load(last), reference, &mut floats);
            let inside = v.load(inside);
            let floats = floats.map(|sum| v.mul(sum, inside));
            add_widened::<V, SPREAD>(v, floats, &mut doubles);
        }
    }
    let [mass, spread] = doubles;
    let unit = if NEAR {
        reference.near_unit
    } else {
        reference.unit
    };
    (
        v.reduce_add_d(v.add_d(mass[0], mass[1])) * unit,
        -v.reduce_add_d(v.add_d(spread[0], spread[1])) * unit,
    )
}

#[inline(always)]
fn add_both<V: Vector>(v: V, a: [V::F; 2], b: [V::F; 2]) -> [V::F; 2] {
    [v.add(a[0], b[0]), v.add(a[1], b[1])]
}

/// Adds sums of a few terms, and of a few weighted terms, to the sums in `double`.
#[inline(always)]
fn add_widened<V: Vector, const SPREAD: bool>(
    v: V,
    floats: [V::F; 2],
    doubles: &mut [[V::D; 2]; 2],
) {
    let parts = if SPREAD { 2 } else { 1 };
    for (floats, doubles) in floats.into_iter().zip(doubles).take(parts) {
        let halves = v.widen(floats);
        doubles[0] = v.add_d(doubles[0], halves[0]);
        doubles[1] = v.add_d(doubles[1], halves[1]);
    }
}

/// Adds e^d and d e^d of one register, in the unit of `reference`.
#[inline(always)]
fn add_term<V: Vector, const NEAR: bool, const SPREAD: bool>(
    v: V,
    x: V::F,
    reference: &Reference,
    sums: &mut [V::F; 2],
) {
    let (x, e) = match NEAR {
        true => (x, v.exp_approx(x)),
        false => term(v, x, reference),
    };
    add_weighted::<V, SPREAD>(v, x, e, reference, sums);
}

/// Adds e, and, if `SPREAD`, e times the distance of x from the reference.
#[inline(always)]
fn add_weighted<V: Vector, const SPREAD: bool>(
    v: V,
    x: V::F,
    e: V::F,
    reference: &Reference,
    sums: &mut [V::F; 2],
) {
    sums[0] = v.add(sums[0], e);
    if SPREAD {
        let origin = v.splat(reference.origin);
        sums[1] = v.fma(v.sub(x, origin), e, sums[1]);
    }
}
