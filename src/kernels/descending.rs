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
use super::ranking::Ranking;
use super::{BLOCK, IN_CACHE, Workspace, current, divide, entropies, exp_sum, select};
use crate::token::TokenData;

/// Buffers for this, owned by the sampler that uses it.
#[derive(Clone, Debug, Default)]
pub struct Descending {
    logits: Vec<f32>,
    max: f32,
    /// The exponentials.
    work: Workspace,
    sample: Sample,
    indices: Vec<u32>,
    picked: Vec<f32>,
    ranking: Ranking,
    order: Order,
    top: Vec<TokenData>,
    /// Exponentials of the ranked candidates, then their probabilities.
    ps: Vec<f32>,
    /// The exponential down to which is ranked.
    threshold: f32,
    /// What each candidate adds to the entropy.
    terms: Vec<f32>,
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
        self.logits.resize(data.len(), 0.0);
        self.max = (current().logits)(data, &mut self.logits);
        let total = self.work.exponentiate_beside(&self.logits, self.max);
        if !(1.0..1e30).contains(&total) {
            return None;
        }
        let excess = total - f64::from(binade(total as f32));
        let threshold = self.sample.threshold(self.work.values(), excess as f32);
        let head = self.rank_from(threshold);
        if self.ps.len() > data.len() / 4 {
            return None;
        }
        let all = self.add_tail(head, threshold, None)?;
        divide(&mut self.ps, all);
        Some(all)
    }

    /// Ranks all whose exponential is at or above `threshold`, and adds these.
    fn rank_from(&mut self, threshold: f32) -> f32 {
        self.threshold = threshold;
        self.indices.clear();
        self.picked.clear();
        let es = self.work.values();
        select(es, threshold, &mut self.indices, &mut self.picked);
        // Different logits may have equal exponentials, so it is the logits that are ranked.
        for (&i, picked) in self.indices.iter().zip(&mut self.picked) {
            *picked = self.logits[i as usize];
        }
        self.ranking
            .rank_selected(&self.logits, &self.indices, &self.picked);
        self.ps.clear();
        self.ps.extend_from_slice(self.ranking.sorted());
        exp_sum(0.0, &mut self.ps, self.max)
    }

    /// Ranks on, so that nothing unranked has a probability of `p` or more. `sum` is what [`rank_head`](Self::rank_head) gave.
    pub fn rank_down_to(&mut self, sum: f32, p: f32) {
        // The quotient is rounded, and p may be.
        self.rank_from(sum * p * 0.9999);
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
        let ranked = self.ranking.indices().iter().take(k);
        self.top.clear();
        self.top.extend(ranked.map(|&i| data[i as usize]));
        &self.top
    }

    /// `head` and the terms of all exponentials below `threshold`, as if added in descending order of these. `terms` are the exponentials themselves if not given.
    fn add_tail(&mut self, head: f32, threshold: f32, terms: Option<&[f32]>) -> Option<f32> {
        let c = binade(head);
        let keys = self.work.values();
        let terms = terms.unwrap_or(keys);
        self.halfway.clear();
        let tail = current().tail;
        let rounded = tail(keys, terms, 0.0, threshold, c, Some(&mut self.halfway));
        if self.halfway.len() > MANY {
            return None;
        }
        let key = |&i: &u32| keys[i as usize];
        self.halfway
            .sort_unstable_by(|a, b| key(b).total_cmp(&key(a)));
        let mut resolved = 0.0;
        for i in &self.halfway {
            let larger = tail(keys, terms, key(i), threshold, c, None);
            // The addition itself rounds the term the way it goes.
            let before = head + larger + resolved;
            resolved += (before + terms[*i as usize]) - before;
        }
        let all = head + rounded + resolved;
        (all < 2.0 * c).then_some(all)
    }

    /// The entropy, a `float` sum of -p ln p in descending order of the probabilities, after [`rank_head`](Self::rank_head) gave `sum`. `None` if a
    /// probability is 0, or if everything has to be sorted.
    pub fn entropy(&mut self, sum: f32) -> Option<f32> {
        let mut terms = std::mem::take(&mut self.terms);
        let entropy = self.entropy_of(sum, &mut terms);
        self.terms = terms;
        entropy
    }

    fn entropy_of(&mut self, sum: f32, terms: &mut Vec<f32>) -> Option<f32> {
        terms.resize(self.logits.len(), 0.0);
        let mut ps = [0.0; IN_CACHE];
        let mut total = 0.0f64;
        let es = self.work.values().chunks(IN_CACHE);
        for (es, terms) in es.zip(terms.chunks_mut(IN_CACHE)) {
            let ps = &mut ps[..es.len()];
            ps.copy_from_slice(es);
            divide(ps, sum);
            if entropies(ps, terms) == 0.0 {
                return None;
            }
            total += (current().sum_double)(terms, &mut [0.0; IN_CACHE / BLOCK]);
        }
        let c = f64::from(binade(total as f32));
        // The head must reach the binade of the whole, and a little more.
        let left_out = (total - c) as f32;
        let threshold = self
            .sample
            .threshold_by(self.work.values(), terms, left_out);
        if threshold < self.threshold {
            self.rank_from(threshold);
            divide(&mut self.ps, sum);
        }
        if self.ps.len() > self.logits.len() / 3 {
            Fallback::DescendingSum.note();
            return None;
        }
        let mut head = 0.0;
        let mut head_terms = [0.0; IN_CACHE];
        for ps in self.ps.chunks(IN_CACHE) {
            let terms = &mut head_terms[..ps.len()];
            entropies(ps, terms);
            head = (current().sum)(head, terms);
        }
        let entropy = self.add_tail(head, self.threshold, Some(terms));
        if entropy.is_none() {
            Fallback::DescendingSum.note();
        }
        entropy
    }

    /// The logits of all, NaN as minus infinity.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The exponentials of all, not normalised.
    pub fn exponentials(&self) -> &[f32] {
        self.work.values()
    }

    /// Descending probabilities: the ranked ones, then those of a sample of the rest. `sum` is what [`rank_head`](Self::rank_head) gave. Gives for how many each of
    /// the sample stands.
    pub fn outline(&self, sum: f32, to: &mut Vec<f32>) -> f32 {
        to.clear();
        to.extend_from_slice(&self.ps);
        let sampled = self.sample.values.iter().rev();
        let sampled = sampled.filter(|&&e| e < self.threshold);
        to.extend(sampled.map(|&e| e / sum));
        self.logits.len() as f32 / Sample::SIZE as f32
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
    logits: Vec<f32>,
}

