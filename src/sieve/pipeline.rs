//! Runs the stages straight from the logits, in any order. A filter is one of the exact samplers.
//!
//! Their order is one of those in [`Order`], or [the caller's](crate::sieve::Sieve::set_stages).
//! The bias always comes first, as in llama.cpp's programs.
//!
//! In llama.cpp each sampler that draws has its own generator, and all of them begin with the same
//! seed. A pipeline with mt19937 works in the same way. The other generators give one 64-bit number
//! per token, and each stage that draws, except a sampler in a slot, seeds its own generator with a
//! hash of that number. So no further state has to be saved, and a single position can be replayed.

use std::collections::TryReserveError;
use std::sync::Arc;

use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::fault;
use crate::kernels;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::pool::{Buffers, Left, Pool};
use crate::sampler::{Kind, Member, Sampler};
use crate::samplers::penalties::Penalised;
use crate::samplers::{Breakers, dist};
use crate::sieve::draw::{Draw, Inverse};
use crate::sieve::params::{Order, Params};
use crate::sieve::stages::warm_up;
use crate::sieve::stats::Stats;
use crate::sieve::{Error, Sieve, stateless};
use crate::token::{Token, TokenData};
use crate::trace::{Watch, watched};

mod members;
mod remembered;
mod slots;
mod stage;

pub(super) use members::Members;
pub use stage::{MAX_SAMPLERS, Stage};
pub(super) use stage::{check, check_slot};

const TEMP_LAST: [Stage; 7] = [
    Stage::Penalties,
    Stage::TopK,
    Stage::Typical,
    Stage::TopP,
    Stage::MinP,
    Stage::TopNSigma,
    Stage::Temperature,
];
const TEMP_FIRST: [Stage; 7] = [
    Stage::Penalties,
    Stage::Temperature,
    Stage::TopK,
    Stage::Typical,
    Stage::TopP,
    Stage::MinP,
    Stage::TopNSigma,
];

/// The stages after which the statistics have a count of the candidates.
const COUNTED: [Stage; 5] = [
    Stage::TopK,
    Stage::Typical,
    Stage::TopP,
    Stage::MinP,
    Stage::TopNSigma,
];

/// Returns the stages of the parameters, in this order.
fn stages_of(order: Order) -> &'static [Stage] {
    match order {
        Order::TempLast => &TEMP_LAST,
        Order::TempFirst => &TEMP_FIRST,
    }
}

/// The order of the stages, the stages with a memory or parameters of their own, and the buffers.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// The caller's stages; `None` if the parameters decide.
    pub order: Option<Vec<Stage>>,
    pub members: Members,
    /// The sampler of the [draw](Draw), unless the last stage draws.
    inverse: Scratch<Inverse>,
    buffers: Buffers,
    /// The state of the pool with the candidates from which the last token was drawn.
    left: Option<Left>,
}

/// Copies no buffers, except for the candidates from which the last token was drawn.
impl Clone for Pipeline {
    fn clone(&self) -> Self {
        Self {
            order: self.order.clone(),
            members: self.members.clone(),
            inverse: Scratch::default(),
            buffers: self.buffers.of_left(self.left),
            left: self.left,
        }
    }
}

impl Pipeline {
    /// Sets the stages, which must have been [checked](check); `None` means those of the
    /// parameters. Stages that stay keep their memory. On failure nothing changes.
    pub(super) fn set(
        &mut self,
        stages: Option<&[Stage]>,
        params: &Params,
        seed: u64,
    ) -> Result<(), Error> {
        let asked = stages.unwrap_or_default();
        let mut order = Vec::new();
        memory::reserve_exact(&mut order, asked.len())?;
        order.extend_from_slice(asked);
        self.members.try_reserve(asked)?;
        self.order = stages.map(|_| order);
        self.arrange(params, seed);
        Ok(())
    }

    /// Updates the members for changed stages or parameters. Members that stay keep their memory.
    pub(super) fn arrange(&mut self, params: &Params, seed: u64) {
        let stages = self.order.as_deref().unwrap_or_default();
        self.members.arrange(stages, params, seed);
    }

    /// Returns the candidates from which the last token was drawn; empty if no token was.
    pub(super) fn candidates(&mut self) -> &[TokenData] {
        let left = self.left.as_mut().map(|left| self.buffers.settle(left));
        left.unwrap_or_default()
    }

    /// Returns the index of the chosen token among these candidates.
    pub(super) fn selected(&self) -> Option<usize> {
        self.left?.selected()
    }

    /// True if these candidates are known to be in descending order of their logits.
    pub(super) fn is_sorted(&self) -> bool {
        self.left.is_some_and(Left::is_sorted)
    }

