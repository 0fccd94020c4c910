//! The passes of [`floats`](super::floats) that add up, written once for every instruction set.

use std::hint::black_box;

use super::floats::{BLOCK, CHUNK, EXP, FAR, Logits, ROUND, SCALE, Sums, each};
use super::math::exp_f64;
use super::portable_floats::Load;
use super::vector::{MAX_LANES, Vector};
use crate::token::comparable;

/// What the first pass over a chunk tells.
struct Scanned {
    /// The largest.
    max: f32,
    /// Whether no number is masked, or infinite.
    finite: bool,
    /// With `NEAR`, whether [`exp_near`](Vector::exp_near) takes all of them, if the reference is
    /// near 0.
    near: bool,
}

/// A reference as far from 0 at most is near.
pub(super) const NEAR_REFERENCE: f32 = 40.0;
/// Below it nothing may be kept of the terms that are too small for a `float`.
const NEAR_MAX: f32 = -60.0;

/// The largest of each lane of a block; adds the squares with `NEAR`, else the products with 0, to
/// `signs`.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is 0 or 1, and a pair has twice the lanes"
)]
fn scan_block<V: Vector, T: Load, const NEAR: bool>(
    v: V,
    block: &[T],
    signs: &mut [V::F; 2],
) -> V::F {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 2];
    for pair in block.chunks_exact(2 * V::LANES) {
        for i in 0..2 {
            let x = T::load(v, &pair[i * V::LANES..]);
            lanes[i] = v.max(x, lanes[i]);
            signs[i] = v.fma(x, if NEAR { x } else { v.splat(0.0) }, signs[i]);
        }
    }
    v.max(lanes[0], lanes[1])
}

/// The largest of a chunk, and of each of its blocks if `WANTED`. Instead of asking each number
/// whether it is masked, it is multiplied by 0, or with `NEAR` by itself, and added up: one
/// operation per register, and the sum tells.
#[inline(always)]
fn scan<V: Vector, T: Load, const NEAR: bool, const WANTED: bool>(
    v: V,
    chunk: &[T],
    maxima: &mut [f32],
) -> Scanned {
    let lowest = v.splat(f32::NEG_INFINITY);
    let zero = v.splat(0.0);
    let (mut all, mut signs) = ([lowest; 2], [zero; 2]);
    let mut to = maxima.iter_mut();
    let mut groups = chunk.chunks_exact(4 * BLOCK);
    for group in &mut groups {
        let mut of_each = [lowest; 4];
        for (block, lanes) in group.chunks_exact(BLOCK).zip(&mut of_each) {
            *lanes = scan_block::<V, T, NEAR>(v, block, &mut signs);
            all[0] = v.max(*lanes, all[0]);
        }
        if WANTED {
            for (max, to) in v.largest_of_each(of_each).into_iter().zip(&mut to) {
                *to = max;
            }
        }
    }
    let mut blocks = groups.remainder().chunks_exact(BLOCK);
    for block in &mut blocks {
        let lanes = scan_block::<V, T, NEAR>(v, block, &mut signs);
        all[1] = v.max(lanes, all[1]);
        if let Some(to) = to.next() {
            *to = v.largest(lanes);
        }
    }
    let mut max = v.largest(v.max(all[0], all[1]));
    let signs = v.add(signs[0], signs[1]);
    let every = u32::MAX >> (32 - V::LANES);
    let mut finite = v.lt(signs, v.splat(f32::INFINITY)) == every;
    let mut near = NEAR && v.lt(signs, v.splat(V::NEAR_SQUARES)) == every;
    let rest = blocks.remainder();
    if !rest.is_empty() {
        let mut of_rest = f32::NEG_INFINITY;
        for x in rest {
            let x = comparable(x.to_f32());
            of_rest = if x > of_rest { x } else { of_rest };
            finite &= x.abs() < f32::INFINITY;
            near &= x * x < V::NEAR_SQUARES;
        }
        max = if of_rest > max { of_rest } else { max };
        if let Some(to) = to.next() {
            *to = of_rest;
        }
    }
    near &= max > NEAR_MAX;
    Scanned { max, finite, near }
}

/// How many numbers are above minus infinity.
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

/// Reads each number once, and those of a chunk with masked ones again.
#[inline(always)]
pub fn block_maxima_and_count<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize) {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    each!(xs, xs => {
        let (mut max, mut unmasked) = (f32::NEG_INFINITY, 0);
        for (chunk, maxima) in xs.chunks(CHUNK).zip(maxima.chunks_mut(CHUNK / BLOCK)) {
            let scanned = scan::<V, _, false, true>(v, chunk, maxima);
            max = max.max(scanned.max);
            unmasked += if scanned.finite { chunk.len() } else { count(v, chunk) };
        }
        (max, unmasked)
    })
}

