//! The host's functions that lead to the members of a chain, and from a context to its logits.
//!
//! They are declared so that what the host throws passes through them, and are called outside the
//! guard.

use std::ffi::c_int;
use std::ptr::null_mut;

use parking_lot::Mutex;

use crate::ffi::errors::{LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NO_LOGITS};
use crate::ffi::failure::{Failure, part};
use crate::ffi::host::llama_h::{
    llama_context, llama_model, llama_sampler, llama_sampler_i, llama_token_data_array,
};
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};
use crate::token::Token;

type ChainN = unsafe extern "C-unwind" fn(*const llama_sampler) -> i32;
type ChainGet = unsafe extern "C-unwind" fn(*mut llama_sampler, i32) -> *mut llama_sampler;
type Apply = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_token_data_array);
type Accept = unsafe extern "C-unwind" fn(*mut llama_sampler, Token);
type ChainInit = unsafe extern "C-unwind" fn(ChainParams) -> *mut llama_sampler;
type Free = unsafe extern "C-unwind" fn(*mut llama_sampler);

/// The host's `llama_sampler_chain_params`.
#[repr(C)]
pub(crate) struct ChainParams {
    pub no_perf: u8,
}

/// The host's functions that chains take.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub chain_n: ChainN,
    pub chain_get: ChainGet,
    pub apply: Apply,
    pub accept: Accept,
    /// By which a chain is known.
    pub chain_iface: *const llama_sampler_i,
}

// SAFETY: functions and a vtable of the host, which belong to no thread.
unsafe impl Send for Functions {}

/// Those of the host that was asked last.
static FUNCTIONS: Mutex<Option<(Host, Functions)>> = Mutex::new(None);

/// The functions of the host, outside the guard where the host's code runs.
pub(super) fn functions(call: &str) -> Result<Functions, c_int> {
    let no_host = |text| Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text);
    let (host, known) = part(call, || {
        let host = Host::get().map_err(no_host)?;
        let known = FUNCTIONS.lock().filter(|(of, _)| of.is(&host));
        Ok((host, known))
    })?;
    if let Some((_, functions)) = known {
        return Ok(functions);
    }
    let look_up = || {
        let init = host_function!(host, c"llama_sampler_chain_init", ChainInit);
        let free = host_function!(host, c"llama_sampler_free", Free);
        let functions = Functions {
            chain_n: host_function!(host, c"llama_sampler_chain_n", ChainN),
            chain_get: host_function!(host, c"llama_sampler_chain_get", ChainGet),
            apply: host_function!(host, c"llama_sampler_apply", Apply),
            accept: host_function!(host, c"llama_sampler_accept", Accept),
            chain_iface: null_mut(),
        };
        Ok((init, free, functions))
    };
    let (init, free, mut functions) = part(call, || look_up().map_err(no_host))?;
    // SAFETY: the host's own constructor and destructor, in the order that they are made for.
    unsafe {
        let chain = init(ChainParams { no_perf: 1 });
        functions.chain_iface = chain.as_ref().map_or(null_mut(), |chain| chain.iface);
        free(chain);
    }
    part(call, || {
        *FUNCTIONS.lock() = Some((host, functions));
        Ok(())
    })?;
    Ok(functions)
}

type Sample = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_context, i32) -> Token;
type SampledToken = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> Token;
type SampledFloats = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> *const f32;
type LogitsIth = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> *const f32;
type GetModel = unsafe extern "C-unwind" fn(*const llama_context) -> *const llama_model;
type GetVocab = unsafe extern "C-unwind" fn(*const llama_model) -> *const llama_vocab;
type NTokens = unsafe extern "C-unwind" fn(*const llama_vocab) -> i32;

/// What a backend has sampled, where the host can tell.
#[derive(Clone, Copy)]
struct SampledFunctions {
    token: SampledToken,
    probs: SampledFloats,
    logits: SampledFloats,
}

/// The host's functions that lead from a context to logits.
#[derive(Clone, Copy)]
pub(super) struct ContextFunctions {
    pub sample: Sample,
    /// `None` in a host that does not sample on backends.
    sampled: Option<SampledFunctions>,
    logits_ith: LogitsIth,
    get_model: GetModel,
    get_vocab: GetVocab,
    n_tokens: NTokens,
}

/// Those of the host that was asked last.
static CONTEXT_FUNCTIONS: Mutex<Option<(Host, ContextFunctions)>> = Mutex::new(None);

impl ContextFunctions {
    pub fn of_host() -> Result<Self, Failure> {
        let no_host = |text| Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text);
        let host = Host::get().map_err(no_host)?;
        let mut known = CONTEXT_FUNCTIONS.lock();
        if let Some((of, functions)) = *known
            && of.is(&host)
        {
            return Ok(functions);
        }
        let functions = Self::looked_up(&host).map_err(no_host)?;
        *known = Some((host, functions));
        Ok(functions)
    }

    fn looked_up(host: &Host) -> Result<Self, String> {
        let sampled = || -> Result<SampledFunctions, String> {
            Ok(SampledFunctions {
                token: host_function!(host, c"llama_get_sampled_token_ith", SampledToken),
                probs: host_function!(host, c"llama_get_sampled_probs_ith", SampledFloats),
                logits: host_function!(host, c"llama_get_sampled_logits_ith", SampledFloats),
            })
        };
        Ok(Self {
            sample: host_function!(host, c"llama_sampler_sample", Sample),
            sampled: sampled().ok(),
            logits_ith: host_function!(host, c"llama_get_logits_ith", LogitsIth),
            get_model: host_function!(host, c"llama_get_model", GetModel),
            get_vocab: host_function!(host, c"llama_model_get_vocab", GetVocab),
            n_tokens: host_function!(host, c"llama_vocab_n_tokens", NTokens),
        })
    }

    /// Whether a backend has sampled, in whole or in part: then the chain passes over members that
    /// only it knows.
    ///
    /// # Safety
    /// `ctx` is a live context of this host.
    pub unsafe fn has_sampled(&self, ctx: *mut llama_context, idx: i32) -> bool {
        const NO_TOKEN: Token = -1;
        let Some(sampled) = &self.sampled else {
            return false;
        };
        // SAFETY: the caller guarantees the context.
        unsafe {
            (sampled.token)(ctx, idx) != NO_TOKEN
                || !(sampled.probs)(ctx, idx).is_null()
                || !(sampled.logits)(ctx, idx).is_null()
        }
    }

    /// # Safety
    /// As for [`has_sampled`](Self::has_sampled).
    pub unsafe fn logits(
        &self,
        call: &str,
        ctx: *mut llama_context,
        idx: i32,
    ) -> Result<(*const f32, i32), c_int> {
        // SAFETY: the caller guarantees the context, which has a model, and that a vocabulary.
        let (logits, n_vocab) = unsafe {
            let vocab = (self.get_vocab)((self.get_model)(ctx));
            ((self.logits_ith)(ctx, idx), (self.n_tokens)(vocab))
        };
        part(call, || {
            if logits.is_null() {
                let text = format!("the context has no logits for output {idx}");
                return Err(Failure::new(LLAMA_SIEVE_ERROR_NO_LOGITS, text));
            }
            Ok((logits, n_vocab))
        })
    }
}
