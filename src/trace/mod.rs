//! The trace, a record of each token that is sampled straight from the logits: which stage of its
//! chain removed or changed which candidate, and why.
//!
//! While tokens are traced, an [`Observer`] reads the pool between the samplers, which work as
//! usual, so the tokens are the same. Without a trace, a token costs one read of a flag. A line of
//! JSON for each token goes to a file or to a function: `docs/trace.md`.
//!
//! A trace is started by [`to_file`] or [`to_function`], or by the environment variables
//! `LLAMA_SIEVE_TRACE`, the name of a file, and `LLAMA_SIEVE_TRACE_OPTIONS`.

mod file;
mod lines;
mod linter;
mod observer;
mod options;
mod sink;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::environment;
use crate::kernels::logits::Logits;
use crate::log;
use crate::sync::OnceLock;
use crate::token::Token;

pub use linter::{Link, findings};
pub(crate) use observer::watched;
pub use observer::{Ask, Name, Numbers, Observer, Off, Watch};
pub use options::{MOST_FOLLOWED, Options};
pub use sink::{Function, delivering, delivers, stop, to_file, to_function};

/// The version of the format of the lines. It increases when the meaning of a field changes.
pub const VERSION: u32 = 1;

static ON: AtomicBool = AtomicBool::new(false);

/// Returns an observer of the token that will be chosen from these logits; `None` if tokens are not
/// traced.
#[inline]
pub fn begin(logits: Logits<'_>) -> Option<Box<Observer>> {
    match ON.load(Ordering::Relaxed) {
        true => sink::observer(logits),
        false => None,
    }
}

/// True if tokens are traced.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The number of a sequence in the trace. Each chain and each sieve has its own, and so has each
/// clone.
#[derive(Debug, Default)]
pub struct Sequence(AtomicU64);

impl Clone for Sequence {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Sequence {
    /// Returns the number, which is assigned at the first call.
    pub fn number(&self) -> u64 {
        let known = self.0.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        let new = next_number();
        let ours = self
            .0
            .compare_exchange(0, new, Ordering::Relaxed, Ordering::Relaxed);
        ours.map_or_else(|known| known, |_| new)
    }
}

/// Returns a number that no other sequence of this process has.
pub fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A function that writes the bytes of a token's text. It returns false if they are unknown.
pub type Pieces<'a> = &'a dyn Fn(Token, &mut Vec<u8>) -> bool;

/// Returns false, since there is no vocabulary with texts.
pub fn no_pieces(_: Token, _: &mut Vec<u8>) -> bool {
    false
}

/// At the first call, starts the trace that the environment variables request, if any. Logs a
/// warning if that fails.
pub fn from_environment() {
    static BEGUN: OnceLock<Result<(), String>> = OnceLock::new();
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let begun = BEGUN.get_or_init(|| {
        let Some(file) = environment::variable("LLAMA_SIEVE_TRACE") else {
            return Ok(());
        };
        let options = environment::variable("LLAMA_SIEVE_TRACE_OPTIONS").unwrap_or_default();
        Options::parse(&options).and_then(|options| to_file(&file, options))
    });
    // The warning is logged after the initialisation, since the log's sink may call the library.
    if let Err(text) = begun
        && !REPORTED.swap(true, Ordering::Relaxed)
    {
        let text = format!("LLAMA_SIEVE_TRACE: {text}; there is no trace");
        log::log(log::Level::Warn, &text);
    }
}
