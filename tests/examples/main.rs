//! Checks that the examples do what their pages say, and that the committed pictures are those that
//! their programs draw.

#[cfg(target_os = "linux")]
mod constrained;
#[cfg(target_os = "linux")]
#[path = "../support/converter.rs"]
mod converter;
#[cfg(target_os = "linux")]
mod json;
#[cfg(target_os = "linux")]
mod languages;
#[cfg(target_os = "linux")]
mod minimal;
mod pictures;
#[cfg(target_os = "linux")]
mod readme;
#[path = "../support/schemas.rs"]
mod schemas;
#[cfg(target_os = "linux")]
mod sieve;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
#[path = "../support/toolchain.rs"]
mod toolchain;
