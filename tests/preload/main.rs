//! Tests the preload library and the drop-in header, and the certificate, which determines which of
//! a host's samplers may be replaced.
#![cfg(target_os = "linux")]

mod certificate;
mod dropin_header;
#[path = "../support/loading.rs"]
mod loading;
mod programs;
#[path = "../support/schemas.rs"]
mod schemas;
#[path = "../support/toolchain.rs"]
mod toolchain;

/// The tests that need the preload library, which only some systems have.
#[cfg(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
#[path = "."]
mod where_it_runs {
    pub mod altered;
    pub mod attached;
    pub mod common;
    pub mod extra;
    pub mod grammars;
    pub mod hosts;
    pub mod libraries;
    pub mod mutants;
    pub mod old_builds;
    pub mod other_lists;
    pub mod preloaded;
    pub mod presence;
    pub mod readings;
    pub mod traced;
    pub mod watched;
    pub mod while_loading;
}

#[cfg(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
use where_it_runs::*;
