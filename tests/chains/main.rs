//! Compares chains of drop-ins with chains of built-ins: on random arrays, straight from logits,
//! and on a model's text.

mod deferred;
mod generations;
mod logits;
mod random;
mod sieve_member;
#[path = "../support/mod.rs"]
mod support;
