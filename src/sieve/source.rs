//! The logits as the stages see them: biased, penalised and perhaps divided by the temperature,
//! while the caller's array stays as it is.
//!
//! Bias and penalties are virtual: a sorted list of the few tokens that they touch, with the new
//! logits. A unit of 64 logits (1024 where sums are made) with such a token is put into a copy on
//! the stack, widened and changed; all between two of them is read where it is, in its own
//! precision.

use std::collections::TryReserveError;

use crate::candidates::Candidates;
use crate::history::History;
use crate::kernels;
use crate::kernels::layout::CHUNK;
pub use crate::kernels::logits::Logits;
use crate::memory::{self, reserve};
use crate::pool::Pool;
use crate::samplers::penalties::Factors as Penalties;
use crate::sieve::params::Params;
use crate::token::Token;

/// A token whose logit bias or penalties change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touched {
    pub token: u32,
    /// The caller's logit.
    pub raw: f32,
    /// The logit after bias and penalties.
    pub logit: f32,
}

impl Touched {
    pub(super) fn index(&self) -> usize {
        self.token as usize
    }

    /// Whether the caller's logit is at or above `threshold`; NaN is not.
    pub(super) fn was_from(&self, threshold: f32) -> bool {
        self.raw >= threshold
    }
}

/// What the stages read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub logits: Logits<'a>,
    /// By rising token, each once.
    pub touched: &'a [Touched],
    /// 1 changes nothing.
    pub divisor: f32,
}

impl Source<'_> {
    pub(super) fn len(&self) -> usize {
        self.logits.len()
    }

    /// One logit.
    #[expect(clippy::indexing_slicing, reason = "the search found it there")]
    pub(super) fn at(&self, index: usize) -> f32 {
        let place = self.touched.binary_search_by_key(&index, Touched::index);
        let logit = place.map_or_else(|_| self.logits.at(index), |place| self.touched[place].logit);
        logit / self.divisor
    }

    /// Calls `visit` with runs of logits and the index of the first, in order. Each begins at a
    /// multiple of `unit`, [`CHUNK`] or `BLOCK`; one that bias or penalties change is a run of
    /// its own, in a copy.
    ///
    /// `wanted` is asked with the range of such a unit: if not, it is left as it was given, or out;
    /// then its logits must not matter.
    #[expect(
        clippy::indexing_slicing,
        reason = "touched are tokens of the vocabulary, so `from < end`; a unit has at most `CHUNK` logits"
    )]
    pub(super) fn for_each_run(
        &self,
        unit: usize,
        wanted: impl Fn(usize, usize) -> bool,
        mut visit: impl FnMut(usize, Logits<'_>),
    ) {
        if self.divisor != 1.0 {
            return self.for_each_divided(wanted, visit);
        }
        let mut copy = [0.0f32; CHUNK];
        let mut touched = self.touched;
        let mut start = 0;
        while let Some(first) = touched.first() {
            let from = first.index() / unit * unit;
            let end = self.len().min(from + unit);
            let (here, later) = split_before(touched, end);
            touched = later;
            if !wanted(from, end) {
                continue;
            }
            if from > start {
                visit(start, self.logits.part(start, from));
            }
            let copy = &mut copy[..end - from];
            self.copy(from, here, copy);
            visit(from, Logits::F32(copy));
            start = end;
        }
        if start < self.len() {
            visit(start, self.logits.part(start, self.len()));
        }
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "from `start` to `end` is at most `CHUNK`"
    )]
    fn for_each_divided(
        &self,
        wanted: impl Fn(usize, usize) -> bool,
        mut visit: impl FnMut(usize, Logits<'_>),
    ) {
        let mut copy = [0.0f32; CHUNK];
        let mut touched = self.touched;
        for start in (0..self.len()).step_by(CHUNK) {
            let end = self.len().min(start + CHUNK);
            let (here, later) = split_before(touched, end);
            touched = later;
            if wanted(start, end) {
                let copy = &mut copy[..end - start];
                self.copy(start, here, copy);
                kernels::divide(copy, self.divisor);
                visit(start, Logits::F32(copy));
            }
        }
    }

    /// The logits from `start` on that fill `to`, those in `touched`, which are some of these,
    /// changed.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: touched are tokens of those that fill `to`"
    )]
    pub(super) fn copy(&self, start: usize, touched: &[Touched], to: &mut [f32]) {
        self.logits.widen(start, to);
        for touched in touched {
            to[touched.index() - start] = touched.logit;
        }
    }
}

