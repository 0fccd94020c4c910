//! Softmax of the sorted array without sorting it.
//!
//! The built-ins that sort add the exponentials in descending order, one `float` after the other, and use the last bit of the sum; locally typical sampling adds up the entropy
//! in that order, too. The module `ladder` finds such a sum without the order.
//!
//! That the exponentials descend where the logits do is a property of `expf` that the tests check.
//!
//! Candidates so improbable that they round to nothing where they are added are left out from the start: no exponential is taken of these. With a peaked
//! distribution that is nearly all. What was left out is compared with the sum in the end; for an entropy that is too small for it, more are taken.
//!
//! Reads 12 bytes per candidate and writes 4, reads these, and takes an `exp` of each that counts; then per crossing into the next power of two two passes of 4 bytes for each that
//! counts, where the first few lie in the sorted head. The entropy takes a division and a `ln` of each that counts, and as many passes.

mod ladder;
mod sample;
#[cfg(test)]
mod tests;

pub use sample::Sample;

use super::fallbacks::Fallback;
use super::math::binade;
use super::ranking::Ranking;
use super::{BLOCK, Column, IN_CACHE, current, divide, entropies, exp_sum, math, select};
use crate::token::TokenData;
use ladder::{Ladder, Series};

/// What is added up in the order of the exponentials.
#[derive(Clone, Copy, Debug)]
pub enum Terms {
    /// The exponentials themselves.
    Exponentials,
    /// What each adds to the entropy, given the sum of all.
    Entropies(f32),
}

impl Terms {
    /// The terms of these exponentials.
    fn of(self, es: &[f32], to: &mut Vec<f32>) {
        to.clear();
        self.append_of(es, to);
    }

    /// The same behind what is there; gives their sum in `double`.
    #[expect(
        clippy::indexing_slicing,
        reason = "`start` is what the length was, which grew; a chunk has at most `IN_CACHE` terms"
    )]
    fn append_of(self, es: &[f32], to: &mut Vec<f32>) -> f64 {
        let start = to.len();
        to.extend_from_slice(es);
        let Self::Entropies(sum) = self else {
            return 0.0;
        };
        let mut ps = [0.0; IN_CACHE];
        let mut total = 0.0;
        for terms in to[start..].chunks_mut(IN_CACHE) {
            let ps = &mut ps[..terms.len()];
            ps.copy_from_slice(terms);
            divide(ps, sum);
            entropies(ps, terms);
            total += (current().sum_double)(terms, &mut [0.0; IN_CACHE / BLOCK]);
        }
        total
    }
}

/// Buffers for this, owned by the sampler that uses it.
#[derive(Clone, Debug, Default)]
pub struct Descending {
    logits: Vec<f32>,
    column: Column,
    /// Below this logit candidates are left out.
    lowest: f32,
    /// The exponentials of the others, in no particular order, and about their sum.
    es: Vec<f32>,
    total: f64,
    /// What they add to the entropy.
    terms: Vec<f32>,
    ladder: Ladder,
    indices: Vec<u32>,
    picked: Vec<f32>,
    ranking: Ranking,
    ps: Vec<f32>,
    top: Vec<TokenData>,
}

/// Smaller arrays are sorted.
const SMALLEST: usize = 512;
/// Half a unit of a float, compared with the power of two below it.
const HALF_UNIT: f32 = f32::EPSILON / 2.0;
/// So far below the largest logit exponentials are less than half a unit of 1.
pub const COUNTS: f32 = 16.65;
/// So far they mostly count for the entropy.
pub const COUNTS_FOR_ENTROPY: f32 = 17.5;

impl Descending {
    /// The sum of all exponentials, as if added in descending order. At first those count that are no further than `reach` below the largest, which is [`COUNTS`] or
    /// more. `None` if everything has to be sorted.
    pub fn sum(&mut self, data: &[TokenData], reach: f32) -> Option<f32> {
        if data.len() < SMALLEST {
            return None;
        }
        let sum = self.try_sum(data, reach);
        if sum.is_none() {
            Fallback::DescendingSum.note();
        }
        sum
    }

