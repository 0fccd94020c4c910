//! Distributions that only tests need.

use super::Lcg;

impl Lcg {
    /// Returns an approximately normally distributed number, with mean 0 and standard deviation 1.
    pub fn normal(&mut self) -> f32 {
        2.0 * (self.unit() + self.unit() + self.unit() - 1.5)
    }

    /// Returns `n` numbers between -128 / `coarse` and 128 / `coarse`, rounded to quarters.
    pub fn quarters(mut self, n: usize, coarse: f32) -> Vec<f32> {
        let mut next = || ((self.bits() >> 8) as f32 / 65_536.0 - 128.0) / coarse;
        (0..n).map(|_| (next() * 4.0).round() / 4.0).collect()
    }
}
