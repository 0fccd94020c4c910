//! Points at which a unit test can make the library fail, to check the state that remains.
//!
//! The guard passes one whenever foreign code enters. Others are in the middle of changes, where
//! one part has been made and another has not. Only unit tests compile them.

/// Panics if a test has requested it.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    armed::pass();
}

#[cfg(test)]
#[path = "fault/tests_armed.rs"]
pub(crate) mod armed;
