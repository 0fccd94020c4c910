//! Grammars in GBNF, JSON Schemas, regular expressions, choices and descriptions of tags as a
//! sampler.
//!
//! The engine is that of [`llama_sieve_constraints::grammar`], whose modules are re-exported. This
//! module adds:
//!
//! - [`cache`]: the grammars of the process;
//! - [`sampler`]: the constraint.

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
