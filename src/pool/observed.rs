//! Reads the candidates of a pool between two samplers, for a trace.
//!
//! The pool keeps its form if the form determines which candidates are left. Otherwise the array is
//! made.

use super::buffers::Edit;
use super::{Order, Part, Pool, Source, State};
use crate::kernels::layout::CHUNK;
use crate::kernels::logits::Logits;
use crate::token::{Token, comparable};

/// The smallest and the largest logit, before the division, of the candidates of a pool in order.
type Range = (f32, f32);

impl<'l> Pool<'l> {
    /// Passes the logits of the candidates to `visit`, in chunks of [`CHUNK`] and in any order. A
    /// token that is no longer a candidate may appear as minus infinity.
    pub fn visit_logits(&mut self, mut visit: impl FnMut(&[f32])) {
        let range = self.settled_range();
        let mut chunk = [0.0f32; CHUNK];
        if matches!(self.state, State::Array { .. }) {
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
        let n = self.n_vocab();
        for start in (0..n).step_by(CHUNK) {
            let logits = chunk.get_mut(..CHUNK.min(n - start)).unwrap_or_default();
            self.tokens.write(start, logits);
            if let Some((range, order)) = range {
                logits
                    .iter_mut()
                    .for_each(|logit| *logit = left(*logit, range, order));
            }
            visit(logits);
        }
    }

    /// Writes the logit of each of `tokens` into `logits`; `None` for a token that is no longer a
    /// candidate.
    pub fn find(&mut self, tokens: &[Token], logits: &mut [Option<f32>]) {
        let range = self.settled_range();
        logits.fill(None);
        if matches!(self.state, State::Array { .. }) {
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
            if !self.tokens.has(token) {
                continue;
            }
            let logit = self.tokens.logit_of(token);
            *found = match range {
                Some(((least, most), order)) => {
                    let is_left = (least..=most).contains(&logit);
                    is_left.then(|| logit / order.divisor)
                }
                None => Some(logit),
            };
        }
    }

    /// Returns the range of the logits that are left, and the deferred operations, if the
    /// candidates are in order. If a range does not determine which candidates are left, makes the
    /// array.
    fn settled_range(&mut self) -> Option<(Range, Order)> {
        let State::InOrder(order, _) = self.state else {
            return None;
        };
        let count_from = |least| self.tokens.count_from(least);
        match order.part {
            Part::First(first) if count_from(first.last) == first.n => {
                Some(((first.last, f32::INFINITY), order))
            }
            Part::Behind(dropped) if count_from(order.first.next_up()) == dropped => {
                Some(((f32::NEG_INFINITY, order.first), order))
            }
            _ => {
                self.array();
                None
            }
        }
    }

    /// Returns the logits from which the pool was made.
    pub fn logits(&self) -> Logits<'l> {
        self.tokens.given.logits
    }

    /// Returns the tokens whose logits were changed, each with its logit before and after, in
    /// ascending order of token. `None` if the candidates were changed in any other way.
    pub fn edits(&self) -> Option<impl Iterator<Item = (Token, f32, f32)>> {
        let is_whole = matches!(self.state, State::Whole | State::Weighted(_));
        let is_given = matches!(self.tokens.given.source, Source::Given);
        let raw = self.tokens.raw();
        let edits = self.tokens.buffers.changes.edits.iter();
        let changed = move |edit: &Edit| {
            let before = raw.at(edit.token as usize);
            (edit.token as Token, before, edit.logit)
        };
        (is_whole && is_given).then(|| edits.map(changed))
    }
}

/// Returns a logit after the division, or minus infinity if it is outside the range.
fn left(logit: f32, (least, most): Range, order: Order) -> f32 {
    let logit = comparable(logit);
    match (least..=most).contains(&logit) {
        true => logit / order.divisor,
        false => f32::NEG_INFINITY,
    }
}
