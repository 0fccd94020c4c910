//! The text of the last thing that went wrong, one per thread.

use std::cell::{Cell, RefCell};
use std::ffi::CStr;

/// What is told where there is no memory for more.
pub const NO_MEMORY: &CStr = c"llama-sieve: not enough memory";

thread_local! {
    /// Stands before the other: a text that needs no memory.
    static FIXED: Cell<Option<&'static CStr>> = const { Cell::new(None) };
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps `text` until the next error or [`clear`].
pub fn set(text: &str) {
    FIXED.set(None);
    // A thread that is ending has nowhere to keep it, and nobody to read it.
    let _ = TEXT.try_with(|kept| {
        let mut kept = kept.borrow_mut();
        kept.clear();
        match kept.try_reserve(text.len()) {
            Ok(()) => kept.push_str(text),
            Err(_) => set_fixed(NO_MEMORY),
        }
    });
}

/// The same without an allocation, for where there is no memory.
pub fn set_fixed(text: &'static CStr) {
    FIXED.set(Some(text));
}

/// Forgets the text.
pub fn clear() {
    FIXED.set(None);
    let _ = TEXT.try_with(|kept| kept.borrow_mut().clear());
}

/// The text, if it is one that [`set_fixed`] was given.
pub fn fixed() -> Option<&'static CStr> {
    FIXED.get()
}

/// What `look` makes of the text that [`set`] was given, empty if there is none; `None` on a thread that is ending.
pub fn with<T>(look: impl FnOnce(&str) -> T) -> Option<T> {
    TEXT.try_with(|kept| look(&kept.borrow())).ok()
}

/// The text; empty if there is none.
pub fn get() -> String {
    match fixed() {
        Some(text) => text.to_string_lossy().into_owned(),
        None => with(str::to_owned).unwrap_or_default(),
    }
}
