//! Epsilon sampling: keeps the candidates whose probability is at least epsilon (Hewitt et al.
//! 2022).

use std::ffi::CStr;

use super::threshold::{Distribution, Rule, Threshold};

/// The threshold of epsilon sampling.
#[derive(Clone, Debug)]
pub struct Epsilon {
    epsilon: f32,
}

/// Keeps the candidates whose probability is at least epsilon.
pub type EpsilonCutoff = Threshold<Epsilon>;

impl EpsilonCutoff {
    /// Returns a sampler; `None` if `epsilon` disables it: `epsilon <= 0`.
    pub fn new(epsilon: f32) -> Option<Self> {
        (epsilon > 0.0).then(|| Self::of(Epsilon { epsilon }))
    }
}

impl Rule for Epsilon {
    const NAME: &'static CStr = c"epsilon-cutoff";

    fn parameter(&self) -> (&'static str, f64) {
        ("epsilon", f64::from(self.epsilon))
    }

    fn threshold(&self, _of: &Distribution) -> f64 {
        f64::from(self.epsilon)
    }
}
