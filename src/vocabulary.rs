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

    /// Writes the bytes of `token` to `piece`; nothing for control tokens.
    fn piece(&self, token: Token, piece: &mut Vec<u8>);

    /// Writes the bytes of a text that consists of `token` alone to `text`, with control tokens
    /// spelled out.
    fn detokenize(&self, token: Token, text: &mut Vec<u8>);

    /// Returns the tokens of `text`. No token is added, and no control token is recognised.
    fn tokenize(&self, text: &[u8]) -> Vec<Token>;
}
