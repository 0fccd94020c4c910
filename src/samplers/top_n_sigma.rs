//! Top-n-sigma: masks every logit that is more than n standard deviations below the largest (Tang
//! et al. 2024).
//!
//! Masked candidates get minus infinity and stay in the array. Mean and deviation exclude
//! candidates that are already masked. Both are computed by `float` sums in array order, with
//! squares in `double`. Bounds on them often suffice (see [`SigmaBounds`]).

use std::ffi::CStr;

use crate::algorithms::Scratch;
use crate::algorithms::sigma_bounds::SigmaBounds;
use crate::candidates::Candidates;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};

/// Masks logits that are far below the largest.
#[derive(Clone, Debug)]
pub struct TopNSigma {
    n: f32,
    deviation: Scratch<SigmaBounds>,
}

impl TopNSigma {
    /// Returns a sampler; `None` if `n` disables it: `n <= 0`.
    pub fn new(n: f32) -> Option<Self> {
        (n > 0.0).then(|| Self {
            n,
            deviation: Scratch::default(),
        })
    }
}

impl Sampler for TopNSigma {
    fn name(&self) -> &'static CStr {
        c"top-n-sigma"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("n", f64::from(self.n));
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() <= 1 {
            return;
        }
        self.deviation.mask(candidates.as_mut_slice(), self.n);
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        if whole.n_vocab() <= 1 {
            return false;
        }
        let Some((column, maxima, max)) = whole.column_and_maxima() else {
            return false;
        };
        self.deviation.mask_logits(column, maxima, max, self.n);
        true
    }

    scratch!(deviation);
}

#[cfg(test)]
mod tests;
