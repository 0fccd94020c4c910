//! Softmax of the sorted array without sorting it.
//!
//! The built-ins that sort add the exponentials in descending order, one `float` after the other, and use the last bit of the sum. As
//! `portable` says, inside one binade the order of additions does not matter but for terms half-way between two
//! multiples of the unit. So only a head need be ranked and added in order, large enough that what follows stays in the binade which the
//! head has reached; the tail is rounded and added in any order. For a term of the tail that is half-way, the sum of the larger ones tells which way
//! it goes.
//!
//! That the exponentials descend where the logits do is a property of `expf` that the tests check.
//!
//! A sample chooses the head: what lies below its threshold must be less than the excess of the sum over the last power of two. Where the sum just exceeds
//! one, the head would be nearly all; then, and for small arrays, everything is sorted.
//!
//! Reads 12 bytes per candidate, one `exp` each, writes 4 and reads them twice, and once more for each term that is half-way.

use super::fallbacks::Fallback;
use super::order::Order;
use super::{Workspace, current, divide, sum, values_at_least};
use crate::token::TokenData;

/// Buffers for this, owned by the sampler that uses it.
#[derive(Clone, Debug, Default)]
pub struct Descending {
    work: Workspace,
    sample: Sample,
    indices: Vec<u32>,
    order: Order,
    /// Exponentials of the ranked candidates, then their probabilities.
    ps: Vec<f32>,
    halfway: Vec<u32>,
}

/// Smaller arrays are sorted.
const SMALLEST: usize = 8 * Sample::SIZE;
/// More terms half-way than that, and sorting is cheaper.
const MANY: usize = 16;

impl Descending {
    /// Ranks some of the largest candidates, which [`probabilities`](Self::probabilities) and [`top`](Self::top) then give, and returns the sum of all
    /// exponentials. `None` if everything has to be sorted.
    pub fn rank_head(&mut self, data: &[TokenData]) -> Option<f32> {
        if data.len() < SMALLEST {
            return None;
        }
        let sum = self.try_head(data);
        if sum.is_none() {
            Fallback::DescendingSum.note();
        }
        sum
    }

    fn try_head(&mut self, data: &[TokenData]) -> Option<f32> {
        let total = self.work.exponentiate_double(data, false);
        if !(1.0..1e30).contains(&total) {
            return None;
        }
        let excess = total - f64::from(binade(total as f32));
        let threshold = self.sample.threshold(self.work.values(), excess as f32);
        self.rank_from(data, threshold);
        if self.indices.len() > data.len() / 4 {
            return None;
        }
        let head = sum(0.0, &self.ps);
        let all = self.add_tail(head, threshold)?;
        divide(&mut self.ps, all);
        Some(all)
    }

    /// Ranks all whose exponential is at or above `threshold`.
    fn rank_from(&mut self, data: &[TokenData], threshold: f32) {
        let values = self.work.values();
        self.indices.clear();
        values_at_least(values, threshold, &mut self.indices);
        self.order.rank_these(data, self.indices.iter().copied());
        self.ps.clear();
        let ranked = self.order.ranked_indices();
        self.ps.extend(ranked.map(|i| values[i]));
    }

    /// Ranks on, so that nothing unranked has a probability of `p` or more. `sum` is what [`rank_head`](Self::rank_head) gave.
    pub fn rank_down_to(&mut self, data: &[TokenData], sum: f32, p: f32) {
        // The quotient is rounded, and p may be.
        self.rank_from(data, sum * p * 0.9999);
        divide(&mut self.ps, sum);
    }

    /// The probabilities of the ranked candidates.
    pub fn probabilities(&self) -> &[f32] {
        &self.ps
    }

    /// The `k` largest of `data`, descending: those that are ranked, if they are enough.
    pub fn top(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        if k > self.ps.len() {
            return self.order.top(data, k);
        }
        self.order.first_ranked(data, k)
    }

