//! AVX-512 (F, DQ, BW, VL): 16 floats.

use std::arch::x86_64::*;
use std::f32::consts::{LN_2, LOG2_E};
use std::mem::MaybeUninit;

use half::{bf16, f16};

use super::avx512_tables::{
    CANDIDATES, EXPM1, GATHER_LOGITS, GATHER_PROBABILITIES, HALVES, IDS, LANE_NUMBERS, LOGITS,
    LOW_HALVES, NOT_P, ODD_NEIGHBOURS, OWNERS, POWERS, PROBABILITIES, ROUND_32NDS, SCATTER_IDS,
    SCATTER_LOGITS, SCATTER_PROBABILITIES,
};
use crate::simd::kernel::Kernel;
use crate::simd::ln::{INVERSES, LOGARITHMS, LnParts, OFFSET};
use crate::simd::vector::Vector;
use crate::token::TokenData;

/// AVX-512 and FMA; every processor with AVX-512 has FMA.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has AVX-512 F, DQ, BW and VL.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Defines methods that are one expression of intrinsics.
macro_rules! instructions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: `self` exists only where the processor has AVX-512; nothing here touches
            // memory but constants.
            unsafe { $body }
        }
    )*};
}

/// Reads the 16 words of candidates that `masks` selects, in the order given by `gather`.
///
/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn load_field(data: &[TokenData], masks: [u16; 3], gather: &[i32; 16]) -> __m512 {
    assert!(data.len() >= 16);
    let from = data.as_ptr().cast::<f32>();
    // SAFETY: the caller has AVX-512; 16 candidates are 48 words.
    unsafe {
        let merged = _mm512_loadu_ps(from);
        let merged = _mm512_mask_loadu_ps(merged, masks[1], from.add(16));
        let merged = _mm512_mask_loadu_ps(merged, masks[2], from.add(32));
        _mm512_permutexvar_ps(_mm512_loadu_epi32(gather.as_ptr()), merged)
    }
}

/// Writes the 16 words of candidates that `masks` selects.
///
/// # Safety
/// The processor must have AVX-512.
#[inline(always)]
unsafe fn store_field(data: &mut [TokenData], masks: [u16; 3], scatter: &[i32; 16], x: __m512) {
    assert!(data.len() >= 16);
    let to = data.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller has AVX-512; 16 candidates are 48 words.
    unsafe {
        let x = _mm512_permutexvar_ps(_mm512_loadu_epi32(scatter.as_ptr()), x);
        // Stored under a mask. Loading, blending and storing whole registers takes as long, but a
        // load has to wait if only a part of what it reads was just stored.
        for (i, mask) in masks.into_iter().enumerate() {
            _mm512_mask_storeu_ps(to.add(16 * i), mask, x);
        }
    }
}

