//! The seed of a sampler, which may be this library's, a built-in, or a chain of both.

use crate::ffi::chain::host::Chains;
use crate::ffi::failure::{Failure, part, usable, value};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::{Host, host_function};
use crate::ffi::samplers::SEEDED;
use crate::ffi::sieve::SIEVE;
use crate::rng::DEFAULT_SEED;

/// Returns the seed that a sampler's random stream began with, like llama_sampler_get_seed. Dist,
/// mirostat and mirostat_v2 report a seed, both this library's samplers and the built-ins. For a
/// sieve in a chain, returns the lower 32 bits of its seed; for a chain, the seed of the last
/// member that reports one. Returns 0xFFFFFFFF (LLAMA_DEFAULT_SEED) if there is no seed, and for
/// NULL.
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_get_seed(smpl: *const llama_sampler) -> u32 {
    const CALL: &str = "llama_sieve_get_seed";
    let own = part(CALL, || {
        usable("the sampler", smpl)?;
        // SAFETY: not NULL, and the caller guarantees that the sampler is alive.
        Ok::<_, Failure>(unsafe { own_seed(smpl) })
    });
    // The host is not called for samplers of this library that report a seed.
    match own {
        Ok(None) => {}
        Ok(Some(seed)) => return seed,
        Err(_) => return DEFAULT_SEED,
    }
    let Ok(chains) = Chains::of_host(CALL) else {
        return DEFAULT_SEED;
    };
    value(CALL, DEFAULT_SEED, || {
        let seeds = Seeds::of_host(chains).map_err(Failure::no_host)?;
        // SAFETY: not NULL, and the caller guarantees that the sampler is alive.
        Ok::<_, Failure>(unsafe { seeds.seed(smpl) })
    })
}

/// Returns the seed of a sampler of this library that reports one; `None` for any other sampler.
///
/// # Safety
/// `smpl` is a live sampler.
unsafe fn own_seed(smpl: *const llama_sampler) -> Option<u32> {
    let mut seeded = SEEDED.into_iter().chain([&SIEVE]);
    // SAFETY: the caller guarantees the sampler; `seed_of` is called only on samplers of its kind.
    unsafe {
        let vtable = seeded.find(|vtable| vtable.is_of(smpl))?;
        Some(vtable.seed_of(smpl).unwrap_or(DEFAULT_SEED))
    }
}

type GetSeed = unsafe extern "C" fn(*const llama_sampler) -> u32;

/// The host's functions that are needed to find the seed of a sampler.
struct Seeds {
    get_seed: GetSeed,
    chains: Chains,
}

impl Seeds {
    fn of_host(chains: Chains) -> Result<Self, String> {
        let host = Host::get()?;
        Ok(Self {
            get_seed: host_function!(host, c"llama_sampler_get_seed", GetSeed),
            chains,
        })
    }

    /// Returns the seed of a sampler.
    ///
    /// # Safety
    /// `smpl` is a live sampler.
    unsafe fn seed(&self, smpl: *const llama_sampler) -> u32 {
        // SAFETY: the caller guarantees the sampler, and a chain's members live as long as the
        // chain.
        unsafe {
            if let Some(seed) = own_seed(smpl) {
                return seed;
            }
            if let Some(members) = self.chains.members(smpl) {
                let mut seeds = members.rev().map(|member| self.seed(member));
                return seeds
                    .find(|&seed| seed != DEFAULT_SEED)
                    .unwrap_or(DEFAULT_SEED);
            }
            (self.get_seed)(smpl)
        }
    }
}
