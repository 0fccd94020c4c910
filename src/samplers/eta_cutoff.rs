//! Eta sampling: epsilon sampling whose threshold falls where the distribution is flat (Hewitt et
//! al. 2022).
//!
//! The threshold is `min(eta, sqrt(eta) exp(-H))`, H the entropy in nats.

use std::ffi::CStr;

use super::threshold::{Distribution, Rule, Threshold};

/// The threshold of eta sampling.
#[derive(Clone, Debug)]
pub struct Eta {
    eta: f32,
}

/// Keeps the candidates that are not improbable for a distribution of this entropy.
pub type EtaCutoff = Threshold<Eta>;

impl EtaCutoff {
    /// `None` if `eta` disables it: `eta <= 0`.
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
