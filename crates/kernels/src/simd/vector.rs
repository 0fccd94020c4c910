//! The trait with the operations that kernels need from an instruction set.

use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::exp::{POLYNOMIAL, ROUND_F32};
use super::ln::{self, LnParts};
use super::{bits, exp, exp_f64};
use crate::token::{Token, TokenData};

/// The most floats that an `F` holds.
pub const MAX_LANES: usize = 16;

/// An instruction set, as a value. A value exists only if the processor has the instructions, which
/// makes the methods safe.
///
/// `F` holds [`LANES`](Self::LANES) floats, `D` half as many doubles; names of operations on
/// doubles end in `_d`. Comparisons give one bit per lane, the first lane lowest. A method that
/// reads or writes a slice uses its first elements, and panics if the slice is shorter than the
/// lanes, unless documented otherwise.
///
/// Every backend has to implement the required methods. The provided ones are correct for every
/// backend; a backend overrides them if its instructions were measured to be faster. Everything is
/// `#[inline(always)]`, so it is compiled with the instruction set of the function into which it is
/// inlined.
pub trait Vector: Copy {
    /// The number of floats that `F` holds; at most [`MAX_LANES`].
    const LANES: usize;
    /// Floats.
    type F: Copy;
    /// Doubles, half as many as `F` has floats.
    type D: Copy;

    // Load and store.

    /// `x` in every lane.
    fn splat(self, x: f32) -> Self::F;
    /// Reads floats.
    fn load(self, from: &[f32]) -> Self::F;
    /// Writes floats.
    fn store(self, to: &mut [f32], x: Self::F);
    /// Reads the logits of candidates.
    fn load_logits(self, data: &[TokenData]) -> Self::F;
    /// Writes the logits of candidates and nothing else.
    fn store_logits(self, data: &mut [TokenData], x: Self::F);
    /// Writes the probabilities of candidates and nothing else.
    fn store_probabilities(self, data: &mut [TokenData], x: Self::F);
    /// `x` in every lane.
    fn splat_d(self, x: f64) -> Self::D;
    /// Reads doubles.
    fn load_d(self, from: &[f64]) -> Self::D;
    /// Writes doubles.
    fn store_d(self, to: &mut [f64], x: Self::D);

    // Arithmetic.

    /// a + b.
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// a - b.
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b.
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// a / b.
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * b + c, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// The larger one; `b` if either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// The absolute value.
    fn abs(self, a: Self::F) -> Self::F;
    /// a - floor(a).
    fn fract(self, a: Self::F) -> Self::F;
    /// a + b of each lane, whose bits are read as integers, modulo 2^32.
    fn add_bits(self, a: Self::F, b: Self::F) -> Self::F;
    /// a * 2^n, where the low 9 bits of `shifted` are the signed integer n. Adding 1.5 * 2^23 to n
    /// leaves it in these bits. Only the exponent of `a` changes.
    fn ldexp(self, a: Self::F, shifted: Self::F) -> Self::F;
    /// a + b.
    fn add_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a - b.
    fn sub_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a * b.
    fn mul_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// a * b + c, rounded once.
    fn fma_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D;
    /// The larger one; `b` if either is NaN.
    fn max_d(self, a: Self::D, b: Self::D) -> Self::D;

    // Compare and select.

    /// a >= b, false for NaN.
    fn ge(self, a: Self::F, b: Self::F) -> u32;
    /// a < b, false for NaN.
    fn lt(self, a: Self::F, b: Self::F) -> u32;
    /// a == b, false for NaN.
    fn eq(self, a: Self::F, b: Self::F) -> u32;
    /// `x` where a < b, otherwise `y`; NaN is not below anything.
    fn select_lt(self, a: Self::F, b: Self::F, x: Self::F, y: Self::F) -> Self::F;

    // Convert.

    /// The lower and the upper half as doubles.
    fn widen(self, a: Self::F) -> [Self::D; 2];
    /// Rounded to floats.
    fn narrow(self, a: [Self::D; 2]) -> Self::F;