/// Those of tokens before `end`, and the others.
pub(super) fn split_before(touched: &[Touched], end: usize) -> (&[Touched], &[Touched]) {
    // One by one: nearly always few are in a unit.
    let here = touched.iter().position(|t| t.index() >= end);
    touched.split_at(here.unwrap_or(touched.len()))
}

/// One token in so many is biased where many are.
const MANY: usize = 256;

/// A window up to which there is room for all its tokens at once.
const WINDOW: usize = 1024;

/// Bias and penalties of one sieve, ready to be looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjustments {
    /// Token, place in the caller's order, bias: by rising token; of one token, in the caller's
    /// order.
    biases: Vec<Bias>,
    penalties: Option<Penalties>,
}

impl Adjustments {
    /// Takes the memory for `n` biases; on failure nothing changes.
    pub(super) fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let missing = n.saturating_sub(self.biases.len());
        memory::reserve_exact(&mut self.biases, missing)
    }

    pub(super) fn set(&mut self, params: &Params) {
        self.biases.clear();
        let biases = params.bias.iter().zip(0..);
        self.biases
            .extend(biases.map(|(&(token, bias), place)| (token, place, bias)));
        // In place: a sort that is stable by itself allocates.
        self.biases
            .sort_unstable_by_key(|&(token, place, _)| (token, place));
        self.penalties = params.penalties();
    }

    pub(super) fn is_empty(&self, history: &History) -> bool {
        self.biases.is_empty() && (self.penalties.is_none() || history.is_empty())
    }

    /// The logit of `token` after its biases.
    pub(super) fn biased(&self, token: Token, logit: f32) -> f32 {
        adjust_by(self.biases_of(token), logit, None)
    }

    /// The logit of `token` after its biases and penalties, in this order.
    pub(super) fn adjust(&self, token: Token, logit: f32, history: &History) -> f32 {
        let penalties = self.penalties.map(|p| (p, history.count(token)));
        adjust_by(self.biases_of(token), logit, penalties)
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "a partition point is at most the length"
    )]
    fn biases_of(&self, token: Token) -> &[Bias] {
        let first = self.biases.partition_point(|&(t, ..)| t < token);
        let last = first + self.biases[first..].partition_point(|&(t, ..)| t == token);
        &self.biases[first..last]
    }

    /// Whether so many of `n` tokens are biased that a changed copy of all logits costs less than
    /// to look each of them up.
    pub(super) fn are_many_of(&self, n: usize) -> bool {
        self.biases.len() > n / MANY
    }

    /// Adds the biases to the logits of a vocabulary.
    pub(super) fn bias_pool(&self, pool: &mut Pool<'_>) {
        for &(token, ..) in &self.biases {
            pool.expect(token);
        }
        for &(token, _, bias) in &self.biases {
            pool.edit(token, |logit| logit + bias);
        }
    }

    /// Makes a pool of these candidates, with their biases. As by the built-in, one that is not in
    /// its place gets only the first of several, and the mark of a sorted array stays.
    pub(super) fn bias_candidates(&self, candidates: &Candidates<'_>, pool: &mut Pool<'_>) {
        pool.keep(candidates.as_slice(), candidates.is_sorted());
        if self.biases.is_empty() {
            return;
        }
        for (place, candidate) in pool.array().0.iter_mut().enumerate() {
            let biases = self.biases_of(candidate.id);
            let is_in_place = usize::try_from(candidate.id) == Ok(place);
            let n = if is_in_place { biases.len() } else { 1 };
            let added = biases.get(..n).unwrap_or_default();
            candidate.logit = adjust_by(added, candidate.logit, None);
        }
    }

    /// The tokens that change, some of them perhaps twice.
    pub(super) fn tokens(&self, history: &History) -> impl Iterator<Item = Token> {
        let biased = self.biases.iter().map(|&(token, ..)| token);
        let penalised = self.penalised(history).iter().map(|&(token, _)| token);
        biased.chain(penalised)
    }

    /// Changes the logits of all tokens of which `place` tells where in `logits` they are.
    pub(super) fn apply(
        &self,
        history: &History,
        logits: &mut [f32],
        place: impl Fn(Token) -> Option<usize>,
    ) {
        for &(token, _, bias) in &self.biases {
            if let Some(logit) = place(token).and_then(|i| logits.get_mut(i)) {
                *logit += bias;
            }
        }
        let Some(penalties) = &self.penalties else {
            return;
        };
        for &(token, count) in self.penalised(history) {
            if let Some(logit) = place(token).and_then(|i| logits.get_mut(i)) {
                *logit = penalties.adjust(*logit, count);
            }
        }
    }

    /// The tokens that are penalised, and how often they occur.
    fn penalised<'h>(&self, history: &'h History) -> &'h [(Token, u32)] {
        match self.penalties {
            Some(_) => history.distinct(),
            None => &[],
        }
    }

    /// Writes the tokens below `n` that change into `touched`, with the logits of `raw` and after
    /// the change. `keys` is a buffer.
    pub(super) fn collect(
        &self,
        n: usize,
        history: &History,
        raw: impl Fn(usize) -> f32,
        keys: &mut Vec<u64>,
        touched: &mut Vec<Touched>,
    ) {
        let penalised = self.penalised(history);
        // As many as a full window could name, so that a window that fills up does not allocate.
        let window = penalised.len().max(history.capacity().min(WINDOW));
        let room = self.biases.len() + window;
        keys.clear();
        touched.clear();
        reserve(keys, room);
        reserve(touched, room);
        // Token and count; a biased one that is not in the window has none.
        let counted =
            |&(token, count): &(Token, u32)| known(token, n).map(|t| t | u64::from(count));
        keys.extend(penalised.iter().filter_map(counted));
        keys.extend(self.biases.iter().filter_map(|b| known(b.0, n)));
        keys.sort_unstable_by(|a, b| b.cmp(a));
        // Of one token the count comes first.
        keys.dedup_by_key(|key| *key >> 32);
        let mut biases = &self.biases[..];
        touched.extend(keys.iter().rev().map(|&key| {
            let token = (key >> 32) as u32;
            let raw = raw(token as usize);
            let (of_token, later) = split_biases(token, biases);
            biases = later;
            let logit = adjust_by(of_token, raw, self.penalties.map(|p| (p, key as u32)));
            Touched { token, raw, logit }
        }));
    }
}

/// A logit after these biases, and these penalties of a token that occurs so often.
fn adjust_by(biases: &[Bias], logit: f32, penalties: Option<(Penalties, u32)>) -> f32 {
    let biased = biases.iter().fold(logit, |logit, &(.., bias)| logit + bias);
    match penalties {
        Some((penalties, count)) => penalties.adjust(biased, count),
        None => biased,
    }
}

/// A token below `n` in the upper half of a key.
fn known(token: Token, n: usize) -> Option<u64> {
    let token = u32::try_from(token).ok()?;
    ((token as usize) < n).then_some(u64::from(token) << 32)
}

/// A token, its place in the caller's order, and its bias.
type Bias = (Token, u32, f32);

/// The biases of `token` and those of later ones, of some that begin no later.
fn split_biases(token: u32, biases: &[Bias]) -> (&[Bias], &[Bias]) {
    let first = biases.iter().position(|b| b.0 >= token as Token);
    let (_, from) = biases.split_at(first.unwrap_or(biases.len()));
    let end = from.iter().position(|b| b.0 > token as Token);
    from.split_at(end.unwrap_or(from.len()))
}
