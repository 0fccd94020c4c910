//! Token tries: by sampler, by handle, and their cache.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::trie::handles::*;
use llama_sieve::ffi::trie::*;

use crate::World;
use crate::answers::{assert_answer, assert_reason, last_error};
use crate::calls::{Call, Payload};

impl World {
    /// Makes a call about token tries. Passes any other call on to [`Self::call_metrics`].
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_trie(&mut self, call: &Call) {
        // SAFETY: the objects live, arrays are as long as the calls expect, and strings end.
        unsafe {
            match call {
                Call::TrieSet {
                    which,
                    payload,
                    mode,
                } => self.trie_set(*which, payload, mode.0),
                Call::TrieClear(which) => {
                    let smpl = self.smp(*which);
                    llama_sieve_trie_clear(smpl);
                    if self.is_trie(smpl) {
                        assert!(!llama_sieve_trie_is_active(smpl));
                        assert!(llama_sieve_trie_leaf(smpl).is_null());
                    } else {
                        assert_reason();
                    }
                }
                Call::TrieActivate { which, path } => self.trie_activate(*which, *path),
                Call::Bind { handle, slot } => self.bind(*handle, *slot),
                Call::SetByHandle {
                    handle,
                    payload,
                    mode,
                } => self.set_by_handle(*handle, payload, mode.0),
                Call::ClearByHandle(handle) => {
                    let handle = usize::from(handle % 4);
                    eliza_inference_clear_token_trie(handle as *mut c_void);
                    match self.bound.get(&handle) {
                        Some(smpl) => assert!(!llama_sieve_trie_is_active(*smpl)),
                        None => assert_reason(),
                    }
                }
                Call::CacheStats { null: true } => llama_sieve_trie_cache_stats(null_mut()),
                Call::CacheStats { null: false } => {
                    let mut stats = std::mem::zeroed::<llama_sieve_cache_stats>();
                    llama_sieve_trie_cache_stats(&mut stats);
                    let mut all = std::mem::zeroed::<llama_sieve_trie_stats>();
                    all.struct_size = size_of::<llama_sieve_trie_stats>();
                    assert_eq!(llama_sieve_trie_get_stats(&mut all), LLAMA_SIEVE_OK);
                    assert_eq!((all.hits, all.bytes), (stats.hits, stats.bytes));
                    assert!(all.reordered <= all.hits);
                    assert!(stats.entries <= 128 && stats.misses >= stats.evictions);
                }
                other => self.call_metrics(other),
            }
        }
    }

    pub(crate) fn query(&self, ptr: *mut llama_sampler) -> (bool, Option<String>, usize) {
        let mut out = [-1; 4];
        // SAFETY: NULL or live, and the buffer has room.
        unsafe {
            let active = llama_sieve_trie_is_active(ptr);
            let leaf = llama_sieve_trie_leaf(ptr);
            let leaf =
                (!leaf.is_null()).then(|| CStr::from_ptr(leaf).to_str().expect("UTF-8").to_owned());
            let forced = llama_sieve_trie_forced(ptr, out.as_mut_ptr(), out.len());
            assert_eq!(llama_sieve_trie_forced(ptr, null_mut(), usize::MAX), forced);
            assert!(out[..forced.min(4)].iter().all(|&token| token >= 0));
            assert!(active || forced == 0);
            let allowed = llama_sieve_trie_allowed(ptr, out.as_mut_ptr(), out.len());
            assert_eq!(
                llama_sieve_trie_allowed(ptr, null_mut(), usize::MAX),
                allowed
            );
            assert!(out[..allowed.min(4)].iter().all(|&token| token >= 0));
            assert_eq!(allowed > 0, active);
            if !self.is_trie(ptr) {
                assert!(!active && leaf.is_none());
                assert_reason();
            }
            (active, leaf, forced)
        }
    }

