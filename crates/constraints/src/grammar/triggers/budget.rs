//! Limits the work of one call, all patterns together.
//!
//! Steps are counted, not time, and counted alike whether somebody else has done the work before:
//! no answer depends on the machine's load, or on who has asked what.

use crate::grammar::limits::MAX_TRIGGER_STEPS;

/// A call takes more steps than are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endless;

/// The steps of a search after which it notes what was begun: few take so many, and in shorter ones
/// that costs more than it saves.
const NOTES_AFTER: usize = 1 << 12;

/// The steps that one call may still take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    left: usize,
    /// The steps of one search after which it is noted what was begun where.
    pub(super) notes_after: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(MAX_TRIGGER_STEPS)
    }
}

impl Budget {
    /// A budget of that many steps.
    pub fn of(steps: usize) -> Self {
        Self {
            left: steps,
            notes_after: NOTES_AFTER,
        }
    }

    /// Returns the same budget for a search that notes what it has begun after so many of its steps
    /// already. For tests: it changes how many steps are taken, not what is found.
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

    /// Takes that many steps.
    pub fn take(&mut self, steps: usize) -> Result<(), Endless> {
        self.left = self.left.checked_sub(steps).ok_or(Endless)?;
        Ok(())
    }
}
