//! Tests calls from many threads at the same time. `ci/sanitize tsan` runs these, except the
//! modules `sieve` and `triggers`, under ThreadSanitizer.
//!
//! Each test uses all processors, and some set the log's sink or the host, which the whole process
//! shares, so every test holds `alone()`.

#[cfg(target_os = "linux")]
mod host;
mod samplers;
mod shared;
mod sieve;
#[path = "../support/mod.rs"]
mod support;
mod trie;
mod triggers;
