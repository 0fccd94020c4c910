//! Selections of the parts of an order that a caller wants.

use std::ops::Range;

use super::item::Item;

/// A selection of the parts of the order that a caller wants.
pub trait Wanted {
    /// Returns true if the order of `items`, which are those at the indices `places`, is wanted.
    /// Otherwise the sort leaves them in the order in which this function leaves them.
    fn wants(&mut self, items: &mut [Item], places: Range<usize>) -> bool;

    /// Receives items that are now in order, and their indices. The calls are in ascending order of
    /// the indices. Returns false to end the sort.
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
