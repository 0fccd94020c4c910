//! The sieve as a sampler of a host's chain.

use std::any::Any;
use std::ffi::CStr;
use std::mem;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_INVALID};
use crate::ffi::failure::{Failure, made, usable};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::last_error;
use crate::log;
use crate::sampler::{Kind, Sampler};
use crate::sieve::Sieve;
use crate::token::Token;

use super::handle::*;
use super::params::*;
/// The vtable of the sieve as a sampler of a chain.
pub(in crate::ffi) static SIEVE: Vtable = vtable::<InChain>();

/// Makes a sampler, to be added to a chain. It runs a sieve on the candidates that earlier samplers
/// leave, and selects one. Afterwards the array contains the candidates from which that one was
/// drawn, with their probabilities. Returns NULL for the errors of llama_sieve_new, and without a
/// host. llama_sieve_of_sampler returns the sampler's sieve.
///
/// # Safety
/// `params` is NULL or as long as its struct_size says; its bias is NULL or n_bias elements, which
/// are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_init_sampler(
    params: *const llama_sieve_params,
) -> *mut llama_sampler {
    made("llama_sieve_init_sampler", || {
        // SAFETY: the caller guarantees the parameters.
        let params = unsafe { params_of(params) }?;
        let sampler = InChain::new(Some(Sieve::new(&params)?));
        Ok(into_host(&SIEVE, sampler))
    })
}

/// Returns the sieve in a sampler that llama_sieve_init_sampler has made. It may be passed to every
/// function that takes a sieve: for parameters, statistics, history, saved states, and the
/// candidates and the error of the last token. Changes take effect at the next token of the chain.
///
/// The sampler owns the sieve: do not free it, and do not use it after the sampler is freed. Use it
/// only between two tokens: while the sampler runs, the sieve is in use, and while you use it, the
/// sampler takes the largest logit. A clone of the sampler has its own sieve. Returns NULL, with an
/// error, for NULL and for other samplers. To get the sampler from a chain, call
/// llama_sampler_chain_get.
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_of_sampler(smpl: *mut llama_sampler) -> *mut Handle {
    made("llama_sieve_of_sampler", || {
        usable("the sampler", smpl)?;
        // SAFETY: not NULL, and the caller guarantees the sampler; the vtable is compared before
        // the contents are used.
        let shared = unsafe {
            if !SIEVE.is_of(smpl) {
                let text = "the sampler is no sieve: make it with llama_sieve_init_sampler";
                return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
            }
            SIEVE.shared_of::<InChain>(smpl)
        };
        let handle = shared.and_then(|shared| shared.downcast::<Handle>().ok());
        let handle = handle
            .ok_or_else(|| Failure::new(LLAMA_SIEVE_ERROR_INVALID, "the sampler is out of use"))?;
        // The sampler keeps the handle alive.
        Ok(Arc::as_ptr(&handle).cast_mut())
    })
}

/// A sieve in a sampler, protected by the lock of a [`Handle`], through which C functions can use
/// it as well.
///
/// If the sieve fails, such as when every logit is minus infinity, the first candidate with the
/// largest logit is selected, since a host aborts if no candidate is selected.
#[derive(Debug)]
pub struct InChain(Arc<Handle>);

impl InChain {
    fn new(sieve: Option<Sieve>) -> Self {
        Self(Arc::new(Handle::of_chain(sieve)))
    }

    /// Runs `body` on the sieve. A failure becomes the last error. A panic passes to the caller.
    fn run(&self, body: impl FnOnce(&mut Sieve)) {
        let done = self.0.enter().and_then(|mut state| state.change(body));
        if let Err(failure) = done {
            tell(&failure);
        }
    }
}

fn tell(failure: &Failure) {
    last_error::set(failure.code(), &format!("sieve: {}", failure.text()));
}

impl Clone for InChain {
    fn clone(&self) -> Self {
        Self::new(self.0.copied().unwrap_or_else(|failure| {
            tell(&failure);
            None
        }))
    }

    /// Copies into the same handle, since C may have a pointer to it.
    fn clone_from(&mut self, source: &Self) {
        let copy = source.0.copied();
        let done = copy.and_then(|copy| self.0.lock().map(|mut state| state.sieve = copy));
        if let Err(failure) = done {
            tell(&failure);
        }
    }
}

impl Drop for InChain {
    fn drop(&mut self) {
        if self.0.lock().is_err() {
            log::error(
                LLAMA_SIEVE_ERROR_BUSY,
                "free: the sieve of the sampler is in use by another thread; its memory is leaked, \
                 not pulled away",
            );
            mem::forget(Arc::clone(&self.0));
        }
    }
}

impl Sampler for InChain {
    const KIND: Kind = Kind::Selector;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"sieve"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let done = self.0.enter().and_then(|mut state| {
            let sample = |sieve: &mut Sieve| sieve.sample_candidates(candidates);
            let done = state.change(sample)?.map_err(Failure::from);
            state.note(&done);
            done
        });
        if let Err(failure) = done {
            tell(&failure);
            let best = candidates.argmax();
            candidates.select(best);
        }
    }

    fn accept(&mut self, token: Token) {
        self.run(|sieve| sieve.accept(token));
    }

    fn reset(&mut self) {
        self.run(Sieve::reset);
    }

    fn shared(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        Some(Arc::clone(&self.0) as Arc<dyn Any + Send + Sync>)
    }

    fn seed(&self) -> Option<u32> {
        let state = self.0.enter().ok()?;
        Some(state.sieve().ok()?.seed() as u32)
    }
}
