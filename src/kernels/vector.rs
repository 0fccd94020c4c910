//! What the algorithms need of an instruction set.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::floats::{EXP, ROUND};
use crate::token::{Token, TokenData};

/// An instruction set, as a value: one exists only where the processor has the instructions, which
/// is what makes the methods safe.
///
/// `F` holds [`LANES`](Self::LANES) floats, `D` half as many doubles. Comparisons give one bit per
/// lane, the first lane lowest. Everything is `#[inline(always)]`, so that it is compiled with the
/// instruction set of the function that it ends in.
pub trait Vector: Copy {
    /// How many floats `F` holds; at most [`MAX_LANES`].
    const LANES: usize;
    /// Whether doubles come cheaper from memory than from a register of floats, even if these have
    /// to be written first. With AVX-512 widening takes three shuffles on the one port that has
    /// them: 128,256 exponentials take 83 us instead of 100. With AVX2 they take 447 instead of 385
    /// on a busy machine: its loads wait for those of the table.
    const WIDENS_LOADS: bool = false;
    /// Whether loads that cross a line of the cache take longer than taking registers of aligned
    /// ones apart: half of the time of a maximum from the second-level cache.
    const AVOIDS_SPLITS: bool = false;
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
    /// The probabilities of the first candidates.
    #[inline(always)]
    fn probabilities(self, data: &[TokenData]) -> Self::F {
        let mut all = [0.0; MAX_LANES];
        for (p, candidate) in all.iter_mut().zip(data).take(Self::LANES) {
            *p = candidate.p;
        }
        self.load(&all)
    }
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
    /// Writes `lanes` of `x` to the beginning of `to`, which has room for a whole register. Gives
    /// how many it has written.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: room for a whole register; lanes are less than their number"
    )]
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
    /// The same into memory that holds floats.
    #[inline(always)]
    fn keep_lanes(self, x: Self::F, lanes: u32, to: &mut [f32]) {
        let to: *mut [f32] = to;
        // SAFETY: the same memory, and `pack` writes nothing but floats.
        self.pack(lanes, x, unsafe { &mut *(to as *mut [MaybeUninit<f32>]) });
    }
    /// Appends `first` plus the number of each lane that `lanes` has a bit for.
    #[inline(always)]
    fn push_numbers(self, lanes: u32, first: u32, to: &mut Vec<u32>) {
        push_lanes(lanes, first, to);
    }
    /// Appends the candidates that `lanes` has bits for.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: there are as many as lanes"
    )]
    fn push_candidates(self, mut lanes: u32, data: &[TokenData], to: &mut Vec<TokenData>) {
        while lanes != 0 {
            to.push(data[lanes.trailing_zeros() as usize]);
            lanes &= lanes - 1;
        }
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
    /// The larger of the absolute values; `b` if `a` is NaN.
    #[inline(always)]
    fn max_abs(self, a: Self::F, b: Self::F) -> Self::F {
        self.max(self.abs(a), self.abs(b))
    }
    /// The larger one in the lanes that `lanes` has bits for, `b` in the others and where either is
    /// NaN.
    #[inline(always)]
    fn max_in(self, lanes: u32, a: Self::F, b: Self::F) -> Self::F {
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        let mut all = [0.0; MAX_LANES];
        self.store(&mut all, a);
        for (lane, (to, x)) in padded.iter_mut().zip(all).enumerate() {
            if lanes >> lane & 1 == 1 {
                *to = x;
            }
        }
        self.max(self.load(&padded), b)
    }
    /// By how much each lane is more than the integer at or below it.
    fn fraction(self, a: Self::F) -> Self::F;
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
    /// The first floats of `from` as doubles.
    #[inline(always)]
    fn load_wide(self, from: &[f32]) -> [Self::D; 2] {
        self.widen(self.load(from))
    }
    /// The first doubles of `from`.
    fn load_d(self, from: &[f64]) -> Self::D;
    /// Writes to the beginning of `to`.
    fn store_d(self, to: &mut [f64], x: Self::D);
    /// The sum of the bits of each `entry` and 2^45 times those of each n, as integers.
    fn add_shifted_bits(self, entry: Self::D, n: Self::D) -> Self::D;
    /// a == b, false for NaN.
    fn eq_d(self, a: Self::D, b: Self::D) -> u32;
    /// `x` where a == b, else `y`.
    fn if_eq_d(self, a: Self::D, b: Self::D, x: Self::D, y: Self::D) -> Self::D;
    /// a / b.
    fn div_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// Rounded to floats.
    fn narrow(self, a: [Self::D; 2]) -> Self::F;
    /// Writes two registers of doubles, rounded to floats, to the beginning of `to`.
    #[inline(always)]
    fn store_narrow(self, to: &mut [f32], a: [Self::D; 2]) {
        self.store(to, self.narrow(a));
    }
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
    /// 2^(n/32) by the table of [`exp`](super::exp), where n is the low half of each double, an
    /// integer.
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
    /// The sum of the bits of each lane, as integers: what overflows is lost.
    fn add_bits(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * 2^n, where n is the low 9 bits of `shifted` with their sign, as adding 1.5 * 2^23 leaves
    /// them.
    fn times_power(self, a: Self::F, shifted: Self::F) -> Self::F;
    /// Writes the logits `x` of `lanes` as candidates, numbered from `first` on by their lanes, to
    /// the beginning of `to`, which has room for a whole register. Gives how many it has written.
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: room for a whole register; lanes are less than their number"
    )]
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
    /// Whether [`exp_near`](Self::exp_near) gives what is not finite for all numbers that it cannot
    /// take, and 0 or more for those below -80: then nothing has to be asked before.
    const EXP_NEAR_TELLS: bool = false;
    /// The sum of the squares of [`CHUNK`](super::floats::CHUNK) numbers of which
    /// [`exp_near`](Self::exp_near) takes each, in one lane of one of two sums.
    const NEAR_SQUARES: f32 = 7225.0;
    /// e^x within 1.7e-7 of itself, for numbers from -80 to 40; between 0 and e^-80 for lower ones
    /// whose squares are below [`NEAR_SQUARES`](Self::NEAR_SQUARES).
    #[inline(always)]
    #[expect(
        clippy::indexing_slicing,
        reason = "`i` is below the number of coefficients"
    )]
    fn exp_near(self, x: Self::F) -> Self::F {
        let round = self.splat(ROUND);
        let shifted = self.fma(x, self.splat(std::f32::consts::LOG2_E), round);
        let k = self.sub(shifted, round);
        let r = self.fma(k, self.splat(-std::f32::consts::LN_2), x);
        let mut e = self.splat(EXP[5]);
        for i in (0..5).rev() {
            e = self.fma(e, r, self.splat(EXP[i]));
        }
        self.times_power(e, shifted)
    }
    /// The same of several registers, step by step.
    #[inline(always)]
    fn exp_near_each<const N: usize>(self, x: [Self::F; N]) -> [Self::F; N] {
        x.map(|x| self.exp_near(x))
    }
    /// The largest lane of each; no lane is NaN.
    #[inline(always)]
    fn largest_of_each(self, a: [Self::F; 4]) -> [f32; 4] {
        [
            self.largest(a[0]),
            self.largest(a[1]),
            self.largest(a[2]),
            self.largest(a[3]),
        ]
    }
    /// The largest of each of four blocks of [`BLOCK`](super::floats::BLOCK) numbers by their 16
    /// bits, the sign first; `None` where one has none from 0 on, or one above `infinity`, or where
    /// this instruction set has no quick way.
    #[inline(always)]
    fn largest_bits_of_each(self, _blocks: &[u16], _infinity: u16) -> Option<[u16; 4]> {
        None
    }
    /// Asks for a cache line; the address may be any.
    #[inline(always)]
    fn prefetch<T>(self, _at: *const T) {}
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
