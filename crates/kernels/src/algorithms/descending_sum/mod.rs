//! The sums of a softmax in descending order, without sorting the array.
//!
//! The built-ins that sort add the exponentials in descending order, one `float` after the other,
//! and the last bit of the sum affects their results; locally typical sampling adds up the entropy
//! in that order, too. The module `binades` finds such a sum without the order, or the rank at
//! which it reaches a number ([`DescendingCut`]).
//!
//! This module relies on `expf` being monotonic, which the tests check.
//!
//! Exact exponentials are computed only for the largest candidates, which are few but make up most
//! of the sum. In an array of `FEW` candidates or more, a sample shows down to which logit to take
//! them: those below it make up about the fraction `beside` of the sum. The terms of the candidates
//! that are not taken are rounded to multiples of the unit of the sum's binade, for which
//! approximate exponentials suffice (see the module `remainder`). If the sum leaves its binade
//! while they are added, more candidates are taken.
//!
//! A sum reads 12 bytes per candidate, writes 4 and reads these once. It computes an approximate
//! exponential of each, and an exact one of the largest. The entropy takes another pass over all
//! candidates.

mod binades;
mod cut;
mod remainder;
mod sample;
mod terms;
#[cfg(test)]
mod tests;

pub use cut::{Cut, DescendingCut, End};
pub use sample::NucleusSample;

use super::argsort::Ranking;
use super::scratch::{Room, room};
use crate::kernels::column::{Column, column_selecting};
use crate::kernels::compact::{pick, select};
use crate::kernels::entropy::surprisals;
use crate::kernels::layout::{CHUNK, SUM_BLOCK, binade};
use crate::kernels::rewrite::divide;
use crate::kernels::rounding_test::{self, Rounded, Terms};
use crate::kernels::scan::{count_at_least, max_logit};
use crate::kernels::softmax::{exp_sum, exp_sum_double};
use crate::per_thread::lent_per_thread;
use crate::simd::libm;
use crate::token::TokenData;
use binades::{Binades, Series};
use remainder::{Ended, Remainder};
use sample::Outline;

/// Buffers for sums in descending order.
#[derive(Clone, Debug, Default)]
pub struct DescendingSum {
    logits: Vec<f32>,
    column: Column,
    outline: Outline,
    /// The logit at or above which candidates are taken.
    lowest: f32,
    /// The taken candidates, in the order of the array: their indices, then their logits and
    /// exponentials, and the approximate sum of the exponentials.
    indices: Vec<u32>,
    taken: Vec<f32>,
    es: Vec<f32>,
    total: f64,
    /// The probabilities of the taken candidates, then the logarithms of the probabilities, and the
    /// terms of the entropy.
    ps: Vec<f32>,
    lns: Vec<f32>,
    terms: Vec<f32>,
    binades: Binades,
    remainder: Remainder,
    /// The taken candidates that are ranked.
    selected: Vec<u32>,
    picked: Vec<f32>,
    ranking: Ranking,
    ranked_ps: Vec<f32>,
}

lent_per_thread!(DescendingSum);
room! {
    DescendingSum: outline, indices, taken, es, ps, lns, terms, binades, remainder, selected, picked,
        ranking, ranked_ps; logits
}

/// Candidates that were taken, in the order of the array.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a> {
    /// The indices of the candidates in the array.
    pub indices: &'a [u32],
    /// The logits of the candidates.
    pub logits: &'a [f32],
    /// The probabilities of the candidates.
    pub ps: &'a [f32],
    /// The logarithms of the probabilities.
    pub lns: &'a [f32],
}

/// The number of candidates below which an array is simply sorted.
const SMALLEST: usize = 512;
/// The number of candidates below which all those that affect the sum are taken at once.
const FEW: usize = 4096;
/// Half a unit in the last place of a float, relative to the power of two at or below the float.
const HALF_UNIT: f32 = f32::EPSILON / 2.0;
/// The distance below the largest logit from which on exponentials are less than half a unit in the
/// last place of 1.
const COUNTS: f32 = 16.65;
/// The number of thresholds from the sample that are tried.
const ATTEMPTS: usize = 3;

