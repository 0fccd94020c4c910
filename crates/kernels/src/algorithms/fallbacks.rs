//! Counts of shortcuts that did not decide, so that the built-in's operations were run.
//!
//! Counted for the whole process. Counting costs nothing while a shortcut decides.

use std::sync::atomic::{AtomicU64, Ordering};

/// A shortcut that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Fallback {
    /// The threshold that a sample gave for the top k lets too few pass.
    TopK,
    /// The threshold that a sample gave for a nucleus lets too few pass.
    Nucleus,
    /// The threshold that a sample gave for the locally typical candidates lets too few pass.
    Typical,
    /// A draw fell so near to the border of two candidates that rounding decides.
    Draw,
    /// A sum in descending order had so many different terms half-way between floats, or was so
    /// small, that the order was needed; or the largest logit was infinite.
    DescendingSum,
    /// A logit lay so near to the threshold of top-n-sigma that rounding decides, or one was
    /// masked.
    Sigma,
    /// The host's sort was replayed: because equal logits stood where their order can be seen, or
    /// because that takes less time than ranking.
    Ties,
}

impl Fallback {
    /// All shortcuts.
    pub const ALL: [Self; 7] = [
        Self::TopK,
        Self::Nucleus,
        Self::Typical,
        Self::Draw,
        Self::DescendingSum,
        Self::Sigma,
        Self::Ties,
    ];

    /// Returns the number of times that it has happened.
    pub fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }

    /// Counts that it has happened.
    #[inline]
    pub fn note(self) {
        COUNTS[self as usize].fetch_add(1, Ordering::Relaxed);
    }
}

static COUNTS: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];
