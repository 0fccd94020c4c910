//! The C interface: every `extern "C"` function of the library, and the only code that handles raw
//! pointers of C callers.
//!
//! - [`guard`][]: the boundary that no panic crosses.
//! - [`failure`][]: errors with their texts, and when the last error is cleared.
//! - [`given`][]: pointers with numbers of elements, checked in one place.
//! - [`host`][]: the llama.cpp of the process. [`host::llama_h`]: its types; [`host::build`]: its
//!   build; [`host::vocabulary`]: its vocabularies; [`host::built_ins`]: making its samplers.
//! - [`vtable`][]: from a sampler to a `llama_sampler`.
//! - [`samplers`][]: the constructors, `llama_sieve_init_*`; [`bans`]: that of banned
//!   texts, [`loops`]: of the loop breaker; [`seed`]: `llama_sieve_get_seed`.
//! - [`trace`][]: the record of tokens, to a function of C.

pub mod attach;
pub mod bans;
mod breakers;
pub mod certificate;
pub mod chain;
pub mod exchange;
pub(crate) mod exclusive;
pub mod failure;
pub mod given;
pub mod grammar;
pub mod guard;
pub mod host;
mod known_vocabularies;
pub mod library;
mod logits;
pub mod loops;
pub mod metrics;
pub mod samplers;
pub mod seed;
pub mod sieve;
#[cfg(test)]
mod tests;
pub mod trace;
pub mod trie;
pub mod vtable;
