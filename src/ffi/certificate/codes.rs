//! The results of a comparison.

use std::ffi::c_int;

/// The host's sampler has a different name.
pub const LLAMA_SIEVE_CERTIFY_NAME: c_int = 1;
/// The host's sampler leaves a different number of candidates.
pub const LLAMA_SIEVE_CERTIFY_SIZE: c_int = 2;
/// Only one of the two samplers marks the candidates as sorted.
pub const LLAMA_SIEVE_CERTIFY_SORTED: c_int = 3;
/// The two samplers select different candidates, or only one of them selects a candidate.
pub const LLAMA_SIEVE_CERTIFY_SELECTED: c_int = 4;
/// The candidates are different ones, or in a different order.
pub const LLAMA_SIEVE_CERTIFY_IDS: c_int = 5;
/// A logit has different bits.
pub const LLAMA_SIEVE_CERTIFY_LOGITS: c_int = 6;
/// A probability has different bits.
pub const LLAMA_SIEVE_CERTIFY_PROBABILITIES: c_int = 7;
/// The arguments of the host's constructor have changed between builds, or are pointers, and the
/// host's build is not known. The constructor was not called.
pub const LLAMA_SIEVE_CERTIFY_ARGUMENTS: c_int = 8;
/// The sampler needs a vocabulary and cannot be tested without one, so it was not called.
pub const LLAMA_SIEVE_CERTIFY_VOCABULARY: c_int = 9;
/// One of the two samplers or of their clones could not be made.
pub const LLAMA_SIEVE_CERTIFY_NOT_MADE: c_int = 10;
