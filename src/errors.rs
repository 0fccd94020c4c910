//! Error numbers that the C functions return.

use std::ffi::c_int;

/// Success.
pub const LLAMA_SIEVE_OK: c_int = 0;
/// A required argument is NULL, or a pointer is not aligned for its type.
pub const LLAMA_SIEVE_ERROR_NULL: c_int = -1;
/// No llama.cpp was found, or the given library is not one.
pub const LLAMA_SIEVE_ERROR_NO_HOST: c_int = -2;
/// An internal error was caught, or there is not enough memory; the error text says which.
pub const LLAMA_SIEVE_ERROR_INTERNAL: c_int = -3;
/// An argument has a value that is not allowed: a payload that is not valid, an unknown mode, a
/// sampler of another kind.
pub const LLAMA_SIEVE_ERROR_INVALID: c_int = -4;
/// There is nothing with the given name or handle.
pub const LLAMA_SIEVE_ERROR_NOT_FOUND: c_int = -5;
/// A size or number of elements is impossible, such as a vocabulary of 0 tokens.
pub const LLAMA_SIEVE_ERROR_SIZE: c_int = -6;
/// A parameter is not finite, out of its range, or not a value of its enumeration; or this library
/// does not know the value of struct_size.
pub const LLAMA_SIEVE_ERROR_PARAMS: c_int = -7;
/// There is no token to choose: every logit, or the logit of the selected token, is minus infinity
/// or NaN.
pub const LLAMA_SIEVE_ERROR_NO_CANDIDATE: c_int = -8;
/// A state cannot be saved, or the saved bytes cannot be restored; the error text says why.
pub const LLAMA_SIEVE_ERROR_STATE: c_int = -9;
/// The object is in use by another thread, appears twice in one call, or was disabled after an
/// internal error.
pub const LLAMA_SIEVE_ERROR_BUSY: c_int = -10;
/// The context has no logits at the requested position.
pub const LLAMA_SIEVE_ERROR_NO_LOGITS: c_int = -11;
/// The grammar does not allow the accepted token.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_TOKEN: c_int = -20;
/// The generation ended at a point where the grammar does not allow it.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_END: c_int = -21;
/// The grammar needs more work than its limits allow.
pub const LLAMA_SIEVE_ERROR_GRAMMAR_LIMIT: c_int = -22;