    // Provided: load and store.

    /// The lanes as an array, padded with zeros.
    #[inline(always)]
    fn lanes(self, x: Self::F) -> [f32; MAX_LANES] {
        let mut lanes = [0.0; MAX_LANES];
        self.store(&mut lanes, x);
        lanes
    }
    /// Reads the first [`LANES`](Self::LANES) of these floats.
    #[inline(always)]
    fn load_lanes(self, lanes: [f32; MAX_LANES]) -> Self::F {
        self.load(&lanes)
    }
    /// True if converting floats to doubles is cheaper from memory than from a register, even if
    /// the floats have to be written first.
    const WIDENS_FROM_MEMORY: bool = false;
    /// True if loads that cross a cache line are slow enough to be avoided.
    const ALIGNS_LOADS: bool = false;
    /// Reads the probabilities of candidates.
    #[inline(always)]
    fn load_probabilities(self, data: &[TokenData]) -> Self::F {
        assert!(data.len() >= Self::LANES);
        let mut lanes = [0.0; MAX_LANES];
        for (p, candidate) in lanes.iter_mut().zip(data) {
            *p = candidate.p;
        }
        self.load_lanes(lanes)
    }
    /// Writes whole candidates.
    #[inline(always)]
    fn store_candidates(self, data: &mut [TokenData], ids: &[u32], logits: Self::F, ps: Self::F) {
        assert!(data.len() >= Self::LANES && ids.len() >= Self::LANES);
        let lanes = self.lanes(logits).into_iter().zip(self.lanes(ps));
        for ((candidate, &id), (logit, p)) in data.iter_mut().zip(ids).zip(lanes).take(Self::LANES)
        {
            *candidate = TokenData {
                id: id as Token,
                logit,
                p,
            };
        }
    }
    /// Writes minus infinity over the logits of the candidates whose bits in `lanes` are set.
    #[inline(always)]
    fn mask_logits(self, data: &mut [TokenData], lanes: u32) {
        bits::mask_logits(data, lanes);
    }
    /// Returns true if the ids of the candidates count up from `first`.
    #[inline(always)]
    fn ids_count_from(self, data: &[TokenData], first: u32) -> bool {
        assert!(data.len() >= Self::LANES);
        let ids = data.iter().take(Self::LANES).map(|c| c.id as u32);
        ids.zip(0..).all(|(id, i)| id == first.wrapping_add(i))
    }
    /// Reads words as the bits of floats.
    #[inline(always)]
    fn load_u32(self, from: &[u32]) -> Self::F {
        let from: *const [u32] = from;
        // SAFETY: the same memory; every word is the bits of a float.
        self.load(unsafe { &*(from as *const [f32]) })
    }
    /// Writes the bits of floats as words.
    #[inline(always)]
    fn store_u32(self, to: &mut [u32], x: Self::F) {
        let to: *mut [u32] = to;
        // SAFETY: the same memory; the bits of every float are a word.
        self.store(unsafe { &mut *(to as *mut [f32]) }, x);
    }
    /// Reads half-precision numbers.
    #[inline(always)]
    fn load_f16(self, from: &[f16]) -> Self::F {
        assert!(from.len() >= Self::LANES);
        let mut lanes = [0.0; MAX_LANES];
        for (lane, x) in lanes.iter_mut().zip(from) {
            *lane = x.to_f32();
        }
        self.load_lanes(lanes)
    }
    /// Reads bfloat16 numbers.
    #[inline(always)]
    fn load_bf16(self, from: &[bf16]) -> Self::F {
        assert!(from.len() >= Self::LANES);
        let mut lanes = [0.0; MAX_LANES];
        for (lane, x) in lanes.iter_mut().zip(from) {
            *lane = f32::from_bits(u32::from(x.to_bits()) << 16);
        }
        self.load_lanes(lanes)
    }
    /// Reads floats as doubles.
    #[inline(always)]
    fn load_widened(self, from: &[f32]) -> [Self::D; 2] {
        self.widen(self.load(from))
    }
    /// Writes doubles, rounded to floats.
    #[inline(always)]
    fn store_narrowed(self, to: &mut [f32], a: [Self::D; 2]) {
        self.store(to, self.narrow(a));
    }
    /// Reads the elements of `from` at `indices`.
    ///
    /// # Panics
    /// If an index is out of range.
    #[inline(always)]
    fn gather(self, from: &[f32], indices: &[u32]) -> Self::F {
        assert!(indices.len() >= Self::LANES);
        let mut lanes = [0.0; MAX_LANES];
        for (lane, &i) in lanes.iter_mut().zip(indices).take(Self::LANES) {
            *lane = from[i as usize];
        }
        self.load_lanes(lanes)
    }
    /// Prefetches a cache line. Any address is allowed.
    #[inline(always)]
    fn prefetch<T>(self, _at: *const T) {}

