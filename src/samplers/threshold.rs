//! Cuts at a probability that follows from the distribution: what top-a, epsilon, eta and p-less
//! have in common. llama.cpp has none of them.
//!
//! The candidates whose probability is at or above the threshold stay, in their order, so that of
//! equal ones all stay or none. The largest stay in any case. Where no logit is above minus
//! infinity there is no distribution, and all stay.
//!
//! The sums of the distribution are formed in one pass, right within a millionth (two passes for
//! p-less), and bound the threshold. Only where a candidate lies between the bounds is everything
//! computed again in `double`, as the definition has it.

use std::ffi::CStr;
use std::fmt::Debug;

use super::lists::{Kept, Places};
use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::kernels;
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::metrics::Summary;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::exp_f64;
use crate::token::{TokenData, comparable};

/// The numbers that a threshold is made of.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distribution {
    /// The number of candidates, masked ones included.
    pub n: usize,
    /// The largest probability.
    pub largest: f64,
    /// The entropy in nats; 0 unless the rule says that it needs it.
    pub entropy: f64,
    /// The sum of the squares of the probabilities; 0 unless the rule says that it needs it.
    pub collision: f64,
}

/// The least probability that is kept.
pub trait Rule: Clone + Debug + Send + 'static {
    /// The name of the sampler.
    const NAME: &'static CStr;
    /// True if it needs the entropy.
    const ENTROPY: bool = false;
    /// True if it needs the sum of the squares.
    const COLLISION: bool = false;

    /// Returns the threshold. It does not fall where the largest probability or the sum of the
    /// squares rises, and does not rise with the entropy.
    fn threshold(&self, of: &Distribution) -> f64;

    /// Returns the rule's parameter, by its name.
    fn parameter(&self) -> (&'static str, f64);
}

/// Keeps the candidates whose probability is at or above the threshold of a rule.
#[derive(Clone, Debug)]
pub struct Threshold<R> {
    rule: R,
    /// Scratch: the candidates that may be kept.
    places: Scratch<Places>,
    kept: Scratch<Kept>,
}

impl<R: Rule> Threshold<R> {
    /// Returns the sampler of a rule.
    pub(super) fn of(rule: R) -> Self {
        Self {
            rule,
            places: Scratch::default(),
            kept: Scratch::default(),
        }
    }

    /// Leaves of the collected candidates those that pass. `logits` are those of all candidates.
    fn settle(&mut self, bounds: Bounds, max: f32, logits: impl Iterator<Item = f32> + Clone) {
        let mut exact = None;
        let rule = &self.rule;
        self.kept.retain(|c| {
            let x = f64::from(c.logit);
            let is_doubtful = x >= bounds.least && x < bounds.sure;
            if !is_doubtful {
                return x >= bounds.sure;
            }
            let exact = exact.get_or_insert_with(|| Exact::of(rule, max, logits.clone()));
            exact.keeps(c.logit)
        });
    }
}

impl<R: Rule> Sampler for Threshold<R> {
    fn name(&self) -> &'static CStr {
        R::NAME
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            let (name, value) = self.rule.parameter();
            to(name, value);
        }
    }

    // In bounds: a chunk has at most `CHUNK` candidates; places are those of candidates.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() < 2 {
            return;
        }
        self.warm_up(candidates.len());
        let data = candidates.as_slice();
        let mut sums = Sums::default();
        let mut column = [0.0; CHUNK];
        for chunk in data.chunks(CHUNK) {
            let logits = &mut column[..chunk.len()];
            logits
                .iter_mut()
                .zip(chunk)
                .for_each(|(to, c)| *to = c.logit);
            sums.add::<R>(logits, &mut []);
        }
        let max = sums.all.max();
        let logits = data.iter().map(|c: &TokenData| c.logit);
        let bounds = sums.bounds(&self.rule, data.len());
        let bounds = bounds.unwrap_or_else(|| Exact::of(&self.rule, max, logits.clone()).bounds());
        if bounds.keep_all() {
            return;
        }
        kernels::at_least(data, 0, bounds.least_float(), &mut self.places);
        let near = self.places.iter().map(|&place| data[place as usize]);
        self.kept.extend(near);
        self.settle(bounds, max, logits);
        candidates.replace(&self.kept);
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let n = whole.n_vocab();
        if n <= 1 {
            return false;
        }
        // However few are kept, a vocabulary of this size has warmed up.
        self.warm_up(n);
        let sums = whole.read(|logits, maxima| {
            let mut sums = Sums::default();
            sums.add::<R>(logits, maxima);
            (sums.all.max(), sums)
        });
        let max = sums.all.max();
        let bounds = sums.bounds(&self.rule, n).unwrap_or_else(|| {
            let logits = whole.contiguous().iter().copied();
            Exact::of(&self.rule, max, logits).bounds()
        });
        if bounds.keep_all() {
            return true;
        }
        let are_sure = |near: &[TokenData]| near.iter().all(|c| f64::from(c.logit) >= bounds.sure);
        let Err(mut whole) = whole.keep_at_least(bounds.least_float(), are_sure) else {
            return true;
        };
        self.kept
            .extend_from_slice(whole.at_least(bounds.least_float()));
        self.settle(bounds, max, whole.contiguous().iter().copied());
        if self.kept.len() < n {
            whole.keep(&self.kept, false);
        }
        true
    }

    scratch!(places, kept);
}

/// The sums of a distribution, right within [`ERROR`].
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: Summary,
    /// Those of the doubled logits, if the sum of the squares is needed: e^2x is the square of e^x.
    doubled: Summary,
}

/// The relative error of a sum, at most.
const ERROR: f64 = 1e-6;

/// The largest logits whose double is far from the largest `float`.
const LARGE: f32 = 1e37;

