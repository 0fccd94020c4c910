//! Decides whether tokens are sampled straight from the logits in this process.
//!
//! No list of builds says so. The first token of each chain is llama.cpp's own, and so is every
//! 256th that would be ours; what it does is compared with what ours make of copies of the chain:
//! see `calls` and `watch`. What was seen of a chain is noted with it. What shows that the host
//! samples otherwise than ours take for granted ends it here, for all chains.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use llama_sieve::ffi::guard::guard;
use llama_sieve::log;

use crate::settings::{say, settings};

/// A function of the host's that samples.
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

/// A difference between the host's way of sampling and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The host asks what a backend has sampled in another order, or about another output.
    Questions,
    /// The candidates that it begins with are not the logits.
    Logits,
    /// Something is applied before the chain.
    Before,
    /// The chain is not applied.
    NotApplied,
    /// The chain leaves other candidates than ours.
    Candidates,
    /// The token is not the one that the chain selects.
    Token,
    /// The chain is applied to other candidates than the host was told of as a backend's.
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

/// The entries that are the host's for good, as bits.
static ENDED: AtomicU8 = AtomicU8::new(0);

/// The entries in which ours have sampled, as bits.
static IN_USE: AtomicU8 = AtomicU8::new(0);

/// The `common_sampler_sample` that was seen to take what a backend is said to have left.
static TAKEN_BY: AtomicUsize = AtomicUsize::new(0);

/// The number of tokens that were to be ours.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The number of tokens of which the host samples one.
const ONE_IN: u32 = 256;

/// True if tokens may be sampled in place of this function.
pub fn may(entry: Entry) -> bool {
    ENDED.load(Ordering::Relaxed) & entry.bit() == 0
}

/// True if a token that would be ours is to be sampled by the host, and compared.
pub fn is_due() -> bool {
    settings().verifies || COUNT.fetch_add(1, Ordering::Relaxed) % ONE_IN == ONE_IN - 1
}

/// Notes that ours have sampled a token in place of this function.
pub fn used(entry: Entry) {
    if IN_USE.load(Ordering::Relaxed) & entry.bit() == 0 {
        IN_USE.fetch_or(entry.bit(), Ordering::Relaxed);
    }
}

/// True if the host's `common_sampler_sample` at this address was seen to take what a backend is
/// said to have left.
pub fn takes_answers(address: usize) -> bool {
    TAKEN_BY.load(Ordering::Relaxed) == address
}

/// Notes that it was seen to take what a backend is said to have left.
pub fn has_taken_answers(address: usize) {
    TAKEN_BY.store(address, Ordering::Relaxed);
}

/// The host differs: from now on it samples itself. Where ours have sampled already, or the user
/// wants to know, that is told, once.
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
