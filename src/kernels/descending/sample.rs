//! Thresholds from a sample.

use super::super::exp_sum;

/// A sample of an array, in order.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<f32>,
    logits: Vec<f32>,
}

impl Sample {
    /// How many values are taken.
    pub const SIZE: usize = 1024;
    /// Neighbours that are taken together: less than that costs as many cache lines.
    const GROUP: usize = 16;

    /// A logit that so many of `logits`, of which `max` is the largest, reach that the exponentials of the rest sum to little less than `left_out`, as far as a sample
    /// tells. There are as many logits as the sample has, at least.
    #[expect(
        clippy::indexing_slicing,
        reason = "the sample has `SIZE` values, and as many logits"
    )]
    pub fn threshold_of_logits(&mut self, logits: &[f32], max: f32, left_out: f32) -> f32 {
        self.take(logits);
        self.logits.clear();
        self.logits.extend_from_slice(&self.values);
        exp_sum(0.0, &mut self.values, max);
        self.logits[self.reaching(logits.len(), left_out)]
    }

    /// Takes the sample, in order.
    fn take(&mut self, values: &[f32]) {
        take_groups(values, Self::SIZE, Self::GROUP, &mut self.values);
        self.values.sort_unstable_by(f32::total_cmp);
    }

    /// Index of the value at which the rising sample sums to its share of `left_out` of `n` values.
    fn reaching(&self, n: usize, left_out: f32) -> usize {
        let left_out = left_out * (Self::SIZE as f32 / n as f32);
        let mut below = 0.0;
        let reached = self.values.iter().position(|&value| {
            below += value;
            below > 0.9 * left_out
        });
        reached.unwrap_or(Self::SIZE - 1)
    }
}

/// Takes `size` of `values`, which are as many at least, in groups of neighbours.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: there are at least `size` values; `start` is at most their number less `group`"
)]
pub(super) fn take_groups(values: &[f32], size: usize, group: usize, to: &mut Vec<f32>) {
    let groups = size / group;
    to.clear();
    for start in (0..groups).map(|i| i * (values.len() - group) / groups) {
        to.extend_from_slice(&values[start..start + group]);
    }
}
