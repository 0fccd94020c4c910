//! The part of an order that a caller wants.

use std::ops::Range;

use super::item::Item;

/// The part of the order that a caller wants.
pub trait Wanted {
    /// True if the order within these places is wanted; otherwise they are left as they are.
    fn wants(&mut self, items: &mut [Item], places: Range<usize>) -> bool;

    /// Items that are in order now, and their places. Called from the first place on, in order.
    /// Returns whether to go on.
    fn take(&mut self, items: &[Item], places: Range<usize>) -> bool;
}

/// Wants all of the order.
pub struct All;

impl Wanted for All {
    fn wants(&mut self, _: &mut [Item], _: Range<usize>) -> bool {
        true
    }

    fn take(&mut self, _: &[Item], _: Range<usize>) -> bool {
        true
    }
}
