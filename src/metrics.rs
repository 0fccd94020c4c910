//! What a distribution of the next token looks like: entropy, surprisal, rolling perplexity.
//!
//! Two levels. *Model* metrics read the raw logits, before any filter: what the model believes. *Sampling* metrics read the candidates
//! that filters have left: what the token was drawn from. Metrics observe; nothing here changes a logit.
//!
//! With m the largest logit, d = x - m of each other logit x, Z = sum of exp(d) and S = sum of -d exp(d) over those others:
//! - log-sum-exp = m + ln(1 + Z),
//! - entropy = ln(1 + Z) + S / (1 + Z) (Shannon 1948),
//! - surprisal of a token = -d + ln(1 + Z).
//!
//! Every term is at or above 0, so nothing cancels, however peaked the distribution or large an offset common to all logits. The largest logit's own
//! 1 stays out of Z, so that ln(1 + Z) keeps its digits when Z is tiny. Sums are `double`; d is exact. A vocabulary is read once, in blocks that fit the
//! first-level cache: each block is summed relative to its own largest logit, and blocks are merged.
//!
//! Undefined and infinite logits: NaN counts as minus infinity, a masked token of probability 0. A logit of plus infinity takes all the probability; of several,
//! the first.
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

use crate::kernels::math::{exp, exp_f64};
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
    /// A number of nats in this unit.
    fn of_nats(self, nats: f64) -> f32 {
        match self {
            Base::Nats => nats as f32,
            Base::Bits => (nats / std::f64::consts::LN_2) as f32,
        }
    }
}

/// How many logits are summed at a time: 4 KiB.
pub(crate) const BLOCK: usize = 1024;

/// The sums that every metric of one distribution follows from. Summaries of parts can be merged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    max: f32,
    /// Sum of exp(d) over all but one largest logit.
    rest: f64,
    /// Sum of -d exp(d) over the same.
    spread: f64,
}

impl Default for Summary {
    /// Of no logits.
    fn default() -> Self {
        Self {
            max: f32::NEG_INFINITY,
            rest: 0.0,
            spread: 0.0,
        }
    }
}

impl Summary {
    /// Of `logits`, any number of them. One pass of 4 bytes per logit, one `exp` each.
    pub fn of(logits: &[f32]) -> Self {
        let mut summary = Self::default();
        for block in logits.chunks(BLOCK) {
            summary.add_block(block);
        }
        summary
    }

    /// Of the logits of `candidates`; their probabilities are not looked at.
    pub fn of_candidates(candidates: &[TokenData]) -> Self {
        let mut summary = Self::default();
        let mut buffer = [0.0f32; BLOCK];
        for block in candidates.chunks(BLOCK) {
            let logits = &mut buffer[..block.len()];
            for (logit, candidate) in logits.iter_mut().zip(block) {
                *logit = candidate.logit;
            }
            summary.add_block(logits);
        }
        summary
    }

    /// Adds logits that fit the cache.
    pub(crate) fn add_block(&mut self, block: &[f32]) {
        if let Some(part) = Self::of_block(block) {
            self.merge(&part);
        }
    }

    /// `None` if every logit is masked.
    fn of_block(block: &[f32]) -> Option<Self> {
        let at = argmax(block)?;
        let max = block[at];
        let mut part = Self {
            max,
            ..Self::default()
        };
        if max == f32::INFINITY {
            return Some(part);
        }
        part.add_terms(&block[..at]);
        part.add_terms(&block[at + 1..]);
        if part.rest < TINY {
            // So certain that terms matter which the groups drop.
            (part.rest, part.spread) = (0.0, 0.0);
            part.add_terms_singly(&block[..at]);
            part.add_terms_singly(&block[at + 1..]);
        }
        Some(part)
    }

    fn add_terms(&mut self, logits: &[f32]) {
        let (groups, tail) = logits.as_chunks::<GROUP>();
        let mut mass = [0.0f64; GROUP];
        let mut spread = [0.0f64; GROUP];
        for group in groups {
            let (terms, weighted) = terms_of(group, self.max);
            for i in 0..GROUP {
                mass[i] += f64::from(terms[i]);
                spread[i] += f64::from(weighted[i]);
            }
        }
        self.rest += mass.iter().sum::<f64>();
        self.spread += spread.iter().sum::<f64>();
        self.add_terms_singly(tail);
    }

