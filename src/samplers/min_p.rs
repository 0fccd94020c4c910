//! Min-p: keeps the candidates whose probability is at least p times that of the most probable one
//! (Nguyen et al. 2024).
//!
//! The decision is made on logits, `logit >= max + ln p`, so no probability is computed. An
//! unsorted array keeps its order, and takes one pass of 12 bytes per candidate. It is sorted and
//! cut only if too few candidates would be kept.

use std::ffi::CStr;

use super::lists::Kept;
use crate::algorithms::Scratch;
use crate::algorithms::host_order::HostOrder;
use crate::algorithms::scratch::Room;
use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::kernels;
use crate::pool::{InOrder, Part, Whole};
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::ln;
use crate::token::TokenData;

/// Keeps the candidates that are not much less probable than the most probable one.
#[derive(Clone, Debug)]
pub struct MinP {
    p: f32,
    min_keep: usize,
    order: Scratch<HostOrder>,
    /// A buffer for the candidates that may be kept.
    passing: Scratch<Kept>,
}

/// Returns the smallest logit that is kept if the largest is `max`.
#[inline]
pub(crate) fn least_kept(max: f32, p: f32) -> f32 {
    max + ln(p)
}

/// Returns the number of candidates of `data` that are kept: at least `min_keep`, and always the
/// first. The logits of `data` descend.
pub(crate) fn kept_of_sorted(data: &[TokenData], p: f32, min_keep: usize) -> usize {
    let least = least_kept(data.first().map_or(0.0, |c| c.logit), p);
    let mut others = data.iter().enumerate().skip(1);
    let cut = others.find(|&(i, c)| c.logit < least && i >= min_keep);
    cut.map_or(data.len(), |(i, _)| i)
}

impl MinP {
    /// Returns a sampler that keeps at least `min_keep` candidates. `None` if `p` disables it: `p
    /// <= 0`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p <= 0.0 {
            return None;
        }
        Some(Self {
            p,
            min_keep,
            order: Scratch::default(),
            passing: Scratch::default(),
        })
    }

    /// Keeps the candidates that pass, in their order. Returns false if too few do.
    ///
    /// One pass collects the candidates at or above the threshold of the largest logit so far.
    /// These are a superset of those that pass, since the threshold rises with the largest logit.
    fn retain_in_place(&mut self, candidates: &mut Candidates<'_>) -> bool {
        self.passing.clear();
        // If all logits are minus infinity, the maximum is the lowest finite value, so no candidate
        // passes. If p > 1, none passes either.
        let range = ln(self.p).min(0.0);
        let max = kernels::near_max(candidates.as_slice(), range, &mut self.passing);
        let threshold = least_kept(max, self.p);
        self.passing.retain(|c| c.logit >= threshold);
        if self.passing.is_empty() || self.passing.len() < self.min_keep {
            return false;
        }
        candidates.replace(&self.passing);
        true
    }
}

impl Sampler for MinP {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"min-p"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("p", f64::from(self.p));
            to("min_keep", self.min_keep as f64);
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::MinP {
            p: self.p,
            min_keep: self.min_keep,
        })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        if !candidates.is_sorted() {
            if self.retain_in_place(candidates) {
                return;
            }
            candidates.sort(&mut self.order);
        }
        let kept = kept_of_sorted(candidates.as_slice(), self.p, self.min_keep);
        candidates.truncate(kept);
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let max = whole.max();
        let threshold = least_kept(max, self.p);
        // If p > 1, or if the largest logit is not finite, the steps of the built-in decide.
        if !max.is_finite() || !threshold.is_finite() || threshold > max {
            return false;
        }
        self.passing.warm_up(whole.n_vocab());
        self.passing.extend_from_slice(whole.at_least(threshold));
        if self.passing.len() < self.min_keep {
            return false;
        }
        whole.keep(&self.passing, false);
        true
    }

    fn narrow_in_order(&mut self, mut tokens: InOrder<'_, '_>) -> bool {
        let order = tokens.order;
        let Part::First(first) = order.part else {
            return false;
        };
        let threshold = least_kept(order.first, self.p);
        if order.divisor != 1.0 || threshold.is_nan() || threshold > order.first {
            return false;
        }
        if threshold <= first.last {
            // All candidates pass.
            return true;
        }
        let passing = tokens.at_least(threshold);
        let last = passing
            .iter()
            .fold(order.first, |last, c| last.min(c.logit));
        let n = passing.len();
        if n < self.min_keep {
            return false;
        }
        tokens.keep_fewer(n, last);
        true
    }

    scratch!(order, passing);
}

#[cfg(test)]
mod tests;
