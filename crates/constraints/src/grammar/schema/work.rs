//! Limits the work of compiling a schema.

use std::cell::Cell;

use crate::grammar::limits::MAX_SCHEMA_STEPS;

/// The error of an automaton with too many states, or of a schema with no steps left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The steps left for one schema, or for all schemas of a description of tags. A step is about ten
/// nanoseconds of work, or about ten allocated bytes.
#[derive(Debug)]
pub struct Work(Cell<usize>);

impl Default for Work {
    fn default() -> Self {
        Self(Cell::new(MAX_SCHEMA_STEPS))
    }
}

impl Work {
    /// Subtracts `n` from the steps that are left. If fewer are left, sets their number to 0 and
    /// fails.
    pub fn spend(&self, n: usize) -> Result<(), TooLarge> {
        let left = self.0.get().checked_sub(n);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(TooLarge)
    }

    /// True if no steps are left, so later results may be wrong.
    pub fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}