impl DescendingSum {
    /// Returns the sum of all exponentials, as if added in descending order; `None` if everything
    /// has to be sorted. The smallest candidates, which make up about the fraction `beside` of the
    /// sum, are added without being taken, which does not affect the result.
    pub fn sum(&mut self, data: &[TokenData], beside: f32) -> Option<f32> {
        if data.len() < SMALLEST {
            return None;
        }
        self.try_sum(data, beside)
    }

    /// Returns the sum of the exponentials of the logits of a vocabulary, none of which is NaN, as
    /// [`sum`](Self::sum) does. `max` is the largest logit; if it is not finite, the result is
    /// `None`. Reads 4 bytes per logit and writes 4, where an array takes 12 and 4.
    pub fn sum_of_logits(&mut self, logits: &[f32], max: f32, beside: f32) -> Option<f32> {
        if logits.len() < SMALLEST || !max.is_finite() {
            return None;
        }
        self.warm_up(logits.len());
        self.outline.take_of(logits);
        self.outline.relate_to(max);
        self.logits.clear();
        self.logits.extend_from_slice(logits);
        self.column = Column {
            max,
            min: f32::MIN,
            plain: true,
        };
        let mut lowest = max - COUNTS;
        if logits.len() >= FEW {
            lowest = lowest.max(self.outline.threshold(max, beside));
        }
        self.take_down_to(lowest);
        self.sum_of_enough()
    }

    fn try_sum(&mut self, data: &[TokenData], beside: f32) -> Option<f32> {
        self.warm_up(data.len());
        // The sample may not contain the largest logit. An eighth of the array usually contains one
        // about as large, and stays in the cache.
        let beginning = data.get(..data.len() / 8).unwrap_or_default();
        let seen = max_logit(beginning, false);
        let largest = seen.max(self.outline.take(data));
        self.outline.relate_to(largest);
        let few = data.len() < FEW;
        // The pass that copies the logits also takes the candidates.
        self.lowest = if few {
            f32::MIN
        } else {
            self.outline.threshold(largest, beside)
        };
        self.column = column_selecting(
            data,
            &mut self.logits,
            self.lowest,
            &mut self.indices,
            &mut self.taken,
        );
        let max = self.column.max;
        if !max.is_finite() {
            return None;
        }
        self.outline.relate_to(max);
        let mut lowest = max - COUNTS;
        if !few {
            lowest = lowest.max(self.outline.threshold(max, beside));
        }
        self.drop_below(lowest);
        self.exponentiate();
        self.sum_of_enough()
    }

    /// Returns the sum, given the taken candidates, which are nearly all of it. Takes more if these
    /// do not suffice.
    fn sum_of_enough(&mut self) -> Option<f32> {
        for _ in 0..ATTEMPTS {
            let sum = self.sum_without_rest()?;
            if self.left_out() < binade(sum) * HALF_UNIT {
                return Some(sum);
            }
            match self.add_rest(sum, Terms::Exponentials)? {
                Ended::At(sum) => return Some(sum),
                Ended::Beyond(total) => {
                    let lowest = self.lower(sum, total, Terms::Exponentials);
                    self.take_down_to(lowest);
                }
            }
        }
        self.take_down_to(self.column.max - COUNTS);
        self.sum_of_taken()
    }

    /// Returns the sum, given that all candidates that affect it are taken.
    fn sum_of_taken(&mut self) -> Option<f32> {
        let sum = self.sum_without_rest()?;
        (self.left_out() < binade(sum) * HALF_UNIT).then_some(sum)
    }

    /// Returns the sum of only the taken candidates.
    fn sum_without_rest(&mut self) -> Option<f32> {
        self.binades.sum(Series {
            keys: &self.es,
            values: &self.es,
            terms: Terms::Exponentials,
            total: self.total,
            until: f32::INFINITY,
        })
    }

