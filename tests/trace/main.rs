//! Tests traces: the lines satisfy the schema, tokens are the same with and without a trace, and
//! the trace reports for each candidate what llama.cpp's own samplers do with it.

mod batched;
mod checked;
mod files;
mod grammars;
mod model;
mod record;
mod replayed;
#[path = "../support/schemas.rs"]
mod schemas;
#[path = "../support/mod.rs"]
mod support;
