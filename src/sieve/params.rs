//! The parameters of a sieve, their defaults, and the values that disable each stage.

use crate::rng::DEFAULT_SEED;
use crate::samplers::penalties::Factors as Penalties;
use crate::sieve::Error;
use crate::token::Token;

/// A label that is kept with the parameters and has no effect: every sieve computes as llama.cpp's
/// chain does. The label is a mode of the sampler library tsampler (`docs/sampling.md`).
// The variants are in the order of their numbers in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// The default of tsampler.
    Fast,
    /// The chain of llama.cpp.
    #[default]
    Parity,
}

/// The generator of random numbers.
// The variants are in the order of their numbers in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RngKind {
    /// The generator xoroshiro128+ (Blackman and Vigna 2018), as in tsampler.
    Xoroshiro128Plus,
    /// The generator mt19937, as in llama.cpp. It takes the lower 32 bits of the seed.
    #[default]
    Mt19937,
    /// A hash of the seed and the number of accepted tokens instead of a stream, so that any
    /// position can be replayed alone.
    Position,
}

/// The method by which a token is drawn. With both methods a candidate is drawn with its
/// probability, but the tokens for one seed differ.
// The variants are in the order of their numbers in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Draws the first candidate at which the running sum of probabilities reaches a uniform
    /// number.
    #[default]
    Cdf,
    /// Draws the candidate with the largest logit / temperature + Gumbel noise (Maddison et al.
    /// 2014). The noise of a token depends only on the random number of this position and the
    /// token, not on the other candidates.
    Gumbel,
}

/// The position of the temperature among the stages.
// The variants are in the order of their numbers in C.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The temperature comes after all filters, as in tsampler and llama.cpp's default chain.
    #[default]
    TempLast,
    /// The temperature comes right after the penalties, so that the filters see the distribution
    /// from which the token is drawn, as in Akunu, transformers and vLLM.
    TempFirst,
}

/// The parameters of a sieve. The defaults are llama.cpp's: with the same seed a sieve gives the
/// tokens of its default chain.
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
/// With [`Order::TempLast`], the candidates and their order are those of the chain logit-bias,
/// penalties, top-k, typical, top-p, min-p, top-n-sigma, temp, dist of built-in samplers. With
/// [`RngKind::Mt19937`] and [`Method::Cdf`], so are the tokens. A `temperature` below 0.001 counts
/// as 0: the most probable of the candidates that the filters leave is chosen.
#[derive(Debug, PartialEq)]
pub struct Params {
    /// Divides the logits: the distribution is sharper below 1 and flatter above 1.
    pub temperature: f32,
    /// The number of largest logits that are kept.
    pub top_k: i32,
    /// Keeps the smallest set of most probable tokens whose probabilities add up to at least this
    /// value. At or below 0, keeps only the most probable token.
    pub top_p: f32,
    /// Keeps the tokens whose probability is at least this fraction of the largest one.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is nearest to the entropy, until the sum of their
    /// probabilities exceeds this value.
    pub typical_p: f32,
    /// Keeps the logits within this many standard deviations of the largest.
    pub top_n_sigma: f32,
    /// The minimum number of tokens that typical, top-p, min-p and XTC keep.
    pub min_keep: usize,
    /// The number of most recent accepted tokens that are penalised.
    pub penalty_last_n: i32,
    /// Divides the logits of penalised tokens that are above 0, and multiplies the others. Must be
    /// above 0.
    pub penalty_repeat: f32,
    /// The number that is subtracted from the logit of a penalised token once per occurrence.
    pub penalty_freq: f32,
    /// The number that is subtracted once from the logit of a penalised token.
    pub penalty_present: f32,
    /// The seed of the random numbers; 0xFFFFFFFF means a random seed, which changes at each reset.
    pub seed: u64,
    /// A label that is kept and has no effect.
    pub mode: Mode,
    /// The generator of random numbers.
    pub rng: RngKind,
    /// The method by which a token is drawn.
    pub method: Method,
    /// The position of the temperature among the stages.
    pub order: Order,
    /// Numbers that are added to logits before the penalties; minus infinity bans a token. Tokens
    /// outside the vocabulary are ignored. A token that occurs several times gets all its biases;
    /// in a chain only the first, if earlier samplers have moved the token.
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

    /// Copies the parameters, without allocating if the old biases have room for the new ones.
    fn clone_from(&mut self, source: &Self) {
        let mut bias = std::mem::take(&mut self.bias);
        bias.clone_from(&source.bias);
        *self = Self { bias, ..*source };
    }
}

/// The temperature below which the most probable token is chosen.
pub const GREEDY_BELOW: f32 = 1e-3;

impl Params {
    /// Returns tsampler's defaults: xoroshiro128+, and a repetition penalty of 1.1.
    pub fn tsampler() -> Self {
        Self {
            penalty_repeat: 1.1,
            mode: Mode::Fast,
            rng: RngKind::Xoroshiro128Plus,
            ..Self::default()
        }
    }

    /// Fails unless every parameter is finite and in its range. A bias may be infinite, but not
    /// NaN.
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

    /// Returns the penalties; `None` if they have no effect.
    pub fn penalties(&self) -> Option<Penalties> {
        let penalties = Penalties {
            repeat: self.penalty_repeat,
            freq: self.penalty_freq,
            present: self.penalty_present,
        };
        (self.penalty_last_n > 0 && penalties.is_active()).then_some(penalties)
    }

    /// Returns the number of accepted tokens that are kept for the penalties.
    pub(super) fn window(&self) -> usize {
        usize::try_from(self.penalty_last_n).unwrap_or(0)
    }
}
