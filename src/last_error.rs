//! The last error of each thread, as a text and a number.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_int};

use crate::errors::LLAMA_SIEVE_ERROR_INTERNAL;
use crate::per_thread::PerThread;

/// The error text if there is not enough memory for any other text.
pub const NO_MEMORY: &CStr = c"llama-sieve: not enough memory";

thread_local! {
    static CODE: Cell<c_int> = const { Cell::new(0) };
    /// A text that needs no memory. If it is set, it takes precedence over `TEXT`.
    static FIXED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
    static TEXT: PerThread<RefCell<String>> = const { PerThread::new() };
}

/// Keeps the number and text of an error, until another error or warning replaces them or [`clear`]
/// is called.
pub fn set(code: c_int, text: &str) {
    keep(code, text);
}

/// Keeps the text of a warning about a call that has succeeded. The error number becomes 0.
pub fn set_warning(text: &str) {
    keep(0, text);
}

fn keep(code: c_int, text: &str) {
    CODE.set(code);
    FIXED.set(None);
    let room = PerThread::with(&TEXT, |kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        kept.try_reserve(text.len()).ok()?;
        kept.push_str(text);
        Some(())
    });
    if room.flatten().is_none() {
        FIXED.set(Some(NO_MEMORY));
    }
}

/// Records that memory has run out, without allocating.
pub fn set_no_memory() {
    CODE.set(LLAMA_SIEVE_ERROR_INTERNAL);
    FIXED.set(Some(NO_MEMORY));
}

/// Forgets the error.
pub fn clear() {
    CODE.set(0);
    FIXED.set(None);
    let _ = PerThread::with(&TEXT, |kept| kept.borrow_mut().clear());
}

/// A copy of the kept error, which [`put`] restores.
#[derive(Debug)]
pub struct Kept {
    code: c_int,
    fixed: Option<&'static CStr>,
    text: Option<String>,
}

/// Returns a copy of the kept error. If there is not enough memory for its text, the copy's text
/// says so.
pub fn kept() -> Kept {
    let text = PerThread::with(&TEXT, |kept| {
        let kept = kept.borrow();
        let mut copy = String::new();
        copy.try_reserve_exact(kept.len()).ok()?;
        copy.push_str(&kept);
        Some(copy)
    });
    let text = text.flatten();
    let fixed = FIXED.get();
    Kept {
        code: CODE.get(),
        fixed: fixed.or_else(|| text.is_none().then_some(NO_MEMORY)),
        text,
    }
}

/// Restores the error that [`kept`] returned. Allocates nothing, since the thread's buffer already
/// had room for the text.
pub fn put(kept: &Kept) {
    if let Some(text) = &kept.text {
        keep(kept.code, text);
    }
    CODE.set(kept.code);
    FIXED.set(kept.fixed);
}

/// Returns the error's number; 0 if there is no error or only a warning.
pub fn code() -> c_int {
    CODE.get()
}

/// Returns the text that needs no memory, if it is set.
pub fn fixed() -> Option<&'static CStr> {
    FIXED.get()
}

/// Calls `look` with the text that was last kept, or with an empty text, and returns its result.
/// `None` if there is no memory for the thread's buffer.
pub fn with<T>(look: impl FnOnce(&str) -> T) -> Option<T> {
    PerThread::with(&TEXT, |kept| look(&kept.borrow()))
}

/// Returns the text; empty if there is none.
pub fn get() -> String {
    match fixed() {
        Some(text) => text.to_string_lossy().into_owned(),
        None => with(str::to_owned).unwrap_or_default(),
    }
}
