//! Runs the stages straight from the logits, in any order. Each stage is one of the exact samplers.
//!
//! Their order is one of those in [`Order`], or [the caller's](crate::sieve::Sieve::set_stages).
//! The bias always comes first, as in llama.cpp's programs.
//!
//! In llama.cpp each sampler that draws has its own generator, and all of them begin with the same
//! seed. A pipeline with mt19937 works in the same way. The other generators give one 64-bit number
//! per token, and each stage that draws seeds its own generator with a hash of that number. So no
//! further state has to be saved, and a single position can be replayed.

use std::collections::TryReserveError;
use std::sync::Arc;

use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::history::History;
use crate::kernels;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::per_thread::lent_per_thread;
use crate::pool::{Buffers, Left, Pool};
use crate::sampler::{About, Kind, Member, Sampler, Tell};
use crate::samplers::dist;
use crate::samplers::penalties::Penalised;
use crate::samplers::{Breakers, Dist, Xtc};
use crate::sieve::biases::Biases;
use crate::sieve::draw;
use crate::sieve::generator::{Draw, Generator};
use crate::sieve::params::{Method, Order, Params, RngKind};
use crate::sieve::stages::{Stages, warm_up};
use crate::sieve::stats::Stats;
use crate::sieve::{Error, Sieve};
use crate::token::{Token, TokenData};
use crate::trace::Watch;

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

/// The order of the stages, the stages that only a pipeline has, and the pipeline's buffers.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// The caller's stages; `None` if the parameters decide.
    pub order: Option<Vec<Stage>>,
    pub members: Members,
    dist: Scratch<Last>,
    buffers: Buffers,
    /// The state of the pool with the candidates from which the last token was drawn.
    left: Option<Left>,
}

/// The sampler that draws the token if the last stage does not.
#[derive(Clone, Debug)]
struct Last(Dist);

lent_per_thread!(Last);

impl Default for Last {
    fn default() -> Self {
        // The stream of this `Dist` is never used.
        Self(Dist::new(0))
    }
}

/// Copies no buffers, except for the candidates from which the last token was drawn.
impl Clone for Pipeline {
    fn clone(&self) -> Self {
        Self {
            order: self.order.clone(),
            members: self.members.clone(),
            dist: Scratch::default(),
            buffers: self.buffers.of_left(self.left),
            left: self.left,
        }
    }
}

/// The parts of the sieve that stages read or change.
pub(super) struct Around<'s> {
    pub params: &'s Params,
    pub biases: &'s Biases,
    pub history: &'s History,
    pub stages: &'s mut Stages,
    pub generator: &'s mut Generator,
    pub accepted: u64,
    pub stats: &'s mut Stats,
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

    /// Chooses a token from `logits`, or from the candidates `given` by a host. In the latter case
    /// `logits` contains the logits of these candidates, in the same order.
    pub(super) fn sample(
        &mut self,
        logits: Logits<'_>,
        given: Option<&Candidates<'_>>,
        mut around: Around<'_>,
        watch: &mut impl Watch,
    ) -> Result<Token, Error> {
        self.left = None;
        self.buffers.try_reserve(logits.len())?;
        let mut pool = Pool::new(logits, &mut self.buffers).banning_nan();
        watch.before(&|_, _| {});
        match given {
            Some(candidates) => around.biases.add_to_candidates(candidates, &mut pool),
            None => {
                if let Some(mut whole) = pool.whole() {
                    around.biases.add_to_whole(&mut whole);
                }
            }
        }
        if !around.params.bias.is_empty() {
            let ask = |about, to: Tell<'_>| tell_bias(around.params, about, to);
            watch.after(|| "logit-bias".into(), &mut pool, &ask);
        }
        let order = match (&self.order, around.params.order) {
            (Some(stages), _) => stages,
            (None, Order::TempLast) => &TEMP_LAST[..],
            (None, Order::TempFirst) => &TEMP_FIRST[..],
        };
        // Penalties that come first run before the check for an unmasked token, as the bias does.
        let leading = usize::from(order.first() == Some(&Stage::Penalties));
        let (first, others) = order.split_at(leading);
        let mut running = Running {
            members: &mut self.members,
            around: &mut around,
            pool: &mut pool,
            unmasked: None,
            watch,
        };
        running.run(first);
        match largest(running.pool) {
            f32::NEG_INFINITY => return Err(Error::NoCandidate),
            // If a logit is plus infinity, all probabilities are NaN, and do not show which
            // candidates are banned. So a logit that a bias or a host has made NaN becomes minus
            // infinity.
            f32::INFINITY => running.pool.ban_nan(),
            _ => {}
        }
        let draw = running.draw();
        running.run(others);
        running.choose(draw, &mut self.dist.0);
        self.dist.rest();
        running.count_the_last(order);
        let token = pool.token().ok_or(Error::NoCandidate)?;
        // In a host's chain the host decides, as after a built-in.
        if given.is_none() && pool.is_banned() {
            return Err(Error::NoCandidate);
        }
        watch.chosen(token, logits, &mut pool);
        self.left = Some(pool.leave_alone());
        Ok(token)
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
        warm_up(Some(&mut self.dist.0), n.max(dist::MANY));
        self.dist.rest();
        self.buffers.warm_up(n)
    }

    /// Returns the size of the buffers in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.buffers.bytes()
    }
}

