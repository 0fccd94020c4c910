//! Estimates thresholds from a sample.

use crate::algorithms::scratch::room;
use crate::kernels::rounding_test::Terms;
use crate::kernels::sequential_sum::sum_between;
use crate::kernels::softmax::exp_sum;
use crate::per_thread::lent_per_thread;
use crate::token::{TokenData, comparable};

/// A sample of logits, and the terms that they add to a sum.
#[derive(Clone, Debug, Default)]
pub(super) struct Outline {
    logits: Vec<f32>,
    es: Vec<f32>,
    terms: Vec<f32>,
    /// The number of logits that each logit of the sample represents.
    weight: f32,
}

room!(Outline: logits, es, terms);

impl Outline {
    /// The number of logits in a sample.
    const SIZE: usize = 512;
    /// The number of adjacent candidates in each group of the sample. Smaller groups would touch
    /// more cache lines.
    const GROUP: usize = 16;
    /// The number of candidates that are to be above a threshold.
    const ABOVE: usize = 500;
    /// The least number of the sample's logits that are to be above a threshold.
    const HEAD: usize = 4;

    /// Takes a sample of logits. Returns the largest logit in it. There must be at least as many
    /// logits as a sample has.
    pub(super) fn take(&mut self, data: &[TokenData]) -> f32 {
        self.logits.clear();
        take_logits(data, Self::SIZE, Self::GROUP, &mut self.logits);
        self.weight = data.len() as f32 / Self::SIZE as f32;
        let max = self.logits.iter().copied().fold(f32::MIN, f32::max);
        self.relate_to(max);
        max
    }

    /// Takes a sample of the logits of a vocabulary. [`relate_to`](Self::relate_to) then sets the
    /// largest logit.
    pub(super) fn take_of(&mut self, logits: &[f32]) {
        self.logits.clear();
        take_groups(logits, Self::SIZE, Self::GROUP, &mut self.logits);
        self.weight = logits.len() as f32 / Self::SIZE as f32;
    }

    /// Sets the largest logit.
    pub(super) fn relate_to(&mut self, max: f32) {
        self.es.clear();
        self.es.extend_from_slice(&self.logits);
        exp_sum(0.0, &mut self.es, max);
    }

    /// Returns a logit below `max` such that the exponentials of all logits below it sum to about
    /// the fraction `beside` of the total, or less.
    pub(super) fn threshold(&mut self, max: f32, beside: f32) -> f32 {
        let total = self.es.iter().sum::<f32>() * self.weight;
        // The largest exponential, 1, may not be in the sample.
        let left = beside * total.max(1.0) / self.weight;
        let mut sorted = [0.0; Self::SIZE];
        sorted.copy_from_slice(&self.logits);
        let above = (Self::ABOVE as f32 / self.weight) as usize;
        let above = above.clamp(Self::HEAD, Self::SIZE - 1);
        let (_, head, _) = sorted.select_nth_unstable_by(above, |a, b| b.total_cmp(a));
        highest_leaving(&self.logits, &self.es, left, head.min(max - 2.0))
    }

    /// Returns a logit at or below `from`. The terms below it sum to at most about the fraction
    /// `beside` of the sum below `from`.
    pub(super) fn lower(&mut self, from: f32, terms: Terms, beside: f32) -> f32 {
        terms.of(&self.es, &mut self.terms);
        let left = beside * sum_below(&self.logits, &self.terms, from);
        highest_leaving(&self.logits, &self.terms, left, from)
    }
}

/// Returns the highest logit, up to `high`, below which the terms sum to at most about `left`.
fn highest_leaving(logits: &[f32], terms: &[f32], left: f32, high: f32) -> f32 {
    if sum_below(logits, terms, high) <= left {
        return high;
    }
    let (mut low, mut high) = (high - 40.0, high);
    for _ in 0..12 {
        let middle = low + (high - low) / 2.0;
        if sum_below(logits, terms, middle) <= left {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the approximate sum of the terms of logits below `below`.
fn sum_below(logits: &[f32], terms: &[f32], below: f32) -> f32 {
    sum_between(logits, terms, f32::NEG_INFINITY, below)
}

/// Estimates thresholds for a nucleus.
#[derive(Clone, Debug, Default)]
pub struct NucleusSample {
    logits: Vec<f32>,
    es: Vec<f32>,
}

lent_per_thread!(NucleusSample);
room!(NucleusSample: logits, es);

impl NucleusSample {
    /// The number of values in a sample.
    pub const SIZE: usize = 1024;

    /// Returns a logit below which the exponentials of `logits` sum to a little less than
    /// `left_out`, estimated from a sample. `max` is the largest logit. There must be at least as
    /// many logits as the sample has.
    pub fn threshold_of_logits(&mut self, logits: &[f32], max: f32, left_out: f32) -> f32 {
        take_groups(logits, Self::SIZE, Outline::GROUP, &mut self.logits);
        self.es.clear();
        self.es.extend_from_slice(&self.logits);
        exp_sum(0.0, &mut self.es, max);
        let left_out = left_out * (Self::SIZE as f32 / logits.len() as f32);
        let largest = self.logits.iter().copied().fold(f32::MIN, f32::max);
        highest_leaving(&self.logits, &self.es, 0.9 * left_out, largest)
    }

    /// Returns the next logit below `logit` in the last sample; [`f32::MIN`] if there is none.
    pub fn next_below(&self, logit: f32) -> f32 {
        let below = self.logits.iter().copied().filter(|&x| x < logit);
        below.fold(f32::MIN, f32::max)
    }
}

/// Copies `size` logits of `data`, which has at least as many, in groups of `group` adjacent
/// candidates.
// In bounds: there are at least `size` candidates, and `start` is at most `data.len() - group`.
fn take_logits(data: &[TokenData], size: usize, group: usize, to: &mut Vec<f32>) {
    let groups = size / group;
    to.clear();
    for start in (0..groups).map(|i| i * (data.len() - group) / groups) {
        let logits = data[start..start + group].iter();
        to.extend(logits.map(|c| comparable(c.logit)));
    }
}

/// Copies `size` of the `values`, which are at least as many, in groups of `group` adjacent values.
// In bounds: there are at least `size` values, and `start` is at most `values.len() - group`.
pub(super) fn take_groups(values: &[f32], size: usize, group: usize, to: &mut Vec<f32>) {
    let groups = size / group;
    to.clear();
    for start in (0..groups).map(|i| i * (values.len() - group) / groups) {
        to.extend_from_slice(&values[start..start + group]);
    }
}
