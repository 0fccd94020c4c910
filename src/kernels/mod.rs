//! Whole-array arithmetic on candidates, in the operations and the order of the built-ins.
//!
//! - [`math`]: the host's `expf` and `logf`.
//! - [`order`]: descending order, full or of the top k only.
//! - this file: maxima and softmax sums.
//!
//! All of it is scalar code and reads the 12-byte array in place, once per function.

pub mod math;
pub mod order;

use std::ffi::CStr;

use crate::token::{TokenData, comparable};
use math::exp;

/// The instruction set that the kernels use.
pub fn instruction_set() -> &'static CStr {
    c"scalar"
}

/// The largest logit; that of the first candidate if the array is `sorted`. Minus infinity when empty.
///
/// Reads 12 bytes per candidate.
pub fn max_logit(data: &[TokenData], sorted: bool) -> f32 {
    let Some((first, rest)) = data.split_first() else {
        return f32::NEG_INFINITY;
    };
    let mut max = comparable(first.logit);
    if sorted {
        return max;
    }
    for candidate in rest {
        if max < candidate.logit {
            max = candidate.logit;
        }
    }
    max
}

/// Index of the largest logit, the first of equals; `None` when empty.
///
/// Reads 12 bytes per candidate.
pub fn argmax(data: &[TokenData]) -> Option<usize> {
    let mut best = 0;
    let mut max = comparable(data.first()?.logit);
    for (i, candidate) in data.iter().enumerate().skip(1) {
        if candidate.logit > max {
            best = i;
            max = candidate.logit;
        }
    }
    Some(best)
}

/// Writes `exp(logit - max)` into every `p`; gives their sum as a `float` and as a `double`, each added in array order.
///
/// The order of the additions is the contract: the built-ins' cuts depend on the last bit of the sum.
/// Reads and writes 12 bytes per candidate, one `exp` each.
pub fn exponentiate(data: &mut [TokenData], max: f32) -> (f32, f64) {
    let mut sum = 0.0f32;
    let mut sum_double = 0.0f64;
    for candidate in data {
        let p = exp(comparable(candidate.logit) - max);
        candidate.p = p;
        sum += p;
        sum_double += f64::from(p);
    }
    (sum, sum_double)
}

/// Probabilities of all candidates into `p`, normalised by the `float` sum, as top-p and typical have them.
///
/// Two passes of 12 bytes per candidate.
pub fn softmax(data: &mut [TokenData], sorted: bool) {
    let max = max_logit(data, sorted);
    let (sum, _) = exponentiate(data, max);
    for candidate in data {
        candidate.p /= sum;
    }
}
