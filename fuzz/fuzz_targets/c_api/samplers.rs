//! Samplers of the host's, ours and built-in ones: making, cloning, copying, applying, freeing.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use llama_sieve::TokenData;
use llama_sieve::ffi::attach::{llama_sieve_attach, llama_sieve_detach};
use llama_sieve::ffi::bans::llama_sieve_ban_rewind;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;
use llama_sieve::ffi::trace::llama_sieve_trace;
use llama_sieve::ffi::trie::handles::*;
use vendor_llama_cpp::sys;

use crate::answers::assert_reason;
use crate::calls::{Array, Call, Wrong};
use crate::certify::certify;
use crate::tries::unbind;
use crate::{MOST_OBJECTS, Smp, World};

/// A byte whose address is the user pointer of the callbacks for the log and for traces.
static LOG: u8 = 0;

/// Receives a line of a trace, and checks that it begins and ends like a JSON object with a kind.
unsafe extern "C" fn told(json: *const c_char, len: usize, user: *mut c_void) {
    assert!(user.cast_const() == (&raw const LOG).cast());
    // SAFETY: the library gives that many bytes.
    let line = unsafe { std::slice::from_raw_parts(json.cast::<u8>(), len) };
    let line = std::str::from_utf8(line).expect("UTF-8");
    assert!(
        line.starts_with("{\"kind\":\"") && line.ends_with('}'),
        "{line}"
    );
}

fn trace(null: bool, options: u8) {
    let all = [
        c"",
        c"n=0",
        c"n=100,text=off",
        c" n = 3 ,",
        c"n=101",
        c"n",
        c"text=maybe",
    ];
    let options = all[options as usize % all.len()];
    let known = all[..4].contains(&options);
    let callback = (!null).then_some(told as unsafe extern "C" fn(_, _, _));
    // SAFETY: NULL, or a function that takes this pointer; a string.
    let code =
        unsafe { llama_sieve_trace(callback, &raw const LOG as *mut c_void, options.as_ptr()) };
    assert_eq!(
        code,
        if known {
            LLAMA_SIEVE_OK
        } else {
            LLAMA_SIEVE_ERROR_PARAMS
        }
    );
    if !known {
        assert_reason();
    }
}

/// Receives a message, checks its text and level, and calls the library from within the callback.
unsafe extern "C" fn heard(level: c_int, text: *const c_char, user: *mut c_void) {
    assert!(user.cast_const() == (&raw const LOG).cast());
    let levels = [
        LLAMA_SIEVE_LOG_INFO,
        LLAMA_SIEVE_LOG_WARN,
        LLAMA_SIEVE_LOG_ERROR,
    ];
    assert!(levels.contains(&level), "{level}");
    // SAFETY: the library gives a C string.
    let text = unsafe { CStr::from_ptr(text) };
    let text = text.to_str().expect("UTF-8");
    assert!(
        !text.is_empty() && !text.contains("internal error"),
        "{text}"
    );
    assert!(!llama_sieve_last_error().is_null());
}

impl World {
    /// Makes a call.
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call(&mut self, call: &Call) {
        // SAFETY: the objects live, arrays are as long as the calls expect, and strings end.
        unsafe {
            match call {
                Call::Make(maker) if self.samplers.len() < MOST_OBJECTS => self.make(maker),
                Call::Chain(members) if self.samplers.len() < MOST_OBJECTS => self.chain(members),
                Call::Make(_) | Call::Chain(_) => {}
                Call::Apply { which, array } => self.apply(*which, array),
                Call::Accept { which, token } => {
                    let smpl = self.smp(*which);
                    if !smpl.is_null() {
                        sys::llama_sampler_accept(smpl.cast(), token.0);
                    }
                }
                Call::Reset(which) => {
                    let smpl = self.smp(*which);
                    if !smpl.is_null() {
                        sys::llama_sampler_reset(smpl.cast());
                    }
                }
                Call::Clone(which) => self.clone_sampler(*which),
                Call::Copy { from, to } => {
                    let (from, to) = (self.smp(*from), self.smp(*to));
                    // The host aborts when asked to copy between samplers of different kinds.
                    if !from.is_null() && !to.is_null() && (*from).iface == (*to).iface {
                        let name = |smpl: *mut llama_sampler| {
                            CStr::from_ptr(sys::llama_sampler_name(smpl.cast()))
                        };
                        if name(from) != c"chain" {
                            sys::llama_sampler_copy(from.cast(), to.cast());
                        }
                    }
                }
                Call::Free(which) => self.free_sampler(*which),
                Call::Seed(which) => {
                    llama_sieve_get_seed(self.smp(*which));
                    llama_sieve_ban_rewind(self.smp(*which));
                }
                Call::Library => {
                    assert!(!llama_sieve_version().is_null() && !llama_sieve_simd().is_null());
                    assert!(!llama_sieve_host_profile().is_null());
                    assert_eq!(llama_sieve_detach(), LLAMA_SIEVE_OK);
                    assert_eq!(llama_sieve_attach(1), LLAMA_SIEVE_ERROR_PARAMS);
                    assert_reason();
                    assert_eq!(llama_sieve_bind_host(null_mut()), LLAMA_SIEVE_ERROR_NULL);
                    assert_reason();
                }
                Call::LogSet { null } => self.log_set(*null),
                Call::Trace { null, options } => trace(*null, *options),
                Call::Certify(name) => certify(name),
                other => self.call_trie(other),
            }
        }
    }

