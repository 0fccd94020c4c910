//! Functions for C that need no sieve: the most probable tokens, and the largest logit.

use std::ffi::c_int;

use crate::errors::LLAMA_SIEVE_ERROR_SIZE;
use crate::ffi::failure::{Failure, answer};
use crate::ffi::given::argument;
use crate::ffi::logits::logits_of;
use crate::sieve;
use crate::token::{Token, TokenData};

/// Writes the `n` most probable tokens in descending order to `out`, with their probabilities over
/// the whole vocabulary: for servers that report log-probabilities. It takes one pass over the
/// logits, and a sort of `n` tokens.
///
/// Returns the number of tokens written: `n`, or fewer if fewer tokens have a probability above 0;
/// or a negative error: `out` or `logits` NULL, `n` < 0, `n_vocab` <= 0, no logit above minus
/// infinity.
///
/// # Safety
/// `logits` is NULL or `n_vocab` floats; `out` is NULL or has room for `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_top_candidates(
    logits: *const f32,
    n_vocab: i32,
    n: i32,
    out: *mut TokenData,
) -> c_int {
    answer("llama_sieve_top_candidates", || {
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n_vocab) }?;
        let n = usize::try_from(n).map_err(|_| {
            Failure::new(
                LLAMA_SIEVE_ERROR_SIZE,
                format!("n is {n}; it must not be negative"),
            )
        })?;
        if out.is_null() {
            return Err(Failure::null("out"));
        }
        argument!("out", "n").check(out, n)?;
        let mut top = Vec::new();
        sieve::top_candidates(logits, n, &mut top)?;
        // SAFETY: the caller guarantees room for `n` elements, and at most that many are written.
        unsafe { std::ptr::copy_nonoverlapping(top.as_ptr(), out, top.len()) };
        Ok(top.len() as c_int)
    })
}

/// Returns the token with the largest logit, the first one if several are equal, without bias or
/// penalties. Needs no object. Errors are as for llama_sieve_sample.
///
/// # Safety
/// `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_greedy(logits: *const f32, n_vocab: i32) -> Token {
    answer("llama_sieve_greedy", || {
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n_vocab) }?;
        Ok(sieve::greedy(logits)?)
    })
}
