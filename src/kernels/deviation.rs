//! Between which two logits the threshold of top-n-sigma lies, without the additions of the built-in.
//!
//! The built-in adds `float`s one by one. Its mean and its sum of squares are off by no more than the roundings on the way, each half a unit of the sum so far; a bound for these
//! needs the sums at the end of each block only. Mostly no logit lies between the bounds of the threshold, and then it does not matter where between them it is. Of 128,256
//! normal logits, a few hundredths of a deviation apart around the threshold, one is to be expected there by their density (an estimate, not a count); such arrays need the exact sums.
//!
//! Reads 12 bytes per candidate, and 12 again to look between the bounds.

use super::{BLOCK, current};
use crate::token::TokenData;

/// The rounding error of one operation on `float`s, relative.
const ROUNDING: f64 = f32::EPSILON as f64 / 2.0;
/// What the sums here are off by, relative to the sums of the absolute terms: 70 roundings at most, in the order of `portable`.
const SUM_ERROR: f64 = 1e-5;
/// What may be lost below the smallest normal float, and more.
const TINY: f64 = f32::MIN_POSITIVE as f64;
/// More terms, and the bounds would not hold.
const MOST: usize = 1 << 20;

/// Sums up to the end of each block, in a buffer that is reused.
#[derive(Clone, Debug, Default)]
pub struct Deviation {
    /// Of the logits and of their squares.
    sums: Vec<[f64; 2]>,
}

impl Deviation {
    /// A threshold which masks what `max - n * deviation` masks in the arithmetic of the built-in. `None` if that is too near to a logit to tell, or if a logit is
    /// masked already or no number.
    pub fn threshold(&mut self, data: &[TokenData], n: f32) -> Option<f32> {
        if data.is_empty() || data.len() > MOST {
            return None;
        }
        self.sums.resize(data.len().div_ceil(BLOCK), [0.0; 2]);
        let max = (current().moments)(data, &mut self.sums);
        let [low, high] = self.bounds(data.len(), max, n)?;
        let between = (current().any_between)(data, low, high);
        (!between).then_some(high)
    }

    /// Floats between which the threshold is.
    fn bounds(&self, len: usize, max: f32, n: f32) -> Option<[f32; 2]> {
        let (count, n, max) = (len as f64, f64::from(n), f64::from(max));
        let &[sum, squares] = self.sums.last()?;
        // Of larger ones the built-in's sum may overflow.
        if !squares.is_finite() || squares > 1e30 {
            return None;
        }
        let squares = squares * (1.0 + SUM_ERROR) + count * TINY;
        // No less than the sum of the absolute logits, by Cauchy and Schwarz.
        let absolute = 1.01 * (count * squares).sqrt();
        // The computed mean, and how far from it that of the built-in may be.
        let mean = sum / count;
        let off = (1.01 * count * ROUNDING + SUM_ERROR) * absolute / count
            + 4.0 * ROUNDING * mean.abs()
            + TINY;
        // The sum of squares around that, and by how much it is off.
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
        Some([low.next_down(), high.next_up()])
    }

    /// How much the roundings of the sum of squares come to: half a unit each, of a sum that is no larger than at the end of the block.
    fn roundings(&self, len: usize, mean: f64, off: f64) -> f64 {
        let mut left = len;
        let mut total = 0.0;
        for &[sum, squares] in &self.sums {
            let terms = left.min(BLOCK);
            left -= terms;
            let count = (len - left) as f64;
            let squares = squares * (1.0 + SUM_ERROR) + count * TINY;
            let absolute = 1.01 * (count * squares).sqrt();
            let around = squares - 2.0 * mean * sum + count * mean * mean;
            let error = SUM_ERROR * (2.0 * squares + 2.0 * mean.abs() * absolute);
            let root = (around.max(0.0) + error).sqrt() + count.sqrt() * off;
            // The sum itself is off by less than what its roundings may come to.
            let reached = root * root * (1.0 + 1.1 * count * ROUNDING) * (1.0 + 1e-6);
            total += terms as f64 * ROUNDING * binade(reached);
        }
        1.01 * total + len as f64 * TINY
    }
}

/// The power of two at or below `x`.
fn binade(x: f64) -> f64 {
    f64::from_bits(x.to_bits() & 0x7ff0_0000_0000_0000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Workspace;

    fn exact(data: &[TokenData], n: f32) -> f32 {
        let mut work = Workspace::default();
        let max = work.take_logits(data);
        let (sum, count) = work.signed_sum();
        let squares = work.squares(sum / count as f32);
        max - n * (squares / count as f32).sqrt()
    }

    fn array(logits: impl Iterator<Item = f32>) -> Vec<TokenData> {
        let data = logits.map(|logit| TokenData {
            id: 0,
            logit,
            p: 0.0,
        });
        data.collect()
    }

    /// Also that they are near: within a hundredth of a deviation.
    #[test]
    fn the_threshold_lies_between_its_bounds() {
        let mut state = 5u32;
        let mut unit = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / 16_777_216.0
        };
        let sizes = [2, 3, 15, 16, 17, 40, 513, 1000, 5000, 40_001, 131_072];
        let sizes = &sizes[..if cfg!(miri) { 7 } else { sizes.len() }];
        for &len in sizes {
            for shape in 0..6 {
                let (spread, centre) = [
                    (4.0, -1.5),
                    (1.0, 100.0),
                    (1e-3, 0.0),
                    (1e4, -3e4),
                    (1e-19, 0.0),
                    (4.0, 0.0),
                ][shape];
                let mut next = || (unit() + unit() + unit() - 1.5) * spread + centre;
                let mut data = array((0..len).map(|_| next()));
                if shape == 5 {
                    // A running sum that grows at once, and shrinks.
                    data.sort_by(|a, b| a.logit.abs().total_cmp(&b.logit.abs()).reverse());
                }
                for n in [0.3, 1.0, 4.0] {
                    let threshold = exact(&data, n);
                    let mut deviation = Deviation::default();
                    deviation.threshold(&data, n);
                    let max = data.iter().fold(f32::MIN, |max, c| max.max(c.logit));
                    let [low, high] = deviation.bounds(len, max, n).expect("all are finite");
                    assert!(
                        low <= threshold && threshold <= high,
                        "{len} {shape} {n}: {low} {threshold} {high}"
                    );
                    if shape == 0 {
                        assert!(high - low < 0.01 * n * spread, "{len}: {low} {high}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_logit_at_the_threshold_leaves_it_open() {
        let mut data = array((0..2000).map(|i| (i * 7919 % 2000) as f32 / 500.0));
        assert!(Deviation::default().threshold(&data, 1.0).is_some());
        // Moving it moves the threshold, a little less each time.
        for _ in 0..9 {
            data[8].logit = exact(&data, 1.0);
        }
        assert!(Deviation::default().threshold(&data, 1.0).is_none());
    }

    #[test]
    fn what_is_masked_or_no_number_leaves_it_open() {
        for odd in [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, 1e30] {
            let mut data = array((0..100).map(|i| i as f32));
            data[33].logit = odd;
            assert!(Deviation::default().threshold(&data, 1.0).is_none());
        }
    }
}
