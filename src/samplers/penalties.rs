//! Repetition, frequency and presence penalties on the last n tokens (Keskar et al. 2019; OpenAI's
//! API).
//!
//! A logit at or below 0 is multiplied by `repeat`, and one above 0 is divided by it; then `count *
//! freq + present` is subtracted.
//!
//! Only the few tokens in the window change. While the array has not been reordered, each is found
//! in one step (`data[id].id == id`): O(distinct tokens of the window). If one is not at its index,
//! the array was cut or shuffled, and one pass looks up every candidate. Candidate ids are assumed
//! to be distinct, as llama.cpp's are.

use std::ffi::CStr;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::history::{History, Owing};
use crate::host_profile::{Fused, fuses};
use crate::last_error;
use crate::log;
use crate::pool::{Pool, Whole};
use crate::sampler::{About, Sampler, Step, Tell};
use crate::simd::libm::fma;
use crate::token::{Token, TokenData};

/// The factors of the repetition, frequency and presence penalties, which are applied in this
/// order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Factors {
    /// The number by which a logit above 0 is divided, and one at or below 0 multiplied. A number
    /// above 1 thus decreases the logit. 1 disables.
    pub repeat: f32,
    /// The penalty subtracted once per occurrence. 0 disables.
    pub freq: f32,
    /// The penalty subtracted once. 0 disables.
    pub present: f32,
}

impl Factors {
    /// True if the factors would change a logit.
    pub fn is_active(&self) -> bool {
        self.repeat != 1.0 || self.freq != 0.0 || self.present != 0.0
    }

    /// Returns the penalised logit of a token that occurs `count` times in the window; unchanged
    /// for 0.
    #[inline]
    pub fn adjust(&self, logit: f32, count: u32) -> f32 {
        match (count, fuses(Fused::Penalty)) {
            (0, _) => logit,
            (_, true) => self.penalised::<true>(logit, count),
            (_, false) => self.penalised::<false>(logit, count),
        }
    }

    /// Returns the penalised logit of a token that occurs at least once. The operations and their
    /// order are llama.cpp's.
    #[inline]
    fn penalised<const FUSED: bool>(&self, logit: f32, count: u32) -> f32 {
        self.repeated(logit) - self.of_count::<FUSED>(count as f32, self.present)
    }

    /// Returns the penalised logit of a token whose `count` is 0 or less ([`History::owing`]).
    /// llama.cpp also penalises such a token.
    fn owed(&self, logit: f32, count: i32) -> f32 {
        let (count, present) = (count as f32, 0.0 * self.present);
        let penalty = match fuses(Fused::Penalty) {
            true => self.of_count::<true>(count, present),
            false => self.of_count::<false>(count, present),
        };
        self.repeated(logit) - penalty
    }

    #[inline]
    fn of_count<const FUSED: bool>(&self, count: f32, present: f32) -> f32 {
        match FUSED {
            true => fma(count, self.freq, present),
            false => count * self.freq + present,
        }
    }

    #[inline]
    fn repeated(&self, logit: f32) -> f32 {
        match logit <= 0.0 {
            true => logit * self.repeat,
            false => logit / self.repeat,
        }
    }

    /// Penalises the tokens of `history` in `logits`, which are indexed by token. Costs O(distinct
    /// tokens of the window). Tokens outside `logits` are ignored.
    pub fn apply(&self, logits: &mut [f32], history: &History) {
        for &(token, count) in history.distinct() {
            let index = usize::try_from(token).ok();
            if let Some(logit) = index.and_then(|i| logits.get_mut(i)) {
                *logit = self.adjust(*logit, count);
            }
        }
    }

    /// Returns factors with the repetition penalty alone.
    pub fn repetition(repeat: f32) -> Self {
        Self {
            repeat,
            freq: 0.0,
            present: 0.0,
        }
    }

    /// Returns factors with the frequency penalty alone.
    pub fn frequency(freq: f32) -> Self {
        Self {
            repeat: 1.0,
            freq,
            present: 0.0,
        }
    }

    /// Returns factors with the presence penalty alone.
    pub fn presence(present: f32) -> Self {
        Self {
            repeat: 1.0,
            freq: 0.0,
            present,
        }
    }
}

/// A sampler that penalises the last accepted tokens.
#[derive(Clone, Debug)]
pub struct Penalties {
    n_vocab: i32,
    factors: Factors,
    history: History,
    warned: bool,
}

impl Penalties {
    /// Returns a sampler with a window of `last_n` tokens (negative counts as 0). `None` if the
    /// parameters disable it: `last_n <= 0`, or `repeat` 1 with `freq` and `present` 0. `n_vocab`
    /// serves to warn about tokens outside the vocabulary, and a built-in that replaces the sampler
    /// needs it; 0 or less means that it is unknown.
    pub fn new(n_vocab: i32, last_n: i32, repeat: f32, freq: f32, present: f32) -> Option<Self> {
        let last_n = usize::try_from(last_n).ok().filter(|&n| n > 0)?;
        let factors = Factors {
            repeat,
            freq,
            present,
        };
        factors.is_active().then(|| Self {
            n_vocab,
            factors,
            history: History::new(last_n),
            warned: false,
        })
    }

    /// Reports a token outside the vocabulary as the last error, and the first time also as a
    /// warning.
    fn complain(&mut self, token: Token) {
        let text = format!(
            "penalties: accepted token {token}, which is outside the vocabulary of {}; it penalises \
             no token of the vocabulary",
            self.n_vocab
        );
        if std::mem::replace(&mut self.warned, true) {
            return last_error::set_warning(&text);
        }
        log::warn(&text);
    }

