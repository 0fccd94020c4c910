//! The logits of all tokens of a vocabulary, with the mask and the edits. Every form of a pool
//! except an array is based on them.

use super::Source;
use super::buffers::{Buffers, Changes, Edit, reserve};
use crate::kernels::bitmap::{has, mask_column};
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::scan::{count_at_least, position_of};
use crate::memory;
use crate::token::{Token, TokenData, comparable};

/// The blocks with an unmasked candidate, or with one that reaches a threshold, count as few if
/// they are at most one in this many.
const SPARSE: usize = 8;

/// The caller's logits, and where the current ones are stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Given<'a> {
    pub(super) logits: Logits<'a>,
    pub(super) source: Source,
    /// See [`Pool::banning_nan`](super::Pool::banning_nan).
    pub(super) bans_nan: bool,
}

/// The logits of all tokens of a vocabulary. Its public methods do not change a logit. Forms of a
/// pool that may change logits have methods of their own.
#[derive(Debug)]
pub struct Tokens<'a> {
    pub(super) given: Given<'a>,
    pub(super) buffers: &'a mut Buffers,
    /// The largest logit, if the maxima of the blocks are known.
    pub(super) max: Option<f32>,
}

/// The logits of a vocabulary, with the edits and the mask.
#[derive(Clone, Copy)]
pub(super) struct Raw<'a> {
    logits: Logits<'a>,
    edits: &'a [Edit],
    /// The bitmap of the tokens that are not masked. The logits of the others are minus infinity.
    allowed: Option<&'a [u64]>,
    /// True if a NaN among the caller's logits counts as minus infinity. Always false for a column:
    /// the caller's NaN were replaced when the column was made, and a NaN in the column comes from
    /// a sampler.
    bans_nan: bool,
}

impl<'a> Given<'a> {
    fn with<'b>(self, changes: &'b Changes) -> Raw<'b>
    where
        'a: 'b,
    {
        let is_column = matches!(self.source, Source::Column);
        Raw {
            logits: match is_column {
                true => Logits::F32(&changes.column),
                false => self.logits,
            },
            edits: &changes.edits,
            allowed: matches!(self.source, Source::Masked).then_some(&changes.allowed[..]),
            bans_nan: self.bans_nan && !is_column,
        }
    }

    /// Returns the logits of all tokens in the order of their ids. They are the caller's slice if
    /// that is in single precision and unchanged, otherwise the column that
    /// [`Tokens::make_contiguous`] has made.
    pub(super) fn contiguous<'b>(self, changes: &'b Changes) -> &'b [f32]
    where
        'a: 'b,
    {
        match (self.source, self.logits) {
            (Source::Given, Logits::F32(xs)) => xs,
            _ => &changes.column,
        }
    }
}

impl Raw<'_> {
    /// Returns the logit of a token before the edits.
    pub(super) fn at(self, index: usize) -> f32 {
        match self.allowed {
            Some(allowed) if !has(allowed, index as Token) => f32::NEG_INFINITY,
            _ if self.bans_nan => comparable(self.logits.at(index)),
            _ => self.logits.at(index),
        }
    }

    /// Writes the logits from `start` on, with the edits, into `to`; `start` is a multiple of 64.
    fn write(self, start: usize, to: &mut [f32]) {
        self.widen(start, to);
        let first = self.edits.partition_point(|e| (e.token as usize) < start);
        for edit in self.edits.get(first..).unwrap_or_default() {
            match to.get_mut(edit.token as usize - start) {
                Some(logit) => *logit = edit.logit,
                None => break,
            }
        }
    }

    /// Returns the logits of block `number`, with the edits.
    // In bounds: the caller passes the number of a block of the vocabulary, which has at most
    // `GROUP` logits.
    fn block(self, number: usize, to: &mut [f32; GROUP]) -> &[f32] {
        let start = number * GROUP;
        let block = &mut to[..GROUP.min(self.logits.len() - start)];
        self.write(start, block);
        block
    }

    /// Writes the logits from `start` on, before the edits, into `to`; `start` is a multiple of 64.
    fn widen(self, start: usize, to: &mut [f32]) {
        match self.bans_nan {
            true => self.logits.widen_banning_nan(start, to),
            false => self.logits.widen(start, to),
        }
        if let Some(allowed) = self.allowed {
            mask_column(to, allowed.get(start / 64..).unwrap_or_default());
        }
    }

    /// Returns the number of logits above minus infinity, before the edits.
    fn unmasked(self) -> usize {
        match (self.logits, self.allowed) {
            (Logits::F32(xs), None) => count_at_least(xs, f32::MIN),
            (_, Some(allowed)) => {
                let words = allowed.iter().enumerate();
                let blocks = words.filter(|&(_, &word)| word != 0);
                blocks
                    .map(|(number, _)| self.unmasked_of(64 * number, 64))
                    .sum()
            }
            (logits, None) => {
                let starts = (0..logits.len()).step_by(CHUNK);
                starts.map(|start| self.unmasked_of(start, CHUNK)).sum()
            }
        }
    }

    /// Returns the number of logits above minus infinity among at most `n` from `start` on; `start`
    /// is a multiple of 64.
    fn unmasked_of(self, start: usize, n: usize) -> usize {
        let mut copy = [0.0; CHUNK];
        let n = n.min(self.logits.len() - start);
        let copy = copy.get_mut(..n).unwrap_or_default();
        self.widen(start, copy);
        count_at_least(copy, f32::MIN)
    }

    fn block_maxima(self, maxima: &mut [f32]) -> f32 {
        match self.allowed {
            Some(allowed) => self.logits.masked_block_maxima(allowed, maxima),
            None => self.logits.block_maxima(maxima),
        }
    }
}

