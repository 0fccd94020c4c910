//! Mirostat, versions 1 and 2: keeps the surprisal of the text near a target by feedback (Basu et
//! al. 2020, arXiv:2007.14966).
//!
//! Both built-ins sort all candidates, cut, draw with std::discrete_distribution on std::mt19937
//! (in libstdc++ no draw for a single candidate), and move their bound `mu`, which starts at twice
//! the target, by `eta` times the error. Version 1 estimates from the first `m` candidates how fast
//! probabilities fall (Zipf's law) and computes how many to keep. Version 2 keeps those of
//! surprisal up to `mu`.
//!
//! Here the sum of the exponentials is usually found without sorting (see [`DescendingSum`]). Only
//! the kept candidates are then sorted. Most of them were already selected for the sum. Version 2
//! takes one `log2` per candidate that it keeps.

use std::ffi::CStr;

use super::lists::Kept;
use crate::algorithms::descending_sum::DescendingSum;
use crate::algorithms::host_order::{HostOrder, has_few_values, is_easy, is_replayed, overflows};
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::host_profile::{Fused, fuses};
use crate::pool::{Pool, Whole};
use crate::rng::SeededMt19937;
use crate::sampler::{About, Kind, Sampler, Tell, scratch};
use crate::simd::libm::{as_int, fma, ln, log2, pow};
use crate::token::{Token, TokenData};

/// The share of the probabilities that is summed without exact exponentials. It is so large that
/// few candidates are selected, and so small that the sum passes a power of two within that share
/// in only a few of a hundred arrays.
const BESIDE: f32 = 0.15;

/// The kept candidates count as most of an array if they are more than one in this many.
const MOST_OF: usize = 4;

/// The parts that both versions share: the feedback loop, the kept candidates and the draw.
#[derive(Clone, Debug)]
struct Feedback {
    tau: f32,
    eta: f32,
    mu: f32,
    rng: SeededMt19937,
    order: Scratch<HostOrder>,
    descending: Scratch<DescendingSum>,
    work: Scratch<Workspace>,
    kept: Scratch<Kept>,
    /// True after the first array. This affects only the speed.
    began: bool,
}

impl Feedback {
    fn new(seed: u32, tau: f32, eta: f32) -> Self {
        Self {
            tau,
            eta,
            mu: 2.0 * tau,
            rng: SeededMt19937::new(seed),
            order: Scratch::default(),
            descending: Scratch::default(),
            work: Scratch::default(),
            kept: Scratch::default(),
            began: false,
        }
    }

    /// True at the first call, which is for the first array.
    fn begins(&mut self) -> bool {
        !std::mem::replace(&mut self.began, true)
    }

    /// Keeps the first `n` of the ranked candidates, with ties in the host's order.
    // In bounds: the ranking holds indices of candidates.
    fn keep_first(&mut self, candidates: &mut Candidates<'_>, n: usize) {
        let (logits, places, sorted) = self.descending.first_places(n);
        self.order.settle(logits, logits.len(), places, sorted);
        let data = candidates.as_slice();
        self.kept.clear();
        self.kept.extend(places.iter().map(|&i| data[i as usize]));
        candidates.replace(&self.kept);
        candidates.set_sorted(true);
    }

    /// Keeps the first candidates of a vocabulary's logits, with ties in the host's order. `rank`
    /// ranks them, given the sum of the exponentials of all candidates, and returns their number.
    /// Returns false if that is not possible without sorting all of them.
    // In bounds: the ranking holds tokens of the vocabulary.
    fn keep_of_whole(
        &mut self,
        mut whole: Whole<'_, '_>,
        rank: impl FnOnce(&mut Self, f32) -> Option<usize>,
    ) -> bool {
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        self.warm_up(logits.len());
        let sum = self.descending.sum_of_logits(logits, max, BESIDE);
        let Some(n) = self.usable(sum).and_then(|sum| rank(self, sum)) else {
            return false;
        };
        let (logits, places, sorted) = self.descending.first_places(n);
        self.order.settle(logits, logits.len(), places, sorted);
        let candidate = |&place: &u32| TokenData::new(place as Token, logits[place as usize]);
        self.kept.clear();
        self.kept.extend(places.iter().map(candidate));
        whole.keep(&self.kept, true);
        true
    }