    fn add_terms_singly(&mut self, logits: &[f32]) {
        for &logit in logits {
            // Exact in double, as no difference of two floats is in float.
            let d = f64::from(comparable(logit)) - f64::from(self.max);
            if d < NEGLIGIBLE {
                continue;
            }
            let term = exp_of_difference(d);
            self.rest += term;
            self.spread -= d * term;
        }
    }

    /// Adds the summary of other logits of the same distribution.
    pub fn merge(&mut self, other: &Self) {
        let (mut high, mut low) = (*self, *other);
        if low.max > high.max {
            std::mem::swap(&mut high, &mut low);
        }
        if low.max > f32::NEG_INFINITY && high.max < f32::INFINITY {
            let d = f64::from(low.max) - f64::from(high.max);
            let factor = exp_f64(d);
            let mass = 1.0 + low.rest;
            high.rest += mass * factor;
            high.spread += (low.spread - d * mass) * factor;
        }
        *self = high;
    }

    /// The largest logit; minus infinity if every one is masked.
    pub fn max(&self) -> f32 {
        self.max
    }

    /// Whether there is a token of probability above 0. If not, no metric is defined.
    pub fn is_defined(&self) -> bool {
        self.max > f32::NEG_INFINITY
    }

    /// The sum of exp(x - [`max`](Self::max)) over all logits x: 1 or more.
    pub fn mass(&self) -> f64 {
        1.0 + self.rest
    }

    /// ln of the sum of exp(x); minus infinity if every logit is masked.
    pub fn log_sum_exp(&self) -> f64 {
        f64::from(self.max) + self.rest.ln_1p()
    }

    /// The entropy in nats; `None` if every logit is masked.
    pub fn entropy(&self) -> Option<f64> {
        let entropy = self.rest.ln_1p() + self.spread / self.mass();
        self.is_defined().then_some(entropy)
    }

    /// The surprisal in nats of a token of the distribution, by its logit: infinite for a masked one; `None` if every logit is masked.
    pub fn surprisal(&self, logit: f32) -> Option<f64> {
        if !self.is_defined() {
            return None;
        }
        let logit = comparable(logit);
        if logit == f32::INFINITY {
            return Some(0.0);
        }
        Some(f64::from(self.max) - f64::from(logit) + self.rest.ln_1p())
    }
}

/// Logits whose terms are computed side by side: the loops over a group have no branch and no call, so that a compiler makes vector instructions of them.
const GROUP: usize = 16;
/// The groups drop what is below e^-87, the least power that a normal `float` holds.
const DROPPED: f32 = -87.0;
/// A sum in which such a term could be seen.
const TINY: f64 = 1e-28;

/// exp(d) and -d exp(d) for each logit's d = logit - max, which is not above 0: within 3e-7 of themselves.
///
/// d in `float` loses up to 1e-6 of a term; what it loses is known exactly (Dekker's difference) and put back into the reduced argument. exp is 2^k exp(r), |r| <= ln 2 / 2,
/// by its Taylor polynomial of degree 7, whose error is 5e-9.
#[inline]
fn terms_of(group: &[f32; GROUP], max: f32) -> ([f32; GROUP], [f32; GROUP]) {
    /// Adding it leaves a `float`'s integer part in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let mut terms = [0.0; GROUP];
    let mut weighted = [0.0; GROUP];
    for i in 0..GROUP {
        let rounded = group[i] - max;
        // False for NaN, too.
        let counts = rounded >= DROPPED;
        let x = if counts { group[i] } else { max };
        let d = if counts { rounded } else { 0.0 };
        let back = d - x;
        let lost = (x - (d - back)) - (max + back);
        let shifted = d * std::f32::consts::LOG2_E + ROUND;
        let k = shifted - ROUND;
        let r = ((d - k * LN_2_HIGH) - k * LN_2_LOW) + lost;
        let mut e = 1.0 / 5040.0;
        for factor in [
            1.0 / 720.0,
            1.0 / 120.0,
            1.0 / 24.0,
            1.0 / 6.0,
            0.5,
            1.0,
            1.0,
        ] {
            e = e * r + factor;
        }
        let power = shifted
            .to_bits()
            .wrapping_sub(ROUND.to_bits())
            .wrapping_add(127)
            << 23;
        let term = e * f32::from_bits(power);
        terms[i] = if counts { term } else { 0.0 };
        weighted[i] = -d * terms[i];
    }
    (terms, weighted)
}

