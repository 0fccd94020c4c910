//! The vocabulary, as samplers need it; `ffi` implements it by calling the host.

use std::fmt::Debug;

use crate::token::Token;

/// A vocabulary with its tokenizer.
pub trait Vocabulary: Debug + Send + Sync {
    /// Returns the number of tokens; their ids begin at 0.
    fn n_tokens(&self) -> usize;

    /// True if `token` ends a generation.
    fn is_eog(&self, token: Token) -> bool;

    /// Returns the token that ends a turn, or otherwise the one that ends a text; `None` if there
    /// is neither.
    fn end_token(&self) -> Option<Token>;

    /// Replaces the contents of `piece` with the bytes of `token`; with nothing for control tokens.
    fn piece(&self, token: Token, piece: &mut Vec<u8>);

    /// Replaces the contents of `text` with the bytes of a text that consists of `token` alone.
    /// Control tokens are spelled out.
    fn detokenize(&self, token: Token, text: &mut Vec<u8>);

    /// Returns the tokens of `text`. No special token is added, and the text of a control token is
    /// not recognised as that token.
    fn tokenize(&self, text: &[u8]) -> Vec<Token>;
}
