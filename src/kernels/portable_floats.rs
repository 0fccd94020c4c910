//! The passes of [`floats`](super::floats), written once for every instruction set.

use half::{bf16, f16};

use super::floats::{BLOCK, CHUNK, EXP, FAR, Logits, Number, ROUND, SCALE, Sums, each, room};
use super::math::exp_f64;
use super::vector::{MAX_LANES, Vector};
use crate::token::{TokenData, comparable};

/// A precision that an instruction set can load.
trait Load: Number {
    /// The first numbers of `from`, widened.
    fn load<V: Vector>(v: V, from: &[Self]) -> V::F;
}

impl Load for f32 {
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f32]) -> V::F {
        v.load(from)
    }
}

impl Load for f16 {
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f16]) -> V::F {
        v.load_f16(from)
    }
}

impl Load for bf16 {
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[bf16]) -> V::F {
        v.load_bf16(from)
    }
}

/// The last numbers, fewer than a register's, widened, and behind them minus infinity.
#[inline(always)]
fn padded<T: Load>(rest: &[T]) -> [f32; MAX_LANES] {
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    for (to, x) in padded.iter_mut().zip(rest) {
        *to = x.to_f32();
    }
    padded
}

/// Reads each number once.
#[inline(always)]
pub fn max<V: Vector>(v: V, xs: Logits<'_>) -> f32 {
    each!(xs, xs => max_of(v, xs))
}

#[inline(always)]
fn max_of<V: Vector, T: Load>(v: V, xs: &[T]) -> f32 {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 4];
    let mut groups = xs.chunks_exact(4 * V::LANES);
    for group in &mut groups {
        for (i, lanes) in lanes.iter_mut().enumerate() {
            *lanes = v.max(T::load(v, &group[i * V::LANES..]), *lanes);
        }
    }
    let lanes = v.max(v.max(lanes[0], lanes[1]), v.max(lanes[2], lanes[3]));
    let mut max = v.largest(lanes);
    for x in groups.remainder() {
        max = max.max(comparable(x.to_f32()));
    }
    max
}

/// The largest of a whole block, and if `COUNT` how many are above minus infinity.
#[inline(always)]
fn block_max<V: Vector, T: Load, const COUNT: bool>(v: V, block: &[T], count: &mut usize) -> f32 {
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut lanes = [lowest; 2];
    let mut masked = 0;
    for pair in block.chunks_exact(2 * V::LANES) {
        let x = [T::load(v, pair), T::load(v, &pair[V::LANES..])];
        lanes[0] = v.max(x[0], lanes[0]);
        lanes[1] = v.max(x[1], lanes[1]);
        if COUNT {
            masked += v.lt(lowest, x[0]).count_ones() + v.lt(lowest, x[1]).count_ones();
        }
    }
    *count += masked as usize;
    v.largest(v.max(lanes[0], lanes[1]))
}

#[inline(always)]
fn maxima_of<V: Vector, T: Load, const COUNT: bool>(
    v: V,
    xs: &[T],
    maxima: &mut [f32],
    count: &mut usize,
) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let mut max = f32::NEG_INFINITY;
    let mut blocks = xs.chunks_exact(BLOCK);
    let mut to = maxima.iter_mut();
    for (block, to) in (&mut blocks).zip(&mut to) {
        *to = block_max::<V, T, COUNT>(v, block, count);
        // A conditional, since `f32::max` is two more operations for NaN, of which there are none.
        max = if *to > max { *to } else { max };
    }
    if let Some(to) = to.next() {
        let mut last = [f32::NEG_INFINITY; BLOCK];
        for (to, x) in last.iter_mut().zip(blocks.remainder()) {
            *to = x.to_f32();
        }
        *to = block_max::<V, f32, COUNT>(v, &last, count);
        max = if *to > max { *to } else { max };
    }
    max
}

/// Reads each number once.
#[inline(always)]
pub fn block_maxima<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> f32 {
    each!(xs, xs => maxima_of::<V, _, false>(v, xs, maxima, &mut 0))
}

/// Reads each number once.
#[inline(always)]
pub fn block_maxima_and_count<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize) {
    let mut count = 0;
    let max = each!(xs, xs => maxima_of::<V, _, true>(v, xs, maxima, &mut count));
    (max, count)
}

/// Reads each number once from where it is, and again from the first-level cache.
#[inline(always)]
pub fn add<V: Vector>(v: V, sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    each!(xs, xs => add_all(v, sums, xs, maxima));
}

#[inline(always)]
fn add_all<V: Vector, T: Load>(v: V, sums: &mut Sums, xs: &[T], maxima: &mut [f32]) {
    let mut own = [0.0; CHUNK / BLOCK];
    let mut maxima = maxima.chunks_mut(CHUNK / BLOCK);
    let mut reference = Reference::of(sums.max);
    for chunk in xs.chunks(CHUNK) {
        let maxima = match maxima.next() {
            Some(maxima) => maxima,
            None => &mut own[..chunk.len().div_ceil(BLOCK)],
        };
        let max = maxima_of::<V, T, true>(v, chunk, maxima, &mut sums.unmasked);
        let rises = max > sums.max;
        if rises {
            sums.raise(max);
            reference = Reference::of(max);
        }
        if sums.max == f32::INFINITY || max == f32::NEG_INFINITY {
            continue;
        }
        let (mass, spread) = if rises || reference.far {
            let mut copy = [0.0; CHUNK];
            terms(
                v,
                copied(v, chunk, &mut copy, &reference, rises),
                &reference,
            )
        } else {
            terms(v, chunk, &reference)
        };
        sums.rest += mass * reference.unit;
        sums.spread += spread * reference.unit;
    }
}

