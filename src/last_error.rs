//! The text of the last thing that went wrong, one per thread.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

use crate::per_thread::PerThread;

/// What is told where there is no memory for more.
pub const NO_MEMORY: &CStr = c"llama-sieve: not enough memory";

thread_local! {
    /// Stands before the other: a text that needs no memory.
    static FIXED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
    static TEXT: PerThread<RefCell<String>> = const { PerThread::new() };
}

/// Keeps `text` until the next error or [`clear`].
pub fn set(text: &str) {
    FIXED.set(None);
    let room = PerThread::with(&TEXT, |kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        kept.try_reserve(text.len()).ok()?;
        kept.push_str(text);
        Some(())
    });
    if room.flatten().is_none() {
        set_fixed(NO_MEMORY);
    }
}

/// The same without an allocation, for where there is no memory.
pub fn set_fixed(text: &'static CStr) {
    FIXED.set(Some(text));
}

/// Forgets the text.
pub fn clear() {
    FIXED.set(None);
    let _ = PerThread::with(&TEXT, |kept| kept.borrow_mut().clear());
}

/// What was kept, to be given back to [`put`].
#[derive(Debug)]
pub struct Kept {
    fixed: Option<&'static CStr>,
    text: Option<String>,
}

/// A copy of what is kept; without memory for it, that there is none.
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
        fixed: fixed.or_else(|| text.is_none().then_some(NO_MEMORY)),
        text,
    }
}

/// Keeps again what [`kept`] gave, without an allocation: there was room for it before.
pub fn put(kept: &Kept) {
    if let Some(text) = &kept.text {
        set(text);
    }
    FIXED.set(kept.fixed);
}

/// The text, if it is one that [`set_fixed`] was given.
pub fn fixed() -> Option<&'static CStr> {
    FIXED.get()
}

/// What `look` makes of the text that [`set`] was given, empty if there is none; `None` where there
/// is no memory to keep one.
pub fn with<T>(look: impl FnOnce(&str) -> T) -> Option<T> {
    PerThread::with(&TEXT, |kept| look(&kept.borrow()))
}

/// The text; empty if there is none.
pub fn get() -> String {
    match fixed() {
        Some(text) => text.to_string_lossy().into_owned(),
        None => with(str::to_owned).unwrap_or_default(),
    }
}
