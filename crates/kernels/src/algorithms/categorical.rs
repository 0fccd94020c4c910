//! Draws from a categorical distribution: the index at which a cumulative sum reaches a target.

use crate::kernels::layout::SUM_BLOCK;

/// Returns the index at which the running sum of `terms` reaches a share of their sum. `drawn`
/// holds the sum and the drawn share. `sums` holds the running sum at the end of each block of
/// [`SUM_BLOCK`] terms, and may have more elements than there are blocks.
///
/// `exactly` returns the index by the operations of the built-in. It is called only if rounding
/// could decide. Each of the built-in's two sums of n terms has a relative error of less than n *
/// 2^-53, a quotient for each term adds one such unit, and the sums here have an error of less than
/// n / 4 units. Together that is little more than half of the margin used here.
///
/// It takes two binary searches among the sums of blocks, and two passes over one block of terms.
pub fn choose<T>(
    terms: &[T],
    term: impl Fn(&T) -> f32 + Copy,
    sums: &[f64],
    drawn: (f64, f64),
    exactly: impl FnOnce(&[T]) -> usize,
) -> usize {
    let (sum, draw) = drawn;
    let margin = sum * (terms.len() + 16) as f64 * (2.0 * f64::EPSILON);
    let target = sum * draw;
    let earliest = reach(terms, term, sums, target - margin);
    let latest = reach(terms, term, sums, target + margin);
    match earliest {
        Some(chosen) if earliest == latest => chosen,
        _ => exactly(terms),
    }
}

/// Returns the index at which the running sum of `terms` reaches `draw` times their sum, computed
/// as by the built-in: with two `double` sums in order. Returns the last index if the running sum
/// never does.
pub fn choose_in_order<T>(terms: &[T], term: impl Fn(&T) -> f32, draw: f64) -> usize {
    let doubles = || terms.iter().map(|t| f64::from(term(t)));
    let sum = doubles().fold(0.0f64, |sum, p| sum + p);
    first_reaching(doubles(), sum * draw).unwrap_or(terms.len().saturating_sub(1))
}

/// Returns the index of the first of `terms` at which their running sum reaches `target`. `None` if
/// it never does, for example if the sum is NaN because the largest logit is infinite. The built-in
/// then chooses the last term.
pub fn first_reaching(mut terms: impl Iterator<Item = f64>, target: f64) -> Option<usize> {
    let mut running = 0.0;
    terms.position(|term| {
        running += term;
        running >= target
    })
}

/// Returns the first index at which the running sum of the terms reaches `target`; `None` if it
/// never does.
// In bounds: there is a sum for each block of terms.
fn reach<T>(terms: &[T], term: impl Fn(&T) -> f32, sums: &[f64], target: f64) -> Option<usize> {
    let sums = &sums[..terms.len().div_ceil(SUM_BLOCK)];
    let block = sums.partition_point(|&sum| sum < target);
    let mut sum = if block == 0 { 0.0 } else { sums[block - 1] };
    let start = block * SUM_BLOCK;
    for (i, x) in terms.iter().enumerate().skip(start).take(SUM_BLOCK) {
        sum += f64::from(term(x));
        if sum >= target {
            return Some(i);
        }
    }
    None
}
