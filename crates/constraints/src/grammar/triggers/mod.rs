//! The triggers of a lazy grammar: patterns in the notation of `std::regex`.
//!
//! - [`byte_set`][], [`scanner`][], [`syntax`][]: read a pattern.
//! - [`program`][]: compiles all patterns to instructions.
//! - [`budget`][]: limits the work of one call.
//! - [`automaton`][]: excludes patterns that cannot match yet, in one step per byte of a text.
//! - [`search`][]: finds a match as `std::regex` does, and the position where the grammar begins.
//! - [`set`][]: the patterns of a grammar, cached for the next grammar with the same patterns.
//! - [`waiting`][]: keeps the text before a trigger.
//!
//! Texts and patterns are bytes, as they are for `std::regex<char>` in the C locale.

pub mod automaton;
pub mod budget;
pub mod byte_set;
pub mod program;
pub mod scanner;
pub mod search;
pub mod set;
pub mod syntax;
#[cfg(test)]
mod tests;
pub mod waiting;

pub use budget::{Budget, Endless};
pub use set::Triggers;
pub use waiting::Waiting;
