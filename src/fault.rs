//! Points at which a unit test can make the library fail, to check the state that remains.
//!
//! The guard (`ffi/guard.rs`) passes such a point each time that it is entered. Most other points
//! are in the middle of a change of state, between two of its steps. Outside unit tests a point
//! does nothing.

/// Panics if a unit test has requested it; otherwise does nothing.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    armed::pass();
}

#[cfg(test)]
#[path = "fault/tests_armed.rs"]
pub(crate) mod armed;
