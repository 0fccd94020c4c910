//! Constrained decoding by allowed sequences: a set of values, each a sequence of tokens, of which
//! the model must produce exactly one.
//!
//! The trie and a position in it are those of [`llama_sieve_constraints::trie`], whose modules are
//! re-exported. This module adds:
//!
//! - `children`: finding the tokens that may follow among the candidates.
//! - [`cache`]: the process-wide cache of tries, by a payload's bytes or the SHA-256 of its
//!   canonical form.
//! - [`sampler`]: the constraint as a sampler, and the slot through which any thread can set it.
//!
//! Cost per token: `accept` is a binary search among the children of one node. `apply` is one write
//! per candidate or, in compact mode while the array has not been reordered, one step per child.
//! Both cost nothing while no span is active.
#![forbid(unsafe_code)]

pub mod cache;
mod children;
pub mod sampler;

pub use llama_sieve_constraints::trie::*;
pub use sampler::{Mode, Slot, TrieSampler};