    // Provided: arithmetic.

    /// The larger of the absolute values; |b| if `a` is NaN.
    #[inline(always)]
    fn max_abs(self, a: Self::F, b: Self::F) -> Self::F {
        self.max(self.abs(a), self.abs(b))
    }
    /// Returns the larger of `a` and `b` in the lanes whose bits in `lanes` are set, as
    /// [`max`](Self::max) does, and `b` in the other lanes.
    #[inline(always)]
    fn max_masked(self, lanes: u32, a: Self::F, b: Self::F) -> Self::F {
        let mut all = self.lanes(a);
        for (lane, x) in all.iter_mut().enumerate() {
            if lanes >> lane & 1 == 0 {
                *x = f32::NEG_INFINITY;
            }
        }
        self.max(self.load_lanes(all), b)
    }
    /// a * b - c, rounded once.
    #[inline(always)]
    fn fms_d(self, a: Self::D, b: Self::D, c: Self::D) -> Self::D {
        self.fma_d(a, b, self.sub_d(self.splat_d(-0.0), c))
    }
    /// a / b.
    #[inline(always)]
    fn div_d(self, a: Self::D, b: Self::D) -> Self::D {
        let (mut quotients, b) = (lanes_d(self, a), lanes_d(self, b));
        for (a, b) in quotients.iter_mut().zip(b) {
            *a /= b;
        }
        self.load_d(&quotients)
    }
    /// The absolute value.
    #[inline(always)]
    fn abs_d(self, a: Self::D) -> Self::D {
        self.max_d(a, self.sub_d(self.splat_d(0.0), a))
    }

    // Provided: compare.

    /// A bit for each of at most [`LANES`](Self::LANES) words that is `least` or more.
    #[inline(always)]
    fn ge_u64(self, words: &[u64], least: u64) -> u32 {
        let mut bits = 0;
        for (i, &word) in words.iter().enumerate() {
            bits |= u32::from(word >= least) << i;
        }
        bits
    }

    // Provided: reduce.

    /// The largest lane; no lane is NaN.
    #[inline(always)]
    fn reduce_max(self, a: Self::F) -> f32 {
        let lanes = self.lanes(a).into_iter().take(Self::LANES);
        lanes.fold(f32::NEG_INFINITY, f32::max)
    }
    /// The sum of the lanes, in no particular order.
    #[inline(always)]
    fn reduce_add(self, a: Self::F) -> f32 {
        self.lanes(a).into_iter().take(Self::LANES).sum()
    }
    /// The largest lane; no lane is NaN.
    #[inline(always)]
    fn reduce_max_d(self, a: Self::D) -> f64 {
        let lanes = lanes_d(self, a).into_iter().take(Self::LANES / 2);
        lanes.fold(f64::NEG_INFINITY, f64::max)
    }
    /// The sum of the lanes, in no particular order.
    #[inline(always)]
    fn reduce_add_d(self, a: Self::D) -> f64 {
        lanes_d(self, a).into_iter().take(Self::LANES / 2).sum()
    }
    /// The largest lane of each register; no lane is NaN.
    #[inline(always)]
    fn reduce_max_each(self, a: [Self::F; 4]) -> [f32; 4] {
        let [a, b, c, d] = a;
        [
            self.reduce_max(a),
            self.reduce_max(b),
            self.reduce_max(c),
            self.reduce_max(d),
        ]
    }
    /// The largest of each of four blocks of 64 floats of 16 bits, all given by their bits. `None`
    /// if a block has no number of 0 or more, or has a positive NaN (bits above `infinity`), or if
    /// this instruction set has no fast method.
    #[inline(always)]
    fn reduce_max_u16_each(self, _blocks: &[u16], _infinity: u16) -> Option<[u16; 4]> {
        None
    }

