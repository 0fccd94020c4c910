//! Selections of the parts of an order that a caller wants.

use std::ops::Range;

use super::item::Item;

/// A selection of the parts of the order that a caller wants.
pub trait Wanted {
    /// Returns true if the order within these indices is wanted. Otherwise the items stay as they
    /// are.
    fn wants(&mut self, items: &mut [Item], places: Range<usize>) -> bool;

    /// Receives items that are now in order, and their indices. Called in ascending order of these.
    /// Returns false to end the sort.
    fn take(&mut self, items: &[Item], places: Range<usize>) -> bool;
}

/// A selection of the whole order.
pub struct All;

impl Wanted for All {
    fn wants(&mut self, _: &mut [Item], _: Range<usize>) -> bool {
        true
    }

    fn take(&mut self, _: &[Item], _: Range<usize>) -> bool {
        true
    }
}
