//! Tests the token trie: against a naive model, its answers to bad input, and the schema of its
//! payload.

mod answers;
mod composition;
mod naive;
mod schema;
#[path = "../support/schemas.rs"]
mod schemas;
#[path = "../support/mod.rs"]
mod support;
mod walks;
