//! Grammars in GBNF, llama.cpp's notation, and regular expressions: finds the tokens that may
//! follow a text.
//!
//! - [`parser`][]: a text becomes rules of [`elements`]; [`pattern`][]: a regular expression, and
//!   [`choice`][]: one of several texts, [`tags`][]: spans in free text, by the [`builder`].
//! - [`schema`][]: a JSON Schema becomes rules, too.
//! - [`vocabulary_tree`][]: the texts of a vocabulary, once per vocabulary, in [`nodes`];
//!   [`utf8`][]: their characters.
//! - [`compiled`][]: rules and vocabulary together; [`states`][]: sets of stacks, numbered;
//!   [`mask`][]: the tokens that a state allows.
//! - [`tracker`][]: the position of a text; [`bench`](mod@bench): the tables for it.
//! - [`engine`][]: the data that all texts of a grammar share, mainly its [`masks`].
//! - [`triggers`][]: the triggers of a lazy grammar.
//! - [`limits`][]: the limits of a grammar, [`host_work`][]: its cost in llama.cpp; [`hash`][]:
//!   hashes of numbers; [`lists`][]: many lists of them.
//!
//! The allowed tokens are exactly llama.cpp's; the algorithm is not. See `docs/grammar.md`.

pub mod bench;
pub mod builder;
pub mod choice;
pub mod compiled;
pub mod elements;
pub mod engine;
pub mod gbnf;
pub mod hash;
pub mod host_work;
pub mod limits;
pub mod lists;
pub mod mask;
pub mod masks;
pub mod nodes;
pub mod parser;
pub mod pattern;
pub mod schema;
pub mod states;
pub mod tags;
#[cfg(all(test, not(miri)))]
mod tests;
#[cfg(all(test, not(miri)))]
mod tests_texts;
pub mod tracker;
pub mod triggers;
pub mod utf8;
pub mod vocabulary_tree;

pub use parser::ParseError;
pub use vocabulary_tree::{TokenTexts, VocabularyTree};
