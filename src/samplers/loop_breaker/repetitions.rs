//! Finds the shortest period with which the newest tokens repeat.
//!
//! For each period a counter holds the length of the current run of tokens that equal the token one
//! period before. A new token is compared with all possible predecessors, which are contiguous in
//! memory, by vector operations. No hash is needed, and the result is exact.

use crate::memory::{exhausted, with_room};
use crate::token::Token;

/// The longest period.
pub(crate) const MAX_PERIOD: usize = 1024;
/// The maximum of `min_tokens`, the minimum number of tokens in a repetition.
pub(crate) const MAX_LENGTH: usize = 65_536;

/// A repetition: the newest `length` tokens repeat with `period`, three times or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repetition {
    pub(super) period: usize,
    pub(super) length: usize,
    /// The token that would continue the repetition.
    pub(super) next: Token,
}

/// The newest tokens with their runs.
#[derive(Debug)]
pub(super) struct Repetitions {
    /// The newest tokens, in order: all, or at least as many as the longest period.
    tokens: Vec<Token>,
    /// The runs by descending period: the number of consecutive tokens, up to the newest, that
    /// equal the token one period before.
    runs: Vec<i32>,
    /// For each period, the minimum length of a run that is a repetition.
    enough: Vec<i32>,
}

crate::sampler::clone_by_field!(Repetitions {
    tokens,
    runs,
    enough
});

impl Repetitions {
    /// Returns a detector of periods of at most `max_period` tokens, with three copies or with as
    /// many as are needed for `min_tokens` tokens in all.
    pub(super) fn new(max_period: usize, min_tokens: usize) -> Self {
        let zeros = |n: usize| {
            let mut zeros = with_room(n).unwrap_or_else(exhausted);
            zeros.resize(n, 0);
            zeros
        };
        let mut enough = zeros(max_period);
        for (enough, period) in enough.iter_mut().zip((1..=max_period).rev()) {
            *enough = (2 * period).max(min_tokens.saturating_sub(period)) as i32;
        }
        Self {
            tokens: with_room(2 * max_period).unwrap_or_else(exhausted),
            runs: zeros(max_period),
            enough,
        }
    }

    /// Forgets all tokens.
    pub(super) fn clear(&mut self) {
        self.tokens.clear();
        self.runs.fill(0);
    }

    /// Accepts a token. Returns the repetition with the shortest period, if there is one.
    // In bounds: the longest period is the length of `runs`, which `known` does not exceed, and
    // there are at least as many tokens.
    pub(super) fn accept(&mut self, token: Token) -> Option<Repetition> {
        let max_period = self.runs.len();
        let known = self.tokens.len().min(max_period);
        let before = &self.tokens[self.tokens.len() - known..];
        let runs = &mut self.runs[max_period - known..];
        let enough = &self.enough[max_period - known..];
        let mut is_found = false;
        for ((run, &enough), &before) in runs.iter_mut().zip(enough).zip(before) {
            *run = if before == token {
                run.wrapping_add(1)
            } else {
                0
            };
            is_found |= *run >= enough;
        }
        let full = self.tokens.len() == 2 * max_period;
        if full {
            self.tokens.copy_within(max_period.., 0);
            self.tokens.truncate(max_period);
        }
        self.tokens.push(token);
        is_found.then(|| self.shortest()).flatten()
    }

    /// Passes the newest tokens to `put`, at most as many as the longest period, with their runs.
    // In bounds: there are at least as many tokens.
    pub(super) fn save(&self, put: &mut dyn FnMut(&[u8])) {
        let known = self.tokens.len().min(self.runs.len());
        put(&(self.runs.len() as u32).to_le_bytes());
        put(&(known as u32).to_le_bytes());
        let tokens = &self.tokens[self.tokens.len() - known..];
        let runs = &self.runs[self.runs.len() - known..];
        for number in tokens.iter().chain(runs) {
            put(&number.to_le_bytes());
        }
    }

    /// Restores a state that was saved with the same longest period, and returns the bytes after
    /// it. `None` if the longest period differs, there are too many tokens, or the bytes end early.
    // In bounds: no more tokens are known than the longest period, which is the number of runs.
    pub(super) fn load<'b>(&mut self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let (longest, rest) = bytes.split_first_chunk()?;
        let (known, rest) = rest.split_first_chunk()?;
        let [longest, known] = [longest, known].map(|n| u32::from_le_bytes(*n) as usize);
        (longest == self.runs.len() && known <= longest).then_some(())?;
        let (tokens, rest) = rest.split_at_checked(4 * known)?;
        let (runs, rest) = rest.split_at_checked(4 * known)?;
        self.clear();
        let number = |bytes: &[u8; 4]| i32::from_le_bytes(*bytes);
        self.tokens.extend(tokens.as_chunks().0.iter().map(number));
        let known = self.runs.len() - known;
        for (run, bytes) in self.runs[known..].iter_mut().zip(runs.as_chunks().0) {
            *run = number(bytes);
        }
        Some(rest)
    }

    /// Returns the current repetition with the shortest period.
    // In bounds: a run's period is at most the number of tokens.
    pub(super) fn shortest(&self) -> Option<Repetition> {
        let runs = self.runs.iter().zip(&self.enough);
        let place = runs.rev().position(|(run, enough)| run >= enough)?;
        let period = place + 1;
        let run = self.runs[self.runs.len() - period];
        Some(Repetition {
            period,
            length: run as usize + period,
            next: self.tokens[self.tokens.len() - period],
        })
    }
}
