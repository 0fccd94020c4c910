//! The random numbers from which weights are made.

/// The standard deviation of the sum of eight uniformly distributed 16-bit numbers.
const SUM_SPREAD: f32 = 53_510.2;

/// The mean of that sum.
const SUM_MEAN: i32 = 4 * 65_535;

/// The generator SplitMix64 by Sebastiano Vigna.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns an approximately normally distributed number with mean 0 and standard deviation 1.
    ///
    /// It is a sum of eight uniform numbers. Logarithms and sines are avoided since they differ
    /// between C libraries, and the same seed must give the same file everywhere.
    pub fn normal(&mut self) -> f32 {
        let sum = quarter_sum(self.next()) + quarter_sum(self.next());
        (sum - SUM_MEAN) as f32 / SUM_SPREAD
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Returns the sum of the four 16-bit parts.
fn quarter_sum(bits: u64) -> i32 {
    let part = |shift: u32| i32::from((bits >> shift) as u16);
    part(0) + part(16) + part(32) + part(48)
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn numbers_are_standard_normal() {
        let mut random = Random::new(7);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal().into()).collect();
        let mean = numbers.iter().sum::<f64>() / 100_000.0;
        let variance = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 100_000.0;
        assert!(mean.abs() < 0.02, "mean {mean}");
        assert!((variance - 1.0).abs() < 0.02, "variance {variance}");
    }
}