    /// Returns the sum, unless the largest logit [`overflows`]: the built-in's order then does not
    /// begin with it.
    fn usable(&self, sum: Option<f32>) -> Option<f32> {
        sum.filter(|_| !overflows(self.descending.column().max))
    }

    /// Computes the probabilities of the candidates that were kept, draws one, and corrects `mu` by
    /// its surprisal.
    fn select(&mut self, candidates: &mut Candidates<'_>) {
        candidates.softmax(&mut self.work);
        self.draw(candidates);
    }

    /// Draws one of the candidates, whose probabilities are already computed, and corrects `mu` by
    /// its surprisal.
    // In bounds: a candidate is always kept, and `discrete` returns the index of one.
    fn draw(&mut self, candidates: &mut Candidates<'_>) {
        let chosen = self.rng.stream.discrete(&mut self.work);
        let data = candidates.as_slice();
        let surprisal = -log2(data[chosen].p);
        let error = surprisal - self.tau;
        self.mu = match fuses(Fused::Correction) {
            true => fma(-self.eta, error, self.mu),
            false => self.mu - self.eta * error,
        };
        candidates.select(Some(chosen));
    }

    fn tell_parameters(&self, to: Tell<'_>) {
        to("tau", f64::from(self.tau));
        to("eta", f64::from(self.eta));
        to("seed", f64::from(self.rng.current_seed()));
    }

    fn tell_next(&self, to: Tell<'_>) {
        to("mu", f64::from(self.mu));
        to("draw", self.rng.stream.clone().uniform());
    }

    scratch!(order, descending, work, kept);

    fn reset(&mut self) {
        self.mu = 2.0 * self.tau;
        self.rng.restart();
    }
}

/// Defines the methods of both versions that a sieve needs to use them as a stage.
macro_rules! stage {
    ($version:ident) => {
        impl $version {
            /// Returns `mu`, the bound on the surprisal.
            pub(crate) fn mu(&self) -> f32 {
                self.feedback.mu
            }

            pub(crate) fn set_mu(&mut self, mu: f32) {
                self.feedback.mu = mu;
            }

            pub(crate) fn rng(&self) -> &SeededMt19937 {
                &self.feedback.rng
            }

            pub(crate) fn rng_mut(&mut self) -> &mut SeededMt19937 {
                &mut self.feedback.rng
            }
        }
    };
}

stage!(Mirostat);
stage!(MirostatV2);

/// The sampler of mirostat version 1.
#[derive(Clone, Debug)]
pub struct Mirostat {
    n_vocab: i32,
    m: i32,
    feedback: Feedback,
}

impl Mirostat {
    /// Returns a sampler that aims at a surprisal of `tau` bits per token. Each draw moves the
    /// bound by `eta` times the error, and the exponent of Zipf's law is estimated from the first
    /// `m` candidates. `seed` 0xFFFFFFFF means a random seed, which changes at each reset.
    pub fn new(n_vocab: i32, seed: u32, tau: f32, eta: f32, m: i32) -> Self {
        Self {
            n_vocab,
            m,
            feedback: Feedback::new(seed, tau, eta),
        }
    }

    /// Changes the parameters; the bound and the random stream continue.
    pub(crate) fn set(&mut self, tau: f32, eta: f32, m: i32) {
        self.feedback.tau = tau;
        self.feedback.eta = eta;
        self.m = m;
    }

    /// Changes the size of the vocabulary.
    pub(crate) fn set_n_vocab(&mut self, n_vocab: i32) {
        self.n_vocab = n_vocab;
    }

    /// Cuts without sorting all candidates. Returns false if that is not possible.
    fn keep_by_sum(&mut self, candidates: &mut Candidates<'_>) -> bool {
        let estimated = usize::try_from(self.m).unwrap_or(0);
        // If the estimate takes a large part of the candidates, or all, a sort is faster.
        if candidates.is_sorted() || estimated < 1 || estimated > candidates.len() / 8 {
            return false;
        }
        let data = candidates.as_slice();
        if self.feedback.begins() && is_easy(data) {
            return false;
        }
        let sum = self.feedback.descending.sum(data, BESIDE);
        let sum = self.feedback.usable(sum);
        let rank = |sum| self.feedback.rank_estimated(sum, estimated, self.n_vocab);
        let Some(kept) = sum.and_then(rank) else {
            return false;
        };
        self.feedback.keep_first(candidates, kept);
        true
    }

