//! Exponentials in double precision, and their sum in order; quotients that are rounded to floats.

use super::exp::ROUND;
use super::exp_double::{C, SCALE, STEP, TABLE};
use super::portable::{AHEAD, ask_for, block_sum_double};
use super::vector::{MAX_LANES, Vector};
use super::{BLOCK, scalar};
use crate::token::TokenData;

/// Half as many doubles as there are floats.
const MAX_DOUBLES: usize = MAX_LANES / 2;

/// Far enough below for the float to be 0, and for the double not to change a sum of 1 or more.
const LOWEST: f64 = -120.0;

/// Reads and writes 4 bytes per element.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has at most `BLOCK` elements, and a remainder less than a register's"
)]
pub fn exp_double<V: Vector>(v: V, start: f64, xs: &mut [f32], max: f32) -> f64 {
    let mut terms = [0.0; BLOCK];
    let mut sum = start;
    for block in xs.chunks_mut(BLOCK) {
        let terms = &mut terms[..block.len()];
        let mut chunks = block.chunks_exact_mut(V::LANES);
        let mut to = terms.chunks_exact_mut(V::LANES);
        for (chunk, to) in (&mut chunks).zip(&mut to) {
            exponentiate(v, chunk, to, max);
        }
        let (rest, to) = (chunks.into_remainder(), to.into_remainder());
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        let mut doubles = [0.0; MAX_LANES];
        padded[..rest.len()].copy_from_slice(rest);
        exponentiate(v, &mut padded[..V::LANES], &mut doubles[..V::LANES], max);
        rest.copy_from_slice(&padded[..rest.len()]);
        to.copy_from_slice(&doubles[..rest.len()]);
        sum = add_in_order(v, sum, terms);
    }
    sum
}

/// Replaces a register of x by e^(x - max); `to` takes them before they are rounded.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "the caller passes whole registers")]
fn exponentiate<V: Vector>(v: V, chunk: &mut [f32], to: &mut [f64], max: f32) {
    let max = v.splat_d(f64::from(max));
    let lowest = v.splat_d(LOWEST);
    let [low, high] = v.load_wide(chunk);
    let low = exp(v, v.max_d(v.sub_d(low, max), lowest));
    let high = exp(v, v.max_d(v.sub_d(high, max), lowest));
    v.store_d(to, low);
    v.store_d(&mut to[V::LANES / 2..], high);
    v.store_narrow(chunk, [low, high]);
}

#[inline(always)]
fn exp<V: Vector>(v: V, x: V::D) -> V::D {
    let round = v.splat_d(ROUND);
    let shifted = v.fma_d(x, v.splat_d(SCALE), round);
    let k = v.sub_d(shifted, round);
    let r = v.fma_d(k, v.splat_d(STEP[0]), x);
    let r = v.fma_d(k, v.splat_d(STEP[1]), r);
    let [left_out, scale] = powers(v, shifted);
    let r2 = v.mul_d(r, r);
    let low = v.fma_d(v.splat_d(C[1]), r, v.splat_d(C[0]));
    let high = v.fma_d(v.splat_d(C[3]), r, v.splat_d(C[2]));
    let e = v.fma_d(r2, low, v.add_d(left_out, r));
    let e = v.fma_d(v.mul_d(r2, r2), high, e);
    v.fma_d(scale, e, scale)
}

