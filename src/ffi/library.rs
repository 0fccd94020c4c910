//! The library itself: version, instruction set, last error, log and host binding.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null};
use std::sync::Arc;
use std::thread::LocalKey;

pub use crate::errors::*;
use crate::ffi::failure::{Failure, answer};
use crate::ffi::guard::guard;
use crate::ffi::host::{Host, profile};
use crate::host_profile::HostProfile;
use crate::last_error;
use crate::log::{self, Level};
use crate::per_thread::PerThread;
use crate::simd;

/// The level of an informational message; the numbers are those of enum ggml_log_level.
pub const LLAMA_SIEVE_LOG_INFO: c_int = 2;
/// The level of a warning.
pub const LLAMA_SIEVE_LOG_WARN: c_int = 3;
/// The level of an error.
pub const LLAMA_SIEVE_LOG_ERROR: c_int = 4;

/// A function that receives log messages. Its arguments are the level (LLAMA_SIEVE_LOG_*), the text
/// without a line end (valid during the call), and the pointer that was registered with it. It is
/// called from any thread that uses the library, at the end of the call that led to the message.
/// The library then holds no lock, and the objects of that call may be used.
#[allow(non_camel_case_types)]
pub type llama_sieve_log_callback =
    Option<unsafe extern "C" fn(level: c_int, text: *const c_char, user: *mut c_void)>;

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version contains a NUL"),
    };

/// The part of this header's version that changes when a C name is removed or changes its meaning.
pub const LLAMA_SIEVE_VERSION_MAJOR: c_int = 0;
/// The part of the version that changes when a feature is added.
pub const LLAMA_SIEVE_VERSION_MINOR: c_int = 2;
/// The part of the version that changes when a fault is fixed.
pub const LLAMA_SIEVE_VERSION_PATCH: c_int = 0;
/// The whole version as a number, to be compared by the preprocessor: major * 10000 + minor * 100 +
/// patch. The loaded library may have another version: see llama_sieve_version.
pub const LLAMA_SIEVE_VERSION_NUMBER: c_int = 200;

const _: () = {
    let [major, minor, patch] = [
        number(env!("CARGO_PKG_VERSION_MAJOR")),
        number(env!("CARGO_PKG_VERSION_MINOR")),
        number(env!("CARGO_PKG_VERSION_PATCH")),
    ];
    assert!(LLAMA_SIEVE_VERSION_MAJOR == major);
    assert!(LLAMA_SIEVE_VERSION_MINOR == minor);
    assert!(LLAMA_SIEVE_VERSION_PATCH == patch);
    assert!(LLAMA_SIEVE_VERSION_NUMBER == major * 10_000 + minor * 100 + patch);
};

/// Returns the number with these decimal digits.
#[expect(clippy::panic, reason = "while the library is compiled")]
const fn number(digits: &str) -> c_int {
    match c_int::from_str_radix(digits, 10) {
        Ok(number) => number,
        Err(_) => panic!("the version is no number"),
    }
}

/// Returns the version of the library, "major.minor.patch". Never NULL, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_version() -> *const c_char {
    guard("llama_sieve_version", || c"".as_ptr(), || VERSION.as_ptr())
}

/// Returns the instruction set that the samplers use on this machine: "avx512", "avx2", "neon" or
/// "scalar". If the C library of this process is called for some of expf, exp and logf, because the
/// instruction set would give other bits, ", scalar" and their names follow: "avx512, scalar expf
/// exp logf" on Windows. Never NULL, valid forever.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_simd() -> *const c_char {
    guard(
        "llama_sieve_simd",
        || c"".as_ptr(),
        || simd::instruction_set().as_ptr(),
    )
}

/// Returns the arithmetic of the bound host where builds of llama.cpp differ, in the notation of
/// LLAMA_SIEVE_PROFILE: "sort=libstdc++ one-candidate-draw=dist libm=process fusion=none". The
/// profile is found by running the host's samplers, and then kept. Without a host it is that of a
/// build with libstdc++ and without fused operations. Returns "" after an internal error. Never
/// NULL; valid until this thread calls this function again. An exception that the host throws
/// passes through.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_host_profile() -> *const c_char {
    const NAME: &str = "llama_sieve_host_profile";
    thread_local! {
        static SHOWN: Shown = const { Shown::new() };
    }
    let found = || {
        // This call binds a host, if there is one.
        let _ = Host::get();
        true
    };
    let known = guard(NAME, || false, found) && profile::settle_by_itself().is_some();
    let text = || {
        let shown = show(&SHOWN, &HostProfile::current().to_string());
        (known && !shown.is_null()).then_some(shown)
    };
    guard(NAME, || None, text).unwrap_or(c"".as_ptr())
}

