//! Bounds the threshold of top-n-sigma, without repeating the additions of the built-in.
//!
//! The built-in adds `float`s one by one. The error of its mean and its sum of squares is at most
//! the sum of the roundings, each at most half a unit in the last place of the sum so far. A bound
//! on these needs only the sums at the end of each block. Usually no logit lies between the bounds
//! on the threshold, so its exact position does not matter. For 128,256 normally distributed logits
//! the bounds are a few hundredths of a deviation apart, and by an estimate from the density about
//! one logit lies between them. Such arrays need the exact sums.
//!
//! Masking reads 12 bytes per candidate twice and writes them once. The first pass keeps the
//! largest logit of each group of adjacent candidates, so only groups that reach the bounds are
//! searched. The exact sums take one more read, which adds the squares while the certain candidates
//! are masked. From `OPEN` logits on, the first pass also forms the sum of the logits, since more
//! logits mean wider bounds and denser logits.

use super::scratch::Room;
use crate::host_profile::{Fused, fuses};
use crate::kernels::layout::{GROUP, SUM_BLOCK};
use crate::kernels::moments::{moments, moments_of_logits, squares_masking, squares_of_logits};
use crate::kernels::rewrite::{mask_below, mask_logits_below};
use crate::kernels::scan::{self, max_logit};
use crate::kernels::signed_sum::{signed_sum, signed_sum_of_logits};
use crate::per_thread::lent_per_thread;
use crate::simd::libm::fma;
use crate::token::TokenData;

/// The unit roundoff of `float`: the maximum relative rounding error of one operation, unless the
/// result is below the smallest normal float.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;
/// The error of the sums here, relative to the sums of the absolute terms: 70 roundings at most, in
/// the order of `moments`.
const SUM_ERROR: f64 = 1e-5;
/// An upper bound on the error of an operation whose result is below the smallest normal float.
const TINY: f64 = f32::MIN_POSITIVE as f64;
/// The number of terms beyond which the bounds would not hold.
const MOST: usize = 1 << 20;

/// The number of logits from which on it is more likely than not that at least one lies between the
/// bounds. The sum in order is then formed at once.
const OPEN: usize = 140_000;

/// The floats between which the threshold lies.
struct Bounds {
    low: f32,
    high: f32,
    /// The largest logit.
    max: f32,
    /// The sum of all logits in the arithmetic of the built-in, if it came with the bounds.
    sum: Option<f32>,
}

/// Reused buffers for the sums up to the end of each block, and the maxima.
#[derive(Clone, Debug, Default)]
pub struct SigmaBounds {
    /// The sums of the logits and of their squares.
    sums: Vec<[f64; 2]>,
    /// The largest logit of each group.
    maxima: Vec<f32>,
}

lent_per_thread!(SigmaBounds);

impl Room for SigmaBounds {
    fn warm_up(&mut self, n: usize) {
        self.sums.warm_up(n.div_ceil(SUM_BLOCK));
        self.maxima.warm_up(n.div_ceil(GROUP));
    }
}

impl SigmaBounds {
    /// Masks the logits below `max - n * deviation`, in the arithmetic of the built-in.
    pub fn mask(&mut self, data: &mut [TokenData], n: f32) {
        let bounds = self.take(data, n);
        if let Some(Bounds { low, high, .. }) = bounds
            && !self.any_between(data, low, high)
        {
            return mask_below(data, high);
        }
        // Logits below the bounds, if there are bounds, are masked in the same pass.
        let (low, max, known) = match &bounds {
            // No logit is masked yet.
            Some(bounds) => (bounds.low, bounds.max, bounds.sum),
            None => (f32::NEG_INFINITY, max_logit(data, false), None),
        };
        let (sum, count) = match known {
            Some(sum) => (sum, data.len()),
            None => signed_sum(data),
        };
        if count == 0 {
            return;
        }
        let count = count as f32;
        let squares = squares_masking(data, sum / count, low);
        let threshold = threshold(max, n, (squares / count).sqrt());
        if bounds.is_none() {
            return mask_below(data, threshold);
        }
        let groups = data.chunks_mut(GROUP).zip(&self.maxima);
        let reach = groups.filter(|&(_, &max)| max >= low);
        reach.for_each(|(group, _)| mask_below(group, threshold));
    }

    /// Masks the logits of a vocabulary as [`mask`](Self::mask) masks those of candidates. None of
    /// them is NaN; `max` is the largest, and finite; `maxima` are the largest of each group of
    /// [`GROUP`].
    pub fn mask_logits(&mut self, logits: &mut [f32], maxima: &[f32], max: f32, n: f32) {
        let threshold = self.threshold_of(logits, maxima, max, n);
        mask_logits_below(logits, threshold);
    }

