//! Finds the tokens that would complete a banned text. A banned text must not appear, whichever
//! tokens spell it.
//!
//! - [`fold`]: case folding;
//! - [`order`]: the texts of a vocabulary in the order of their bytes, once per vocabulary;
//! - [`automaton`]: the Aho-Corasick automaton of the banned texts;
//! - [`place`]: the position of a growing text in that automaton;
//! - [`cursor`]: the prefixes of banned texts that a growing text ends with;
//! - [`bias`]: biases instead of bans, which grow with the matched part;
//! - [`patterns`]: banned regular expressions;
//! - [`search`]: banned texts or patterns, with the state of a growing text;
//! - `kept`: memoizes the list of tokens of each state.
//!
//! A token completes a banned text in one of two ways. The token may contain the whole banned text.
//! These tokens are found when the bans are constructed. Or the text so far ends with a prefix of
//! the banned text, and the token begins with the remaining suffix. Tokens with a common prefix are
//! contiguous in byte order, so the tokens that begin with a given suffix are a range of ranks. The
//! ranges of all suffixes are also found when the bans are constructed. A state of an Aho-Corasick
//! automaton (Aho and Corasick 1975) represents the end of the text so far. The tokens to ban are
//! in the ranges of that state and of the states on its failure path. Most states have no ranges.

pub mod automaton;
pub mod bias;
pub mod cursor;
pub mod fold;
mod kept;
pub mod order;
pub mod patterns;
pub mod place;
pub mod search;

use std::sync::Arc;

use automaton::Automaton;
use order::Order;

use crate::memory::{exhausted, with_room};
use crate::token::Token;

/// The maximum number of banned texts.
pub const MAX_TEXTS: usize = 16_384;
/// The maximum length of a banned text, in bytes.
pub const MAX_TEXT_BYTES: usize = 1024;
/// The maximum length of all banned texts together, in bytes.
pub const MAX_BYTES: usize = 262_144;

/// The maximum number of states of the automaton of banned patterns.
pub const MAX_STATES: usize = 16_384;

/// Banned texts for a vocabulary.
#[derive(Debug)]
pub struct Bans {
    order: Arc<Order>,
    automaton: Automaton,
    /// The tokens that contain a whole text, ascending.
    whole: Vec<Token>,
    /// The bitmap of the tokens that contain no whole text.
    others: Vec<u64>,
}

impl Bans {
    /// Returns the bans of `texts`, none of which is empty, for the vocabulary of `order`. If
    /// `order` is folded, the texts must be UTF-8, and are folded, too.
    pub fn new(texts: &[&[u8]], order: &Arc<Order>) -> Self {
        let automaton = Automaton::new(texts, order);
        let n = order.n_tokens();
        let mut others = every(n);
        let mut whole = Vec::new();
        for token in 0..n as Token {
            if automaton.has_match(order.key(token)) {
                crate::memory::push(&mut whole, token);
                clear(&mut others, token);
            }
        }
        Self {
            order: Arc::clone(order),
            automaton,
            whole,
            others,
        }
    }

    /// Returns the order of the vocabulary's texts.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// Returns the automaton of the texts.
    pub fn automaton(&self) -> &Automaton {
        &self.automaton
    }

    /// Returns the tokens that contain a whole text, ascending: they are always banned.
    pub fn whole(&self) -> &[Token] {
        &self.whole
    }

    /// Returns the bitmap of the tokens that contain no whole text.
    pub fn others(&self) -> &[u64] {
        &self.others
    }
}

/// Returns a bitmap in which the bits of all `n` tokens are set.
fn every(n: usize) -> Vec<u64> {
    let mut words = with_room(n.div_ceil(64)).unwrap_or_else(exhausted);
    words.resize(n.div_ceil(64), u64::MAX);
    words
}

/// Splits off a little-endian `u32` length and that many bytes. Returns these bytes and the rest;
/// `None` if `bytes` is too short.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*n) as usize)
}

/// Removes a token from a bitmap.
pub fn clear(words: &mut [u64], token: Token) {
    if let Some(word) = words.get_mut(token as u32 as usize / 64) {
        *word &= !(1 << (token as u32 % 64));
    }
}

#[cfg(test)]
mod tests;
