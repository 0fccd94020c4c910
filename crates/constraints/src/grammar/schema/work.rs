//! Limits the work of compiling a schema.

use std::cell::Cell;

use crate::grammar::limits::MAX_SCHEMA_STEPS;

/// An automaton has too many states, or no steps are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// The steps left for one schema. Each takes some ten nanoseconds, or ten allocated bytes.
#[derive(Debug)]
pub struct Work(Cell<usize>);

impl Default for Work {
    fn default() -> Self {
        Self(Cell::new(MAX_SCHEMA_STEPS))
    }
}

impl Work {
    /// Takes steps. Fails, and leaves none, if there are fewer.
    pub fn spend(&self, n: usize) -> Result<(), TooLarge> {
        let left = self.0.get().checked_sub(n);
        self.0.set(left.unwrap_or(0));
        left.map(|_| ()).ok_or(TooLarge)
    }

    /// True if none is left: later results may be wrong.
    pub fn is_spent(&self) -> bool {
        self.0.get() == 0
    }
}
