//! Counts and limits of a whole process: allocations, memory, steps.
//!
//! Every test here holds `alone()`: they come one after the other.

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
