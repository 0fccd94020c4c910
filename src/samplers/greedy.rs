//! Greedy: selects the largest logit, the first one if several are equal. Takes one pass of 12
//! bytes per candidate.

use std::ffi::CStr;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::pool::Whole;
use crate::sampler::{Kind, Sampler};

/// Selects the candidate with the largest logit.
#[derive(Clone, Debug, Default)]
pub struct Greedy;

impl Sampler for Greedy {
    const KIND: Kind = Kind::Selector;
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"greedy"
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::Greedy)
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        // The built-in also selects index 0 for an empty array.
        let best = candidates.argmax().unwrap_or(0);
        candidates.select(Some(best));
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let best = whole.argmax();
        whole.select(best);
        true
    }
}
