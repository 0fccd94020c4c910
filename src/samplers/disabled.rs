//! What a constructor makes of parameters that disable its sampler: it does nothing, under the name that tells so
//! ("?top-k" for a top-k that keeps everything).

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::sampler::Sampler;

/// A sampler that passes everything through.
#[derive(Clone, Debug)]
pub struct Disabled {
    name: &'static CStr,
}

impl Disabled {
    /// `name` is the built-in's for the disabled sampler, with a leading question mark.
    pub fn new(name: &'static CStr) -> Self {
        Self { name }
    }
}

impl Sampler for Disabled {
    fn name(&self) -> &'static CStr {
        self.name
    }

    fn apply(&mut self, _candidates: &mut Candidates<'_>) {}
}
