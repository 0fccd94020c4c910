//! Sums in double precision, as if terms were added one by one in the order of the array.
//!
//! The method is that of [`sequential_sum`](super::sequential_sum), but here terms with 24
//! significant bits are often half-way between two `double`s, once they are 2^30 times smaller than
//! the sum.

use super::sequential_sum::block_sum_double;
use crate::simd::Vector;

/// Returns `sum` plus the terms, which are not negative, as if added one by one.
#[inline(always)]
pub fn add_in_order<V: Vector>(v: V, sum: f64, terms: &[f64]) -> f64 {
    let whole = terms.len() - terms.len() % V::LANES;
    let (at_once, rest) = terms.split_at(whole);
    let sum = match try_block(v, sum, at_once) {
        Some(sum) => sum,
        None => at_once.iter().fold(sum, |sum, t| sum + t),
    };
    rest.iter().fold(sum, |sum, t| sum + t)
}

/// The largest `double` below 1. [`ABOVE`] is the smallest one above 1.
const BELOW: f64 = f64::from_bits(0x3fef_ffff_ffff_ffff);

const ABOVE: f64 = 1.0 + f64::EPSILON;

/// Adds terms whose order does not matter: the sum stays in its binade [c, 2c), and no term is
/// half-way between two of that binade's numbers. `None` otherwise.
///
/// Sums that begin in the middle of that binade round each term to the binade's numbers, in every
/// lane. A half-way term is rounded down if it is first multiplied by a little less than 1, and up
/// if by a little more. For other terms that makes no difference, except that some are taken for
/// half-way ones.
#[inline(always)]
// In bounds: `i` is 0 or 1; a chunk has two registers.
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
    let largest = v.reduce_max_d(v.max_d(up[0], up[1]));
    // The differences are multiples of the binade's unit, so their sum is exact while it is less
    // than `binade`.
    let added = total_above(v, down, middle);
    let sum = sum + added;
    let decided =
        added == total_above(v, up, middle) && largest < 2.0 * binade && sum < 2.0 * binade;
    decided.then_some(sum)
}

/// The number of terms in a group, each of which has a bit in a word.
const TERMS: usize = 64;

/// The number of terms that are tried at once if a whole block cannot be added at once.
const PART: usize = TERMS;

/// Returns `sum` plus the terms, which are floats and not negative, as if added one by one in
/// `double`.
#[inline(always)]
pub fn add_floats_in_order<V: Vector>(v: V, sum: f64, terms: &[f32]) -> f64 {
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

/// Adds floats to a sum that stays in its binade; `None` if it does not.
///
/// Many terms are half-way here: half of those whose last bit is worth half a unit, a quarter of
/// those half as large, and so on. Every lane rounds them down, as in [`try_block`]. In sequential
/// order each is rounded to the even one of the two nearest numbers. So it is rounded up if the sum
/// plus the whole units of the term is odd, and the sum is even afterwards. The result depends only
/// on which terms are half-way and which add an odd number of units, so one bit each suffices.
#[inline(always)]
// In bounds: what remains is less than a group.
fn try_floats<V: Vector>(v: V, sum: f64, terms: &[f32]) -> Option<f64> {
    // In this range no float is too large or too small to be counted in units.
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
    let mut groups = terms.chunks_exact(TERMS);
    for group in &mut groups {
        let [halves, odds] = take_down(v, group, scale, below, &mut down);
        ups += rounded_up(halves, odds, &mut odd);
    }
    let rest = groups.remainder();
    if !rest.is_empty() {
        let mut padded = [0.0; TERMS];
        padded[..rest.len()].copy_from_slice(rest);
        let [halves, odds] = take_down(v, &padded, scale, below, &mut down);
        ups += rounded_up(halves, odds, &mut odd);
    }
    let largest = v.reduce_max_d(v.max_d(down[0], down[1]));
    let sum = sum + total_above(v, down, middle) + f64::from(ups) * unit;
    (largest < 2.0 * binade && sum < 2.0 * binade).then_some(sum)
}

/// Adds a group to the lanes. Returns a bit for each term that is half-way between two units, and a
/// bit for each that adds an odd number of units, or half a unit more. A term multiplied by `scale`
/// is half of its number of units.
#[inline(always)]
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
        let rest = v.fract(v.mul(v.load(chunk), scale));
        let half = v.eq(v.abs(v.sub(rest, middle)), quarter);
        let odd = v.lt(quarter, rest) & v.ge(three_quarters, rest);
        halves |= u64::from(half) << shift;
        odds |= u64::from(odd) << shift;
        let doubles = v.load_widened(chunk);
        for i in 0..2 {
            down[i] = v.fma_d(doubles[i], below, down[i]);
        }
    }
    [halves, odds]
}

/// Returns the number of half-way terms that round up. `odd` is true if the sum is odd, and is
/// updated.
#[inline(always)]
fn rounded_up(halves: u64, odds: u64, odd: &mut bool) -> u32 {
    // Each bit of `so_far` is set if the terms up to it add an odd number.
    let mut so_far = odds;
    for shift in [1, 2, 4, 8, 16, 32] {
        so_far ^= so_far << shift;
    }
    // For each term, that bit at the last half-way term before it. These are the carries of an
    // addition that generates a carry where such a bit is 1, absorbs it where it is 0, and passes
    // it on elsewhere.
    let set = so_far & halves;
    let (a, overflow) = (set | !halves).overflowing_add(set);
    let (added, overflow_too) = a.overflowing_add(u64::from(*odd));
    let before = added ^ (set | !halves) ^ set;
    *odd = (so_far >> 63 == 1) != (overflow || overflow_too);
    ((so_far ^ before) & halves).count_ones()
}

#[inline(always)]
fn total_above<V: Vector>(v: V, lanes: [V::D; 2], start: V::D) -> f64 {
    v.reduce_add_d(v.sub_d(lanes[0], start)) + v.reduce_add_d(v.sub_d(lanes[1], start))
}
