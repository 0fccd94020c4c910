//! Limits the work of one call for all patterns together.
//!
//! Steps are counted, not time, and cached work counts as if it were done again. So no result
//! depends on the machine's load or on earlier queries.

use crate::grammar::limits::MAX_TRIGGER_STEPS;

/// The error of a call that needs more steps than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless;

/// The number of steps after which a search begins to record visited positions. Few searches take
/// so many, and in shorter ones the record costs more than it saves.
const NOTES_AFTER: usize = 1 << 12;

/// The number of steps that one call may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: usize,
    /// The number of steps after which a search begins to record visited positions.
    pub(super) notes_after: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MAX_TRIGGER_STEPS)
    }
}

impl Budget {
    /// Returns a budget of `steps` steps.
    pub fn of(steps: usize) -> Self {
        Self {
            left: steps,
            notes_after: NOTES_AFTER,
        }
    }

    /// Returns this budget for a search that begins to record visited positions after `steps`
    /// steps. For tests: this changes the number of steps, not the result.
    pub fn noting_after(self, steps: usize) -> Self {
        Self {
            notes_after: steps,
            ..self
        }
    }

    /// Returns the number of steps that are left.
    pub fn left(&self) -> usize {
        self.left
    }

    /// Subtracts `steps` steps; fails if fewer are left.
    pub fn take(&mut self, steps: usize) -> Result<(), Endless> {
        self.left = self.left.checked_sub(steps).ok_or(Endless)?;
        Ok(())
    }
}