    // Provided: compress and permute.

    /// Writes the lanes whose bits in `lanes` are set to the beginning of `to`, which has room for
    /// a whole register, and returns their number. Elements after them may be overwritten.
    #[inline(always)]
    // In bounds: there is room for a whole register, and lane indices are below the number of
    // lanes.
    fn compress_store(self, mut lanes: u32, x: Self::F, to: &mut [MaybeUninit<f32>]) -> usize {
        let all = self.lanes(x);
        let mut written = 0;
        while lanes != 0 {
            to[written].write(all[lanes.trailing_zeros() as usize % MAX_LANES]);
            written += 1;
            lanes &= lanes - 1;
        }
        written
    }

    /// Writes lanes as [`compress_store`](Self::compress_store) does. It is faster if usually at
    /// most half of the bits are set.
    #[inline(always)]
    fn compress_store_few(self, lanes: u32, x: Self::F, to: &mut [MaybeUninit<f32>]) -> usize {
        self.compress_store(lanes, x, to)
    }

    /// Appends `first` plus the index of each lane whose bit in `lanes` is set.
    #[inline(always)]
    fn push_indices(self, lanes: u32, first: u32, to: &mut Vec<u32>) {
        bits::push_indices(lanes, first, to);
    }
    /// Appends the candidates whose bits in `lanes` are set.
    #[inline(always)]
    fn push_candidates(self, mut lanes: u32, data: &[TokenData], to: &mut Vec<TokenData>) {
        while lanes != 0 {
            to.push(data[lanes.trailing_zeros() as usize]);
            lanes &= lanes - 1;
        }
    }
    /// Writes the lanes of `x` whose bits in `lanes` are set as the logits of candidates, whose ids
    /// are `first` plus the lane, to the beginning of `to`, which has room for a whole register,
    /// and returns their number.
    #[inline(always)]
    // In bounds: there is room for a whole register, and lane indices are below the number of
    // lanes.
    fn compress_candidates(
        self,
        x: Self::F,
        mut lanes: u32,
        first: u32,
        to: &mut [MaybeUninit<TokenData>],
    ) -> usize {
        let logits = self.lanes(x);
        let mut written = 0;
        while lanes != 0 {
            let lane = lanes.trailing_zeros();
            to[written].write(TokenData::new(
                (first + lane) as Token,
                logits[lane as usize % MAX_LANES],
            ));
            written += 1;
            lanes &= lanes - 1;
        }
        written
    }
    /// Exchanges lanes 0 and 1, 2 and 3, and so on, in both registers, where the first of the two
    /// is less in `x`.
    #[inline(always)]
    fn compare_exchange_even(self, x: Self::F, y: Self::F) -> (Self::F, Self::F) {
        compare_exchange(self, x, y, 0)
    }
    /// Exchanges lanes 1 and 2, 3 and 4, and so on, in both registers, where the first of the two
    /// is less in `x`.
    #[inline(always)]
    fn compare_exchange_odd(self, x: Self::F, y: Self::F) -> (Self::F, Self::F) {
        compare_exchange(self, x, y, 1)
    }

    // Provided: exponentials and logarithms, described in `simd::exp`, `simd::exp_f64` and
    // `simd::ln`.

