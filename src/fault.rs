//! Points at which a unit test can make the library fail, to check the state that remains.
//!
//! The guard passes such a point whenever foreign code calls the library. Other points are in the
//! middle of changes, when one part has been made and another has not. They are compiled only in
//! unit tests.

/// Panics if a test has requested it.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    armed::pass();
}

#[cfg(test)]
#[path = "fault/tests_armed.rs"]
pub(crate) mod armed;
