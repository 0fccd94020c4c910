//! Pseudorandom numbers for the inputs of tests, and for the arrays that a certificate compares.
//! They must be the same on every machine.

/// A linear congruential generator of 32 bits, with the constants of Numerical Recipes. Its upper
/// bits are more random than the lower ones.
#[derive(Clone, Copy, Debug)]
pub struct Lcg(pub u32);

impl Lcg {
    /// Returns the next state, of which callers use the upper bits.
    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0
    }

    /// Returns a number from 0 to 1, with 24 bits.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 24) as f32
    }
}

#[cfg(test)]
mod tests;
