//! The sieve: a pipeline from raw logits to a token, whose parameters may change at every token.
//!
//! By default the stages are, in this order: logit bias, penalties, top-k, typical, top-p, min-p,
//! top-n-sigma, temperature, draw. The caller's logits are only read. Parameters can change between
//! any two tokens, while history and generator continue. `docs/sampling.md` has the formula of each
//! stage, and its source.
//!
//! # Example
//!
//! ```
//! use llama_sieve::sieve::{Params, Sieve};
//!
//! let mut sieve = Sieve::new(&Params { seed: 42, ..Params::default() })?;
//! let logits = [0.5f32, 3.0, 2.5, -1.0];
//! let token = sieve.sample(&logits)?;
//! sieve.accept(token);
//!
//! // For the next token: the most probable one, and one token is banned.
//! let mut params = sieve.params().clone();
//! params.temperature = 0.0;
//! params.bias.push((1, f32::NEG_INFINITY));
//! sieve.set_params(&params)?;
//! assert_eq!(sieve.sample(&logits)?, 2);
//! # Ok::<(), llama_sieve::sieve::Error>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod biases;
mod draw;
mod error;
mod generator;
mod in_chain;
mod params;
mod pipeline;
mod pool;
mod reserve;
mod stages;
mod state;
mod stateless;
mod stats;

pub use batch::{Job, sample_batch, share};
pub use error::Error;
pub use in_chain::SieveSampler;
pub use params::{GREEDY_BELOW, Method, Mode, Order, Params, RngKind};
pub use pipeline::{MAX_SAMPLERS, Stage};
pub use stateless::{greedy, top_candidates};
pub use stats::Stats;

pub use crate::kernels::logits::Logits;

pub use crate::samplers::penalties::Factors as Penalties;

use crate::candidates::Candidates;
use crate::fault;
use crate::history::History;
use crate::instruction_set;
use crate::memory::{self, reserve};
use crate::metrics::Summary;
use crate::token::{Token, TokenData};
use crate::trace::{self, Off, Sequence};
use biases::Biases;
use generator::Generator;
use pipeline::Pipeline;
use stages::Stages;

/// A sampler of one sequence, with parameters, the history of accepted tokens, random numbers, and
/// a pipeline of exact samplers.
///
/// A clone continues as the original would. A sieve is used from one thread at a time, and may move
/// between threads. After the first tokens neither [`sample`](Self::sample) nor
/// [`accept`](Self::accept) allocates, with the exceptions of promise 12 in `docs/reliability.md`.
#[derive(Clone, Debug)]
pub struct Sieve {
    params: Params,
    biases: Biases,
    history: History,
    accepted: u64,
    generator: Generator,
    stages: Stages,
    pipeline: Pipeline,
    /// A buffer for the logits of a host's candidates.
    gathered: Vec<f32>,
    measured: bool,
    stats: Stats,
    sequence: Sequence,
}

/// Returns a sieve with the [default parameters](Params), which include a random seed.
impl Default for Sieve {
    fn default() -> Self {
        Self::with(&Params::default(), Biases::default())
    }
}

impl Sieve {
    /// Returns a sieve without history. Fails if [`Params::check`] does, or if there is too little
    /// memory.
    pub fn new(params: &Params) -> Result<Self, Error> {
        params.check()?;
        let mut biases = Biases::default();
        biases.try_reserve(params.bias.len())?;
        Ok(Self::with(params, biases))
    }

    /// Returns a sieve with checked parameters, whose biases fit into `biases`.
    fn with(params: &Params, mut biases: Biases) -> Self {
        instruction_set::choose();
        trace::from_environment();
        biases.set(&params.bias);
        let bias = memory::copied(&params.bias);
        Self {
            params: Params { bias, ..*params },
            biases,
            history: History::new(params.window()),
            accepted: 0,
            generator: Generator::new(params.rng, params.seed),
            stages: Stages::new(params),
            pipeline: Pipeline::default(),
            gathered: Vec::new(),
            measured: false,
            stats: Stats::default(),
            sequence: Sequence::default(),
        }
    }

    /// Returns the current parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Sets the parameters that apply from the next token on. History and generator continue, with
    /// two exceptions: a different `rng` begins its stream at `seed`, and a smaller
    /// `penalty_last_n` keeps only the newest tokens. A new `seed` of the same `rng` takes effect
    /// at [`reset`](Self::reset). On failure nothing changes.
    pub fn set_params(&mut self, params: &Params) -> Result<(), Error> {
        params.check()?;
        self.reserve_for(params)?;
        self.stages = Stages::new(params);
        fault::point();
        self.biases.set(&params.bias);
        let begins = params.rng != self.generator.kind();
        if begins {
            self.generator = Generator::new(params.rng, params.seed);
        }
        self.generator.ask(params.seed);
        let seed = self.generator.seed();
        self.pipeline.arrange(params, seed);
        if begins {
            self.pipeline.members.seed_streams(seed);
        }
        if params.window() != self.history.capacity() {
            self.history.resize(params.window());
        }
        self.params.clone_from(params);
        Ok(())
    }

    /// Allocates the memory that the parameters need, so that no later step of a change can fail.
    fn reserve_for(&mut self, params: &Params) -> Result<(), Error> {
        let n = params.bias.len();
        let ours = &mut self.params.bias;
        memory::reserve_exact(ours, n.saturating_sub(ours.len()))?;
        self.biases.try_reserve(n)?;
        self.history.try_reserve(params.window())?;
        Ok(())
    }

