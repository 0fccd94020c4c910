//! An import: a word in a library's memory through which the library calls a function of a
//! different library.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A word in a library's memory that holds the address of a function or variable, which the linker
/// has found by its name.
#[derive(Clone, Copy, Debug)]
pub struct Import<'a> {
    /// The name of the function or variable.
    pub name: &'a CStr,
    /// True if the function is called through the word, and may be bound lazily, at the first call.
    pub is_call: bool,
    pub(super) place: &'a AtomicPtr<c_void>,
}

impl Import<'_> {
    /// Returns the address of the word.
    pub fn place(&self) -> usize {
        std::ptr::from_ref(self.place).addr()
    }

    /// Returns the address that the word holds.
    pub fn value(&self) -> *mut c_void {
        self.place.load(Ordering::Acquire)
    }

    /// Atomically replaces `from` with `to`. Returns false, with nothing changed, if the word does
    /// not hold `from`.
    ///
    /// # Safety
    /// The word is writable, and `to` can be called in place of the function `from`.
    pub unsafe fn exchange(&self, from: *mut c_void, to: *mut c_void) -> bool {
        let (done, otherwise) = (Ordering::AcqRel, Ordering::Acquire);
        self.place
            .compare_exchange(from, to, done, otherwise)
            .is_ok()
    }
}