impl Sieve {
    /// Sets the stages that run, and their order, in place of those of the parameters, which `None`
    /// restores. The bias still comes first, and the last stage draws the token if it
    /// [can](Stage::draws). Stages that stay keep their memory. Fails, and changes nothing, if a
    /// stage occurs twice, if one that draws is not the last, or if a number is not finite.
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

fn largest(pool: &mut Pool<'_>) -> f32 {
    match pool.whole() {
        Some(mut whole) => whole.max(),
        // The largest logit is searched for even if the array is marked as sorted.
        None => kernels::max_logit(pool.array().0, false),
    }
}

/// One run of a pipeline, for one token.
struct Running<'r, 's, 'p, W> {
    members: &'r mut Members,
    around: &'r mut Around<'s>,
    pool: &'r mut Pool<'p>,
    /// The number of candidates with a probability, after the last stage that may have changed it.
    unmasked: Option<usize>,
    watch: &'r mut W,
}

impl<W: Watch> Running<'_, '_, '_, W> {
    /// Returns the random number for this token, if the sieve's own generator provides it.
    fn draw(&mut self) -> Option<Draw> {
        let Around {
            params,
            generator,
            accepted,
            ..
        } = &mut *self.around;
        let has_streams = params.rng == RngKind::Mt19937;
        if has_streams && self.members.selector.is_some() {
            return None;
        }
        let draw = generator.draw(*accepted);
        if !has_streams {
            self.members.begin_streams(draw.bits);
        }
        Some(draw)
    }

    fn run(&mut self, stages: &[Stage]) {
        for &stage in stages {
            if self.apply(stage) {
                self.unmasked = None;
            }
            let Some(place) = after(self.around.stats, stage) else {
                continue;
            };
            let pool = &mut *self.pool;
            *place = *self.unmasked.get_or_insert_with(|| pool.unmasked());
        }
    }

    /// Applies a stage that does not draw the token. Returns false if it is disabled.
    fn apply(&mut self, stage: Stage) -> bool {
        let Self {
            members,
            around,
            pool,
            watch,
            ..
        } = self;
        let pool = &mut **pool;
        let watch = &mut **watch;
        let stages = &mut *around.stages;
        match stage {
            Stage::Penalties => {
                let factors = around.params.penalties();
                let history = around.history;
                let penalised = factors.map(|factors| Penalised { history, factors });
                penalised.is_some_and(|penalised| {
                    watch.before(&|_, _| {});
                    penalised.narrow(pool);
                    let ask = |about, to: Tell<'_>| penalised.tell(about, to);
                    watch.after(|| "penalties".into(), pool, &ask);
                    true
                })
            }
            Stage::Dry(dry) => !dry.are_disabled() && narrow(members.dry.as_mut(), pool, watch),
            Stage::TopK => narrow(stages.top_k.as_mut(), pool, watch),
            Stage::Typical => narrow(stages.typical.as_mut(), pool, watch),
            Stage::TopP => narrow(stages.top_p.as_mut(), pool, watch),
            Stage::MinP => narrow(stages.min_p.as_mut(), pool, watch),
            Stage::TopNSigma => narrow(stages.top_n_sigma.as_mut(), pool, watch),
            Stage::Xtc {
                probability,
                threshold,
            } => {
                !Xtc::is_disabled(probability, threshold)
                    && narrow(members.xtc.as_deref_mut(), pool, watch)
            }
            Stage::Temperature => narrow(stages.temp.as_mut(), pool, watch),
            Stage::DynamicTemperature { .. } => narrow(members.temp_ext.as_mut(), pool, watch),
            Stage::Mirostat { .. } | Stage::MirostatV2 { .. } | Stage::AdaptiveP { .. } => false,
            Stage::Sampler(slot) => narrow(members.slots.get(slot), pool, watch),
        }
    }

    /// Draws the token with `draw`, or with the last stage's own generator.
    fn choose(&mut self, draw: Option<Draw>, dist: &mut Dist) {
        let (pool, watch) = (&mut *self.pool, &mut *self.watch);
        if let Some(selector) = &mut self.members.selector {
            self.unmasked = None;
            watch.before(&|about, to| selector.tell(about, to));
            selector.narrow(pool);
            let name = || selector.name().to_string_lossy();
            return watch.after(name, pool, &|about, to| selector.tell(about, to));
        }
        let Some(draw) = draw else {
            return;
        };
        let seed = self.around.generator.seed();
        let ask = |about, to: Tell<'_>| match about {
            About::Parameters => to("seed", seed as f64),
            About::Next => to("draw", draw.uniform),
            About::Token(_) => {}
        };
        watch.before(&ask);
        match self.around.params.method {
            Method::Cdf => {
                dist.narrow_by(pool, draw.uniform);
                dist.rest();
            }
            Method::Gumbel => pool.apply(|candidates| gumbel(candidates, draw)),
        }
        let name = match self.around.params.method {
            Method::Cdf => "dist",
            Method::Gumbel => "gumbel",
        };
        watch.after(|| name.into(), pool, &ask);
    }

    /// Writes the number of candidates from which the token is drawn into the statistics of each
    /// filter that is not among the stages.
    fn count_the_last(&mut self, order: &[Stage]) {
        let cuts = [
            Stage::TopK,
            Stage::Typical,
            Stage::TopP,
            Stage::MinP,
            Stage::TopNSigma,
        ];
        for stage in cuts.into_iter().filter(|cut| !order.contains(cut)) {
            let pool = &mut *self.pool;
            if let Some(place) = after(self.around.stats, stage) {
                *place = *self.unmasked.get_or_insert_with(|| pool.unmasked());
            }
        }
    }
}

