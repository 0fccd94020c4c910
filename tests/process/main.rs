//! Counts, limits and measurements of a whole process: allocations, memory, time.
//!
//! Every test here holds `alone()`: they come one after the other.

mod allocations;
mod breakers;
mod costs;
mod counting_allocator;
#[cfg(target_os = "linux")]
mod no_memory;
mod payloads;
mod sieve_allocations;
mod soak;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/thread_time.rs"]
mod thread_time;
mod triggers;
