//! Passes over raw logits: contiguous numbers of one of three precisions, widened in registers,
//! never copied.
//!
//! Nothing here repeats a built-in's rounding: that is what [`Workspace`](super::Workspace) is for.
//! What a pass costs, V = 128256, one thread, AVX-512 at 2.3 GHz, as a multiple of the maximum over
//! the same `f32` logits, by loads of which none crosses a line of the cache (5.2 us; 9.6 where all
//! do):
//!
//! | pass | operations per 16 logits | cost |
//! | --- | --- | --- |
//! | [`Logits::block_maxima`] | 1 load, 1.25 maxima, for each 64 logits 3.5 to find the largest lane | 1.4; of f16 and bf16 1.2 |
//! | [`Logits::block_maxima_and_count`] | 1 load, 1 maximum, and a product with 0, whose sum tells whether any is masked | 2.3 |
//! | [`Sums::add`] | 1 maximum, 9 for `exp`, 3 for the sums | 5.6 |
//! | [`Sums::add_mass`] with maxima | the same with 1 for the sum, and 1 for the maxima of blocks | 5; of f16 and bf16 6 |
//! | [`Logits::collect`] | 1 comparison for 16 blocks; of blocks that pass: 1 load, 1 comparison, 8 to store what passes | 0.2 to 14 |
//! | [`Logits::collect_survivors`] | the same with 4 to store, for 4 bytes each and a bit for every token | 0.2 to 5 |
//! | [`masses_above`](super::survivors::masses_above) | of 16 that were collected: 10 for `exp`, 17 for the sums | 4 of 29,000 |
//! | [`Survivors::masses`] | of 16 that were collected: 3 for a quotient, 8 for `exp`, 3 for the sum | 1.5 of 29,000 |
//!
//! Multiplications in registers this wide are asleep where a processor has not made one for half a
//! millisecond, and waking them takes some 30 us of the first pass that has an `exp`. Registers of
//! half the width sleep, too, and take twice as long awake.
//!
//! f16 and bf16 have half the bytes. Their maxima are found by their bits, which order as the
//! numbers do from 0 on, in registers that hold 32: only where a block has no such number, or NaN,
//! are they widened. Where an instruction set reads a chunk twice, it is widened once, into the
//! first-level cache.
//!
//! What lost: two readings of each chunk, for its maximum first and then for its sums, with AVX-512
//! (a fifth more); loops over few registers that the compiler unrolls, so that it keeps most of
//! them in memory (a third more for the sums); one register at a time through the exponential
//! instead of four abreast (a twentieth); widening for the maxima (2.4 times the time); counting
//! unmasked logits by a comparison of each (7 us more); a bound below every exponent (a maximum for
//! each register), where a sum says that none is needed; the largest lane of one register at a
//! time, where four are folded into one (a fifth of the time of the maxima); a comparison for each
//! block that may pass, and for each register of one (a quarter of what the sieve takes with its
//! default parameters).
//!
//! # The exponential
//!
//! e^x = 2^k e^r with k the integer nearest to x / ln 2 and |r| <= ln 2 / 2; e^r is a polynomial of
//! degree 5, within 1.4e-7. x is reduced itself, not its difference from the largest logit, which
//! `float` could round by 1e-6 of a term; the difference is taken of the exponents, which are
//! integers, and what is left in `double`, once per sum. Terms are 2^64 times too large, so that
//! those down to e^-131 are normal `float`s: a distribution so certain that nothing else is left
//! keeps its digits.
//!
//! Where the reference is within 40 of 0 and the logits of a chunk are not far from it, nothing
//! needs a unit or a bound (`Vector::exp_near`). With AVX-512 the sum of the terms tells afterwards
//! whether that was so, and a table of 2^(i/32) leaves a polynomial of degree 2, within 6e-8, and 9
//! operations; without, the sum of the squares tells before.
//!
//! Up to 8 terms are added as `float`s in each lane, then as `double`s: all in all the sums are
//! right within 5e-7, mostly 1e-7. They depend on the instruction set in the last bits.

use std::mem::MaybeUninit;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::math::exp_f64;
use super::survivors::{Survivors, THRESHOLDS};
use super::table::current;
use crate::token::TokenData;

