//! The results of a comparison.

use std::ffi::c_int;

/// The host's sampler has another name.
pub const LLAMA_SIEVE_CERTIFY_NAME: c_int = 1;
/// The host's sampler leaves another number of candidates.
pub const LLAMA_SIEVE_CERTIFY_SIZE: c_int = 2;
/// One of the two calls the candidates sorted that the other does not.
pub const LLAMA_SIEVE_CERTIFY_SORTED: c_int = 3;
/// The two select different candidates, or one of them none.
pub const LLAMA_SIEVE_CERTIFY_SELECTED: c_int = 4;
/// Candidates are in different places.
pub const LLAMA_SIEVE_CERTIFY_IDS: c_int = 5;
/// A logit has other bits.
pub const LLAMA_SIEVE_CERTIFY_LOGITS: c_int = 6;
/// A probability has other bits.
pub const LLAMA_SIEVE_CERTIFY_PROBABILITIES: c_int = 7;
/// The arguments of this constructor have changed between builds, or are pointers, and the host's
/// build is not known: it was not called.
pub const LLAMA_SIEVE_CERTIFY_ARGUMENTS: c_int = 8;
/// The sampler asks a vocabulary, so that it cannot be tried without one: it was not called.
pub const LLAMA_SIEVE_CERTIFY_VOCABULARY: c_int = 9;
/// The host's constructor gives NULL.
pub const LLAMA_SIEVE_CERTIFY_NOT_MADE: c_int = 10;
