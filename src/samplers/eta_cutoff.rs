//! Eta sampling: epsilon sampling with a lower threshold for flat distributions (Hewitt et al.
//! 2022).
//!
//! The threshold is `min(eta, sqrt(eta) exp(-H))`, where H is the entropy in nats.

use std::ffi::CStr;

use super::threshold::{Distribution, Rule, Threshold};

/// The threshold of eta sampling.
#[derive(Clone, Debug)]
pub struct Eta {
    eta: f32,
}

/// Keeps the candidates at or above a threshold that falls as the entropy rises.
pub type EtaCutoff = Threshold<Eta>;

impl EtaCutoff {
    /// Returns a sampler; `None` if `eta` disables it: `eta <= 0`.
    pub fn new(eta: f32) -> Option<Self> {
        (eta > 0.0).then(|| Self::of(Eta { eta }))
    }
}

impl Rule for Eta {
    const NAME: &'static CStr = c"eta-cutoff";
    const ENTROPY: bool = true;

    fn parameter(&self) -> (&'static str, f64) {
        ("eta", f64::from(self.eta))
    }

    fn threshold(&self, of: &Distribution) -> f64 {
        let eta = f64::from(self.eta);
        eta.min(eta.sqrt() * (-of.entropy).exp())
    }
}
