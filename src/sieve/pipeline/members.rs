//! The steps of a pipeline's stages, and the memory that some keep from token to token.

use std::ffi::CStr;
use std::sync::Arc;

use super::Stage;
use super::slots::Slots;
use crate::pool::Pool;
use crate::rng::{SeededMt19937, mix};
use crate::sampler::{About, Sampler, Step, Tell};
use crate::samplers::penalties::Penalised;
use crate::samplers::{AdaptiveP, Breakers, Dry, Mirostat, MirostatV2, TempExt, Xtc};
use crate::sieve::Error;
use crate::sieve::generator::{Generator, Random};
use crate::sieve::params::{Params, RngKind};
use crate::sieve::stages::{Stages, temperature, warm_up};
use crate::token::Token;

/// The stages with a memory or parameters of their own. A stage that the sieve does not have is
/// `None`. A stage with a memory exists even while its parameters disable it. Stages with a
/// generator are boxed, since a generator takes 2.5 KB.
#[derive(Clone, Debug, Default)]
pub(in crate::sieve) struct Members {
    pub(super) dry: Option<Dry>,
    breakers: Arc<Breakers>,
    pub(super) xtc: Option<Box<Xtc>>,
    pub(super) temp_ext: Option<TempExt>,
    pub(super) selector: Option<Box<Selector>>,
    pub(in crate::sieve) slots: Slots,
}

/// A stage that draws the token.
#[derive(Debug)]
pub(super) enum Selector {
    Mirostat(Mirostat),
    MirostatV2(MirostatV2),
    AdaptiveP(AdaptiveP),
}

/// Evaluates an expression on the sampler in a [`Selector`], whatever its kind.
macro_rules! each {
    ($selector:expr, $sampler:ident => $done:expr) => {
        match $selector {
            Selector::Mirostat($sampler) => $done,
            Selector::MirostatV2($sampler) => $done,
            Selector::AdaptiveP($sampler) => $done,
        }
    };
}

impl Clone for Selector {
    fn clone(&self) -> Self {
        match self {
            Self::Mirostat(s) => Self::Mirostat(s.clone()),
            Self::MirostatV2(s) => Self::MirostatV2(s.clone()),
            // The clone of this sampler restarts its stream, as the built-in's does.
            Self::AdaptiveP(s) => Self::AdaptiveP(s.twin()),
        }
    }
}

impl Step for Selector {
    fn name(&self) -> &'static CStr {
        each!(self, s => Step::name(s))
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        each!(self, s => Step::tell(s, about, to));
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if let Self::Mirostat(s) = self {
            s.set_n_vocab(i32::try_from(pool.n_vocab()).unwrap_or(i32::MAX));
        }
        each!(self, s => Step::narrow(s, pool));
    }
}

impl Selector {
    pub(super) fn rng(&self) -> &SeededMt19937 {
        each!(self, s => s.rng())
    }

    pub(super) fn rng_mut(&mut self) -> &mut SeededMt19937 {
        each!(self, s => s.rng_mut())
    }

    /// Returns the selector for `stage`; `None` if that stage does not draw the token. If `old` is
    /// of the same kind, it is returned with the new parameters and its memory. Otherwise the
    /// stream of the new selector begins at `seed`.
    fn of(stage: Stage, mut old: Option<Box<Self>>, seed: u32) -> Option<Box<Self>> {
        let mut fresh = match (stage, old.as_deref_mut()) {
            (Stage::Mirostat { tau, eta, m }, Some(Self::Mirostat(s))) => {
                s.set(tau, eta, m);
                return old;
            }
            (Stage::MirostatV2 { tau, eta }, Some(Self::MirostatV2(s))) => {
                s.set(tau, eta);
                return old;
            }
            (Stage::AdaptiveP { target, decay }, Some(Self::AdaptiveP(s))) => {
                s.set(target, decay);
                return old;
            }
            (Stage::Mirostat { tau, eta, m }, _) => {
                Self::Mirostat(Mirostat::new(0, 0, tau, eta, m))
            }
            (Stage::MirostatV2 { tau, eta }, _) => Self::MirostatV2(MirostatV2::new(0, tau, eta)),
            (Stage::AdaptiveP { target, decay }, _) => {
                Self::AdaptiveP(AdaptiveP::new(target, decay, 0))
            }
            _ => return None,
        };
        // The seed is not passed to the constructors, which treat one value as a request for a
        // random seed.
        fresh.rng_mut().begin(seed);
        Some(Box::new(fresh))
    }
}

fn as_step<'s, S: Step>(step: Option<&'s mut S>) -> Option<&'s mut (dyn Step + 's)> {
    step.map(|step| step as _)
}