    /// True if [`exp`](Self::exp) accepts any doubles from [`exp::LOWEST`] to 0, not only widened
    /// floats, with a relative error of at most 2e-10.
    const EXP_IS_OF_DOUBLES: bool = true;
    /// e^x of floats from [`exp::LOWEST`] to below [`exp::HIGHEST`] that were widened. Rounded to
    /// floats they are the host's `expf`, bit for bit.
    #[inline(always)]
    fn exp(self, x: [Self::D; 2]) -> [Self::D; 2] {
        let [(a, k_a), (b, k_b)] = [exp2_of_remainder(self, x[0]), exp2_of_remainder(self, x[1])];
        let [scale_a, scale_b] = self.exp2_32nds([k_a, k_b]);
        [self.mul_d(a, scale_a), self.mul_d(b, scale_b)]
    }
    /// e^x of doubles from -120 to 0: the host's `exp`, bit for bit.
    #[inline(always)]
    fn exp_d(self, x: Self::D) -> Self::D {
        let shifted = fma_of_host(
            self,
            x,
            self.splat_d(exp_f64::SCALE),
            self.splat_d(exp::ROUND),
        );
        let k = self.sub_d(shifted, self.splat_d(exp::ROUND));
        let r = fma_of_host(self, k, self.splat_d(exp_f64::STEP[0]), x);
        let r = fma_of_host(self, k, self.splat_d(exp_f64::STEP[1]), r);
        let [left_out, scale] = exp2_128ths(self, shifted);
        let r2 = self.mul_d(r, r);
        let [a, b, c, d] = exp_f64::C;
        let low = fma_of_host(self, self.splat_d(b), r, self.splat_d(a));
        let high = fma_of_host(self, self.splat_d(d), r, self.splat_d(c));
        let e = fma_of_host(self, r2, low, self.add_d(left_out, r));
        let e = fma_of_host(self, self.mul_d(r2, r2), high, e);
        fma_of_host(self, scale, e, scale)
    }
    /// ln x of positive normal floats: the host's `logf`, bit for bit.
    #[inline(always)]
    fn ln(self, x: Self::F) -> Self::F {
        let parts = self.ln_parts(x);
        self.narrow([ln_of_half(self, &parts, 0), ln_of_half(self, &parts, 1)])
    }
    /// True if [`exp_approx`](Self::exp_approx) may be called with any number, so that numbers need
    /// not be checked in advance: a result that cannot be used shows it. Infinite numbers, NaN and
    /// numbers whose exponential overflows give results that are not finite. All others below -80
    /// give a result between 0 and e^-80, or one that is not finite.
    const EXP_APPROX_TELLS: bool = false;
    /// [`exp_approx`](Self::exp_approx) accepts numbers up to 40 whose squares are below this
    /// bound.
    const EXP_APPROX_SQUARES: f32 = 7225.0;
    /// e^x for numbers from -80 to 40, with a relative error of at most 4e-7, and of at most 2.8e-7
    /// from -40 to 0. The result is between 0 and e^-80 for lower numbers whose squares are below
    /// [`EXP_APPROX_SQUARES`](Self::EXP_APPROX_SQUARES).
    #[inline(always)]
    // In bounds: `i` is below the number of coefficients.
    fn exp_approx(self, x: Self::F) -> Self::F {
        let round = self.splat(ROUND_F32);
        let shifted = self.fma(x, self.splat(std::f32::consts::LOG2_E), round);
        let k = self.sub(shifted, round);
        let r = self.fma(k, self.splat(-std::f32::consts::LN_2), x);
        let mut e = self.splat(POLYNOMIAL[5]);
        for i in (0..5).rev() {
            e = self.fma(e, r, self.splat(POLYNOMIAL[i]));
        }
        self.ldexp(e, shifted)
    }
    /// Returns [`exp_approx`](Self::exp_approx) of each of several registers.
    #[inline(always)]
    fn exp_approx_each<const N: usize>(self, x: [Self::F; N]) -> [Self::F; N] {
        x.map(|x| self.exp_approx(x))
    }

    // Provided: operations for the tables of exponentials and logarithms.