/// Returns the results of `f` on each pair.
#[inline(always)]
fn zip<T: Copy, const N: usize>(a: [T; N], b: [T; N], f: impl Fn(T, T) -> T) -> [T; N] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Vector for Avx512 {
    const LANES: usize = 16;
    const WIDENS_FROM_MEMORY: bool = true;
    const ALIGNS_LOADS: bool = true;
    type F = __m512;
    type D = __m512d;

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m512 {
        assert!(from.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 floats are there.
        unsafe { _mm512_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], x: __m512) {
        assert!(to.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 floats are there.
        unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_d(self, from: &[f64]) -> __m512d {
        assert!(from.len() >= 8);
        // SAFETY: `self` proves AVX-512; 8 doubles are there.
        unsafe { _mm512_loadu_pd(from.as_ptr()) }
    }

    #[inline(always)]
    fn store_d(self, to: &mut [f64], x: __m512d) {
        assert!(to.len() >= 8);
        // SAFETY: `self` proves AVX-512; 8 doubles are there.
        unsafe { _mm512_storeu_pd(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_widened(self, from: &[f32]) -> [__m512d; 2] {
        assert!(from.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 floats are there. From memory the conversion needs no
        // shuffle.
        unsafe {
            let low = _mm256_loadu_ps(from.as_ptr());
            let high = _mm256_loadu_ps(from.as_ptr().add(8));
            [_mm512_cvtps_pd(low), _mm512_cvtps_pd(high)]
        }
    }

    #[inline(always)]
    fn store_narrowed(self, to: &mut [f32], a: [__m512d; 2]) {
        assert!(to.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 floats are there. By halves, without the shuffle that
        // joins them.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr(), _mm512_cvtpd_ps(a[0]));
            _mm256_storeu_ps(to.as_mut_ptr().add(8), _mm512_cvtpd_ps(a[1]));
        }
    }

    #[inline(always)]
    fn load_logits(self, data: &[TokenData]) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { load_field(data, LOGITS, &GATHER_LOGITS) }
    }

    #[inline(always)]
    fn load_probabilities(self, data: &[TokenData]) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { load_field(data, PROBABILITIES, &GATHER_PROBABILITIES) }
    }

    #[inline(always)]
    fn store_logits(self, data: &mut [TokenData], x: __m512) {
        // SAFETY: `self` proves AVX-512.
        unsafe { store_field(data, LOGITS, &SCATTER_LOGITS, x) }
    }

    #[inline(always)]
    fn store_probabilities(self, data: &mut [TokenData], x: __m512) {
        // SAFETY: `self` proves AVX-512.
        unsafe { store_field(data, PROBABILITIES, &SCATTER_PROBABILITIES, x) }
    }

    #[inline(always)]
    // In bounds: `i` counts the three registers.
    fn store_candidates(self, data: &mut [TokenData], ids: &[u32], logits: __m512, ps: __m512) {
        assert!(data.len() >= 16 && ids.len() >= 16);
        let to = data.as_mut_ptr().cast::<f32>();
        // SAFETY: `self` proves AVX-512; 16 ids and 16 candidates, 48 words, are there.
        unsafe {
            let ids = _mm512_castsi512_ps(_mm512_loadu_epi32(ids.as_ptr().cast()));
            let ids = _mm512_permutexvar_ps(_mm512_loadu_epi32(SCATTER_IDS.as_ptr()), ids);
            let lanes = _mm512_loadu_epi32(SCATTER_LOGITS.as_ptr());
            let logits = _mm512_permutexvar_ps(lanes, logits);
            let lanes = _mm512_loadu_epi32(SCATTER_PROBABILITIES.as_ptr());
            let ps = _mm512_permutexvar_ps(lanes, ps);
            for i in 0..3 {
                let merged = _mm512_mask_blend_ps(LOGITS[i], ids, logits);
                let merged = _mm512_mask_blend_ps(PROBABILITIES[i], merged, ps);
                _mm512_storeu_ps(to.add(16 * i), merged);
            }
        }
    }

    #[inline(always)]
    fn mask_logits(self, data: &mut [TokenData], lanes: u32) {
        assert!(data.len() >= 16);
        let to = data.as_mut_ptr().cast::<f32>();
        // SAFETY: `self` proves AVX-512; 16 candidates are 48 words.
        unsafe {
            let (lanes, masked) = (
                _mm512_set1_epi32(lanes as i32),
                _mm512_set1_ps(f32::NEG_INFINITY),
            );
            for (i, (owners, logits)) in OWNERS.iter().zip(LOGITS).enumerate() {
                let owners = _mm512_loadu_epi32(owners.as_ptr());
                let words = _mm512_mask_test_epi32_mask(logits, lanes, owners);
                _mm512_mask_storeu_ps(to.add(16 * i), words, masked);
            }
        }
    }

    #[inline(always)]
    fn ge_u64(self, words: &[u64], least: u64) -> u32 {
        assert!(words.len() <= 16);
        let lanes = !(u32::MAX << words.len());
        let from = words.as_ptr().cast();
        // SAFETY: `self` proves AVX-512; a word that is not there is not read.
        unsafe {
            let least = _mm512_set1_epi64(least as i64);
            let low = _mm512_maskz_loadu_epi64(lanes as u8, from);
            let high = _mm512_maskz_loadu_epi64((lanes >> 8) as u8, from.wrapping_add(8));
            let low = _mm512_mask_cmpge_epu64_mask(lanes as u8, low, least);
            let high = _mm512_mask_cmpge_epu64_mask((lanes >> 8) as u8, high, least);
            u32::from(low) | u32::from(high) << 8
        }
    }

    #[inline(always)]
    fn ids_count_from(self, data: &[TokenData], first: u32) -> bool {
        assert!(data.len() >= 16);
        let from = data.as_ptr().cast::<i32>();
        // SAFETY: `self` proves AVX-512; 16 candidates are 48 words.
        unsafe {
            let merged = _mm512_loadu_epi32(from);
            let merged = _mm512_mask_loadu_epi32(merged, IDS[1], from.add(16));
            let merged = _mm512_mask_loadu_epi32(merged, IDS[2], from.add(32));
            let expected = _mm512_loadu_epi32(SCATTER_IDS.as_ptr());
            let expected = _mm512_add_epi32(expected, _mm512_set1_epi32(first as i32));
            _mm512_cmpneq_epi32_mask(merged, expected) == 0
        }
    }

    #[inline(always)]
    fn gather(self, from: &[f32], indices: &[u32]) -> __m512 {
        assert!(indices.len() >= 16);
        // SAFETY: `self` proves AVX-512; the indices are in bounds where they are used, and below
        // 2^31, since lanes count as signed.
        unsafe {
            let indices = _mm512_loadu_epi32(indices.as_ptr().cast());
            let length = _mm512_set1_epi32(i32::try_from(from.len()).unwrap_or(i32::MAX));
            assert!(_mm512_cmpge_epu32_mask(indices, length) == 0);
            _mm512_i32gather_ps::<4>(indices, from.as_ptr())
        }
    }

    #[inline(always)]
    fn compress_store(self, lanes: u32, x: __m512, to: &mut [MaybeUninit<f32>]) -> usize {
        assert!(to.len() >= 16);
        // SAFETY: `self` proves AVX-512; there is room for 16, all of which are written, those
        // after the packed ones with zeros.
        unsafe {
            let packed = _mm512_maskz_compress_ps(lanes as u16, x);
            _mm512_storeu_ps(to.as_mut_ptr().cast(), packed);
        }
        (lanes & 0xFFFF).count_ones() as usize
    }

    /// Stores half a register if that suffices. A store across the end of a cache line takes
    /// longer, and one of a whole register nearly always crosses one.
    #[inline(always)]
    fn compress_store_few(self, lanes: u32, x: __m512, to: &mut [MaybeUninit<f32>]) -> usize {
        assert!(to.len() >= 16);
        let n = (lanes & 0xFFFF).count_ones() as usize;
        // SAFETY: `self` proves AVX-512; there is room for 16. All packed lanes are written.
        unsafe {
            let packed = _mm512_maskz_compress_ps(lanes as u16, x);
            let to = to.as_mut_ptr().cast();
            _mm256_storeu_ps(to, _mm512_castps512_ps256(packed));
            if n > 8 {
                _mm512_storeu_ps(to, packed);
            }
        }
        n
    }

    #[inline(always)]
    fn push_indices(self, lanes: u32, first: u32, to: &mut Vec<u32>) {
        to.reserve(16);
        let len = to.len();
        // SAFETY: `self` proves AVX-512; there is room for 16 more, all of which are written.
        unsafe {
            let numbers = _mm512_loadu_epi32(LANE_NUMBERS.as_ptr());
            let numbers = _mm512_add_epi32(numbers, _mm512_set1_epi32(first as i32));
            let packed = _mm512_maskz_compress_epi32(lanes as u16, numbers);
            _mm512_storeu_epi32(to.as_mut_ptr().add(len).cast(), packed);
            to.set_len(len + (lanes & 0xFFFF).count_ones() as usize);
        }
    }

    /// Packs the words of these candidates in each of the three registers, and appends register
    /// after register.
    #[inline(always)]
    fn push_candidates(self, lanes: u32, data: &[TokenData], to: &mut Vec<TokenData>) {
        assert!(data.len() >= 16);
        to.reserve(17);
        let len = to.len();
        let from = data.as_ptr().cast::<i32>();
        // SAFETY: `self` proves AVX-512; 16 candidates are 48 words. There is room for 17, 51
        // words: each register is written after at most 32 words, and as many candidates are
        // complete as `lanes` has bits.
        unsafe {
            let lanes_of_all = _mm512_set1_epi32(lanes as i32);
            let mut to_words = to.as_mut_ptr().add(len).cast::<i32>();
            for (i, owners) in OWNERS.iter().enumerate() {
                let owners = _mm512_loadu_epi32(owners.as_ptr());
                let words = _mm512_test_epi32_mask(lanes_of_all, owners);
                let packed = _mm512_loadu_epi32(from.add(16 * i));
                _mm512_storeu_epi32(to_words, _mm512_maskz_compress_epi32(words, packed));
                to_words = to_words.add(words.count_ones() as usize);
            }
            to.set_len(len + (lanes & 0xFFFF).count_ones() as usize);
        }
    }

    #[inline(always)]
    fn compare_exchange_even(self, x: __m512, y: __m512) -> (__m512, __m512) {
        // SAFETY: `self` proves AVX-512.
        unsafe {
            let other = _mm512_permute_ps::<0b10_11_00_01>(x);
            let swap = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(0x5555, x, other)
                | _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(0xAAAA, other, x);
            let swapped_y = _mm512_mask_permute_ps::<0b10_11_00_01>(y, swap, y);
            (_mm512_mask_mov_ps(x, swap, other), swapped_y)
        }
    }

    #[inline(always)]
    fn compare_exchange_odd(self, x: __m512, y: __m512) -> (__m512, __m512) {
        // SAFETY: `self` proves AVX-512.
        unsafe {
            let lanes = _mm512_loadu_epi32(ODD_NEIGHBOURS.as_ptr());
            let other = _mm512_permutexvar_ps(lanes, x);
            let swap = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(0x2AAA, x, other)
                | _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(0x5554, other, x);
            let swapped_y = _mm512_mask_permutexvar_ps(y, swap, lanes, y);
            (_mm512_mask_mov_ps(x, swap, other), swapped_y)
        }
    }

    #[inline(always)]
    fn ln_parts(self, x: __m512) -> LnParts<__m512d> {
        // SAFETY: `self` proves AVX-512; both tables are two registers long.
        unsafe {
            let bits = _mm512_castps_si512(x);
            let from_offset = _mm512_sub_epi32(bits, _mm512_set1_epi32(OFFSET as i32));
            let exponent = _mm512_and_si512(from_offset, _mm512_set1_epi32(-1 << 23));
            let z = _mm512_castsi512_ps(_mm512_sub_epi32(bits, exponent));
            // A permutation of two registers uses the lowest four bits.
            let i = _mm512_srli_epi32::<19>(from_offset);
            let k = _mm512_srai_epi32::<23>(from_offset);
            let (i_low, i_high) = (_mm512_castsi512_si256(i), _mm512_extracti32x8_epi32::<1>(i));
            let (k_low, k_high) = (_mm512_castsi512_si256(k), _mm512_extracti32x8_epi32::<1>(k));
            let (i_low, i_high) = (_mm512_cvtepu32_epi64(i_low), _mm512_cvtepu32_epi64(i_high));
            let table = INVERSES.as_ptr();
            let (a, b) = (_mm512_loadu_pd(table), _mm512_loadu_pd(table.add(8)));
            let table = LOGARITHMS.as_ptr();
            let (c, d) = (_mm512_loadu_pd(table), _mm512_loadu_pd(table.add(8)));
            LnParts {
                z: self.widen(z),
                inverse: [
                    _mm512_permutex2var_pd(a, i_low, b),
                    _mm512_permutex2var_pd(a, i_high, b),
                ],
                ln: [
                    _mm512_permutex2var_pd(c, i_low, d),
                    _mm512_permutex2var_pd(c, i_high, d),
                ],
                k: [_mm512_cvtepi32_pd(k_low), _mm512_cvtepi32_pd(k_high)],
            }
        }
    }

    /// Looks up the lower and upper halves of entries separately, since a permutation of two
    /// registers selects from 32 words but only from 16 doubles. This takes half as many
    /// permutations as looking up whole entries in four registers.
    #[inline(always)]
    fn exp2_32nds(self, n: [__m512d; 2]) -> [__m512d; 2] {
        let table = HALVES.as_ptr().cast::<i32>();
        // SAFETY: `self` proves AVX-512; the table is four registers long.
        unsafe {
            let [a, b] = [_mm512_castpd_si512(n[0]), _mm512_castpd_si512(n[1])];
            let n = _mm512_permutex2var_epi32(a, _mm512_loadu_epi32(LOW_HALVES.as_ptr()), b);
            let low = _mm512_permutex2var_epi32(
                _mm512_loadu_epi32(table),
                n,
                _mm512_loadu_epi32(table.add(16)),
            );
            let high = _mm512_permutex2var_epi32(
                _mm512_loadu_epi32(table.add(32)),
                n,
                _mm512_loadu_epi32(table.add(48)),
            );
            // n * 2^47 only touches the upper half.
            let high = _mm512_add_epi32(high, _mm512_slli_epi32::<15>(n));
            [
                _mm512_castsi512_pd(_mm512_unpacklo_epi32(low, high)),
                _mm512_castsi512_pd(_mm512_unpackhi_epi32(low, high)),
            ]
        }
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16]) -> __m512 {
        assert!(from.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 numbers of 16 bits are there.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16]) -> __m512 {
        assert!(from.len() >= 16);
        // SAFETY: `self` proves AVX-512; 16 numbers of 16 bits are there.
        unsafe {
            let upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256(from.as_ptr().cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(upper))
        }
    }

    #[inline(always)]
    // In bounds: `i` counts the three registers.
    fn compress_candidates(
        self,
        x: __m512,
        lanes: u32,
        first: u32,
        to: &mut [MaybeUninit<TokenData>],
    ) -> usize {
        assert!(to.len() >= 16);
        let to = to.as_mut_ptr().cast::<i32>();
        let mask = lanes as u16;
        // SAFETY: `self` proves AVX-512; 16 candidates are 48 words. All are written, those after
        // the kept ones with zeros.
        unsafe {
            let ids = _mm512_add_epi32(
                _mm512_loadu_epi32(LANE_NUMBERS.as_ptr()),
                _mm512_set1_epi32(first as i32),
            );
            let ids = _mm512_maskz_compress_epi32(mask, ids);
            let x = _mm512_castps_si512(_mm512_maskz_compress_ps(mask, x));
            for (i, words) in CANDIDATES.iter().enumerate() {
                let words = _mm512_loadu_epi32(words.as_ptr());
                let words = _mm512_maskz_permutex2var_epi32(NOT_P[i], ids, words, x);
                _mm512_storeu_epi32(to.add(16 * i), words);
            }
        }
        mask.count_ones() as usize
    }

    /// Scaling accepts any power of two, down to 0 and up to infinity. The remainder of infinite
    /// numbers and NaN is NaN, and so are all products with it. Numbers so large that the rounding
    /// loses their 32nds are far from 0: a power of 0 gives 0 with any finite remainder, and a
    /// power of infinity gives nothing finite.
    const EXP_APPROX_TELLS: bool = true;
    const EXP_APPROX_SQUARES: f32 = 25_600.0;

    /// A table of 2^(i/32) leaves a polynomial of degree 2, and one instruction scales by a power
    /// of two: 8 operations where the polynomial alone takes 10. A result that is too small for a
    /// `float` becomes 0.
    #[inline(always)]
    fn exp_approx(self, x: __m512) -> __m512 {
        let [e] = self.exp_approx_each([x]);
        e
    }

    /// Performs each step for all registers before the next step: an operation waits less if others
    /// are between it and its operands.
    #[inline(always)]
    fn exp_approx_each<const N: usize>(self, x: [__m512; N]) -> [__m512; N] {
        // SAFETY: `self` proves AVX-512; the table is two registers long.
        unsafe {
            let round = _mm512_set1_ps(ROUND_32NDS);
            let shifted = x.map(|x| _mm512_fmadd_ps(x, _mm512_set1_ps(LOG2_E), round));
            let k = shifted.map(|shifted| _mm512_sub_ps(shifted, round));
            let table = POWERS.as_ptr();
            let low = _mm512_loadu_ps(table);
            let high = _mm512_loadu_ps(table.add(16));
            let powers = shifted
                .map(|shifted| _mm512_permutex2var_ps(low, _mm512_castps_si512(shifted), high));
            let r = zip(k, x, |k, x| _mm512_fmadd_ps(k, _mm512_set1_ps(-LN_2), x));
            // The power is scaled before the polynomial is multiplied, not after: scaling by minus
            // infinity makes 0 even of NaN.
            let powers = zip(powers, k, |power, k| _mm512_scalef_ps(power, k));
            let [constant, factor] = EXPM1.map(|c| _mm512_set1_ps(c));
            let slopes = r.map(|r| _mm512_fmadd_ps(r, factor, constant));
            let rises = zip(slopes, r, |slope, r| _mm512_mul_ps(slope, r));
            zip(rises, powers, |rise, power| {
                _mm512_fmadd_ps(rise, power, power)
            })
        }
    }

    /// Folds the four registers into one, which takes 14 operations. Reducing one register after
    /// the other would take 32.
    #[inline(always)]
    fn reduce_max_each(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        let mut largest = [0.0; 4];
        // SAFETY: `self` proves AVX-512; 4 floats are there.
        unsafe {
            let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(a, b);
            let ab = _mm512_max_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(a, b));
            let low = _mm512_shuffle_f32x4::<0b01_00_01_00>(c, d);
            let cd = _mm512_max_ps(low, _mm512_shuffle_f32x4::<0b11_10_11_10>(c, d));
            // Each quarter of `max` belongs to one of the four registers.
            let even = _mm512_shuffle_f32x4::<0b10_00_10_00>(ab, cd);
            let max = _mm512_max_ps(even, _mm512_shuffle_f32x4::<0b11_01_11_01>(ab, cd));
            let max = _mm512_max_ps(max, _mm512_permute_ps::<0b10_11_00_01>(max));
            let max = _mm512_max_ps(max, _mm512_permute_ps::<0b01_00_11_10>(max));
            let packed = _mm512_maskz_compress_ps(0x1111, max);
            _mm_storeu_ps(largest.as_mut_ptr(), _mm512_castps512_ps128(packed));
        }
        largest
    }

    #[inline(always)]
    fn reduce_max_u16_each(self, blocks: &[u16], infinity: u16) -> Option<[u16; 4]> {
        assert!(blocks.len() >= 256);
        let mut lanes = [0u16; 32];
        // SAFETY: `self` proves AVX-512; 8 registers of 32 words are there.
        unsafe {
            let from = blocks.as_ptr().cast::<i32>();
            // As signed words, numbers below 0 are all less than the others.
            let mut of_each = [_mm512_setzero_si512(); 4];
            for (i, max) in of_each.iter_mut().enumerate() {
                let first = _mm512_loadu_epi32(from.add(32 * i));
                *max = _mm512_max_epi16(first, _mm512_loadu_epi32(from.add(32 * i + 16)));
            }
            let [a, b, c, d] = of_each;
            let low = _mm512_shuffle_i32x4::<0b01_00_01_00>(a, b);
            let ab = _mm512_max_epi16(low, _mm512_shuffle_i32x4::<0b11_10_11_10>(a, b));
            let low = _mm512_shuffle_i32x4::<0b01_00_01_00>(c, d);
            let cd = _mm512_max_epi16(low, _mm512_shuffle_i32x4::<0b11_10_11_10>(c, d));
            let even = _mm512_shuffle_i32x4::<0b10_00_10_00>(ab, cd);
            let max = _mm512_max_epi16(even, _mm512_shuffle_i32x4::<0b11_01_11_01>(ab, cd));
            let max = _mm512_max_epi16(max, _mm512_shuffle_epi32::<0b01_00_11_10>(max));
            let max = _mm512_max_epi16(max, _mm512_shuffle_epi32::<0b10_11_00_01>(max));
            let max = _mm512_max_epi16(max, _mm512_rol_epi32::<16>(max));
            if _mm512_cmpgt_epu16_mask(max, _mm512_set1_epi16(infinity as i16)) != 0 {
                return None;
            }
            _mm512_storeu_epi16(lanes.as_mut_ptr().cast(), max);
        }
        Some([lanes[0], lanes[8], lanes[16], lanes[24]])
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        // SAFETY: a hint, which reads nothing and cannot fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    #[inline(always)]
    fn max_masked(self, lanes: u32, a: __m512, b: __m512) -> __m512 {
        // SAFETY: `self` proves AVX-512.
        unsafe { _mm512_mask_max_ps(b, lanes as u16, a, b) }
    }

    instructions! {
        fn splat(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        fn sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn div(a: __m512, b: __m512) -> __m512 = _mm512_div_ps(a, b);
        fn max(a: __m512, b: __m512) -> __m512 = _mm512_max_ps(a, b);
        fn abs(a: __m512) -> __m512 = _mm512_abs_ps(a);
        fn max_abs(a: __m512, b: __m512) -> __m512 = _mm512_range_ps::<0b1011>(a, b);
        fn fract(a: __m512) -> __m512 = _mm512_reduce_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(a);
        fn ge(a: __m512, b: __m512) -> u32 = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(a, b).into();
        fn lt(a: __m512, b: __m512) -> u32 = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b).into();
        fn eq(a: __m512, b: __m512) -> u32 = _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b).into();
        fn select_lt(a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 =
            _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x);
        fn reduce_max(a: __m512) -> f32 = _mm512_reduce_max_ps(a);
        fn reduce_add(a: __m512) -> f32 = _mm512_reduce_add_ps(a);
        fn splat_d(x: f64) -> __m512d = _mm512_set1_pd(x);
        fn widen(a: __m512) -> [__m512d; 2] =
            [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(a))];
        fn narrow(a: [__m512d; 2]) -> __m512 = _mm512_insertf32x8::<1>(
            _mm512_castps256_ps512(_mm512_cvtpd_ps(a[0])),
            _mm512_cvtpd_ps(a[1]),
        );
        fn add_d(a: __m512d, b: __m512d) -> __m512d = _mm512_add_pd(a, b);
        fn sub_d(a: __m512d, b: __m512d) -> __m512d = _mm512_sub_pd(a, b);
        fn mul_d(a: __m512d, b: __m512d) -> __m512d = _mm512_mul_pd(a, b);
        fn add_shifted_bits(entry: __m512d, n: __m512d) -> __m512d = {
            let n = _mm512_slli_epi64::<45>(_mm512_castpd_si512(n));
            _mm512_castsi512_pd(_mm512_add_epi64(_mm512_castpd_si512(entry), n))
        };
        fn eq_d(a: __m512d, b: __m512d) -> u32 = _mm512_cmp_pd_mask::<_CMP_EQ_OQ>(a, b).into();
        fn select_eq_d(a: __m512d, b: __m512d, x: __m512d, y: __m512d) -> __m512d =
            _mm512_mask_blend_pd(_mm512_cmp_pd_mask::<_CMP_EQ_OQ>(a, b), y, x);
        fn div_d(a: __m512d, b: __m512d) -> __m512d = _mm512_div_pd(a, b);
        fn fma_d(a: __m512d, b: __m512d, c: __m512d) -> __m512d = _mm512_fmadd_pd(a, b, c);
        fn fms_d(a: __m512d, b: __m512d, c: __m512d) -> __m512d = _mm512_fmsub_pd(a, b, c);
        fn abs_d(a: __m512d) -> __m512d = _mm512_abs_pd(a);
        fn max_d(a: __m512d, b: __m512d) -> __m512d = _mm512_max_pd(a, b);
        fn reduce_max_d(a: __m512d) -> f64 = _mm512_reduce_max_pd(a);
        fn reduce_add_d(a: __m512d) -> f64 = _mm512_reduce_add_pd(a);
        fn fma(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn add_bits(a: __m512, b: __m512) -> __m512 =
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
        fn ldexp(a: __m512, shifted: __m512) -> __m512 = {
            let power = _mm512_slli_epi32::<23>(_mm512_castps_si512(shifted));
            _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), power))
        };
    }
}

/// Runs a kernel, compiled with these instructions.
#[target_feature(
    enable = "avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,f16c,popcnt,lzcnt,bmi1,bmi2"
)]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function runs only where the processor has these features.
    kernel.run(unsafe { Avx512::new() })
}
