//! Chains of drop-ins against chains of built-ins: on random arrays, and on a model's text.

mod generations;
mod random;
#[path = "../support/mod.rs"]
mod support;
