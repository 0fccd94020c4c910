//! The passes of [`survivors`](super::survivors), written once for every instruction set.

use super::floats::{BLOCK, Logits, ROOM, each, room};
use super::portable_floats::{Load, Passing, block_of, padded};
use super::portable_sums::{ADDED, NEAR_REFERENCE, Reference, term};
use super::survivors::{SUMMED, Survivors, THRESHOLDS};
use super::vector::Vector;
use crate::token::TokenData;

/// Reads the blocks that pass.
#[inline(always)]
pub fn collect_survivors<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Survivors,
) {
    each!(xs, xs => collect_of(v, xs, maxima, first, threshold, to));
}

#[inline(always)]
fn collect_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Survivors,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let thresholds = v.splat(threshold);
    let mut passing = Passing::new(maxima);
    while let Some(index) = passing.next(v, thresholds) {
        let block = block_of(xs, index);
        let start = first + (index * BLOCK) as u32;
        // The length is known to the compiler where the block is whole.
        let marks = match block.first_chunk::<BLOCK>() {
            Some(block) => keep_of(v, &block[..], thresholds, to.room()),
            None => {
                let mut padded = [f32::NEG_INFINITY; BLOCK];
                for (to, x) in padded.iter_mut().zip(block) {
                    *to = x.to_f32();
                }
                keep_of(v, &padded[..], thresholds, to.room())
            }
        };
        to.keep(start, marks);
    }
}

/// Writes what passes of a whole block to the beginning of `to`; a bit for each.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: a whole block; `lane` and a register more are within it, and `to` is larger"
)]
fn keep_of<V: Vector, T: Load>(v: V, block: &[T], thresholds: V::F, to: &mut [f32; ROOM]) -> u64 {
    let (mut kept, mut marks) = (0, 0u64);
    for lane in (0..BLOCK).step_by(V::LANES) {
        let x = T::load(v, &block[lane..]);
        let lanes = v.ge(x, thresholds);
        // So many at most come before.
        v.keep_lanes(x, lanes, &mut to[kept.min(lane)..]);
        kept += lanes.count_ones() as usize;
        marks |= u64::from(lanes) << lane;
    }
    marks
}

/// Reads each number once.
#[inline(always)]
pub fn count_from<V: Vector>(v: V, xs: &[f32], threshold: f32) -> usize {
    let thresholds = v.splat(threshold);
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut count = 0;
    for chunk in &mut chunks {
        count += v.ge(v.load(chunk), thresholds).count_ones() as usize;
    }
    let rest = chunks.remainder().iter();
    count + rest.filter(|&&x| x >= threshold).count()
}

/// How low the kept ones may be, divided, for [`exp_near`](Vector::exp_near).
const NEAR_LOWEST: f32 = -80.0;

/// Reads each number once.
#[inline(always)]
pub fn kept_masses<V: Vector>(v: V, survivors: &Survivors, to: &mut [f64]) {
    let (threshold, divisor) = survivors.kept();
    let reference = Reference::of(survivors.max());
    let near = survivors.max().abs() < NEAR_REFERENCE && threshold / divisor > NEAR_LOWEST;
    match near {
        true => masses_of::<V, true>(v, survivors, &reference, to),
        false => masses_of::<V, false>(v, survivors, &reference, to),
    }
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below 4, and `four` has four times the lanes"
)]
fn masses_of<V: Vector, const NEAR: bool>(
    v: V,
    survivors: &Survivors,
    reference: &Reference,
    to: &mut [f64],
) {
    let (threshold, divisor) = survivors.kept();
    let kept = Kept {
        threshold: v.splat(threshold),
        divisor: v.splat(divisor),
        inverse: v.splat(1.0 / divisor),
    };
    let unit = if NEAR {
        reference.near_unit
    } else {
        reference.unit
    };
    let mut sum = 0.0;
    for (block, to) in survivors.logits().chunks(SUMMED).zip(to) {
        let mut doubles = [v.splat_d(0.0); 2];
        for group in block.chunks(4 * ADDED * V::LANES) {
            let mut floats = [v.splat(0.0); 4];
            let mut fours = group.chunks_exact(4 * V::LANES);
            for four in &mut fours {
                for (i, floats) in floats.iter_mut().enumerate() {
                    let e =
                        kept_term::<V, NEAR>(v, v.load(&four[i * V::LANES..]), &kept, reference);
                    *floats = v.add(*floats, e);
                }
            }
            let mut rest = fours.remainder().chunks_exact(V::LANES);
            for (one, floats) in (&mut rest).zip(&mut floats) {
                let e = kept_term::<V, NEAR>(v, v.load(one), &kept, reference);
                *floats = v.add(*floats, e);
            }
            for one in padded(rest.remainder()).chunks_exact(V::LANES) {
                let e = kept_term::<V, NEAR>(v, v.load(one), &kept, reference);
                floats[3] = v.add(floats[3], e);
            }
            let [a, b, c, d] = floats;
            let halves = v.widen(v.add(v.add(a, b), v.add(c, d)));
            doubles[0] = v.add_d(doubles[0], halves[0]);
            doubles[1] = v.add_d(doubles[1], halves[1]);
        }
        sum += v.total_d(v.add_d(doubles[0], doubles[1])) * unit;
        *to = sum;
    }
}

