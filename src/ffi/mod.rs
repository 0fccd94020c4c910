//! The C interface: every `extern "C"` function of the library, and the only code that handles raw
//! pointers of C callers.
//!
//! - [`guard`][]: the boundary that no panic crosses.
//! - [`failure`][]: errors with their texts, and when the last error is cleared.
//! - [`given`][]: checks of pointers with numbers of elements.
//! - [`host`][]: the llama.cpp of the process. [`host::llama_h`]: its types; [`host::build`]: its
//!   build; [`host::vocabulary`]: its vocabularies; [`host::built_ins`]: making its samplers.
//! - [`vtable`][]: makes a `llama_sampler` from a sampler.
//! - [`samplers`][]: most constructors, `llama_sieve_init_*`; [`bans`]: the constructors of banned
//!   texts; [`loops`]: the constructor of the loop breaker; [`seed`]: `llama_sieve_get_seed`.
//! - [`trace`][]: passes the trace of tokens to a C function.

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
