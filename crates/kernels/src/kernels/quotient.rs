//! Divides in double precision, and rounds the quotients to floats.
//!
//! A product with the inverse gives a lower and an upper bound on a quotient. If both round to the
//! same float, so does the quotient. Only otherwise is the division carried out.

use super::registers::{AHEAD, prefetch_candidates};
use crate::simd::{Vector, dispatched};
use crate::token::{Token, TokenData};

dispatched! {
    /// Divides the probabilities by `by` in `double`. Reads and writes 12 bytes per candidate.
    pub fn divide_p_double(data: &mut [TokenData], by: f64) => divide_p_double_on;
    /// Writes the probabilities, each divided by `by` in `double`. Reads 4 bytes per candidate, and
    /// reads and writes its 12 bytes.
    pub fn set_quotients(data: &mut [TokenData], ps: &[f32], by: f64) => set_quotients_on;
    /// Writes whole candidates, with each of `ps` divided by `by` in `double`. Reads 12 bytes per
    /// candidate and writes 12.
    pub fn write_quotients(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f64)
        => write_quotients_on;
}

/// An upper bound on the relative difference between a product with the inverse of a divisor and
/// the quotient. Three roundings separate them.
const APART: f64 = 2.0 * f64::EPSILON;

/// A divisor, and both bounds on its inverse.
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

/// Returns the quotients, divided in `double` and rounded to floats.
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

/// Returns `p / by`, divided in `double` and rounded to a float.
#[inline(always)]
fn quotient(p: f32, by: f64) -> f32 {
    (f64::from(p) / by) as f32
}

/// Implements `set_quotients`, from the last candidates to the first.
#[inline(always)]
// In bounds: the lengths are equal: asserted; `at` is at most that.
fn set_quotients_on<V: Vector>(v: V, data: &mut [TokenData], ps: &[f32], by: f64) {
    assert_eq!(data.len(), ps.len());
    let divisor = divisor(v, by);
    let mut at = data.len() - data.len() % V::LANES;
    for (candidate, &p) in data[at..].iter_mut().zip(&ps[at..]) {
        candidate.p = quotient(p, by);
    }
    while at > 0 {
        at -= V::LANES;
        prefetch_candidates(v, data.as_ptr().wrapping_add(at).wrapping_sub(AHEAD));
        let p = quotients(v, v.load_widened(&ps[at..]), divisor);
        v.store_probabilities(&mut data[at..], p);
    }
}

/// Implements `divide_p_double`, from the first candidates on, which were written last.
#[inline(always)]
fn divide_p_double_on<V: Vector>(v: V, data: &mut [TokenData], by: f64) {
    let divisor = divisor(v, by);
    let mut chunks = data.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        prefetch_candidates(v, chunk.as_ptr().wrapping_add(AHEAD));
        let p = quotients(v, v.widen(v.load_probabilities(chunk)), divisor);
        v.store_probabilities(chunk, p);
    }
    for candidate in chunks.into_remainder() {
        candidate.p = quotient(candidate.p, by);
    }
}

#[inline(always)]
// In bounds: the lengths are equal: asserted; `whole` is at most that.
fn write_quotients_on<V: Vector>(
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
        prefetch_candidates(v, data.as_ptr().wrapping_add(at + AHEAD));
        let p = quotients(v, v.load_widened(&ps[at..]), divisor);
        v.store_candidates(&mut data[at..], &ids[at..], v.load(&logits[at..]), p);
    }
    for i in whole..n {
        data[i] = TokenData {
            id: ids[i] as Token,
            logit: logits[i],
            p: quotient(ps[i], by),
        };
    }
}
