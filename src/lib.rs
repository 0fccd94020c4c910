//! llama-sieve: samplers for llama.cpp that choose the same tokens as the built-in ones, behind a C
//! ABI.
//!
//! From raw logits to a token, with control at every token ([`Sieve`]):
//!
//! ```
//! let mut sieve = llama_sieve::Sieve::default();
//! let token = sieve.sample(&[0.5f32, 3.0, 2.5, -1.0])?;
//! sieve.accept(token);
//! # Ok::<(), llama_sieve::sieve::Error>(())
//! ```
//!
//! The tokens of llama.cpp's own samplers, in any chain of them ([`Chain`]):
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
//! Its parameters and stages are in [`sieve`], how uncertain a distribution is in [`metrics`], what
//! lets only some values through in [`trie`] and [`grammar`]. From C: `include/llama_sieve.h`.
//!
//! # One sampler after the other
//!
//! ```
//! use llama_sieve::{Candidates, Sampler, TokenData, samplers::{Dist, TopK}};
//!
//! let logits = [1.0f32, 3.0, 2.0];
//! let candidates = logits.iter().enumerate();
//! let mut data: Vec<_> = candidates.map(|(i, &logit)| TokenData { id: i as i32, logit, p: 0.0 }).collect();
//! let mut candidates = Candidates::new(&mut data, false);
//! TopK::new(2).expect("2 keeps something").apply(&mut candidates);
//! Dist::new(42).apply(&mut candidates);
//! let chosen = candidates.as_slice()[candidates.selected().expect("dist selects")].id;
//! assert!(chosen == 1 || chosen == 2);
//! ```
//!
//! # Internals: which file answers which question
//!
//! | question | file |
//! | --- | --- |
//! | What does sampler X do, what does it cost, where does it come from? | `samplers/x.rs` |
//! | What must every sampler offer, and what does its failure mean? | [`sampler`]; who sees to it: `ffi/guard.rs` catches, `ffi/vtable.rs` answers |
//! | How do samplers see the host's candidate array? | [`candidates`], element in [`token`] |
//! | Where do equal logits end? | [`algorithms::host_order`] |
//! | How are candidates sorted, the top k found, a draw made? | [`algorithms`] |
//! | What does one pass over candidates or raw logits do? | [`kernels`] |
//! | Where do AVX2, AVX-512, NEON live, and how are they chosen? | [`simd`] |
//! | How does the token trie constrain, and how is it set? | [`trie`]; for C: `ffi/trie.rs`, by handle: `ffi/trie_handles.rs` |
//! | How are accepted tokens remembered? | [`history`] |
//! | What do samplers ask of a vocabulary? | [`vocabulary`]; how the host is asked: `ffi/host_vocabulary.rs` |
//! | Which random numbers does a seed give (mt19937 and others)? | [`rng`] |
//! | How do raw logits become a token in one call, with control at every token? | [`sieve`]; stage by stage: `docs/sampling.md` |
//! | How does a chain sample without an array of the vocabulary? | [`chain`], candidates in [`pool`]; for C: `ffi/chain.rs` |
//! | How uncertain is a distribution? | [`metrics`] |
//! | What has to be done for a new sampler? | the list in [`samplers`] |
//! | What does a C caller see? | [`ffi`] (constructors: `ffi/samplers.rs`; the sieve: `ffi/sieve.rs`; version, errors, log: `ffi/library.rs`) |
//! | How does a sampler become a `llama_sampler` with a vtable? | [`ffi::vtable`] |
//! | How is the llama.cpp of the process found? | [`ffi::host`]; our mirrors of its types: [`ffi::host::llama_h`] |
//! | How does a chain of ours and built-ins tell its seed? | [`ffi::seed`] |
//! | How does a program get ours without recompiling? | the crate `preload/`; with recompiling only: `include/llama_sieve_dropin.h` |
//! | What stands in for a sampler in the host's graph? | `built_in.rs`; how it is made: [`ffi::host::built_ins`] |
//! | Is a host's sampler equal to ours, and which arguments does it take? | [`ffi::certificate`], [`ffi::host::build`] |
//! | Which environment variables count? | [`environment`] |
//! | What keeps a panic from the host? | [`ffi::guard`] |
//! | Where can a unit test let the library fail? | `fault.rs`; what must hold then: `ffi/tests/` |
//! | Which orders of threads are tried one by one? | `models.rs`, with the locks of `sync.rs` |
//! | What if there is no memory? | [`memory`] |
//! | Where do messages go? | [`log`] and [`last_error`] |
//!
//! Dependencies run one way: `token` <- `simd` <- `kernels` <- `algorithms` <- (`candidates`,
//! `pool`, `history`, `rng`, `log`, `metrics`) <- (`samplers`, `trie`) <- `chain` <- `sieve` <-
//! `ffi`. Only `ffi` and the calls of the C library's `expf` and `logf` in `simd::libm` know what
//! is outside Rust.

// What runs in somebody else's process does not give up. Tests may.
// What is `pub` is offered. Tests see more.
#![cfg_attr(not(test), warn(unreachable_pub))]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing
    )
)]

pub mod algorithms;
mod built_in;
pub mod candidates;
pub mod chain;
pub mod environment;
mod fault;
pub mod ffi;
pub mod grammar;
pub mod history;
pub mod kernels;
pub mod last_error;
mod lcg;
pub mod log;
pub mod memory;
pub mod metrics;
#[cfg(all(test, model))]
mod models;
pub mod pool;
pub mod rng;
pub mod sampler;
pub mod samplers;
pub mod sieve;
pub mod simd;
mod sync;
pub mod token;
pub mod trie;
pub mod vocabulary;

pub use built_in::{BuiltIn, InGraph};
pub use candidates::Candidates;
pub use chain::Chain;
pub use pool::Pool;
pub use sampler::{Kind, Sampler};
pub use sieve::Sieve;
pub use token::{Token, TokenData};
pub use vocabulary::Vocabulary;