/// exp(d) below this, relative to the largest 1, is beyond what a `double` sum keeps, and beyond a `float` result.
const NEGLIGIBLE: f64 = -120.0;
/// Below this `expf` gives up digits.
const NEARLY_SUBNORMAL: f64 = -80.0;

/// exp(d) for d in [-120, 0], within 1e-7 of itself: `expf` at the nearest `float`, corrected by the first order of what that left.
#[inline]
fn exp_of_difference(d: f64) -> f64 {
    if d < NEARLY_SUBNORMAL {
        return exp_f64(d);
    }
    let rounded = d as f32;
    f64::from(exp(rounded)) * (1.0 + (d - f64::from(rounded)))
}

/// Index of the largest logit, the first of equals; `None` if every one is masked.
pub(crate) fn argmax(logits: &[f32]) -> Option<usize> {
    let max = largest(logits);
    if max == f32::NEG_INFINITY {
        return None;
    }
    logits.iter().position(|&logit| logit == max)
}

/// The largest logit; minus infinity if every one is masked.
fn largest(logits: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let (groups, tail) = logits.as_chunks::<GROUP>();
    let mut lanes = [f32::NEG_INFINITY; GROUP];
    for group in groups {
        for (lane, &logit) in lanes.iter_mut().zip(group) {
            *lane = larger(*lane, logit);
        }
    }
    lanes
        .iter()
        .chain(tail)
        .copied()
        .fold(f32::NEG_INFINITY, larger)
}

/// Entropy of the model's distribution: `logits` are the raw ones, indexed by token.
///
/// Between 0 (certain) and the logarithm of the number of tokens (all equal). `None` if there is no logit, or every one is masked.
pub fn entropy(logits: &[f32], base: Base) -> Option<f32> {
    Some(base.of_nats(Summary::of(logits).entropy()?))
}

/// Surprisal of `token` in the model's distribution: -log p. `logits` are the raw ones, indexed by token.
///
/// Infinite for a masked token. `None` if `token` is not in the vocabulary, or every token is masked.
pub fn surprisal(logits: &[f32], token: Token, base: Base) -> Option<f32> {
    let index = usize::try_from(token).ok()?;
    let &logit = logits.get(index)?;
    if logit == f32::INFINITY && logits[..index].contains(&logit) {
        return Some(f32::INFINITY);
    }
    Some(base.of_nats(Summary::of(logits).surprisal(logit)?))
}

/// Entropy of the distribution over `candidates`, by their logits. `None` if there is none, or every one is masked.
pub fn candidates_entropy(candidates: &[TokenData], base: Base) -> Option<f32> {
    Some(base.of_nats(Summary::of_candidates(candidates).entropy()?))
}

/// Surprisal of `token` in the distribution over `candidates`, by their logits.
///
/// Infinite for a token that is masked or not among them: the filters left it no probability. `None` if no candidate has any.
pub fn candidates_surprisal(candidates: &[TokenData], token: Token, base: Base) -> Option<f32> {
    let summary = Summary::of_candidates(candidates);
    if !summary.is_defined() {
        return None;
    }
    let Some(index) = candidates.iter().position(|c| c.id == token) else {
        return Some(f32::INFINITY);
    };
    let logit = candidates[index].logit;
    if logit == f32::INFINITY && candidates[..index].iter().any(|c| c.logit == logit) {
        return Some(f32::INFINITY);
    }
    Some(base.of_nats(summary.surprisal(logit)?))
}

/// Perplexity of a text so far: the exponential of the mean surprisal of its tokens (Jelinek et al. 1977).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RollingPerplexity {
    sum: f64,
    count: usize,
}

impl RollingPerplexity {
    /// Adds the surprisal of one token, in nats. A NaN is left out; an infinite surprisal (of a token that the model held impossible) makes the
    /// perplexity infinite.
    pub fn add(&mut self, surprisal_nats: f32) {
        if surprisal_nats.is_nan() {
            return;
        }
        self.sum += f64::from(surprisal_nats);
        self.count += 1;
    }

    /// 1 for a text without surprise, n where each token was as uncertain as one of n equally likely. NaN before the first token.
    pub fn value(&self) -> f32 {
        (self.sum / self.count as f64).exp() as f32
    }

    /// How many tokens were added.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Back to no tokens.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
