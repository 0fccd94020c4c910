//! Tests of allocations, memory and steps, which count or limit a whole process.
//!
//! Every test here holds `alone()`, so that they run one after the other.

mod allocations;
mod breakers;
mod counting_allocator;
#[cfg(target_os = "linux")]
mod no_memory;
mod payloads;
mod sieve_allocations;
mod soak;
#[path = "../support/mod.rs"]
mod support;
mod triggers;
