//! Cuts at a probability that depends on the distribution: top-a, epsilon, eta and p-less.
//! llama.cpp has none of these.
//!
//! The candidates whose probability is at or above the threshold stay, in their order. Equal
//! candidates stay or are removed together. The most probable candidates always stay. If no logit
//! is above minus infinity, there is no distribution, and all candidates stay.
//!
//! The sums of the distribution are computed in one pass (two for p-less) with an error of at most
//! a millionth, which gives bounds on the threshold. If a candidate is between the bounds, the sums
//! are computed again in double precision, with an error of at most 1e-9. If a candidate is still
//! between them, or if the first sums give no lower bound, everything is computed by the
//! definition, term by term.

use std::ffi::CStr;
use std::fmt::Debug;

use super::lists::{Kept, Places};
use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::kernels;
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::scan::{any_between, has_between};
use crate::kernels::sums_f64::SumsF64;
use crate::metrics::Summary;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::exp_f64;
use crate::token::{TokenData, comparable};

/// The numbers on which a threshold depends.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distribution {
    /// The number of candidates, masked ones included.
    pub n: usize,
    /// The largest probability.
    pub largest: f64,
    /// The entropy in nats; 0 unless the rule needs it.
    pub entropy: f64,
    /// The sum of the squares of the probabilities; 0 unless the rule needs it.
    pub collision: f64,
}

/// A rule for the smallest probability that is kept.
pub trait Rule: Clone + Debug + Send + 'static {
    /// The name of the sampler.
    const NAME: &'static CStr;
    /// True if the threshold depends on the entropy.
    const ENTROPY: bool = false;
    /// True if the threshold depends on the sum of the squares.
    const COLLISION: bool = false;

    /// Returns the threshold. It never falls as the largest probability or the sum of the squares
    /// rises, and never rises with the entropy.
    fn threshold(&self, of: &Distribution) -> f64;

    /// Returns the name and value of the rule's parameter.
    fn parameter(&self) -> (&'static str, f64);
}

/// Keeps the candidates whose probability is at or above the threshold of a rule.
#[derive(Clone, Debug)]
pub struct Threshold<R> {
    rule: R,
    /// A buffer for the indices of the candidates that may be kept.
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

