//! Token tries by opaque handle. They are for hosts in which the code that sets a constraint has
//! only the handle of a stream.
//!
//! The registry has weak references to slots. After a slot is freed with its chain, using its
//! handle is an error.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Weak};

use crate::errors::{LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_NOT_FOUND, LLAMA_SIEVE_OK};
use crate::ffi::failure::{Failure, answer};
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::trie::{bytes, set, slot_of};
use crate::last_error;
use crate::log;
use crate::sync::Mutex;
use crate::trie::Slot;

/// Slots by the address of their handle, which is never dereferenced.
pub(crate) struct Registry(Mutex<Slots>);

struct Slots {
    by_handle: BTreeMap<usize, Weak<Slot>>,
    /// The number of slots at which freed slots are removed.
    full: usize,
}

/// The minimum number of slots at which freed slots are removed.
const LEAST_FULL: usize = 64;

static SLOTS: Registry = Registry::new();

impl Registry {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Slots {
            by_handle: BTreeMap::new(),
            full: LEAST_FULL,
        }))
    }

    pub(crate) fn bind(&self, handle: usize, slot: &Arc<Slot>) {
        let mut slots = self.0.lock();
        // Slots may be freed without being unbound. They are removed when the registry has doubled.
        if slots.by_handle.len() >= slots.full {
            slots.by_handle.retain(|_, slot| slot.strong_count() > 0);
            slots.full = LEAST_FULL.max(2 * slots.by_handle.len());
        }
        slots.by_handle.insert(handle, Arc::downgrade(slot));
    }

    /// Removes the handle. Returns true if it was bound.
    pub(crate) fn unbind(&self, handle: usize) -> bool {
        self.0.lock().by_handle.remove(&handle).is_some()
    }

    /// Returns the slot that is bound to `handle`, if it is alive. It stays alive while the caller
    /// holds it, even if the sampler is freed.
    pub(crate) fn get(&self, handle: usize) -> Option<Arc<Slot>> {
        self.0.lock().by_handle.get(&handle).and_then(Weak::upgrade)
    }
}

/// Binds a token trie sampler to an opaque handle, by which it can then be set. The handle is only
/// compared, never dereferenced. `slot` NULL removes the handle. A handle that is already bound is
/// rebound. May be called from any thread.
///
/// The eliza_inference_* names are for hosts whose callers hold only a stream's handle, as
/// elizaOS's local inference does through bun:ffi. All others use llama_sieve_trie_set and _clear.
///
/// Returns LLAMA_SIEVE_OK; LLAMA_SIEVE_ERROR_NULL for a NULL handle; LLAMA_SIEVE_ERROR_NOT_FOUND if
/// a handle to be removed is unknown; LLAMA_SIEVE_ERROR_INVALID if `slot` is not a token trie
/// sampler.
///
/// # Safety
/// `slot` is NULL or a live sampler. It may be freed while it is bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eliza_inference_bind_token_trie(
    handle: *mut c_void,
    slot: *mut llama_sampler,
) -> c_int {
    answer("eliza_inference_bind_token_trie", || {
        // SAFETY: the caller guarantees the sampler.
        unsafe { bind(handle, slot) }
    })
}

/// Sets the constraint of the token trie sampler that is bound to `handle`, like
/// llama_sieve_trie_set. A failure is logged and kept for llama_sieve_last_error. The constraint is
/// then unchanged. May be called from any thread, even while the sampler runs.
///
/// # Safety
/// `json` is NULL or `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eliza_inference_set_token_trie(
    handle: *mut c_void,
    json: *const c_char,
    len: usize,
    mode: c_int,
) {
    aloud("eliza_inference_set_token_trie", || {
        // SAFETY: the caller guarantees the bytes.
        set(&*bound(handle)?, unsafe { bytes(json, len) }?, mode)
    })
}

/// Clears the constraint of the token trie sampler that is bound to `handle`. A failure is logged
/// and kept for llama_sieve_last_error.
#[unsafe(no_mangle)]
pub extern "C" fn eliza_inference_clear_token_trie(handle: *mut c_void) {
    aloud("eliza_inference_clear_token_trie", || {
        bound(handle)?.clear();
        Ok(())
    })
}

/// Runs `body`, and logs its error. It is for functions that return nothing, since their callers
/// may not read the last error.
fn aloud(call: &str, body: impl FnOnce() -> Result<(), Failure>) {
    let number = answer(call, body);
    // A panic was logged by the guard that caught it.
    if number != LLAMA_SIEVE_OK && number != LLAMA_SIEVE_ERROR_INTERNAL {
        guard(call, || (), || log::error(number, &last_error::get()));
    }
}

/// Binds the handle to a slot, or unbinds it if `slot` is NULL.
///
/// # Safety
/// `slot` is NULL or a live sampler.
unsafe fn bind(handle: *mut c_void, slot: *mut llama_sampler) -> Result<(), Failure> {
    let handle = known(handle)?;
    if slot.is_null() {
        return SLOTS.unbind(handle).then_some(()).ok_or_else(unknown);
    }
    // SAFETY: the caller guarantees the sampler.
    let slot = unsafe { slot_of(slot) }?;
    SLOTS.bind(handle, &slot);
    Ok(())
}

fn known(handle: *mut c_void) -> Result<usize, Failure> {
    if handle.is_null() {
        return Err(Failure::null("the handle"));
    }
    Ok(handle.addr())
}

fn unknown() -> Failure {
    let text = "no live token trie sampler is bound to the handle: bind one with eliza_inference_bind_token_trie";
    Failure::new(LLAMA_SIEVE_ERROR_NOT_FOUND, text)
}

fn bound(handle: *mut c_void) -> Result<Arc<Slot>, Failure> {
    SLOTS.get(known(handle)?).ok_or_else(unknown)
}
