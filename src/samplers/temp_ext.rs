//! Dynamic temperature: divides the logits by a temperature between `t - delta` and `t + delta`,
//! which rises with the entropy (entropy-based "dynatemp" of KoboldCpp).
//!
//! The temperature is `min + (max - min) * (entropy / ln n)^exponent`, where `min` is `t - delta`,
//! but at least 0, and `max` is `t + delta`. If `delta` is at or below 0, it is plain temperature.
//! An array takes a sort of all candidates, and two `exp` and one `ln` per candidate.

use std::ffi::CStr;

use super::lists::Ps;
use super::temp::{scale, scale_whole};
use crate::algorithms::descending_sum::DescendingSum;
use crate::algorithms::host_order::{HostOrder, overflows};
use crate::algorithms::{Scratch, Workspace};
use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::host_profile::{Fused, fuses};
use crate::kernels;
use crate::pool::{InOrder, Whole, division_keeps_order};
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::{exp_f64, fma, ln, pow};
use crate::token::TokenData;

/// Divides the logits by a temperature that rises with the entropy.
#[derive(Clone, Debug)]
pub struct TempExt {
    t: f32,
    delta: f32,
    exponent: f32,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
    /// A buffer for the terms of the entropy, one per candidate.
    entropies: Scratch<Ps>,
    descending: Scratch<DescendingSum>,
}

impl TempExt {
    /// Returns a sampler; `None` if the parameters disable it: `t == 1` and `delta <= 0`.
    pub fn new(t: f32, delta: f32, exponent: f32) -> Option<Self> {
        if t == 1.0 && delta <= 0.0 {
            return None;
        }
        Some(Self {
            t,
            delta,
            exponent,
            order: Scratch::default(),
            work: Scratch::default(),
            entropies: Scratch::default(),
            descending: Scratch::default(),
        })
    }

    /// Changes the parameters, which must not disable the sampler, and keeps the buffers.
    pub(crate) fn set(&mut self, t: f32, delta: f32, exponent: f32) {
        self.t = t;
        self.delta = delta;
        self.exponent = exponent;
    }

    /// True if the temperature depends on the entropy. A `delta` of NaN means plain temperature.
    fn is_dynamic(&self) -> bool {
        self.delta > 0.0
    }

    /// Returns the temperature for `n` candidates with this entropy.
    fn temperature(&self, entropy: f32, n: usize) -> f32 {
        let max_entropy = -ln(1.0 / n as f32);
        let min = (self.t - self.delta).max(0.0);
        let max = self.t + self.delta;
        let share = pow(entropy / max_entropy, self.exponent);
        match fuses(Fused::Temperature) {
            true => fma(max - min, share, min),
            false => min + (max - min) * share,
        }
    }

    /// Ranks and scales the candidates in separate buffers, and writes each candidate once. Returns
    /// false, and writes nothing, if the candidates are already sorted or cannot be
    /// [ranked](HostOrder::rank_plain), or if the division could change their order or give an
    /// infinite logit.
    // In bounds: only arrays with candidates are ranked.
    fn apply_aside(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() || !self.order.rank_plain(candidates.as_slice()) {
            return false;
        }
        let entropy = self.work.entropy_of_sorted(self.order.ranking().sorted());
        let temperature = self.temperature(entropy, candidates.len());
        let (ids, logits) = self.order.ranking().parts_mut();
        if !division_keeps_order(logits[0], temperature) {
            return false;
        }
        let sum = self.work.divide_and_exponentiate(logits, temperature);
        let ps = self.work.values();
        kernels::write_quotients(candidates.as_mut_slice(), ids, logits, ps, sum);
        candidates.set_sorted(true);
        true
    }
}

/// The share of the probabilities that is summed without exact exponentials.
const BESIDE: f32 = 0.1;

impl Sampler for TempExt {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"temp-ext"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("t", f64::from(self.t));
            to("delta", f64::from(self.delta));
            to("exponent", f64::from(self.exponent));
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::TempExt {
            t: self.t,
            delta: self.delta,
            exponent: self.exponent,
        })
    }

    // In bounds: more than one candidate, as checked above.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if !self.is_dynamic() {
            return scale(candidates, self.t);
        }
        if candidates.len() <= 1 {
            return;
        }
        self.warm_up(candidates.len());
        if self.apply_aside(candidates) {
            return;
        }
        candidates.sort(&mut self.order);
        candidates.softmax(&mut self.work);
        let ps = self.work.values();
        let entropy = if fuses(Fused::Entropy) {
            kernels::fused_entropy(0.0, ps)
        } else {
            self.entropies.resize(ps.len(), 0.0);
            kernels::entropies(ps, &mut self.entropies);
            kernels::sum(0.0, &self.entropies)
        };
        let temperature = self.temperature(entropy, candidates.len());
        scale(candidates, temperature);
        let data = candidates.as_mut_slice();
        let max = data[0].logit;
        if !temperature.is_finite() || !max.is_finite() {
            return softmax_f64(data);
        }
        self.work.softmax_double(data);
    }

    /// Scales all tokens without sorting them. Returns false, and changes nothing, if that is not
    /// possible: for example, if a probability is 0, or if the host fuses the terms of the entropy.
    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        if !self.is_dynamic() {
            scale_whole(whole, self.t);
            return true;
        }
        if fuses(Fused::Entropy) {
            return false;
        }
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        let n = logits.len();
        if overflows(max) {
            return false;
        }
        let sum = self.descending.sum_of_logits(logits, max, BESIDE);
        let entropy = sum.and_then(|sum| self.descending.entropy(sum));
        let Some(entropy) = entropy else {
            return false;
        };
        let temperature = self.temperature(entropy, n);
        if !division_keeps_order(max, temperature) {
            return false;
        }
        whole.put_in_order(0, max).divide(temperature, true)
    }

    fn narrow_in_order(&mut self, tokens: InOrder<'_, '_>) -> bool {
        !self.is_dynamic() && tokens.divide(self.t, false)
    }

    scratch!(order, work, entropies, descending);
}

/// Computes the probabilities of sorted candidates in `double`, with exponentials stored as `float`
/// in between, if the temperature or the largest logit is not finite.
///
/// Unlike a NaN in the input, a NaN that arises in this function does not count as masked: an
/// infinite temperature turns minus infinity into NaN, and all probabilities become NaN, as in the
/// built-in.
// In bounds: the caller has more than one candidate.
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

#[cfg(test)]
mod tests;
