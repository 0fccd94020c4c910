//! JSON Schema: a schema becomes the elements of a grammar.
//!
//! - [`reader`][]: the text, with [`decimal`] numbers of any size; [`references`][]: what refers to
//!   what.
//! - `keywords`: what each keyword allows; [`shape`][]: the values that all of them allow, by
//!   types, with intersections and differences.
//! - [`ecma`][], [`formats`][], `numbers`: languages as an [`automaton`].
//! - [`emit`][]: values become rules, by way of [`output`]; [`productive`][]: without those that no
//!   text follows.
//!
//! What is not enforced is refused, by name and place. See `docs/json-schema.md`.

pub mod automaton;
pub mod decimal;
pub mod ecma;
pub mod emit;
pub mod formats;
mod keywords;
mod numbers;
pub mod output;
pub mod productive;
pub mod reader;
pub mod references;
pub mod refusal;
pub mod shape;
#[cfg(all(test, not(miri)))]
mod tests;

pub use refusal::{Options, Refusal};

use crate::grammar::elements::Rules;
use crate::grammar::schema::emit::Emitter;
use crate::grammar::schema::reader::read;
use crate::grammar::schema::references::References;
use crate::grammar::schema::refusal::Answer;
use crate::grammar::schema::shape::Compiler;

/// The rules of a schema's texts, and what was left out, where the caller wants it so.
pub fn compile(schema: &[u8], options: Options) -> Answer<(Rules, Vec<Refusal>)> {
    let document = read(schema)?;
    let references = References::of(&document)?;
    Emitter::rules_of(Compiler::new(document, references, options))
}
