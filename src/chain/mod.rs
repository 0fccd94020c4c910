//! Chains of any samplers, straight from the logits.
//!
//! A [`Chain`] chooses a token from the logits of a vocabulary: the token that the same samplers
//! would choose from the host's array of candidates. It fills that array only for a sampler that
//! has no faster method. No llama.cpp is needed. The functions for a host's own
//! `llama_sampler_chain` are in `ffi/chain/`.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests;

use std::fmt;

use crate::instruction_set;
use crate::kernels::logits::Logits;
use crate::memory;
use crate::pool::{Buffers, Left, Pool};
use crate::sampler::{Member, Sampler};
use crate::token::{Token, TokenData};
use crate::trace::{self, Off, Sequence, Watch};

/// The reason why a chain returned no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// There are no logits.
    EmptyVocabulary,
    /// There are more than `Token::MAX` logits.
    TooManyTokens(usize),
    /// No candidate is left, or the chosen one is banned: its logit is minus infinity or NaN.
    NoCandidate,
    /// Candidates are left, but none of them was selected: the chain has no selector at its end.
    NoSelector,
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyVocabulary => f.write_str("the vocabulary is empty"),
            Self::TooManyTokens(n) => {
                write!(f, "{n} logits; token numbers end at {}", Token::MAX)
            }
            Self::NoCandidate => f.write_str("the chain chose no candidate above minus infinity"),
            Self::NoSelector => f.write_str(
                "no sampler of the chain selected one of the candidates that are left; end it with \
                 one that does (dist, greedy, mirostat, adaptive-p)",
            ),
        }
    }
}

impl std::error::Error for ChainError {}

/// Returns the token that the pool has selected. It is an error if the selected candidate has a
/// logit of minus infinity or NaN. Selectors may choose such a candidate if no other is left, if an
/// array that is marked as sorted begins with one, or if an infinite logit makes all probabilities
/// NaN.
pub fn outcome(pool: &Pool<'_>) -> Result<Token, ChainError> {
    let token = selected(pool)?;
    match pool.is_banned() {
        true => Err(ChainError::NoCandidate),
        false => Ok(token),
    }
}

/// Returns the token that the pool has selected, whatever its logit: a host accepts even a banned
/// token.
pub fn selected(pool: &Pool<'_>) -> Result<Token, ChainError> {
    if pool.is_empty() {
        return Err(ChainError::NoCandidate);
    }
    pool.token().ok_or(ChainError::NoSelector)
}

/// Returns an error if the number of logits, `n`, is 0 or above `Token::MAX`.
pub fn check(n: usize) -> Result<(), ChainError> {
    match n {
        0 => Err(ChainError::EmptyVocabulary),
        n if n > Token::MAX as usize => Err(ChainError::TooManyTokens(n)),
        _ => Ok(()),
    }
}

/// A list of samplers that are applied one after another.
///
/// ```
/// use llama_sieve::Chain;
/// use llama_sieve::samplers::{Dist, MinP, Temp, TopK, TopP};
///
/// let mut chain = Chain::new()
///     .with(TopK::new(40))
///     .with(TopP::new(0.95, 1))
///     .with(MinP::new(0.05, 1))
///     .with(Temp::new(0.8))
///     .with(Some(Dist::new(42)));
/// let logits = [1.0f32, 5.0, 2.0];
/// let token = chain.sample(&logits[..])?;
/// chain.accept(token);
/// assert!((0..3).contains(&token));
/// # Ok::<(), llama_sieve::chain::ChainError>(())
/// ```
#[derive(Default)]
pub struct Chain {
    members: Vec<Box<dyn Member>>,
    buffers: Buffers,
    /// The state in which the last call left the pool.
    left: Option<Left>,
    sequence: Sequence,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.members.len();
        f.debug_struct("Chain").field("members", &n).finish()
    }
}

impl Clone for Chain {
    /// Returns a chain with copies of the members and their states, without buffers.
    fn clone(&self) -> Self {
        Self {
            members: self.members.iter().map(|m| m.cloned()).collect(),
            buffers: Buffers::default(),
            left: None,
            sequence: Sequence::default(),
        }
    }
}

impl Chain {
    /// Returns a chain without members.
    pub fn new() -> Self {
        instruction_set::choose();
        trace::from_environment();
        Self::default()
    }

    /// Returns the chain with `sampler`, if there is one, added at the end. The constructors of
    /// samplers return `None` for parameters that disable the sampler.
    #[must_use]
    pub fn with(mut self, sampler: Option<impl Sampler>) -> Self {
        if let Some(sampler) = sampler {
            self.push(sampler);
        }
        self
    }

    /// Adds a member at the end.
    pub fn push(&mut self, sampler: impl Sampler) {
        self.members.push(Box::new(sampler));
    }

    /// Returns the number of members.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// True if there are no members.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the token that the members choose, without accepting it. The logits are `f32`, `f16`
    /// or `bf16`, indexed by token, and only read.
    pub fn sample<'a>(&mut self, logits: impl Into<Logits<'a>>) -> Result<Token, ChainError> {
        let logits = logits.into();
        self.left = None;
        check(logits.len())?;
        let room = self.buffers.try_reserve(logits.len());
        room.unwrap_or_else(memory::exhausted);
        let Some(mut observer) = trace::begin(logits) else {
            return self.run(logits, &mut Off);
        };
        let token = self.run(logits, &mut *observer);
        observer.deliver(self.sequence.number(), &trace::no_pieces, None);
        token
    }

    /// Runs the members, and reports each to `watch`.
    fn run(&mut self, logits: Logits<'_>, watch: &mut impl Watch) -> Result<Token, ChainError> {
        let mut pool = Pool::new(logits, &mut self.buffers).banning_nan();
        for member in &mut self.members {
            trace::watched(&mut **member, &mut pool, watch);
        }
        let token = outcome(&pool);
        if let Ok(token) = token {
            watch.chosen(token, logits, &mut pool);
        }
        self.left = Some(pool.leave());
        token
    }

    /// Returns the candidates that the members left at the last [`sample`](Self::sample), given the
    /// same logits. `None` before the first call, after a call with an invalid number of logits, or
    /// if the number of logits has changed.
    pub fn candidates<'a>(&mut self, logits: impl Into<Logits<'a>>) -> Option<&[TokenData]> {
        let logits = logits.into();
        let mut pool = Pool::resume(logits, &mut self.buffers, self.left?)?;
        pool.array();
        let left = pool.leave();
        self.left = Some(left);
        Some(self.buffers.array_of(left))
    }

    /// Notifies every member of a token that has become part of the text.
    pub fn accept(&mut self, token: Token) {
        for member in &mut self.members {
            member.accept(token);
        }
    }

    /// Restores the initial state of every member.
    pub fn reset(&mut self) {
        for member in &mut self.members {
            member.reset();
        }
    }
}
