//! The logits of a pool that is whole, masked or not, with the edits.

use super::{Edit, Form, Part, Pool};
use crate::kernels::bitmap::{has, mask_column};
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::scan::count_at_least;
use crate::token::{Token, comparable};

/// The logits of a vocabulary, before the edits.
#[derive(Clone, Copy)]
pub(super) struct Whole<'a> {
    pub(super) logits: Logits<'a>,
    /// The tokens that count; the others are minus infinity.
    pub(super) allowed: Option<&'a [u64]>,
    /// True if a NaN among the caller's logits is read as minus infinity. Always false for a
    /// column: there the caller's NaN were replaced when the column was made, and a NaN in it comes
    /// from a sampler.
    bans_nan: bool,
}

impl<'a> Whole<'a> {
    pub(super) fn of(
        form: Form,
        logits: Logits<'a>,
        column: &'a [f32],
        allowed: &'a [u64],
        bans_nan: bool,
    ) -> Self {
        let is_column = matches!(form, Form::Column);
        Self {
            logits: if is_column {
                Logits::F32(column)
            } else {
                logits
            },
            allowed: matches!(form, Form::Masked).then_some(allowed),
            bans_nan: bans_nan && !is_column,
        }
    }

    pub(super) fn at(self, index: usize) -> f32 {
        match self.allowed {
            Some(allowed) if !has(allowed, index as Token) => f32::NEG_INFINITY,
            _ if self.bans_nan => comparable(self.logits.at(index)),
            _ => self.logits.at(index),
        }
    }

    /// Writes those from `start` on, which is a multiple of 64, into `to`.
    pub(super) fn widen(self, start: usize, to: &mut [f32]) {
        match self.bans_nan {
            true => self.widen_banning(start, to),
            false => self.logits.widen(start, to),
        }
        if let Some(allowed) = self.allowed {
            mask_column(to, allowed.get(start / 64..).unwrap_or_default());
        }
    }

    /// Writes those from `start` on, masked or not, into `to`: NaN as minus infinity.
    // In bounds: every caller asks for a range of the vocabulary.
    fn widen_banning(self, start: usize, to: &mut [f32]) {
        if let Logits::F32(xs) = self.logits {
            let from = &xs[start..start + to.len()];
            to.iter_mut()
                .zip(from)
                .for_each(|(to, &x)| *to = comparable(x));
            return;
        }
        // A part at a time, which stays in the first-level cache.
        for (number, part) in to.chunks_mut(CHUNK).enumerate() {
            self.logits.widen(start + number * CHUNK, part);
            part.iter_mut().for_each(|x| *x = comparable(*x));
        }
    }

    /// How many are above minus infinity.
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

    /// Counts the logits above minus infinity among at most `n` from `start` on, a multiple of 64.
    fn unmasked_of(self, start: usize, n: usize) -> usize {
        let mut copy = [0.0; CHUNK];
        let n = n.min(self.logits.len() - start);
        let copy = copy.get_mut(..n).unwrap_or_default();
        self.widen(start, copy);
        count_at_least(copy, f32::MIN)
    }

    pub(super) fn block_maxima(self, maxima: &mut [f32]) -> f32 {
        match self.allowed {
            Some(allowed) => self.logits.masked_block_maxima(allowed, maxima),
            None => self.logits.block_maxima(maxima),
        }
    }
}

impl Pool<'_> {
    /// The number of tokens in the vocabulary.
    pub fn n_vocab(&self) -> usize {
        self.logits.len()
    }

    /// The number of candidates left that are not masked.
    pub fn unmasked(&mut self) -> usize {
        if let Form::Array { start, len, .. } = self.form {
            let data = self.buffers.array.get(start..start + len);
            let logits = data.unwrap_or_default().iter().map(|c| c.logit);
            return logits.filter(|&logit| logit > f32::NEG_INFINITY).count();
        }
        let whole = self.whole();
        let is_unmasked = |logit: f32| usize::from(logit > f32::NEG_INFINITY);
        let edits = self.buffers.edits.iter();
        let [before, after] = edits.fold([0, 0], |[before, after], edit| {
            let raw = whole.at(edit.token as usize);
            [before + is_unmasked(raw), after + is_unmasked(edit.logit)]
        });
        let unmasked = whole.unmasked() - before + after;
        // The masked ones are the last in any order.
        match self.order.map(|order| order.part) {
            Some(Part::Behind(dropped)) => unmasked - dropped,
            Some(Part::First(first)) => unmasked.min(first.n),
            None => unmasked,
        }
    }
}

/// Methods of a pool that [is whole](Pool::is_whole).
impl Pool<'_> {
    /// Gives minus infinity to the tokens whose bits are not set: bit t % 64 of word t / 64 stands
    /// for token t. What is behind the last word is not set.
    pub fn mask(&mut self, words: &[u64]) {
        self.max = None;
        let buffers = &mut *self.buffers;
        for edit in &mut buffers.edits {
            if !has(words, edit.token as Token) {
                edit.logit = f32::NEG_INFINITY;
            }
        }
        let padded = words.iter().copied().chain(std::iter::repeat(0));
        match self.form {
            Form::Logits => {
                let n_words = self.logits.len().div_ceil(64);
                buffers.allowed.clear();
                buffers.allowed.extend(padded.take(n_words));
                self.form = Form::Masked;
            }
            Form::Masked => {
                let both = buffers.allowed.iter_mut().zip(padded);
                both.for_each(|(allowed, word)| *allowed &= word);
            }
            Form::Column => mask_column(&mut buffers.column, words),
            Form::Array { .. } => {}
        }
    }

    /// Gives minus infinity to all tokens but the one at `index`, which is in the vocabulary.
    pub fn mask_all_but(&mut self, index: usize) {
        self.max();
        let token = index as u32;
        let logit = self.logit_of(token as Token);
        let buffers = &mut *self.buffers;
        buffers.edits.clear();
        buffers.edits.push(Edit { token, logit });
        buffers.allowed.clear();
        buffers.allowed.resize(self.logits.len().div_ceil(64), 0);
        buffers.maxima.fill(f32::NEG_INFINITY);
        let max = comparable(logit);
        if let Some(of_block) = buffers.maxima.get_mut(index / GROUP) {
            *of_block = max;
        }
        self.max = Some(max);
        self.form = Form::Masked;
    }
}

/// The logits of block `number` with the edits, some of which are in it.
// In bounds: the caller names a block of the vocabulary, which has at most `GROUP` logits.
pub(super) fn block_of<'b>(
    whole: Whole<'_>,
    edits: &[Edit],
    number: usize,
    to: &'b mut [f32; GROUP],
) -> &'b [f32] {
    let start = number * GROUP;
    let block = &mut to[..GROUP.min(whole.logits.len() - start)];
    whole.widen(start, block);
    let first = edits.partition_point(|e| (e.token as usize) < start);
    for edit in &edits[first..] {
        match block.get_mut(edit.token as usize - start) {
            Some(logit) => *logit = edit.logit,
            None => break,
        }
    }
    block
}