    /// Sets a payload for a trie, and checks that the trie is changed only on success.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn trie_set(&mut self, which: u8, payload: &Payload, mode: i32) {
        let ptr = self.smp(which);
        let before = self.query(ptr);
        let json = payload.bytes();
        let (bytes, len) = json
            .as_ref()
            .map_or((null(), 3), |json| (json.as_ptr(), json.len()));
        // SAFETY: NULL or live, NULL or `len` bytes.
        let answer = unsafe { llama_sieve_trie_set(ptr, bytes.cast(), len, mode_of(mode)) };
        let done = assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_INVALID]);
        assert!(!done || self.is_trie(ptr));
        self.assert_set(ptr, done, before);
    }

    fn assert_set(
        &self,
        ptr: *mut llama_sampler,
        done: bool,
        before: (bool, Option<String>, usize),
    ) {
        let after = self.query(ptr);
        match done {
            true => assert!(after.0 && after.1.is_none()),
            false => assert_eq!(after, before),
        }
    }

    /// Activates a descriptor of a trie, and checks that the trie is changed only on success.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn trie_activate(&mut self, which: u8, path: u8) {
        let ptr = self.smp(which);
        let before = self.query(ptr);
        let path = match path % 4 {
            0 => null(),
            1 => c"path 0".as_ptr(),
            2 => c"path 1".as_ptr(),
            _ => c"\xFF".as_ptr(),
        };
        // SAFETY: NULL or live, NULL or a C string.
        let answer = unsafe { llama_sieve_trie_activate(ptr, path) };
        let errors = [
            LLAMA_SIEVE_ERROR_NULL,
            LLAMA_SIEVE_ERROR_INVALID,
            LLAMA_SIEVE_ERROR_NOT_FOUND,
        ];
        let done = assert_answer(answer, &errors);
        self.assert_set(ptr, done, before);
    }

    /// Binds a handle to a sampler, or unbinds it, and checks the result.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn bind(&mut self, handle: u8, slot: Option<u8>) {
        let handle = usize::from(handle % 4);
        let ptr = slot.map_or(null_mut(), |which| self.smp(which));
        // SAFETY: NULL or live; the handle is never followed.
        let answer = unsafe { eliza_inference_bind_token_trie(handle as *mut c_void, ptr) };
        let errors = [
            LLAMA_SIEVE_ERROR_NULL,
            LLAMA_SIEVE_ERROR_INVALID,
            LLAMA_SIEVE_ERROR_NOT_FOUND,
        ];
        let done = assert_answer(answer, &errors);
        if ptr.is_null() {
            assert_eq!(done, self.bound.remove(&handle).is_some());
            return;
        }
        assert_eq!(done, handle != 0 && self.is_trie(ptr));
        if done {
            self.bound.insert(handle, ptr);
        }
    }

    /// Sets a payload by a handle, and checks that the trie is changed only on success.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn set_by_handle(&mut self, handle: u8, payload: &Payload, mode: i32) {
        let handle = usize::from(handle % 4);
        let json = payload.bytes();
        let (bytes, len) = json
            .as_ref()
            .map_or((null(), usize::MAX), |json| (json.as_ptr(), json.len()));
        let bound = self.bound.get(&handle).copied();
        let before = bound.map(|ptr| self.query(ptr));
        // SAFETY: NULL or `len` bytes; the handle is never followed.
        unsafe {
            eliza_inference_set_token_trie(handle as *mut c_void, bytes.cast(), len, mode_of(mode))
        };
        match (bound, before) {
            (Some(ptr), Some(before)) => {
                let done = last_error().is_empty();
                self.assert_set(ptr, done, before);
            }
            _ => assert_reason(),
        }
    }
}

/// Returns a mode, mostly a valid one.
pub(crate) fn mode_of(mode: i32) -> i32 {
    match mode {
        0..200 => [0, 1, 0x100, 0x101, 0x200, 0x201, 0x300, 0x301][mode as usize % 8],
        _ => mode,
    }
}

/// Unbinds a handle that was bound, and checks that this succeeds.
pub(crate) fn unbind(handle: &usize) -> bool {
    // SAFETY: NULL unbinds the handle, which is never dereferenced.
    let answer = unsafe { eliza_inference_bind_token_trie(*handle as *mut c_void, null_mut()) };
    assert_eq!(answer, LLAMA_SIEVE_OK);
    true
}
