//! Looks at the candidates of a pool between two samplers, for a trace.
//!
//! The pool keeps its form where that says for certain which candidates are left. Where it leaves
//! that open, the array is made, as it is for whoever asks for it.

use super::{Buffers, Form, InOrder, Part, Pool};
use crate::kernels::layout::CHUNK;
use crate::kernels::logits::Logits;
use crate::kernels::scan::count_at_least;
use crate::token::{Token, comparable};

/// The logits, before the division, of the candidates in order that are left: those at or above
/// the first number and at or below the second.
type Range = (f32, f32);

impl<'l> Pool<'l> {
    /// Hands the logits of the candidates to `visit`, in chunks of [`CHUNK`] and in any order.
    /// Minus infinity may stand for what is no candidate any more.
    pub fn visit_logits(&mut self, mut visit: impl FnMut(&[f32])) {
        let range = self.settled_range();
        let mut chunk = [0.0f32; CHUNK];
        if matches!(self.form, Form::Array { .. }) {
            for part in self.array().0.chunks(CHUNK) {
                let logits = chunk.get_mut(..part.len()).unwrap_or_default();
                logits
                    .iter_mut()
                    .zip(part)
                    .for_each(|(to, c)| *to = c.logit);
                visit(logits);
            }
            return;
        }
        let n = self.logits.len();
        for start in (0..n).step_by(CHUNK) {
            let logits = chunk.get_mut(..CHUNK.min(n - start)).unwrap_or_default();
            self.chunk(start, logits);
            if let (Some(range), Some(order)) = (range, self.order) {
                logits
                    .iter_mut()
                    .for_each(|logit| *logit = left(*logit, range, order));
            }
            visit(logits);
        }
    }

    /// Writes the logit of each of these tokens into `logits`; `None` for one that is no candidate
    /// any more.
    pub fn find(&mut self, tokens: &[Token], logits: &mut [Option<f32>]) {
        let range = self.settled_range();
        logits.fill(None);
        if matches!(self.form, Form::Array { .. }) {
            let wanted = |token: Token| 1u64 << (token & 63);
            let any = tokens.iter().fold(0, |any, &token| any | wanted(token));
            for candidate in self.array().0.iter() {
                if any & wanted(candidate.id) == 0 {
                    continue;
                }
                let places = tokens.iter().zip(&mut *logits);
                for (_, found) in places.filter(|(token, _)| **token == candidate.id) {
                    found.get_or_insert(candidate.logit);
                }
            }
            return;
        }
        for (&token, found) in tokens.iter().zip(logits) {
            if !self.has(token) {
                continue;
            }
            let logit = self.logit_of(token);
            *found = match (range, self.order) {
                (Some((least, most)), Some(order)) => {
                    let is_left = (least..=most).contains(&logit);
                    is_left.then(|| logit / order.divisor)
                }
                _ => Some(logit),
            };
        }
    }

    /// The logits that are left where the candidates are in order; the array is made where they do
    /// not tell.
    fn settled_range(&mut self) -> Option<Range> {
        let order = self.order?;
        let range = match order.part {
            Part::First(first) if self.count_from(first.last) == first.n => {
                Some((first.last, f32::INFINITY))
            }
            Part::Behind(dropped) if self.count_from(order.first.next_up()) == dropped => {
                Some((f32::NEG_INFINITY, order.first))
            }
            _ => None,
        };
        if range.is_none() {
            self.array();
        }
        range
    }

    /// Counts the logits of the vocabulary that are at least this large.
    fn count_from(&self, least: f32) -> usize {
        let (n, mut chunk) = (self.logits.len(), [0.0f32; CHUNK]);
        let starts = (0..n).step_by(CHUNK);
        let of_chunk = |start| {
            let logits = chunk.get_mut(..CHUNK.min(n - start)).unwrap_or_default();
            self.chunk(start, logits);
            count_at_least(logits, least)
        };
        starts.map(of_chunk).sum()
    }

    /// Writes the logits of the vocabulary from `start` on, a multiple of [`CHUNK`], into `to`.
    fn chunk(&self, start: usize, to: &mut [f32]) {
        self.whole().widen(start, to);
        let Buffers { edits, .. } = &*self.buffers;
        let place = |token: usize| edits.partition_point(|e| (e.token as usize) < token);
        let edits = edits.get(place(start)..place(start + to.len()));
        for edit in edits.unwrap_or_default() {
            if let Some(logit) = to.get_mut(edit.token as usize - start) {
                *logit = edit.logit;
            }
        }
    }

    /// The logits that the pool was made of.
    pub fn logits(&self) -> Logits<'l> {
        self.logits
    }

    /// True if nothing was changed or removed yet.
    pub fn is_untouched(&self) -> bool {
        let raw = matches!(self.form, Form::Logits) && self.order.is_none();
        raw && self.buffers.edits.is_empty()
    }
}

fn left(logit: f32, (least, most): Range, order: InOrder) -> f32 {
    let logit = comparable(logit);
    match (least..=most).contains(&logit) {
        true => logit / order.divisor,
        false => f32::NEG_INFINITY,
    }
}