impl<'a> Tokens<'a> {
    pub(super) fn of(given: Given<'a>, buffers: &'a mut Buffers) -> Self {
        Self {
            given,
            buffers,
            max: None,
        }
    }

    /// Returns the number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.given.logits.len()
    }

    /// True if `token` is in the vocabulary.
    pub fn has(&self, token: Token) -> bool {
        usize::try_from(token).is_ok_and(|token| token < self.given.logits.len())
    }

    /// Prefetches the logit of `token`, which will soon be edited. After a run of the model it is
    /// in none of the nearer caches.
    pub fn expect(&self, token: Token) {
        if self.has(token) {
            self.given.logits.prefetch(token as usize);
        }
    }

    /// Returns the logit of a token of the vocabulary.
    pub(super) fn logit_of(&self, token: Token) -> f32 {
        let raw = self.raw();
        let edit = raw
            .edits
            .binary_search_by_key(&token, |edit| edit.token as Token);
        match edit.ok().and_then(|place| raw.edits.get(place)) {
            Some(edit) => edit.logit,
            None => raw.at(token as usize),
        }
    }

    /// Returns the logits of all tokens in order: the caller's slice if that is in single precision
    /// and unchanged, otherwise a copy.
    pub fn contiguous(&mut self) -> &[f32] {
        self.make_contiguous();
        self.given.contiguous(&self.buffers.changes)
    }

    /// Makes a column of the logits, unless they are the caller's, in single precision and
    /// unchanged.
    pub(super) fn make_contiguous(&mut self) {
        let are_as_they_came = self.buffers.changes.edits.is_empty();
        if !(matches!(
            (self.given.source, self.given.logits),
            (Source::Given, Logits::F32(_))
        ) && are_as_they_came)
        {
            self.make_column();
        }
    }

    /// Returns the logits of all tokens in order and the largest of them, if none of them is NaN
    /// and the largest is finite.
    pub fn contiguous_numbers(&mut self) -> Option<(&[f32], f32)> {
        let (logits, _, max) = self.numbers_and_maxima()?;
        Some((logits, max))
    }

    /// Returns the logits of all tokens in order, the largest of each block of [`GROUP`], and the
    /// largest of all, if none of them is NaN and the largest is finite.
    pub fn numbers_and_maxima(&mut self) -> Option<(&[f32], &[f32], f32)> {
        let n = self.n_vocab();
        self.make_contiguous();
        let Buffers {
            changes, maxima, ..
        } = &mut *self.buffers;
        let logits = self.given.contiguous(changes);
        maxima.resize(n.div_ceil(GROUP), 0.0);
        let (max, unmasked) = Logits::F32(logits).block_maxima_and_count(maxima);
        self.max = Some(max);
        // A logit that is not counted as unmasked is minus infinity or NaN, and NaN is not at or
        // above minus infinity either.
        let are_numbers = unmasked == n || count_at_least(logits, f32::NEG_INFINITY) == n;
        (are_numbers && max.is_finite()).then_some((logits, maxima, max))
    }

    /// Runs `pass` on the logits of all tokens in order, and returns its result. `pass` must write
    /// the largest logit of each block of [`GROUP`], and return the largest of all. NaN does not
    /// count.
    pub fn read<T>(&mut self, pass: impl FnOnce(&[f32], &mut [f32]) -> (f32, T)) -> T {
        let n = self.n_vocab();
        self.make_contiguous();
        let Buffers {
            changes, maxima, ..
        } = &mut *self.buffers;
        maxima.resize(n.div_ceil(GROUP), 0.0);
        let logits = self.given.contiguous(changes);
        let (max, result) = pass(logits, maxima);
        self.max = Some(max);
        result
    }

    /// Makes a column of the logits, unless there already is one.
    pub(super) fn make_column(&mut self) {
        if !matches!(self.given.source, Source::Column) {
            self.make_column_by(|_| {});
        }
    }

    /// Makes a column of the logits, and calls `change` on each part of it while the part is in the
    /// first-level cache. If there already is a column, calls `change` once on all of it.
    pub(super) fn make_column_by(&mut self, change: impl Fn(&mut [f32])) {
        if matches!(self.given.source, Source::Column) {
            return change(&mut self.buffers.changes.column);
        }
        let n = self.given.logits.len();
        let mut column = std::mem::take(&mut self.buffers.changes.column);
        reserve(&mut column, n).unwrap_or_else(memory::exhausted);
        column.resize(n, 0.0);
        for (number, part) in column.chunks_mut(CHUNK).enumerate() {
            self.raw().write(number * CHUNK, part);
            change(part);
        }
        self.buffers.changes.edits.clear();
        self.buffers.changes.column = column;
        self.given.source = Source::Column;
    }

    /// Returns the largest logit, ignoring NaN; minus infinity if there is none. Takes one pass
    /// over the logits, unless the maxima are known.
    pub fn max(&mut self) -> f32 {
        if let Some(max) = self.max {
            return max;
        }
        let max = self.find_maxima();
        self.max = Some(max);
        max
    }

    // In bounds: there is a maximum for each block.
    fn find_maxima(&mut self) -> f32 {
        let raw = self.given.with(&self.buffers.changes);
        let maxima = &mut self.buffers.maxima;
        maxima.resize(raw.logits.len().div_ceil(GROUP), 0.0);
        let max = raw.block_maxima(maxima);
        if raw.edits.is_empty() {
            return max;
        }
        for edit in raw.edits {
            let number = edit.token as usize / GROUP;
            let logit = comparable(edit.logit);
            let before = comparable(raw.at(edit.token as usize));
            if logit < before && before >= maxima[number] {
                let mut block = [0.0; GROUP];
                let block = raw.block(number, &mut block);
                let largest = |max: f32, &x: &f32| max.max(comparable(x));
                maxima[number] = block.iter().fold(f32::NEG_INFINITY, largest);
            } else if logit > maxima[number] {
                maxima[number] = logit;
            }
        }
        Logits::F32(maxima).max()
    }

    /// Returns the index of the largest logit, the first one if several are equal; 0 if every logit
    /// is masked.
    pub fn argmax(&mut self) -> usize {
        let max = self.max();
        if max == f32::NEG_INFINITY {
            return 0;
        }
        let number = position_of(&self.buffers.maxima, max).unwrap_or(0);
        let mut block = [0.0; GROUP];
        let block = self.block(number, &mut block);
        let first = position_of(block, max);
        number * GROUP + first.unwrap_or(0)
    }

    /// Returns the candidates at or above `threshold`, which is above minus infinity, in order of
    /// id. None of them is NaN.
    pub fn at_least(&mut self, threshold: f32) -> &[TokenData] {
        self.max();
        self.buffers.collected.clear();
        let blocks = self.buffers.maxima.len();
        self.collect(0, blocks, threshold);
        &self.buffers.collected
    }

    /// Returns the candidates above minus infinity, in order of id, if few of the blocks have one.
    pub fn few_unmasked(&mut self) -> Option<&[TokenData]> {
        self.max();
        let blocks = count_at_least(&self.buffers.maxima, f32::MIN);
        let are_few = blocks <= self.buffers.maxima.len() / SPARSE;
        are_few.then(|| self.at_least(f32::MIN))
    }

    /// True if many of the blocks have a candidate at or above `threshold`. The maxima must be
    /// known.
    pub fn many_reach(&self, threshold: f32) -> bool {
        let blocks = count_at_least(&self.buffers.maxima, threshold);
        blocks > self.buffers.maxima.len() / SPARSE
    }

    /// Returns the number of tokens above minus infinity.
    pub(super) fn unmasked(&self) -> usize {
        let raw = self.raw();
        let is_unmasked = |logit: f32| usize::from(logit > f32::NEG_INFINITY);
        let [before, after] = raw.edits.iter().fold([0, 0], |[before, after], edit| {
            let first = raw.at(edit.token as usize);
            [before + is_unmasked(first), after + is_unmasked(edit.logit)]
        });
        raw.unmasked() - before + after
    }

    /// Returns the number of logits of the vocabulary that are at or above `least`.
    pub(super) fn count_from(&self, least: f32) -> usize {
        let (n, mut chunk) = (self.given.logits.len(), [0.0f32; CHUNK]);
        let starts = (0..n).step_by(CHUNK);
        let of_chunk = |start| {
            let logits = chunk.get_mut(..CHUNK.min(n - start)).unwrap_or_default();
            self.write(start, logits);
            count_at_least(logits, least)
        };
        starts.map(of_chunk).sum()
    }

    /// Writes the logits of the vocabulary from `start` on into `to`; `start` is a multiple of 64.
    pub(super) fn write(&self, start: usize, to: &mut [f32]) {
        self.raw().write(start, to);
    }

    /// Returns the logits of block `number`.
    pub(super) fn block<'b>(&self, number: usize, to: &'b mut [f32; GROUP]) -> &'b [f32] {
        self.raw().block(number, to)
    }

    /// Returns the logits with the edits and the mask.
    pub(super) fn raw(&self) -> Raw<'_> {
        self.given.with(&self.buffers.changes)
    }

    /// Fills the array with all tokens, as a host passes them to a chain.
    // In bounds: a chunk has at most `CHUNK` logits.
    pub(super) fn fill(&mut self) {
        let raw = self.given.with(&self.buffers.changes);
        let array = &mut self.buffers.array;
        let n = self.given.logits.len();
        array.clear();
        reserve(array, n).unwrap_or_else(memory::exhausted);
        let mut chunk = [0.0; CHUNK];
        for start in (0..n).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(n - start)];
            raw.write(start, chunk);
            let ids = start as Token..;
            let candidate = |(id, &logit): (Token, &f32)| TokenData::new(id, logit);
            array.extend(ids.zip(&*chunk).map(candidate));
        }
    }

    /// Appends the candidates at or above `threshold` in the blocks `first..end` to the collected
    /// candidates. The maxima must be known.
    // In bounds: the caller passes numbers of blocks of the vocabulary; indices come from searches.
    pub(super) fn collect(&mut self, first: usize, end: usize, threshold: f32) {
        let raw = self.given.with(&self.buffers.changes);
        let collected = &mut self.buffers.collected;
        let before = collected.len();
        let tokens = first * GROUP..raw.logits.len().min(end * GROUP);
        let part = raw.logits.part(tokens.start, tokens.end);
        part.collect(
            &self.buffers.maxima[first..end],
            tokens.start as u32,
            threshold,
            collected,
        );
        if let Some(allowed) = raw.allowed {
            let mut kept = before;
            for i in before..collected.len() {
                collected[kept] = collected[i];
                kept += usize::from(has(allowed, collected[i].id));
            }
            collected.truncate(kept);
        }
        let edits = raw.edits;
        let place = |token: usize| edits.partition_point(|e| (e.token as usize) < token);
        let edits = &edits[place(tokens.start)..place(tokens.end)];
        for edit in edits {
            let token = edit.token as Token;
            let place = collected[before..].binary_search_by_key(&token, |c| c.id);
            let passes = edit.logit >= threshold;
            match place {
                Ok(place) if passes => collected[before + place].logit = edit.logit,
                Ok(place) => {
                    collected.remove(before + place);
                }
                Err(place) if passes => {
                    let candidate = TokenData::new(token, edit.logit);
                    collected.insert(before + place, candidate);
                }
                Err(_) => {}
            }
        }
    }
}
