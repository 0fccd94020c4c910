//! Samplers that are disabled by their parameters. Their names show that: "?top-k", for example, is
//! a top-k that keeps everything. A filter does nothing. A selector takes the largest logit, since
//! a host aborts if no candidate is selected.

use std::ffi::CStr;

use crate::built_in::InGraph;
use crate::candidates::Candidates;
use crate::pool::Pool;
use crate::sampler::{Kind, Sampler};

/// A filter that passes everything through.
#[derive(Clone, Debug)]
pub struct Disabled {
    name: &'static CStr,
}

impl Disabled {
    /// Returns a filter. `name` is the name of the built-in's disabled sampler, with its leading
    /// question mark.
    pub fn new(name: &'static CStr) -> Self {
        Self { name }
    }
}

impl Sampler for Disabled {
    const IN_GRAPH: InGraph = InGraph::PassedOver;

    fn name(&self) -> &'static CStr {
        self.name
    }

    fn apply(&mut self, _candidates: &mut Candidates<'_>) {}

    fn narrow(&mut self, _pool: &mut Pool<'_>) {}
}

/// A selector with disabling parameters, which takes the largest logit.
#[derive(Clone, Debug)]
pub struct DisabledSelector {
    name: &'static CStr,
}

impl DisabledSelector {
    /// Returns a selector. `name` is the name of the built-in, with a leading question mark.
    pub fn new(name: &'static CStr) -> Self {
        Self { name }
    }
}

impl Sampler for DisabledSelector {
    const KIND: Kind = Kind::Selector;

    fn name(&self) -> &'static CStr {
        self.name
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let best = candidates.argmax();
        candidates.select(best);
    }
}
