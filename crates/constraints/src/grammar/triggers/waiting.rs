//! The state of a lazy grammar before its trigger: the text so far, and the positions of the
//! patterns in it.

use std::collections::VecDeque;

use crate::grammar::limits::{MAX_ROLLBACK, MAX_WAITING_TEXT};
use crate::grammar::triggers::automaton::{Cursor, Hits};
use crate::grammar::triggers::budget::{Budget, Endless};
use crate::grammar::triggers::set::Triggers;
use crate::token::Token;

/// A text without a trigger so far.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    text: Vec<u8>,
    /// The tokens, each with the offset at which its text begins.
    tokens: Vec<(Token, u32)>,
    cursor: Cursor,
    /// The patterns that the automaton has reported as possible matches, but that have not matched.
    maybe: Vec<u32>,
    /// Earlier positions of the patterns, the oldest first, [`EVERY`] tokens apart.
    checkpoints: VecDeque<Checkpoint>,
}

/// The positions of the patterns after some number of tokens.
#[derive(Clone, Debug)]
struct Checkpoint {
    n_tokens: usize,
    cursor: Cursor,
    maybe: Vec<u32>,
}

/// The number of tokens between two checkpoints.
const EVERY: usize = 64;
/// The maximum number of checkpoints that are kept: enough for every rollback.
const MOST: usize = MAX_ROLLBACK / EVERY + 2;

impl Waiting {
    /// Accepts a token. If a pattern is now found, returns the offset in the text at which the
    /// grammar begins.
    pub fn accept(
        &mut self,
        triggers: &Triggers,
        token: Token,
        piece: &[u8],
    ) -> Result<Option<usize>, Endless> {
        self.accept_within(triggers, token, piece, &mut Budget::default())
    }

    /// Accepts a token, as [`accept`](Self::accept) does, within a budget.
    pub fn accept_within(
        &mut self,
        triggers: &Triggers,
        token: Token,
        piece: &[u8],
        budget: &mut Budget,
    ) -> Result<Option<usize>, Endless> {
        if self.text.len() + piece.len() > MAX_WAITING_TEXT {
            return Err(Endless);
        }
        if self.tokens.len().is_multiple_of(EVERY) {
            if self.checkpoints.len() >= MOST {
                self.checkpoints.pop_front();
            }
            self.checkpoints.push_back(Checkpoint {
                n_tokens: self.tokens.len(),
                cursor: self.cursor.clone(),
                maybe: self.maybe.clone(),
            });
        }
        self.tokens.push((token, self.text.len() as u32));
        self.text.extend_from_slice(piece);
        if triggers.n_patterns() == 0 {
            return Ok(None);
        }
        let mut all = self.stream(triggers, piece, budget)?;
        all.extend(&self.maybe);
        all.sort_unstable();
        all.dedup();
        budget.take(all.len())?;
        for pattern in all {
            if let Some(begin) = triggers.find(pattern, &self.text, budget)? {
                return Ok(Some(begin));
            }
        }
        Ok(None)
    }

    /// Reads a piece of the text. Returns the patterns that may match only if the text ends after
    /// the piece. Adds the other patterns that may have matched to `maybe`.
    fn stream(
        &mut self,
        triggers: &Triggers,
        piece: &[u8],
        budget: &mut Budget,
    ) -> Result<Vec<u32>, Endless> {
        let mut hits = Hits::default();
        triggers.stream(&mut self.cursor, piece, &mut hits, budget)?;
        if !hits.somewhere.is_empty() {
            self.maybe.append(&mut hits.somewhere);
            self.maybe.sort_unstable();
            self.maybe.dedup();
        }
        Ok(hits.at_end)
    }

    /// Returns the number of tokens.
    pub fn n_tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Returns how many tokens can be taken back: at least [`MAX_ROLLBACK`], if so many were
    /// accepted.
    pub fn reach(&self) -> usize {
        let oldest = self.checkpoints.front().map_or(0, |first| first.n_tokens);
        self.tokens.len().saturating_sub(oldest)
    }

    /// Takes back the last tokens, until `n` are left. At most [`reach`](Self::reach) can be taken
    /// back.
    pub fn back_to(&mut self, triggers: &Triggers, n: usize) -> Result<(), Endless> {
        let Some(&(_, end)) = self.tokens.get(n) else {
            return Ok(());
        };
        let mut known = None;
        while self
            .checkpoints
            .back()
            .is_some_and(|last| last.n_tokens >= n)
        {
            known = self.checkpoints.pop_back();
        }
        known = known.filter(|known| known.n_tokens == n);
        let known = known.or_else(|| self.checkpoints.back().cloned());
        let Checkpoint {
            n_tokens,
            cursor,
            maybe,
        } = known.ok_or(Endless)?;
        (self.cursor, self.maybe) = (cursor, maybe);
        self.tokens.truncate(n);
        let text = std::mem::take(&mut self.text);
        let from = self.tokens.get(n_tokens).map_or(end, |&(_, start)| start);
        let ends = self.tokens.iter().skip(n_tokens + 1);
        let ends: Vec<u32> = ends.map(|&(_, start)| start).chain([end]).collect();
        let mut start = from as usize;
        let mut result = Ok(());
        for end in ends {
            let end = end as usize;
            let piece = text.get(start..end).unwrap_or_default();
            if triggers.n_patterns() > 0 && !piece.is_empty() && result.is_ok() {
                // When the piece was first read, it took no more steps than one token may take.
                let read = self.stream(triggers, piece, &mut Budget::default());
                result = read.map(|_| ());
            }
            start = end;
        }
        self.text = text;
        self.text.truncate(end as usize);
        result
    }

    /// Returns the tokens from an offset of the text on, with their texts. The token that contains
    /// the offset is returned with the rest of its text.
    pub fn since(&self, begin: usize) -> impl Iterator<Item = (Token, &[u8])> + Clone {
        let ends = self.tokens.iter().skip(1).map(|&(_, start)| start as usize);
        let ends = ends.chain(std::iter::once(self.text.len()));
        let spans = self.tokens.iter().zip(ends);
        spans.filter_map(move |(&(token, start), end)| {
            let text = self.text.get(begin.max(start as usize)..end)?;
            (end > begin).then_some((token, text))
        })
    }
}
