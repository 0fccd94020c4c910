//! A variable of the thread, which ends with it, that its list of headers hangs on.
//!
//! Not a slot of `FlsAlloc`: those belong to fibers, which may end on another thread, and their
//! callbacks outlast a library that is unloaded.

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

/// Lets the value with this header end with the calling thread. One that is made while the thread's
/// others end may stay.
pub(super) fn keep(header: NonNull<Header>) {
    let _ = LIST.try_with(|list| {
        // SAFETY: the value was just made, and its header is on no list.
        unsafe { (*header.as_ptr()).next = list.0.replace(header.as_ptr()) };
    });
}
