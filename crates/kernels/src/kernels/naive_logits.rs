//! The naive twins of the passes over raw logits: plain Rust, with sums in `double` and the host's
//! `exp`. They are the oracle of the tests.

use super::layout::GROUP;
use super::logits::{Logits, Number, each};
use super::online_softmax::Sums;
use crate::simd::libm::exp_f64;
use crate::token::{Token, TokenData, comparable};

/// Returns the maximum; minus infinity if there are no logits.
pub fn max(xs: Logits<'_>) -> f32 {
    each!(xs, xs => largest(xs))
}

fn largest<T: Number>(xs: &[T]) -> f32 {
    let logits = xs.iter().map(|x| comparable(x.to_f32()));
    logits.fold(f32::NEG_INFINITY, |max, x| if max < x { x } else { max })
}

/// Writes the maximum of each block. Returns the maximum of all logits.
pub fn block_maxima(xs: Logits<'_>, maxima: &mut [f32]) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    each!(xs, xs => {
        for (block, to) in xs.chunks(GROUP).zip(&mut *maxima) {
            *to = largest(block);
        }
    });
    largest(maxima)
}

/// Returns the largest of all logits and the number of them above minus infinity; writes the
/// largest of each block to `maxima`.
pub fn block_maxima_and_count(xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize) {
    let max = block_maxima(xs, maxima);
    let unmasked = each!(xs, xs => xs.iter().filter(|x| x.to_f32() > f32::NEG_INFINITY).count());
    (max, unmasked)
}

/// The distance d below which exp(d), relative to the largest term 1, affects neither a `double`
/// sum nor a `float` result.
const NEGLIGIBLE: f64 = -120.0;

/// Adds logits to the sums, and writes the largest of each block to `maxima`, unless that is empty.
pub fn add(sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) {
    let max = match maxima {
        [] => max(xs),
        maxima => block_maxima(xs, maxima),
    };
    each!(xs, xs => add_all(sums, xs, max));
}

fn add_all<T: Number>(sums: &mut Sums, xs: &[T], max: f32) {
    let logits = xs.iter().map(|x| comparable(x.to_f32()));
    let mut left_out = max > sums.max;
    if left_out {
        sums.raise(max);
    }
    for x in logits {
        if x == f32::NEG_INFINITY {
            continue;
        }
        sums.unmasked += 1;
        if left_out && x == sums.max {
            left_out = false;
            continue;
        }
        // In `double` the difference is exact, which it would not be in `float`.
        let d = f64::from(x) - f64::from(sums.max);
        if d < NEGLIGIBLE || sums.max == f32::INFINITY {
            continue;
        }
        let e = exp_f64(d);
        sums.rest += e;
        sums.spread -= d * e;
    }
}

/// Returns true if a value is at or above `low` and below `high`.
pub fn has_between(xs: &[f32], low: f32, high: f32) -> bool {
    xs.iter().any(|&x| x >= low && x < high)
}

/// Returns the number of values at or above `threshold`.
pub fn count_from(xs: &[f32], threshold: f32) -> usize {
    xs.iter().filter(|&&x| x >= threshold).count()
}

/// Appends the candidates at or above `threshold`.
pub fn collect(
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    each!(xs, xs => {
        for ((i, block), &max) in xs.chunks(GROUP).enumerate().zip(maxima) {
            if max < threshold {
                continue;
            }
            let ids = first as Token + (i * GROUP) as Token..;
            for (id, logit) in ids.zip(block.iter().map(|x| x.to_f32())) {
                if logit >= threshold {
                    to.push(TokenData::new(id, logit));
                }
            }
        }
    });
}
