//! Dynamic temperature: between `t - delta` and `t + delta`, the higher the more evenly the probabilities are spread
//! (entropy-based "dynatemp" of KoboldCpp).
//!
//! The temperature is `min + (max - min) * (entropy / ln n)^exponent`. With `delta` at or below 0 it is plain temperature.
//! Sorts all candidates, then five passes of 12 bytes per candidate with two `exp` and one `ln` each.

use std::ffi::CStr;

use super::temp::scale;
use crate::candidates::Candidates;
use crate::kernels::Workspace;
use crate::kernels::math::{exp_f64, ln, pow};
use crate::kernels::order::Order;
use crate::sampler::Sampler;
use crate::token::TokenData;

/// Scales the logits by a temperature that follows the entropy.
#[derive(Clone, Debug)]
pub struct TempExt {
    t: f32,
    delta: f32,
    exponent: f32,
    order: Order,
    work: Workspace,
}

impl TempExt {
    /// `None` if the parameters disable it: `t == 1` and `delta <= 0`.
    pub fn new(t: f32, delta: f32, exponent: f32) -> Option<Self> {
        if t == 1.0 && delta <= 0.0 {
            return None;
        }
        Some(Self {
            t,
            delta,
            exponent,
            order: Order::default(),
            work: Workspace::default(),
        })
    }

    fn temperature(&self, data: &[TokenData]) -> f32 {
        let mut entropy = 0.0f32;
        for candidate in data {
            if candidate.p > 0.0 {
                entropy -= candidate.p * ln(candidate.p);
            }
        }
        let max_entropy = -ln(1.0 / data.len() as f32);
        let min = (self.t - self.delta).max(0.0);
        let max = self.t + self.delta;
        min + (max - min) * pow(entropy / max_entropy, self.exponent)
    }
}

impl Sampler for TempExt {
    fn name(&self) -> &'static CStr {
        c"temp-ext"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        // Written so that a NaN, too, is plain temperature, as a comparison with NaN fails.
        let dynamic = self.delta > 0.0;
        if !dynamic {
            return scale(candidates, self.t);
        }
        if candidates.len() <= 1 {
            return;
        }
        candidates.sort(&mut self.order);
        candidates.softmax(&mut self.work);
        let temperature = self.temperature(candidates.as_slice());
        scale(candidates, temperature);
        let data = candidates.as_mut_slice();
        let max = data[0].logit;
        if !temperature.is_finite() || !max.is_finite() {
            return softmax_f64(data);
        }
        let sum = self.work.exponentiate_wide(data, max);
        self.work.write_p_scaled(data, 1.0 / sum);
    }
}

/// Probabilities of sorted candidates, computed in `double` and stored as `float` in between, where infinities are about.
///
/// A NaN here is not masked like a NaN that came in: an infinite temperature makes it of minus infinity, and with it, as in the built-in, all
/// probabilities are NaN.
fn softmax_f64(data: &mut [TokenData]) {
    let max = f64::from(data[0].logit);
    let mut sum = 0.0f64;
    for candidate in data.iter_mut() {
        let p = exp_f64(f64::from(candidate.logit) - max);
        candidate.p = p as f32;
        sum += p;
    }
    for candidate in data {
        candidate.p = (f64::from(candidate.p) / sum) as f32;
    }
}