/// Returns the field of the statistics for the number of candidates left after a stage.
fn after(stats: &mut Stats, stage: Stage) -> Option<&mut usize> {
    match stage {
        Stage::TopK => Some(&mut stats.after_top_k),
        Stage::Typical => Some(&mut stats.after_typical),
        Stage::TopP => Some(&mut stats.after_top_p),
        Stage::MinP => Some(&mut stats.after_min_p),
        Stage::TopNSigma => Some(&mut stats.after_top_n_sigma),
        _ => None,
    }
}

/// Applies a stage if it is enabled, and gives its buffers back to the thread, for the next stage
/// or sampler. Returns true if it is enabled.
fn narrow(
    stage: Option<&mut (impl Member + ?Sized)>,
    pool: &mut Pool<'_>,
    watch: &mut impl Watch,
) -> bool {
    let Some(stage) = stage else {
        return false;
    };
    watch.before(&|about, to| stage.tell(about, to));
    stage.narrow(pool);
    let name = || stage.name().to_string_lossy();
    watch.after(name, pool, &|about, to| stage.tell(about, to));
    true
}

/// Reports the bias, which precedes all stages.
fn tell_bias(params: &Params, about: About, to: Tell<'_>) {
    if about == About::Parameters {
        to("n", params.bias.len() as f64);
    }
}

fn gumbel(candidates: &mut Candidates<'_>, draw: Draw) {
    let sorted = candidates.is_sorted();
    let data = candidates.as_mut_slice();
    if let [only] = data {
        only.p = 1.0;
        return candidates.select(Some(0));
    }
    let max = kernels::max_logit(data, sorted);
    let chosen = draw::gumbel(data, max, draw.bits);
    candidates.select(Some(chosen));
}

#[cfg(test)]
mod tests;
