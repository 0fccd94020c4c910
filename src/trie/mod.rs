//! Constrained decoding by allowed sequences: a set of values, each a sequence of tokens, of which
//! the model must produce exactly one.
//!
//! - [`descriptor`]: the JSON payload that names the values, with errors that say where.
//! - [`arena`]: the immutable trie, three flat arrays.
//! - [`cursor`]: a position in it: the state machine of a constrained span.
//! - `children`: finding what may follow among the candidates.
//! - [`cache`]: the process-wide cache of tries, by the SHA-256 of the payload.
//! - [`sampler`]: the constraint as a sampler, and the slot through which it is set, also from
//!   other threads.
//!
//! Cost per token: `accept` a binary search among the children of one node; `apply` one write per
//! candidate, or, in compact mode while nobody has reordered the array, one step per child. Nothing
//! while no span is active.
#![forbid(unsafe_code)]

pub mod arena;
pub mod cache;
mod children;
pub mod cursor;
pub mod descriptor;
pub mod sampler;

pub use arena::Trie;
pub use cursor::Cursor;
pub use descriptor::Payload;
pub use sampler::{Mode, Slot, TrieSampler};
