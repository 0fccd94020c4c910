//! Finds a number near the k-th largest of a few floats, without branches that depend on them: a
//! model runs between two tokens, and after it the processor cannot predict such branches. The
//! search takes at most 33 passes over the floats, usually 10.

use crate::kernels::scan::count_at_least;
use crate::kernels::sort_key::{descending_key, logit_of};

/// Returns a number that at least `k` of `xs` reach, and few more unless some are equal; `None` if
/// fewer than `k` are above minus infinity. `k` must be at least 1.
///
/// The number is found by bisection over all `float`s.
pub fn nearly_kth_largest(xs: &[f32], k: usize) -> Option<f32> {
    let count = |key: u32| count_at_least(xs, logit_of(key));
    // Keys rise as numbers fall. Too few of `xs` reach the number of the key `low`, and enough
    // reach that of `high`.
    let mut low = descending_key(f32::INFINITY).wrapping_sub(1);
    let mut high = descending_key(f32::MIN);
    if count(high) < k {
        return None;
    }
    while high.wrapping_sub(low) > 1 {
        let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
        let reached = count(middle);
        if reached < k {
            low = middle;
            continue;
        }
        high = middle;
        if reached <= k + k / 16 {
            break;
        }
    }
    Some(logit_of(high))
}

#[cfg(test)]
mod tests;
