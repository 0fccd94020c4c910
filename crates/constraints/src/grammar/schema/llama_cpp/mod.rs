//! Converts a JSON Schema to the grammar that llama.cpp's own converter, `json_schema_to_grammar`,
//! writes for it.
//!
//! - `node`: the keywords that count, and their precedence.
//! - `writer`: a rule for each node; `names`: their names; `primitives`: the fixed rules;
//!   `literal`: constants; `integers`: bounds; `pattern`: regular expressions.
//!
//! llama.cpp derives the names of rules from names in the schema. If two names collide, a reference
//! leads to a different rule than the schema means, so the names are reproduced, too. The defects
//! of llama.cpp's grammars are also reproduced: dead states are not removed, and bytes need not be
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

/// Returns the rules that llama.cpp's converter generates for a schema, and the patterns for which
/// it accepts any string.
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

/// Subtracts the steps for allocated bytes from the remaining work.
fn keep(work: &Work, n_bytes: usize) -> Answer<()> {
    spend(work, n_bytes.div_ceil(4))
}

/// Subtracts steps from the remaining work.
fn spend(work: &Work, n: usize) -> Answer<()> {
    work.spend(n).map_err(|_| too_long())
}

fn too_long() -> Refusal {
    Refusal::whole(format!(
        "it takes more than LLAMA_SIEVE_JSON_MAX_STEPS steps to become a grammar, \
         {MAX_SCHEMA_STEPS}; use fewer alternatives, and references in place of copies"
    ))
}
