//! Crates that only tests, benchmarks and the model check use, with all that they depend on.
//!
//! A dependency on this one is a path without a version, which cargo leaves out when it packages
//! the library: neither its manifest nor its lock file names what a user never builds.

pub use boon;
pub use plotters;
pub use regex;
#[cfg(model)]
pub use shuttle;