impl Sample {
    /// How many values are taken.
    pub const SIZE: usize = 1024;
    /// Neighbours that are taken together: less than that costs as many cache lines.
    const GROUP: usize = 16;

    /// A value that so many reach that the rest sums to little less than `left_out`, as far as a sample tells. `values` are as many as the sample at least.
    pub fn threshold(&mut self, values: &[f32], left_out: f32) -> f32 {
        self.take(values);
        self.values[self.reaching(values.len(), left_out)]
    }

    /// The same for the exponentials of `logits`, of which `max` is the largest: a logit.
    pub fn threshold_of_logits(&mut self, logits: &[f32], max: f32, left_out: f32) -> f32 {
        self.take(logits);
        self.logits.clear();
        self.logits.extend_from_slice(&self.values);
        exp_sum(0.0, &mut self.values, max);
        self.logits[self.reaching(logits.len(), left_out)]
    }

    /// A value that so many reach that the `terms` of the rest, which rise with the values, sum to little less than `left_out`. Leaves the sample of the values.
    pub fn threshold_by(&mut self, values: &[f32], terms: &[f32], left_out: f32) -> f32 {
        self.take(terms);
        let reaching = self.reaching(terms.len(), left_out);
        self.take(values);
        self.values[reaching]
    }

    /// Takes the sample, in order.
    fn take(&mut self, values: &[f32]) {
        let groups = Self::SIZE / Self::GROUP;
        self.values.clear();
        for start in (0..groups).map(|i| i * (values.len() - Self::GROUP) / groups) {
            let group = &values[start..start + Self::GROUP];
            self.values.extend_from_slice(group);
        }
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
    fn the_entropy_is_that_of_the_sorted_array() {
        let mut state = 7u32;
        let mut unit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0
        };
        let mut descending = Descending::default();
        let mut decided = 0;
        for round in 0..200 {
            let n = 9000 + (unit() * 30_000.0) as usize;
            let spread = 2.0 + unit() * 16.0;
            let data = array((0..n).map(|_| (unit() + unit() + unit() - 1.5) * spread));
            let Some(sum) = descending.rank_head(&data) else {
                continue;
            };
            let Some(entropy) = descending.entropy(sum) else {
                continue;
            };
            decided += 1;
            let mut sorted = data.clone();
            Order::default().sort(&mut sorted);
            let max = sorted[0].logit;
            let expected = sorted.iter().fold(0.0f32, |entropy, c| {
                let p = crate::kernels::math::exp(c.logit - max) / sum;
                entropy + -p * crate::kernels::math::ln(p)
            });
            assert_eq!(entropy.to_bits(), expected.to_bits(), "round {round}");
        }
        assert!(decided > 50, "only {decided}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn a_probability_of_0_has_no_entropy() {
        let wide = (0..20_000).map(|i| {
            if i == 7 {
                f32::NEG_INFINITY
            } else {
                (i % 100) as f32 / 20.0
            }
        });
        let mut descending = Descending::default();
        let sum = descending.rank_head(&array(wide));
        assert!(sum.is_some_and(|sum| descending.entropy(sum).is_none()));
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
