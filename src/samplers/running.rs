//! The running sum by which top-p and locally typical sampling cut, added in blocks.

use crate::kernels;

/// How many probabilities are added before the sum is looked at.
pub(super) const SUMMED_AT_ONCE: usize = 512;

/// A `float` sum of probabilities in their order, which ends where enough are kept.
#[derive(Debug, Default)]
pub(super) struct Running {
    sum: f32,
    /// How many were added.
    pub(super) count: usize,
}

impl Running {
    /// Adds `ps`. If the sum reaches `p` among them, and at least `min_keep` are added: how many
    /// that takes.
    pub(super) fn add(&mut self, ps: &[f32], p: f32, min_keep: usize) -> Option<usize> {
        let after = kernels::sum(self.sum, ps);
        let start = self.count;
        self.count += ps.len();
        // Nowhere in the block can the nucleus end: its sum stays below, or too few are kept.
        if after < p || self.count < min_keep {
            self.sum = after;
            return None;
        }
        for (i, x) in ps.iter().enumerate() {
            self.sum += x;
            if self.sum >= p && start + i + 1 >= min_keep {
                return Some(start + i + 1);
            }
        }
        None
    }
}
