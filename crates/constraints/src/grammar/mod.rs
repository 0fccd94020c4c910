//! Finds the tokens that may follow a text, given a grammar. A grammar is given in GBNF, which is
//! llama.cpp's notation, or as a regular expression, a list of texts, a description of tags, or a
//! JSON Schema.
//!
//! - [`parser`][]: turns GBNF into rules, which consist of [`elements`]. [`pattern`][] does so for
//!   a regular expression, [`choice`][] for a list of texts, and [`tags`][] for spans in free text,
//!   all with the [`builder`].
//! - [`schema`][]: turns a JSON Schema into rules.
//! - [`vocabulary_tree`][]: the texts of a vocabulary, as trees of [`nodes`]; [`utf8`][]: decodes
//!   their characters.
//! - [`compiled`][]: rules and vocabulary together; [`states`][]: sets of stacks, numbered;
//!   [`mask`][]: the tokens that a state allows.
//! - [`tracker`][]: tracks the position of a text in a grammar; [`tables`]: the growing tables in
//!   which it looks up states.
//! - [`engine`][]: the data that all texts of a grammar share, mainly its [`masks`].
//! - [`triggers`][]: the triggers of a lazy grammar.
//! - [`limits`][]: limits on the size of a grammar; [`host_work`][]: its cost in llama.cpp;
//!   [`hash`][]: hashes of numbers; [`lists`][]: many lists of numbers.
//! - [`gbnf`][]: writes rules as GBNF.
//!
//! For a grammar in GBNF, the allowed tokens are exactly those that llama.cpp allows. The algorithm
//! is different. See `docs/grammar.md`.

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
pub mod tables;
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
