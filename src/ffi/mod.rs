//! The C border: every `extern "C"` of the library, and the only place that knows raw pointers of C
//! callers.
//!
//! - [`guard`][]: the boundary that no panic crosses.
//! - [`errors`][], [`failure`]: error numbers, their texts, and when the last error is cleared.
//! - `exclusive`: what two threads do not get at once.
//! - [`host`][]: the llama.cpp of the process. [`host::llama_h`]: its types; [`host::build`]: which
//!   build it is; [`host::vocabulary`]: asking its vocabularies; [`host::built_ins`]: making its
//!   samplers.
//! - [`vtable`][]: from a sampler to a `llama_sampler`.
//! - [`samplers`][]: the constructors, `llama_sieve_init_*`; [`seed`]: `llama_sieve_get_seed`.
//! - [`exchange`][]: copying between ours and built-ins that stand in their place.
//! - [`certificate`][]: whether the host's built-ins do what ours do.
//! - [`trie`][]: the token trie, by sampler and by opaque handle.
//! - [`grammar`][]: grammars, [lazy](grammar::lazy) ones too, and [for a host](grammar::hosted)
//!   that does not know of ours; `known_vocabularies`: the trees of the host's vocabularies.
//! - [`chain`][]: sampling from raw logits with a host's chain.
//! - `logits`: logits of a pointer or a context.
//! - [`sieve`][]: the fused sampler, `struct llama_sieve`.
//! - [`metrics`][]: entropy, surprisal, perplexity.
//! - [`library`][]: version, last error, log, host binding.
//!
//! Conventions for callers (the header and the README repeat them): samplers are freed by the host
//! (`llama_sampler_free`, or the chain they were added to); strings that are returned belong to the
//! library; a constructor that fails returns NULL, a function that returns `int` a negative number,
//! and `llama_sieve_last_error` says why; one sampler is used from one thread at a time.

mod breakers;
pub mod certificate;
pub mod chain;
pub mod errors;
pub mod exchange;
pub(crate) mod exclusive;
pub mod failure;
pub mod grammar;
pub mod guard;
pub mod host;
mod known_vocabularies;
pub mod library;
mod logits;
pub mod metrics;
pub mod samplers;
pub mod seed;
pub mod sieve;
#[cfg(test)]
mod tests;
pub mod trie;
pub mod vtable;
