//! Metrics of the distribution of the next token: entropy, surprisal, rolling perplexity.
//!
//! There are two levels. *Model* metrics read the raw logits, before any filter. *Sampling* metrics
//! read the candidates that the filters have left, from which the token is drawn. No function of
//! this module changes a logit.
//!
//! Let m be the largest logit and d = x - m for each other logit x. Let Z be the sum of exp(d) and
//! S the sum of -d exp(d) over these other logits. Then:
//! - log-sum-exp = m + ln(1 + Z),
//! - entropy = ln(1 + Z) + S / (1 + Z) (Shannon 1948),
//! - surprisal of a token = -d + ln(1 + Z).
//!
//! Every term of entropy and surprisal is at or above 0, so nothing cancels, however peaked the
//! distribution is, and whatever offset all logits share. Z leaves out the largest logit's own
//! term, 1, so that ln(1 + Z) keeps its digits when Z is tiny. Exponentials are `float`s with a
//! relative error of at most 4e-7. Up to 32 terms of a sum are added as `float`s, and the partial
//! sums as `double`s. So entropy and surprisal are within a millionth of their values in
//! `double` arithmetic. In log-sum-exp, m may cancel the logarithm, so its error is at most a
//! millionth in absolute terms. There is one pass over the vocabulary, which reads 4 bytes per
//! logit (2 in half precision) and takes 13 vector operations per 16 logits, in chunks that stay in
//! the first-level cache. It costs about four times as much as a maximum alone. The last bits
//! depend on the instruction set.
//!
//! NaN counts as minus infinity, which is a masked token of probability 0. A logit of plus infinity
//! takes all the probability. If there are several, the first one does.
//!
//! # Example
//!
//! ```
//! use llama_sieve::metrics::{self, Base, RollingPerplexity};
//!
//! let logits = [1.0, 1.0, f32::NEG_INFINITY, 1.0, 1.0];
//! assert_eq!(metrics::entropy(&logits, Base::Bits), Some(2.0));
//! assert_eq!(metrics::surprisal(&logits, 3, Base::Bits), Some(2.0));
//!
//! let mut perplexity = RollingPerplexity::default();
//! perplexity.add(metrics::surprisal(&logits, 0, Base::Nats).unwrap());
//! assert!((perplexity.value() - 4.0).abs() < 1e-6);
//! ```
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use crate::algorithms::kth_largest::nearly_kth_largest;
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::online_softmax::Sums;
use crate::simd::libm::exp_f64;
use crate::token::{Token, TokenData, comparable};

/// The unit of information.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Base {
    /// Natural logarithms.
    #[default]
    Nats,
    /// Logarithms to base 2.
    Bits,
}

impl Base {
    /// Converts a number of nats to this unit.
    fn of_nats(self, nats: f64) -> f32 {
        match self {
            Base::Nats => nats as f32,
            Base::Bits => (nats / std::f64::consts::LN_2) as f32,
        }
    }
}

/// The sums from which every metric of one distribution follows. Summaries of parts can be merged.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Summary(Sums);