    /// Takes all candidates with logits at or above `lowest`.
    fn take_down_to(&mut self, lowest: f32) {
        self.lowest = lowest;
        self.indices.clear();
        self.taken.clear();
        select(&self.logits, lowest, &mut self.indices, &mut self.taken);
        self.exponentiate();
    }

    /// Drops the taken candidates with logits below `lowest`.
    // In bounds: the selected indices are those of taken candidates.
    fn drop_below(&mut self, lowest: f32) {
        if lowest <= self.lowest {
            return;
        }
        self.lowest = lowest;
        self.selected.clear();
        self.picked.clear();
        select(&self.taken, lowest, &mut self.selected, &mut self.picked);
        std::mem::swap(&mut self.taken, &mut self.picked);
        for place in &mut self.selected {
            *place = self.indices[*place as usize];
        }
        std::mem::swap(&mut self.indices, &mut self.selected);
    }

    /// Computes the exponentials of the taken candidates.
    fn exponentiate(&mut self) {
        self.total = exponentials(&self.taken, self.column.max, &mut self.es);
        self.binades.prepare(&self.es);
    }

    /// Returns an upper bound on the exponentials of the candidates that were not taken.
    fn left_out(&self) -> f32 {
        libm::exp(self.lowest.next_down() - self.column.max)
    }

    /// Adds the terms of the candidates that were not taken to `sum`, the sum of the taken ones.
    fn add_rest(&mut self, sum: f32, terms: Terms) -> Option<Ended> {
        let c = binade(sum);
        let rest = Rounded {
            max: self.column.max,
            above: f32::NEG_INFINITY,
            below: self.lowest,
            c,
            terms,
        };
        self.remainder.add(sum, &self.logits, rest)
    }

    /// Estimates the logit down to which candidates have to be taken for the sum to leave its
    /// binade. `sum` is the sum of the terms taken so far, and `total` about the sum of all terms.
    fn lower(&mut self, sum: f32, total: f64, terms: Terms) -> f32 {
        let beyond = total - 2.0 * f64::from(binade(sum));
        let share = beyond / (total - f64::from(sum));
        // With few elements the sample is inaccurate.
        let lowest = self.outline.lower(self.lowest, terms, 0.6 * share as f32);
        lowest.max(self.column.max - COUNTS)
    }

    /// Returns the entropy, a `float` sum of -p ln p in descending order of the probabilities,
    /// after [`sum`](Self::sum) has returned `sum`. `None` if a probability is 0, or if everything
    /// has to be sorted.
    pub fn entropy(&mut self, sum: f32) -> Option<f32> {
        if self.has_zero(sum) {
            return None;
        }
        self.try_entropy(sum)
    }

    /// Returns true if a probability is 0.
    fn has_zero(&mut self, sum: f32) -> bool {
        // e^-103.97 and less is 0. Logits a little above that are checked one by one, with a margin
        // for the rounding of a large threshold.
        let max = self.column.max;
        let small = max + libm::ln(sum) - 102.0 + 4.0 * f32::EPSILON * max.abs();
        self.picked.clear();
        let lowest = f32::NEG_INFINITY;
        pick(&self.logits, &self.logits, lowest, small, &mut self.picked);
        let p = |x: f32| libm::exp(x - self.column.max) / sum;
        self.picked.iter().any(|&x| p(x) == 0.0)
    }

    fn try_entropy(&mut self, sum: f32) -> Option<f32> {
        let terms = Terms::Entropies(sum);
        for _ in 0..ATTEMPTS {
            let total = self.find_surprisals(sum);
            let entropy = self.entropy_of_taken(terms, total)?;
            if entropy < rounding_test::SMALLEST || self.adds_nothing(sum, entropy) {
                break;
            }
            let lowest = match self.add_rest(entropy, terms)? {
                Ended::At(entropy) => return Some(entropy),
                Ended::Beyond(total) => self.lower(entropy, total, terms),
            };
            self.take_down_to(lowest);
        }
        self.entropy_without_rest(sum)
    }

