//! Logits that are decoded from few bytes: mostly ordinary numbers, sometimes special ones.

use arbitrary::{Arbitrary, Result, Unstructured};

/// One logit.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Logit {
    /// Eighths, so that ties are common.
    Eighths(i8),
    /// An ordinary number with full precision.
    Fine(i16, u8),
    /// Any bits: denormals, NaN with any payload, the largest numbers.
    Bits(u32),
    Masked,
    Infinite,
    NotANumber,
    Zero {
        negative: bool,
    },
}

impl Logit {
    pub fn value(self) -> f32 {
        match self {
            Logit::Eighths(n) => f32::from(n) / 8.0,
            Logit::Fine(n, low) => f32::from(n) / 1024.0 + f32::from(low) / 262_144.0,
            Logit::Bits(bits) => f32::from_bits(bits),
            Logit::Masked => f32::NEG_INFINITY,
            Logit::Infinite => f32::INFINITY,
            Logit::NotANumber => f32::NAN,
            Logit::Zero { negative } => [0.0, -0.0][usize::from(negative)],
        }
    }
}

/// A number for a parameter: often one at which something changes, sometimes any bits.
#[derive(Clone, Copy, Debug)]
pub struct Number(pub f32);

impl<'a> Arbitrary<'a> for Number {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        const EDGES: [f32; 18] = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            0.05,
            0.95,
            0.999,
            0.999_999_9,
            1.000_000_1,
            1e-3,
            1e-9,
            1e-38,
            1.1,
            2.0,
            5.0,
            100.0,
            3e38,
        ];
        Ok(Number(match u.int_in_range(0..=3)? {
            0 => *u.choose(&EDGES)?,
            1 => f32::from(u8::arbitrary(u)?) / 256.0,
            2 => f32::from(i16::arbitrary(u)?) / 256.0,
            _ => f32::from_bits(u.arbitrary()?),
        }))
    }
}

impl Number {
    /// Returns the number.
    pub fn get(self) -> f32 {
        self.0
    }
}

/// A whole number for a parameter: often small or at an edge, sometimes any.
#[derive(Clone, Copy, Debug)]
pub struct Whole(pub i32);

impl<'a> Arbitrary<'a> for Whole {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        const EDGES: [i32; 12] = [
            0,
            1,
            -1,
            2,
            40,
            64,
            128,
            129,
            1025,
            i32::MIN,
            i32::MAX,
            i32::MIN + 1,
        ];
        Ok(Whole(match u.int_in_range(0..=3)? {
            0 => *u.choose(&EDGES)?,
            1 | 2 => i32::from(u8::arbitrary(u)?),
            _ => u.arbitrary()?,
        }))
    }
}

impl Whole {
    /// Returns the number as a count of candidates. A negative number becomes a huge count.
    pub fn size(self) -> usize {
        self.0 as usize
    }
}
