//! Texts that must not appear, in whatever tokens: which token would complete one.
//!
//! - [`fold`]: letters of either case as one;
//! - [`order`]: the texts of a vocabulary in the order of their bytes, once per vocabulary;
//! - [`automaton`]: the banned texts;
//! - [`cursor`]: how much of a banned text stands at the end of what was written.
//!
//! A token completes a banned text in one of two ways. The text lies within the token: such tokens
//! are known once and for all. Or a part of it stands already, and the token begins with the rest:
//! tokens that begin alike stand side by side in the order of their bytes, so that for each part of
//! each text they are a range of ranks, found once. What ends a text is a state of an Aho-Corasick
//! automaton (Aho and Corasick 1975), and its ranges are those of the state and of what it falls
//! back to. Most states have none.

pub mod automaton;
pub mod cursor;
pub mod fold;
pub mod order;

use std::sync::Arc;

use automaton::Automaton;
use order::Order;

use crate::memory::{exhausted, with_room};
use crate::token::Token;

/// The most texts.
pub const MAX_TEXTS: usize = 16_384;
/// The most bytes of one text.
pub const MAX_TEXT_BYTES: usize = 1024;
/// The most bytes of all texts together.
pub const MAX_BYTES: usize = 262_144;

/// Banned texts for a vocabulary.
#[derive(Debug)]
pub struct Bans {
    order: Arc<Order>,
    automaton: Automaton,
    /// The tokens in which a whole text lies, ascending.
    whole: Vec<Token>,
    /// The bitmap of all other tokens of the vocabulary.
    others: Vec<u64>,
}

impl Bans {
    /// Bans `texts`, of which none is empty, in tokens of this order. If that is folded they are
    /// folded, too: they are UTF-8 then.
    pub fn new(texts: &[&[u8]], order: &Arc<Order>) -> Self {
        let automaton = Automaton::new(texts, order);
        let n = order.n_tokens();
        let mut others = with_room(n.div_ceil(64)).unwrap_or_else(exhausted);
        others.resize(n.div_ceil(64), u64::MAX);
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

    /// The vocabulary.
    pub fn order(&self) -> &Order {
        &self.order
    }

    /// The automaton of the texts.
    pub fn automaton(&self) -> &Automaton {
        &self.automaton
    }

    /// The tokens in which a whole text lies, ascending: they are banned anywhere.
    pub fn whole(&self) -> &[Token] {
        &self.whole
    }

    /// The bitmap of the tokens in which none lies.
    pub fn others(&self) -> &[u64] {
        &self.others
    }
}

/// Takes a token out of a bitmap.
pub fn clear(words: &mut [u64], token: Token) {
    if let Some(word) = words.get_mut(token as u32 as usize / 64) {
        *word &= !(1 << (token as u32 % 64));
    }
}
