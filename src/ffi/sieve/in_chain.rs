//! The sieve as one sampler of a host's chain.

use crate::ffi::failure::made;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::sieve::SieveSampler;

use super::params::*;
/// The sieve as one sampler of a chain.
pub(in crate::ffi) static SIEVE: Vtable = vtable::<SieveSampler>();

/// The whole sieve as one sampler of a chain, on whatever candidates earlier samplers have left; it
/// selects. Afterwards the array holds what was drawn from, with probabilities. NULL for the errors
/// of llama_sieve_new, and without a host.
///
/// # Safety
/// `params` as for llama_sieve_new.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_sampler(
    params: *const llama_sieve_params,
) -> *mut llama_sampler {
    made("llama_sieve_init_sampler", || {
        // SAFETY: the caller guarantees the parameters.
        let params = unsafe { params_of(params) }?;
        let sampler = SieveSampler::new(&params)?;
        Ok(into_host(&SIEVE, sampler))
    })
}
