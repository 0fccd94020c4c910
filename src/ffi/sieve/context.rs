//! Sampling from the logits of a `llama_context`.

use parking_lot::Mutex;

use crate::ffi::errors::{LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NO_LOGITS};
use crate::ffi::failure::{Failure, answer};
use crate::ffi::host::llama_h::{llama_context, llama_model};
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};
use crate::token::Token;

use super::handle::*;
/// Chooses a token of the logits that a llama_context has for output `idx` (-1: the last), as
/// llama_get_logits_ith gives them, and accepts it.
///
/// Besides the errors of llama_sieve_sample: LLAMA_SIEVE_ERROR_NO_HOST, and
/// LLAMA_SIEVE_ERROR_NO_LOGITS where the context has none. (A llama.cpp built for debugging aborts
/// on an `idx` without logits.)
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
            let (logits, n_vocab) = context_logits(ctx, idx)?;
            let logits = logits_of(logits, n_vocab)?;
            with("llama_sieve_sample_ctx", sieve, |sieve| {
                let token = sieve.sample(logits)?;
                sieve.accept(token);
                Ok(token)
            })
        }
    })
}

type LogitsIth = unsafe extern "C" fn(*mut llama_context, i32) -> *mut f32;
type GetModel = unsafe extern "C" fn(*const llama_context) -> *const llama_model;
type GetVocab = unsafe extern "C" fn(*const llama_model) -> *const llama_vocab;
type NTokens = unsafe extern "C" fn(*const llama_vocab) -> i32;

/// The host's functions that lead to logits.
#[derive(Clone, Copy)]
struct ContextFunctions {
    logits_ith: LogitsIth,
    get_model: GetModel,
    get_vocab: GetVocab,
    n_tokens: NTokens,
}

/// Those of the host that was asked last: looking up names for every token would cost as much as
/// sampling from a small vocabulary.
static CONTEXT_FUNCTIONS: Mutex<Option<(Host, ContextFunctions)>> = Mutex::new(None);

impl ContextFunctions {
    fn of_host() -> Result<Self, String> {
        let host = Host::get()?;
        let mut known = CONTEXT_FUNCTIONS.lock();
        if let Some((of, functions)) = *known
            && of.is(&host)
        {
            return Ok(functions);
        }
        let functions = Self::looked_up(&host)?;
        *known = Some((host, functions));
        Ok(functions)
    }

    fn looked_up(host: &Host) -> Result<Self, String> {
        Ok(Self {
            logits_ith: host_function!(host, c"llama_get_logits_ith", LogitsIth),
            get_model: host_function!(host, c"llama_get_model", GetModel),
            get_vocab: host_function!(host, c"llama_model_get_vocab", GetVocab),
            n_tokens: host_function!(host, c"llama_vocab_n_tokens", NTokens),
        })
    }
}

/// # Safety
/// `ctx` is a live context of the bound host.
unsafe fn context_logits(ctx: *mut llama_context, idx: i32) -> Result<(*const f32, i32), Failure> {
    let functions = ContextFunctions::of_host();
    let functions = functions.map_err(|text| Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text))?;
    // SAFETY: the caller guarantees the context; a context has a model, and a model a vocabulary.
    let (logits, n_vocab) = unsafe {
        let vocab = (functions.get_vocab)((functions.get_model)(ctx));
        (
            (functions.logits_ith)(ctx, idx),
            (functions.n_tokens)(vocab),
        )
    };
    if logits.is_null() {
        let text = format!("the context has no logits for output {idx}");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_NO_LOGITS, text));
    }
    Ok((logits.cast_const(), n_vocab))
}
