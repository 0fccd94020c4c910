//! Vectorised passes over logits and candidates with the results of llama.cpp's samplers, bit for
//! bit: the arithmetic of llama-sieve, without its samplers.
//!
//! ```
//! use llama_sieve_kernels::kernels::{argmax, scan::count_at_least};
//! use llama_sieve_kernels::token::array_of;
//!
//! let logits = [0.5, 3.0, 2.5];
//! assert_eq!(count_at_least(&logits, 1.0), 2);
//! assert_eq!(argmax(&array_of(&logits)), Some(1));
//! ```
//!
//! Each layer uses those below it:
//!
//! - [`algorithms`]: several passes, with buffers: top-k, sorting, sums in descending order;
//! - [`kernels`]: one pass each, no state;
//! - [`simd`]: vectors, instruction sets, exponentials and logarithms;
//! - [`host_profile`]: the arithmetic of the host; [`token`]: the candidates; [`lcg`], [`random`]:
//!   random numbers; [`per_thread`], [`sync`], [`memory`], [`environment`]: system services for a
//!   library in another program's process; `windows`: those of Windows only.

// The library runs in other people's processes, so it must not panic. Tests may. Everything `pub`
// is part of the interface, except in builds for tests.
#![cfg_attr(not(test), warn(unreachable_pub))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable
    )
)]

pub mod algorithms;
pub mod environment;
pub mod host_profile;
pub mod kernels;
pub mod lcg;
pub mod memory;
pub mod per_thread;
pub mod random;
pub mod simd;
pub mod sync;
pub mod token;
#[cfg(windows)]
pub mod windows;
