//! Compiles JSON Schemas to the rules of a grammar.
//!
//! - [`reader`][]: parses the text, with [`decimal`] numbers of any size; [`references`][]:
//!   resolves references.
//! - `keywords`: the values that each keyword allows; [`shape`][]: sets of values by types, with
//!   intersections and differences.
//! - [`ecma`][], [`formats`][], `numbers`: each build an [`automaton`] of texts.
//! - [`emit`][]: turns values into rules, through [`output`]; [`names`][]: the rules of property
//!   names that an object does not list; [`productive`][]: removes rules that match no text.
//! - `llama_cpp`: compiles a schema as llama.cpp's own converter does.
//!
//! A keyword that cannot be enforced is refused, by name and location, unless the options permit it
//! to be left out. See `docs/json-schema.md`.

pub mod automaton;
pub mod decimal;
pub mod ecma;
pub mod emit;
pub mod formats;
mod keywords;
pub mod llama_cpp;
pub mod names;
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

/// Returns the rules of a schema, not yet linked, and the keywords that were left out.
pub fn written(schema: &[u8], options: Options) -> Answer<(Written, Vec<Refusal>)> {
    written_within(schema, options, Rc::default())
}

/// Returns the rules of a schema, not yet linked, and the keywords that were left out. Its steps
/// are subtracted from `work`.
pub fn written_within(
    schema: &[u8],
    options: Options,
    work: Rc<Work>,
) -> Answer<(Written, Vec<Refusal>)> {
    written_as(schema, options, work, false)
}

/// Returns the rules of a schema and the keywords that were left out. If `as_text` is set, the
/// rules have no unordered lists, which GBNF cannot express.
fn written_as(
    schema: &[u8],
    options: Options,
    work: Rc<Work>,
    as_text: bool,
) -> Answer<(Written, Vec<Refusal>)> {
    if let Some(what) = options.conflict() {
        return Err(Refusal::whole(what));
    }
    if options.llama_cpp {
        // llama.cpp skips a byte order mark.
        let text = schema.strip_prefix("\u{feff}".as_bytes()).unwrap_or(schema);
        let document = read(text, Repeated::LastCounts)?;
        return llama_cpp::rules_of(&document, work);
    }
    let document = read(schema, Repeated::Refused)?;
    let references = References::of(&document)?;
    let compiler = Compiler::new(document, references, options, work);
    Emitter::rules_of(compiler, as_text)
}

/// Returns the rules of a schema, and the keywords that were left out. The rules accept only UTF-8,
/// unless `options` asks for llama.cpp's own conversion.
pub fn compile(schema: &[u8], options: Options) -> Answer<(Rules, Vec<Refusal>)> {
    let (written, left_out) = written(schema, options)?;
    let mut rules = Rules::link(written)
        .map_err(|_| Refusal::whole("its grammar has too many sequences; make it smaller"))?;
    rules.is_strict = !options.llama_cpp;
    Ok((rules, left_out))
}

/// Returns a schema as a grammar in GBNF, with the start rule `root`, and the keywords that were
/// left out.
pub fn to_gbnf(schema: &[u8], options: Options) -> Answer<(String, Vec<Refusal>)> {
    let (written, left_out) = written_as(schema, options, Rc::default(), true)?;
    let text = gbnf(&written).ok_or_else(|| {
        Refusal::whole(format!(
            "its grammar has more than {MAX_TEXT} bytes as text (LLAMA_SIEVE_GRAMMAR_MAX_TEXT); \
             make it smaller, or use llama_sieve_init_json_schema"
        ))
    })?;
    Ok((text, left_out))
}
