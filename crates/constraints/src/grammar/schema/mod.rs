//! JSON Schema: a schema becomes the elements of a grammar.
//!
//! - [`reader`][]: the text, with [`decimal`] numbers of any size; [`references`][]: what refers to
//!   what.
//! - `keywords`: what each keyword allows; [`shape`][]: the values that all of them allow, by
//!   types, with intersections and differences.
//! - [`ecma`][], [`formats`][], `numbers`: languages as an [`automaton`].
//! - [`emit`][]: values become rules, by way of [`output`]; [`productive`][]: without those that no
//!   text follows.
//! - `llama_cpp`: another reading of the same text, that of llama.cpp's own converter.
//!
//! What is not enforced is refused, by name and place. See `docs/json-schema.md`.

pub mod automaton;
pub mod decimal;
pub mod ecma;
pub mod emit;
pub mod formats;
mod keywords;
pub mod llama_cpp;
mod numbers;
pub mod output;
pub mod productive;
pub mod reader;
pub mod references;
pub mod refusal;
pub mod shape;
#[cfg(all(test, not(miri)))]
mod tests;
pub mod work;

pub use refusal::{Options, Refusal};

use std::rc::Rc;

use crate::grammar::elements::{Rules, Written};
use crate::grammar::gbnf::gbnf;
use crate::grammar::limits::MAX_TEXT;
use crate::grammar::schema::emit::Emitter;
use crate::grammar::schema::reader::{Repeated, read};
use crate::grammar::schema::references::References;
use crate::grammar::schema::refusal::Answer;
use crate::grammar::schema::shape::Compiler;
use crate::grammar::schema::work::Work;

/// The rules of a schema's texts as they are written, and what was left out, where the caller wants
/// it so.
pub fn written(schema: &[u8], options: Options) -> Answer<(Written, Vec<Refusal>)> {
    written_within(schema, options, Rc::default())
}

/// The rules of a schema's texts as they are written, for which some work is left, and what was
/// left out.
pub fn written_within(
    schema: &[u8],
    options: Options,
    work: Rc<Work>,
) -> Answer<(Written, Vec<Refusal>)> {
    if let Some(what) = options.conflict() {
        return Err(Refusal::whole(what));
    }
    if options.llama_cpp {
        // llama.cpp passes over a byte order mark.
        let text = schema.strip_prefix("\u{feff}".as_bytes()).unwrap_or(schema);
        let document = read(text, Repeated::LastCounts)?;
        return llama_cpp::rules_of(&document, work);
    }
    let document = read(schema, Repeated::Refused)?;
    let references = References::of(&document)?;
    Emitter::rules_of(Compiler::new(document, references, options, work))
}

/// The rules of a schema's texts, and what was left out. Texts are UTF-8, but where the language is
/// llama.cpp's.
pub fn compile(schema: &[u8], options: Options) -> Answer<(Rules, Vec<Refusal>)> {
    let (written, left_out) = written(schema, options)?;
    let mut rules = Rules::link(written)
        .map_err(|_| Refusal::whole("its grammar has too many sequences; make it smaller"))?;
    rules.is_strict = !options.llama_cpp;
    Ok((rules, left_out))
}

/// A grammar in GBNF, with the rule `root`, of a schema's texts, and what was left out.
pub fn to_gbnf(schema: &[u8], options: Options) -> Answer<(String, Vec<Refusal>)> {
    let (written, left_out) = written(schema, options)?;
    let text = gbnf(&written).ok_or_else(|| {
        Refusal::whole(format!(
            "its grammar has more than {MAX_TEXT} bytes as text (LLAMA_SIEVE_GRAMMAR_MAX_TEXT); \
             make it smaller, or use llama_sieve_init_json_schema"
        ))
    })?;
    Ok((text, left_out))
}
