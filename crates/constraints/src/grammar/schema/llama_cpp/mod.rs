//! The language of llama.cpp's own converter from JSON Schema: the grammar that its
//! `json_schema_to_grammar` writes, as elements.
//!
//! - `node`: the keywords that count, and which of them wins.
//! - `writer`: a rule for each node; `names`: how these are called; `primitives`: the rules that
//!   are always the same; `literal`: constants; `integers`: bounds; `pattern`: regular expressions.
//!
//! Its rules have names made of the schema's, and where two come to be one, a reference means
//! another rule than the schema says. So the names are kept here, too. The language is llama.cpp's
//! in what it lacks, as well: nothing is left out that no text can follow, and bytes need not be
//! UTF-8.

mod integers;
pub mod literal;
pub mod names;
pub mod node;
mod pattern;
mod primitives;
#[cfg(all(test, not(miri)))]
mod tests;
pub mod writer;

use std::rc::Rc;

use crate::grammar::elements::Written;
use crate::grammar::limits::MAX_SCHEMA_STEPS;
use crate::grammar::schema::reader::{Document, JsonId};
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::grammar::schema::work::Work;

/// The rules of a schema's texts as llama.cpp's converter understands it, and the patterns in whose
/// place any string is taken.
pub fn rules_of(document: &Document, work: Rc<Work>) -> Answer<(Written, Vec<Refusal>)> {
    let nodes = node::Nodes::read(document, &work)?;
    writer::Writer::new(document, nodes, work).written()
}

fn refusal(document: &Document, at: JsonId, keyword: &str, why: impl Into<String>) -> Refusal {
    Refusal {
        pointer: document.pointer(at),
        keyword: keyword.into(),
        why: why.into(),
    }
}

/// Takes steps for bytes that stay.
fn keep(work: &Work, n_bytes: usize) -> Answer<()> {
    spend(work, n_bytes.div_ceil(4))
}

/// Takes steps of the work that is left.
fn spend(work: &Work, n: usize) -> Answer<()> {
    work.spend(n).map_err(|_| too_long())
}

fn too_long() -> Refusal {
    Refusal::whole(format!(
        "it takes more than LLAMA_SIEVE_JSON_MAX_STEPS steps to become a grammar, \
         {MAX_SCHEMA_STEPS}; use fewer alternatives, and references in place of copies"
    ))
}
