//! llama-sieve: samplers for llama.cpp that choose the same tokens as the built-in ones, with a C
//! ABI.
//!
//! A [`Sieve`] chooses a token from raw logits, with parameters that may change at every token:
//!
//! ```
//! let mut sieve = llama_sieve::Sieve::default();
//! let token = sieve.sample(&[0.5f32, 3.0, 2.5, -1.0])?;
//! sieve.accept(token);
//! # Ok::<(), llama_sieve::sieve::Error>(())
//! ```
//!
//! A [`Chain`] chooses the tokens that llama.cpp's own samplers would choose in a chain:
//!
//! ```
//! use llama_sieve::{Chain, samplers::{Dist, MinP, Temp, TopK}};
//!
//! let mut chain = Chain::new()
//!     .with(TopK::new(40))
//!     .with(MinP::new(0.05, 1))
//!     .with(Temp::new(0.8))
//!     .with(Some(Dist::new(42)));
//! let token = chain.sample(&[0.5f32, 3.0, 2.5, -1.0])?;
//! chain.accept(token);
//! # Ok::<(), llama_sieve::chain::ChainError>(())
//! ```
//!
//! The sieve's parameters and stages are in [`sieve`], entropy and surprisal in [`metrics`], and
//! constraints on the output in [`trie`] and [`grammar`]. The C interface is
//! `include/llama_sieve.h`.
//!
//! # One sampler after the other
//!
//! ```
//! use llama_sieve::{Candidates, Sampler, TokenData, samplers::{Dist, TopK}};
//!
//! let logits = [1.0f32, 3.0, 2.0];
//! let candidate = |(i, &logit)| TokenData::new(i as i32, logit);
//! let mut data: Vec<_> = logits.iter().enumerate().map(candidate).collect();
//! let mut candidates = Candidates::new(&mut data, false);
//! TopK::new(2).expect("2 keeps something").apply(&mut candidates);
//! Dist::new(42).apply(&mut candidates);
//! let chosen = candidates.as_slice()[candidates.selected().expect("dist selects")].id;
//! assert!(chosen == 1 || chosen == 2);
//! ```
//!
//! `docs/architecture.md` in the repository describes the layers of modules.

#![cfg_attr(doctest, doc = include_str!("../README.md"))]
// The library runs in other programs' processes, so it does not panic on purpose. Tests may.
//
// Outside tests, every `pub` item must be part of the interface.
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

mod built_in;
pub mod candidates;
pub mod chain;
#[cfg(all(test, target_arch = "x86_64"))]
mod denormals;
pub mod errors;
mod fault;
pub mod ffi;
pub mod grammar;
pub mod history;
mod instruction_set;
pub mod last_error;
pub mod log;
pub mod metrics;
#[cfg(all(test, model))]
mod models;
pub mod pool;
pub mod rng;
pub mod sampler;
pub mod samplers;
pub mod sieve;
pub mod sync;
pub mod trace;
pub mod trie;
pub mod vocabulary;
mod write_signals;

pub use llama_sieve_constraints::quoted;
#[cfg(windows)]
pub use llama_sieve_kernels::windows;
pub use llama_sieve_kernels::{
    algorithms, environment, host_profile, kernels, memory, per_thread, simd, token,
};
pub(crate) use llama_sieve_kernels::{lcg, random};

pub use built_in::{BuiltIn, InGraph};
pub use candidates::Candidates;
pub use chain::Chain;
pub use pool::Pool;
pub use sampler::{Kind, Sampler};
pub use sieve::Sieve;
pub use token::{Token, TokenData};
pub use vocabulary::Vocabulary;
