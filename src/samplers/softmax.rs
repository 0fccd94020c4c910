//! Softmax: sorts the candidates and writes their probabilities. llama.cpp had it in the past, and
//! older guides use it.
//!
//! A probability is `exp(logit - max) / sum`. The sampler takes a sort of all candidates, and one
//! `exp` per candidate.

use std::ffi::CStr;

use crate::algorithms::host_order::HostOrder;
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::sampler::{Sampler, scratch};

/// Sorts the candidates and writes their probabilities.
#[derive(Clone, Debug, Default)]
pub struct Softmax {
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
}

impl Sampler for Softmax {
    fn name(&self) -> &'static CStr {
        c"softmax"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        candidates.sort_with_softmax(&mut self.order, &mut self.work);
    }

    scratch!(order, work);
}
