//! Temperature: divides every logit by t. If t is at or below 0, the largest logit (the first one
//! if several are equal) stays, and all others become minus infinity.
//!
//! Takes one pass that reads and writes 12 bytes per candidate.

use std::ffi::CStr;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::kernels;
use crate::pool::{InOrder, Whole};
use crate::sampler::{About, Sampler, Tell};

/// Sharpens (`t < 1`) or flattens (`t > 1`) the distribution.
#[derive(Clone, Debug)]
pub struct Temp {
    t: f32,
}

impl Temp {
    /// Returns a sampler; `None` if `t` disables it: `t == 1`.
    pub fn new(t: f32) -> Option<Self> {
        (t != 1.0).then_some(Self { t })
    }
}

/// Divides every logit by `t`. If `t` is at or below 0, masks all but the largest.
pub(super) fn scale(candidates: &mut Candidates<'_>, t: f32) {
    if t <= 0.0 {
        return mask_all_but_largest(candidates);
    }
    kernels::divide_logits(candidates.as_mut_slice(), t);
}

/// Divides every logit of a vocabulary by `t`. If `t` is at or below 0, masks all but the largest.
pub(super) fn scale_whole(mut whole: Whole<'_, '_>, t: f32) {
    if t <= 0.0 {
        if whole.n_vocab() > 0 {
            let best = whole.argmax();
            whole.mask_all_but(best);
        }
        return;
    }
    whole.change_in_order(|logits| kernels::divide(logits, t));
}

fn mask_all_but_largest(candidates: &mut Candidates<'_>) {
    let Some(best) = candidates.argmax() else {
        return;
    };
    for (i, candidate) in candidates.as_mut_slice().iter_mut().enumerate() {
        if i != best {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

impl Sampler for Temp {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"temp"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("t", f64::from(self.t));
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::Temp { t: self.t })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        scale(candidates, self.t);
    }

    fn narrow_whole(&mut self, whole: Whole<'_, '_>) -> bool {
        scale_whole(whole, self.t);
        true
    }

    fn narrow_in_order(&mut self, tokens: InOrder<'_, '_>) -> bool {
        tokens.divide(self.t, false)
    }
}
