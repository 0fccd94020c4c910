//! What the algorithms need of an instruction set.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use crate::token::{Token, TokenData};

/// An instruction set, as a value: one exists only where the processor has the instructions, which is what makes the methods safe.
///
/// `F` holds [`LANES`](Self::LANES) floats, `D` half as many doubles. Comparisons give one bit per lane, the first lane lowest.
/// Everything is `#[inline(always)]`, so that it is compiled with the instruction set of the function that it ends in.
pub trait Vector: Copy {
    /// How many floats `F` holds; at most [`MAX_LANES`].
    const LANES: usize;
    /// Floats.
    type F: Copy;
    /// Doubles, half as many.
    type D: Copy;

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// The first floats of `from`.
    fn load(self, from: &[f32]) -> Self::F;
    /// Writes to the beginning of `to`.
    fn store(self, to: &mut [f32], x: Self::F);
    /// The logits of the first candidates.
    fn logits(self, data: &[TokenData]) -> Self::F;
    /// Writes the logits of the first candidates and nothing else.
    fn set_logits(self, data: &mut [TokenData], x: Self::F);
    /// Writes the probabilities of the first candidates and nothing else.
    fn set_p(self, data: &mut [TokenData], x: Self::F);
    /// Writes the first candidates.
    fn set_all(self, data: &mut [TokenData], ids: &[u32], logits: Self::F, ps: Self::F);
    /// Whether the ids of the first candidates count up from `first`.
    fn ids_count_from(self, data: &[TokenData], first: u32) -> bool;
    /// The elements of `from` that the first of `indices` name.
    ///
    /// # Panics
    /// If one names none.
    fn gather(self, from: &[f32], indices: &[u32]) -> Self::F;
    /// The first words of `from` as they are.
    fn load_bits(self, from: &[u32]) -> Self::F;
    /// Appends the lanes that `lanes` has bits for.
    #[inline(always)]
    fn push(self, mut lanes: u32, x: Self::F, to: &mut Vec<f32>) {
        let mut all = [0.0; MAX_LANES];
        self.store(&mut all, x);
        while lanes != 0 {
            to.push(all[lanes.trailing_zeros() as usize % MAX_LANES]);
            lanes &= lanes - 1;
        }
    }
    /// Writes `lanes` of `x` to the beginning of `to`, which has room for a whole register. Gives how many it has written.
    #[inline(always)]
    fn pack(self, mut lanes: u32, x: Self::F, to: &mut [MaybeUninit<f32>]) -> usize {
        let mut all = [0.0; MAX_LANES];
        self.store(&mut all, x);
        let mut packed = 0;
        while lanes != 0 {
            to[packed].write(all[lanes.trailing_zeros() as usize % MAX_LANES]);
            packed += 1;
            lanes &= lanes - 1;
        }
        packed
    }
    /// Appends `first` plus the number of each lane that `lanes` has a bit for.
    #[inline(always)]
    fn push_numbers(self, lanes: u32, first: u32, to: &mut Vec<u32>) {
        push_lanes(lanes, first, to);
    }
    /// Exchanges lanes 0 and 1, 2 and 3, and so on, of both, where the former is less in `x`.
    fn exchange_even(self, x: Self::F, y: Self::F) -> (Self::F, Self::F);
    /// The same of lanes 1 and 2, 3 and 4, and so on.
    fn exchange_odd(self, x: Self::F, y: Self::F) -> (Self::F, Self::F);
    /// Writes the bits to the beginning of `to`.
    fn store_bits(self, to: &mut [u32], x: Self::F);

    /// a + b.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// The larger one; `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// Without the sign.
    fn abs(self, a: Self::F) -> Self::F;
    /// a >= b, false for NaN.
    fn ge(self, a: Self::F, b: Self::F) -> u32;
    /// a < b, false for NaN.
    fn lt(self, a: Self::F, b: Self::F) -> u32;
    /// a == b, false for NaN.
    fn eq(self, a: Self::F, b: Self::F) -> u32;
    /// `x` where a < b, else `y`; NaN is not below anything.
    fn if_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;
    /// The largest lane; no lane is NaN.
    fn largest(self, a: Self::F) -> f32;
    /// The sum of the lanes, in no particular order.
    fn total(self, a: Self::F) -> f32;

