//! Computes exponentials of raw logits relative to the largest, in single precision, with a
//! relative error of at most 5e-7.
//!
//! e^x = 2^k e^r with k the integer nearest to x / ln 2 and |r| <= ln 2 / 2; e^r is a polynomial of
//! degree 5. The reduction applies to x itself, not to its difference from the largest logit, whose
//! rounding could change a term by 1e-6. Instead, the exponents are subtracted, which are integers,
//! and the remaining factor is applied once per sum, in `double`. Terms are computed 2^64 times as
//! large, so that those down to e^-131 are normal `float`s, and even a very peaked distribution
//! keeps its precision.

use crate::simd::Vector;
use crate::simd::exp::{POLYNOMIAL, ROUND_F32};
use crate::simd::libm::exp_f64;

/// The distance from 0 below which a reference counts as near.
pub const NEAR_REFERENCE: f32 = 40.0;

/// The exponent of the factor that keeps the digits of terms far below 1: they are computed 2^64
/// times as large.
const SCALE: i32 = 64;

/// The distance from 0 beyond which a maximum is first subtracted from its logits, since the
/// integers of the exponents must fit next to [`ROUND_F32`]. The subtraction is exact where it
/// affects the result.
const FAR: f32 = 65_536.0;

/// The largest logit, to which the terms are relative, with the factors for their sums.
pub struct Reference {
    /// The largest logit.
    pub max: f32,
    /// True if `max` is first subtracted from the logits.
    pub far: bool,
    /// The largest logit after this subtraction: `max` or 0.
    pub origin: f32,
    /// `ROUND_F32` minus the exponent of the terms' unit.
    round: f32,
    /// The factor that makes a computed sum relative to the largest logit.
    pub unit: f64,
    /// The factor that makes a sum of [`exp_approx`](Vector::exp_approx) relative to the largest
    /// logit.
    pub near_unit: f64,
}

/// The relative error of ln 2 as a `float`: [`exp_approx`](Vector::exp_approx) computes e^(x (1 -
/// this)). Since the sums are relative to the largest logit, nearly all of the error cancels.
const LN_2_ERROR: f64 = std::f32::consts::LN_2 as f64 / std::f64::consts::LN_2 - 1.0;

/// The distance below the largest logit at which a term, e^-130, counts as 0 everywhere.
const LOWEST: f32 = -130.0;

impl Reference {
    /// Returns the reference of terms that are to be relative to `max`.
    pub fn of(max: f32) -> Self {
        let far = max.abs() > FAR;
        let origin = if far { 0.0 } else { max };
        let k = (origin * std::f32::consts::LOG2_E).round() as i32;
        let exact = f64::from(k) * f64::from(std::f32::consts::LN_2) - f64::from(origin);
        Self {
            max,
            far,
            origin,
            round: ROUND_F32 - (k - SCALE) as f32,
            unit: exp_f64(exact) * f64::from(-SCALE).exp2(),
            near_unit: exp_f64(-f64::from(max) * (1.0 - LN_2_ERROR)),
        }
    }
}

/// Returns x, clamped from below to the lowest number that counts, and e^(x - origin) of the
/// clamped x in the unit of `reference`.
#[inline(always)]
// In bounds: `i` is below the number of coefficients.
pub fn term<V: Vector>(v: V, x: V::F, reference: &Reference) -> (V::F, V::F) {
    // NaN becomes the lowest number, too.
    let x = v.max(x, v.splat(reference.origin + LOWEST));
    let round = v.splat(reference.round);
    let shifted = v.fma(x, v.splat(std::f32::consts::LOG2_E), round);
    let k = v.sub(shifted, round);
    let r = v.fma(k, v.splat(-std::f32::consts::LN_2), x);
    let mut e = v.splat(POLYNOMIAL[5]);
    for i in (0..5).rev() {
        e = v.fma(e, r, v.splat(POLYNOMIAL[i]));
    }
    (x, v.ldexp(e, shifted))
}
