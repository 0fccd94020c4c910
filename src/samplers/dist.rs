//! Dist: draws a candidate with its softmax probability.
//!
//! Probabilities are `exp(logit - max)` divided by their sum, which is added in array order in
//! `double`. One `double` of std::mt19937 is drawn per non-empty array. Builds before b10355 draw
//! nothing for a single candidate. The [`HostProfile`] says which applies. The choice is the first
//! candidate at which the running sum reaches draw * sum.
//!
//! The sum equals the sequential one, bit for bit. The running sum is kept for every block of
//! candidates, so the choice is a binary search. Candidates are added one by one only if the draw
//! is within the rounding error of the boundary between two candidates. `p` is the quotient in
//! `double`, or the product with the inverse if that gives the same `float`.

use std::ffi::CStr;

use super::lists::{Head, Kept, Picked};
use crate::algorithms::categorical::choose_in_order;
use crate::algorithms::descending_draw::{Descending, DescendingDraw, Drawn};
use crate::algorithms::host_order::{HEAP, HostOrder};
use crate::algorithms::scratch::Room;
use crate::algorithms::{Scratch, Softmax, Workspace};
use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::host_profile::HostProfile;
use crate::kernels::{self, compact::pick_at_least, scan::position_of};
use crate::pool::{First, Form, InOrder, Part, Pool, Weights, Whole};
use crate::rng::{DEFAULT_SEED, SeededMt19937};
use crate::sampler::{About, Kind, Sampler, Tell, scratch};
use crate::token::{Token, TokenData};

/// Draws from the distribution, and writes the probabilities.
#[derive(Clone, Debug)]
pub struct Dist {
    rng: SeededMt19937,
    /// The number of draws since the stream began.
    draws: u64,
    work: Scratch<Workspace>,
    softmax: Scratch<Softmax>,
    in_order: Scratch<DescendingDraw>,
    host_order: Scratch<HostOrder>,
    /// Buffers for the dropped candidates of a draw in order, and for the largest candidates.
    larger: Scratch<Kept>,
    head: Scratch<Head>,
    /// A buffer for the logits of some of the tokens.
    part: Scratch<Picked>,
}

impl Dist {
    /// Returns a sampler; `seed` 0xFFFFFFFF means a random seed, which changes at each reset.
    pub fn new(seed: u32) -> Self {
        Self {
            rng: SeededMt19937::new(seed),
            draws: 0,
            work: Scratch::default(),
            softmax: Scratch::default(),
            in_order: Scratch::default(),
            host_order: Scratch::default(),
            larger: Scratch::default(),
            head: Scratch::default(),
            part: Scratch::default(),
        }
    }
}

/// The number of candidates at or above which the exponentials are written into the array itself.
/// For fewer, a separate buffer is faster: in the array, a load into a register would soon follow
/// stores to parts of the same memory.
pub(crate) const MANY: usize = 4096;

impl Dist {
    fn draw_aside(&mut self, data: &mut [TokenData], sorted: bool, draw: f64) -> usize {
        let sum = self.work.exponentiate_double(data, sorted);
        let exactly = |values: &[f32]| choose_in_order(values, |&value| value, draw);
        let chosen = self.work.choose(sum, draw, exactly);
        self.work.write_p_divided(data, sum);
        chosen
    }

    /// Draws from the logits of a vocabulary, and defers the probabilities until they are read.
    /// Returns false, and chooses nothing, if the array is needed: for example, if the largest
    /// logit is infinite or a logit is NaN.
    fn draw_of_whole(&mut self, mut whole: Whole<'_, '_>, draw: f64) -> bool {
        if whole.n_vocab() < MANY {
            return false;
        }
        let max = whole.max();
        if !max.is_finite() {
            return false;
        }
        // Room for all tokens, even if only few are unmasked: there may be more the next time.
        self.work.warm_up(whole.n_vocab());
        // Probabilities of 0 do not change a sum, and only a draw of 0 would select one.
        if draw > 0.0
            && let Some(few) = whole.few_unmasked()
        {
            let sum = self.work.exponentiate_double(few, false);
            let exactly = |values: &[f32]| choose_in_order(values, |&value| value, draw);
            let Some(chosen) = few.get(self.work.choose(sum, draw, exactly)) else {
                return false;
            };
            let token = chosen.id as usize;
            whole.select_weighted(token, Weights::Double);
            return true;
        }
        let sum = self.work.exponentiate_logits(whole.contiguous(), max);
        if sum.is_nan() {
            return false;
        }
        let exactly = |values: &[f32]| choose_in_order(values, |&value| value, draw);
        let chosen = self.work.choose(sum, draw, exactly);
        whole.select_weighted(chosen, Weights::Double);
        true
    }

    /// Draws from all tokens in order, except the first `dropped`, without making the array. `None`
    /// if rounding could affect the result.
    fn draw_behind(
        &mut self,
        mut tokens: InOrder<'_, '_>,
        dropped: usize,
        draw: f64,
    ) -> Option<()> {
        self.warm_up(tokens.n_vocab());
        let order = tokens.order;
        if dropped > 0 {
            let larger = tokens.at_least(order.first.next_up());
            self.larger.extend_from_slice(larger);
        }
        self.head.extend_from_slice(tokens.largest(HEAD));
        let logits = tokens.contiguous();
        let from = Descending {
            logits,
            dropped,
            behind: 0,
            first: order.first,
            divisor: order.divisor,
        };
        let drawn = self.in_order.find(from, &self.larger, &self.head, draw)?;
        let token = self.token_of(drawn, logits)?;
        tokens.choose(token);
        Some(())
    }