    /// 2^(k/32) by the table of [`exp`], where k is the integer in the low bits of each double of
    /// `n`.
    #[inline(always)]
    fn exp2_32nds(self, n: [Self::D; 2]) -> [Self::D; 2] {
        let [a, b] = [lanes_d(self, n[0]), lanes_d(self, n[1])];
        [
            self.load_d(&a.map(exp::power_of_32nds)),
            self.load_d(&b.map(exp::power_of_32nds)),
        ]
    }
    /// The [`LnParts`] of positive normal floats.
    #[inline(always)]
    // In bounds: `lane` is below `MAX_LANES`, `entry` below the length of the tables.
    fn ln_parts(self, x: Self::F) -> LnParts<Self::D> {
        let (mut z, mut inverse) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
        let (mut ln, mut k) = ([0.0; MAX_LANES], [0.0; MAX_LANES]);
        for (lane, x) in self.lanes(x).into_iter().enumerate().take(Self::LANES) {
            let (exponent, reduced, entry) = ln::reduce(x);
            z[lane] = reduced;
            inverse[lane] = ln::INVERSES[entry];
            ln[lane] = ln::LOGARITHMS[entry];
            k[lane] = f64::from(exponent);
        }
        let half = Self::LANES / 2;
        LnParts {
            z: self.widen(self.load_lanes(z)),
            inverse: [self.load_d(&inverse), self.load_d(&inverse[half..])],
            ln: [self.load_d(&ln), self.load_d(&ln[half..])],
            k: [self.load_d(&k), self.load_d(&k[half..])],
        }
    }
    /// The sum of the bits of each `entry` and 2^45 times those of the corresponding `n`, as
    /// integers.
    #[inline(always)]
    fn add_shifted_bits(self, entry: Self::D, n: Self::D) -> Self::D {
        let (mut sums, n) = (lanes_d(self, entry), lanes_d(self, n));
        for (entry, n) in sums.iter_mut().zip(n) {
            *entry = f64::from_bits(entry.to_bits().wrapping_add(n.to_bits() << 45));
        }
        self.load_d(&sums)
    }
    /// a == b, false for NaN.
    #[inline(always)]
    fn eq_d(self, a: Self::D, b: Self::D) -> u32 {
        let lanes = lanes_d(self, a).into_iter().zip(lanes_d(self, b));
        let bits = lanes.take(Self::LANES / 2).enumerate();
        bits.fold(0, |bits, (i, (a, b))| bits | u32::from(a == b) << i)
    }
    /// `x` where a == b, otherwise `y`.
    #[inline(always)]
    fn select_eq_d(self, a: Self::D, b: Self::D, x: Self::D, y: Self::D) -> Self::D {
        let (mut selected, x) = (lanes_d(self, y), lanes_d(self, x));
        let equal = self.eq_d(a, b);
        for (i, (y, x)) in selected.iter_mut().zip(x).enumerate() {
            if equal >> i & 1 == 1 {
                *y = x;
            }
        }
        self.load_d(&selected)
    }
}

/// The lanes as an array, padded with zeros.
#[inline(always)]
pub(super) fn lanes_d<V: Vector>(v: V, x: V::D) -> [f64; MAX_LANES / 2] {
    let mut lanes = [0.0; MAX_LANES / 2];
    v.store_d(&mut lanes, x);
    lanes
}

/// Exchanges, in both registers, each pair of adjacent lanes from lane `start` on, where the first
/// of the two is less in `x`.
#[inline(always)]
fn compare_exchange<V: Vector>(v: V, x: V::F, y: V::F, start: usize) -> (V::F, V::F) {
    let (mut xs, mut ys) = (v.lanes(x), [0; MAX_LANES]);
    v.store_u32(&mut ys, y);
    bits::swap_rising(&mut xs, &mut ys, (start..V::LANES - 1).step_by(2));
    (v.load_lanes(xs), v.load_u32(&ys))
}