    /// Adds a token that has become part of the text to the history. The sieve need not have chosen
    /// the token. It may belong to a prompt, for example.
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
        fault::point();
        self.pipeline.members.accept(token);
        // A restored state may contain any number, so the addition wraps.
        self.accepted = self.accepted.wrapping_add(1);
    }

    /// Returns the accepted tokens to which the penalties apply.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Returns the number of tokens accepted since the sieve was created or reset.
    /// [Loading](Self::load) a state sets this number to the one in the state.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the seed in use: that of the parameters, or the random one.
    pub fn seed(&self) -> u64 {
        self.generator.seed()
    }

    /// Restores the initial state: without history, and with the generator at its seed (if that is
    /// random, a new one is drawn). Parameters and buffers stay.
    pub fn reset(&mut self) {
        self.history.clear();
        fault::point();
        self.accepted = 0;
        self.generator.restart();
        self.stats = Stats::default();
        self.pipeline.members.reset(self.generator.seed());
        self.pipeline.clear();
    }

    /// Returns `logit`, the raw logit of `token`, after bias and, if they are among the stages,
    /// penalties. DRY is not included.
    pub fn adjusted(&self, token: Token, logit: f32) -> f32 {
        let biased = self.biases.add(token, logit);
        let penalises = |stages: &[Stage]| stages.contains(&Stage::Penalties);
        match self.params.penalties() {
            Some(penalties) if self.stages().is_none_or(penalises) => {
                penalties.adjust(biased, self.history.count(token))
            }
            _ => biased,
        }
    }

    /// Sets whether [`stats`](Self::stats) includes entropies and surprisals. They cost an extra
    /// pass, which takes about four times as long as finding the maximum. If the filters leave the
    /// whole vocabulary, it is also written out as candidates and read once more.
    pub fn measure(&mut self, measured: bool) {
        self.measured = measured;
    }

    /// Returns the statistics of the last token: the number of candidates that each stage left and,
    /// if [requested](Self::measure), entropies and surprisals.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the distribution from which the last token was drawn: logits after all stages, and
    /// probabilities that add up to 1, in the order of llama.cpp's chain. Masked candidates have
    /// probability 0. Empty before the first token, and after a failure.
    ///
    /// If the whole vocabulary is left, this call writes the candidates out, once per token.
    pub fn candidates(&mut self) -> &[TokenData] {
        self.pipeline.candidates()
    }

    /// Returns the size in bytes of the buffers, which never shrink.
    pub fn workspace_bytes(&self) -> usize {
        self.gathered.capacity() * size_of::<f32>() + self.pipeline.bytes()
    }

    /// Chooses a token from `logits`, which are raw (not normalised), indexed by token, and only
    /// read. The token is not accepted.
    ///
    /// NaN counts as minus infinity, a banned token. A logit of plus infinity has the effect that
    /// it has on llama.cpp's chain, which then draws by probabilities that are NaN. Fails if there
    /// is no logit, or if none is above minus infinity after bias and penalties. The random stream
    /// then does not advance. Also fails if the drawn token has a logit of minus infinity.
    pub fn sample<'l>(&mut self, logits: impl Into<Logits<'l>>) -> Result<Token, Error> {
        let logits = logits.into();
        let Some(mut observer) = trace::begin(logits) else {
            return self.run(logits, None, &mut Off);
        };
        let token = self.run(logits, None, &mut *observer);
        observer.deliver(self.sequence.number(), &trace::no_pieces, None);
        token
    }

    /// Chooses one of the candidates of a chain, and selects it. The candidates from which it was
    /// drawn replace those of the chain. Fails as [`sample`](Self::sample) does, and then leaves
    /// the chain's candidates unchanged.
    pub fn sample_candidates(&mut self, candidates: &mut Candidates<'_>) -> Result<(), Error> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        reserve(&mut gathered, candidates.len());
        gathered.extend(candidates.as_slice().iter().map(|c| c.logit));
        let chosen = self.run(Logits::F32(&gathered), Some(candidates), &mut Off);
        self.gathered = gathered;
        chosen?;
        candidates.replace(self.candidates());
        candidates.set_sorted(self.pipeline.is_sorted());
        candidates.select(self.pipeline.selected());
        Ok(())
    }

    /// Writes entropies and surprisals of the chosen token, whose logit is at `index`, into
    /// `stats`.
    fn note(&mut self, logits: Logits<'_>, index: usize) {
        let raw = Summary::of(logits);
        // A sampler in a slot may select a token beyond the logits.
        let is_there = index < logits.len();
        let logit = if is_there { logits.at(index) } else { f32::NAN };
        let candidates = self.pipeline.candidates();
        let drawn_from = Summary::of_candidates(candidates);
        let chosen = self.pipeline.selected();
        let drawn = chosen.and_then(|chosen| self.pipeline.candidates().get(chosen));
        let drawn = drawn.map_or(f32::NAN, |drawn| drawn.logit);
        let number = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        self.stats.model_entropy = number(raw.entropy());
        self.stats.surprisal = number(raw.surprisal(logit));
        self.stats.sampling_entropy = number(drawn_from.entropy());
        self.stats.sampling_surprisal = number(drawn_from.surprisal(drawn));
    }
}
