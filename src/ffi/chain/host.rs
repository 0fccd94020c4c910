//! The host's functions that lead to the members of a chain, and from a context to its logits.
//!
//! They are declared so that what the host throws passes through them, and are called outside the
//! guard.

use std::ffi::c_int;
use std::ptr::null_mut;

use crate::ffi::failure::{Failure, part};
use crate::ffi::host::built_ins::free_of;
use crate::ffi::host::llama_h::{
    llama_context, llama_sampler, llama_sampler_i, llama_token_data_array,
};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::host::{Host, host_function};
use crate::token::Token;

type ChainN = unsafe extern "C-unwind" fn(*const llama_sampler) -> i32;
type ChainGet = unsafe extern "C-unwind" fn(*mut llama_sampler, i32) -> *mut llama_sampler;
type Apply = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_token_data_array);
type Accept = unsafe extern "C-unwind" fn(*mut llama_sampler, Token);
type ChainInit = unsafe extern "C-unwind" fn(ChainParams) -> *mut llama_sampler;

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
// SAFETY: as above.
unsafe impl Sync for Functions {}

static FUNCTIONS: PerHost<Functions> = PerHost::new();

/// The functions of the host, outside the guard where the host's code runs.
pub(super) fn functions(call: &str) -> Result<Functions, c_int> {
    let (host, known) = part(call, || {
        let host = Host::get().map_err(Failure::no_host)?;
        Ok((host, FUNCTIONS.known(&host)))
    })?;
    if let Some(functions) = known {
        return Ok(functions);
    }
    let look_up = || {
        let init = host_function!(host, c"llama_sampler_chain_init", ChainInit);
        let functions = Functions {
            chain_n: host_function!(host, c"llama_sampler_chain_n", ChainN),
            chain_get: host_function!(host, c"llama_sampler_chain_get", ChainGet),
            apply: host_function!(host, c"llama_sampler_apply", Apply),
            accept: host_function!(host, c"llama_sampler_accept", Accept),
            chain_iface: null_mut(),
        };
        Ok((init, free_of(&host)?, functions))
    };
    let (init, free, mut functions) = part(call, || look_up().map_err(Failure::no_host))?;
    // SAFETY: the host's own constructor and destructor, in the order that they are made for.
    unsafe {
        let chain = init(ChainParams { no_perf: 1 });
        functions.chain_iface = chain.as_ref().map_or(null_mut(), |chain| chain.iface);
        free(chain);
    }
    part(call, || {
        FUNCTIONS.keep(host, functions);
        Ok(())
    })?;
    Ok(functions)
}

type Sample = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_context, i32) -> Token;
type SampledToken = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> Token;
type SampledFloats = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> *const f32;

/// What a backend has sampled, where the host can tell.
#[derive(Clone, Copy)]
struct SampledFunctions {
    token: SampledToken,
    probs: SampledFloats,
    logits: SampledFloats,
}

/// The host's functions that sample from a context, or tell what a backend has sampled.
#[derive(Clone, Copy)]
pub(super) struct SamplingFunctions {
    pub sample: Sample,
    /// `None` in a host that does not sample on backends.
    sampled: Option<SampledFunctions>,
}

static SAMPLING_FUNCTIONS: PerHost<SamplingFunctions> = PerHost::new();

impl SamplingFunctions {
    pub(super) fn of_host() -> Result<Self, Failure> {
        SAMPLING_FUNCTIONS
            .of_host(Self::looked_up)
            .map_err(Failure::no_host)
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
        })
    }

    /// Whether a backend has sampled, in whole or in part: then the chain passes over members that
    /// only it knows.
    ///
    /// # Safety
    /// `ctx` is a live context of this host.
    pub(super) unsafe fn has_sampled(&self, ctx: *mut llama_context, idx: i32) -> bool {
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
}
