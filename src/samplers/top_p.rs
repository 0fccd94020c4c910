//! Top-p, nucleus sampling: keeps the fewest most probable candidates whose probabilities reach p (Holtzman et al. 2019).
//!
//! The probabilities are `float`s normalised by a `float` sum in array order, and are added up again in descending order:
//! rounding decides where the cut falls, so the order of these additions is the built-in's. What is thrown away needs no order:
//! the largest 256 are ranked first, then 4096, then all. Two passes of 12 bytes per candidate with one `exp` each, and one pass per ranking.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::order::Order;
use crate::sampler::Sampler;
use crate::token::TokenData;

/// Keeps the nucleus, sorted, with probabilities.
#[derive(Clone, Debug)]
pub struct TopP {
    p: f32,
    min_keep: usize,
    order: Order,
}

/// How many are ranked before the next try; a peaked distribution ends in the first.
const RANKED_FIRST: usize = 256;
const RANKED_MORE: usize = 16;

impl TopP {
    /// Keeps at least `min_keep` candidates. `None` if `p` disables it: `p >= 1`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p >= 1.0 {
            return None;
        }
        Some(Self {
            p,
            min_keep,
            order: Order::default(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// How many of `ranked` belong to the nucleus, if their sum reaches `p`.
    fn cut(&self, ranked: &[TokenData]) -> Option<usize> {
        let mut sum = 0.0f32;
        for (i, candidate) in ranked.iter().enumerate() {
            sum += candidate.p;
            if sum >= self.p && i + 1 >= self.min_keep {
                return Some(i + 1);
            }
        }
        None
    }
}

impl Sampler for TopP {
    fn name(&self) -> &'static CStr {
        c"top-p"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        candidates.softmax();
        if candidates.is_sorted() {
            if let Some(kept) = self.cut(candidates.as_slice()) {
                candidates.truncate(kept);
            }
            return;
        }
        let all = candidates.len();
        let mut wanted = RANKED_FIRST;
        loop {
            self.order.top(candidates.as_slice(), wanted);
            let kept = self.cut(self.order.ranked());
            if kept.is_some() || wanted >= all {
                let kept = kept.unwrap_or(all);
                candidates.replace(&self.order.ranked()[..kept]);
                candidates.set_sorted(true);
                return;
            }
            wanted *= RANKED_MORE;
        }
    }
}