    /// Returns a number below which all logits are to be masked.
    fn threshold_of(&mut self, logits: &[f32], maxima: &[f32], max: f32, n: f32) -> f32 {
        if logits.len() <= MOST {
            let blocks = logits.len().div_ceil(SUM_BLOCK);
            self.sums.resize(blocks, [0.0; 2]);
            moments_of_logits(logits, &mut self.sums);
            let is_open = |bounds: &Bounds| {
                let groups = logits.chunks(GROUP).zip(maxima);
                let mut reach = groups.filter(|&(_, &max)| max >= bounds.low);
                let between = |&x: &f32| x >= bounds.low && x < bounds.high;
                reach.any(|(group, _)| group.iter().any(between))
            };
            let bounds = self.bounds(logits.len(), max, n);
            if let Some(bounds) = bounds.filter(|bounds| !is_open(bounds)) {
                return bounds.high;
            }
        }
        // At least one logit is finite.
        let (sum, count) = signed_sum_of_logits(logits);
        let count = count as f32;
        let squares = squares_of_logits(logits, sum / count);
        threshold(max, n, (squares / count).sqrt())
    }

    /// Returns floats between which the threshold lies. `None` if a logit is masked, not finite or
    /// very large, or if there is no logit or more than [`MOST`].
    fn take(&mut self, data: &[TokenData], n: f32) -> Option<Bounds> {
        if data.is_empty() || data.len() > MOST {
            return None;
        }
        self.sums.resize(data.len().div_ceil(SUM_BLOCK), [0.0; 2]);
        self.maxima.resize(data.len().div_ceil(GROUP), 0.0);
        let (max, sum) = moments(data, &mut self.sums, &mut self.maxima, data.len() >= OPEN);
        let bounds = self.bounds(data.len(), max, n)?;
        Some(Bounds { sum, ..bounds })
    }

    /// Returns true if a logit is at or above `low` and below `high`.
    fn any_between(&self, data: &[TokenData], low: f32, high: f32) -> bool {
        let groups = data.chunks(GROUP).zip(&self.maxima);
        let mut reach = groups.filter(|&(_, &max)| max >= low);
        reach.any(|(group, _)| scan::any_between(group, low, high))
    }

    /// Returns the floats between which the threshold is, from the sums of one pass. `None` if the
    /// sums of the built-in may overflow.
    fn bounds(&self, len: usize, largest: f32, n: f32) -> Option<Bounds> {
        let (count, n, max) = (len as f64, f64::from(n), f64::from(largest));
        let &[sum, squares] = self.sums.last()?;
        // With larger sums, those of the built-in may overflow.
        if !squares.is_finite() || squares > 1e30 {
            return None;
        }
        let squares = squares * (1.0 + SUM_ERROR) + count * TINY;
        // At least the sum of the absolute values, by the Cauchy-Schwarz inequality.
        let absolute = 1.01 * (count * squares).sqrt();
        // The computed mean, and a bound on its distance from the built-in's.
        let mean = sum / count;
        let off = (1.01 * count * ROUNDING + SUM_ERROR) * absolute / count
            + 4.0 * ROUNDING * mean.abs()
            + TINY;
        // The sum of squares around the mean, and a bound on its error.
        let around = squares - 2.0 * mean * sum + count * mean * mean;
        let error = SUM_ERROR * (2.0 * squares + 2.0 * mean.abs() * absolute)
            + 2.0 * off * SUM_ERROR * absolute
            + count * off * off
            + 2.0 * count * TINY;
        let relative = 8.0 * ROUNDING;
        let rounded = self.roundings(len, mean, off);
        let low = (around - error) * (1.0 - relative) - rounded;
        let high = (around + error) * (1.0 + relative) + rounded;
        let deviation = |squares: f64| (squares.max(0.0) / count).sqrt();
        let furthest = n * deviation(high) * (1.0 + relative);
        let nearest = n * deviation(low) * (1.0 - relative);
        let slack = relative * (max.abs() + furthest) + TINY;
        let low = (max - furthest - slack) as f32;
        let high = (max - nearest + slack) as f32;
        Some(Bounds {
            low: low.next_down(),
            high: high.next_up(),
            max: largest,
            sum: None,
        })
    }

    /// Returns a bound on the roundings of the sum of squares: each is at most half a unit in the
    /// last place of a sum that is not larger than the sum at the end of the block.
    fn roundings(&self, len: usize, mean: f64, off: f64) -> f64 {
        let mut left = len;
        let mut total = 0.0;
        for &[sum, squares] in &self.sums {
            let terms = left.min(SUM_BLOCK);
            left -= terms;
            let count = (len - left) as f64;
            let squares = squares * (1.0 + SUM_ERROR) + count * TINY;
            let absolute = 1.01 * (count * squares).sqrt();
            let around = squares - 2.0 * mean * sum + count * mean * mean;
            let error = SUM_ERROR * (2.0 * squares + 2.0 * mean.abs() * absolute);
            let root = (around.max(0.0) + error).sqrt() + count.sqrt() * off;
            // The error of the sum is less than its roundings may add up to.
            let reached = root * root * (1.0 + 1.1 * count * ROUNDING) * (1.0 + 1e-6);
            total += terms as f64 * ROUNDING * binade(reached);
        }
        1.01 * total + len as f64 * TINY
    }
}

/// Returns the threshold, in the arithmetic of the built-in.
fn threshold(max: f32, n: f32, deviation: f32) -> f32 {
    match fuses(Fused::Threshold) {
        true => fma(-n, deviation, max),
        false => max - n * deviation,
    }
}

/// Returns the power of two at or below `x`.
fn binade(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0x7ff0_0000_0000_0000)
}

#[cfg(test)]
mod tests;
