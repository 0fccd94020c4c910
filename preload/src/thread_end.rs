//! Registers destructors of thread-local data, for the standard library and other crates, without
//! the dynamic linker's lock.
//!
//! `thread_local!` registers them with the C library's `__cxa_thread_atexit_impl`, which takes that
//! lock: see `llama_sieve::per_thread`. This module defines a hidden symbol of the same name, to
//! which only the calls within this library are bound. The C library's function would also keep
//! this library loaded until its destructors have run; `-z nodelete` does so anyway.

use std::arch::global_asm;
use std::ffi::{c_int, c_void};

use llama_sieve::per_thread::at_end;

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {}"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {}"
    };
}

// A hidden symbol, so that a program does not find it. A Rust function with an unmangled name
// cannot be hidden.
global_asm!(
    ".pushsection .text.thread_end, \"ax\"",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl, %function",
    "__cxa_thread_atexit_impl:",
    jump!(),
    ".size __cxa_thread_atexit_impl, . - __cxa_thread_atexit_impl",
    ".popsection",
    sym register,
);

/// Registers the destructor `end` of the data `of` on this thread.
///
/// # Safety
/// When the thread ends, `of` is still valid for `end`.
unsafe extern "C" fn register(
    end: unsafe extern "C" fn(*mut c_void),
    of: *mut c_void,
    _library: *mut c_void,
) -> c_int {
    // SAFETY: the caller guarantees it.
    unsafe { at_end(end, of) };
    0
}
