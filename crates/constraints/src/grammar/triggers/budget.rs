//! Limits the work of one call, for all patterns together.
//!
//! Steps are counted, not time, and cached work counts as if it were done: no result depends on the
//! machine's load, or on earlier queries.

use crate::grammar::limits::MAX_TRIGGER_STEPS;

/// A call takes more steps than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless;

/// The number of steps after which a search records visited positions. Few searches take that many,
/// and in shorter ones the record costs more than it saves.
const NOTES_AFTER: usize = 1 << 12;

/// The steps that one call may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: usize,
    /// The steps after which a search records visited positions.
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

    /// Returns this budget for a search that records visited positions after `steps` steps. For
    /// tests: it changes the number of steps, not the result.
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

    /// Takes `steps` steps.
    pub fn take(&mut self, steps: usize) -> Result<(), Endless> {
        self.left = self.left.checked_sub(steps).ok_or(Endless)?;
        Ok(())
    }
}