    /// Draws from the first tokens in order without making the array. `None` if rounding could
    /// affect the result, or if the order of equal logits could and the host sorts only a part of
    /// the tokens.
    fn draw_first(&mut self, mut tokens: InOrder<'_, '_>, first: First, draw: f64) -> Option<()> {
        self.warm_up(tokens.n_vocab());
        let order = tokens.order;
        let some = tokens.first_logits();
        self.part.clear();
        pick_at_least(some, first.last, &mut self.part);
        let from = Descending {
            logits: &self.part,
            dropped: 0,
            behind: self.part.len().checked_sub(first.n)?,
            first: order.first,
            divisor: order.divisor,
        };
        let drawn = self.in_order.find(from, &[], &[], draw)?;
        let logits = tokens.contiguous();
        let sorts_all = first.sorted == logits.len() && logits.len() > HEAP;
        if drawn.of > 1 && !sorts_all {
            return None;
        }
        let token = self.token_of(drawn, logits)?;
        tokens.choose(token);
        Some(())
    }

    /// Returns the drawn token. If several tokens have its logit, their order is that of the host's
    /// sort of all tokens.
    fn token_of(&mut self, drawn: Drawn, logits: &[f32]) -> Option<Token> {
        let place = match drawn.of {
            1 => position_of(logits, drawn.logit),
            _ => self.host_order.place_of(logits, drawn.logit, drawn.nth),
        };
        Token::try_from(place?).ok()
    }

    fn draw_in_place(&mut self, data: &mut [TokenData], sorted: bool, draw: f64) -> usize {
        let sum = self.softmax.exponentiate(data, sorted);
        let exactly = |data: &[TokenData]| choose_in_order(data, |c| c.p, draw);
        let chosen = self.softmax.choose(data, sum, draw, exactly);
        kernels::divide_p_double(data, sum);
        chosen
    }
}

impl Sampler for Dist {
    const KIND: Kind = Kind::Selector;
    const RESETS: bool = true;
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"dist"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => to("seed", f64::from(self.rng.current_seed())),
            About::Next => to("draw", self.rng.stream.clone().uniform()),
            About::Token(_) => {}
        }
    }

    fn copy_state(&mut self, source: &Self) {
        self.rng.take_stream_of(&source.rng);
        self.draws = source.draws;
    }

    fn built_in(&self) -> Option<BuiltIn> {
        // As long as nothing was drawn, the built-in may choose another random seed.
        let seed = match (self.draws, self.rng.asked_seed()) {
            (0, DEFAULT_SEED) => DEFAULT_SEED,
            _ => self.rng.current_seed(),
        };
        Some(BuiltIn::Dist {
            seed,
            draws: self.draws,
        })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            candidates.select(None);
            return;
        }
        let draw = self.next_draw(candidates.len());
        self.choose(candidates, draw);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if pool.is_empty() {
            return pool.select(None);
        }
        let draw = self.next_draw(pool.len());
        self.narrow_by(pool, draw);
    }

    fn reset(&mut self) {
        self.rng.restart();
        self.draws = 0;
    }

    fn seed(&self) -> Option<u32> {
        Some(self.rng.current_seed())
    }

    scratch!(work, softmax, in_order, host_order, larger, head, part);
}

impl Dist {
    /// Returns the next random number, from 0 to 1. With the profile of a build that draws nothing
    /// for a single candidate, returns 0 for `n` = 1, and the stream does not advance.
    fn next_draw(&mut self, n: usize) -> f64 {
        if n == 1 && !HostProfile::current().one_candidate_draw.dist {
            return 0.0;
        }
        self.draws += 1;
        self.rng.stream.uniform()
    }

    /// Chooses the candidate on which `draw` falls. The pool must not be empty.
    pub(crate) fn narrow_by(&mut self, pool: &mut Pool<'_>, draw: f64) {
        let is_done = match pool.form() {
            Form::Whole(whole) => self.draw_of_whole(whole, draw),
            Form::InOrder(tokens) => self.draw_in_order(tokens, draw).is_some(),
            Form::Array => false,
        };
        if !is_done {
            pool.apply(|candidates| self.choose(candidates, draw));
        }
    }

    /// Draws from tokens in order without making the array. `None` if rounding or the order of
    /// equal logits could affect the result, or if the array is as fast.
    fn draw_in_order(&mut self, tokens: InOrder<'_, '_>, draw: f64) -> Option<()> {
        match tokens.order.part {
            Part::Behind(_) if tokens.len() < MANY => None,
            Part::Behind(dropped) => self.draw_behind(tokens, dropped, draw),
            Part::First(first) => self.draw_first(tokens, first, draw),
        }
    }

    /// Chooses the candidate on which `draw` falls. There must be a candidate.
    fn choose(&mut self, candidates: &mut Candidates<'_>, draw: f64) {
        // Room for any number of candidates below `MANY`: the samplers before this one may leave
        // more the next time.
        self.work.warm_up(MANY);
        self.softmax.warm_up(MANY);
        if let [only] = candidates.as_mut_slice() {
            only.p = 1.0;
            candidates.select(Some(0));
            return;
        }
        let sorted = candidates.is_sorted();
        let data = candidates.as_mut_slice();
        let chosen = match data.len() < MANY {
            true => self.draw_aside(data, sorted, draw),
            false => self.draw_in_place(data, sorted, draw),
        };
        candidates.select(Some(chosen));
    }
}

/// The number of largest logits in which the drawn token is searched for first.
const HEAD: usize = 256;

#[cfg(test)]
mod tests;
