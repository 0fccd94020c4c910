//! The position of the last sequence breaker.
//!
//! A token is settled once as many tokens follow it as may follow the first token of a breaker: no
//! later token can complete a breaker that begins at it. So each search covers only the newest
//! tokens, not the whole window. This limits the cost of a hostile request that makes thousands of
//! breakers begin at each token.

use super::breakers::{Breakers, MAX_TAIL_TOKENS};
use crate::token::Token;

/// The last breaker that begins at a settled token. Tokens are numbered from the first one that was
/// accepted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LastBreaker {
    accepted: u64,
    /// The number of settled tokens.
    settled: u64,
    /// The number of the token at which the breaker begins, and the number of tokens that follow in
    /// it.
    last: Option<(u64, usize)>,
}

impl LastBreaker {
    /// Records that a token was accepted.
    pub(super) fn accept(&mut self) {
        self.accepted += 1;
    }

    /// Forgets the last breaker, since other breakers apply from now on.
    pub(super) fn forget(&mut self) {
        self.settled = 0;
        self.last = None;
    }

    /// Returns the number of tokens after the last breaker, or of all tokens if there is none.
    /// `reversed` contains the last accepted tokens, newest first.
    pub(super) fn distance(&mut self, breakers: &Breakers, reversed: &[Token]) -> usize {
        let n = reversed.len();
        let open = MAX_TAIL_TOKENS.min(n);
        let unsettled = usize::try_from(self.accepted - self.settled).map_or(n, |few| few.min(n));
        if let Some((i, longest)) = breakers.newest(reversed, open..unsettled) {
            self.last = Some((self.accepted - i as u64, longest));
        }
        self.settled = self.settled.max(self.accepted - open as u64);
        if let Some((i, longest)) = breakers.newest(reversed, 0..open) {
            return i - longest;
        }
        let last = self
            .last
            .map(|(before, longest)| (self.accepted - before, longest));
        match last {
            Some((i, longest)) if i < n as u64 => i as usize - longest,
            _ => n,
        }
    }
}