    /// Returns the entropy, given that all candidates that affect it are taken.
    fn entropy_without_rest(&mut self, sum: f32) -> Option<f32> {
        let terms = Terms::Entropies(sum);
        let mut total = self.find_surprisals(sum);
        if let Some(lowest) = self.lowest_for_entropy(sum, total) {
            self.take_down_to(lowest);
            total = self.find_surprisals(sum);
        }
        let entropy = self.entropy_of_taken(terms, total)?;
        self.adds_nothing(sum, entropy).then_some(entropy)
    }

    /// Computes probabilities, their logarithms and their terms. Returns the approximate sum of the
    /// terms.
    fn find_surprisals(&mut self, sum: f32) -> f64 {
        let n = self.es.len();
        for buffer in [&mut self.ps, &mut self.lns, &mut self.terms] {
            buffer.resize(n, 0.0);
        }
        surprisals(&self.es, sum, &mut self.ps, &mut self.lns, &mut self.terms)
    }

    fn entropy_of_taken(&mut self, terms: Terms, total: f64) -> Option<f32> {
        self.binades.sum(Series {
            keys: &self.es,
            values: &self.terms,
            terms,
            total,
            until: f32::INFINITY,
        })
    }

    /// Returns true if the terms of the candidates that were not taken leave `entropy` unchanged.
    fn adds_nothing(&self, sum: f32, entropy: f32) -> bool {
        // Below 1 / e, a smaller probability has a smaller term.
        let p = self.left_out() / sum;
        let most = 1.000_01 * p * -libm::ln(p);
        p == 0.0 || (p < 0.3 && most < binade(entropy) * HALF_UNIT)
    }

    /// Returns the logit down to which candidates affect an entropy of about `entropy`, if more of
    /// them must be taken.
    fn lowest_for_entropy(&self, sum: f32, entropy: f64) -> Option<f32> {
        // Rounding may lead to the binade below.
        let nothing = binade((entropy * 0.999) as f32) * HALF_UNIT;
        let lowest = self.column.max + libm::ln(smallest_for(nothing) * sum);
        // The entropy is nearly 0, so all candidates affect it.
        let lowest = if lowest.is_finite() { lowest } else { f32::MIN };
        (lowest < self.lowest).then_some(lowest)
    }

    /// Takes more candidates, until the rest have about the fraction `beside` of the probability.
    /// Takes all if `beside` is below 0.001, or if it asks for no more than are already taken.
    pub fn take_more(&mut self, sum: f32, beside: f32) {
        let threshold = self.outline.threshold(self.column.max, beside);
        let lowest = if beside < 1e-3 || threshold >= self.lowest {
            f32::MIN
        } else {
            threshold
        };
        self.take_down_to(lowest);
        self.find_surprisals(sum);
    }

