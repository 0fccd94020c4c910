//! Calls from many threads at once. `ci/sanitize tsan` runs these under ThreadSanitizer.
//!
//! Each test keeps the processor to itself, and some set the log's sink or the host, which the
//! whole process shares: every one of them holds `alone()`.

#[cfg(target_os = "linux")]
mod host;
mod samplers;
mod shared;
mod sieve;
#[path = "../support/mod.rs"]
mod support;
mod trie;
mod triggers;