    fn log_set(&mut self, null: bool) {
        // SAFETY: NULL, or a function that takes this pointer.
        unsafe {
            match null {
                true => {
                    llama_sieve_log_set(None, &raw const LOG as *mut c_void);
                    // Silences the messages again for the rest of the calls.
                    llama_sieve_fuzz::silence();
                }
                false => llama_sieve_log_set(Some(heard), &raw const LOG as *mut c_void),
            }
        }
        self.hears = !null;
    }

    /// Clones a sampler, and keeps the clone.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn clone_sampler(&mut self, which: u8) {
        let ptr = self.smp(which);
        let Some(smp) = self.samplers.iter().find(|smp| smp.ptr == ptr) else {
            return;
        };
        if self.samplers.len() >= MOST_OBJECTS {
            return;
        }
        // SAFETY: it lives.
        let copy = unsafe { sys::llama_sampler_clone(ptr.cast()) };
        assert!(!copy.is_null());
        let copy = Smp {
            ptr: copy.cast(),
            ..*smp
        };
        self.samplers.push(copy);
    }

    /// Frees a sampler, and checks that its handles are refused afterwards.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn free_sampler(&mut self, which: u8) {
        let ptr = self.smp(which);
        self.samplers.retain(|smp| smp.ptr != ptr);
        // SAFETY: it lived, and is not used any more. NULL is allowed by the host.
        unsafe { sys::llama_sampler_free(ptr.cast()) };
        let gone: Vec<usize> = self
            .bound
            .iter()
            .filter(|(_, bound)| **bound == ptr)
            .map(|(&handle, _)| handle)
            .collect();
        for handle in gone {
            // The handle is still known, but its sampler has been freed.
            eliza_inference_clear_token_trie(handle as *mut c_void);
            assert_reason();
            self.bound.remove(&handle);
            unbind(&handle);
        }
    }

    /// Applies a sampler to an array, and checks the result.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn apply(&mut self, which: u8, array: &Array) {
        let ptr = self.smp(which);
        let Some(smp) = self.samplers.iter().find(|smp| smp.ptr == ptr) else {
            return;
        };
        let logits = array.logits.iter().take(200).enumerate();
        let mut data: Vec<TokenData> = logits
            .map(|(i, logit)| {
                let id = i32::from(array.first_id) + i as i32 * i32::from(array.step.max(1));
                TokenData::new(id, logit.value())
            })
            .collect();
        let n = data.len();
        let mut raw = sys::llama_token_data_array {
            data: data.as_mut_ptr().cast(),
            size: n,
            selected: i64::from(array.selected),
            sorted: array.sorted,
        };
        let selected = raw.selected;
        match array.wrong {
            Wrong::NullArray if smp.is_ours => {
                // SAFETY: our samplers accept NULL, which the host passes on.
                unsafe { sys::llama_sampler_apply(ptr.cast(), null_mut()) };
                return assert_reason();
            }
            Wrong::NullData if smp.is_ours && n > 0 => raw.data = null_mut(),
            Wrong::HugeSize if smp.is_ours => raw.size = usize::MAX,
            // The built-in samplers rely on the host for a non-empty array.
            _ if n == 0 && !smp.is_ours => return,
            _ => {}
        }
        let (size, wrong) = (raw.size, raw.data.is_null() || raw.size > n);
        // SAFETY: the sampler lives; ours check the array, and the others get a good one.
        unsafe { sys::llama_sampler_apply(ptr.cast(), &raw mut raw) };
        if wrong && n > 0 {
            assert_reason();
            assert_eq!((raw.size, raw.selected), (size, selected));
            return;
        }
        if raw.size > n {
            return assert!(wrong);
        }
        assert!(raw.size > 0 || n == 0);
    }
}
