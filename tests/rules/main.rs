//! Rules of the house that the compiler does not know.

#[cfg(target_os = "linux")]
mod skips;
mod sources;
#[cfg(target_os = "linux")]
#[path = "../support/toolchain.rs"]
mod toolchain;