/// Of how many logits a maximum is kept.
pub const BLOCK: usize = 64;
/// How many logits are looked at twice in a row: 4 KiB, which stay in the first-level cache.
/// Streams of logits are cut at its multiples.
pub const CHUNK: usize = 1024;

/// Raw logits of one position, indexed by token, in any of three precisions.
#[derive(Clone, Copy, Debug)]
pub enum Logits<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// IEEE half precision.
    F16(&'a [f16]),
    /// bfloat16: the upper half of a `f32`.
    Bf16(&'a [bf16]),
}

impl<'a> From<&'a [f32]> for Logits<'a> {
    fn from(logits: &'a [f32]) -> Self {
        Logits::F32(logits)
    }
}

impl<'a> From<&'a Vec<f32>> for Logits<'a> {
    fn from(logits: &'a Vec<f32>) -> Self {
        Logits::F32(logits)
    }
}

impl<'a> From<&'a [f16]> for Logits<'a> {
    fn from(logits: &'a [f16]) -> Self {
        Logits::F16(logits)
    }
}

impl<'a> From<&'a [bf16]> for Logits<'a> {
    fn from(logits: &'a [bf16]) -> Self {
        Logits::Bf16(logits)
    }
}

/// The same expression for each precision.
macro_rules! each {
    ($logits:expr, $xs:ident => $body:expr) => {
        match $logits {
            Logits::F32($xs) => $body,
            Logits::F16($xs) => $body,
            Logits::Bf16($xs) => $body,
        }
    };
}
pub(super) use each;

impl<'a> Logits<'a> {
    /// The size of the vocabulary.
    pub fn len(&self) -> usize {
        each!(self, xs => xs.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One logit, widened.
    ///
    /// # Panics
    /// If there is none at `index`.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: every caller passes a token of the vocabulary"
    )]
    pub fn at(&self, index: usize) -> f32 {
        each!(self, xs => xs[index].to_f32())
    }

    /// Those from `start` to before `end`.
    ///
    /// # Panics
    /// If not all of these are there.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: every caller passes a range of the vocabulary"
    )]
    pub fn part(&self, start: usize, end: usize) -> Logits<'a> {
        each!(self, xs => (&xs[start..end]).into())
    }

    /// Writes those from `start` on, widened, into `to`.
    ///
    /// # Panics
    /// If there are not enough to fill it.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: every caller asks for a range of the vocabulary"
    )]
    pub fn widen(&self, start: usize, to: &mut [f32]) {
        let range = start..start + to.len();
        match self {
            Logits::F32(xs) => to.copy_from_slice(&xs[range]),
            Logits::F16(xs) => xs[range].convert_to_f32_slice(to),
            Logits::Bf16(xs) => xs[range].convert_to_f32_slice(to),
        }
    }

    /// The largest of each [`BLOCK`] into `maxima`, as many as there are blocks, and the largest of
    /// all: minus infinity where every logit is masked.
    pub fn block_maxima(&self, maxima: &mut [f32]) -> f32 {
        (current().floats.block_maxima)(*self, maxima)
    }

    /// The same, and how many are not masked.
    pub fn block_maxima_and_count(&self, maxima: &mut [f32]) -> (f32, usize) {
        (current().floats.block_maxima_and_count)(*self, maxima)
    }

    /// The largest, minus infinity where every logit is masked.
    pub fn max(&self) -> f32 {
        (current().floats.max)(*self)
    }

    /// Appends the candidates whose logits are at least `threshold`, which is above minus infinity,
    /// numbered from `first`. Only blocks whose maximum in `maxima` reaches it are looked at.
    pub fn collect(
        &self,
        maxima: &[f32],
        first: u32,
        threshold: f32,
        candidates: &mut Vec<TokenData>,
    ) {
        (current().floats.collect)(*self, maxima, first, threshold, candidates);
    }

    /// The same as survivors, of which none is at `first` or behind it yet; `first` is a multiple
    /// of [`BLOCK`].
    pub fn collect_survivors(
        &self,
        maxima: &[f32],
        first: u32,
        threshold: f32,
        to: &mut Survivors,
    ) {
        (current().floats.collect_survivors)(*self, maxima, first, threshold, to);
    }
}