    pub(super) fn clear(&mut self) {
        self.left = None;
    }

    /// Reserves the most memory that the logits of `n` tokens can need.
    pub(super) fn warm_up(&mut self, n: usize) -> Result<(), TryReserveError> {
        self.members.warm_up(n);
        // The draw reserves room for at least this many candidates, however few are left.
        warm_up(Some(&mut self.inverse.0), n.max(dist::MANY));
        self.inverse.rest();
        self.buffers.warm_up(n)
    }

    /// Returns the size of the buffers in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.bytes()
    }
}

impl Sieve {
    /// Runs all stages on the `raw` logits, reports them to `watch`, and returns the chosen token.
    /// `given` contains the candidates of a chain, if there is one. `raw` then contains the logits
    /// of these candidates, in the same order.
    pub(super) fn run(
        &mut self,
        raw: Logits<'_>,
        given: Option<&Candidates<'_>>,
        watch: &mut impl Watch,
    ) -> Result<Token, Error> {
        self.stats = Stats {
            n_vocab: raw.len(),
            accepted: self.accepted,
            ..Stats::default()
        };
        let Pipeline {
            order,
            members,
            inverse,
            buffers,
            left,
        } = &mut self.pipeline;
        *left = None;
        fault::point();
        stateless::check(raw.len())?;
        buffers.try_reserve(raw.len())?;
        let mut pool = Pool::new(raw, buffers).banning_nan();
        if let Some(candidates) = given {
            pool.keep(candidates.as_slice(), candidates.is_sorted());
        }
        if !self.biases.is_empty() {
            watched(&mut self.biases, &mut pool, watch);
        }
        let history = &self.history;
        let penalties = self.params.penalties();
        let mut penalised = penalties.map(|factors| Penalised { history, factors });
        let order = order.as_deref().unwrap_or(stages_of(self.params.order));
        let (are_first, others) = match order {
            [Stage::Penalties, others @ ..] => (true, others),
            others => (false, others),
        };
        // Penalties that come first run before the check for an unmasked token, as the bias does.
        if are_first && let Some(penalised) = &mut penalised {
            watched(penalised, &mut pool, watch);
        }
        let largest = match pool.whole() {
            Some(mut whole) => whole.max(),
            // The largest logit is searched for even if the array is marked as sorted.
            None => kernels::max_logit(pool.array().0, false),
        };
        match largest {
            f32::NEG_INFINITY => return Err(Error::NoCandidate),
            // If a logit is plus infinity, all probabilities are NaN, and do not show which
            // candidates are banned. So a logit that a bias or a host has made NaN becomes minus
            // infinity.
            f32::INFINITY => pool.ban_nan(),
            _ => {}
        }
        let random = members.next_random(&mut self.generator, self.accepted);
        let mut count = Count::default();
        for &stage in others {
            if let Some(step) = members.step(stage, &mut self.stages, &mut penalised) {
                watched(step, &mut pool, watch);
                count.forget();
            }
            count.write(stage, &mut self.stats, &mut pool);
        }
        if let Some(selector) = &mut members.selector {
            watched(&mut **selector, &mut pool, watch);
            count.forget();
        } else if let Some(random) = random {
            // The draw leaves all candidates, so the count stays.
            let mut draw = Draw {
                method: self.params.method,
                random,
                seed: self.generator.seed(),
                inverse,
            };
            watched(&mut draw, &mut pool, watch);
        }
        // A stage that does not run gets the number of candidates from which the token was drawn.
        for stage in COUNTED.into_iter().filter(|stage| !order.contains(stage)) {
            count.write(stage, &mut self.stats, &mut pool);
        }
        let token = pool.token().ok_or(Error::NoCandidate)?;
        // In a host's chain the host decides, as after a built-in.
        if given.is_none() && pool.is_banned() {
            return Err(Error::NoCandidate);
        }
        watch.chosen(token, raw, &mut pool);
        *left = Some(pool.leave_alone());
        if self.measured {
            let place = given.map(|given| given.as_slice().iter().position(|c| c.id == token));
            let index = place.map_or(token as usize, Option::unwrap_or_default);
            self.note(raw, index);
        }
        Ok(token)
    }

