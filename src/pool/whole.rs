//! All tokens of a vocabulary in the order of their ids, none of which is chosen. A pool begins in
//! this form.

use std::ops::{Deref, DerefMut};

use super::buffers::{Buffers, Edit, MOST_EDITS};
use super::in_order::{First, InOrder, Order, Part, Weights};
use super::tokens::Tokens;
use super::{Pool, Source, State};
use crate::kernels::bitmap::{has, mask_column};
use crate::kernels::layout::GROUP;
use crate::token::{Token, TokenData, comparable};

/// All tokens of a vocabulary in the order of their ids, none of which is chosen. A method that
/// changes the form takes it by value.
#[derive(Debug)]
pub struct Whole<'p, 'a>(pub(super) &'p mut Pool<'a>);

impl<'a> Deref for Whole<'_, 'a> {
    type Target = Tokens<'a>;

    fn deref(&self) -> &Tokens<'a> {
        &self.0.tokens
    }
}

impl<'a> DerefMut for Whole<'_, 'a> {
    fn deref_mut(&mut self) -> &mut Tokens<'a> {
        &mut self.0.tokens
    }
}

impl<'p, 'a> Whole<'p, 'a> {
    /// Replaces the logit of `token` with the result of `change` on it, if the token is in the
    /// vocabulary.
    pub fn edit(&mut self, token: Token, change: impl FnOnce(f32) -> f32) {
        if !self.has(token) {
            return;
        }
        self.max = None;
        if self.buffers.changes.edits.len() == MOST_EDITS {
            self.make_column();
        }
        let (token, index) = (token as u32, token as usize);
        if matches!(self.given.source, Source::Column) {
            if let Some(logit) = self.buffers.changes.column.get_mut(index) {
                *logit = change(*logit);
            }
            return;
        }
        let edits = &self.buffers.changes.edits;
        match edits.binary_search_by_key(&token, |e| e.token) {
            Ok(place) => {
                if let Some(edit) = self.buffers.changes.edits.get_mut(place) {
                    edit.logit = change(edit.logit);
                }
            }
            Err(place) => {
                let logit = change(self.raw().at(index));
                self.buffers
                    .changes
                    .edits
                    .insert(place, Edit { token, logit });
            }
        }
    }

    /// Adds each bias to the logit of its token, in the given order. Tokens outside the vocabulary
    /// are skipped.
    pub fn add(&mut self, biases: impl ExactSizeIterator<Item = (Token, f32)> + Clone) {
        if biases.len() > MOST_EDITS {
            let column = self.column_mut();
            for (token, bias) in biases {
                let place = usize::try_from(token).ok();
                if let Some(logit) = place.and_then(|place| column.get_mut(place)) {
                    *logit += bias;
                }
            }
            return;
        }
        for (token, _) in biases.clone() {
            self.expect(token);
        }
        for (token, bias) in biases {
            self.edit(token, |logit| logit + bias);
        }
    }

    /// Returns the logits of all tokens in order, to be changed.
    pub fn column_mut(&mut self) -> &mut [f32] {
        self.make_column();
        self.max = None;
        &mut self.buffers.changes.column
    }

    /// Changes the logits of all tokens by calling `change` on one part of them at a time. `change`
    /// must preserve their order. Block maxima that are known stay known if the largest logit is
    /// finite.
    pub fn change_in_order(&mut self, change: impl Fn(&mut [f32])) {
        let max = self.max.take();
        self.make_column_by(&change);
        let Some(mut max) = max.filter(|max| max.is_finite()) else {
            return;
        };
        change(std::slice::from_mut(&mut max));
        let maxima = &mut self.buffers.maxima;
        change(maxima);
        // A maximum that has become NaN does not count. The smaller logits of its block have become
        // NaN as well.
        maxima.iter_mut().for_each(|max| *max = comparable(*max));
        self.max = Some(comparable(max));
    }

    /// Returns the logits of all tokens in order, to be changed, with the maximum of each block and
    /// of all logits before the change. `None` if a logit is NaN, or if the largest is not finite.
    pub fn column_and_maxima(&mut self) -> Option<(&mut [f32], &[f32], f32)> {
        let (_, max) = self.contiguous_numbers()?;
        self.make_column();
        self.max = None;
        let Buffers {
            changes, maxima, ..
        } = &mut *self.buffers;
        Some((&mut changes.column, maxima, max))
    }