    /// Returns the candidates taken, after [`entropy`](Self::entropy) or
    /// [`take_more`](Self::take_more).
    pub fn taken(&self) -> Taken<'_> {
        Taken {
            indices: &self.indices,
            logits: &self.taken,
            ps: &self.ps,
            lns: &self.lns,
        }
    }

    /// Returns an upper bound on the probabilities of the candidates that were not taken.
    #[inline]
    pub fn most_left(&self, sum: f32) -> f32 {
        self.left_out() / sum
    }

    /// Returns the probabilities of the `n` largest candidates or more, descending, after
    /// [`sum`](Self::sum) has returned `sum`. `None` if fewer than `n` candidates are large enough
    /// to affect the sum.
    pub fn probabilities(&mut self, sum: f32, n: usize) -> Option<&[f32]> {
        let n = n.min(self.logits.len());
        if n > self.es.len() {
            self.take_down_to(self.column.max - COUNTS);
        }
        if n > self.es.len() {
            return None;
        }
        self.binades.deepen(&self.es, n);
        self.ranked_ps.clear();
        self.ranked_ps.extend_from_slice(self.binades.head());
        divide(&mut self.ranked_ps, sum);
        Some(&self.ranked_ps)
    }

    /// Returns a logit that is reached by all candidates with exponentials at or above `e`, perhaps
    /// by some more, and by at least one.
    fn lowest_of(&self, e: f32) -> f32 {
        let max = self.column.max;
        // More than the rounding errors of `ln` and of the difference to the largest logit.
        let margin = 1e-4 + 1e-6 * max.abs();
        max + libm::ln(e.min(1.0)) - margin
    }

    /// Ranks all candidates with exponentials at or above `e`, perhaps some more, and at least one.
    fn rank_down_to(&mut self, e: f32) {
        let lowest = self.lowest_of(e);
        if lowest < self.lowest {
            self.take_down_to(lowest);
        }
        self.selected.clear();
        self.picked.clear();
        select(&self.taken, lowest, &mut self.selected, &mut self.picked);
        self.ranking
            .rank_selected(&self.taken, &self.selected, &self.picked);
    }

    /// Returns the approximate number of candidates of probability at least `p`, after
    /// [`sum`](Self::sum) has returned `sum`.
    pub fn count_at_least(&self, sum: f32, p: f32) -> usize {
        count_at_least(&self.logits, self.lowest_of(sum * p))
    }

    /// Returns the probabilities of all candidates at or above `p`, perhaps of some more, and of at
    /// least one, in descending order. [`first_places`](Self::first_places) returns the candidates.
    /// `sum` is the result of [`sum`](Self::sum).
    pub fn ranked_at_least(&mut self, sum: f32, p: f32) -> &[f32] {
        // The quotient is rounded, and so may `p` be: coarsely, if it is hardly above 0.
        let least = if p < 1e-37 { 0.0 } else { sum * p * 0.999_9 };
        self.rank_down_to(least);
        self.ranked_ps.clear();
        self.ranked_ps.extend_from_slice(self.ranking.sorted());
        exp_sum(0.0, &mut self.ranked_ps, self.column.max);
        divide(&mut self.ranked_ps, sum);
        &self.ranked_ps
    }

    /// Returns the logits of all candidates, then the indices and logits of the first `n` ranked
    /// ones, or of fewer if there are fewer.
    // In bounds: the ranked indices are those of taken candidates.
    pub fn first_places(&mut self, n: usize) -> (&[f32], &mut [u32], &mut [f32]) {
        let (ranked, sorted) = self.ranking.parts_mut();
        let n = n.min(ranked.len());
        self.selected.clear();
        let places = ranked[..n].iter().map(|&i| self.indices[i as usize]);
        self.selected.extend(places);
        (&self.logits, &mut self.selected, &mut sorted[..n])
    }

    /// Ranks the `n` largest candidates, or all if there are fewer, after [`sum`](Self::sum).
    pub fn rank_top(&mut self, n: usize) {
        let n = n.min(self.logits.len());
        self.rank_down_to(self.binades.key_for(n));
        if self.ranking.indices().len() < n {
            self.rank_down_to(0.0);
        }
    }

    /// Returns the properties of the array of candidates.
    #[inline]
    pub fn column(&self) -> Column {
        self.column
    }
}

/// Computes the exponentials of logits, relative to `max`, and returns their approximate sum.
fn exponentials(logits: &[f32], max: f32, es: &mut Vec<f32>) -> f64 {
    es.clear();
    es.extend_from_slice(logits);
    let mut sums = [0.0; CHUNK / SUM_BLOCK];
    let exponentiate = |es: &mut [f32]| exp_sum_double(es, max, &mut sums);
    es.chunks_mut(CHUNK).map(exponentiate).sum()
}

/// Returns a probability whose term in an entropy is less than `nothing`.
fn smallest_for(nothing: f32) -> f32 {
    let mut p = nothing;
    for _ in 0..4 {
        p = 0.9 * nothing / -libm::ln(p);
    }
    p
}
