//! A lazy grammar before its trigger: the text so far, and the states of the patterns in it.

use crate::grammar::limits::MAX_WAITING_TEXT;
use crate::grammar::triggers::automaton::{Cursor, Hits};
use crate::grammar::triggers::budget::{Budget, Endless};
use crate::grammar::triggers::set::Triggers;
use crate::token::Token;

/// A text without a trigger as yet.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    text: Vec<u8>,
    /// Tokens with where they begin.
    tokens: Vec<(Token, u32)>,
    cursor: Cursor,
    /// Patterns that can have matched, though none has: there the automaton says *maybe*.
    maybe: Vec<u32>,
}

impl Waiting {
    /// Goes on with a token. Where the grammar begins in the text, if a pattern is found now.
    pub fn accept(
        &mut self,
        triggers: &Triggers,
        token: Token,
        piece: &[u8],
    ) -> Result<Option<usize>, Endless> {
        self.accept_within(triggers, token, piece, &mut Budget::default())
    }

    /// Goes on with a token, as [`accept`](Self::accept) does, with the steps of a budget.
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
        self.tokens.push((token, self.text.len() as u32));
        self.text.extend_from_slice(piece);
        if triggers.n_patterns() == 0 {
            return Ok(None);
        }
        let mut hits = Hits::default();
        triggers.stream(&mut self.cursor, piece, &mut hits, budget)?;
        if !hits.somewhere.is_empty() {
            self.maybe.append(&mut hits.somewhere);
            self.maybe.sort_unstable();
            self.maybe.dedup();
        }
        let mut all = hits.at_end;
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

    /// The tokens from a place of the text on; of the one that it lies in, the rest.
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
