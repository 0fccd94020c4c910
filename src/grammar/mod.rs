//! A sampler that constrains the text by a grammar in GBNF, a JSON Schema, a regular expression, a
//! choice or a description of tags.
//!
//! The engine is in [`llama_sieve_constraints::grammar`], whose modules are re-exported. This
//! module adds:
//!
//! - [`cache`]: the process-wide cache of compiled grammars;
//! - [`sampler`]: the constraint as a sampler.

pub mod cache;
pub mod sampler;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tests_choice;
#[cfg(all(test, not(miri)))]
mod tests_tags;
#[cfg(all(test, not(miri)))]
#[path = "../../crates/constraints/src/grammar/tests_texts.rs"]
mod tests_texts;

pub use llama_sieve_constraints::grammar::*;
pub use sampler::{Dead, Grammar, Refusal, Refused, TooFar};
