//! Operations that go lane by lane, on bit sets of lanes and on pairs of adjacent lanes.

use crate::token::TokenData;

/// Appends `first` plus the index of each set bit of `lanes`, one by one, which is fastest for few
/// bits.
#[inline(always)]
pub fn push_indices(mut lanes: u32, first: u32, to: &mut Vec<u32>) {
    while lanes != 0 {
        to.push(first + lanes.trailing_zeros());
        lanes &= lanes - 1;
    }
}

/// Writes minus infinity over the logits of the candidates whose bits in `lanes` are set.
#[inline(always)]
pub fn mask_logits(data: &mut [TokenData], lanes: u32) {
    for (lane, candidate) in data.iter_mut().enumerate().take(32) {
        if lanes >> lane & 1 != 0 {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

/// Exchanges, in both slices, elements `i` and `i + 1` for each `i` of `firsts` where `xs[i]` is
/// less than `xs[i + 1]`.
#[inline(always)]
pub fn swap_rising(xs: &mut [f32], ys: &mut [u32], firsts: impl Iterator<Item = usize>) {
    for i in firsts {
        if let (Some([a, b]), Some([y_a, y_b])) = (xs.get_mut(i..i + 2), ys.get_mut(i..i + 2))
            && *a < *b
        {
            std::mem::swap(a, b);
            std::mem::swap(y_a, y_b);
        }
    }
}