impl Members {
    /// Returns the step of a stage that does not draw the token; `None` if the stage is disabled.
    /// `filters` and `penalised` are those of the parameters.
    pub(super) fn step<'s>(
        &'s mut self,
        stage: Stage,
        filters: &'s mut Stages,
        penalised: &'s mut Option<Penalised<'_>>,
    ) -> Option<&'s mut (dyn Step + 's)> {
        match stage {
            Stage::Penalties => as_step(penalised.as_mut()),
            Stage::Dry(dry) if dry.are_disabled() => None,
            Stage::Dry(_) => as_step(self.dry.as_mut()),
            Stage::TopK => as_step(filters.top_k.as_mut()),
            Stage::Typical => as_step(filters.typical.as_mut()),
            Stage::TopP => as_step(filters.top_p.as_mut()),
            Stage::MinP => as_step(filters.min_p.as_mut()),
            Stage::TopNSigma => as_step(filters.top_n_sigma.as_mut()),
            Stage::Xtc {
                probability,
                threshold,
            } if Xtc::is_disabled(probability, threshold) => None,
            Stage::Xtc { .. } => as_step(self.xtc.as_deref_mut()),
            Stage::Temperature => as_step(filters.temp.as_mut()),
            Stage::DynamicTemperature { .. } => as_step(self.temp_ext.as_mut()),
            Stage::Mirostat { .. } | Stage::MirostatV2 { .. } | Stage::AdaptiveP { .. } => None,
            Stage::Sampler(slot) => self.slots.get(slot).map(|sampler| sampler as _),
        }
    }

    /// Makes DRY, if it is among these stages and absent. Fails if there is too little memory.
    /// [`arrange`](Self::arrange) does not make it.
    pub(super) fn try_reserve(&mut self, stages: &[Stage]) -> Result<(), Error> {
        for stage in stages {
            if let (Stage::Dry(params), None) = (stage, &self.dry) {
                self.dry = Some(Dry::try_new(*params)?);
            }
        }
        Ok(())
    }

    /// Updates the members to `stages` and `params`. Stages that stay keep their memory. The
    /// streams of new ones begin at `seed`.
    pub(super) fn arrange(&mut self, stages: &[Stage], params: &Params, seed: u64) {
        let seed = seed as u32;
        let (mut dry, mut xtc) = (self.dry.take(), self.xtc.take());
        let (mut temp_ext, mut selector) = (self.temp_ext.take(), self.selector.take());
        for &stage in stages {
            match stage {
                Stage::Dry(params) => {
                    self.dry = dry.take();
                    if let Some(dry) = &mut self.dry {
                        dry.set(params);
                        dry.share_breakers(self.breakers.clone());
                    }
                }
                Stage::Xtc {
                    probability,
                    threshold,
                } => {
                    self.xtc = xtc.take().or_else(|| {
                        let mut fresh = Xtc::new(1.0, 0.0, 0, 0)?;
                        fresh.rng_mut().begin(seed);
                        Some(Box::new(fresh))
                    });
                    if let Some(xtc) = &mut self.xtc {
                        xtc.set(probability, threshold, params.min_keep);
                    }
                }
                Stage::DynamicTemperature { range, exponent } => {
                    // With a range, a temperature near 0 does not count as 0.
                    let t = match range > 0.0 {
                        true => params.temperature,
                        false => temperature(params),
                    };
                    let fresh = TempExt::new(t, range, exponent);
                    self.temp_ext = match (fresh, temp_ext.take()) {
                        (Some(_), Some(mut old)) => {
                            old.set(t, range, exponent);
                            Some(old)
                        }
                        (fresh, _) => fresh,
                    };
                }
                stage if stage.draws() => {
                    self.selector = Selector::of(stage, selector.take(), seed);
                }
                _ => {}
            }
        }
    }

    /// Reserves the most memory that `n` candidates can need.
    pub(super) fn warm_up(&mut self, n: usize) {
        warm_up(self.xtc.as_deref_mut(), n);
        warm_up(self.temp_ext.as_mut(), n);
        if let Some(selector) = self.selector.as_deref_mut() {
            each!(selector, s => warm_up(Some(s), n));
        }
        self.slots.each(|sampler| sampler.warm_up(n));
    }

    /// Sets the sequence breakers of DRY. They end repetitions from now on.
    pub(super) fn set_breakers(&mut self, breakers: Arc<Breakers>) {
        if let Some(dry) = &mut self.dry {
            dry.share_breakers(breakers.clone());
        }
        self.breakers = breakers;
    }

    /// Returns the random streams of the stages, each with the number that identifies it.
    fn streams(&mut self) -> impl Iterator<Item = (u64, &mut SeededMt19937)> {
        let xtc = self.xtc.as_mut().map(|xtc| (1, xtc.rng_mut()));
        let selector = self.selector.as_mut().map(|s| (2, s.rng_mut()));
        xtc.into_iter().chain(selector)
    }

    /// Returns the generator's number for the token after `accepted` others; `None` if the last
    /// stage draws the token, from its own stream of mt19937. With another generator, the number
    /// also restarts the streams of all stages.
    pub(super) fn next_random(
        &mut self,
        generator: &mut Generator,
        accepted: u64,
    ) -> Option<Random> {
        let has_streams = generator.kind() == RngKind::Mt19937;
        if has_streams && self.selector.is_some() {
            return None;
        }
        let random = generator.next(accepted);
        if !has_streams {
            self.begin_streams(random.bits);
        }
        Some(random)
    }

    /// Restarts all streams, each with a hash of the random number for this token.
    pub(super) fn begin_streams(&mut self, bits: u64) {
        for (number, rng) in self.streams() {
            rng.stream.reseed(mix(bits ^ number) as u32);
        }
    }

    /// Restarts all streams at `seed`.
    pub(in crate::sieve) fn seed_streams(&mut self, seed: u64) {
        for (_, rng) in self.streams() {
            rng.begin(seed as u32);
        }
    }

    pub(in crate::sieve) fn accept(&mut self, token: Token) {
        if let Some(dry) = self.dry.as_mut().filter(|dry| dry.window_size() > 0) {
            dry.accept(token);
        }
        if let Some(Selector::AdaptiveP(adaptive_p)) = self.selector.as_deref_mut() {
            adaptive_p.accept(token);
        }
        self.slots.each(|sampler| sampler.accept(token));
    }

    /// Resets all stages, with streams that begin at `seed`.
    pub(in crate::sieve) fn reset(&mut self, seed: u64) {
        if let Some(dry) = &mut self.dry {
            dry.reset();
        }
        if let Some(selector) = self.selector.as_deref_mut() {
            each!(selector, s => s.reset());
        }
        self.slots.each(|sampler| sampler.reset());
        self.seed_streams(seed);
    }
}
