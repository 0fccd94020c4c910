//! Min-p: keeps the candidates whose probability is at least p times that of the most probable one (Nguyen et al. 2024).
//!
//! Decided on logits, `logit >= max + ln p`, so no probability is computed. An array that is not sorted keeps its order and stays
//! unsorted: two passes of 12 bytes per candidate. Only if that keeps too few is it sorted and cut.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::math::ln;
use crate::kernels::order::Order;
use crate::sampler::Sampler;

/// Keeps the candidates that are not much less probable than the best.
#[derive(Clone, Debug)]
pub struct MinP {
    p: f32,
    min_keep: usize,
    order: Order,
}

impl MinP {
    /// Keeps at least `min_keep` candidates. `None` if `p` disables it: `p <= 0`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p <= 0.0 {
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

    /// Whether enough passed for the array to stay in its own order.
    fn retain_in_place(&self, candidates: &mut Candidates<'_>) -> bool {
        // An array of nothing but minus infinity has the lowest finite value as its maximum, so that nothing passes.
        let max = candidates.max_logit().max(f32::MIN);
        let threshold = max + ln(self.p);
        let passing = candidates.as_slice().iter();
        let passing = passing.filter(|c| c.logit >= threshold).count();
        if passing == 0 || passing < self.min_keep {
            return false;
        }
        candidates.retain(|c| c.logit >= threshold);
        true
    }

    /// Cuts the sorted array; the first candidate always stays.
    fn cut_sorted(&self, candidates: &mut Candidates<'_>) {
        let data = candidates.as_slice();
        let threshold = data[0].logit + ln(self.p);
        let kept = (1..data.len())
            .find(|&i| data[i].logit < threshold && i >= self.min_keep)
            .unwrap_or(data.len());
        candidates.truncate(kept);
    }
}

impl Sampler for MinP {
    fn name(&self) -> &'static CStr {
        c"min-p"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        if !candidates.is_sorted() && self.retain_in_place(candidates) {
            return;
        }
        candidates.sort(&mut self.order);
        self.cut_sorted(candidates);
    }
}