    /// Masks the tokens whose bits are not set: their logits become minus infinity. The bit of
    /// token t is bit t % 64 of word t / 64. Bits after the last word count as not set.
    pub fn mask(&mut self, words: &[u64]) {
        let tokens = &mut **self;
        tokens.max = None;
        let changes = &mut tokens.buffers.changes;
        for edit in &mut changes.edits {
            if !has(words, edit.token as Token) {
                edit.logit = f32::NEG_INFINITY;
            }
        }
        let padded = words.iter().copied().chain(std::iter::repeat(0));
        match tokens.given.source {
            Source::Given => {
                let n_words = tokens.given.logits.len().div_ceil(64);
                changes.allowed.clear();
                changes.allowed.extend(padded.take(n_words));
                tokens.given.source = Source::Masked;
            }
            Source::Masked => {
                let both = changes.allowed.iter_mut().zip(padded);
                both.for_each(|(allowed, word)| *allowed &= word);
            }
            Source::Column => mask_column(&mut changes.column, words),
        }
    }

    /// Masks all tokens except the one at `index`, which must be in the vocabulary.
    pub fn mask_all_but(&mut self, index: usize) {
        self.max();
        let token = index as u32;
        let logit = self.logit_of(token as Token);
        let tokens = &mut **self;
        let buffers = &mut *tokens.buffers;
        let changes = &mut buffers.changes;
        changes.edits.clear();
        changes.edits.push(Edit { token, logit });
        changes.allowed.clear();
        changes
            .allowed
            .resize(tokens.given.logits.len().div_ceil(64), 0);
        buffers.maxima.fill(f32::NEG_INFINITY);
        let max = comparable(logit);
        if let Some(of_block) = buffers.maxima.get_mut(index / GROUP) {
            *of_block = max;
        }
        tokens.max = Some(max);
        tokens.given.source = Source::Masked;
    }

    /// Chooses the token at `index`.
    pub fn select(self, index: usize) {
        self.0.selected = Some(index);
    }

    /// Chooses the token at `index`. Each token gets its softmax probability when the array is
    /// made.
    pub fn select_weighted(self, index: usize, weights: Weights) {
        self.0.state = State::Weighted(weights);
        self.0.selected = Some(index);
    }

    /// Keeps only these candidates, as an array.
    pub fn keep(self, kept: &[TokenData], sorted: bool) {
        self.0.keep(kept, sorted);
    }

    /// Keeps the candidates at or above `threshold`, in order of id, if `is_sure` returns true for
    /// them. They are not copied. `threshold` is above minus infinity.
    ///
    /// # Errors
    /// Returns the unchanged form if `is_sure` returns false.
    pub fn keep_at_least(
        mut self,
        threshold: f32,
        is_sure: impl FnOnce(&[TokenData]) -> bool,
    ) -> Result<(), Self> {
        let kept = self.at_least(threshold);
        if !is_sure(kept) {
            return Err(self);
        }
        let n_kept = kept.len();
        let pool = self.0;
        if n_kept < pool.n_vocab() {
            let buffers = &mut *pool.tokens.buffers;
            std::mem::swap(&mut buffers.array, &mut buffers.collected);
            pool.set_kept(false);
        }
        Ok(())
    }

    /// Defers three operations until the array is made: sorting all candidates, computing their
    /// softmax probabilities, and dropping the first `dropped`. `first` is the logit of the first
    /// candidate that stays.
    pub fn put_in_order(self, dropped: usize, first: f32) -> InOrder<'p, 'a> {
        self.defer(Part::Behind(dropped), first)
    }

    /// Keeps the first candidates in descending order, with their probabilities. They are sorted
    /// when the array is made. `max` is the largest logit, which is finite; no logit is NaN.
    /// `logits` contains the logits of these candidates, and perhaps of some more, in order of id.
    /// The pool keeps that buffer, and leaves an older one in its place.
    pub fn keep_first(mut self, first: First, max: f32, logits: &mut Vec<f32>) {
        std::mem::swap(&mut self.buffers.first, logits);
        self.defer(Part::First(first), max);
    }

    fn defer(mut self, part: Part, first: f32) -> InOrder<'p, 'a> {
        // The buffers get the size for this vocabulary even if the array is never made.
        let n = self.n_vocab();
        self.buffers.warm_up_to_sort(n);
        let order = Order {
            part,
            first,
            divisor: 1.0,
            weighted: false,
        };
        self.0.state = State::InOrder(order, None);
        InOrder::of(self.0, order)
    }
}
