//! The passes of [`floats`](super::floats), written once for every instruction set.

use half::{bf16, f16};

use super::floats::{
    BLOCK, CHUNK, Columns, EXP, FAR, Logits, Number, ROOM, ROUND, SCALE, Sums, each, room,
};
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

/// What the first pass over a chunk tells.
struct Scanned {
    /// The largest.
    max: f32,
    /// Whether no number is masked, or infinite; with `TAME`, whether all are near enough to 0 for a term without a lower bound.
    tame: bool,
}

/// Numbers whose squares add up to less, 64 of them in a lane at most, are all nearer to 0 than 90, so that none is further below a maximum of 40 than [`LOWEST`].
const TAME_SQUARES: f32 = 8100.0;
/// The largest maximum with which that helps.
const TAME_MAX: f32 = 40.0;

/// The largest of a chunk, and of each of its blocks if `WANTED`. Instead of asking each number whether it is masked, it is multiplied by 0, or with `TAME` by itself, and
/// added up: one operation per register, and the sum tells.
#[inline(always)]
fn scan<V: Vector, T: Load, const TAME: bool, const WANTED: bool>(
    v: V,
    chunk: &[T],
    maxima: &mut [f32],
) -> Scanned {
    let lowest = v.splat(f32::NEG_INFINITY);
    let zero = v.splat(0.0);
    let (mut all, mut signs) = ([lowest; 2], [zero; 2]);
    let mut blocks = chunk.chunks_exact(BLOCK);
    let mut to = maxima.iter_mut();
    for block in &mut blocks {
        let mut lanes = if WANTED { [lowest; 2] } else { all };
        for pair in block.chunks_exact(2 * V::LANES) {
            for i in 0..2 {
                let x = T::load(v, &pair[i * V::LANES..]);
                lanes[i] = v.max(x, lanes[i]);
                signs[i] = v.fma(x, if TAME { x } else { zero }, signs[i]);
            }
        }
        if !WANTED {
            all = lanes;
            continue;
        }
        let lanes = v.max(lanes[0], lanes[1]);
        all[0] = v.max(lanes, all[0]);
        if let Some(to) = to.next() {
            *to = v.largest(lanes);
        }
    }
    let mut max = v.largest(v.max(all[0], all[1]));
    let limit = v.splat(TAME_SQUARES);
    let mut tame = v.lt(v.add(signs[0], signs[1]), limit) == u32::MAX >> (32 - V::LANES);
    let rest = blocks.remainder();
    if !rest.is_empty() {
        let mut of_rest = f32::NEG_INFINITY;
        for x in rest {
            let x = comparable(x.to_f32());
            of_rest = if x > of_rest { x } else { of_rest };
            tame &= x.abs() < if TAME { 90.0 } else { f32::INFINITY };
        }
        max = if of_rest > max { of_rest } else { max };
        if let Some(to) = to.next() {
            *to = of_rest;
        }
    }
    Scanned { max, tame }
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

/// Reads each number once.
#[inline(always)]
pub fn block_maxima<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> f32 {
    each!(xs, xs => maxima_of(v, xs, maxima))
}

#[inline(always)]
fn maxima_of<V: Vector, T: Load>(v: V, xs: &[T], maxima: &mut [f32]) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut all = lowest;
    let mut blocks = xs.chunks_exact(BLOCK);
    let mut to = maxima.iter_mut();
    for (block, to) in (&mut blocks).zip(&mut to) {
        let mut lanes = [lowest; 2];
        for pair in block.chunks_exact(2 * V::LANES) {
            lanes[0] = v.max(T::load(v, pair), lanes[0]);
            lanes[1] = v.max(T::load(v, &pair[V::LANES..]), lanes[1]);
        }
        let lanes = v.max(lanes[0], lanes[1]);
        *to = v.largest(lanes);
        all = v.max(lanes, all);
    }
    let mut max = v.largest(all);
    if let Some(to) = to.next() {
        let mut last = f32::NEG_INFINITY;
        for x in blocks.remainder() {
            last = last.max(comparable(x.to_f32()));
        }
        *to = last;
        max = max.max(last);
    }
    max
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
            unmasked += if scanned.tame { chunk.len() } else { count(v, chunk) };
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
    for chunk in xs.chunks(CHUNK) {
        let maxima = maxima.next().unwrap_or_default();
        let Scanned { max, tame } = match maxima {
            [] => scan::<V, T, true, false>(v, chunk, maxima),
            maxima => scan::<V, T, true, true>(v, chunk, maxima),
        };
        sums.unmasked += if tame { chunk.len() } else { count(v, chunk) };
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
            let copy = copied(v, chunk, &mut copy, &reference, rises);
            terms::<V, f32, true, SPREAD>(v, copy, &reference)
        } else if tame && reference.origin < TAME_MAX {
            terms::<V, T, false, SPREAD>(v, chunk, &reference)
        } else {
            terms::<V, T, true, SPREAD>(v, chunk, &reference)
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

/// The sums of e^d and, if `SPREAD`, -d e^d, in the unit of `reference`. `BOUND`: some numbers may be far below it, or undefined.
#[inline(always)]
fn terms<V: Vector, T: Load, const BOUND: bool, const SPREAD: bool>(
    v: V,
    xs: &[T],
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
                let x = T::load(v, &four[i * V::LANES..]);
                add_term::<V, BOUND, SPREAD>(v, x, reference, floats);
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
        add_term::<V, BOUND, SPREAD>(v, T::load(v, chunk), reference, &mut floats);
        add_widened::<V, SPREAD>(v, floats, &mut doubles);
    }
    if !rest.remainder().is_empty() {
        for chunk in padded(rest.remainder()).chunks_exact(V::LANES) {
            let mut floats = [v.splat(0.0); 2];
            add_term::<V, true, SPREAD>(v, v.load(chunk), reference, &mut floats);
            add_widened::<V, SPREAD>(v, floats, &mut doubles);
        }
    }
    let [mass, spread] = doubles;
    (
        v.total_d(v.add_d(mass[0], mass[1])),
        -v.total_d(v.add_d(spread[0], spread[1])),
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

/// Adds e^d in the unit of `reference`, and d e^d, of one register.
#[inline(always)]
fn add_term<V: Vector, const BOUND: bool, const SPREAD: bool>(
    v: V,
    x: V::F,
    reference: &Reference,
    sums: &mut [V::F; 2],
) {
    let (x, e) = term::<V, BOUND>(v, x, reference);
    sums[0] = v.add(sums[0], e);
    if SPREAD {
        let origin = v.splat(reference.origin);
        sums[1] = v.fma(v.sub(x, origin), e, sums[1]);
    }
}

/// One register, no number of it too low, and e^d of it.
#[inline(always)]
fn term<V: Vector, const BOUND: bool>(v: V, x: V::F, reference: &Reference) -> (V::F, V::F) {
    // NaN, too, becomes the lowest.
    let x = match BOUND {
        true => v.max(x, v.splat(reference.origin + LOWEST)),
        false => x,
    };
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
        let spare = room(to);
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

/// Reads the blocks that pass.
#[inline(always)]
pub fn collect_apart<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Columns,
) {
    each!(xs, xs => collect_apart_of(v, xs, maxima, first, threshold, to));
}

#[inline(always)]
fn collect_apart_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Columns,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let thresholds = v.splat(threshold);
    let starts = (first..).step_by(BLOCK);
    let step = v.splat(f32::from_bits(V::LANES as u32));
    for ((block, &max), start) in xs.chunks(BLOCK).zip(maxima).zip(starts) {
        if max < threshold {
            continue;
        }
        let (ids, logits) = to.room();
        let (mut kept, mut words) = (0, v.words_from(start));
        let mut chunks = block.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = T::load(v, chunk);
            let lanes = v.ge(x, thresholds);
            v.keep_pairs(x, words, lanes, &mut ids[kept..], &mut logits[kept..]);
            kept += lanes.count_ones() as usize;
            words = v.add_words(words, step);
        }
        if block.len() < BLOCK {
            for chunk in padded(chunks.remainder()).chunks_exact(V::LANES) {
                let x = v.load(chunk);
                let lanes = v.ge(x, thresholds);
                v.keep_pairs(x, words, lanes, &mut ids[kept..], &mut logits[kept..]);
                kept += lanes.count_ones() as usize;
                words = v.add_words(words, step);
            }
        }
        to.keep(kept);
    }
}

/// Reads each number once.
#[inline(always)]
pub fn masses_above<V: Vector>(v: V, xs: &[f32], max: f32, thresholds: &[f32; 4]) -> [f64; 5] {
    let reference = Reference::of(max);
    let mut masses = [[v.splat_d(0.0); 2]; 5];
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
    let mut totals = [0.0; 5];
    for (total, [a, b]) in totals.iter_mut().zip(masses) {
        *total = v.total_d(v.add_d(a, b)) * reference.unit;
    }
    totals
}

/// Adds the terms of at most [`ADDED`] registers to the sums of all, and of those at or above each threshold.
#[inline(always)]
fn add_above<V: Vector>(
    v: V,
    xs: &[f32],
    thresholds: &[f32; 4],
    reference: &Reference,
    masses: &mut [[V::D; 2]; 5],
) {
    let zero = v.splat(0.0);
    let mut floats = [zero; 5];
    for x in xs.chunks_exact(V::LANES) {
        let x = v.load(x);
        let from = match reference.far {
            true => v.sub(x, v.splat(reference.max)),
            false => x,
        };
        let (_, e) = term::<V, true>(v, from, reference);
        floats[0] = v.add(floats[0], e);
        for i in 0..4 {
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

/// Reads each number once, and writes what stays where it has been read.
#[inline(always)]
pub fn retain<V: Vector>(v: V, columns: &mut Columns, threshold: f32) {
    let thresholds = v.splat(threshold);
    let (ids, logits) = columns.with_room();
    let (mut from, mut kept) = (0, 0);
    let n = ids.len() - ROOM;
    while from < n {
        let x = v.load(&logits[from..]);
        let inside = u32::MAX >> (32 - V::LANES.min(n - from) as u32);
        let lanes = v.ge(x, thresholds) & inside;
        let id = v.load_bits(&ids[from..]);
        v.keep_pairs(x, id, lanes, &mut ids[kept..], &mut logits[kept..]);
        kept += lanes.count_ones() as usize;
        from += V::LANES;
    }
    columns.truncate(kept);
}

/// Reads each number once.
#[inline(always)]
pub fn between<V: Vector>(v: V, xs: &[f32], range: (f32, f32), to: &mut Vec<TokenData>) {
    let (lows, highs) = (v.splat(range.0), v.splat(range.1));
    for (i, group) in xs.chunks(BLOCK).enumerate() {
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