/// What the table says of the k in the low bits of each double.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "modulo the length of the table; a register has at most `MAX_DOUBLES`"
)]
fn powers<V: Vector>(v: V, shifted: V::D) -> [V::D; 2] {
    let mut ks = [0.0; MAX_DOUBLES];
    v.store_d(&mut ks, shifted);
    let ks = &ks[..V::LANES / 2];
    let entry = |k: f64| TABLE[k.to_bits() as usize % TABLE.len()];
    let (first, last) = (v.splat_d(ks[0]), v.splat_d(ks[V::LANES / 2 - 1]));
    // In the order of the logits, mostly two neighbours or the same.
    let every = u32::MAX >> (32 - V::LANES / 2);
    if v.eq_d(shifted, first) | v.eq_d(shifted, last) == every {
        let (of_first, of_last) = (entry(ks[0]), entry(ks[V::LANES / 2 - 1]));
        let left_out = (v.splat_d(of_first[0]), v.splat_d(of_last[0]));
        let power = (v.splat_d(of_first[1]), v.splat_d(of_last[1]));
        let power = v.if_eq_d(shifted, first, power.0, power.1);
        return [
            v.if_eq_d(shifted, first, left_out.0, left_out.1),
            v.add_shifted_bits(power, shifted),
        ];
    }
    let (mut left_out, mut powers) = ([0.0; MAX_DOUBLES], [0.0; MAX_DOUBLES]);
    for ((k, left_out), power) in ks.iter().zip(&mut left_out).zip(&mut powers) {
        [*left_out, *power] = entry(*k);
    }
    let power = v.add_shifted_bits(v.load_d(&powers), shifted);
    [v.load_d(&left_out), power]
}

/// `sum` and the terms, which are not negative, as if added one by one.
#[inline(always)]
fn add_in_order<V: Vector>(v: V, sum: f64, terms: &[f64]) -> f64 {
    let whole = terms.len() - terms.len() % V::LANES;
    let (at_once, rest) = terms.split_at(whole);
    let sum = match try_block(v, sum, at_once) {
        Some(sum) => sum,
        None => at_once.iter().fold(sum, |sum, t| sum + t),
    };
    rest.iter().fold(sum, |sum, t| sum + t)
}

/// A little less than 1, and a little more.
const BELOW: f64 = f64::from_bits(0x3fef_ffff_ffff_ffff);
const ABOVE: f64 = 1.0 + f64::EPSILON;

/// The same where the order of the terms does not matter: the sum stays in its binade [c, 2c), and
/// no term is half-way between two of that binade's numbers.
///
/// Sums that begin in the middle of that binade round each term to its numbers, in every lane. A
/// term that is half-way goes down where it is made a little less, and up where it is made a little
/// more; for all others that makes no difference, or only the one of calling them half-way.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is 0 or 1; a chunk has two registers"
)]
fn try_block<V: Vector>(v: V, sum: f64, terms: &[f64]) -> Option<f64> {
    if !(1.0..1e300).contains(&sum) {
        return None;
    }
    let binade = f64::from_bits(sum.to_bits() & 0x7ff0_0000_0000_0000);
    let middle = v.splat_d(1.5 * binade);
    let (below, above) = (v.splat_d(BELOW), v.splat_d(ABOVE));
    let (mut down, mut up) = ([middle; 2], [middle; 2]);
    for chunk in terms.chunks_exact(V::LANES) {
        for i in 0..2 {
            let t = v.load_d(&chunk[i * V::LANES / 2..]);
            down[i] = v.fma_d(t, below, down[i]);
            up[i] = v.fma_d(t, above, up[i]);
        }
    }
    let largest = v.largest_d(v.max_d(up[0], up[1]));
    // Numbers of the binade, or of a lower one: their sum is exact while it is less than the
    // binade.
    let added = total_above(v, down, middle);
    let sum = sum + added;
    let decided =
        added == total_above(v, up, middle) && largest < 2.0 * binade && sum < 2.0 * binade;
    decided.then_some(sum)
}

/// How many terms have a bit each.
const GROUP: usize = 64;

/// What is tried at once where a whole block does not go.
const PART: usize = GROUP;

/// `sum` and the terms, floats that are not negative, as if added one by one in `double`.
#[inline(always)]
pub(super) fn add_floats_in_order<V: Vector>(v: V, sum: f64, terms: &[f32]) -> f64 {
    if sum.is_nan() {
        return sum;
    }
    if sum == 0.0 && block_sum_double(v, terms) == 0.0 {
        return sum;
    }
    if let Some(sum) = try_floats(v, sum, terms) {
        return sum;
    }
    let mut sum = sum;
    for part in terms.chunks(PART) {
        sum = match try_floats(v, sum, part) {
            Some(sum) => sum,
            None => part.iter().fold(sum, |sum, &t| sum + f64::from(t)),
        };
    }
    sum
}

