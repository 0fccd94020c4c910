//! Top-n-sigma: masks every logit that is more than n standard deviations below the largest (Tang et al. 2024).
//!
//! Masked candidates get minus infinity and stay in the array. Mean and deviation leave out what is masked already; both are `float`
//! sums in array order, the squares formed in `double`. Three passes of 12 bytes per candidate.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::sampler::Sampler;
use crate::token::{TokenData, comparable};

/// Masks what lies far below the largest logit.
#[derive(Clone, Debug)]
pub struct TopNSigma {
    n: f32,
}

impl TopNSigma {
    /// `None` if `n` disables it: `n <= 0`.
    pub fn new(n: f32) -> Option<Self> {
        (n > 0.0).then_some(Self { n })
    }

    /// The logit below which candidates are masked.
    fn threshold(&self, data: &[TokenData]) -> f32 {
        let unmasked = || {
            let logits = data.iter().map(|c| comparable(c.logit));
            logits.filter(|&logit| logit != f32::NEG_INFINITY)
        };
        let mut max = f32::NEG_INFINITY;
        let mut sum = 0.0f32;
        let mut count = 0usize;
        for logit in unmasked() {
            if max < logit {
                max = logit;
            }
            sum += logit;
            count += 1;
        }
        if count == 0 {
            return max;
        }
        let mean = sum / count as f32;
        let mut squares = 0.0f32;
        for logit in unmasked() {
            let deviation = f64::from(logit - mean);
            squares = (f64::from(squares) + deviation * deviation) as f32;
        }
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
        let threshold = self.threshold(candidates.as_slice());
        for candidate in candidates.as_mut_slice() {
            if candidate.logit < threshold {
                candidate.logit = f32::NEG_INFINITY;
            }
        }
    }
}
