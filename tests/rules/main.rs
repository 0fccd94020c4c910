//! Checks rules of this project that the compiler does not check.

mod layers;
#[cfg(target_os = "linux")]
mod skips;
mod sources;
mod stability;
#[cfg(target_os = "linux")]
#[path = "../support/toolchain.rs"]
mod toolchain;
mod versions;
