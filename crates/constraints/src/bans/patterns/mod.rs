//! Finds the tokens that would complete a match of a banned regular expression. Such an expression
//! must not match anywhere in a text.
//!
//! - `program`: the patterns as instructions of an NFA over bytes;
//! - `automaton`: the DFA of these instructions, all of whose states are constructed in advance;
//! - `tree`: the sorted texts of a vocabulary as a tree of common prefixes.
//!
//! A walk through that tree finds the tokens that complete a match from a state. It reads a common
//! prefix of several tokens once. After most bytes, no match that began before the token is still
//! possible. The state is then the same as if no match had begun. A match can then only lie within
//! the token, and tokens that contain a match are already known. So the walk skips all tokens with
//! that prefix. The result is kept for each state that a text has reached, up to a limit in bytes.

// In bounds: tokens, ranks and states are positions in arrays that never change.

mod automaton;
mod program;
mod tree;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use self::automaton::{Automaton, START, State};
use self::program::Program;
use self::tree::Tree;
use super::automaton::{Reading, digest_of};
use super::kept::Kept;
use super::order::Order;
use super::{clear, counted, every};
use crate::kernels::bitmap::has;
use crate::memory::{copied, exhausted, push, with_room};
use crate::token::Token;

/// The number of newest tokens that are remembered for [`Cursor::rewind`].
pub const MAX_BACK: usize = 1024;

/// Banned patterns for a vocabulary.
#[derive(Debug)]
pub struct Patterns {
    order: Arc<Order>,
    automaton: Automaton,
    /// The tokens that contain a match, ascending.
    whole: Vec<Token>,
    /// The bitmap of the tokens that contain no match.
    others: Vec<u64>,
    tree: Tree,
    /// For each state, the ranks of the tokens in `others` that complete a match, once they are
    /// known.
    kept: Kept<Range<u32>>,
    digest: [u8; 8],
}

impl Patterns {
    /// Returns the bans of the patterns `texts`, in the syntax of the crate `regex`, for the
    /// vocabulary of `order`, which must not be folded. With `ignores_case`, each pattern is read
    /// as if it began with `(?i)`.
    ///
    /// # Errors
    /// Returns a message for the caller if a pattern is malformed or contains something that cannot
    /// be banned, or if the patterns are too large.
    pub fn new(texts: &[&[u8]], ignores_case: bool, order: &Arc<Order>) -> Result<Self, String> {
        let automaton = Automaton::new(&Program::new(texts, ignores_case)?)?;
        let mut keys = with_room(texts.len()).unwrap_or_else(exhausted);
        keys.extend(texts.iter().map(|text| copied(text)));
        let kept = Kept::new(automaton.n_states());
        let (mut whole, mut others) = (Vec::new(), every(order.n_tokens()));
        for token in 0..order.n_tokens() as Token {
            if automaton.has_match(automaton.idle(), order.key(token)) {
                push(&mut whole, token);
                clear(&mut others, token);
            }
        }
        Ok(Self {
            order: Arc::clone(order),
            automaton,
            whole,
            others,
            tree: Tree::new(order),
            kept,
            digest: digest_of(&keys, Reading::Pattern { ignores_case }),
        })
    }

    /// Returns the tokens that contain a match, ascending: they are always banned.
    pub fn whole(&self) -> &[Token] {
        &self.whole
    }

    /// Returns the bitmap of the tokens that contain no match.
    pub fn others(&self) -> &[u64] {
        &self.others
    }

    /// Calls `each` with ranges of ranks, ascending. The ranges hold all tokens in `others` that
    /// complete a match from `state`, and some tokens that contain a whole match.
    fn walk(&self, state: State, mut each: impl FnMut(Range<u32>)) {
        // After each byte of the current text: the state, and the state without the matches that
        // began before the text.
        let mut states = with_room(self.order.longest() + 1).unwrap_or_else(exhausted);
        states.push((state, self.automaton.idle()));
        let (mut rank, n_ranks) = (0, self.order.n_ranks());
        let tokens = self.order.tokens(0..n_ranks);
        while rank < n_ranks {
            let common = self.tree.common(rank);
            states.truncate(common + 1);
            let (mut state, mut idle) = states[common];
            let mut after = rank + 1;
            for &byte in &self.order.key(tokens[rank as usize])[common..] {
                state = self.automaton.step(state, byte);
                idle = self.automaton.step(idle, byte);
                let is_match = self.automaton.is_match(state);
                if state == idle || is_match {
                    after = self.tree.after(rank, states.len());
                    if state != idle {
                        each(rank..after);
                    }
                    break;
                }
                states.push((state, idle));
            }
            rank = after;
        }
    }

    /// Returns the ranks of the tokens that complete a match from a state, without those that
    /// contain a whole match.
    fn ranges(&self, state: State) -> Cow<'_, [Range<u32>]> {
        if let Some(known) = self.kept.get(state) {
            return Cow::Borrowed(known);
        }
        let mut ranges: Vec<Range<u32>> = Vec::new();
        self.walk(state, |found| {
            for rank in found {
                if !has(&self.others, self.order.tokens(rank..rank + 1)[0]) {
                    continue;
                }
                match ranges.last_mut() {
                    Some(last) if last.end == rank => last.end += 1,
                    _ => push(&mut ranges, rank..rank + 1),
                }
            }
        });
        match self.kept.keep(state, ranges) {
            Ok(kept) => Cow::Borrowed(kept),
            Err(ranges) => Cow::Owned(ranges),
        }
    }
}

