//! Constrained decoding by allowed sequences: the model must produce exactly one of a set of
//! values, each of which is a sequence of tokens.
//!
//! The trie and the cursor, a position in it, are defined in [`llama_sieve_constraints::trie`],
//! whose modules are re-exported. This module adds:
//!
//! - `children`: finds those candidates that may follow.
//! - [`cache`]: the process-wide cache of tries, by a payload's bytes or the SHA-256 of its
//!   canonical form.
//! - [`sampler`]: the constraint as a sampler, and the slot through which any thread can set it.
//!
//! Per token, `accept` takes a binary search among the children of one node. `apply` takes one
//! write per candidate or, in compact mode and as long as the array has been neither reordered nor
//! cut, one step per child. Both do nothing while no span is active.
#![forbid(unsafe_code)]

pub mod cache;
mod children;
pub mod sampler;

pub use llama_sieve_constraints::trie::*;
pub use sampler::{Mode, Slot, TrieSampler};
