//! The logits as the stages see them: widened to `f32`, biased, penalised and perhaps divided by the temperature, block by block, while
//! the caller's array stays as it is.
//!
//! Bias and penalties are virtual: a sorted list of the few tokens that they touch, with the new logits, which are put into the copy of a block.
//! A block of `f32` that nothing touches is not even copied. A block is 4 KiB, so what several passes do to it happens in the first-level cache.

use std::collections::TryReserveError;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use crate::history::History;
use crate::metrics::{BLOCK, Summary};
use crate::sieve::params::Params;
use crate::sieve::penalties::Penalties;
use crate::sieve::workspace::reserve;
use crate::token::Token;

/// Raw logits of one position, indexed by token, in any of three precisions.
#[derive(Clone, Copy, Debug)]
pub enum Logits<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16: the upper half of a `f32`.
    Bf16(&'a [bf16]),
}

impl<'a> From<&'a [f32]> for Logits<'a> {
    fn from(logits: &'a [f32]) -> Self {
        Logits::F32(logits)
    }
}

impl<'a> From<&'a Vec<f32>> for Logits<'a> {
    fn from(logits: &'a Vec<f32>) -> Self {
        Logits::F32(logits)
    }
}

impl<'a> From<&'a [f16]> for Logits<'a> {
    fn from(logits: &'a [f16]) -> Self {
        Logits::F16(logits)
    }
}

impl<'a> From<&'a [bf16]> for Logits<'a> {
    fn from(logits: &'a [bf16]) -> Self {
        Logits::Bf16(logits)
    }
}

impl Logits<'_> {
    /// The size of the vocabulary.
    pub fn len(&self) -> usize {
        match self {
            Logits::F32(logits) => logits.len(),
            Logits::F16(logits) => logits.len(),
            Logits::Bf16(logits) => logits.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One logit, widened.
    pub fn at(&self, index: usize) -> f32 {
        match self {
            Logits::F32(logits) => logits[index],
            Logits::F16(logits) => logits[index].to_f32(),
            Logits::Bf16(logits) => logits[index].to_f32(),
        }
    }

    /// The logits from `start` on that fill `block`, widened.
    fn widen(&self, start: usize, block: &mut [f32]) {
        let range = start..start + block.len();
        match self {
            Logits::F32(logits) => block.copy_from_slice(&logits[range]),
            Logits::F16(logits) => logits[range].convert_to_f32_slice(block),
            Logits::Bf16(logits) => logits[range].convert_to_f32_slice(block),
        }
    }
}

/// A token whose logit bias or penalties change, and the logit after them.
pub(super) type Touched = (u32, f32);

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
    pub fn len(&self) -> usize {
        self.logits.len()
    }

    /// Calls `visit` with the index of the first logit and the logits of each block, in order. `raw` gets the blocks as they were given.
    pub fn for_each_block(
        &self,
        mut raw: Option<&mut Summary>,
        mut visit: impl FnMut(usize, &[f32]),
    ) {
        let mut buffer = [0.0f32; BLOCK];
        let mut touched = self.touched;
        let n = self.len();
        for start in (0..n).step_by(BLOCK) {
            let end = n.min(start + BLOCK);
            let (here, later) = touched.split_at(touched.partition_point(|t| (t.0 as usize) < end));
            touched = later;
            let unchanged = here.is_empty() && self.divisor == 1.0;
            if let (Logits::F32(logits), true) = (self.logits, unchanged) {
                let block = &logits[start..end];
                if let Some(raw) = raw.as_deref_mut() {
                    raw.add_block(block);
                }
                visit(start, block);
                continue;
            }
            let block = &mut buffer[..end - start];
            self.logits.widen(start, block);
            if let Some(raw) = raw.as_deref_mut() {
                raw.add_block(block);
            }
            self.change(start, here, block);
            visit(start, block);
        }
    }

    fn change(&self, start: usize, touched: &[Touched], block: &mut [f32]) {
        for &(token, logit) in touched {
            block[token as usize - start] = logit;
        }
        if self.divisor != 1.0 {
            for logit in block {
                *logit /= self.divisor;
            }
        }
    }
}

/// A window up to which there is room for all its tokens at once.
const WINDOW: usize = 1024;

/// Bias and penalties of one sieve, ready to be looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Adjustments {
    /// Token, place in the caller's order, bias: by rising token; of one token, in the caller's order.
    biases: Vec<(Token, u32, f32)>,
    penalties: Option<Penalties>,
}

impl Adjustments {
    /// Takes the memory for `n` biases; on failure nothing changes.
    pub fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let missing = n.saturating_sub(self.biases.len());
        self.biases.try_reserve(missing)
    }

    pub fn set(&mut self, params: &Params) {
        self.biases.clear();
        let biases = params.bias.iter().zip(0..);
        self.biases
            .extend(biases.map(|(&(token, bias), place)| (token, place, bias)));
        // In place: a sort that is stable by itself allocates.
        self.biases
            .sort_unstable_by_key(|&(token, place, _)| (token, place));
        self.penalties = params.penalties();
    }

    pub fn is_empty(&self, history: &History) -> bool {
        self.biases.is_empty() && (self.penalties.is_none() || history.is_empty())
    }

    /// The logit of `token` after its biases and penalties, in this order.
    pub fn adjust(&self, token: Token, logit: f32, history: &History) -> f32 {
        let first = self.biases.partition_point(|&(t, ..)| t < token);
        let biases = self.biases[first..]
            .iter()
            .take_while(|&&(t, ..)| t == token);
        let biased = biases.fold(logit, |logit, &(.., bias)| logit + bias);
        match &self.penalties {
            Some(penalties) => penalties.adjust(biased, history.count(token)),
            None => biased,
        }
    }

    /// Writes the tokens below `n` that change into `touched`, with the logits of `raw` after the change.
    pub fn collect(
        &self,
        n: usize,
        history: &History,
        raw: impl Fn(usize) -> f32,
        touched: &mut Vec<Touched>,
    ) {
        touched.clear();
        let penalised = match self.penalties {
            Some(_) => history.distinct(),
            None => &[],
        };
        // As many as a full window could name, so that a window that fills up does not allocate.
        let window = penalised.len().max(history.capacity().min(WINDOW));
        reserve(touched, self.biases.len() + window);
        let tokens = self.biases.iter().map(|&(token, ..)| token);
        let tokens = tokens.chain(penalised.iter().map(|&(token, _)| token));
        let known = tokens.filter(|&token| usize::try_from(token).is_ok_and(|token| token < n));
        touched.extend(known.map(|token| (token as u32, 0.0)));
        touched.sort_unstable_by_key(|t| t.0);
        touched.dedup_by_key(|t| t.0);
        for (token, logit) in touched {
            *logit = self.adjust(*token as Token, raw(*token as usize), history);
        }
    }
}
