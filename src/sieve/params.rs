//! The parameters of a sieve, their defaults, and the values that switch each stage off.

use crate::rng::DEFAULT_SEED;
use crate::samplers::penalties::Factors as Penalties;
use crate::sieve::Error;
use crate::token::Token;

/// A mark that is kept with the parameters and changes nothing: every sieve computes as llama.cpp's
/// chain does. The other differences between tsampler's modes are separate fields:
/// [`Params::tsampler`] has its choices.
// In the order of the numbers that C has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// tsampler's default.
    Fast,
    /// llama.cpp's chain.
    #[default]
    Parity,
}

/// The generator of random numbers.
// In the order of the numbers that C has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RngKind {
    /// xoroshiro128+ (Blackman and Vigna 2018), tsampler's.
    Xoroshiro128Plus,
    /// llama.cpp's stream. Takes the lower 32 bits of the seed.
    #[default]
    Mt19937,
    /// No stream: a hash of the seed and the number of accepted tokens, so that a position can be
    /// replayed alone.
    Position,
}

/// The method by which a token is drawn. Both give every candidate its probability; for one seed
/// they give different tokens.
// In the order of the numbers that C has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// The first candidate at which the running sum of probabilities reaches a uniform number.
    #[default]
    Cdf,
    /// The largest of logit / temperature + Gumbel noise (Maddison et al. 2014). The noise of a
    /// token depends only on the random number of this position and the token, not on the other
    /// candidates.
    Gumbel,
}

/// The position of the temperature among the stages.
// In the order of the numbers that C has for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Temperature after all filters: tsampler, llama.cpp's default chain.
    #[default]
    TempLast,
    /// Temperature right after the penalties, so that the filters see the distribution that is
    /// drawn from: Akunu, transformers, vLLM.
    TempFirst,
}

/// The parameters of a sieve. The defaults are llama.cpp's: with one seed a sieve gives the tokens
/// of its default chain.
///
/// | field | default | disabled by |
/// | --- | --- | --- |
/// | `temperature` | 0.8 | 1 |
/// | `top_k` | 40 | <= 0, or the size of the vocabulary and more |
/// | `top_p` | 0.95 | >= 1 |
/// | `min_p` | 0.05 | <= 0 |
/// | `typical_p` | 1 | >= 1 |
/// | `top_n_sigma` | -1 | <= 0 |
/// | `min_keep` | 1 | |
/// | `penalty_last_n` | 64 | <= 0 |
/// | `penalty_repeat` | 1 | 1 |
/// | `penalty_freq`, `penalty_present` | 0 | 0 |
/// | `seed` | 0xFFFFFFFF: random | |
///
/// Candidates, their order and, with [`RngKind::Mt19937`] and [`Method::Cdf`], tokens are those of
/// the chain logit-bias, penalties, top-k, typical, top-p, min-p, top-n-sigma, temp, dist of
/// built-in samplers. `temperature` below 0.001 counts as 0: of what the filters leave the most
/// probable.
#[derive(Debug, PartialEq)]
pub struct Params {
    /// Divides the logits: below 1 sharper, above 1 flatter.
    pub temperature: f32,
    /// Keeps that many of the largest logits.
    pub top_k: i32,
    /// Keeps the fewest most probable tokens whose probabilities reach this. At or below 0: the
    /// most probable one.
    pub top_p: f32,
    /// Keeps the tokens at least that probable relative to the most probable one.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is nearest to the entropy, until their probabilities
    /// exceed this.
    pub typical_p: f32,
    /// Keeps the logits within that many standard deviations of the largest.
    pub top_n_sigma: f32,
    /// Typical, top-p and min-p leave at least that many tokens.
    pub min_keep: usize,
    /// The number of last accepted tokens that are penalised.
    pub penalty_last_n: i32,
    /// Divides the logits of penalised tokens that are above 0, multiplies the others. Must be
    /// above 0.
    pub penalty_repeat: f32,
    /// Subtracted from the logit of a penalised token once per occurrence.
    pub penalty_freq: f32,
    /// Subtracted once from the logit of a penalised token.
    pub penalty_present: f32,
    /// The seed of the random numbers; 0xFFFFFFFF takes a random one, another at each reset.
    pub seed: u64,
    /// A mark that is kept and changes nothing.
    pub mode: Mode,
    /// The generator of random numbers.
    pub rng: RngKind,
    /// The method by which a token is drawn.
    pub method: Method,
    /// The position of the temperature among the stages.
    pub order: Order,
    /// Added to logits before the penalties; minus infinity bans a token. Tokens outside the
    /// vocabulary are ignored; a token named several times gets all its biases.
    pub bias: Vec<(Token, f32)>,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            typical_p: 1.0,
            top_n_sigma: -1.0,
            min_keep: 1,
            penalty_last_n: 64,
            penalty_repeat: 1.0,
            penalty_freq: 0.0,
            penalty_present: 0.0,
            seed: u64::from(DEFAULT_SEED),
            mode: Mode::Parity,
            rng: RngKind::Mt19937,
            method: Method::Cdf,
            order: Order::TempLast,
            bias: Vec::new(),
        }
    }
}

impl Clone for Params {
    fn clone(&self) -> Self {
        Self {
            bias: self.bias.clone(),
            ..*self
        }
    }

    /// Copies without an allocation where the old biases leave room.
    fn clone_from(&mut self, source: &Self) {
        let mut bias = std::mem::take(&mut self.bias);
        bias.clone_from(&source.bias);
        *self = Self { bias, ..*source };
    }
}

/// Below this temperature the most probable token is taken.
pub const GREEDY_BELOW: f32 = 1e-3;

impl Params {
    /// tsampler's defaults: xoroshiro128+, and a repetition penalty of 1.1.
    pub fn tsampler() -> Self {
        Self {
            penalty_repeat: 1.1,
            mode: Mode::Fast,
            rng: RngKind::Xoroshiro128Plus,
            ..Self::default()
        }
    }

    /// Fails unless every parameter is a number, finite but for biases, and in its range.
    pub fn check(&self) -> Result<(), Error> {
        let finite = [
            ("temperature", self.temperature),
            ("top_p", self.top_p),
            ("min_p", self.min_p),
            ("typical_p", self.typical_p),
            ("top_n_sigma", self.top_n_sigma),
            ("penalty_repeat", self.penalty_repeat),
            ("penalty_freq", self.penalty_freq),
            ("penalty_present", self.penalty_present),
        ];
        for (name, value) in finite {
            if !value.is_finite() {
                return Err(Error::Parameter(format!(
                    "{name} is {value}, not a finite number"
                )));
            }
        }
        if self.penalty_repeat <= 0.0 {
            let value = self.penalty_repeat;
            return Err(Error::Parameter(format!(
                "penalty_repeat is {value}; it divides and multiplies, so it must be above 0 (1 disables it)"
            )));
        }
        match self.bias.iter().find(|(_, bias)| bias.is_nan()) {
            Some((token, _)) => Err(Error::Parameter(format!(
                "the bias of token {token} is NaN"
            ))),
            None => Ok(()),
        }
    }

    /// Returns the penalties, `None` if they change nothing.
    pub fn penalties(&self) -> Option<Penalties> {
        let penalties = Penalties {
            repeat: self.penalty_repeat,
            freq: self.penalty_freq,
            present: self.penalty_present,
        };
        (self.penalty_last_n > 0 && penalties.is_active()).then_some(penalties)
    }

    /// Returns how many of the last accepted tokens are kept for the penalties.
    pub(super) fn window(&self) -> usize {
        usize::try_from(self.penalty_last_n).unwrap_or(0)
    }
}
