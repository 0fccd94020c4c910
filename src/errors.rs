//! Kinds of errors: the numbers that functions for C return which give no result.

use std::ffi::c_int;

/// Success.
pub const LLAMA_SIEVE_OK: c_int = 0;
/// An argument is NULL that must not be, or not aligned for its type.
pub const LLAMA_SIEVE_ERROR_NULL: c_int = -1;
/// No llama.cpp was found, or what was given is none.
pub const LLAMA_SIEVE_ERROR_NO_HOST: c_int = -2;
/// An internal error, which was caught; or there is not enough memory (the text says which).
pub const LLAMA_SIEVE_ERROR_INTERNAL: c_int = -3;
/// An argument has a value that is not allowed: a payload that is not valid, an unknown mode, a
/// sampler of another kind.
pub const LLAMA_SIEVE_ERROR_INVALID: c_int = -4;
/// There is nothing with the given name or handle.
pub const LLAMA_SIEVE_ERROR_NOT_FOUND: c_int = -5;
/// A size or number of elements that cannot be, such as a vocabulary of 0 tokens.
pub const LLAMA_SIEVE_ERROR_SIZE: c_int = -6;
/// A parameter is not finite, out of its range, or of an unknown enumeration; or struct_size is
/// none that this library knows.
pub const LLAMA_SIEVE_ERROR_PARAMS: c_int = -7;
/// There is no token to choose: every logit, or that of the one that was selected, is minus
/// infinity or NaN.
pub const LLAMA_SIEVE_ERROR_NO_CANDIDATE: c_int = -8;
/// Saved bytes are none of this library's, damaged, or of another kind of generator.
pub const LLAMA_SIEVE_ERROR_STATE: c_int = -9;
/// The object is in use by another thread, or twice in one call, or out of use after an internal
/// error.
pub const LLAMA_SIEVE_ERROR_BUSY: c_int = -10;
/// The context has no logits where they were asked for.
pub const LLAMA_SIEVE_ERROR_NO_LOGITS: c_int = -11;
/// A token was accepted that the grammar does not allow.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN: c_int = -20;
/// The generation was ended where the grammar does not allow it.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_END: c_int = -21;
/// The grammar asked for more work than its limits allow.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT: c_int = -22;
