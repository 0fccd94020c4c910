//! Places where a unit test can let the library fail, to see what is left behind.
//!
//! The guard passes one whenever foreign code enters; others stand where something has been changed
//! and something else has not yet. In a build that is no unit test nothing is left of them.

/// Panics if a test has asked for it.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(test)]
    armed::pass();
}

#[cfg(test)]
#[path = "fault/tests_armed.rs"]
pub(crate) mod armed;
