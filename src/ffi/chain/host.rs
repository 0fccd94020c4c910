//! The host's functions that list the members of a chain, run them, or sample from a context.
//!
//! They are declared so that the host's exceptions pass through them, and are called outside the
//! guard.

use std::ffi::c_int;
use std::ptr::{self, null_mut};

use super::disabled::{Disabled, Trial};
use crate::ffi::failure::Failure;
use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{Accept, Apply, llama_context, llama_sampler, llama_sampler_i};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::host::{Host, host_function};
use crate::token::Token;

type ChainN = unsafe extern "C-unwind" fn(*const llama_sampler) -> i32;
type ChainGet = unsafe extern "C-unwind" fn(*mut llama_sampler, i32) -> *mut llama_sampler;
type ChainInit = unsafe extern "C-unwind" fn(ChainParams) -> *mut llama_sampler;

/// The host's `llama_sampler_chain_params`.
#[repr(C)]
pub(crate) struct ChainParams {
    pub no_perf: u8,
}

/// The host's functions and vtable for chains and their members.
#[derive(Clone, Copy)]
pub(in crate::ffi) struct Chains {
    chain_n: ChainN,
    chain_get: ChainGet,
    /// The vtable by which a chain is recognised.
    iface: *const llama_sampler_i,
}

// SAFETY: functions and a vtable of the host, which belong to no thread.
unsafe impl Send for Chains {}
// SAFETY: as above.
unsafe impl Sync for Chains {}

impl Chains {
    /// Returns the functions and the vtable of the bound host. Host code that this needs runs
    /// outside the guard.
    pub(in crate::ffi) fn of_host(call: &str) -> Result<Self, c_int> {
        static CHAINS: PerHost<Chains> = PerHost::new();
        // SAFETY: the host whose functions were just looked up is loaded.
        CHAINS.asked(call, FirstChain::of, |chain| unsafe { chain.known() })
    }

    /// Returns the members of a chain, none of them NULL; `None` for any other sampler, whatever
    /// its name: its pointers may point to anything.
    ///
    /// # Safety
    /// `smpl` is a live sampler of the host that these functions belong to, and stays alive while
    /// the members are read.
    pub(in crate::ffi) unsafe fn members(
        &self,
        smpl: *const llama_sampler,
    ) -> Option<impl DoubleEndedIterator<Item = *mut llama_sampler>> {
        // SAFETY: the caller guarantees the sampler.
        let iface = unsafe { (*smpl).iface };
        if iface.is_null() || !ptr::eq(iface, self.iface) {
            return None;
        }
        let chain_get = self.chain_get;
        // SAFETY: the sampler is a chain.
        let n = unsafe { (self.chain_n)(smpl) };
        // SAFETY: a chain with that many members, which stays alive.
        let get = move |i| unsafe { chain_get(smpl.cast_mut(), i) };
        Some((0..n).map(get).filter(|member| !member.is_null()))
    }
}

/// The host's functions that make a chain, by which other chains are then recognised.
struct FirstChain {
    init: ChainInit,
    free: Free,
    /// The functions that return members. The vtable is not yet known.
    chains: Chains,
}

impl FirstChain {
    fn of(host: &Host) -> Result<Self, String> {
        Ok(Self {
            init: host_function!(host, c"llama_sampler_chain_init", ChainInit),
            free: free_of(host)?,
            chains: Chains {
                chain_n: host_function!(host, c"llama_sampler_chain_n", ChainN),
                chain_get: host_function!(host, c"llama_sampler_chain_get", ChainGet),
                iface: null_mut(),
            },
        })
    }

    /// Makes a chain, and returns the functions with its vtable.
    ///
    /// # Safety
    /// The host is loaded.
    unsafe fn known(mut self) -> Chains {
        // SAFETY: the host's own constructor and destructor, in the order in which they are to be
        // called.
        unsafe {
            let chain = (self.init)(ChainParams { no_perf: 1 });
            self.chains.iface = chain.as_ref().map_or(null_mut(), |chain| chain.iface);
            (self.free)(chain);
        }
        self.chains
    }
}

/// The host's functions that chains need.
#[derive(Clone, Copy)]
pub(super) struct Functions {
    pub chains: Chains,
    pub apply: Apply,
    pub accept: Accept,
    /// Recognises the members that do nothing.
    pub disabled: Disabled,
}

/// Returns the functions of the bound host. Host code that this needs runs outside the guard.
pub(super) fn functions(call: &str) -> Result<Functions, c_int> {
    static FUNCTIONS: PerHost<Functions> = PerHost::new();
    let look_up = |host: &Host| {
        let apply = host_function!(host, c"llama_sampler_apply", Apply);
        let accept = host_function!(host, c"llama_sampler_accept", Accept);
        let trial = Trial::of(host, apply, accept).ok();
        Ok((FirstChain::of(host)?, apply, accept, trial))
    };
    FUNCTIONS.asked(call, look_up, |(chain, apply, accept, trial)| Functions {
        // SAFETY: the host whose functions were just looked up is loaded.
        chains: unsafe { chain.known() },
        apply,
        accept,
        // SAFETY: as above.
        disabled: trial.map_or(Disabled::NONE, |trial| unsafe { trial.run() }),
    })
}

type Sample = unsafe extern "C-unwind" fn(*mut llama_sampler, *mut llama_context, i32) -> Token;
type SampledToken = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> Token;
type SampledFloats = unsafe extern "C-unwind" fn(*mut llama_context, i32) -> *const f32;

/// The host's functions that return a backend's results.
#[derive(Clone, Copy)]
struct SampledFunctions {
    token: SampledToken,
    probs: SampledFloats,
    logits: SampledFloats,
}

/// The host's functions that sample from a context, or return a backend's results.
#[derive(Clone, Copy)]
pub(super) struct SamplingFunctions {
    pub sample: Sample,
    /// The functions that return a backend's results; `None` if the host does not sample on
    /// backends.
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

    /// Returns true if a backend has sampled, completely or in part. The host's chain then skips
    /// members, and only the host can tell which.
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