/// The same where the sum stays in its binade.
///
/// Many terms are half-way here: half of those half as large as the smallest that adds without
/// rounding, a quarter of the next smaller ones, and so on. Every lane takes them down, as in
/// [`try_block`]. In order each goes to the even one of both neighbours, so that it goes up if the
/// sum and what the term has below half of a unit are odd together; after it the sum is even. So
/// all that counts is which terms are half-way and which add an odd number of units: a bit each.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "what remains is less than a group")]
fn try_floats<V: Vector>(v: V, sum: f64, terms: &[f32]) -> Option<f64> {
    // Then no float is too large or small to be counted in units.
    if !(1e-15..1e15).contains(&sum) {
        return None;
    }
    let binade = f64::from_bits(sum.to_bits() & 0x7ff0_0000_0000_0000);
    let unit = binade * f64::EPSILON;
    let (middle, below) = (v.splat_d(1.5 * binade), v.splat_d(BELOW));
    let mut down = [middle; 2];
    let mut odd = sum.to_bits() & 1 == 1;
    let mut ups = 0;
    let scale = v.splat((0.5 / unit) as f32);
    let mut groups = terms.chunks_exact(GROUP);
    for group in &mut groups {
        let [halves, odds] = take_down(v, group, scale, below, &mut down);
        ups += rounded_up(halves, odds, &mut odd);
    }
    let rest = groups.remainder();
    if !rest.is_empty() {
        let mut padded = [0.0; GROUP];
        padded[..rest.len()].copy_from_slice(rest);
        let [halves, odds] = take_down(v, &padded, scale, below, &mut down);
        ups += rounded_up(halves, odds, &mut odd);
    }
    let largest = v.largest_d(v.max_d(down[0], down[1]));
    let sum = sum + total_above(v, down, middle) + f64::from(ups) * unit;
    (largest < 2.0 * binade && sum < 2.0 * binade).then_some(sum)
}

/// Adds a group to the lanes. Gives which terms are half-way between two units, and which add an
/// odd number of these, or half a unit more. `scale` gives half of their number.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "`i` is 0 or 1")]
fn take_down<V: Vector>(
    v: V,
    group: &[f32],
    scale: V::F,
    below: V::D,
    down: &mut [V::D; 2],
) -> [u64; 2] {
    let (quarter, middle) = (v.splat(0.25), v.splat(0.5));
    let three_quarters = v.splat(0.75);
    let (mut halves, mut odds) = (0, 0);
    for (chunk, shift) in group.chunks_exact(V::LANES).zip((0..).step_by(V::LANES)) {
        let rest = v.fraction(v.mul(v.load(chunk), scale));
        let half = v.eq(v.abs(v.sub(rest, middle)), quarter);
        let odd = v.lt(quarter, rest) & v.ge(three_quarters, rest);
        halves |= u64::from(half) << shift;
        odds |= u64::from(odd) << shift;
        let doubles = v.load_wide(chunk);
        for i in 0..2 {
            down[i] = v.fma_d(doubles[i], below, down[i]);
        }
    }
    [halves, odds]
}

/// How many of the terms that are half-way go up. `odd`: whether the sum was odd, or will be.
#[inline(always)]
fn rounded_up(halves: u64, odds: u64, odd: &mut bool) -> u32 {
    // Each bit of `so_far`: whether the terms up to there add an odd number.
    let mut so_far = odds;
    for shift in [1, 2, 4, 8, 16, 32] {
        so_far ^= so_far << shift;
    }
    // What that bit was at the last term before that was half-way: the carries of a sum that makes
    // one where such a bit is 1, ends it where it is 0, and carries on elsewhere.
    let set = so_far & halves;
    let (a, overflow) = (set | !halves).overflowing_add(set);
    let (added, overflow_too) = a.overflowing_add(u64::from(*odd));
    let before = added ^ (set | !halves) ^ set;
    *odd = (so_far >> 63 == 1) != (overflow || overflow_too);
    ((so_far ^ before) & halves).count_ones()
}