/// One of the three precisions.
pub trait Number: Copy + 'static {
    /// In single precision, without rounding.
    fn to_f32(self) -> f32;
}

impl Number for f32 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self
    }
}

impl Number for f16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        self.to_f32()
    }
}

impl Number for bf16 {
    #[inline(always)]
    fn to_f32(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Sums over logits x with d = x - max, of all but one largest; what every metric follows from.
///
/// A logit of plus infinity takes all the probability: then the sums are 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sums {
    /// The largest.
    pub max: f32,
    /// Sum of e^d.
    pub rest: f64,
    /// Sum of -d e^d.
    pub spread: f64,
    /// How many are above minus infinity.
    pub unmasked: usize,
}

impl Default for Sums {
    /// Of no logits.
    fn default() -> Self {
        Self {
            max: f32::NEG_INFINITY,
            rest: 0.0,
            spread: 0.0,
            unmasked: 0,
        }
    }
}

impl Sums {
    /// Adds `logits`, and leaves the largest of each block in `maxima`, if that is not empty.
    pub fn add(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        (current().floats.add)(self, logits, maxima);
    }

    /// The same without the spread, in less time. All logits of a stream must be added alike.
    pub fn add_mass(&mut self, logits: Logits<'_>, maxima: &mut [f32]) {
        (current().floats.add_mass)(self, logits, maxima);
        self.spread = 0.0;
    }

    /// Makes the sums relative to `max`, which is not below the maximum so far.
    pub fn raise(&mut self, max: f32) {
        if max == f32::INFINITY {
            // It takes all the probability.
            (self.rest, self.spread) = (0.0, 0.0);
        } else if self.max > f32::NEG_INFINITY {
            let d = f64::from(self.max) - f64::from(max);
            let factor = exp_f64(d);
            let mass = 1.0 + self.rest;
            self.spread = (self.spread - d * mass) * factor;
            self.rest = mass * factor;
        }
        self.max = max;
    }

