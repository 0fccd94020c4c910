//! Random vocabularies, for the tests of the searches.

use llama_sieve_kernels::lcg::Lcg;

use super::order::ShownTexts;
use crate::token::Token;

pub(super) struct Random(pub(super) Lcg);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.0.bits() >> 8) as usize % n
    }
}

/// The texts of tokens, by number.
pub(super) struct Vocabulary(pub(super) Vec<Vec<u8>>);

impl ShownTexts for Vocabulary {
    fn n_tokens(&self) -> usize {
        self.0.len()
    }

    fn shown(&self, token: Token, text: &mut Vec<u8>) {
        text.extend_from_slice(&self.0[token as usize]);
    }
}
