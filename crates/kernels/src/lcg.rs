//! Pseudorandom numbers, the same on every machine, for the inputs of tests and for the arrays with
//! which a certificate compares samplers.

/// A linear congruential generator of 32 bits, with the constants of Numerical Recipes. Its upper
/// bits are more random than the lower ones.
#[derive(Clone, Copy, Debug)]
pub struct Lcg(pub u32);

impl Lcg {
    /// Returns the next state. Callers use its upper bits.
    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }

    /// Returns a multiple of 2^-24 that is at least 0 and less than 1.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests;
