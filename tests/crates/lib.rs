//! Re-exports the crates that only tests, benchmarks and the model check use.
//!
//! The library depends on this crate by a path without a version, which cargo leaves out when it
//! packages the library. So neither its manifest nor its lock file names crates that users never
//! build.

pub use boon;
pub use regex;
#[cfg(model)]
pub use shuttle;