    /// Cuts the candidates of a vocabulary's logits without sorting all of them. Returns false if
    /// that is not possible.
    fn keep_of_whole(&mut self, whole: Whole<'_, '_>) -> bool {
        let estimated = usize::try_from(self.m).unwrap_or(0);
        if estimated < 1 || estimated > whole.n_vocab() / 8 {
            return false;
        }
        self.feedback.keep_of_whole(whole, |feedback, sum| {
            feedback.rank_estimated(sum, estimated, self.n_vocab)
        })
    }
}

/// The cut of version 1.
impl Feedback {
    /// Ranks the candidates to keep, given the sum of the exponentials of all candidates and the
    /// number of candidates for the estimate. Returns their number; `None` if that is not possible.
    fn rank_estimated(&mut self, sum: f32, estimated: usize, n_vocab: i32) -> Option<usize> {
        let ps = self.descending.probabilities(sum, estimated)?;
        let s = zipf_exponent(ps, estimated - 1);
        let kept = self.expected(s, n_vocab);
        self.descending.rank_top(kept);
        Some(kept)
    }

    /// Returns the number of candidates that keep the expected surprisal at `mu`, where
    /// probabilities fall with the exponent `s`.
    fn expected(&self, s: f32, n_vocab: i32) -> usize {
        let epsilon = s - 1.0;
        let numerator = epsilon * pow(2.0, self.mu);
        let k = pow(numerator / (1.0 - pow(n_vocab as f32, -epsilon)), 1.0 / s);
        usize::try_from(as_int(k)).unwrap_or(0).max(1)
    }
}

/// Returns the exponent of Zipf's law for these probabilities, by least squares on the first
/// `pairs` pairs of adjacent ones.
fn zipf_exponent(ps: &[f32], pairs: usize) -> f32 {
    let mut products = 0.0f32;
    let mut squares = 0.0f32;
    let fused = fuses(Fused::Estimate);
    for (i, pair) in ps.windows(2).take(pairs).enumerate() {
        let t = ln((i + 2) as f32 / (i + 1) as f32);
        let b = ln(pair[0] / pair[1]);
        (products, squares) = match fused {
            true => (fma(t, b, products), fma(t, t, squares)),
            false => (products + t * b, squares + t * t),
        };
    }
    products / squares
}

impl Sampler for Mirostat {
    const KIND: Kind = Kind::Selector;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"mirostat"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => {
                self.feedback.tell_parameters(&mut *to);
                to("m", f64::from(self.m));
            }
            About::Next => self.feedback.tell_next(to),
            About::Token(_) => {}
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return candidates.select(None);
        }
        self.warm_up(candidates.len());
        if !self.keep_by_sum(candidates) {
            candidates.sort(&mut self.feedback.order);
            candidates.softmax(&mut self.feedback.work);
            // An `m` below 1 means all, as in the built-in's unsigned arithmetic.
            let pairs = usize::try_from(self.m.saturating_sub(1)).unwrap_or(usize::MAX);
            let s = zipf_exponent(self.feedback.work.values(), pairs);
            candidates.truncate(self.feedback.expected(s, self.n_vocab));
        }
        self.feedback.select(candidates);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        let is_kept = pool.whole().is_some_and(|whole| self.keep_of_whole(whole));
        pool.apply(|candidates| match is_kept {
            true => self.feedback.select(candidates),
            false => self.apply(candidates),
        });
    }

    fn reset(&mut self) {
        self.feedback.reset();
    }

    fn seed(&self) -> Option<u32> {
        Some(self.feedback.rng.current_seed())
    }

    scratch!(feedback);
}

/// The sampler of mirostat version 2.
#[derive(Clone, Debug)]
pub struct MirostatV2 {
    feedback: Feedback,
    /// True if most of the last array was kept. It is a prediction for the next array, and affects
    /// only the speed.
    kept_most: bool,
}

impl MirostatV2 {
    /// Returns a sampler that aims at a surprisal of `tau` bits per token, with corrections by
    /// `eta`. `seed` 0xFFFFFFFF means a random seed, which changes at each reset.
    pub fn new(seed: u32, tau: f32, eta: f32) -> Self {
        Self {
            feedback: Feedback::new(seed, tau, eta),
            kept_most: false,
        }
    }