/// Reads each number once from where it is, and again from the first-level cache.
#[inline(always)]
pub fn add<V: Vector>(v: V, sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    each!(xs, xs => add_all::<V, _, true>(v, sums, xs, maxima));
}

/// The same.
#[inline(always)]
pub fn add_mass<V: Vector>(v: V, sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    each!(xs, xs => add_all::<V, _, false>(v, sums, xs, maxima));
}

#[inline(always)]
fn add_all<V: Vector, T: Load, const SPREAD: bool>(
    v: V,
    sums: &mut Sums,
    xs: &[T],
    maxima: &mut [f32],
) {
    assert!(maxima.is_empty() || maxima.len() == xs.len().div_ceil(BLOCK));
    let mut maxima = maxima.chunks_mut(CHUNK / BLOCK);
    let mut reference = Reference::of(sums.max);
    let mut wide = [0.0; CHUNK];
    for chunk in xs.chunks(CHUNK) {
        let maxima = maxima.next().unwrap_or_default();
        if V::EXP_NEAR_TELLS && add_at_once::<V, T, SPREAD>(v, sums, &mut reference, chunk, maxima)
        {
            continue;
        }
        // Once, not at each of two readings.
        let chunk = T::widened(v, chunk, &mut wide);
        add_chunk::<V, SPREAD>(v, sums, &mut reference, chunk, maxima);
    }
}

/// A sum of a chunk below it may have lost too much to what is too small for a `float`.
const LEAST_MASS: f64 = 1e-25;

/// Adds a whole chunk that is read once, maxima and sums together, if it is like most: nothing is
/// masked, infinite or far away. The sum tells afterwards; if not, nothing is added. Only where the
/// largest of all is in it, the others are added up again.
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

/// Adds all of a chunk but its largest, `max`, which becomes that of all; nothing, if they are too
/// small or too far for that.
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

/// Far enough below for [`exp_near`](Vector::exp_near) to give 0.
const NOTHING: f32 = -1e4;

/// Replaces the first that is `max`.
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

/// Adds the sums of a chunk, if nothing was lost or undefined.
fn add_near(sums: &mut Sums, reference: &Reference, mass: f64, spread: f64) -> bool {
    if !(mass > LEAST_MASS && mass < f64::INFINITY) {
        return false;
    }
    sums.rest += mass * reference.near_unit;
    sums.spread -= spread * reference.near_unit;
    sums.unmasked += CHUNK;
    true
}

/// The largest of a chunk, and the sums of e^x and, if `SPREAD`, (x - the reference) e^x; with
/// `WANTED` the largest of each block, too. Meanwhile the next numbers come into the first-level
/// cache.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below 4, and `four` has four times the lanes"
)]
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
        for blocks in group.chunks_exact(4 * BLOCK) {
            let mut of_each = [lowest; 4];
            // A loop whose length the compiler knows it unrolls, loads everything first, and then
            // keeps most of it in memory: half as quick.
            for (block, of_block) in black_box(blocks).chunks_exact(BLOCK).zip(&mut of_each) {
                let mut largest = lowest;
                for four in block.chunks_exact(4 * V::LANES) {
                    let x: [V::F; 4] = std::array::from_fn(|i| {
                        let numbers = &four[i * V::LANES..];
                        v.prefetch(numbers.as_ptr().wrapping_add(AHEAD));
                        T::load(v, numbers)
                    });
                    largest = x.into_iter().fold(largest, |max, x| v.max(x, max));
                    let e = v.exp_near_each(x);
                    for ((x, e), sums) in x.into_iter().zip(e).zip(&mut floats) {
                        add_weighted::<V, SPREAD>(v, x, e, reference, sums);
                    }
                }
                all = v.max(largest, all);
                *of_block = largest;
            }
            if WANTED && let Some(to) = to.next() {
                to.copy_from_slice(&v.largest_of_each(of_each));
            }
        }
        let [a, b, c, d] = floats;
        let [a, b] = [add_both(v, a, b), add_both(v, c, d)];
        add_widened::<V, SPREAD>(v, add_both(v, a, b), &mut doubles);
    }
    let [mass, spread] = doubles.map(|[a, b]| v.total_d(v.add_d(a, b)));
    (v.largest(all), mass, spread)
}

/// How many numbers ahead memory is asked for: half a chunk.
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

