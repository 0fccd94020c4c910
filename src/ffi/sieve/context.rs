//! Sampling from the logits of a `llama_context`.

use crate::ffi::failure::{Failure, answer};
use crate::ffi::host::llama_h::llama_context;
use crate::ffi::logits::{ContextFunctions, logits_of_output};
use crate::token::Token;

use super::handle::*;

/// Chooses a token from the logits that llama_get_logits_ith returns for output `idx` of a context
/// (-1: the last), and accepts it.
///
/// In addition to the errors of llama_sieve_sample it returns LLAMA_SIEVE_ERROR_NO_HOST, and
/// LLAMA_SIEVE_ERROR_NO_LOGITS if the context has no logits for `idx`. (A llama.cpp built for
/// debugging aborts on an `idx` without logits.)
///
/// # Safety
/// `sieve` is NULL or alive; `ctx` is NULL or a context of the bound host, used by no other thread
/// during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_ctx(
    sieve: *mut Handle,
    ctx: *mut llama_context,
    idx: i32,
) -> Token {
    answer("llama_sieve_sample_ctx", || {
        if ctx.is_null() {
            return Err(Failure::null("the context"));
        }
        // SAFETY: the caller guarantees sieve and context; logits of a context stay until it
        // decodes again.
        unsafe {
            let logits = logits_of_output(ContextFunctions::of_host()?.logits(ctx, idx), idx)?;
            sampled("llama_sieve_sample_ctx", sieve, |sieve| {
                let token = sieve.sample(logits)?;
                sieve.accept(token);
                Ok(token)
            })
        }
    })
}