    fn try_sum(&mut self, data: &[TokenData], reach: f32) -> Option<f32> {
        self.column = super::column(data, &mut self.logits);
        if !self.column.max.is_finite() {
            return None;
        }
        self.es.clear();
        // However many count, an array of this size has warmed up.
        self.es.reserve(data.len() + IN_CACHE + 64);
        self.terms
            .reserve(data.len().saturating_sub(self.terms.len()));
        self.ladder.reserve(data.len());
        self.ranking.reserve(data.len());
        self.indices.clear();
        self.indices.reserve(data.len() + 64);
        for buffer in [&mut self.picked, &mut self.ps] {
            buffer.clear();
            buffer.reserve(data.len() + 64);
        }
        self.top.clear();
        self.top.reserve(data.len());
        self.total = 0.0;
        self.lowest = f32::INFINITY;
        self.take_down_to(self.column.max - reach);
        self.ladder.prepare(&self.es);
        let sum = self.ladder.sum(Series {
            keys: &self.es,
            values: &self.es,
            terms: Terms::Exponentials,
            total: self.total,
        })?;
        (self.left_out() < binade(sum) * HALF_UNIT).then_some(sum)
    }

    /// Takes the exponentials of all logits from `lowest` up to where they were taken.
    #[expect(
        clippy::indexing_slicing,
        reason = "`start` is what the length was, and `pick` only appends"
    )]
    fn take_down_to(&mut self, lowest: f32) {
        let pick = current().pick;
        let mut sums = [0.0; IN_CACHE / BLOCK];
        for logits in self.logits.chunks(IN_CACHE) {
            let start = self.es.len();
            pick(logits, logits, lowest, self.lowest, &mut self.es);
            self.total +=
                (current().exp_sum_double)(&mut self.es[start..], self.column.max, &mut sums);
        }
        self.lowest = lowest;
    }

    /// No exponential that was left out is larger.
    fn left_out(&self) -> f32 {
        math::exp(self.lowest.next_down() - self.column.max)
    }

    /// The entropy, a `float` sum of -p ln p in descending order of the probabilities, after [`sum`](Self::sum) gave `sum`. `None` if a
    /// probability is 0, or if everything has to be sorted.
    pub fn entropy(&mut self, sum: f32) -> Option<f32> {
        if self.has_zero(sum) {
            return None;
        }
        let entropy = self.try_entropy(sum);
        if entropy.is_none() {
            Fallback::DescendingSum.note();
        }
        entropy
    }

    /// Whether a probability is 0.
    fn has_zero(&mut self, sum: f32) -> bool {
        // e^-103.97 and less is 0; a little above that, each is looked at.
        let small = self.column.max + math::ln(sum) - 102.0;
        self.picked.clear();
        let lowest = f32::NEG_INFINITY;
        (current().pick)(&self.logits, &self.logits, lowest, small, &mut self.picked);
        let p = |x: f32| math::exp(x - self.column.max) / sum;
        self.picked.iter().any(|&x| p(x) == 0.0)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "`start` is what the length was, which only grew"
    )]
    fn try_entropy(&mut self, sum: f32) -> Option<f32> {
        let kind = Terms::Entropies(sum);
        self.terms.clear();
        let mut total = kind.append_of(&self.es, &mut self.terms);
        if let Some(lowest) = self.lowest_for_entropy(sum, total) {
            let start = self.es.len();
            self.take_down_to(lowest);
            total += kind.append_of(&self.es[start..], &mut self.terms);
            self.ladder.prepare(&self.es);
        }
        let entropy = self.ladder.sum(Series {
            keys: &self.es,
            values: &self.terms,
            terms: kind,
            total,
        })?;
        // Probabilities below 1 / e add the less the smaller they are.
        let p = self.left_out() / sum;
        let most = 1.000_01 * p * -math::ln(p);
        let nothing = p == 0.0 || (p < 0.3 && most < binade(entropy) * HALF_UNIT);
        nothing.then_some(entropy)
    }

    /// Down to which logit candidates count for an entropy of about `entropy`, if that is further than they were taken.
    fn lowest_for_entropy(&self, sum: f32, entropy: f64) -> Option<f32> {
        // Rounding may end in the binade below.
        let nothing = binade((entropy * 0.999) as f32) * HALF_UNIT;
        let mut p = nothing;
        for _ in 0..4 {
            p = 0.9 * nothing / -math::ln(p);
        }
        let lowest = self.column.max + math::ln(p * sum);
        // An entropy of next to nothing: all count.
        let lowest = if lowest.is_finite() { lowest } else { f32::MIN };
        (lowest < self.lowest).then_some(lowest)
    }

    /// The probabilities of the `n` largest candidates or more, descending, after [`sum`](Self::sum) gave `sum`. `None` if too many are left out.
    pub fn probabilities(&mut self, sum: f32, n: usize) -> Option<&[f32]> {
        let n = n.min(self.logits.len());
        if n > self.es.len() {
            return None;
        }
        self.ladder.deepen(&self.es, n);
        self.ps.clear();
        self.ps.extend_from_slice(self.ladder.head());
        divide(&mut self.ps, sum);
        Some(&self.ps)
    }

    /// Ranks all candidates whose exponentials are at or above `e`, and perhaps some more, but one at least.
    fn rank_down_to(&mut self, e: f32) {
        self.select_down_to(e);
        self.ranking
            .rank_selected(&self.logits, &self.indices, &self.picked);
    }

    /// Selects all candidates whose exponentials are at or above `e`, and perhaps some more, but one at least.
    fn select_down_to(&mut self, e: f32) {
        let max = self.column.max;
        // Far below what rounding can do, of `ln` as well as of the difference to the largest.
        let margin = 1e-4 + 1e-6 * max.abs();
        let lowest = max + math::ln(e.min(1.0)) - margin;
        self.indices.clear();
        self.picked.clear();
        select(&self.logits, lowest, &mut self.indices, &mut self.picked);
    }

    /// The indices and the logits of all candidates whose probabilities are at or above `p`, and perhaps of some more, but of one at least. `sum` is what [`sum`](Self::sum) gave.
    pub fn at_least(&mut self, sum: f32, p: f32) -> (&[u32], &[f32]) {
        // The quotient is rounded, and p may be.
        self.select_down_to(sum * p * 0.999_9);
        (&self.indices, &self.picked)
    }

    /// The same ranked: their probabilities, descending. [`first`](Self::first) gives the candidates.
    pub fn ranked_at_least(&mut self, sum: f32, p: f32) -> &[f32] {
        self.rank_down_to(sum * p * 0.999_9);
        self.ps.clear();
        self.ps.extend_from_slice(self.ranking.sorted());
        exp_sum(0.0, &mut self.ps, self.column.max);
        divide(&mut self.ps, sum);
        &self.ps
    }

    /// The first `n` of `data` in the order of what was ranked.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: what was ranked are places of `data`"
    )]
    pub fn first(&mut self, data: &[TokenData], n: usize) -> &[TokenData] {
        let ranked = self.ranking.indices().iter().take(n);
        self.top.clear();
        self.top.extend(ranked.map(|&i| data[i as usize]));
        &self.top
    }

    /// The `n` largest of `data`, descending, after [`sum`](Self::sum); all if there are fewer.
    pub fn top(&mut self, data: &[TokenData], n: usize) -> &[TokenData] {
        let n = n.min(data.len());
        self.rank_down_to(self.ladder.key_for(n));
        if self.ranking.indices().len() < n {
            self.rank_down_to(0.0);
        }
        self.first(data, n)
    }

    /// What is known of the candidates.
    pub fn column(&self) -> Column {
        self.column
    }

    /// Descending probabilities: those of the head, then those of a sample of the rest. `sum` is what [`sum`](Self::sum) gave. Gives how many belong to the head, and for how
    /// many each of the sample stands.
    pub fn outline(&self, sum: f32, to: &mut Vec<f32>) -> (usize, f32) {
        let head = self.ladder.head();
        to.clear();
        to.extend_from_slice(head);
        to.extend_from_slice(self.ladder.sample_below());
        divide(to, sum);
        let (ps, sampled) = to.split_at(head.len());
        // All together are 1: that is known better than the sample tells.
        let rest = 1.0 - ps.iter().sum::<f32>();
        (head.len(), rest.max(0.0) / sampled.iter().sum::<f32>())
    }
}
