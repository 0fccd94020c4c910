//! Limits the work of one call.
//!
//! Cached results make work cheaper, but whether a call exceeds the limit must not depend on
//! earlier queries. So two sums are kept: the steps that the call has taken, and an upper bound on
//! those it would take with empty tables. While the bound is within the limit, a call with empty
//! tables would be, too. Otherwise the call is repeated with empty tables, and the number of steps
//! that the second call takes decides.
//!
//! Memory counts, too: [`BYTES_OF_A_STEP`] bytes are one step.

use crate::grammar::limits::{MAX_CALL_BYTES, MAX_WORK};

/// The error of a call that needs more work than is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// The number of bytes that count as one step.
pub const BYTES_OF_A_STEP: usize = MAX_CALL_BYTES / MAX_WORK;

/// The work of a call so far.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The number of steps that the call may take.
    limit: u64,
    /// The steps that were taken.
    taken: u64,
    /// An upper bound on the steps that would have been taken with empty tables.
    bound: u64,
    /// True if the tables were empty when the call began.
    is_fresh: bool,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MAX_WORK)
    }
}

impl Budget {
    /// Returns a budget of `steps` steps.
    pub fn of(steps: usize) -> Self {
        Self {
            limit: steps as u64,
            taken: 0,
            bound: 0,
            is_fresh: false,
        }
    }

    /// Returns this budget for a call with empty tables.
    pub fn fresh(self) -> Self {
        Self {
            is_fresh: true,
            ..self
        }
    }

    /// Counts steps that the call takes. Fails like [`check`](Self::check).
    #[inline]
    pub fn spend(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.taken += steps;
        self.charge(steps);
        self.check()
    }

    /// Counts the cost of a cached result.
    #[inline]
    pub fn charge(&mut self, steps: u64) {
        self.bound = self.bound.saturating_add(steps);
    }

    /// Counts bytes that the call adds to the tables.
    pub fn keep(&mut self, bytes: usize) {
        self.taken += (bytes / BYTES_OF_A_STEP) as u64;
        self.would_keep(bytes);
    }

    /// Counts bytes that the call would have added to empty tables.
    pub fn would_keep(&mut self, bytes: usize) {
        self.charge((bytes / BYTES_OF_A_STEP) as u64);
    }

    /// Fails unless the call is known to be within the limit.
    #[inline]
    pub fn check(&self) -> Result<(), TooMuch> {
        let steps = if self.is_fresh {
            self.taken
        } else {
            self.bound
        };
        match steps <= self.limit {
            true => Ok(()),
            false => Err(TooMuch),
        }
    }

    /// True if a call with empty tables might be within the limit, since the steps taken so far
    /// are.
    pub fn may_be_enough(&self) -> bool {
        self.taken <= self.limit
    }

    /// Returns the steps that were taken so far.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the upper bound on the steps so far with empty tables.
    pub fn bound(&self) -> u64 {
        self.bound
    }
}