impl Summary {
    /// Returns the summary of `logits`, of any number and in any precision. Takes one pass.
    pub fn of<'l>(logits: impl Into<Logits<'l>>) -> Self {
        let mut summary = Self::default();
        summary.add(logits.into(), &mut []);
        summary
    }

    /// Returns the summary of the logits of `candidates`; their probabilities are not read.
    // In bounds: a chunk has at most `CHUNK` candidates.
    pub fn of_candidates(candidates: &[TokenData]) -> Self {
        let mut summary = Self::default();
        let mut buffer = [0.0f32; CHUNK];
        for chunk in candidates.chunks(CHUNK) {
            let logits = &mut buffer[..chunk.len()];
            for (logit, candidate) in logits.iter_mut().zip(chunk) {
                *logit = candidate.logit;
            }
            summary.add(Logits::F32(logits), &mut []);
        }
        summary
    }

    /// Returns the summary of `logits`, and writes the `n` most probable tokens into `top` in
    /// descending order, or fewer if fewer have a probability above 0. Among equal logits the lower
    /// token comes first. Their `p` is unspecified. Takes one pass and a sort of `n` tokens. The
    /// pass omits the sum for the entropy unless `measured` is true.
    // In bounds: each block of the vocabulary has a maximum.
    pub(crate) fn with_most_probable(
        logits: Logits<'_>,
        n: usize,
        measured: bool,
        top: &mut Vec<TokenData>,
    ) -> Self {
        let (mut all, mut maxima) = (Self::default(), vec![0.0; logits.len().div_ceil(GROUP)]);
        for start in (0..logits.len()).step_by(CHUNK) {
            let part = logits.part(start, logits.len().min(start + CHUNK));
            let maxima = &mut maxima[start / GROUP..][..part.len().div_ceil(GROUP)];
            match measured {
                true => all.add(part, maxima),
                false => all.add_mass(part, maxima),
            }
        }
        top.clear();
        if !all.is_defined() {
            return all;
        }
        // At least `n` blocks reach the threshold, or all that have a token of probability above 0.
        let threshold = nearly_kth_largest(&maxima, n.max(1)).unwrap_or(f32::MIN);
        logits.collect(&maxima, 0, threshold, top);
        let descending = |a: &TokenData, b: &TokenData| {
            let by_logit = b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal);
            by_logit.then(a.id.cmp(&b.id))
        };
        if n < top.len() {
            top.select_nth_unstable_by(n, descending);
            top.truncate(n);
        }
        top.sort_unstable_by(descending);
        all
    }

    /// Adds the next logits of a stream that is split at multiples of [`CHUNK`]. Writes the largest
    /// logit of each block into `maxima`, unless that is empty.
    pub(crate) fn add(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        self.0.add(logits, maxima);
    }

    /// Adds the next logits of a stream like [`add`](Self::add), but without the sum for the
    /// entropy.
    pub(crate) fn add_mass(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        self.0.add_mass(logits, maxima);
    }

    /// Adds the summary of other logits of the same distribution.
    pub fn merge(&mut self, other: &Self) {
        self.0.merge(&other.0);
    }

    /// Returns the summary of the logits that remain when those in `gone` are removed; `largest` is
    /// the largest one that remains. The time depends only on the number of logits in `gone`.
    ///
    /// `None` if the largest logit is infinite, or if the difference has lost its precision,
    /// because the removed logits had nearly all of the probability. The largest logit may be among
    /// them, since its term is exact.
    pub(crate) fn without(
        &self,
        gone: impl IntoIterator<Item = f32>,
        largest: f32,
    ) -> Option<Self> {
        /// The maximum decrease of the largest logit for which the difference is precise enough.
        const DEEPEST: f64 = 20.0;
        /// The maximum probability that may be removed, as a multiple of the remaining probability,
        /// for the difference to be precise enough.
        const MOST_GONE: f64 = 8.0;
        let Sums { max, .. } = self.0;
        let below = |logit: f32| f64::from(max) - f64::from(logit);
        let depth = below(largest);
        if !max.is_finite() || !(0.0..=DEEPEST).contains(&depth) {
            return None;
        }
        let mut left = self.0;
        let mut gone_mass = 0.0;
        let mut has_max = true;
        let unmasked = gone.into_iter().map(comparable);
        for logit in unmasked.filter(|&logit| logit > f32::NEG_INFINITY) {
            left.unmasked = left.unmasked.checked_sub(1)?;
            if logit == max && has_max {
                has_max = false;
                continue;
            }
            let term = exp_f64(-below(logit));
            gone_mass += term;
            left.rest -= term;
            left.spread -= below(logit) * term;
        }
        let own = exp_f64(-depth);
        if !has_max {
            left.rest -= own;
            left.spread -= depth * own;
        } else if depth > 0.0 {
            return None;
        }
        let rest = left.rest.max(0.0);
        if gone_mass > MOST_GONE * (own + rest) {
            return None;
        }
        Some(Self(Sums {
            max: largest,
            rest: rest / own,
            spread: ((left.spread - depth * rest) / own).max(0.0),
            unmasked: left.unmasked,
        }))
    }

    /// Returns the number of logits above minus infinity.
    pub fn unmasked(&self) -> usize {
        self.0.unmasked
    }

    /// Returns the largest logit; minus infinity if every one is masked.
    pub fn max(&self) -> f32 {
        self.0.max
    }

    /// True if there is a token of probability above 0. Otherwise no metric is defined.
    pub fn is_defined(&self) -> bool {
        self.0.max > f32::NEG_INFINITY
    }

    /// Returns the sum of exp(x - [`max`](Self::max)) over all logits x, which is 1 or more.
    pub fn mass(&self) -> f64 {
        1.0 + self.0.rest
    }

    /// Returns the logarithm of the sum of exp(x) over all logits x; minus infinity if every logit
    /// is masked.
    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.0.max) + self.0.rest.ln_1p()
    }

    /// Returns the entropy in nats; `None` if every logit is masked.
    pub fn entropy(&self) -> Option<f64> {
        let entropy = self.0.rest.ln_1p() + self.0.spread / self.mass();
        self.is_defined().then_some(entropy)
    }

    /// Returns the surprisal, in nats, of a token of the distribution, given its logit. It is
    /// infinite for a masked token; `None` if every logit is masked.
    pub fn surprisal(&self, logit: f32) -> Option<f64> {
        if !self.is_defined() {
            return None;
        }
        let logit = comparable(logit);
        if logit == f32::INFINITY {
            return Some(0.0);
        }
        Some(f64::from(self.0.max) - f64::from(logit) + self.0.rest.ln_1p())
    }
}