    /// `x` in every lane.
    fn splat_d(self, x: f64) -> Self::D;
    /// Lower and upper half as doubles.
    fn widen(self, a: Self::F) -> [Self::D; 2];
    /// Rounded to floats.
    fn narrow(self, a: [Self::D; 2]) -> Self::F;
    /// a + b.
    fn add_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a - b.
    fn sub_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a * b.
    fn mul_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a * b + c, rounded once.
    fn fma_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    /// a * b - c, rounded once.
    fn fms_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    /// Without the sign.
    fn abs_d(self, a: Self::D) -> Self::D;
    /// The larger one; `b` where either is NaN.
    fn max_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// The largest lane; no lane is NaN.
    fn largest_d(self, a: Self::D) -> f64;
    /// The sum of the lanes, in no particular order.
    fn total_d(self, a: Self::D) -> f64;
    /// 2^(n/32) by the table of [`exp`](super::exp), where n is the low half of each double, an integer.
    fn exp2_32nds(self, n: [Self::D; 2]) -> [Self::D; 2];
    /// What the table of [`ln`](super::ln) says of positive normal floats.
    fn ln_parts(self, x: Self::F) -> LnParts<Self::D>;

    // For raw logits.

    /// The first numbers of `from`, widened.
    fn load_f16(self, from: &[f16]) -> Self::F;
    /// The same of bfloat16.
    fn load_bf16(self, from: &[bf16]) -> Self::F;
    /// a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// a * 2^n, where n is the low 9 bits of `shifted` with their sign, as adding 1.5 * 2^23 leaves them.
    fn times_power(self, a: Self::F, shifted: Self::F) -> Self::F;
    /// Writes the logits `x` of `lanes` as candidates, numbered from `first` on by their lanes, to the beginning of `to`, which has room for a whole register. Gives
    /// how many it has written.
    #[inline(always)]
    fn keep(
        self,
        x: Self::F,
        mut lanes: u32,
        first: u32,
        to: &mut [MaybeUninit<TokenData>],
    ) -> usize {
        let mut logits = [0.0; MAX_LANES];
        self.store(&mut logits, x);
        let mut kept = 0;
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            to[kept].write(TokenData {
                id: (first + lane) as Token,
                logit: logits[lane as usize % MAX_LANES],
                p: 0.0,
            });
            kept += 1;
            lanes &= lanes - 1;
        }
        kept
    }
    /// The words `first`, `first` + 1 and so on.
    #[inline(always)]
    fn words_from(self, first: u32) -> Self::F {
        let mut words = [0; MAX_LANES];
        for (word, to) in (first..).zip(&mut words) {
            *to = word;
        }
        self.load_bits(&words)
    }
    /// a + b as words.
    #[inline(always)]
    fn add_words(self, a: Self::F, b: Self::F) -> Self::F {
        let [mut words, mut others] = [[0.0f32; MAX_LANES]; 2];
        self.store(&mut words, a);
        self.store(&mut others, b);
        for (word, other) in words.iter_mut().zip(others) {
            *word = f32::from_bits(word.to_bits().wrapping_add(other.to_bits()));
        }
        self.load(&words)
    }
    /// Writes `lanes` of `x` to the beginning of `to`, those of `ids` to that of `to_ids`; each has room for a whole register.
    #[inline(always)]
    fn keep_pairs(
        self,
        x: Self::F,
        ids: Self::F,
        mut lanes: u32,
        to_ids: &mut [u32],
        to: &mut [f32],
    ) {
        let (mut logits, mut bits) = ([0.0; MAX_LANES], [0.0f32; MAX_LANES]);
        self.store(&mut logits, x);
        self.store(&mut bits, ids);
        let mut kept = 0;
        while lanes != 0 {
            let lane = lanes.trailing_zeros() as usize % MAX_LANES;
            to_ids[kept] = bits[lane].to_bits();
            to[kept] = logits[lane];
            kept += 1;
            lanes &= lanes - 1;
        }
    }
}

/// x as 2^k * z, with the entry of the table for z.
#[derive(Clone, Copy)]
pub struct LnParts<D> {
    /// Between 0.7 and 1.4.
    pub z: [D; 2],
    /// About 1 / z.
    pub inverse: [D; 2],
    /// -ln of that.
    pub ln: [D; 2],
    /// The exponent.
    pub k: [D; 2],
}

/// No `F` holds more.
pub const MAX_LANES: usize = 16;

/// Appends `base` plus the number of each bit of `lanes`, one by one: quickest where there are few.
#[inline(always)]
pub fn push_lanes(mut lanes: u32, base: u32, to: &mut Vec<u32>) {
    while lanes != 0 {
        to.push(base + lanes.trailing_zeros());
        lanes &= lanes - 1;
    }
}