    /// Adds the sums of other logits.
    pub fn merge(&mut self, other: &Self) {
        let (mut high, mut low) = (*self, *other);
        if low.max > high.max {
            std::mem::swap(&mut high, &mut low);
        }
        if low.max > f32::NEG_INFINITY {
            low.raise(high.max);
            high.rest += low.rest;
            high.spread += low.spread;
        }
        high.unmasked += low.unmasked;
        *self = high;
    }
}

/// How far below 1 terms keep their digits: they are computed 2^64 times as large.
pub const SCALE: i32 = 64;
/// 1.5 * 2^23: adding it leaves the integer nearest to a `float` in the low bits.
pub const ROUND: f32 = 12_582_912.0;
/// Maxima further from 0 than this are subtracted from their logits first, exactly where it
/// matters: the integers of the exponents must fit beside [`ROUND`].
pub const FAR: f32 = 65_536.0;
/// e^r for |r| <= ln 2 / 2, from the constant to r^5: the minimax polynomial, rounded.
pub const EXP: [f32; 6] = [
    1.0,
    0.999_999_7,
    0.499_988_9,
    0.166_675_76,
    0.041_915_63,
    0.008_297_619,
];

/// The passes of one instruction set.
pub struct Passes {
    pub(super) max: fn(Logits<'_>) -> f32,
    pub(super) block_maxima: fn(Logits<'_>, &mut [f32]) -> f32,
    pub(super) block_maxima_and_count: fn(Logits<'_>, &mut [f32]) -> (f32, usize),
    pub(super) add: fn(&mut Sums, Logits<'_>, &mut [f32]),
    pub(super) add_mass: fn(&mut Sums, Logits<'_>, &mut [f32]),
    pub(super) collect: fn(Logits<'_>, &[f32], u32, f32, &mut Vec<TokenData>),
    pub(super) collect_survivors: fn(Logits<'_>, &[f32], u32, f32, &mut Survivors),
    pub(super) masses_above: fn(&[f32], f32, &[f32; THRESHOLDS]) -> [f64; 1 + THRESHOLDS],
    pub(super) count_from: fn(&[f32], f32) -> usize,
    pub(super) kept_masses: fn(&Survivors, &mut [f64]),
    pub(super) between: fn(&[f32], (f32, f32), &mut Vec<TokenData>),
    pub(super) ranks: fn(&[f32], &mut [u32]),
}

/// The passes in plain Rust.
pub const SCALAR_PASSES: Passes = Passes {
    max: super::scalar_floats::max,
    block_maxima: super::scalar_floats::block_maxima,
    block_maxima_and_count: super::scalar_floats::block_maxima_and_count,
    add: super::scalar_floats::add,
    add_mass: super::scalar_floats::add_mass,
    collect: super::scalar_floats::collect,
    collect_survivors: super::scalar_floats::collect_survivors,
    masses_above: super::scalar_floats::masses_above,
    count_from: super::scalar_floats::count_from,
    kept_masses: super::scalar_floats::kept_masses,
    between: super::scalar_floats::between,
    ranks: super::few::scalar_ranks,
};

/// The constant `FLOATS` of an instruction set: every algorithm of
/// [`portable_floats`](super::portable_floats), compiled with these features.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! instantiate_floats {
    ($token:ident, $features:literal) => {
        mod floats {
            use super::$token;
            use crate::kernels::floats::{Logits, Passes, Sums};
            use crate::kernels::survivors::{Survivors, THRESHOLDS};
            use crate::kernels::{few, portable_floats, portable_sums, portable_survivors};
            use crate::token::TokenData;

            $crate::kernels::instantiate!(@functions $token, portable_floats, $features,
                fn max(xs: Logits<'_>) -> f32;
                fn block_maxima(xs: Logits<'_>, maxima: &mut [f32]) -> f32;
                fn collect(xs: Logits<'_>, maxima: &[f32], first: u32, threshold: f32, to: &mut Vec<TokenData>) -> ();
            );
            $crate::kernels::instantiate!(@functions $token, portable_sums, $features,
                fn block_maxima_and_count(xs: Logits<'_>, maxima: &mut [f32]) -> (f32, usize);
                fn add(sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) -> ();
                fn add_mass(sums: &mut Sums, xs: Logits<'_>, maxima: &mut [f32]) -> ();
            );
            $crate::kernels::instantiate!(@functions $token, portable_survivors, $features,
                fn collect_survivors(xs: Logits<'_>, maxima: &[f32], first: u32, threshold: f32, to: &mut Survivors) -> ();
                fn masses_above(xs: &[f32], max: f32, thresholds: &[f32; THRESHOLDS]) -> [f64; 1 + THRESHOLDS];
                fn between(xs: &[f32], range: (f32, f32), to: &mut Vec<TokenData>) -> ();
                fn count_from(xs: &[f32], threshold: f32) -> usize;
                fn kept_masses(survivors: &Survivors, to: &mut [f64]) -> ();
            );

            $crate::kernels::instantiate!(@functions $token, few, $features,
                fn ranks_of(xs: &[f32], to: &mut [u32]) -> ();
            );

            /// The passes over raw logits. They are called only where the processor has the
            /// instructions.
            pub const FLOATS: Passes = Passes {
                max, block_maxima, block_maxima_and_count, add, add_mass, collect, collect_survivors, masses_above, between, count_from, kept_masses, ranks: ranks_of,
            };
        }
        use floats::FLOATS;
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) use instantiate_floats;

/// Room for what a block can leave, and for a whole register behind it. The same for every
/// instruction set, so that buffers grow alike.
pub(super) const ROOM: usize = BLOCK + 16;

/// [`ROOM`] at the end of `to`, which grows by powers of two.
#[expect(clippy::indexing_slicing, reason = "just reserved")]
pub(super) fn room(to: &mut Vec<TokenData>) -> &mut [MaybeUninit<TokenData>] {
    if to.capacity() - to.len() < ROOM {
        let wanted = (to.len() + ROOM).next_power_of_two();
        to.reserve_exact(wanted - to.len());
    }
    &mut to.spare_capacity_mut()[..ROOM]
}
