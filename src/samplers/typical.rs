//! Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy, until their probabilities exceed p
//! (Meister et al. 2022).
//!
//! Sorts all candidates by logit and again by distance from the entropy, in whose order they stay: the visible order is part of the
//! contract. Candidates at equal distance keep their descending order. The built-in leaves them as its unstable sort happens to; since
//! their probabilities differ, that also moves the rounding of the sum, and the cut can fall one candidate apart.
//!
//! A candidate of probability 0 (a masked one, say) makes the built-in's entropy NaN, since 0 * ln 0 is, and then no score is less
//! than another: what its sort leaves of that is reproduced exactly.
//!
//! Two sorts, one `exp` and one `ln` per candidate.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::Workspace;
use crate::kernels::math::ln;
use crate::kernels::order::{Order, Radix, ascending, order_of_equals};
use crate::sampler::Sampler;
use crate::token::TokenData;

/// Keeps the locally typical candidates, most typical first.
#[derive(Clone, Debug)]
pub struct Typical {
    p: f32,
    min_keep: usize,
    order: Order,
    work: Workspace,
    /// Keys by distance from the entropy.
    scores: Vec<u64>,
    radix: Radix,
    kept: Vec<TokenData>,
}

impl Typical {
    /// Keeps at least `min_keep` candidates. `None` if `p` disables it: `p >= 1`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p >= 1.0 {
            return None;
        }
        Some(Self {
            p,
            min_keep,
            order: Order::default(),
            work: Workspace::default(),
            scores: Vec::new(),
            radix: Radix::default(),
            kept: Vec::new(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// Leaves the indices of `data` in `scores`, most typical first.
    fn rank(&mut self, data: &[TokenData]) {
        let mut entropy = 0.0f32;
        for candidate in data {
            entropy += -candidate.p * ln(candidate.p);
        }
        let scores = data.iter().enumerate().map(|(i, candidate)| {
            let distance = (-ln(candidate.p) - entropy).abs();
            ascending(distance, i)
        });
        self.scores.clear();
        self.scores.extend(scores);
        if entropy.is_nan() {
            order_of_equals(&mut self.scores);
        } else {
            self.radix.sort(&mut self.scores);
        }
    }

    /// Collects candidates of `data` in the order of `scores` until their sum exceeds `p`.
    fn collect(&mut self, data: &[TokenData]) {
        self.kept.clear();
        let mut sum = 0.0f32;
        for &score in &self.scores {
            let candidate = data[score as u32 as usize];
            self.kept.push(candidate);
            sum += candidate.p;
            if sum > self.p && self.kept.len() >= self.min_keep {
                return;
            }
        }
    }
}

impl Sampler for Typical {
    fn name(&self) -> &'static CStr {
        c"typical"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        candidates.sort(&mut self.order);
        candidates.softmax(&mut self.work);
        self.rank(candidates.as_slice());
        self.collect(candidates.as_slice());
        candidates.replace(&self.kept);
        candidates.set_sorted(false);
    }
}
