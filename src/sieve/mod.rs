//! The sieve: the whole pipeline from raw logits to a token, with control at every token.
//!
//! Stages, in this order: logit bias, penalties, top-k, typical, top-p, min-p, top-n-sigma,
//! temperature, draw. The caller's logits are only read; parameters can change between any two
//! tokens, and history and generator go on. `docs/sampling.md` has each stage's formula and source.
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
//! // For the next token: no draw, and one token is banned.
//! let mut params = sieve.params().clone();
//! params.temperature = 0.0;
//! params.bias.push((1, f32::NEG_INFINITY));
//! sieve.set_params(&params)?;
//! assert_eq!(sieve.sample(&logits)?, 2);
//! # Ok::<(), llama_sieve::sieve::Error>(())
//! ```
#![forbid(unsafe_code)]

mod batch;
mod cut;
mod draw;
mod error;
mod fast;
mod few;
mod generator;
mod in_chain;
mod nearest;
mod params;
mod pipeline;
mod pool;
mod reserve;
mod sampled;
mod select;
mod source;
mod stages;
mod state;
mod stats;
mod workspace;

pub use batch::{Job, sample_batch, share};
pub use error::Error;
pub use in_chain::SieveSampler;
pub use params::{GREEDY_BELOW, Method, Mode, Order, Params, RngKind};
pub use pipeline::Stage;
pub use source::Logits;
pub use stats::Stats;

pub use crate::samplers::penalties::Factors as Penalties;

use crate::candidates::Candidates;
use crate::fault;
use crate::history::History;
use crate::kernels::{self, layout::CHUNK};
use crate::memory::{self, reserve};
use crate::metrics::Summary;
use crate::token::{Token, TokenData};
use fast::Kept;
use generator::Generator;
use pipeline::Pipeline;
use select::{everything, of_run, room_for_maxima, top_k};
use source::{Adjustments, Source};
use stages::Stages;
use workspace::Workspace;

/// A sampler of one sequence: parameters, history of accepted tokens, random numbers, buffers.
///
/// A clone goes on as the original would. Used from one thread at a time, may move between threads.
/// After the first tokens neither [`sample`](Self::sample) nor [`accept`](Self::accept) allocates.
#[derive(Clone, Debug)]
pub struct Sieve {
    params: Params,
    adjustments: Adjustments,
    stages: Stages,
    history: History,
    accepted: u64,
    generator: Generator,
    workspace: Workspace,
    /// There in mode PARITY, and with stages of its own.
    pipeline: Option<Box<Pipeline>>,
    measured: bool,
    stats: Stats,
}

/// With the [default parameters](Params), and so a random seed.
impl Default for Sieve {
    fn default() -> Self {
        Self::with(&Params::default(), Adjustments::default())
    }
}

impl Sieve {
    /// A sieve without history. Fails if a parameter is not finite or out of its range.
    pub fn new(params: &Params) -> Result<Self, Error> {
        params.check()?;
        let mut adjustments = Adjustments::default();
        adjustments.try_reserve(params.bias.len())?;
        Ok(Self::with(params, adjustments))
    }

    /// One of parameters that are good, with room for their biases.
    fn with(params: &Params, mut adjustments: Adjustments) -> Self {
        adjustments.set(params);
        let bias = memory::copied(&params.bias);
        Self {
            params: Params { bias, ..*params },
            adjustments,
            stages: Stages::new(params),
            history: History::new(params.window()),
            accepted: 0,
            generator: Generator::new(params.rng, params.seed),
            workspace: Workspace::default(),
            pipeline: (params.mode == Mode::Parity).then(Box::default),
            measured: false,
            stats: Stats::default(),
        }
    }

    /// The parameters in force.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Other parameters from the next token on. History and generator go on, with two exceptions:
    /// another `rng` begins its stream at `seed`, and a smaller `penalty_last_n` forgets what it
    /// does not hold. A new `seed` of the same `rng` takes effect at [`reset`](Self::reset). On
    /// failure the old parameters stay.
    pub fn set_params(&mut self, params: &Params) -> Result<(), Error> {
        params.check()?;
        self.reserve_for(params)?;
        self.stages.update(params);
        fault::point();
        self.adjustments.set(params);
        let begins = params.rng != self.generator.kind();
        if begins {
            self.generator = Generator::new(params.rng, params.seed);
        }
        self.generator.ask(params.seed);
        self.arrange(params, begins);
        if params.window() != self.history.capacity() {
            self.history.resize(params.window());
        }
        self.params.clone_from(params);
        Ok(())
    }