    /// `head` and all values below `threshold`, as if added in descending order.
    fn add_tail(&mut self, head: f32, threshold: f32) -> Option<f32> {
        let c = binade(head);
        let values = self.work.values();
        self.halfway.clear();
        let tail = current().tail;
        let rounded = tail(values, 0.0, threshold, c, Some(&mut self.halfway));
        if self.halfway.len() > MANY {
            return None;
        }
        let value = |&i: &u32| values[i as usize];
        self.halfway
            .sort_unstable_by(|a, b| value(b).total_cmp(&value(a)));
        let mut resolved = 0.0;
        for t in self.halfway.iter().map(value) {
            let larger = tail(values, t, threshold, c, None);
            // The addition itself rounds the term the way it goes.
            let before = head + larger + resolved;
            resolved += (before + t) - before;
        }
        let all = head + rounded + resolved;
        (all < 2.0 * c).then_some(all)
    }
}

/// The power of two at or below `x`, which is positive and normal.
fn binade(x: f32) -> f32 {
    f32::from_bits(x.to_bits() & 0x7f80_0000)
}

/// Thresholds from a sample.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    values: Vec<f32>,
}

impl Sample {
    /// How many values are taken.
    pub const SIZE: usize = 1024;
    /// Neighbours that are taken together: less than that costs as many cache lines.
    const GROUP: usize = 16;

    /// A value that so many reach that the rest sums to little less than `left_out`, as far as a sample tells. `values` are as many as the sample at least.
    pub fn threshold(&mut self, values: &[f32], left_out: f32) -> f32 {
        let groups = Self::SIZE / Self::GROUP;
        self.values.clear();
        for start in (0..groups).map(|i| i * (values.len() - Self::GROUP) / groups) {
            let group = &values[start..start + Self::GROUP];
            self.values.extend_from_slice(group);
        }
        self.values.sort_unstable_by(f32::total_cmp);
        let left_out = left_out * (Self::SIZE as f32 / values.len() as f32);
        let mut below = 0.0;
        let reached = self.values.iter().find(|&&value| {
            below += value;
            below > 0.9 * left_out
        });
        let largest = self.values[Self::SIZE - 1];
        *reached.unwrap_or(&largest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(logits: impl Iterator<Item = f32>) -> Vec<TokenData> {
        let data = logits.enumerate();
        let data = data.map(|(i, logit)| TokenData {
            id: i as i32,
            logit,
            p: 0.0,
        });
        data.collect()
    }

    fn sorted_sum(data: &[TokenData]) -> f32 {
        let mut sorted = data.to_vec();
        Order::default().sort(&mut sorted);
        let max = sorted[0].logit;
        let exponentials = sorted
            .iter()
            .map(|c| crate::kernels::math::exp(c.logit - max));
        exponentials.fold(0.0, |sum, e| sum + e)
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn the_sum_is_that_of_the_sorted_array() {
        let mut state = 1u32;
        let mut unit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0
        };
        let mut descending = Descending::default();
        let mut decided = 0;
        for round in 0..300 {
            let n = 9000 + (unit() * 30_000.0) as usize;
            let spread = unit() * 6.0;
            // Every third on a coarse grid, where terms repeat and many are half-way.
            let coarse = round % 3 == 0;
            let data = array((0..n).map(|_| {
                let x = (unit() + unit() + unit() - 1.5) * spread;
                if coarse { (x * 64.0).round() / 64.0 } else { x }
            }));
            let Some(sum) = descending.rank_head(&data) else {
                continue;
            };
            decided += 1;
            assert_eq!(sum.to_bits(), sorted_sum(&data).to_bits(), "round {round}");
            let mut sorted = data.clone();
            Order::default().sort(&mut sorted);
            let head = descending.probabilities().len();
            assert_eq!(descending.top(&data, head), &sorted[..head]);
            assert_eq!(descending.top(&data, head + 1), &sorted[..head + 1]);
        }
        assert!(decided > 100, "only {decided}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn a_sum_just_above_a_power_of_two_gives_way() {
        // 16,384 times 1 and very little: the head would have to be all.
        let data = array((0..16_385).map(|i| if i == 0 { -9.0 } else { 1.0 }));
        let before = Fallback::DescendingSum.count();
        assert!(Descending::default().rank_head(&data).is_none());
        assert!(Fallback::DescendingSum.count() > before);
    }
}
