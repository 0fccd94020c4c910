//! Decides whether tokens are sampled straight from the logits in this process.
//!
//! This is not decided by a list of builds. The first token of each chain is sampled by llama.cpp,
//! and so is every 256th token that this library could sample. The result is compared with that of
//! this library on copies of the chain: see `calls` and `watch`. The findings about a chain are
//! noted with it. If the host samples in a way that this library does not expect, its function is
//! left to it for all chains from then on: see [`refuse`].

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use llama_sieve::ffi::guard::guard;
use llama_sieve::log;

use crate::settings::{say, settings};

/// A function of the host that samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// The common library's `common_sampler_sample`.
    Common,
    /// `llama_sampler_sample`.
    Sampler,
}

const ALL: u8 = 0b11;

impl Entry {
    const fn bit(self) -> u8 {
        1 << self as u8
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Common => "common_sampler_sample",
            Self::Sampler => "llama_sampler_sample",
        }
    }
}

/// A difference between the host's sampling and this library's expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The host does not make the expected queries about a backend's results.
    Questions,
    /// The host's initial candidates are not the logits.
    Logits,
    /// Something is applied before the chain.
    Before,
    /// The chain is not applied.
    NotApplied,
    /// The chain leaves candidates that differ from this library's.
    Candidates,
    /// The token is not the one that the chain selects.
    Token,
    /// The chain is applied to candidates other than those in the answers.
    Answers,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Questions => "asks otherwise what a backend has sampled",
            Self::Logits => "begins with other candidates than the logits",
            Self::Before => "applies something before the chain",
            Self::NotApplied => "does not apply the chain",
            Self::Candidates => "leaves other candidates",
            Self::Token => "returns another token than the chain selects",
            Self::Answers => "takes a backend's candidates otherwise",
        })
    }
}

/// A bitmap of the functions that are left to the host for good.
static ENDED: AtomicU8 = AtomicU8::new(0);

/// A bitmap of the functions in whose place this library has sampled.
static IN_USE: AtomicU8 = AtomicU8::new(0);

/// The address of the `common_sampler_sample` that was observed to use this library's answers to
/// its queries.
static TAKEN_BY: AtomicUsize = AtomicUsize::new(0);

/// The number of tokens that this library could have sampled.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// One in this many of the tokens that this library could sample is sampled by the host, and
/// compared.
const ONE_IN: u32 = 256;

/// True if tokens may be sampled in place of this function.
pub fn may(entry: Entry) -> bool {
    ENDED.load(Ordering::Relaxed) & entry.bit() == 0
}

/// True if the next token that this library could sample is to be sampled by the host and compared.
pub fn is_due() -> bool {
    settings().verifies || COUNT.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1
}

/// Records that this library has sampled a token in place of this function.
pub fn used(entry: Entry) {
    if IN_USE.load(Ordering::Relaxed) & entry.bit() == 0 {
        IN_USE.fetch_or(entry.bit(), Ordering::Relaxed);
    }
}

/// True if the host's `common_sampler_sample` at this address was observed to use this library's
/// answers to its queries.
pub fn takes_answers(address: usize) -> bool {
    TAKEN_BY.load(Ordering::Relaxed) == address
}

/// Records that the host's `common_sampler_sample` at this address was observed to use this
/// library's answers to its queries.
pub fn has_taken_answers(address: usize) {
    TAKEN_BY.store(address, Ordering::Relaxed);
}

/// Leaves the sampling of `entry` to the host from now on, because of a difference. If this library
/// has already sampled tokens, or every token is compared (`verify`), leaves both functions to the
/// host, and logs a warning.
pub fn refuse(entry: Entry, difference: Difference) {
    let is_told = settings().verifies || IN_USE.load(Ordering::Relaxed) != 0;
    let ended = if is_told { ALL } else { entry.bit() };
    if ENDED.fetch_or(ended, Ordering::Relaxed) & ended == ended {
        return;
    }
    let name = entry.name();
    guard(
        name,
        || (),
        || {
            say(format_args!("{name}(): llama.cpp's own: it {difference}"));
            if is_told {
                log::warn(&format!(
                    "preload: no token is sampled straight from the logits any more: \
                     llama.cpp's own {name} {difference}"
                ));
            }
        },
    );
}