    /// Takes the memory that the parameters need, so that nothing can fail once something has been
    /// changed.
    fn reserve_for(&mut self, params: &Params) -> Result<(), Error> {
        let n = params.bias.len();
        // Where nothing grows, nothing is allocated, either, so that parameters can change at every
        // token.
        let another = params.rng != self.generator.kind() && params.rng == RngKind::Mt19937;
        let biased = n > self.params.bias.capacity();
        let pipeline = params.mode == Mode::Parity && self.pipeline.is_none();
        if biased || another || pipeline || !self.history.has_room_for(params.window()) {
            memory::room(0)?;
        }
        if pipeline {
            self.pipeline = Some(Box::default());
        }
        let ours = &mut self.params.bias;
        memory::reserve_exact(ours, n.saturating_sub(ours.len()))?;
        self.adjustments.try_reserve(n)?;
        self.history.try_reserve(params.window())?;
        Ok(())
    }

    /// Takes note of a token that has become part of the text, chosen here or not (a prompt's,
    /// say).
    pub fn accept(&mut self, token: Token) {
        self.history.accept(token);
        fault::point();
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.members.accept(token);
        }
        // A loaded state may say any number, of which only the bits count.
        self.accepted = self.accepted.wrapping_add(1);
    }

    /// The accepted tokens that the penalties look back on.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// How many tokens were accepted since the beginning.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// The seed in use: the one asked for, or the random one.
    pub fn seed(&self) -> u64 {
        self.generator.seed()
    }

    /// Back to the beginning: no history, the generator at its seed (a random one is drawn anew).
    /// Parameters and buffers stay.
    pub fn reset(&mut self) {
        self.history.clear();
        fault::point();
        self.accepted = 0;
        self.generator.restart();
        self.stats = Stats::default();
        self.workspace.clear();
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.members.reset(self.generator.seed());
            pipeline.clear();
        }
    }

    /// The logit that the stages see for a token with the raw logit `logit`: after bias and
    /// penalties, if these are among the stages. DRY, which is a stage, is not counted.
    pub fn adjusted(&self, token: Token, logit: f32) -> f32 {
        let penalises = |stages: &[Stage]| stages.contains(&Stage::Penalties);
        match self.stages().is_none_or(penalises) {
            true => self.adjustments.adjust(token, logit, &self.history),
            false => self.adjustments.biased(token, logit),
        }
    }

    /// Whether [`stats`](Self::stats) is to have entropies and surprisal, too. They cost a pass of
    /// their own, four times as long as a mere maximum.
    pub fn measure(&mut self, measured: bool) {
        self.measured = measured;
    }

    /// What the stages made of the last token's distribution.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The distribution that the last token was drawn from: logits after all stages, and
    /// probabilities that add up to 1. Masked candidates have probability 0. Descending if top-k is
    /// on and no typical; else in no particular order. Empty before the first token, and after a
    /// failure.
    ///
    /// More than 1024 that only top-p has reduced are written out when they are asked for, once per
    /// token.
    pub fn candidates(&self) -> &[TokenData] {
        let of_pipeline = self.pipeline.as_ref().and_then(|p| p.candidates());
        of_pipeline.unwrap_or_else(|| self.workspace.drawn_from())
    }

    /// Bytes of the buffers, which never shrink.
    pub fn workspace_bytes(&self) -> usize {
        let of_pipeline = self.pipeline.as_ref().map_or(0, |p| p.bytes());
        self.workspace.bytes() + of_pipeline
    }

    /// Chooses a token of `logits`, which are raw (not normalised), indexed by token, and left as
    /// they are. The token is not accepted.
    ///
    /// NaN counts as minus infinity, a banned token. In FAST a logit of plus infinity wins (of
    /// several the first); PARITY does what the built-in chain does, which then draws by
    /// probabilities that are NaN. Fails if there is no logit, or none above minus infinity; the
    /// random stream then stays where it is. Fails also where stages draw one of minus infinity.
    #[expect(
        clippy::indexing_slicing,
        reason = "`run` gives the place of a candidate where they are not apart"
    )]
    pub fn sample<'l>(&mut self, logits: impl Into<Logits<'l>>) -> Result<Token, Error> {
        let raw = logits.into();
        if self.is_pipeline() {
            let chosen = self.run_pipeline(raw, None)?;
            return Ok(self.candidates()[chosen].id);
        }
        // Taken out for as long as the source borrows them.
        let mut touched = std::mem::take(&mut self.workspace.touched);
        let mut changed = std::mem::take(&mut self.workspace.gathered);
        touched.clear();
        let mut logits = raw;
        if self.adjustments.are_many_of(raw.len()) {
            self.change_all(raw, &mut changed);
            logits = Logits::F32(&changed);
        } else if !self.adjustments.is_empty(&self.history) {
            let (n, raw) = (raw.len(), |i| raw.at(i));
            let keys = &mut self.workspace.keys;
            self.adjustments
                .collect(n, &self.history, raw, keys, &mut touched);
        }
        let source = Source {
            logits,
            touched: &touched,
            divisor: 1.0,
        };

        let chosen = self.run(&source, raw, !self.measured);
        self.workspace.touched = touched;
        self.workspace.gathered = changed;
        let (chosen, workspace) = (chosen?, &self.workspace);
        Ok(match workspace.apart {
            true => workspace.survivors.token(chosen),
            false => workspace.candidates[chosen].id,
        })
    }

    /// The same on the candidates of a chain: they become the ones that were drawn from, with one
    /// selected.
    #[expect(
        clippy::indexing_slicing,
        reason = "the stages number the candidates by their places"
    )]
    pub fn sample_candidates(&mut self, candidates: &mut Candidates<'_>) -> Result<(), Error> {
        if self.is_pipeline() {
            return self.sample_candidates_by_pipeline(candidates);
        }
        let mut gathered = std::mem::take(&mut self.workspace.gathered);
        self.gather(candidates, &mut gathered);
        let source = Source {
            logits: Logits::F32(&gathered),
            touched: &[],
            divisor: 1.0,
        };
        let chosen = self.run(&source, source.logits, false);
        self.workspace.gathered = gathered;
        let chosen = chosen?;
        // The stages numbered the candidates by their places.
        for kept in &mut self.workspace.candidates {
            kept.id = candidates.as_slice()[kept.id as usize].id;
        }
        candidates.replace(&self.workspace.candidates);
        candidates.set_sorted(
            self.workspace
                .candidates
                .is_sorted_by(|a, b| a.logit >= b.logit),
        );
        candidates.select(Some(chosen));
        Ok(())
    }

    /// The logits of `candidates` after bias and penalties.
    fn gather(&mut self, candidates: &Candidates<'_>, gathered: &mut Vec<f32>) {
        gathered.clear();
        reserve(gathered, candidates.len());
        let data = candidates.as_slice();
        gathered.extend(data.iter().map(|c| c.logit));
        if self.adjustments.is_empty(&self.history) {
            return;
        }
        let (adjustments, history) = (&self.adjustments, &self.history);
        let place = |token: Token| candidates.index_in_place(token);
        if adjustments
            .tokens(history)
            .all(|token| place(token).is_some())
        {
            return adjustments.apply(history, gathered, place);
        }
        for (logit, candidate) in gathered.iter_mut().zip(data) {
            *logit = self.adjustments.adjust(candidate.id, *logit, &self.history);
        }
    }

    /// A copy of all logits after bias and penalties.
    fn change_all(&self, raw: Logits<'_>, changed: &mut Vec<f32>) {
        changed.clear();
        reserve(changed, raw.len());
        changed.resize(raw.len(), 0.0);
        raw.widen(0, changed);
        let place = |token: Token| usize::try_from(token).ok();
        self.adjustments.apply(&self.history, changed, place);
    }

    /// All stages; gives the index of the chosen one among the candidates that are left, which
    /// `may_stay_apart` as survivors. `raw` is what is measured.
    fn run(
        &mut self,
        source: &Source<'_>,
        raw: Logits<'_>,
        may_stay_apart: bool,
    ) -> Result<usize, Error> {
        let begun = self.begin(source.len());
        let chosen = begun.and_then(|()| self.choose(source, may_stay_apart));
        let Ok(index) = chosen else {
            self.workspace.clear();
            return chosen;
        };
        if self.measured {
            // Nothing stays apart where it is measured.
            let token = self.workspace.candidates.get(index).map_or(0, |c| c.id);
            self.note(raw, token as usize, index);
        }
        Ok(index)
    }

    /// Begins a token of so many logits.
    fn begin(&mut self, n_vocab: usize) -> Result<(), Error> {
        self.stats = Stats {
            n_vocab,
            accepted: self.accepted,
            ..Stats::default()
        };
        self.workspace.clear();
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.clear();
        }
        fault::point();
        check_size(n_vocab)
    }

    /// The fast stages.
    fn choose(&mut self, source: &Source<'_>, may_stay_apart: bool) -> Result<usize, Error> {
        let (params, stages) = (&self.params, &mut self.stages);
        let (workspace, stats) = (&mut self.workspace, &mut self.stats);
        let cdf = params.method == Method::Cdf;
        if params.is_greedy() {
            fast::greedy(workspace, stats, source)?;
            return Ok(0);
        }
        let may_stay_apart = may_stay_apart && cdf;
        let kept = fast::filter(params, stages, workspace, stats, source, may_stay_apart)?;
        let draw = self.generator.draw(self.accepted);
        let Kept::Together(sorted) = kept else {
            let Workspace {
                survivors,
                sums,
                exponentials,
                ..
            } = workspace;
            let chosen = draw::cdf_of_survivors(survivors, draw.uniform, sums, exponentials);
            workspace.apart = true;
            return Ok(chosen);
        };
        let candidates = &mut workspace.candidates[..];
        if let [only] = candidates {
            only.p = 1.0;
            return Ok(0);
        }
        let chosen = if candidates.len() >= draw::MANY && cdf {
            let exponentials = &mut workspace.exponentials;
            draw::cdf_of_many(candidates, draw.uniform, exponentials)
        } else {
            let max = kernels::max_logit(candidates, sorted);
            match params.method {
                Method::Cdf => draw::cdf(candidates, max, draw.uniform),
                Method::Gumbel => draw::gumbel(candidates, max, draw.bits),
            }
        };
        let overflowed = candidates.get(chosen).is_some_and(|c| c.p.is_nan());
        if overflowed {
            fast::keep_infinite(&mut workspace.candidates, sorted);
            workspace.candidates.truncate(1);
            workspace.candidates.iter_mut().for_each(|c| c.p = 1.0);
            return Ok(0);
        }
        Ok(chosen)
    }

    /// Entropies and surprisal of the token with the logit at `index`, which is at `chosen` of what
    /// is left.
    #[expect(
        clippy::indexing_slicing,
        reason = "`chosen` is the place of a candidate: nothing stays apart where it is measured"
    )]
    fn note(&mut self, logits: Logits<'_>, index: usize, chosen: usize) {
        let raw = Summary::of(logits);
        let candidates = self.candidates();
        let logit = logits.at(index);
        let drawn_from = Summary::of_candidates(candidates);
        let drawn = candidates[chosen].logit;
        let number = |value: Option<f64>| value.map_or(f32::NAN, |value| value as f32);
        self.stats.model_entropy = number(raw.entropy());
        self.stats.surprisal = number(raw.surprisal(logit));
        self.stats.sampling_entropy = number(drawn_from.entropy());
        self.stats.sampling_surprisal = number(drawn_from.surprisal(drawn));
    }
}

