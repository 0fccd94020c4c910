//! Finds the tokens that may follow a text, given a grammar, a set of sequences of tokens, or
//! banned texts. The input is the texts of a vocabulary as bytes. The output is masks or lists of
//! tokens. No model, host or sampler is needed.
//!
//! ```
//! use std::sync::Arc;
//!
//! use llama_sieve_constraints::grammar::compiled::Compiled;
//! use llama_sieve_constraints::grammar::engine::Engine;
//! use llama_sieve_constraints::grammar::parser::{Repetitions, parse};
//! use llama_sieve_constraints::grammar::tracker::Tracker;
//! use llama_sieve_constraints::grammar::{TokenTexts, VocabularyTree};
//!
//! struct Texts([&'static str; 4]);
//!
//! impl TokenTexts for Texts {
//!     fn n_tokens(&self) -> usize {
//!         self.0.len()
//!     }
//!
//!     fn is_eog(&self, token: i32) -> bool {
//!         token == 0
//!     }
//!
//!     fn written_out(&self, token: i32, piece: &mut Vec<u8>) {
//!         piece.clear();
//!         piece.extend_from_slice(self.0[token as usize].as_bytes());
//!     }
//! }
//!
//! // Once per vocabulary, once per grammar, once per text.
//! let tree = Arc::new(VocabularyTree::new(&Texts(["<end>", "yes", "no", "y"])));
//! let grammar = br#"root ::= "yes" | "no""#;
//! let rules = parse(grammar, b"root", Repetitions::AsLlamaCpp, |_| None).expect("a grammar");
//! let engine = Arc::new(Engine::new(Compiled::new(rules, tree)));
//! let mut text = Tracker::new(engine).expect("little work").expect("a text can follow");
//!
//! let may_begin = text.mask().expect("little work");
//! assert_eq!([0, 1, 2, 3].map(|token| may_begin.allows(token)), [false, true, true, true]);
//! assert_eq!(text.accept([(3, &b"y"[..])].into_iter()), Ok(None));
//! assert!(!text.mask().expect("little work").allows(2));
//! ```
//!
//! - [`grammar`]: grammars, given in GBNF, which is llama.cpp's notation, as regular expressions or
//!   as JSON Schemas;
//! - [`trie`]: sets of sequences of tokens;
//! - [`bans`]: texts that must not appear;
//! - [`quoted`]: escapes a caller's texts in messages;
//! - [`token`]: the candidates that a mask is applied to.
//!
//! Failures are returned as errors. The one exception is running out of memory, which unwinds
//! ([`exhausted`](llama_sieve_kernels::memory::exhausted)).

// The library runs in other people's processes, so it must not panic. Tests may. Every `pub` item
// must be reachable from outside the crate, except in tests.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(unreachable_pub))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod bans;
pub mod grammar;
pub mod quoted;
pub mod trie;

pub use llama_sieve_kernels::token;
use llama_sieve_kernels::{kernels, memory};
