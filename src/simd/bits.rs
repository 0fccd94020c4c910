//! Sets of lanes, a bit for each.

use crate::token::TokenData;

/// Appends `first` plus the number of each bit of `lanes`, one by one: quickest where there are
/// few.
#[inline(always)]
pub fn push_indices(mut lanes: u32, first: u32, to: &mut Vec<u32>) {
    while lanes != 0 {
        to.push(first + lanes.trailing_zeros());
        lanes &= lanes - 1;
    }
}

/// Writes minus infinity over the logits of the candidates that `lanes` has bits for.
#[inline(always)]
pub fn mask_logits(data: &mut [TokenData], lanes: u32) {
    for (lane, candidate) in data.iter_mut().enumerate().take(32) {
        if lanes >> lane & 1 != 0 {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}
