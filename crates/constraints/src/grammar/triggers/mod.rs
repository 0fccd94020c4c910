//! The triggers of a lazy grammar: patterns in the notation of `std::regex`.
//!
//! - [`byte_set`][], [`scanner`][], [`syntax`][]: a pattern is read.
//! - [`program`][]: all patterns become instructions.
//! - [`budget`][]: how much work one call may take.
//! - [`automaton`][]: where none of them can match yet, in one step per byte of a text.
//! - [`search`][]: what matches, where the grammar begins, as `std::regex` finds it.
//! - [`set`][]: the patterns of a grammar, kept for the next one that has them.
//! - [`waiting`][]: the text before a trigger.
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