/// Returns the text of the last error on this thread, either of a failed call or of a problem in a
/// sampler; "" if there was none. Some functions clear it when they begin, so that afterwards it is
/// about that call alone: constructors, clones, functions that return an error number (also those
/// that return a token or a count on success, but not llama_sieve_grammar_error), and
/// eliza_inference_*. The others, such as the calls that a host makes per token, keep it unless
/// something goes wrong. Never NULL; valid until this thread calls this function again. Call it in
/// a statement of its own: the arguments of one call are evaluated in any order.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_last_error() -> *const c_char {
    thread_local! {
        static SHOWN: Shown = const { Shown::new() };
    }
    guard(
        "llama_sieve_last_error",
        || c"".as_ptr(),
        || {
            if let Some(text) = last_error::fixed() {
                return text.as_ptr();
            }
            match last_error::with(|text| show(&SHOWN, text)) {
                None => c"".as_ptr(),
                Some(shown) if shown.is_null() => last_error::NO_MEMORY.as_ptr(),
                Some(shown) => shown,
            }
        },
    )
}

/// Returns the number of the error whose text llama_sieve_last_error returns: the
/// LLAMA_SIEVE_ERROR_* that the call returned, or would return if it returned numbers;
/// LLAMA_SIEVE_CERTIFY_* after llama_sieve_certify. LLAMA_SIEVE_OK if nothing went wrong, and for a
/// warning of a call that succeeded.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_last_error_code() -> c_int {
    guard("llama_sieve_last_error_code", || 0, last_error::code)
}

/// A text to which the caller of a C function has a pointer.
pub(super) type Shown = PerThread<RefCell<Vec<u8>>>;

/// Returns a pointer to a copy of `text` that `place` keeps until the next call. Returns NULL if
/// there is too little memory.
pub(super) fn show(place: &'static LocalKey<Shown>, text: &str) -> *const c_char {
    let shown = PerThread::with(place, |place| {
        let mut shown = place.borrow_mut();
        shown.clear();
        shown.try_reserve(text.len() + 1).ok()?;
        // A text for C cannot have NUL in it.
        shown.extend(text.bytes().filter(|&byte| byte != 0));
        shown.push(0);
        Some(shown.as_ptr().cast())
    });
    shown.flatten().unwrap_or(null())
}

/// Returns a text for C, without NUL in it.
fn c_string(mut text: String) -> CString {
    text.retain(|c| c != '\0');
    CString::new(text).unwrap_or_default()
}

/// Sends log messages to `callback` with `user`, from now on and from all threads. NULL restores
/// the default, which is stderr.
///
/// The callback may call the library. A message that such a call leads to is not delivered, but a
/// warning or error is the last error until the callback returns. The callback must not throw or
/// long-jump. When this function returns, no earlier callback is still running, and its `user` may
/// be freed. So do not call the function while holding a lock that the callback takes. Within a
/// callback it returns at once, and earlier callbacks may run until a later call from outside has
/// returned.
///
/// # Safety
/// `callback` is NULL or a function as described, and `user` is a pointer that it accepts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_log_set(
    callback: llama_sieve_log_callback,
    user: *mut c_void,
) {
    guard(
        "llama_sieve_log_set",
        || (),
        || {
            let Some(callback) = callback else {
                return log::set_sink(None);
            };
            let user = User(user);
            log::set_sink(Some(Arc::new(move |level: Level, text: &str| {
                let user = &user;
                let text = c_string(text.to_owned());
                // SAFETY: the caller of llama_sieve_log_set guarantees the callback; the text is a
                // C string during the call.
                unsafe { callback(level as c_int, text.as_ptr(), user.0) }
            })));
        },
    )
}

/// The pointer that a log callback was registered with.
struct User(*mut c_void);
// SAFETY: the pointer is only passed to the callback, which is documented to be called from any
// thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

/// Sets the llama.cpp that the library uses: `dl_handle` is what dlopen returned for libllama. Only
/// needed if the library cannot find it by itself, or if a process holds several. Existing samplers
/// keep the host that they were made with, but use the arithmetic of the host that was bound last
/// (llama_sieve_host_profile).
///
/// Returns LLAMA_SIEVE_OK, LLAMA_SIEVE_ERROR_NULL for a NULL handle, or LLAMA_SIEVE_ERROR_NO_HOST
/// if that library does not export llama_sampler_init. After an error the host is unchanged.
///
/// # Safety
/// `dl_handle` is NULL or a live handle from dlopen, which stays open while samplers are made or
/// alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_bind_host(dl_handle: *mut c_void) -> c_int {
    answer("llama_sieve_bind_host", || {
        let Some(handle) = NonNull::new(dl_handle) else {
            let text = "the handle is NULL; pass what dlopen gave for libllama";
            return Err(Failure::new(LLAMA_SIEVE_ERROR_NULL, text));
        };
        // SAFETY: the caller guarantees the handle.
        unsafe { Host::bind(handle) }.map_err(Failure::no_host)
    })
}
