//! Adaptive-p: favours candidates near a target probability, and adapts that target so that the
//! average probability of the chosen tokens stays near the original one (llama.cpp pull request
//! 17927).
//!
//! Every logit becomes `5 - 10 d^2 / (1 + d)`, where `d` is the distance of the candidate's
//! probability from the adapted target in units of 0.3. Masked candidates stay masked. A token is
//! drawn from the softmax of these logits with std::discrete_distribution on std::mt19937 (in
//! libstdc++ no draw for a single candidate). When that token is accepted, its original probability
//! enters an exponential moving average. If the target is negative, the sampler only draws.
//!
//! A clone keeps the average and the pending token, but its generator restarts from the seed, as in
//! the built-in. It also copies the pending token's probability, which the built-in's clone loses
//! (and then reads out of bounds).

use std::ffi::CStr;

use super::lists::{Bent, Ps};
use crate::algorithms::{Scratch, Softmax, Workspace};
use crate::candidates::Candidates;
use crate::host_profile::{Fused, fuses};
use crate::kernels::{self, Curve};
use crate::pool::{Weights, Whole};
use crate::rng::SeededMt19937;
use crate::sampler::{About, Kind, Sampler, Tell, scratch};
use crate::simd::libm::fma;
use crate::token::{Token, TokenData, comparable};

/// Selects a candidate near a target probability.
#[derive(Debug)]
pub struct AdaptiveP {
    target: f32,
    decay: f32,
    rng: SeededMt19937,
    average: Average,
    /// A buffer for the probabilities before the transformation.
    original: Scratch<Ps>,
    softmax: Scratch<Softmax>,
    /// Buffers for the exponentials of a vocabulary's logits, and for those of the transformed
    /// logits.
    exponentials: Scratch<Workspace>,
    bent: Scratch<Bent>,
}

/// The moving average of the chosen tokens' probabilities.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Average {
    /// The sum of the probabilities, each weighted by `decay` to the power of its age.
    pub weighted_sum: f32,
    pub total_weight: f32,
    /// The chosen token that has not yet been accepted, with its original probability.
    pub pending: Option<(Token, f32)>,
}

impl Average {
    /// Returns the average before the first token, as if all tokens had had the probability
    /// `target`.
    fn at(target: f32, decay: f32) -> Self {
        Self {
            weighted_sum: target / (1.0 - decay),
            total_weight: 1.0 / (1.0 - decay),
            pending: None,
        }
    }
}

/// The number of candidates below which it is faster to work in the array.
const MANY: usize = 1024;

const WIDTH: f32 = 0.3;
const PEAK: f32 = 5.0;
const SHARPNESS: f32 = 10.0;

impl AdaptiveP {
    /// Returns a sampler that aims at the probability `target`, from 0 to 1; with a negative
    /// `target` it only draws. The average covers about 1 / (1 - decay) tokens, with `decay` from 0
    /// to 0.99. `seed` 0xFFFFFFFF means a random seed, which changes at each reset.
    pub fn new(target: f32, decay: f32, seed: u32) -> Self {
        let decay = decay.clamp(0.0, 0.99);
        Self {
            target,
            decay,
            rng: SeededMt19937::new(seed),
            average: Average::at(target, decay),
            original: Scratch::default(),
            softmax: Scratch::default(),
            exponentials: Scratch::default(),
            bent: Scratch::default(),
        }
    }

    /// Changes the parameters; the average and the random stream continue.
    pub(crate) fn set(&mut self, target: f32, decay: f32) {
        self.target = target;
        self.decay = decay.clamp(0.0, 0.99);
    }

    pub(crate) fn average(&self) -> Average {
        self.average
    }

    pub(crate) fn set_average(&mut self, average: Average) {
        self.average = average;
    }

    pub(crate) fn rng(&self) -> &SeededMt19937 {
        &self.rng
    }

    pub(crate) fn rng_mut(&mut self) -> &mut SeededMt19937 {
        &mut self.rng
    }

    fn adapted_target(&self) -> f32 {
        let target = self.target.clamp(0.0, 1.0);
        let average = &self.average;
        if average.total_weight == 0.0 {
            return target;
        }
        (2.0 * target - average.weighted_sum / average.total_weight).clamp(0.0, 1.0)
    }

    fn curve(&self) -> Curve {
        Curve {
            target: self.adapted_target(),
            per_width: 1.0 / WIDTH,
            peak: PEAK,
            sharpness: SHARPNESS,
        }
    }

