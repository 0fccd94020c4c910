//! Banned texts or patterns, and the position of a growing text in their automaton.

use std::sync::Arc;

use super::cursor::Cursor;
use super::{Bans, patterns};
use crate::token::Token;

/// Banned texts or patterns, and the matches that have begun in the text so far.
#[derive(Debug)]
pub enum Search {
    /// Texts.
    Texts(Arc<Bans>, Cursor),
    /// Regular expressions.
    Patterns(Arc<patterns::Patterns>, patterns::Cursor),
}

/// Evaluates an expression with the bans and the cursor of either variant.
macro_rules! each {
    ($search:expr, $bans:ident, $cursor:ident => $call:expr) => {
        match $search {
            Self::Texts($bans, $cursor) => $call,
            Self::Patterns($bans, $cursor) => $call,
        }
    };
}

impl Clone for Search {
    fn clone(&self) -> Self {
        match self {
            Self::Texts(bans, cursor) => Self::Texts(Arc::clone(bans), cursor.clone()),
            Self::Patterns(bans, cursor) => Self::Patterns(Arc::clone(bans), cursor.clone()),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        match (&mut *self, source) {
            (Self::Texts(bans, cursor), Self::Texts(of, from)) => {
                bans.clone_from(of);
                cursor.clone_from(from);
            }
            (Self::Patterns(bans, cursor), Self::Patterns(of, from)) => {
                bans.clone_from(of);
                cursor.clone_from(from);
            }
            _ => *self = source.clone(),
        }
    }
}

impl Search {
    /// Returns the tokens that contain a whole match of a banned text or pattern, ascending. They
    /// are always banned.
    pub fn whole(&self) -> &[Token] {
        each!(self, bans, _cursor => bans.whole())
    }

    /// Returns the bitmap of all other tokens.
    pub fn others(&self) -> &[u64] {
        each!(self, bans, _cursor => bans.others())
    }

    /// Returns an upper bound on the number of calls by [`each`](Self::each).
    pub fn count(&self) -> usize {
        each!(self, bans, cursor => cursor.count(bans))
    }

    /// Calls `ban` with each token that would complete a begun match of a banned text or pattern. A
    /// token may be passed more than once.
    pub fn each(&self, ban: impl FnMut(Token)) {
        each!(self, bans, cursor => cursor.each(bans, ban));
    }

    /// True if `token` would complete a match of a banned text or pattern.
    pub fn bans(&self, token: Token) -> bool {
        each!(self, bans, cursor => cursor.bans(bans, token))
    }

    /// Returns the number of tokens since the beginning of the earliest banned text that one more
    /// token could complete; 0 if there is none. For patterns, if one more token could complete a
    /// begun match, returns the smallest number of newest tokens with the same begun matches, at
    /// most `MAX_BACK`.
    pub fn rewind(&self) -> usize {
        each!(self, bans, cursor => cursor.rewind(bans))
    }

    /// Accepts a token. A token outside the vocabulary has no text.
    pub fn accept(&mut self, token: Token) {
        each!(self, bans, cursor => cursor.accept(bans, token));
    }

    /// Returns to the state of an empty text.
    pub fn reset(&mut self) {
        each!(self, _bans, cursor => cursor.reset());
    }

    /// Passes the state to `put`.
    pub fn save(&self, put: &mut dyn FnMut(&[u8])) {
        each!(self, bans, cursor => cursor.save(bans, put));
    }

    /// Restores a state that was saved with the same bans. Returns `None` if it was saved with
    /// other bans or is invalid; the state is then unspecified.
    pub fn load(&mut self, bytes: &[u8]) -> Option<()> {
        each!(self, bans, cursor => cursor.load(bans, bytes))
    }
}