fn check_size(n: usize) -> Result<(), Error> {
    match n {
        0 => Err(Error::EmptyVocabulary),
        n if n > Token::MAX as usize => Err(Error::TooManyTokens(n)),
        _ => Ok(()),
    }
}

/// The token with the largest logit, the first of equals, without bias or penalties. One pass.
/// Fails as [`Sieve::sample`] does.
pub fn greedy<'l>(logits: impl Into<Logits<'l>>) -> Result<Token, Error> {
    let source = plain(logits.into())?;
    select::largest(source.logits).ok_or(Error::NoCandidate)
}

/// The `n` most probable tokens in descending order into `top`, with their probabilities over the
/// whole vocabulary: one pass, and a sort of `n`.
///
/// Fewer if fewer have a probability. Fails as [`Sieve::sample`] does. Of plus infinite logits the
/// first has probability 1, all others 0.
pub fn top_candidates<'l>(
    logits: impl Into<Logits<'l>>,
    n: usize,
    top: &mut Vec<TokenData>,
) -> Result<(), Error> {
    let source = plain(logits.into())?;
    top.clear();
    let mut all = Summary::default();
    let (mut maxima, mut sample, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    room_for_maxima(source.len(), &mut maxima);
    source.for_each_run(CHUNK, everything, |start, run| {
        all.add_mass(run, of_run(&mut maxima, start, &run));
    });
    if !all.is_defined() {
        return Err(Error::NoCandidate);
    }
    let k = n.clamp(1, source.len());
    top_k(k, &source, &mut maxima, &mut sample, top, &mut keys);
    top.truncate(n);
    for (i, candidate) in top.iter_mut().enumerate() {
        candidate.p = match all.max() == f32::INFINITY {
            true => f32::from(u8::from(i == 0)),
            false => all.surprisal(candidate.logit).map_or(0.0, |s| (-s).exp()) as f32,
        };
    }
    Ok(())
}

/// The logits as they are.
fn plain(logits: Logits<'_>) -> Result<Source<'_>, Error> {
    check_size(logits.len())?;
    Ok(Source {
        logits,
        touched: &[],
        divisor: 1.0,
    })
}
