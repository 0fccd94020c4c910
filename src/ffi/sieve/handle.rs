//! `struct llama_sieve`: the sieve behind its lock.

use parking_lot::{Mutex, MutexGuard};

use crate::ffi::errors::LLAMA_SIEVE_ERROR_BUSY;
use crate::ffi::failure::{Failure, usable};
use crate::ffi::guard::guard;
use crate::sieve::Sieve;

/// A sampler of one sequence over raw logits. Made by llama_sieve_new, owned by the caller, used by
/// one thread at a time: a second one gets LLAMA_SIEVE_ERROR_BUSY.
#[derive(Debug)]
pub struct Handle {
    /// None after a call that panicked.
    state: Mutex<Option<Sieve>>,
}

impl Handle {
    pub(super) fn boxed(sieve: Sieve) -> *mut Self {
        Box::into_raw(Box::new(Self {
            state: Mutex::new(Some(sieve)),
        }))
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, Option<Sieve>>, Failure> {
        self.state.try_lock().ok_or_else(|| {
            let text = "the sieve is in use by another thread, or twice in one call; give each its own (llama_sieve_clone)";
            Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
        })
    }

    /// As another thread would have it that uses it.
    #[cfg(test)]
    pub(in crate::ffi) fn take_for_a_test(&self) -> impl Drop + '_ {
        self.state.lock()
    }

    pub(super) fn enter(&self) -> Result<MutexGuard<'_, Option<Sieve>>, Failure> {
        let state = self.lock()?;
        if state.is_none() {
            return Err(out_of_use());
        }
        Ok(state)
    }
}

/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn handle<'a>(sieve: *const Handle) -> Result<&'a Handle, Failure> {
    usable("the sieve", sieve)?;
    // SAFETY: not NULL, and the caller guarantees that it is alive; its state is behind a lock.
    Ok(unsafe { &*sieve })
}

/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn entered<'a>(
    sieve: *const Handle,
) -> Result<MutexGuard<'a, Option<Sieve>>, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(sieve) }?.enter()
}

pub(super) fn out_of_use() -> Failure {
    let text = "the sieve failed earlier and is out of use; make a new one";
    Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
}

/// Lets `body` look at the sieve, which stays in use whatever comes of that.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn look<T>(
    function: &str,
    sieve: *const Handle,
    body: impl FnOnce(&Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let state = unsafe { entered(sieve) }?;
    let inner = state.as_ref().ok_or_else(out_of_use)?;
    guard(function, || Err(Failure::caught()), || body(inner))
}

/// Runs `body` on the sieve. After a panic the sieve is out of use: what it holds may be
/// inconsistent.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn with<T>(
    function: &str,
    sieve: *const Handle,
    body: impl FnOnce(&mut Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let mut state = unsafe { entered(sieve) }?;
    let inner = state.as_mut().ok_or_else(out_of_use)?;
    match guard(function, || None, || Some(body(inner))) {
        Some(result) => result,
        None => {
            guard(function, || (), || *state = None);
            Err(Failure::caught())
        }
    }
}
