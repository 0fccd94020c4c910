//! Constrains a model to produce exactly one of a set of values, each of which is a sequence of
//! tokens.
//!
//! - [`descriptor`]: the JSON payload that lists the values. Its errors name the invalid element.
//! - [`arena`]: the immutable trie, in three flat arrays.
//! - [`cursor`]: the position of a constrained span in the trie.

pub mod arena;
pub mod cursor;
pub mod descriptor;

pub use arena::Trie;
pub use cursor::Cursor;
pub use descriptor::Payload;
