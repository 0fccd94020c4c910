//! The C border: every `extern "C"` of the library, and the only place that knows raw pointers of C
//! callers.
//!
//! - [`llama_h`][]: mirrors of llama.h's types.
//! - [`host`][]: finding the llama.cpp of the process.
//! - [`host_build`][]: which build it is.
//! - [`host_built_ins`][]: making its built-ins, and exchanging ours for them.
//! - [`host_vocabulary`][]: asking its vocabularies.
//! - [`certificate`][]: whether its built-ins do what ours do.
//! - [`vtable`][]: from a sampler to a `llama_sampler`.
//! - [`samplers`][]: the constructors, `llama_sieve_init_*`.
//! - [`trie`][], [`trie_handles`]: the token trie, by sampler and by opaque handle.
//! - [`seed`][]: `llama_sieve_get_seed`.
//! - [`library`][]: version, last error, log, host binding.
//! - [`chain`][]: sampling from raw logits with a host's chain.
//! - [`sieve`][]: the fused sampler, `struct llama_sieve`.
//! - [`metrics`][]: entropy, surprisal, perplexity.
//! - `exclusive`: what two threads do not get at once.
//! - [`guard`][]: the boundary that no panic crosses.
//! - [`failure`][]: error numbers, their texts, and when the last error is cleared.
//!
//! Conventions for callers (the header and the README repeat them): samplers are freed by the host
//! (`llama_sampler_free`, or the chain they were added to); strings that are returned belong to the
//! library; a constructor that fails returns NULL, a function that returns `int` a negative number,
//! and `llama_sieve_last_error` says why; one sampler is used from one thread at a time.

pub mod certificate;
pub mod chain;
pub(crate) mod exclusive;
pub mod failure;
pub mod guard;
pub mod host;
pub mod host_build;
pub mod host_built_ins;
pub mod host_vocabulary;
pub mod library;
pub mod llama_h;
pub mod metrics;
pub mod samplers;
pub mod seed;
pub mod sieve;
#[cfg(test)]
mod tests;
pub mod trie;
pub mod trie_handles;
pub mod vtable;
