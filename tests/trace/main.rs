//! The record of tokens: its lines are what the schema says, the tokens are the same with and
//! without it, and it says of each candidate what llama.cpp's own samplers do with it.

mod batched;
mod checked;
mod files;
mod grammars;
mod model;
mod record;
mod replayed;
#[path = "../support/mod.rs"]
mod support;
