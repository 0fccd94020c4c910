//! Attaches this library to a running process, and detaches it, for `llama_sieve_attach` and
//! `llama_sieve_detach` of libllama_sieve.
//!
//! When this library is loaded by `dlopen`, no calls are bound to its names. So the imports of
//! other modules are pointed at the stand-ins, which are this library's functions with the host's
//! names (see `slots`). They decide as they do under LD_PRELOAD. Detaching restores most imports.
//! The stand-ins stay in memory, pass all new calls on to the host, and still recognise live
//! samplers.
//!
//! If a call's queries are answered one by one, the stand-ins must not disappear in the middle of
//! the call. So detaching first passes all new calls on to the host, and waits for the calls that
//! are running.

use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use llama_sieve::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_INTERNAL};
use llama_sieve::ffi::failure::Failure;
use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::library::llama_sieve_last_error;
use llama_sieve::last_error;

use crate::budget;
use crate::calls;
use crate::host_constructors::comes_first;
use crate::presence::introduce;
use crate::settings::say;
use crate::slots::{self, Bent};
use crate::vocabularies;

/// The time to wait for other threads.
const PATIENCE: Duration = Duration::from_secs(2);

struct Attached {
    is_attached: bool,
    bent: Vec<Bent>,
}

static ATTACHED: Mutex<Attached> = Mutex::new(Attached {
    is_attached: false,
    bent: Vec::new(),
});

/// Locks the record of the redirected imports. Fails if another thread holds the lock for longer
/// than [`PATIENCE`]. In a forked child, the lock is never released if another thread of the parent
/// held it during the fork.
fn attached() -> Result<MutexGuard<'static, Attached>, Failure> {
    let started = Instant::now();
    loop {
        match ATTACHED.try_lock() {
            Ok(attached) => return Ok(attached),
            Err(TryLockError::Poisoned(attached)) => return Ok(attached.into_inner()),
            Err(TryLockError::WouldBlock) if started.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => {
                let text = "another thread attaches or detaches, or did so in the parent when this \
                            process was forked";
                return Err(Failure::new(LLAMA_SIEVE_ERROR_BUSY, text));
            }
        }
    }
}

fn attach() -> Result<usize, Failure> {
    introduce();
    if comes_first() {
        say(format_args!(
            "attach(): nothing, as by LD_PRELOAD all is bound to ours"
        ));
        return Ok(0);
    }
    let mut attached = attached()?;
    let were_aside = slots::are_aside();
    if !attached.is_attached {
        // Until all imports are redirected, no sampler is this library's.
        slots::step_aside(true);
    }
    let count = slots::bend(&mut attached.bent);
    match count {
        Ok(count) => {
            attached.is_attached = true;
            slots::step_aside(false);
            say(format_args!("attach(): {count} imports"));
        }
        Err(_) => slots::step_aside(were_aside),
    }
    count
}

fn detach() -> Result<usize, Failure> {
    let mut attached = attached()?;
    if !attached.is_attached {
        return Ok(0);
    }
    let busy = |text| Failure::new(LLAMA_SIEVE_ERROR_BUSY, text);
    if calls::is_inside() {
        return Err(busy("this thread is inside a call that samples"));
    }
    slots::step_aside(true);
    let unbent = match calls::all_are_over(PATIENCE) {
        true => slots::unbend(&mut attached.bent),
        false => Err(busy(
            "a thread is inside a call that samples and does not come out of it, or was so in the \
             parent when this process was forked",
        )),
    };
    match &unbent {
        Ok(count) => {
            attached.is_attached = false;
            budget::forget_all();
            vocabularies::forget_all();
            say(format_args!("detach(): {count} imports"));
        }
        Err(_) => slots::step_aside(false),
    }
    unbent
}

/// Returns the number that `body` returns, or its negative error code. After a failure, `error`
/// receives a text for the caller.
///
/// # Safety
/// `error` is valid for writing a pointer.
unsafe fn answer(
    call: &str,
    error: *mut *const c_char,
    body: impl FnOnce() -> Result<usize, Failure>,
) -> c_int {
    let code = guard(
        call,
        || LLAMA_SIEVE_ERROR_INTERNAL,
        || match body() {
            Ok(count) => c_int::try_from(count).unwrap_or(c_int::MAX),
            Err(failure) => {
                last_error::set(failure.code(), &failure.told());
                failure.code()
            }
        },
    );
    if code < 0 {
        // SAFETY: the caller guarantees the place.
        unsafe { error.write(llama_sieve_last_error()) };
    }
    code
}

/// Points the imports of the process at the stand-ins. Returns the number of imports that were not
/// yet pointed there, or a negative error code. After a failure, `error` receives a text, which is
/// valid until this thread's next call of llama-sieve.
///
/// # Safety
/// `error` is valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_preload_attach(error: *mut *const c_char) -> c_int {
    // SAFETY: the caller guarantees the place.
    unsafe { answer("llama_sieve_attach", error, attach) }
}

/// Restores the imports. Returns their number, or a negative error code. After a failure, `error`
/// receives a text, as from [`llama_sieve_preload_attach`].
///
/// # Safety
/// `error` is valid for writing a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_preload_detach(error: *mut *const c_char) -> c_int {
    // SAFETY: the caller guarantees the place.
    unsafe { answer("llama_sieve_detach", error, detach) }
}