/// What terms are relative to.
struct Reference {
    /// The largest logit.
    max: f32,
    /// It is subtracted from the logits first.
    far: bool,
    /// What the logits are compared with then: `max`, or 0.
    origin: f32,
    /// `ROUND` less the exponent of the terms' unit.
    round: f32,
    /// What a computed sum must be multiplied with to be relative to the largest logit.
    unit: f64,
}

/// Below the largest logit by this much a term is 0 in all that is computed: e^-130.
const LOWEST: f32 = -130.0;

impl Reference {
    fn of(max: f32) -> Self {
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
        }
    }
}

/// A copy of a chunk without its largest logit, if that is the reference, and with the others less the reference, if that is far. Few chunks need one.
#[inline(always)]
fn copied<'c, V: Vector, T: Load>(
    v: V,
    chunk: &[T],
    copy: &'c mut [f32; CHUNK],
    reference: &Reference,
    leave_out_max: bool,
) -> &'c [f32] {
    let copy = &mut copy[..chunk.len()];
    let mut from = chunk.chunks_exact(V::LANES);
    let mut to = copy.chunks_exact_mut(V::LANES);
    for (from, to) in (&mut from).zip(&mut to) {
        v.store(to, T::load(v, from));
    }
    for (x, to) in from.remainder().iter().zip(to.into_remainder()) {
        *to = x.to_f32();
    }
    if leave_out_max && let Some(max) = copy.iter_mut().find(|x| **x == reference.max) {
        *max = f32::NEG_INFINITY;
    }
    if reference.far {
        copy.iter_mut().for_each(|x| *x -= reference.max);
    }
    copy
}

/// How many terms are added as floats in one lane.
const ADDED: usize = 8;

/// The sums of e^d and -d e^d, in the unit of `reference`.
#[inline(always)]
fn terms<V: Vector, T: Load>(v: V, xs: &[T], reference: &Reference) -> (f64, f64) {
    let zero = v.splat_d(0.0);
    let (mut mass, mut spread) = ([zero; 2], [zero; 2]);
    let mut groups = xs.chunks_exact(2 * ADDED * V::LANES);
    for group in &mut groups {
        let zero = v.splat(0.0);
        let (mut e, mut weighted) = ([zero; 2], [zero; 2]);
        for pair in group.chunks_exact(2 * V::LANES) {
            for i in 0..2 {
                let x = T::load(v, &pair[i * V::LANES..]);
                let (term, d) = term(v, x, reference);
                e[i] = v.add(e[i], term);
                weighted[i] = v.fma(d, term, weighted[i]);
            }
        }
        let halves = v.widen(v.add(e[0], e[1]));
        mass = [v.add_d(mass[0], halves[0]), v.add_d(mass[1], halves[1])];
        let halves = v.widen(v.add(weighted[0], weighted[1]));
        spread = [v.add_d(spread[0], halves[0]), v.add_d(spread[1], halves[1])];
    }
    let mut rest = groups.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        let (term, d) = term(v, T::load(v, chunk), reference);
        let halves = v.widen(term);
        mass = [v.add_d(mass[0], halves[0]), v.add_d(mass[1], halves[1])];
        let halves = v.widen(v.fma(d, term, v.splat(0.0)));
        spread = [v.add_d(spread[0], halves[0]), v.add_d(spread[1], halves[1])];
    }
    for chunk in padded(rest.remainder()).chunks_exact(V::LANES) {
        let (term, d) = term(v, v.load(chunk), reference);
        let halves = v.widen(term);
        mass = [v.add_d(mass[0], halves[0]), v.add_d(mass[1], halves[1])];
        let halves = v.widen(v.fma(d, term, v.splat(0.0)));
        spread = [v.add_d(spread[0], halves[0]), v.add_d(spread[1], halves[1])];
    }
    (
        v.total_d(v.add_d(mass[0], mass[1])),
        -v.total_d(v.add_d(spread[0], spread[1])),
    )
}

/// e^d in the unit of `reference`, and d, of one register.
#[inline(always)]
fn term<V: Vector>(v: V, x: V::F, reference: &Reference) -> (V::F, V::F) {
    let origin = v.splat(reference.origin);
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
    (v.times_power(e, shifted), v.sub(x, origin))
}

/// Reads the blocks that pass.
#[inline(always)]
pub fn collect<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
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
    to: &mut Vec<TokenData>,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let thresholds = v.splat(threshold);
    let mut id = first;
    for (block, &max) in xs.chunks(BLOCK).zip(maxima) {
        let start = id;
        id += BLOCK as u32;
        if max < threshold {
            continue;
        }
        let spare = room(to, BLOCK + MAX_LANES);
        let mut kept = 0;
        let mut chunks = block.chunks_exact(V::LANES);
        let mut id = start;
        for chunk in &mut chunks {
            let x = T::load(v, chunk);
            let lanes = v.ge(x, thresholds);
            if lanes != 0 {
                kept += v.keep(x, lanes, id, &mut spare[kept..]);
            }
            id += V::LANES as u32;
        }
        for chunk in padded(chunks.remainder()).chunks_exact(V::LANES) {
            let x = v.load(chunk);
            let lanes = v.ge(x, thresholds);
            kept += v.keep(x, lanes, id, &mut spare[kept..]);
            id += V::LANES as u32;
        }
        // SAFETY: `keep` has written as many elements at the beginning of the spare ones.
        unsafe { to.set_len(to.len() + kept) };
    }
}