/// What terms are relative to.
pub(super) struct Reference {
    /// The largest logit.
    pub(super) max: f32,
    /// It is subtracted from the logits first.
    pub(super) far: bool,
    /// What the logits are compared with then: `max`, or 0.
    origin: f32,
    /// `ROUND` less the exponent of the terms' unit.
    round: f32,
    /// What a computed sum must be multiplied with to be relative to the largest logit.
    pub(super) unit: f64,
    /// The same of what [`exp_near`](Vector::exp_near) gave.
    pub(super) near_unit: f64,
}

/// [`exp_near`](Vector::exp_near) gives e^(x (1 - this)), since ln 2 is a `float` there. The sums
/// are relative to the largest logit's, which takes away nearly all of it.
const LN_2_ERROR: f64 = std::f32::consts::LN_2 as f64 / std::f64::consts::LN_2 - 1.0;

/// Below the largest logit by this much a term is 0 in all that is computed: e^-130.
const LOWEST: f32 = -130.0;

impl Reference {
    pub(super) fn of(max: f32) -> Self {
        let far = max.abs() > FAR;
        let origin = if far { 0.0 } else { max };
        let k = (origin * std::f32::consts::LOG2_E).round() as i32;
        let exact = f64::from(k) * f64::from(std::f32::consts::LN_2) - f64::from(origin);
        Self {
            max,
            far,
            origin,
            round: ROUND - (k - SCALE) as f32,
            unit: exp_f64(exact) * f64::from(-SCALE).exp2(),
            near_unit: exp_f64(-f64::from(max) * (1.0 - LN_2_ERROR)),
        }
    }
}

/// A copy of a chunk, of [`CHUNK`] numbers at most, without its largest logit, if that is the
/// reference, and with the others less the reference, if that is far. Few chunks need one.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: a chunk has at most `CHUNK` numbers"
)]
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

/// The numbers of a chunk, [`CHUNK`] at most, in single precision, in `to`. Meanwhile the next
/// chunk comes into the first-level cache.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: a chunk has at most `CHUNK` numbers"
)]
pub(super) fn widen_into<'c, V: Vector, T: Load>(
    v: V,
    chunk: &[T],
    to: &'c mut [f32; CHUNK],
) -> &'c [f32] {
    let to = &mut to[..chunk.len()];
    let mut from = chunk.chunks_exact(V::LANES);
    let mut registers = to.chunks_exact_mut(V::LANES);
    for (from, to) in (&mut from).zip(&mut registers) {
        v.prefetch(from.as_ptr().wrapping_add(CHUNK));
        v.store(to, T::load(v, from));
    }
    for (x, to) in from.remainder().iter().zip(registers.into_remainder()) {
        *to = x.to_f32();
    }
    to
}

/// How many terms are added as floats in one lane.
pub(super) const ADDED: usize = 8;

/// The sums of e^d and, if `SPREAD`, -d e^d. `NEAR`: [`exp_near`](Vector::exp_near) takes all; if
/// not, some may be far below the reference, or undefined. Meanwhile the next [`CHUNK`] comes into
/// the first-level cache.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below 4, and `four` has four times the lanes"
)]
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
        v.total_d(v.add_d(mass[0], mass[1])) * unit,
        -v.total_d(v.add_d(spread[0], spread[1])) * unit,
    )
}

#[inline(always)]
fn add_both<V: Vector>(v: V, a: [V::F; 2], b: [V::F; 2]) -> [V::F; 2] {
    [v.add(a[0], b[0]), v.add(a[1], b[1])]
}

/// Adds the terms and the weighted terms of few logits to the sums.
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

/// Adds e^d in a unit of `reference`, and d e^d, of one register.
#[inline(always)]
fn add_term<V: Vector, const NEAR: bool, const SPREAD: bool>(
    v: V,
    x: V::F,
    reference: &Reference,
    sums: &mut [V::F; 2],
) {
    let (x, e) = match NEAR {
        true => (x, v.exp_near(x)),
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

/// One register, no number of it too low, and e^d of it.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below the number of coefficients"
)]
pub(super) fn term<V: Vector>(v: V, x: V::F, reference: &Reference) -> (V::F, V::F) {
    // NaN, too, becomes the lowest.
    let x = v.max(x, v.splat(reference.origin + LOWEST));
    let round = v.splat(reference.round);
    let shifted = v.fma(x, v.splat(std::f32::consts::LOG2_E), round);
    let k = v.sub(shifted, round);
    let r = v.fma(k, v.splat(-std::f32::consts::LN_2), x);
    let mut e = v.splat(EXP[5]);
    for i in (0..5).rev() {
        e = v.fma(e, r, v.splat(EXP[i]));
    }
    (x, v.times_power(e, shifted))
}