    /// Changes the parameters; the bound and the random stream continue.
    pub(crate) fn set(&mut self, tau: f32, eta: f32) {
        self.feedback.tau = tau;
        self.feedback.eta = eta;
    }

    /// Cuts without sorting all candidates. Returns false if that is not possible.
    fn keep_by_sum(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() || !self.feedback.mu.is_finite() {
            return false;
        }
        let data = candidates.as_slice();
        if self.kept_most && is_replayed(data) {
            return false;
        }
        // At most 1 / p candidates have a probability of p or more.
        let can_keep_most = self.feedback.least() * (data.len() as f32) < MOST_OF as f32;
        if self.feedback.begins() && (can_keep_most && is_easy(data) || has_few_values(data)) {
            return false;
        }
        let sum = self.feedback.descending.sum(data, BESIDE);
        let keeps_most = |sum| self.feedback.keeps_most(sum, data.len());
        if can_keep_most && is_replayed(data) && sum.is_some_and(keeps_most) {
            return false;
        }
        let Some(sum) = self.feedback.usable(sum) else {
            return false;
        };
        let kept = self.feedback.rank_bounded(sum);
        self.feedback.keep_first(candidates, kept);
        true
    }

    /// Cuts the candidates of a vocabulary's logits without sorting all of them. Returns false if
    /// that is not possible.
    fn keep_of_whole(&mut self, whole: Whole<'_, '_>) -> bool {
        self.feedback.mu.is_finite()
            && self
                .feedback
                .keep_of_whole(whole, |feedback, sum| Some(feedback.rank_bounded(sum)))
    }
}

/// The cut of version 2.
impl Feedback {
    /// Returns the smallest probability that is kept.
    fn least(&self) -> f32 {
        pow(2.0, -self.mu)
    }

    /// True if more than a quarter of the `n` candidates are kept. If the host's sort is replayed
    /// anyway, sorting all of them is then faster than finding the kept ones.
    fn keeps_most(&self, sum: f32, n: usize) -> bool {
        self.descending.count_at_least(sum, self.least()) > n / MOST_OF
    }

    /// Ranks the candidates to keep, and perhaps some more, and returns the number to keep. `sum`
    /// is the sum of the exponentials of all candidates.
    fn rank_bounded(&mut self, sum: f32) -> usize {
        let least = self.least();
        let ps = self.descending.ranked_at_least(sum, least);
        // Only ranked candidates are kept; if all of them are, the cut is after the last one.
        let ranked = ps.len();
        kept_up_to(ps, self.mu).unwrap_or(ranked)
    }
}

/// Returns the number of these descending probabilities with a surprisal of at most `mu`, or 1 if
/// there are none; `None` if all have such a surprisal.
fn kept_up_to(ps: &[f32], mu: f32) -> Option<usize> {
    let first_above = ps.iter().position(|&p| -log2(p) > mu);
    first_above.map(|kept| kept.max(1))
}

impl Sampler for MirostatV2 {
    const KIND: Kind = Kind::Selector;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"mirostat-v2"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => self.feedback.tell_parameters(to),
            About::Next => self.feedback.tell_next(to),
            About::Token(_) => {}
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return candidates.select(None);
        }
        self.warm_up(candidates.len());
        if !self.keep_by_sum(candidates) {
            candidates.sort(&mut self.feedback.order);
            candidates.softmax(&mut self.feedback.work);
            match kept_up_to(self.feedback.work.values(), self.feedback.mu) {
                Some(kept) => {
                    self.kept_most = kept > candidates.len() / MOST_OF;
                    candidates.truncate(kept);
                }
                None => {
                    self.kept_most = true;
                    return self.feedback.draw(candidates);
                }
            }
        }
        self.feedback.select(candidates);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        let is_kept = pool.whole().is_some_and(|whole| self.keep_of_whole(whole));
        pool.apply(|candidates| match is_kept {
            true => self.feedback.select(candidates),
            false => self.apply(candidates),
        });
    }

    fn reset(&mut self) {
        self.feedback.reset();
    }

    fn seed(&self) -> Option<u32> {
        Some(self.feedback.rng.current_seed())
    }

    scratch!(feedback);
}

#[cfg(test)]
mod tests;
