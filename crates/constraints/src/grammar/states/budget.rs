//! Limits the work of one call.
//!
//! A result must not depend on earlier queries, though cached results make work cheaper. So two
//! sums are kept: the steps that this call has taken, and a bound on those with empty tables. While
//! the bound is within the limit, so is a call with empty tables. Otherwise the call is repeated
//! with empty tables, and the steps that it takes there decide.
//!
//! Bytes count, too: [`BYTES_OF_A_STEP`] are one step.

use crate::grammar::limits::{MAX_CALL_BYTES, MAX_WORK};

/// The grammar needs more work than one call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// The number of kept bytes that count as a step.
pub const BYTES_OF_A_STEP: usize = MAX_CALL_BYTES / MAX_WORK;

/// The work of a call so far.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The number of steps that are allowed.
    limit: u64,
    /// Steps that were taken.
    taken: u64,
    /// A bound on the steps that would have been taken with empty tables.
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

    /// Takes steps.
    #[inline]
    pub fn spend(&mut self, steps: u64) -> Result<(), TooMuch> {
        self.taken += steps;
        self.charge(steps);
        self.check()
    }

    /// Counts the cost of cached results.
    #[inline]
    pub fn charge(&mut self, steps: u64) {
        self.bound = self.bound.saturating_add(steps);
    }

    /// Counts bytes that are kept from now on.
    pub fn keep(&mut self, bytes: usize) {
        self.taken += (bytes / BYTES_OF_A_STEP) as u64;
        self.would_keep(bytes);
    }

    /// Counts bytes that were kept already.
    pub fn would_keep(&mut self, bytes: usize) {
        self.charge((bytes / BYTES_OF_A_STEP) as u64);
    }

    /// Returns an error unless the call is known to be within the limit.
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

    /// True if a call with empty tables might be within the limit: false if the steps taken exceed
    /// it.
    pub fn may_be_enough(&self) -> bool {
        self.taken <= self.limit
    }

    /// Returns the steps that were taken so far.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the bound on the work done so far.
    pub fn bound(&self) -> u64 {
        self.bound
    }
}