impl Sums {
    /// Adds the next logits of a stream that is cut at multiples of [`CHUNK`]; the largest of each
    /// block into `maxima`, if that is not empty.
    // In bounds: a chunk has at most `CHUNK` logits.
    fn add<R: Rule>(&mut self, logits: &[f32], maxima: &mut [f32]) {
        if R::ENTROPY {
            return self.all.add(Logits::F32(logits), maxima);
        }
        if !R::COLLISION {
            return self.all.add_mass(Logits::F32(logits), maxima);
        }
        let mut maxima = maxima.chunks_mut(CHUNK / GROUP);
        let mut column = [0.0; CHUNK];
        for chunk in logits.chunks(CHUNK) {
            self.all
                .add_mass(Logits::F32(chunk), maxima.next().unwrap_or_default());
            let doubled = &mut column[..chunk.len()];
            doubled
                .iter_mut()
                .zip(chunk)
                .for_each(|(to, x)| *to = 2.0 * x);
            self.doubled.add_mass(Logits::F32(doubled), &mut []);
        }
    }

    /// Returns logits between which the threshold is, of `n` candidates; `None` if these sums give
    /// no lower one.
    fn bounds<R: Rule>(&self, rule: &R, n: usize) -> Option<Bounds> {
        let max = self.all.max();
        if !max.is_finite() {
            return Some(Bounds::at(f64::from(max)));
        }
        if max.abs() > LARGE {
            return None;
        }
        let mass = self.all.mass();
        // A threshold that is too low, or too high, by what the sums are wrong.
        let distance = |less: f64, more: f64| {
            let of = Distribution {
                n,
                largest: 1.0 / (mass * more),
                entropy: self.all.entropy().unwrap_or(0.0) * more,
                collision: self.doubled.mass() * less / (mass * more).powi(2),
            };
            (rule.threshold(&of) * mass * less).ln()
        };
        let (low, high) = (
            distance(1.0 - ERROR, 1.0 + ERROR),
            distance(1.0 + ERROR, 1.0 - ERROR),
        );
        low.is_finite().then(|| Bounds {
            least: f64::from(max) + low.min(0.0),
            sure: f64::from(max) + high.min(0.0),
        })
    }
}

/// Logits between which a threshold is.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Below it no candidate is kept.
    least: f64,
    /// From it on each is.
    sure: f64,
}

impl Bounds {
    fn at(logit: f64) -> Self {
        Self {
            least: logit,
            sure: logit,
        }
    }

    /// True if masked candidates are kept, too.
    fn keep_all(&self) -> bool {
        self.sure == f64::NEG_INFINITY
    }

    /// Returns a number above minus infinity and at or below `least`.
    fn least_float(&self) -> f32 {
        (self.least as f32).next_down().max(f32::MIN)
    }
}

/// The threshold in double precision, as its definition has it.
#[derive(Clone, Copy, Debug)]
struct Exact {
    max: f32,
    sum: f64,
    threshold: f64,
}

impl Exact {
    /// Returns that of candidates with these logits, of which `max`, the largest, is finite.
    fn of<R: Rule>(rule: &R, max: f32, logits: impl Iterator<Item = f32> + Clone) -> Self {
        let mut of = Self {
            max,
            sum: 1.0,
            threshold: 0.0,
        };
        of.sum = logits.clone().map(|x| of.probability(x)).sum();
        let mut distribution = Distribution {
            n: logits.clone().count(),
            largest: 1.0 / of.sum,
            ..Distribution::default()
        };
        if R::ENTROPY {
            let ps = logits.clone().map(|x| of.probability(x));
            let terms = ps.filter(|&p| p > 0.0).map(|p| -p * p.ln());
            distribution.entropy = terms.sum();
        }
        if R::COLLISION {
            distribution.collision = logits.map(|x| of.probability(x).powi(2)).sum();
        }
        of.threshold = rule.threshold(&distribution).min(distribution.largest);
        of
    }

    fn probability(&self, logit: f32) -> f64 {
        exp_f64(f64::from(comparable(logit)) - f64::from(self.max)) / self.sum
    }

    fn keeps(&self, logit: f32) -> bool {
        self.probability(logit) >= self.threshold
    }

    /// Returns logits between which the threshold is.
    fn bounds(&self) -> Bounds {
        if self.threshold <= 0.0 {
            return Bounds::at(f64::NEG_INFINITY);
        }
        let distance = (self.threshold * self.sum).ln();
        Bounds {
            least: f64::from(self.max) + (distance - ERROR),
            sure: f64::from(self.max) + (distance + ERROR).min(0.0),
        }
    }
}

/// Returns the entropy in nats of candidates with these logits, in double precision: 0 where none
/// is above minus infinity, or one is plus infinity.
pub(super) fn exact_entropy(logits: impl Iterator<Item = f32> + Clone) -> f64 {
    let logits = logits.map(comparable);
    let max = logits.clone().fold(f32::NEG_INFINITY, f32::max);
    if !max.is_finite() {
        return 0.0;
    }
    let (mut others, mut spread, mut is_left_out) = (0.0, 0.0, false);
    for logit in logits {
        if logit == max && !is_left_out {
            is_left_out = true;
            continue;
        }
        let below = f64::from(max) - f64::from(logit);
        let e = exp_f64(-below);
        // The product is no number where nothing is added.
        if e > 0.0 {
            others += e;
            spread += below * e;
        }
    }
    entropy_of(others, spread)
}

/// Returns the entropy in nats of candidates, given the sums of exp(-d) and of d exp(-d) over all
/// but one of the largest, d the distance below it. Nothing cancels, however small they are.
pub(super) fn entropy_of(others: f64, spread: f64) -> f64 {
    others.ln_1p() + spread / (1.0 + others)
}
