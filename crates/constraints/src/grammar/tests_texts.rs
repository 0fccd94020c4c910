//! A vocabulary and grammar texts for the tests.

use std::sync::Arc;

use crate::grammar::{TokenTexts, VocabularyTree};
use crate::token::Token;

/// A vocabulary with these texts. The first token ends a generation.
struct Texts(Vec<Vec<u8>>);

impl TokenTexts for Texts {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 0
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        piece.extend_from_slice(&self.0[token as usize]);
    }
}

pub fn tree(texts: impl IntoIterator<Item = String>) -> Arc<VocabularyTree> {
    tree_of_bytes(texts.into_iter().map(String::into_bytes))
}

pub fn tree_of_bytes(texts: impl IntoIterator<Item = Vec<u8>>) -> Arc<VocabularyTree> {
    let texts = [Vec::new()].into_iter().chain(texts).collect();
    Arc::new(VocabularyTree::new(&Texts(texts)))
}

/// Returns `each(0)` to `each(n - 1)` as alternatives in GBNF.
pub fn alternatives(n: usize, each: impl Fn(usize) -> String) -> String {
    let all: Vec<String> = (0..n).map(each).collect();
    all.join(" | ")
}