    fn penalised(&self) -> Penalised<'_> {
        Penalised {
            history: &self.history,
            factors: self.factors,
        }
    }
}

/// The window of accepted tokens and the factors that penalise them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Penalised<'a> {
    pub history: &'a History,
    pub factors: Factors,
}

impl Step for Penalised<'_> {
    fn name(&self) -> &'static CStr {
        c"penalties"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => {
                to("repeat", f64::from(self.factors.repeat));
                to("freq", f64::from(self.factors.freq));
                to("present", f64::from(self.factors.present));
            }
            About::Next => {}
            About::Token(token) => to("count", f64::from(self.history.count(token))),
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        match pool.whole() {
            Some(whole) => self.narrow_whole(whole),
            None => pool.apply(|candidates| self.apply(candidates)),
        }
    }
}

impl Penalised<'_> {
    fn apply(self, candidates: &mut Candidates<'_>) {
        match fuses(Fused::Penalty) {
            true => self.penalise_all_fused(candidates),
            false => self.penalise_all::<false>(candidates),
        }
        if let Some(owing) = self.history.owing() {
            self.apply_to_owing(candidates, owing);
        }
        candidates.set_sorted(false);
    }

    fn narrow_whole(self, mut whole: Whole<'_, '_>) {
        for &(token, _) in self.history.distinct() {
            whole.expect(token);
        }
        match fuses(Fused::Penalty) {
            true => self.edit_fused(&mut whole),
            false => self.edit::<false>(&mut whole),
        }
        if let Some((token, count)) = self.history.owing() {
            whole.edit(token, |logit| self.factors.owed(logit, count));
        }
    }

    #[inline(always)]
    fn edit<const FUSED: bool>(self, whole: &mut Whole<'_, '_>) {
        for &(token, count) in self.history.distinct() {
            whole.edit(token, |logit| self.factors.penalised::<FUSED>(logit, count));
        }
    }

    #[cold]
    #[inline(never)]
    fn edit_fused(self, whole: &mut Whole<'_, '_>) {
        self.edit::<true>(whole);
    }

    #[inline(always)]
    fn penalise_all<const FUSED: bool>(self, candidates: &mut Candidates<'_>) {
        if !self.apply_in_place::<FUSED>(candidates) {
            self.apply_by_search::<FUSED>(candidates);
        }
    }

    #[cold]
    #[inline(never)]
    fn penalise_all_fused(self, candidates: &mut Candidates<'_>) {
        self.penalise_all::<true>(candidates);
    }

    #[inline]
    fn penalise<const FUSED: bool>(self, candidate: &mut TokenData, count: u32) {
        candidate.logit = self.factors.penalised::<FUSED>(candidate.logit, count);
    }

    /// Penalises the tokens of the window by index. Returns false, and changes nothing, unless each
    /// token is at its own index.
    // In bounds: each token was found at its index above.
    fn apply_in_place<const FUSED: bool>(self, candidates: &mut Candidates<'_>) -> bool {
        let distinct = self.history.distinct();
        let in_place = |&(token, _): &(Token, u32)| candidates.index_in_place(token).is_some();
        if !distinct.iter().all(in_place) {
            return false;
        }
        for &(token, count) in distinct {
            self.penalise::<FUSED>(&mut candidates.as_mut_slice()[token as usize], count);
        }
        true
    }

    #[cold]
    fn apply_to_owing(self, candidates: &mut Candidates<'_>, (token, count): Owing) {
        let mut slice = candidates.as_mut_slice().iter_mut();
        if let Some(candidate) = slice.find(|candidate| candidate.id == token) {
            candidate.logit = self.factors.owed(candidate.logit, count);
        }
    }

    fn apply_by_search<const FUSED: bool>(self, candidates: &mut Candidates<'_>) {
        for candidate in candidates.as_mut_slice() {
            let count = self.history.count(candidate.id);
            if count > 0 {
                self.penalise::<FUSED>(candidate, count);
            }
        }
    }
}

impl Sampler for Penalties {
    const ACCEPTS: bool = true;
    const RESETS: bool = true;
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"penalties"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("last_n", self.history.nominal() as f64);
        }
        self.penalised().tell(about, to);
    }

    fn copy_state(&mut self, source: &Self) {
        self.history.go_on_from(&source.history);
    }

    fn built_in(&self) -> Option<BuiltIn> {
        // A window that went on from another one may hold more tokens. Then the newest ones are
        // taken: accepting all would not give the built-in the same counts.
        let last_n = self.history.nominal();
        let older = self.history.len().saturating_sub(last_n);
        Some(BuiltIn::Penalties {
            n_vocab: self.n_vocab,
            last_n: i32::try_from(last_n).ok()?,
            repeat: self.factors.repeat,
            freq: self.factors.freq,
            present: self.factors.present,
            accepted: self.history.tokens().skip(older).collect(),
        })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        self.penalised().apply(candidates);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        self.penalised().narrow(pool);
    }

    /// Accepts a token. A token outside the vocabulary takes a place in the window, as in the
    /// built-in, but matches no candidate.
    fn accept(&mut self, token: Token) {
        if self.n_vocab > 0 && !(0..self.n_vocab).contains(&token) {
            self.complain(token);
        }
        self.history.accept(token);
    }

    fn reset(&mut self) {
        self.history.clear();
    }
}
