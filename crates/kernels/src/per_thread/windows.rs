//! A thread-local variable that holds the thread's list of headers, and is dropped when the thread
//! ends.
//!
//! Slots of `FlsAlloc` are not used: they belong to fibers, which may end on another thread, and
//! their callbacks outlive a library that is unloaded.

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

use super::{Header, end_all};

struct List(Cell<*mut Header>);

thread_local! {
    static LIST: List = const { List(Cell::new(null_mut())) };
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: a list of this thread's headers, which is taken off here.
        unsafe { end_all(self.0.replace(null_mut())) };
    }
}

/// Registers the value with this header to be dropped when the calling thread ends. A value that is
/// made while the thread's other values are dropped may never be freed.
pub(super) fn keep(header: NonNull<Header>) {
    let _ = LIST.try_with(|list| {
        // SAFETY: the value was just made, and its header is on no list.
        unsafe { (*header.as_ptr()).next = list.0.replace(header.as_ptr()) };
    });
}