/// Returns 2^(r/32), where r is the remainder of x, and a double whose low bits are k; see [`exp`].
#[inline(always)]
fn exp2_of_remainder<V: Vector>(v: V, x: V::D) -> (V::D, V::D) {
    let scale = v.splat_d(exp::SCALE);
    let round = v.splat_d(exp::ROUND);
    // Fused or not, k is the same for every float from LOWEST to HIGHEST.
    let shifted = v.fma_d(x, scale, round);
    let k = v.sub_d(shifted, round);
    let r = if HOST_FUSES_REMAINDER {
        v.fms_d(x, scale, k)
    } else {
        v.sub_d(v.mul_d(x, scale), k)
    };
    let high = fma_of_host(v, v.splat_d(exp::C[0]), r, v.splat_d(exp::C[1]));
    let low = fma_of_host(v, v.splat_d(exp::C[2]), r, v.splat_d(1.0));
    (fma_of_host(v, high, v.mul_d(r, r), low), shifted)
}

/// True if the functions of this target's C library fuse products and sums: glibc's do on all
/// processors with vectors, musl's on none.
const HOST_FUSES: bool = !cfg!(target_env = "musl");

/// True if the target's `expf` also fuses the product x * 32 / ln 2, whose nearest integer is k. On
/// aarch64 glibc rounds that product with a rounding instruction, so the product is computed
/// separately.
const HOST_FUSES_REMAINDER: bool = HOST_FUSES && !cfg!(target_arch = "aarch64");

/// a * b + c as the C library's functions compute it.
#[inline(always)]
fn fma_of_host<V: Vector>(v: V, a: V::D, b: V::D, c: V::D) -> V::D {
    if HOST_FUSES {
        v.fma_d(a, b, c)
    } else {
        v.add_d(v.mul_d(a, b), c)
    }
}

/// Returns the relative difference of 2^(k/128) from its rounded value, and that value, for the k
/// in the low bits of each double.
#[inline(always)]
fn exp2_128ths<V: Vector>(v: V, shifted: V::D) -> [V::D; 2] {
    let ks = &lanes_d(v, shifted)[..V::LANES / 2];
    let (first, last) = (ks[0], ks[V::LANES / 2 - 1]);
    // In the order of the logits these are usually one entry, or two adjacent ones.
    let every = u32::MAX >> (32 - V::LANES / 2);
    let is_first = v.splat_d(first);
    if v.eq_d(shifted, is_first) | v.eq_d(shifted, v.splat_d(last)) == every {
        let of_first = exp_f64::entry(first).map(|x| v.splat_d(x));
        let of_last = exp_f64::entry(last).map(|x| v.splat_d(x));
        let power = v.select_eq_d(shifted, is_first, of_first[1], of_last[1]);
        return [
            v.select_eq_d(shifted, is_first, of_first[0], of_last[0]),
            v.add_shifted_bits(power, shifted),
        ];
    }
    let (mut left_out, mut powers) = ([0.0; MAX_LANES / 2], [0.0; MAX_LANES / 2]);
    for ((k, left_out), power) in ks.iter().zip(&mut left_out).zip(&mut powers) {
        [*left_out, *power] = exp_f64::entry(*k);
    }
    let power = v.add_shifted_bits(v.load_d(&powers), shifted);
    [v.load_d(&left_out), power]
}

/// Returns ln x of one half of a register; see [`ln`].
#[inline(always)]
fn ln_of_half<V: Vector>(v: V, parts: &LnParts<V::D>, i: usize) -> V::D {
    let r = v.fms_d(parts.z[i], parts.inverse[i], v.splat_d(1.0));
    let whole = v.fma_d(parts.k[i], v.splat_d(ln::LN_2), parts.ln[i]);
    let r2 = v.mul_d(r, r);
    let y = v.fma_d(v.splat_d(ln::A[1]), r, v.splat_d(ln::A[2]));
    let y = v.fma_d(v.splat_d(ln::A[0]), r2, y);
    v.fma_d(y, r2, v.add_d(whole, r))
}
