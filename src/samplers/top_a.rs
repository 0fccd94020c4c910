//! Top-a: keeps the candidates whose probability is at least a times the square of the largest
//! (BlinkDL, RWKV-LM; KoboldCpp).

use std::ffi::CStr;

use super::threshold::{Distribution, Rule, Threshold};

/// The threshold of top-a.
#[derive(Clone, Debug)]
pub struct Square {
    a: f32,
}

/// Keeps the candidates whose probability is at least a times the square of the largest.
pub type TopA = Threshold<Square>;

impl TopA {
    /// Returns a sampler; `None` if `a` disables it: `a <= 0`.
    pub fn new(a: f32) -> Option<Self> {
        (a > 0.0).then(|| Self::of(Square { a }))
    }
}

impl Rule for Square {
    const NAME: &'static CStr = c"top-a";

    fn parameter(&self) -> (&'static str, f64) {
        ("a", f64::from(self.a))
    }

    fn threshold(&self, of: &Distribution) -> f64 {
        f64::from(self.a) * of.largest.powi(2)
    }
}
