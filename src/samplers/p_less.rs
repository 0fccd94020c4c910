//! P-less sampling: keeps the candidates whose probability is at least the probability of drawing
//! the same token twice (Tan, Wu and Howard 2025). It has no numeric parameter.
//!
//! The threshold is the sum of the squares of the probabilities. The normalised threshold for v
//! candidates is `(v sum - 1) / (v - 1)`, which is lower and keeps more.

use std::ffi::CStr;

use super::threshold::{Distribution, Rule, Threshold};

/// The threshold of p-less sampling.
#[derive(Clone, Debug)]
pub struct Collision {
    normalised: bool,
}

/// Keeps the candidates that are at least as probable as drawing the same token twice.
pub type PLess = Threshold<Collision>;

impl PLess {
    /// Returns a sampler. If `normalised` is true, it uses the lower threshold.
    pub fn new(normalised: bool) -> Self {
        Self::of(Collision { normalised })
    }
}

impl Rule for Collision {
    const NAME: &'static CStr = c"p-less";
    const COLLISION: bool = true;

    fn parameter(&self) -> (&'static str, f64) {
        ("normalised", f64::from(u8::from(self.normalised)))
    }

    fn threshold(&self, of: &Distribution) -> f64 {
        if !self.normalised {
            return of.collision;
        }
        let n = of.n as f64;
        (n * of.collision - 1.0) / (n - 1.0)
    }
}