/// Returns the entropy of the model's distribution; `logits` are the raw ones, indexed by token.
///
/// It is between 0 (certain) and the logarithm of the number of tokens (all equal). `None` if there
/// is no logit, or if every one is masked.
pub fn entropy(logits: &[f32], base: Base) -> Option<f32> {
    Some(base.of_nats(Summary::of(logits).entropy()?))
}

/// Returns the surprisal of `token` in the model's distribution, -log p; `logits` are the raw ones,
/// indexed by token.
///
/// It is infinite for a masked token. `None` if `token` is not in the vocabulary, or if every token
/// is masked.
pub fn surprisal(logits: &[f32], token: Token, base: Base) -> Option<f32> {
    let index = usize::try_from(token).ok()?;
    let (before, from) = logits.split_at_checked(index)?;
    let &logit = from.first()?;
    if logit == f32::INFINITY && before.contains(&logit) {
        return Some(f32::INFINITY);
    }
    Some(base.of_nats(Summary::of(logits).surprisal(logit)?))
}

/// Returns the entropy of the distribution over `candidates`, computed from their logits. `None` if
/// there is no candidate, or if every candidate is masked.
pub fn candidates_entropy(candidates: &[TokenData], base: Base) -> Option<f32> {
    Some(base.of_nats(Summary::of_candidates(candidates).entropy()?))
}

/// Returns the surprisal of `token` in the distribution over `candidates`, computed from their
/// logits.
///
/// It is infinite for a token that is masked or not among them, since the filters left it no
/// probability. `None` if no candidate has a probability.
pub fn candidates_surprisal(candidates: &[TokenData], token: Token, base: Base) -> Option<f32> {
    let summary = Summary::of_candidates(candidates);
    if !summary.is_defined() {
        return None;
    }
    let index = candidates.iter().position(|c| c.id == token);
    let (before, from) = candidates.split_at(index.unwrap_or(candidates.len()));
    let Some(&TokenData { logit, .. }) = from.first() else {
        return Some(f32::INFINITY);
    };
    if logit == f32::INFINITY && before.iter().any(|c| c.logit == logit) {
        return Some(f32::INFINITY);
    }
    Some(base.of_nats(summary.surprisal(logit)?))
}

/// The perplexity of the text so far: the exponential of the mean surprisal of its tokens (Jelinek
/// et al. 1977).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RollingPerplexity {
    sum: f64,
    count: usize,
}

impl RollingPerplexity {
    /// Adds the surprisal of one token, in nats. NaN is ignored. An infinite surprisal, of a token
    /// to which the model gave probability 0, makes the perplexity infinite.
    pub fn add(&mut self, surprisal_nats: f32) {
        if surprisal_nats.is_nan() {
            return;
        }
        self.sum += f64::from(surprisal_nats);
        self.count += 1;
    }

    /// Returns the perplexity: 1 if every token was certain, n if each was as uncertain as a choice
    /// among n equally likely tokens. NaN before the first token.
    pub fn value(&self) -> f32 {
        (self.sum / self.count as f64).exp() as f32
    }

    /// Returns the number of tokens added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Forgets all tokens.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