    /// Replaces the exponentials, whose sum is `sum`, with transformed logits. `original` then has
    /// the probabilities. Returns the largest transformed logit if none is NaN.
    fn transform(&mut self, data: &mut [TokenData], sum: f32) -> Option<f32> {
        let curve = self.curve();
        self.original.resize(data.len(), 0.0);
        let (max, all_numbers) = kernels::bend(data, sum, &mut self.original, curve);
        all_numbers.then_some(max)
    }

    /// Divides the exponentials by their sum, and draws.
    fn draw(&mut self, candidates: &mut Candidates<'_>, sum: f32) -> usize {
        let data = candidates.as_mut_slice();
        let sum = self.softmax.divide(data, sum);
        let stream = &mut self.rng.stream;
        let chosen = stream.discrete_in_place(&self.softmax, data, sum);
        candidates.select(Some(chosen));
        chosen
    }
}

impl Clone for AdaptiveP {
    fn clone(&self) -> Self {
        Self {
            rng: self.rng.begun_anew(),
            original: Scratch::default(),
            softmax: Scratch::default(),
            exponentials: Scratch::default(),
            bent: Scratch::default(),
            ..*self
        }
    }
}

impl Sampler for AdaptiveP {
    const KIND: Kind = Kind::Selector;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn twin(&self) -> Self {
        Self {
            rng: self.rng.clone(),
            ..self.clone()
        }
    }

    fn name(&self) -> &'static CStr {
        c"adaptive-p"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => {
                to("target", f64::from(self.target));
                to("decay", f64::from(self.decay));
                to("seed", f64::from(self.rng.current_seed()));
            }
            About::Next => {
                to("weighted_sum", f64::from(self.average.weighted_sum));
                to("total_weight", f64::from(self.average.total_weight));
                to("draw", self.rng.stream.clone().uniform());
            }
            About::Token(_) => {}
        }
    }

    // In bounds: there is a candidate, as checked above; `original` has a value for each, and
    // `discrete_in_place` returns the index of one.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return candidates.select(None);
        }
        let sorted = candidates.is_sorted();
        let data = candidates.as_mut_slice();
        let sum = self.softmax.exponentiate_in_order(data, sorted);
        if self.target < 0.0 {
            self.draw(candidates, sum);
            return;
        }
        let sum = match self.transform(data, sum) {
            Some(max) => {
                let claimed = if sorted { data[0].logit } else { max };
                // NaN counts as minus infinity.
                let claimed = comparable(claimed);
                self.softmax.exponentiate_from(data, max, claimed)
            }
            // An infinite logit, or an average that such a logit has made NaN, makes the built-in's
            // sum NaN, and all probabilities as well. A NaN in the input counts as minus infinity
            // instead.
            None => f32::NAN,
        };
        let chosen = self.draw(candidates, sum);
        self.average.pending = Some((candidates.as_slice()[chosen].id, self.original[chosen]));
    }

    /// Chooses a token, and defers the probabilities until they are read. Returns false, and
    /// changes and draws nothing, if the array is needed: for example, if the largest logit is
    /// infinite or a logit is NaN.
    // In bounds: `discrete` returns the index of a token, and every token has an exponential.
    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        let curve = self.curve();
        if self.target < 0.0 || curve.target.is_nan() || whole.n_vocab() < MANY {
            return false;
        }
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        let sum = self.exponentials.exponentiate_of_logits(logits, max, max);
        let es = self.exponentials.values();
        // All probabilities are finite, so no transformed logit is NaN.
        let column = whole.column_mut();
        let (largest, _) = kernels::bend_logits(column, es, sum, curve);
        let total = self.bent.exponentiate_of_logits(column, largest, largest);
        kernels::divide(self.bent.values_mut(), total);
        let chosen = self.rng.stream.discrete(&mut self.bent);
        whole.select_weighted(chosen, Weights::Float);
        self.average.pending = Some((chosen as Token, self.exponentials.values()[chosen] / sum));
        true
    }

    fn accept(&mut self, token: Token) {
        let pending = self.average.pending.take();
        let Some((_, probability)) = pending.filter(|&(pending, _)| pending == token) else {
            return;
        };
        let fused = fuses(Fused::Average);
        let decayed = |average: f32, new: f32| match fused {
            true => fma(self.decay, average, new),
            false => new + self.decay * average,
        };
        self.average = Average {
            weighted_sum: decayed(self.average.weighted_sum, probability),
            total_weight: decayed(self.average.total_weight, 1.0),
            pending: None,
        };
    }

    fn reset(&mut self) {
        self.average = Average::at(self.target, self.decay);
        self.rng.restart();
    }

    scratch!(original, softmax, exponentials, bent);
}