#[inline(always)]
fn total_above<V: Vector>(v: V, lanes: [V::D; 2], start: V::D) -> f64 {
    v.total_d(v.sub_d(lanes[0], start)) + v.total_d(v.sub_d(lanes[1], start))
}

/// By so much a product with the inverse of a divisor differs from the quotient at most, as a
/// share, with room to spare: three roundings.
const APART: f64 = 2.0 * f64::EPSILON;

/// A divisor, and both ends of what its inverse can be.
#[derive(Clone, Copy)]
struct Divisor<D> {
    by: D,
    less: D,
    more: D,
}

#[inline(always)]
fn divisor<V: Vector>(v: V, by: f64) -> Divisor<V::D> {
    let inverse = 1.0 / by;
    Divisor {
        by: v.splat_d(by),
        less: v.splat_d(inverse * (1.0 - APART)),
        more: v.splat_d(inverse * (1.0 + APART)),
    }
}

/// The quotients, divided in `double` and rounded to floats.
///
/// Where both ends of what a quotient can be round to the same float, so does the quotient.
#[inline(always)]
fn quotients<V: Vector>(v: V, [low, high]: [V::D; 2], by: Divisor<V::D>) -> V::F {
    let every = u32::MAX >> (32 - V::LANES);
    let less = v.narrow([v.mul_d(low, by.less), v.mul_d(high, by.less)]);
    let more = v.narrow([v.mul_d(low, by.more), v.mul_d(high, by.more)]);
    if v.eq(less, more) == every {
        return less;
    }
    v.narrow([v.div_d(low, by.by), v.div_d(high, by.by)])
}

/// Reads 4 bytes per candidate, and reads and writes its 12, the last ones first.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the lengths are equal: asserted; `at` is at most that"
)]
pub fn set_quotients<V: Vector>(v: V, data: &mut [TokenData], ps: &[f32], by: f64) {
    assert_eq!(data.len(), ps.len());
    let divisor = divisor(v, by);
    let mut at = data.len() - data.len() % V::LANES;
    scalar::set_quotients(&mut data[at..], &ps[at..], by);
    while at > 0 {
        at -= V::LANES;
        ask_for(v, data.as_ptr().wrapping_add(at).wrapping_sub(AHEAD));
        let p = quotients(v, v.load_wide(&ps[at..]), divisor);
        v.set_p(&mut data[at..], p);
    }
}

/// Reads and writes 12 bytes per candidate, the first ones first: they were written last.
#[inline(always)]
pub fn divide_p_double<V: Vector>(v: V, data: &mut [TokenData], by: f64) {
    let divisor = divisor(v, by);
    let mut chunks = data.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        ask_for(v, chunk.as_ptr().wrapping_add(AHEAD));
        let p = quotients(v, v.widen(v.probabilities(chunk)), divisor);
        v.set_p(chunk, p);
    }
    scalar::divide_p_double(chunks.into_remainder(), by);
}

/// Reads 12 bytes per candidate and writes 12.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the lengths are equal: asserted; `whole` is at most that"
)]
pub fn write_quotients<V: Vector>(
    v: V,
    data: &mut [TokenData],
    ids: &[u32],
    logits: &[f32],
    ps: &[f32],
    by: f64,
) {
    let n = data.len();
    assert!(n == ids.len() && n == logits.len() && n == ps.len());
    let divisor = divisor(v, by);
    let whole = n - n % V::LANES;
    for at in (0..whole).step_by(V::LANES) {
        ask_for(v, data.as_ptr().wrapping_add(at + AHEAD));
        let p = quotients(v, v.load_wide(&ps[at..]), divisor);
        v.set_all(&mut data[at..], &ids[at..], v.load(&logits[at..]), p);
    }
    let (ids, logits, ps) = (&ids[whole..], &logits[whole..], &ps[whole..]);
    scalar::write_quotients(&mut data[whole..], ids, logits, ps, by);
}
