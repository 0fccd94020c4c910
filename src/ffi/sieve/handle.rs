//! `struct llama_sieve`: the sieve with its lock.

use std::borrow::Cow;
use std::mem;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::errors::LLAMA_SIEVE_ERROR_BUSY;
use crate::ffi::failure::{Failure, usable};
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::llama_logit_bias;
use crate::sieve::Sieve;
use crate::token::Token;

/// A sampler of one sequence over raw logits. It is made by llama_sieve_new or llama_sieve_clone
/// and owned by the caller, unless it comes from llama_sieve_of_sampler. One thread may use it at a
/// time: a second one gets LLAMA_SIEVE_ERROR_BUSY.
#[derive(Debug)]
pub struct Handle {
    state: Mutex<State>,
    /// True if a sampler of a chain owns the sieve.
    pub(super) in_chain: bool,
}

/// The data that the lock protects.
#[derive(Debug)]
pub(super) struct State {
    /// The sieve; `None` after a call that panicked.
    pub sieve: Option<Sieve>,
    /// The error of the last call that sampled; empty if it returned a token.
    pub error: Cow<'static, str>,
    /// The biases that `llama_sieve_get_params` points to.
    pub biases: Vec<llama_logit_bias>,
}

/// The longest time that a copy waits while another thread uses the sieve. It is more than any call
/// takes.
const PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 10 });

impl Handle {
    fn new(sieve: Option<Sieve>, in_chain: bool) -> Self {
        Self {
            state: Mutex::new(State {
                sieve,
                error: Cow::Borrowed(""),
                biases: Vec::new(),
            }),
            in_chain,
        }
    }

    pub(super) fn boxed(sieve: Sieve) -> *mut Self {
        Box::into_raw(Box::new(Self::new(Some(sieve), false)))
    }

    /// Returns a handle that a sampler of a chain owns.
    pub(super) fn of_chain(sieve: Option<Sieve>) -> Self {
        Self::new(sieve, true)
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, State>, Failure> {
        self.state.try_lock().ok_or_else(busy)
    }

    /// Locks the sieve, as a call on another thread would.
    #[cfg(test)]
    pub(in crate::ffi) fn take_for_a_test(&self) -> impl Drop + '_ {
        self.state.lock()
    }

    pub(super) fn enter(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.lock()?;
        if state.sieve.is_none() {
            return Err(out_of_use());
        }
        Ok(state)
    }

    /// Returns a copy of the sieve and its state; `None` if an internal error has disabled it.
    /// Waits while another thread uses the sieve, and returns an error after [`PATIENCE`].
    pub(super) fn copied(&self) -> Result<Option<Sieve>, Failure> {
        let state = self.state.try_lock_for(PATIENCE).ok_or_else(busy)?;
        Ok(state.sieve.clone())
    }
}

impl State {
    /// Returns the sieve, whose presence [`Handle::enter`] has checked.
    pub(super) fn sieve(&self) -> Result<&Sieve, Failure> {
        self.sieve.as_ref().ok_or_else(out_of_use)
    }

    /// Runs `body` on the sieve. A panic disables the sieve, since it may be inconsistent.
    pub(super) fn change<T>(&mut self, body: impl FnOnce(&mut Sieve) -> T) -> Result<T, Failure> {
        /// A guard that empties the slot when dropped, unless it is forgotten.
        struct Emptied<'a>(&'a mut Option<Sieve>);
        impl Drop for Emptied<'_> {
            fn drop(&mut self) {
                *self.0 = None;
            }
        }
        let place = Emptied(&mut self.sieve);
        let done = place.0.as_mut().map(body).ok_or_else(out_of_use);
        mem::forget(place);
        done
    }

    /// Keeps the error of a call that sampled. Clears it if the call returned a token.
    pub(super) fn note<T>(&mut self, result: &Result<T, Failure>) {
        let Err(failure) = result else {
            self.error = Cow::Borrowed("");
            return;
        };
        let text = failure.told();
        let mut copy = String::new();
        self.error = match copy.try_reserve_exact(text.len()) {
            Ok(()) => {
                copy.push_str(&text);
                Cow::Owned(copy)
            }
            Err(_) => Cow::Borrowed("not enough memory"),
        };
    }
}

fn busy() -> Failure {
    let text = "the sieve is in use by another thread, or twice in one call; give each its own (llama_sieve_clone)";
    Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
}

/// Returns a reference to the handle that `sieve` points to, or an error if the pointer is NULL or
/// misaligned.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn handle<'a>(sieve: *const Handle) -> Result<&'a Handle, Failure> {
    usable("the sieve", sieve)?;
    // SAFETY: not NULL, and the caller guarantees that it is alive; its state is behind a lock.
    Ok(unsafe { &*sieve })
}

/// Locks the sieve that `sieve` points to. Returns an error if the pointer is NULL or misaligned,
/// or if the sieve is in use or disabled.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn entered<'a>(sieve: *const Handle) -> Result<MutexGuard<'a, State>, Failure> {
    // SAFETY: the caller guarantees it.
    unsafe { handle(sieve) }?.enter()
}

pub(super) fn out_of_use() -> Failure {
    let text = "the sieve failed earlier and is out of use; make a new one";
    Failure::new(LLAMA_SIEVE_ERROR_BUSY, text)
}

/// Runs `body`, which only reads the sieve. The sieve stays usable after a panic.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn look<T>(
    sieve: *const Handle,
    body: impl FnOnce(&Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let state = unsafe { entered(sieve) }?;
    body(state.sieve()?)
}

/// Runs `body` on the sieve. A panic disables the sieve, since it may be inconsistent.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn with<T>(
    sieve: *const Handle,
    body: impl FnOnce(&mut Sieve) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    unsafe { entered(sieve) }?.change(body)?
}

/// Runs `body`, which samples a token, as [`with`] does, and keeps the error of `body` for
/// llama_sieve_error.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(super) unsafe fn sampled(
    function: &str,
    sieve: *const Handle,
    body: impl FnOnce(&mut Sieve) -> Result<Token, Failure>,
) -> Result<Token, Failure> {
    // SAFETY: the caller guarantees the sieve.
    let mut state = unsafe { entered(sieve) }?;
    let caught = || Err(Failure::caught());
    let token = guard(function, caught, || state.change(body)?);
    state.note(&token);
    token
}
