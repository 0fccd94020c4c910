//! Sets of lanes, a bit for each.

/// Appends `first` plus the number of each bit of `lanes`, one by one: quickest where there are
/// few.
#[inline(always)]
pub fn push_indices(mut lanes: u32, first: u32, to: &mut Vec<u32>) {
    while lanes != 0 {
        to.push(first + lanes.trailing_zeros());
        lanes &= lanes - 1;
    }
}
