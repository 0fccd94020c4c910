//! Top-n-sigma: masks every logit that is more than n standard deviations below the largest (Tang et al. 2024).
//!
//! Masked candidates get minus infinity and stay in the array. Mean and deviation leave out what is masked already; both are `float`
//! sums in array order, the squares formed in `double`; they are formed only where bounds for them leave a candidate open (see [`Deviation`]).
//!
//! Reads 12 bytes per candidate three times; if that leaves one open, writes 4 and reads them twice.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::deviation::Deviation;
use crate::kernels::fallbacks::Fallback;
use crate::kernels::{self, Workspace};
use crate::sampler::Sampler;
use crate::token::TokenData;

/// Masks what lies far below the largest logit.
#[derive(Clone, Debug)]
pub struct TopNSigma {
    n: f32,
    deviation: Deviation,
    work: Workspace,
}

impl TopNSigma {
    /// `None` if `n` disables it: `n <= 0`.
    pub fn new(n: f32) -> Option<Self> {
        (n > 0.0).then(|| Self {
            n,
            deviation: Deviation::default(),
            work: Workspace::default(),
        })
    }

    /// The logit below which candidates are masked, in the operations of the built-in.
    fn exact_threshold(&mut self, data: &[TokenData]) -> f32 {
        let max = self.work.take_logits(data);
        let (sum, count) = self.work.signed_sum();
        if count == 0 {
            return max;
        }
        let squares = self.work.squares(sum / count as f32);
        let deviation = (squares / count as f32).sqrt();
        max - self.n * deviation
    }
}

impl Sampler for TopNSigma {
    fn name(&self) -> &'static CStr {
        c"top-n-sigma"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() <= 1 {
            return;
        }
        let data = candidates.as_slice();
        let threshold = match self.deviation.threshold(data, self.n) {
            Some(threshold) => threshold,
            None => {
                Fallback::Sigma.note();
                self.exact_threshold(data)
            }
        };
        kernels::mask_below(candidates.as_mut_slice(), threshold);
    }
}