/// Which are kept, and what they are divided by.
struct Kept<F> {
    threshold: F,
    divisor: F,
    inverse: F,
}

/// e^x in a unit of `reference` of one register, divided; 0 where it is left out.
///
/// The quotient is made with the inverse and corrected by what it leaves, which rounds it as a
/// division does (Markstein 1990), in a fifth of the time.
#[inline(always)]
fn kept_term<V: Vector, const NEAR: bool>(
    v: V,
    x: V::F,
    kept: &Kept<V::F>,
    reference: &Reference,
) -> V::F {
    let zero = v.splat(0.0);
    let quotient = v.mul(x, kept.inverse);
    let left = v.fma(v.sub(zero, quotient), kept.divisor, x);
    let quotient = v.fma(left, kept.inverse, quotient);
    let e = match NEAR {
        true => v.exp_near(quotient),
        false if reference.far => term(v, v.sub(quotient, v.splat(reference.max)), reference).1,
        false => term(v, quotient, reference).1,
    };
    v.if_lt(x, kept.threshold, zero, e)
}

/// Reads each number once.
#[inline(always)]
pub fn masses_above<V: Vector>(
    v: V,
    xs: &[f32],
    max: f32,
    thresholds: &[f32; THRESHOLDS],
) -> [f64; 1 + THRESHOLDS] {
    let reference = Reference::of(max);
    let mut masses = [[v.splat_d(0.0); 2]; 1 + THRESHOLDS];
    let mut groups = xs.chunks_exact(ADDED * V::LANES);
    for group in &mut groups {
        add_above(v, group, thresholds, &reference, &mut masses);
    }
    let mut rest = groups.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        add_above(v, chunk, thresholds, &reference, &mut masses);
    }
    add_above(
        v,
        &padded(rest.remainder()),
        thresholds,
        &reference,
        &mut masses,
    );
    let mut totals = [0.0; 1 + THRESHOLDS];
    for (total, [a, b]) in totals.iter_mut().zip(masses) {
        *total = v.total_d(v.add_d(a, b)) * reference.unit;
    }
    totals
}

/// Adds the terms of at most [`ADDED`] registers to the sums of all, and of those at or above each
/// threshold.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below the number of thresholds, and there is one more of `floats`"
)]
fn add_above<V: Vector>(
    v: V,
    xs: &[f32],
    thresholds: &[f32; THRESHOLDS],
    reference: &Reference,
    masses: &mut [[V::D; 2]; 1 + THRESHOLDS],
) {
    let zero = v.splat(0.0);
    let mut floats = [zero; 1 + THRESHOLDS];
    for x in xs.chunks_exact(V::LANES) {
        let x = v.load(x);
        let from = match reference.far {
            true => v.sub(x, v.splat(reference.max)),
            false => x,
        };
        let (_, e) = term(v, from, reference);
        floats[0] = v.add(floats[0], e);
        for i in 0..THRESHOLDS {
            let e = v.if_lt(x, v.splat(thresholds[i]), zero, e);
            floats[i + 1] = v.add(floats[i + 1], e);
        }
    }
    for (floats, doubles) in floats.into_iter().zip(masses) {
        let halves = v.widen(floats);
        doubles[0] = v.add_d(doubles[0], halves[0]);
        doubles[1] = v.add_d(doubles[1], halves[1]);
    }
}

/// Reads each number once.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "no more are kept than were read of a block, and there is room for all of it and a register"
)]
pub fn between<V: Vector>(v: V, xs: &[f32], range: (f32, f32), to: &mut Vec<TokenData>) {
    let (lows, highs) = (v.splat(range.0), v.splat(range.1));
    for (i, group) in xs.chunks(BLOCK).enumerate() {
        if group.len() == BLOCK {
            let mut any = 0;
            for x in group.chunks_exact(V::LANES) {
                let x = v.load(x);
                any |= v.lt(x, highs) & v.ge(x, lows);
            }
            if any == 0 {
                continue;
            }
        }
        let mut id = (i * BLOCK) as u32;
        let spare = room(to);
        let mut kept = 0;
        let mut chunks = group.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = v.load(chunk);
            let lanes = v.lt(x, highs) & v.ge(x, lows);
            if lanes != 0 {
                kept += v.keep(x, lanes, id, &mut spare[kept..]);
            }
            id += V::LANES as u32;
        }
        let rest = chunks.remainder();
        for (i, chunk) in padded(rest).chunks_exact(V::LANES).enumerate() {
            let x = v.load(chunk);
            let inside = (((1u64 << rest.len()) - 1) >> (i * V::LANES)) as u32;
            let lanes = v.lt(x, highs) & v.ge(x, lows) & inside;
            kept += v.keep(x, lanes, id, &mut spare[kept..]);
            id += V::LANES as u32;
        }
        // SAFETY: `keep` has written as many elements at the beginning of the spare ones.
        unsafe { to.set_len(to.len() + kept) };
    }
}
