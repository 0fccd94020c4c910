//! Top-p, nucleus sampling: keeps the fewest most probable candidates whose probabilities reach p (Holtzman et al. 2019).
//!
//! The probabilities are `float`s normalised by a `float` sum in array order, and are added up again in descending order:
//! rounding decides where the cut falls, so the order of these additions is the built-in's. What is thrown away needs no order: a sample gives a
//! threshold that little more than the nucleus reaches, and only that is ranked; if it proves too little, everything is.
//!
//! Reads 12 bytes per candidate, one `exp` each, writes 4 and reads them twice, and sorts a little more than the nucleus.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::descending::Sample;
use crate::kernels::fallbacks::Fallback;
use crate::kernels::order::Order;
use crate::kernels::{self, Workspace};
use crate::sampler::Sampler;
use crate::token::TokenData;

/// Keeps the nucleus, sorted, with probabilities.
#[derive(Clone, Debug)]
pub struct TopP {
    p: f32,
    min_keep: usize,
    order: Order,
    work: Workspace,
    sample: Sample,
    indices: Vec<u32>,
    ps: Vec<f32>,
    kept: Vec<TokenData>,
}

/// How many probabilities are added before the sum is looked at.
const SUMMED_AT_ONCE: usize = 512;

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
            work: Workspace::default(),
            sample: Sample::default(),
            indices: Vec::new(),
            ps: Vec::new(),
            kept: Vec::new(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// How many of `ps`, which descend, belong to the nucleus, if their sum reaches `p`.
    fn cut(&self, ps: &[f32]) -> Option<usize> {
        let mut sum = 0.0f32;
        let mut start = 0;
        for block in ps.chunks(SUMMED_AT_ONCE) {
            let end = start + block.len();
            let after = kernels::sum(sum, block);
            // Nowhere in the block can the nucleus end: its sum stays below, or too few are kept.
            if after < self.p || end < self.min_keep {
                sum = after;
                start = end;
                continue;
            }
            for (i, p) in block.iter().enumerate() {
                sum += p;
                if sum >= self.p && start + i + 1 >= self.min_keep {
                    return Some(start + i + 1);
                }
            }
            start = end;
        }
        None
    }

    /// Replaces the candidates by the nucleus among those at or above `threshold`, if it is there.
    fn keep_nucleus(&mut self, candidates: &mut Candidates<'_>, sum: f32, threshold: f32) -> bool {
        let data = candidates.as_slice();
        let values = self.work.values();
        if threshold == f32::NEG_INFINITY {
            self.order.rank_these(data, 0..data.len() as u32);
        } else {
            self.indices.clear();
            kernels::values_at_least(values, threshold, &mut self.indices);
            self.order.rank_these(data, self.indices.iter().copied());
        }
        let ranked = self.order.ranked_indices();
        self.ps.clear();
        self.ps.extend(ranked.map(|i| values[i]));
        kernels::divide(&mut self.ps, sum);
        let all = self.ps.len() == data.len();
        let Some(kept) = self.cut(&self.ps).or(all.then_some(data.len())) else {
            return false;
        };
        let kept = self.order.ranked_indices().zip(&self.ps).take(kept);
        self.kept.clear();
        self.kept
            .extend(kept.map(|(i, &p)| TokenData { p, ..data[i] }));
        candidates.replace(&self.kept);
        candidates.set_sorted(true);
        true
    }
}

impl Sampler for TopP {
    fn name(&self) -> &'static CStr {
        c"top-p"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_sorted() {
            candidates.softmax(&mut self.work);
            if let Some(kept) = self.cut(self.work.values()) {
                candidates.truncate(kept);
            }
            return;
        }
        let sum = self.work.exponentiate(candidates.as_slice(), false);
        if candidates.len() >= 8 * Sample::SIZE {
            let left_out = (1.0 - self.p) * sum;
            let threshold = self.sample.threshold(self.work.values(), left_out);
            if self.keep_nucleus(candidates, sum, threshold) {
                return;
            }
            Fallback::Nucleus.note();
        }
        self.keep_nucleus(candidates, sum, f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More are to be kept than the sample's threshold lets pass: then all are ranked.
    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn a_threshold_that_is_too_high_gives_way() {
        const KEPT: usize = 9000;
        let mut data: Vec<TokenData> = (0..10_000)
            .map(|i| TokenData {
                id: i,
                logit: (i * 7919 % 10_000) as f32 / 1000.0,
                p: 0.0,
            })
            .collect();
        let before = Fallback::Nucleus.count();
        let mut candidates = Candidates::new(&mut data, false);
        let mut top_p = TopP::new(0.5, KEPT).expect("0.5 cuts something");
        top_p.apply(&mut candidates);
        assert!(Fallback::Nucleus.count() > before);
        assert_eq!(candidates.len(), KEPT);
        let descends = |pair: &[TokenData]| pair[0].logit > pair[1].logit;
        assert!(candidates.as_slice().windows(2).all(descends));
    }
}
