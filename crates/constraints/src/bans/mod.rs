//! Finds the tokens that would complete a banned text: one that must not appear, whichever tokens
//! spell it.
//!
//! - [`fold`]: case folding;
//! - [`order`]: the texts of a vocabulary in the order of their bytes, once per vocabulary;
//! - [`automaton`]: the banned texts;
//! - [`place`]: the position of a text in that automaton;
//! - [`cursor`]: the parts of banned texts that the text ends with;
//! - [`bias`]: biases in place of bans, which grow with the matched part;
//! - [`patterns`]: regular expressions in place of texts;
//! - [`search`]: texts or patterns, with the position in a text;
//! - `kept`: lists of tokens that are found once for each state.
//!
//! A token completes a banned text in one of two ways. Either the banned text lies within the
//! token: such tokens are found once. Or the text so far ends with the beginning of the banned
//! text, and the token begins with the rest. Tokens with a common beginning are neighbours in the
//! order of their bytes; so for each rest of each banned text they are a range of ranks, which is
//! found once, too. The end of the text so far is a state of an Aho-Corasick automaton (Aho and
//! Corasick 1975). The tokens to ban are in the ranges of that state and of its fallbacks. Most
//! states have none.

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

/// The most banned texts.
pub const MAX_TEXTS: usize = 16_384;
/// The most bytes of one banned text.
pub const MAX_TEXT_BYTES: usize = 1024;
/// The most bytes of all banned texts together.
pub const MAX_BYTES: usize = 262_144;

/// The most states of the automaton of banned patterns.
pub const MAX_STATES: usize = 16_384;

/// Banned texts for a vocabulary.
#[derive(Debug)]
pub struct Bans {
    order: Arc<Order>,
    automaton: Automaton,
    /// The tokens that contain a whole text, ascending.
    whole: Vec<Token>,
    /// The bitmap of all other tokens of the vocabulary.
    others: Vec<u64>,
}

impl Bans {
    /// Returns the bans of `texts`, none of which is empty, for the vocabulary of `order`. If that
    /// is folded, the texts must be UTF-8, and are folded, too.
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

    /// Returns the vocabulary.
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

/// Reads a length and as many bytes. Returns them and the rest.
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
