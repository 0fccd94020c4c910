//! Adaptive-p: favours candidates near a target probability, and moves the target so that the chosen tokens average it
//! (llama.cpp pull request 17927).
//!
//! Every logit becomes `5 - 10 d^2 / (1 + d)`, `d` the distance of the candidate's probability from the adapted target in units of 0.3; masked candidates
//! stay masked. A token is drawn from the softmax of that with std::discrete_distribution on std::mt19937 (no draw for a single candidate).
//! `accept` of that token enters its original probability into an exponential moving average. A negative target only draws.
//!
//! A clone goes on with the average and the pending token, but its generator begins anew from the seed: so it is in the built-in. Of the pending
//! token's probability, which the built-in's clone loses (and then reads out of bounds), ours keeps a copy.
//!
//! Reads 12 bytes per candidate three times and writes them twice, two `exp` each; what is between stays in 4 bytes per candidate, twice.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::{self, Curve, Workspace};
use crate::rng::SeededMt19937;
use crate::sampler::{Kind, Sampler};
use crate::token::Token;

/// Selects near a target probability.
#[derive(Debug)]
pub struct AdaptiveP {
    target: f32,
    decay: f32,
    rng: SeededMt19937,
    /// Sum of the chosen tokens' probabilities, each weighted by `decay` to the power of its age.
    weighted_sum: f32,
    total_weight: f32,
    /// The choice that waits to be accepted, with its original probability.
    pending: Option<(Token, f32)>,
    /// Scratch: the exponentials before the transformation.
    original: Workspace,
    work: Workspace,
}

const WIDTH: f32 = 0.3;
const PEAK: f32 = 5.0;
const SHARPNESS: f32 = 10.0;

impl AdaptiveP {
    /// Aims at probability `target`, 0 to 1 (negative: off); `decay` 0 to 0.99 makes the average reach back 1 / (1 - decay) tokens.
    /// `seed` 0xFFFFFFFF takes a random seed, again at each reset.
    pub fn new(target: f32, decay: f32, seed: u32) -> Self {
        let decay = decay.clamp(0.0, 0.99);
        Self {
            target,
            decay,
            rng: SeededMt19937::new(seed),
            weighted_sum: target / (1.0 - decay),
            total_weight: 1.0 / (1.0 - decay),
            pending: None,
            original: Workspace::default(),
            work: Workspace::default(),
        }
    }

    fn adapted_target(&self) -> f32 {
        let target = self.target.clamp(0.0, 1.0);
        if self.total_weight == 0.0 {
            return target;
        }
        (2.0 * target - self.weighted_sum / self.total_weight).clamp(0.0, 1.0)
    }

    /// Rewrites the logits from the exponentials in `original`, of which `sum` is the sum; `work` then has them. Gives the largest if all of them are numbers.
    fn transform(&mut self, candidates: &mut Candidates<'_>, sum: f32) -> Option<f32> {
        let curve = Curve {
            target: self.adapted_target(),
            per_width: 1.0 / WIDTH,
            peak: PEAK,
            sharpness: SHARPNESS,
        };
        self.work.reserve(candidates.len());
        let (terms, values) = (self.original.values(), self.work.values_mut());
        let data = candidates.as_mut_slice();
        let (max, all_numbers) = kernels::bend(data, terms, sum, values, curve);
        all_numbers.then_some(max)
    }

    fn draw(&mut self, candidates: &mut Candidates<'_>) -> usize {
        let chosen = self.rng.stream.discrete(&mut self.work);
        candidates.select(Some(chosen));
        chosen
    }
}

impl Clone for AdaptiveP {
    fn clone(&self) -> Self {
        Self {
            rng: self.rng.begun_anew(),
            original: Workspace::default(),
            work: Workspace::default(),
            ..*self
        }
    }
}

impl Sampler for AdaptiveP {
    const KIND: Kind = Kind::Selector;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"adaptive-p"
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "there is a candidate: asked above; `work` and `original` have a value for each, and `discrete` gives the place of one"
    )]
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return candidates.select(None);
        }
        if self.target < 0.0 {
            candidates.softmax(&mut self.work);
            self.draw(candidates);
            return;
        }
        // Nobody sees these probabilities in the array.
        let sorted = candidates.is_sorted();
        let original_sum = self.original.exponentiate(candidates.as_slice(), sorted);
        if let Some(max) = self.transform(candidates, original_sum) {
            let first = self.work.values()[0];
            let claimed = if sorted { first } else { max };
            let sum = self.work.exponentiate_values(max, claimed);
            self.work.normalise(candidates.as_mut_slice(), sum);
        } else {
            // An infinite logit, or an average spoilt by one, makes the built-in's sum NaN, and with it all probabilities. A NaN that came in is
            // another matter: it counts as minus infinity.
            let data = candidates.as_mut_slice();
            data.iter_mut().for_each(|c| c.p = f32::NAN);
            self.work.values_mut().fill(f32::NAN);
        }
        let chosen = self.draw(candidates);
        let probability = self.original.values()[chosen] / original_sum;
        self.pending = Some((candidates.as_slice()[chosen].id, probability));
    }

    fn accept(&mut self, token: Token) {
        let pending = self.pending.take();
        let Some((_, probability)) = pending.filter(|&(pending, _)| pending == token) else {
            return;
        };
        self.weighted_sum = probability + self.decay * self.weighted_sum;
        self.total_weight = 1.0 + self.decay * self.total_weight;
    }

    fn reset(&mut self) {
        self.weighted_sum = self.target / (1.0 - self.decay);
        self.total_weight = 1.0 / (1.0 - self.decay);
        self.pending = None;
        self.rng.restart();
    }
}
