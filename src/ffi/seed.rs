//! The seed of a sampler: ours, built in, or a chain of both.

use std::ffi::{CStr, c_char};

use crate::ffi::failure::{Failure, usable, value};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::{Host, host_function};
use crate::ffi::samplers::SEEDED;
use crate::ffi::sieve::SIEVE;
use crate::rng::DEFAULT_SEED;

/// The seed that a sampler's random stream began with, as llama_sampler_get_seed tells it: of dist,
/// mirostat and mirostat_v2, ours and built in; of the sieve in a chain the lower 32 bits; of a
/// chain, that of its last member that has one. 0xFFFFFFFF (LLAMA_DEFAULT_SEED) if there is none,
/// and for NULL.
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_get_seed(smpl: *const llama_sampler) -> u32 {
    value("llama_sieve_get_seed", DEFAULT_SEED, || {
        usable("the sampler", smpl)?;
        let functions = Functions::of_host().map_err(Failure::no_host)?;
        // SAFETY: not NULL, and the caller guarantees that it lives.
        Ok::<_, Failure>(unsafe { functions.seed(smpl) })
    })
}

type Name = unsafe extern "C" fn(*const llama_sampler) -> *const c_char;
type GetSeed = unsafe extern "C" fn(*const llama_sampler) -> u32;
type ChainN = unsafe extern "C" fn(*const llama_sampler) -> i32;
type ChainGet = unsafe extern "C" fn(*mut llama_sampler, i32) -> *mut llama_sampler;

/// What it takes of the host.
struct Functions {
    name: Name,
    get_seed: GetSeed,
    chain_n: ChainN,
    chain_get: ChainGet,
}

impl Functions {
    fn of_host() -> Result<Self, String> {
        let host = Host::get()?;
        Ok(Self {
            name: host_function!(host, c"llama_sampler_name", Name),
            get_seed: host_function!(host, c"llama_sampler_get_seed", GetSeed),
            chain_n: host_function!(host, c"llama_sampler_chain_n", ChainN),
            chain_get: host_function!(host, c"llama_sampler_chain_get", ChainGet),
        })
    }

    /// # Safety
    /// `smpl` is a live sampler.
    unsafe fn seed(&self, smpl: *const llama_sampler) -> u32 {
        // SAFETY: the caller guarantees the sampler; `seed_of` and the chain functions are called
        // only on samplers of their kind.
        unsafe {
            let mut seeded = SEEDED.into_iter().chain([&SIEVE]);
            if let Some(vtable) = seeded.find(|vtable| vtable.is_of(smpl)) {
                return vtable.seed_of(smpl).unwrap_or(DEFAULT_SEED);
            }
            if self.is_chain(smpl) {
                return self.seed_of_chain(smpl);
            }
            (self.get_seed)(smpl)
        }
    }

    /// # Safety
    /// `smpl` is a live sampler.
    unsafe fn is_chain(&self, smpl: *const llama_sampler) -> bool {
        // SAFETY: the caller guarantees the sampler. A vtable without a name is nobody's chain, and
        // the host would call through NULL.
        unsafe {
            let iface = (*smpl).iface;
            if iface.is_null() || (*iface).name.is_none() {
                return false;
            }
            let name = (self.name)(smpl);
            !name.is_null() && CStr::from_ptr(name) == c"chain"
        }
    }

    /// # Safety
    /// `chain` is a live chain.
    unsafe fn seed_of_chain(&self, chain: *const llama_sampler) -> u32 {
        // SAFETY: the caller guarantees the chain, and a chain its members.
        unsafe {
            for i in (0..(self.chain_n)(chain)).rev() {
                let member = (self.chain_get)(chain.cast_mut(), i);
                if member.is_null() {
                    continue;
                }
                let seed = self.seed(member);
                if seed != DEFAULT_SEED {
                    return seed;
                }
            }
        }
        DEFAULT_SEED
    }
}
