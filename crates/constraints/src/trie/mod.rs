//! Allowed sequences: a set of values, each a sequence of tokens, of which a model must produce
//! exactly one.
//!
//! - [`descriptor`]: the JSON payload that names the values, with errors that say where.
//! - [`arena`]: the immutable trie, three flat arrays.
//! - [`cursor`]: a position in it: the state machine of a constrained span.

pub mod arena;
pub mod cursor;
pub mod descriptor;

pub use arena::Trie;
pub use cursor::Cursor;
pub use descriptor::Payload;
