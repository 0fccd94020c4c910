//! The stages that a sieve can have.

use crate::samplers::DryParams;
use crate::sieve::Error;

/// A stage of a sieve. A stage without fields uses the [parameters](crate::sieve::Params) of the
/// same name, and does nothing if they disable it. Each stage computes what the corresponding
/// sampler in [`samplers`](crate::samplers) computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Stage {
    /// Penalises tokens of the history, with `penalty_last_n`, `penalty_repeat`, `penalty_freq` and
    /// `penalty_present`.
    Penalties,
    /// Penalises the continuation of repetitions, with the breakers of
    /// [`Sieve::set_dry_breakers`](crate::sieve::Sieve::set_dry_breakers).
    Dry(DryParams),
    /// Keeps the `top_k` largest logits.
    TopK,
    /// Locally typical sampling, with `typical_p`.
    Typical,
    /// Nucleus sampling, with `top_p`.
    TopP,
    /// Min-p sampling, with `min_p`.
    MinP,
    /// Top-n-sigma sampling, with `top_n_sigma`.
    TopNSigma,
    /// XTC: with a chance of `probability`, removes every token whose probability is at least
    /// `threshold`, except the least probable of these. Disabled by `probability <= 0` or
    /// `threshold > 0.5`.
    Xtc {
        /// The chance that tokens are removed.
        probability: f32,
        /// The minimum probability at which a token may be removed.
        threshold: f32,
    },
    /// Divides the logits by `temperature`.
    Temperature,
    /// Divides the logits by a temperature between `temperature - range` and `temperature + range`,
    /// which rises with the entropy. A `range` of at most 0 means plain temperature, which counts
    /// as 0 below 0.001. With a `range` above 0 no temperature counts as 0.
    DynamicTemperature {
        /// The largest deviation from `temperature`.
        range: f32,
        /// The power to which the entropy, divided by the largest possible one, is raised.
        exponent: f32,
    },
    /// Draws the token so that the surprisal of the text stays near `tau` bits.
    Mirostat {
        /// The target, in bits.
        tau: f32,
        /// The fraction of the error that is corrected at each token.
        eta: f32,
        /// The number of candidates used for the estimate.
        m: i32,
    },
    /// Draws the token like `Mirostat`, by the second version of the algorithm.
    MirostatV2 {
        /// The target, in bits.
        tau: f32,
        /// The fraction of the error that is corrected at each token.
        eta: f32,
    },
    /// Draws a token with a probability near a moving goal, which is adjusted so that the average
    /// probability of the tokens stays near `target`.
    AdaptiveP {
        /// The target, from 0 to 1; below 0 the stage only draws.
        target: f32,
        /// The weight of the past, from 0 to 0.99: the average covers about 1 / (1 - decay) tokens.
        decay: f32,
    },
    /// The sampler in this slot, set by [`Sieve::set_sampler`](crate::sieve::Sieve::set_sampler).
    /// It does nothing while the slot is empty.
    Sampler(u8),
}

/// The number of slots for the caller's samplers in a sieve.
pub const MAX_SAMPLERS: usize = 16;

// The numbers of the stages with a memory.
pub(super) const DRY: u32 = 2;
pub(super) const XTC: u32 = 8;
pub(super) const MIROSTAT: u32 = 11;
pub(super) const MIROSTAT_V2: u32 = 12;
pub(super) const ADAPTIVE_P: u32 = 13;
/// The number of the sampler in the first slot.
pub(super) const SAMPLER: u32 = 64;

impl Stage {
    /// Returns the number of the stage in C and in saved states.
    pub fn number(self) -> u32 {
        match self {
            Self::Penalties => 1,
            Self::Dry(_) => DRY,
            Self::TopK => 3,
            Self::Typical => 4,
            Self::TopP => 5,
            Self::MinP => 6,
            Self::TopNSigma => 7,
            Self::Xtc { .. } => XTC,
            Self::Temperature => 9,
            Self::DynamicTemperature { .. } => 10,
            Self::Mirostat { .. } => MIROSTAT,
            Self::MirostatV2 { .. } => MIROSTAT_V2,
            Self::AdaptiveP { .. } => ADAPTIVE_P,
            Self::Sampler(slot) => SAMPLER + u32::from(slot),
        }
    }

    /// Returns the name of the stage, as used in error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Penalties => "penalties",
            Self::Dry(_) => "dry",
            Self::TopK => "top_k",
            Self::Typical => "typical",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::TopNSigma => "top_n_sigma",
            Self::Xtc { .. } => "xtc",
            Self::Temperature => "temperature",
            Self::DynamicTemperature { .. } => "dynamic_temperature",
            Self::Mirostat { .. } => "mirostat",
            Self::MirostatV2 { .. } => "mirostat_v2",
            Self::AdaptiveP { .. } => "adaptive_p",
            Self::Sampler(_) => "sampler",
        }
    }

    /// True if the stage draws the token itself, and therefore must be the last one.
    pub fn draws(self) -> bool {
        matches!(
            self,
            Self::Mirostat { .. } | Self::MirostatV2 { .. } | Self::AdaptiveP { .. }
        )
    }

    fn numbers(self) -> [(&'static str, f32); 2] {
        match self {
            Self::Dry(dry) => [("multiplier", dry.multiplier), ("base", dry.base)],
            Self::Xtc {
                probability,
                threshold,
            } => [("probability", probability), ("threshold", threshold)],
            Self::DynamicTemperature { range, exponent } => {
                [("range", range), ("exponent", exponent)]
            }
            Self::Mirostat { tau, eta, .. } | Self::MirostatV2 { tau, eta } => {
                [("tau", tau), ("eta", eta)]
            }
            Self::AdaptiveP { target, decay } => [("target", target), ("decay", decay)],
            _ => [("", 0.0); 2],
        }
    }
}

/// Fails unless there is a slot numbered `slot`.
pub(in crate::sieve) fn check_slot(slot: usize) -> Result<(), Error> {
    let last = MAX_SAMPLERS - 1;
    match slot > last {
        true => Err(Error::Parameter(format!(
            "the slot of a sampler is {slot}; they go from 0 to {last}"
        ))),
        false => Ok(()),
    }
}

/// Fails unless a sieve can have these stages: each may occur only once, its numbers must be
/// finite, and a stage that draws the token must be the last.
pub(in crate::sieve) fn check(stages: &[Stage]) -> Result<(), Error> {
    for (place, stage) in stages.iter().enumerate() {
        let name = stage.name();
        if stages
            .iter()
            .take(place)
            .any(|s| s.number() == stage.number())
        {
            return Err(Error::Parameter(format!("the stage {name} is named twice")));
        }
        if stage.draws() && place + 1 < stages.len() {
            return Err(Error::Parameter(format!(
                "the stage {name} draws the token, so it must be the last"
            )));
        }
        if let Stage::Sampler(slot) = *stage {
            check_slot(slot.into())?;
        }
        for (number, value) in stage.numbers() {
            if !value.is_finite() {
                return Err(Error::Parameter(format!(
                    "{number} of the stage {name} is {value}, not a finite number"
                )));
            }
        }
    }
    Ok(())
}