    /// Keeps those of the collected candidates that pass. `logits` are the logits of all
    /// candidates.
    fn settle(&mut self, bounds: Bounds, max: f32, logits: impl Iterator<Item = f32> + Clone) {
        let mut exact = None;
        let (rule, least, sure) = (&self.rule, bounds.least_float(), bounds.sure_float());
        self.kept.retain(|c| {
            let is_doubtful = c.logit >= least && c.logit < sure;
            if !is_doubtful {
                return c.logit >= sure;
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

    // In bounds: a chunk has at most `CHUNK` candidates; indices are those of candidates.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() < 2 {
            return;
        }
        self.warm_up(candidates.len());
        let data = candidates.as_slice();
        let mut sums = Sums::default();
        for_chunks(data, |logits| sums.add::<R>(logits, &mut []));
        let max = sums.all.max();
        let logits = data.iter().map(|c: &TokenData| c.logit);
        let bounds = sums.bounds(&self.rule, data.len());
        let mut bounds =
            bounds.unwrap_or_else(|| Exact::of(&self.rule, max, logits.clone()).bounds());
        if bounds.keep_all() {
            return;
        }
        kernels::at_least(data, 0, bounds.least_float(), &mut self.places);
        let near = self.places.iter().map(|&place| data[place as usize]);
        self.kept.extend(near);
        if bounds.leave_open(&self.kept) {
            let refine = |add: &mut dyn FnMut(&[f32])| for_chunks(data, add);
            bounds = bounds.refined(&self.rule, max, data.len(), refine);
        }
        self.settle(bounds, max, logits);
        candidates.replace(&self.kept);
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let n = whole.n_vocab();
        if n <= 1 {
            return false;
        }
        // The buffers get the size for this vocabulary, however few candidates are kept.
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
        // Reading all logits is faster than collecting many that are not needed.
        let is_open = whole.many_reach(bounds.least_float()) && bounds.split(whole.contiguous());
        let kept = if is_open {
            Err(whole)
        } else {
            bounds.keep_of(whole)
        };
        let Err(mut whole) = kept else {
            return true;
        };
        let refine = |add: &mut dyn FnMut(&[f32])| add(whole.contiguous());
        let bounds = bounds.refined(&self.rule, max, n, refine);
        let Err(mut whole) = bounds.keep_of(whole) else {
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

/// The sums of a distribution, with a relative error of at most [`ERROR`].
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    all: Summary,
    /// The sums of the doubled logits, if the sum of the squares is needed: e^2x is the square of
    /// e^x.
    doubled: Summary,
}

/// The largest relative error of a sum.
const ERROR: f64 = 1e-6;

/// The largest logit that can safely be multiplied by 2 in single precision.
const LARGE: f32 = 1e37;

impl Sums {
    /// Adds the next logits of a stream that is split at multiples of [`CHUNK`]. Writes the largest
    /// of each block into `maxima`, unless that is empty.
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

    /// Returns two logits between which the threshold is, for `n` candidates; `None` if these sums
    /// give no lower bound.
    fn bounds<R: Rule>(&self, rule: &R, n: usize) -> Option<Bounds> {
        let max = self.all.max();
        if !max.is_finite() {
            return Some(Bounds::at(f64::from(max)));
        }
        if max.abs() > LARGE {
            return None;
        }
        let parts = Parts {
            mass: self.all.mass(),
            entropy: self.all.entropy().unwrap_or(0.0),
            squares: self.doubled.mass(),
        };
        parts.bounds(rule, max, n, ERROR)
    }
}

/// The sums that determine a distribution, relative to the largest logit.
#[derive(Clone, Copy, Debug)]
struct Parts {
    mass: f64,
    entropy: f64,
    /// The sum of the squares of the terms of `mass`.
    squares: f64,
}

impl Parts {
    /// Returns two logits between which the threshold is, for `n` candidates, if each sum has a
    /// relative error of at most `error`; `None` if the sums give no lower bound.
    fn bounds<R: Rule>(&self, rule: &R, max: f32, n: usize, error: f64) -> Option<Bounds> {
        // The logit of the threshold, relative to the largest, if the errors of the sums make it
        // too low, or too high.
        let distance = |less: f64, more: f64| {
            let of = Distribution {
                n,
                largest: 1.0 / (self.mass * more),
                entropy: self.entropy * more,
                collision: self.squares * less / (self.mass * more).powi(2),
            };
            (rule.threshold(&of) * self.mass * less).ln()
        };
        let (low, high) = (
            distance(1.0 - error, 1.0 + error),
            distance(1.0 + error, 1.0 - error),
        );
        low.is_finite().then(|| Bounds {
            least: f64::from(max) + low.min(0.0),
            sure: f64::from(max) + high.min(0.0),
        })
    }
}

/// Calls `add` with the logits of candidates, a chunk at a time.
// In bounds: a chunk has at most `CHUNK` candidates.
fn for_chunks(data: &[TokenData], mut add: impl FnMut(&[f32])) {
    let mut column = [0.0; CHUNK];
    for chunk in data.chunks(CHUNK) {
        let logits = &mut column[..chunk.len()];
        let pairs = logits.iter_mut().zip(chunk);
        pairs.for_each(|(to, c)| *to = c.logit);
        add(logits);
    }
}

/// Two logits between which a threshold is.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// The bound below which no candidate is kept.
    least: f64,
    /// The bound from which every candidate is kept.
    sure: f64,
}

impl Bounds {
    fn at(logit: f64) -> Self {
        Self {
            least: logit,
            sure: logit,
        }
    }

    /// True if masked candidates are kept as well.
    fn keep_all(&self) -> bool {
        self.sure == f64::NEG_INFINITY
    }

    /// Returns the smallest finite `float` that is not below `least`.
    fn least_float(&self) -> f32 {
        rounded_up(self.least).max(f32::MIN)
    }

    /// Returns the smallest `float` that is not below `sure`.
    fn sure_float(&self) -> f32 {
        rounded_up(self.sure)
    }

    /// True if one of the candidates `near`, which are at or above `least`, is undecided.
    fn leave_open(&self, near: &[TokenData]) -> bool {
        let (least, sure) = (self.least_float(), self.sure_float());
        least < sure && any_between(near, least, sure)
    }

    /// True if one of these logits is undecided.
    fn split(&self, logits: &[f32]) -> bool {
        has_between(logits, self.least_float(), self.sure_float())
    }

    /// Keeps the candidates of a vocabulary that pass, unless one is undecided.
    fn keep_of<'p, 'a>(&self, whole: Whole<'p, 'a>) -> Result<(), Whole<'p, 'a>> {
        whole.keep_at_least(self.least_float(), |near| !self.leave_open(near))
    }

    /// Returns closer bounds, for `n` candidates. `give` calls its argument with the logits of all
    /// candidates, some at a time.
    fn refined<R: Rule>(
        self,
        rule: &R,
        max: f32,
        n: usize,
        give: impl FnOnce(&mut dyn FnMut(&[f32])),
    ) -> Self {
        // For larger logits, a `double` cannot hold the sum of the largest logit and a distance
        // precisely enough.
        if max.abs() >= LARGEST_REFINED {
            return self;
        }
        let mut sums = SumsF64::default();
        match R::COLLISION {
            true => give(&mut |logits| sums.add_squares(logits, max)),
            false => give(&mut |logits| sums.add_spread(logits, max)),
        }
        let parts = Parts {
            mass: sums.mass,
            entropy: sums.mass.ln() + sums.spread / sums.mass,
            squares: sums.squares,
        };
        let error = 3.0 * SumsF64::ERROR;
        parts.bounds(rule, max, n, error).unwrap_or(self)
    }
}

/// If the absolute value of the largest logit is at or above this number, the logit is too far from
/// 0 for [`Bounds::refined`].
const LARGEST_REFINED: f32 = 1e5;

/// Returns the smallest `float` that is not below `x`.
fn rounded_up(x: f64) -> f32 {
    let rounded = x as f32;
    match f64::from(rounded) < x {
        true => rounded.next_up(),
        false => rounded,
    }
}

/// The threshold in double precision, computed by the definition.
#[derive(Clone, Copy, Debug)]
struct Exact {
    max: f32,
    sum: f64,
    threshold: f64,
}

impl Exact {
    /// Returns the threshold for candidates with these logits, the largest of which, `max`, is
    /// finite.
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

    /// Returns two logits between which the threshold is.
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

/// Returns the entropy in nats of candidates with these logits, in double precision: 0 if none is
/// above minus infinity, or if one is plus infinity.
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
        // Where the term is 0, the product would be NaN.
        if e > 0.0 {
            others += e;
            spread += below * e;
        }
    }
    entropy_of(others, spread)
}

/// Returns the entropy in nats of candidates, given the sums of exp(-d) and of d exp(-d) over all
/// but one of the largest, where d is the distance to the largest. No term cancels another, so even
/// tiny sums are precise.
pub(super) fn entropy_of(others: f64, spread: f64) -> f64 {
    others.ln_1p() + spread / (1.0 + others)
}