    /// Sets the stages that run, and their order, in place of those of the parameters, which `None`
    /// restores. The bias still comes first, and the last stage draws the token if it
    /// [can](Stage::draws). Stages that stay keep their memory. Fails, and changes nothing, if a
    /// stage occurs twice, if one that draws is not the last, if a number is not finite, if the
    /// slot of a [`Stage::Sampler`] is not below [`MAX_SAMPLERS`], or if there is too little
    /// memory.
    ///
    /// ```
    /// use llama_sieve::sieve::{Params, Sieve, Stage};
    ///
    /// // The order of llama.cpp's programs, with XTC.
    /// let mut sieve = Sieve::new(&Params { seed: 42, ..Params::default() })?;
    /// let xtc = Stage::Xtc { probability: 0.5, threshold: 0.1 };
    /// sieve.set_stages(Some(&[
    ///     Stage::Penalties, Stage::TopNSigma, Stage::TopK, Stage::Typical, Stage::TopP, Stage::MinP,
    ///     xtc, Stage::Temperature,
    /// ]))?;
    /// let token = sieve.sample(&[0.5f32, 3.0, 2.5, -1.0])?;
    /// sieve.accept(token);
    /// # Ok::<(), llama_sieve::sieve::Error>(())
    /// ```
    pub fn set_stages(&mut self, stages: Option<&[Stage]>) -> Result<(), Error> {
        check(stages.unwrap_or_default())?;
        let seed = self.generator.seed();
        self.pipeline.set(stages, &self.params, seed)
    }

    /// Returns the stages that were set by [`set_stages`](Self::set_stages), if any.
    pub fn stages(&self) -> Option<&[Stage]> {
        self.pipeline.order.as_deref()
    }

    /// Sets the sequence breakers of the stage [`Dry`](Stage::Dry), across which nothing counts as
    /// a repetition. Initially there are none.
    pub fn set_dry_breakers(&mut self, breakers: Breakers) -> Result<(), Error> {
        self.pipeline.members.set_breakers(Arc::new(breakers));
        Ok(())
    }

    /// Puts a sampler into a slot, replacing any other; `None` empties the slot. The sampler runs
    /// as the [stage](Self::set_stages) [`Stage::Sampler`] of this slot, accepts every token that
    /// is [accepted](Self::accept), and is reset by [`reset`](Self::reset). It draws from its own
    /// stream. Fails, and changes nothing, if the slot is not below [`MAX_SAMPLERS`] or if the
    /// sampler draws the token.
    ///
    /// ```
    /// use llama_sieve::samplers::{TopA, TopH};
    /// use llama_sieve::sieve::{Params, Sieve, Stage};
    ///
    /// let mut sieve = Sieve::new(&Params { seed: 42, ..Params::default() })?;
    /// sieve.set_sampler(0, TopH::new(0.4))?;
    /// sieve.set_sampler(1, TopA::new(0.2))?;
    /// let stages = [Stage::Penalties, Stage::Sampler(0), Stage::Temperature, Stage::Sampler(1)];
    /// sieve.set_stages(Some(&stages))?;
    /// let token = sieve.sample(&[0.5f32, 3.0, 2.5, -1.0])?;
    /// sieve.accept(token);
    /// # Ok::<(), llama_sieve::sieve::Error>(())
    /// ```
    pub fn set_sampler(&mut self, slot: usize, sampler: Option<impl Sampler>) -> Result<(), Error> {
        let boxed = sampler.map(|sampler| Box::new(sampler) as Box<dyn Member>);
        self.set_member(slot, boxed)
    }

    /// Puts a boxed sampler into a slot, like [`set_sampler`](Self::set_sampler).
    pub(crate) fn set_member(
        &mut self,
        slot: usize,
        member: Option<Box<dyn Member>>,
    ) -> Result<(), Error> {
        check_slot(slot)?;
        if let Some(member) = member.as_ref().filter(|m| m.kind() == Kind::Selector) {
            return Err(Error::Parameter(format!(
                "{} draws the token, and no sampler in a slot may: the sieve does, or a stage of \
                 its own",
                member.name().to_string_lossy()
            )));
        }
        self.pipeline.members.slots.put(slot, member);
        Ok(())
    }

    pub(super) fn members(&self) -> &Members {
        &self.pipeline.members
    }
}

/// The number of candidates with a probability. It is determined when it is first needed after a
/// step that may have changed it.
#[derive(Default)]
struct Count(Option<usize>);

impl Count {
    fn forget(&mut self) {
        self.0 = None;
    }

    /// Writes the number into the statistics of a stage, if the stage has such a field.
    fn write(&mut self, stage: Stage, stats: &mut Stats, pool: &mut Pool<'_>) {
        let place = match stage {
            Stage::TopK => &mut stats.after_top_k,
            Stage::Typical => &mut stats.after_typical,
            Stage::TopP => &mut stats.after_top_p,
            Stage::MinP => &mut stats.after_min_p,
            Stage::TopNSigma => &mut stats.after_top_n_sigma,
            _ => return,
        };
        *place = *self.0.get_or_insert_with(|| pool.unmasked());
    }
}

#[cfg(test)]
mod tests;
