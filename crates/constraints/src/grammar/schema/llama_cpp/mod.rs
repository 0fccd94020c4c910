//! The language of llama.cpp's own converter from JSON Schema: the grammar that its
//! `json_schema_to_grammar` writes, as elements.
//!
//! - `node`: the keywords that count, and their precedence.
//! - `writer`: a rule for each node; `names`: their names; `primitives`: the fixed rules;
//!   `literal`: constants; `integers`: bounds; `pattern`: regular expressions.
//!
//! Its rules have names made from the schema's, and if two names collide, a reference means another
//! rule than in the schema. So the names are reproduced here, too. So are the language's defects:
//! dead ends are not removed, and bytes need not be UTF-8.

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

/// Returns the rules of a schema's texts as by llama.cpp's converter, and the patterns for which
/// any string is accepted.
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

/// Takes the steps for allocated bytes from the remaining work.
fn keep(work: &Work, n_bytes: usize) -> Answer<()> {
    spend(work, n_bytes.div_ceil(4))
}

/// Takes steps of the remaining work.
fn spend(work: &Work, n: usize) -> Answer<()> {
    work.spend(n).map_err(|_| too_long())
}

fn too_long() -> Refusal {
    Refusal::whole(format!(
        "it takes more than LLAMA_SIEVE_JSON_MAX_STEPS steps to become a grammar, \
         {MAX_SCHEMA_STEPS}; use fewer alternatives, and references in place of copies"
    ))
}
