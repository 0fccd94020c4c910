//! Top-k: keeps the k largest logits, in descending order (Fan et al. 2018).
//!
//! An unsorted array takes one pass of 12 bytes per candidate and a sort of k candidates. A sorted
//! array is only truncated.

use std::ffi::CStr;

use crate::algorithms::Scratch;
use crate::algorithms::host_order::{HostOrder, are_coarse};
use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::token::TokenData;

/// Keeps the `k` most probable candidates.
#[derive(Clone, Debug)]
pub struct TopK {
    k: usize,
    order: Scratch<HostOrder>,
    /// True if the last array had ties among the largest logits. It is a prediction for the next
    /// array, and affects only the speed. The first prediction is made from the precision of the
    /// logits.
    tied: Option<bool>,
}

impl TopK {
    /// Returns a sampler; `None` if `k` disables it: `k <= 0`.
    pub fn new(k: i32) -> Option<Self> {
        let k = usize::try_from(k).ok().filter(|&k| k > 0)?;
        Some(Self {
            k,
            order: Scratch::default(),
            tied: None,
        })
    }

    fn expect_ties(&mut self, data: &[TokenData]) {
        let tied = self.tied.unwrap_or_else(|| are_coarse(data));
        self.order.expect_ties(tied);
    }
}

impl Sampler for TopK {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"top-k"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("k", self.k as f64);
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        let k = i32::try_from(self.k).ok()?;
        Some(BuiltIn::TopK { k })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_sorted() {
            candidates.truncate(self.k);
            return;
        }
        if self.k >= candidates.len() {
            return candidates.sort(&mut self.order);
        }
        self.expect_ties(candidates.as_slice());
        self.order.sort_top(candidates.as_mut_slice(), self.k);
        candidates.truncate(self.k);
        candidates.set_sorted(true);
        self.tied = Some(self.order.found_ties());
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let Some(contenders) = whole.contenders(self.k) else {
            return false;
        };
        self.expect_ties(contenders);
        let top = self.order.top(contenders, self.k);
        whole.keep(top, true);
        self.tied = Some(self.order.found_ties());
        true
    }

    scratch!(order);
}