/// Tracks the matches that have begun in a growing text.
#[derive(Debug)]
pub struct Cursor {
    state: State,
    /// The newest tokens.
    newest: VecDeque<Token>,
    /// True if there were tokens before `newest`.
    has_older: bool,
}

impl Clone for Cursor {
    fn clone(&self) -> Self {
        let mut copy = Self::new();
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, source: &Self) {
        (self.state, self.has_older) = (source.state, source.has_older);
        self.newest.clone_from(&source.newest);
    }
}

impl Default for Cursor {
    fn default() -> Self {
        Self::new()
    }
}

impl Cursor {
    /// Returns the state of an empty text.
    pub fn new() -> Self {
        let mut newest = VecDeque::new();
        newest.try_reserve_exact(MAX_BACK).unwrap_or_else(exhausted);
        Self {
            state: START,
            newest,
            has_older: false,
        }
    }

    /// Returns to the state of an empty text.
    pub fn reset(&mut self) {
        (self.state, self.has_older) = (START, false);
        self.newest.clear();
    }

    /// Accepts a token. A token outside the vocabulary has no text.
    pub fn accept(&mut self, patterns: &Patterns, token: Token) {
        if patterns.order.rank(token).is_some() {
            let text = patterns.order.key(token);
            self.state = patterns.automaton.run(self.state, text);
        }
        if self.newest.len() >= MAX_BACK {
            self.newest.pop_front();
            self.has_older = true;
        }
        self.newest.push_back(token);
    }

    /// Passes the state to `put`: a digest of the patterns, the automaton's state, and the newest
    /// tokens.
    pub fn save(&self, patterns: &Patterns, put: &mut dyn FnMut(&[u8])) {
        put(&patterns.digest);
        put(&self.state.to_le_bytes());
        put(&u32::from(self.has_older).to_le_bytes());
        put(&(4 * self.newest.len() as u32).to_le_bytes());
        for token in &self.newest {
            put(&token.to_le_bytes());
        }
    }

    /// Restores a state that was saved with the same patterns. Returns `None` if it was saved with
    /// other patterns or is invalid; the cursor's state is then unspecified.
    pub fn load(&mut self, patterns: &Patterns, bytes: &[u8]) -> Option<()> {
        let rest = bytes.strip_prefix(&patterns.digest)?;
        let (state, rest) = rest.split_first_chunk()?;
        let (has_older, rest) = rest.split_first_chunk()?;
        let (newest, []) = counted(rest)? else {
            return None;
        };
        let (newest, []) = newest.as_chunks::<4>() else {
            return None;
        };
        self.state = State::from_le_bytes(*state);
        self.has_older = match u32::from_le_bytes(*has_older) {
            0 => false,
            1 => true,
            _ => return None,
        };
        let is_valid = (self.state as usize) < patterns.automaton.n_states();
        (is_valid && newest.len() <= MAX_BACK).then_some(())?;
        self.newest.clear();
        self.newest
            .extend(newest.iter().map(|&token| Token::from_le_bytes(token)));
        Some(())
    }

    /// Returns the smallest number of newest tokens that lead to the current state from a text in
    /// which no match has begun. These are usually the tokens since the earliest of the begun
    /// matches started. But with `a+b`, after `aaa`, the newest `a` suffices, and with `(?m)^` the
    /// line feed is included. Returns the number of remembered tokens, at most [`MAX_BACK`], if no
    /// smaller number suffices, and 0 if only tokens that contain a whole match would complete one.
    pub fn rewind(&self, patterns: &Patterns) -> usize {
        if patterns.ranges(self.state).is_empty() {
            return 0;
        }
        let automaton = &patterns.automaton;
        let is_after = |n: usize| {
            let newest = self.newest.iter().skip(self.newest.len() - n);
            let known = newest.filter(|&&token| patterns.order.rank(token).is_some());
            let texts = known.map(|&token| patterns.order.key(token));
            texts.fold(automaton.idle(), |state, text| automaton.run(state, text)) == self.state
        };
        // The more tokens are read, the more matches have begun.
        (0..self.newest.len())
            .find(|&n| is_after(n))
            .unwrap_or(self.newest.len())
    }

    /// True if `token` would complete a match.
    pub fn bans(&self, patterns: &Patterns, token: Token) -> bool {
        if patterns.order.rank(token).is_none() {
            return false;
        }
        let text = patterns.order.key(token);
        !has(&patterns.others, token) || patterns.automaton.has_match(self.state, text)
    }

    /// Returns the number of calls by [`each`](Self::each).
    pub fn count(&self, patterns: &Patterns) -> usize {
        let ranges = patterns.ranges(self.state);
        ranges.iter().map(|range| range.len()).sum()
    }

    /// Calls `ban` with the tokens that would complete a match, except those that contain a whole
    /// match.
    pub fn each(&self, patterns: &Patterns, mut ban: impl FnMut(Token)) {
        for range in patterns.ranges(self.state).iter() {
            let tokens = patterns.order.tokens(range.clone());
            tokens.iter().for_each(|&token| ban(token));
        }
    }
}

#[cfg(test)]
mod tests;
