//! AVX2 with FMA and F16C: 8 floats.

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use half::{bf16, f16};

use crate::simd::exp::TABLE;
use crate::simd::kernel::Kernel;
use crate::simd::ln::{INVERSES, LOGARITHMS, LnParts, OFFSET, from_bits};
use crate::simd::vector::Vector;
use crate::token::TokenData;

/// AVX2, FMA, F16C and POPCNT.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The processor has AVX2, FMA, F16C and POPCNT.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

impl Avx2 {
    /// Returns the lanes of `x` whose bits in `lanes` are set, packed at the beginning.
    #[inline(always)]
    // In bounds: one entry for each set of lanes.
    fn packed(self, x: __m256, lanes: u32) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let numbers = _mm_cvtsi64_si128(PACKED[lanes as usize % 256] as i64);
            _mm256_permutevar8x32_ps(x, _mm256_cvtepu8_epi32(numbers))
        }
    }

    #[inline(always)]
    fn exp2_32nds_half(self, n: __m256d) -> __m256d {
        let mut indices = [0u64; 4];
        // SAFETY: `self` proves AVX2; 4 words are there.
        unsafe {
            let n = _mm256_castpd_si256(n);
            _mm256_storeu_si256(indices.as_mut_ptr().cast(), n);
            let entry = _mm256_castpd_si256(self.entries(&ENTRIES, indices));
            let bits = _mm256_add_epi64(entry, _mm256_slli_epi64::<47>(n));
            _mm256_castsi256_pd(bits)
        }
    }

    /// Returns the entries of a table, whose length is a power of two, at the low bits of
    /// `indices`.
    ///
    /// Each entry takes one load: the gather instruction is slow on most processors that have AVX2
    /// but not AVX-512, because of microcode updates against data sampling.
    #[inline(always)]
    // In bounds: modulo the length of the table.
    fn entries<const N: usize>(self, table: &[f64; N], [a, b, c, d]: [u64; 4]) -> __m256d {
        let at = |i: u64| table[i as usize % N];
        // SAFETY: `self` proves AVX2.
        unsafe { _mm256_set_pd(at(d), at(c), at(b), at(a)) }
    }
}

// Constants, not statics, so that their values are known in every codegen unit.

/// The lane of each candidate's logit in the blended register. Eight candidates are 24 words in
/// three registers. Their logits, words 3 i + 1, use no lane twice, so blending gathers them, in
/// the order 5, 0, 3, 6, 1, 4, 7, 2 of candidates.
const GATHER_LOGITS: [i32; 8] = [1, 4, 7, 2, 5, 0, 3, 6];
/// The lane of each candidate's probability, word 3 i + 2, in the blended register, which has the
/// candidates in the order 2, 5, 0, 3, 6, 1, 4, 7.
const GATHER_PROBABILITIES: [i32; 8] = [2, 5, 0, 3, 6, 1, 4, 7];
const SCATTER_LOGITS: [i32; 8] = [5, 0, 3, 6, 1, 4, 7, 2];
/// The candidate whose id, word 3 i, is in each lane of the blended register. It is also the lane
/// of each candidate's id, since the permutation is its own inverse.
const SCATTER_IDS: [i32; 8] = [0, 3, 6, 1, 4, 7, 2, 5];
/// The candidate whose probability is in each lane of the blended register.
const SCATTER_PROBABILITIES: [i32; 8] = [2, 5, 0, 3, 6, 1, 4, 7];

/// For each of the 24 words the candidate whose logit it is, as a bit; 0 for other words.
const LOGIT_OWNERS: [[i32; 8]; 3] = [
    [0, 1, 0, 0, 2, 0, 0, 4],
    [0, 0, 8, 0, 0, 16, 0, 0],
    [32, 0, 0, 64, 0, 0, 128, 0],
];

/// For each lane, the one that it is exchanged with: lanes 1 and 2, 3 and 4, and so on. The first
/// and the last lane stay.
const ODD_NEIGHBOURS: [i32; 8] = [0, 2, 1, 4, 3, 6, 5, 7];

static ENTRIES: [f64; 32] = from_bits(TABLE);

/// For each set of lanes, their indices in ascending order, one byte each.
static PACKED: [u64; 256] = packed();

// In bounds: evaluated by the compiler, which refuses an index that is out of bounds.
const fn packed() -> [u64; 256] {
    let mut packed = [0; 256];
    let mut lanes = 0;
    while lanes < 256 {
        let (mut kept, mut lane) = (0, 0);
        while lane < 8 {
            if lanes >> lane & 1 == 1 {
                packed[lanes] |= lane << (8 * kept);
                kept += 1;
            }
            lane += 1;
        }
        lanes += 1;
    }
    packed
}

/// Defines methods that are one expression of intrinsics.
macro_rules! instructions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: `self` exists only where the processor has AVX2; nothing here touches memory
            // but constants.
            unsafe { $body }
        }
    )*};
}

/// Writes one field of 8 candidates: permutes `x` by `scatter`, and blends it in. A, B and C are
/// the lanes of the field in the three registers.
///
/// # Safety
/// The processor must have AVX2.
#[inline(always)]
unsafe fn store_field<const A: i32, const B: i32, const C: i32>(
    data: &mut [TokenData],
    scatter: &[i32; 8],
    x: __m256,
) {
    assert!(data.len() >= 8);
    let to = data.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller has AVX2; 8 candidates are 24 words.
    unsafe {
        let lanes = _mm256_loadu_si256(scatter.as_ptr().cast());
        let x = _mm256_permutevar8x32_ps(x, lanes);
        _mm256_storeu_ps(to, _mm256_blend_ps::<A>(_mm256_loadu_ps(to), x));
        let to = to.add(8);
        _mm256_storeu_ps(to, _mm256_blend_ps::<B>(_mm256_loadu_ps(to), x));
        let to = to.add(8);
        _mm256_storeu_ps(to, _mm256_blend_ps::<C>(_mm256_loadu_ps(to), x));
    }
}

/// Loads one field of eight candidates. `SECOND` and `THIRD` are its lanes in the second and third
/// register. `lanes` has the lane of each candidate after blending.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn load_field<const SECOND: i32, const THIRD: i32>(
    data: &[TokenData],
    lanes: &[i32; 8],
) -> __m256 {
    assert!(data.len() >= 8);
    let from = data.as_ptr().cast::<f32>();
    // SAFETY: the caller promises AVX2; 8 candidates are 24 words.
    unsafe {
        let a = _mm256_loadu_ps(from);
        let b = _mm256_loadu_ps(from.add(8));
        let c = _mm256_loadu_ps(from.add(16));
        let merged = _mm256_blend_ps::<SECOND>(a, b);
        let merged = _mm256_blend_ps::<THIRD>(merged, c);
        _mm256_permutevar8x32_ps(merged, _mm256_loadu_si256(lanes.as_ptr().cast()))
    }
}

impl Vector for Avx2 {
    const LANES: usize = 8;
    type F = __m256;
    type D = __m256d;

    #[inline(always)]
    fn load(self, from: &[f32]) -> __m256 {
        assert!(from.len() >= 8);
        // SAFETY: `self` proves AVX2; 8 floats are there.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_d(self, from: &[f64]) -> __m256d {
        assert!(from.len() >= 4);
        // SAFETY: `self` proves AVX2; 4 doubles are there.
        unsafe { _mm256_loadu_pd(from.as_ptr()) }
    }

    #[inline(always)]
    fn store_d(self, to: &mut [f64], x: __m256d) {
        assert!(to.len() >= 4);
        // SAFETY: `self` proves AVX2; 4 doubles are there.
        unsafe { _mm256_storeu_pd(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_widened(self, from: &[f32]) -> [__m256d; 2] {
        assert!(from.len() >= 8);
        // SAFETY: `self` proves AVX2; 8 floats are there. From memory the conversion needs no
        // shuffle.
        unsafe {
            let low = _mm_loadu_ps(from.as_ptr());
            let high = _mm_loadu_ps(from.as_ptr().add(4));
            [_mm256_cvtps_pd(low), _mm256_cvtps_pd(high)]
        }
    }

    #[inline(always)]
    fn store_narrowed(self, to: &mut [f32], a: [__m256d; 2]) {
        assert!(to.len() >= 8);
        // SAFETY: `self` proves AVX2; 8 floats are there. By halves, without the shuffle that joins
        // them.
        unsafe {
            _mm_storeu_ps(to.as_mut_ptr(), _mm256_cvtpd_ps(a[0]));
            _mm_storeu_ps(to.as_mut_ptr().add(4), _mm256_cvtpd_ps(a[1]));
        }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], x: __m256) {
        assert!(to.len() >= 8);
        // SAFETY: `self` proves AVX2; 8 floats are there.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_logits(self, data: &[TokenData]) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { load_field::<0b0010_0100, 0b0100_1001>(data, &GATHER_LOGITS) }
    }

    #[inline(always)]
    fn load_probabilities(self, data: &[TokenData]) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe { load_field::<0b0100_1001, 0b1001_0010>(data, &GATHER_PROBABILITIES) }
    }

    #[inline(always)]
    fn store_logits(self, data: &mut [TokenData], x: __m256) {
        // SAFETY: `self` proves AVX2.
        unsafe { store_field::<0b1001_0010, 0b0010_0100, 0b0100_1001>(data, &SCATTER_LOGITS, x) }
    }

    #[inline(always)]
    fn store_probabilities(self, data: &mut [TokenData], x: __m256) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            store_field::<0b0010_0100, 0b0100_1001, 0b1001_0010>(data, &SCATTER_PROBABILITIES, x);
        }
    }

    #[inline(always)]
    fn store_candidates(self, data: &mut [TokenData], ids: &[u32], logits: __m256, ps: __m256) {
        assert!(data.len() >= 8 && ids.len() >= 8);
        let to = data.as_mut_ptr().cast::<f32>();
        // SAFETY: `self` proves AVX2; 8 ids and 8 candidates, 24 words, are there.
        unsafe {
            let ids = _mm256_castsi256_ps(_mm256_loadu_si256(ids.as_ptr().cast()));
            let lanes = _mm256_loadu_si256(SCATTER_IDS.as_ptr().cast());
            let ids = _mm256_permutevar8x32_ps(ids, lanes);
            let lanes = _mm256_loadu_si256(SCATTER_LOGITS.as_ptr().cast());
            let logits = _mm256_permutevar8x32_ps(logits, lanes);
            let lanes = _mm256_loadu_si256(SCATTER_PROBABILITIES.as_ptr().cast());
            let ps = _mm256_permutevar8x32_ps(ps, lanes);
            let a = _mm256_blend_ps::<0b1001_0010>(ids, logits);
            _mm256_storeu_ps(to, _mm256_blend_ps::<0b0010_0100>(a, ps));
            let b = _mm256_blend_ps::<0b0010_0100>(ids, logits);
            _mm256_storeu_ps(to.add(8), _mm256_blend_ps::<0b0100_1001>(b, ps));
            let c = _mm256_blend_ps::<0b0100_1001>(ids, logits);
            _mm256_storeu_ps(to.add(16), _mm256_blend_ps::<0b1001_0010>(c, ps));
        }
    }

    #[inline(always)]
    fn mask_logits(self, data: &mut [TokenData], lanes: u32) {
        assert!(data.len() >= 8);
        let to = data.as_mut_ptr().cast::<f32>();
        // SAFETY: `self` proves AVX2; 8 candidates are 24 words.
        unsafe {
            let (lanes, zero) = (_mm256_set1_epi32(lanes as i32), _mm256_setzero_si256());
            let masked = _mm256_set1_ps(f32::NEG_INFINITY);
            for (i, owners) in LOGIT_OWNERS.iter().enumerate() {
                let owners = _mm256_loadu_si256(owners.as_ptr().cast());
                let words = _mm256_cmpgt_epi32(_mm256_and_si256(lanes, owners), zero);
                let to = to.add(8 * i);
                let all = _mm256_blendv_ps(_mm256_loadu_ps(to), masked, _mm256_castsi256_ps(words));
                _mm256_storeu_ps(to, all);
            }
        }
    }

    #[inline(always)]
    fn ge_u64(self, words: &[u64], least: u64) -> u32 {
        assert!(words.len() <= 8);
        // SAFETY: `self` proves AVX2; a word that is not there is not read.
        unsafe {
            // There are only signed comparisons, so the highest bit of each word is inverted.
            let turn = _mm256_set1_epi64x(i64::MIN);
            let least = _mm256_xor_si256(_mm256_set1_epi64x(least as i64), turn);
            let n = _mm256_set1_epi64x(words.len() as i64);
            let mut bits = 0;
            for (half, numbers) in [[0i64, 1, 2, 3], [4, 5, 6, 7]].iter().enumerate() {
                let there = _mm256_cmpgt_epi64(n, _mm256_loadu_si256(numbers.as_ptr().cast()));
                let from = words.as_ptr().wrapping_add(4 * half).cast();
                let words = _mm256_xor_si256(_mm256_maskload_epi64(from, there), turn);
                let less = _mm256_cmpgt_epi64(least, words);
                let not_less = _mm256_castsi256_pd(_mm256_andnot_si256(less, there));
                bits |= (_mm256_movemask_pd(not_less) as u32) << (4 * half);
            }
            bits
        }
    }

    #[inline(always)]
    fn max_masked(self, lanes: u32, a: __m256, b: __m256) -> __m256 {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let own = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
            let set = _mm256_and_si256(_mm256_set1_epi32(lanes as i32), own);
            let set = _mm256_castsi256_ps(_mm256_cmpeq_epi32(set, own));
            let lowest = _mm256_set1_ps(f32::NEG_INFINITY);
            _mm256_max_ps(_mm256_blendv_ps(lowest, a, set), b)
        }
    }

    #[inline(always)]
    fn ids_count_from(self, data: &[TokenData], first: u32) -> bool {
        assert!(data.len() >= 8);
        let from = data.as_ptr().cast::<f32>();
        // SAFETY: `self` proves AVX2; 8 candidates are 24 words.
        unsafe {
            let a = _mm256_loadu_ps(from);
            let b = _mm256_loadu_ps(from.add(8));
            let c = _mm256_loadu_ps(from.add(16));
            let merged = _mm256_blend_ps::<0b1001_0010>(a, b);
            let merged = _mm256_blend_ps::<0b0010_0100>(merged, c);
            let expected = _mm256_loadu_si256(SCATTER_IDS.as_ptr().cast());
            let expected = _mm256_add_epi32(expected, _mm256_set1_epi32(first as i32));
            let same = _mm256_cmpeq_epi32(_mm256_castps_si256(merged), expected);
            _mm256_movemask_epi8(same) == -1
        }
    }

    #[inline(always)]
    fn compress_store(self, lanes: u32, x: __m256, to: &mut [MaybeUninit<f32>]) -> usize {
        assert!(to.len() >= 8);
        // SAFETY: `self` proves AVX2; there is room for 8, all of which are written, those after
        // the packed ones with the first.
        unsafe {
            _mm256_storeu_ps(to.as_mut_ptr().cast(), self.packed(x, lanes));
        }
        (lanes & 0xFF).count_ones() as usize
    }

    #[inline(always)]
    fn gather(self, from: &[f32], indices: &[u32]) -> __m256 {
        assert!(indices.len() >= 8);
        // Compares by an unsigned minimum, since there are only signed comparisons. An index of
        // 2^31 or more is out of bounds in any case.
        // SAFETY: `self` proves AVX2; 8 indices are there.
        unsafe {
            let eight = _mm256_loadu_si256(indices.as_ptr().cast());
            let last = _mm256_set1_epi32(i32::try_from(from.len()).unwrap_or(i32::MAX) - 1);
            let inside = _mm256_cmpeq_epi32(_mm256_min_epu32(eight, last), eight);
            assert!(!from.is_empty() && _mm256_movemask_epi8(inside) == -1);
        }
        // One load each, as in `entries`.
        // SAFETY: just compared; `self` proves AVX2.
        unsafe {
            let at = |i: usize| *from.get_unchecked(*indices.get_unchecked(i) as usize);
            _mm256_set_ps(at(7), at(6), at(5), at(4), at(3), at(2), at(1), at(0))
        }
    }

    #[inline(always)]
    fn compare_exchange_even(self, x: __m256, y: __m256) -> (__m256, __m256) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let other = _mm256_permute_ps::<0b10_11_00_01>(x);
            let other_y = _mm256_permute_ps::<0b10_11_00_01>(y);
            let rises = _mm256_cmp_ps::<_CMP_LT_OQ>(x, other);
            let falls = _mm256_cmp_ps::<_CMP_LT_OQ>(other, x);
            let swap = _mm256_blend_ps::<0b1010_1010>(rises, falls);
            (
                _mm256_blendv_ps(x, other, swap),
                _mm256_blendv_ps(y, other_y, swap),
            )
        }
    }

    #[inline(always)]
    fn compare_exchange_odd(self, x: __m256, y: __m256) -> (__m256, __m256) {
        // SAFETY: `self` proves AVX2.
        unsafe {
            let lanes = _mm256_loadu_si256(ODD_NEIGHBOURS.as_ptr().cast());
            let other = _mm256_permutevar8x32_ps(x, lanes);
            let other_y = _mm256_permutevar8x32_ps(y, lanes);
            let rises = _mm256_cmp_ps::<_CMP_LT_OQ>(x, other);
            let falls = _mm256_cmp_ps::<_CMP_LT_OQ>(other, x);
            let swap = _mm256_blend_ps::<0b0101_0100>(rises, falls);
            (
                _mm256_blendv_ps(x, other, swap),
                _mm256_blendv_ps(y, other_y, swap),
            )
        }
    }

    #[inline(always)]
    fn ln_parts(self, x: __m256) -> LnParts<__m256d> {
        let mut of_low = [0u64; 4];
        let mut of_high = [0u64; 4];
        // SAFETY: `self` proves AVX2; 4 words are in each array.
        unsafe {
            let bits = _mm256_castps_si256(x);
            let from_offset = _mm256_sub_epi32(bits, _mm256_set1_epi32(OFFSET as i32));
            let exponent = _mm256_and_si256(from_offset, _mm256_set1_epi32(-1 << 23));
            let z = _mm256_castsi256_ps(_mm256_sub_epi32(bits, exponent));
            let i = _mm256_srli_epi32::<19>(from_offset);
            let k = _mm256_srai_epi32::<23>(from_offset);
            let (i_low, i_high) = (_mm256_castsi256_si128(i), _mm256_extracti128_si256::<1>(i));
            let (k_low, k_high) = (_mm256_castsi256_si128(k), _mm256_extracti128_si256::<1>(k));
            _mm256_storeu_si256(of_low.as_mut_ptr().cast(), _mm256_cvtepu32_epi64(i_low));
            _mm256_storeu_si256(of_high.as_mut_ptr().cast(), _mm256_cvtepu32_epi64(i_high));
            LnParts {
                z: self.widen(z),
                inverse: [
                    self.entries(&INVERSES, of_low),
                    self.entries(&INVERSES, of_high),
                ],
                ln: [
                    self.entries(&LOGARITHMS, of_low),
                    self.entries(&LOGARITHMS, of_high),
                ],
                k: [_mm256_cvtepi32_pd(k_low), _mm256_cvtepi32_pd(k_high)],
            }
        }
    }

    #[inline(always)]
    fn exp2_32nds(self, n: [__m256d; 2]) -> [__m256d; 2] {
        [self.exp2_32nds_half(n[0]), self.exp2_32nds_half(n[1])]
    }

    #[inline(always)]
    fn reduce_max(self, a: __m256) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(&mut lanes, a);
        lanes.into_iter().fold(f32::NEG_INFINITY, f32::max)
    }

    #[inline(always)]
    fn reduce_add(self, a: __m256) -> f32 {
        let mut lanes = [0.0; 8];
        self.store(&mut lanes, a);
        lanes.into_iter().sum()
    }

    #[inline(always)]
    fn reduce_max_d(self, a: __m256d) -> f64 {
        let mut lanes = [0.0f64; 4];
        // SAFETY: `self` proves AVX2; 4 doubles are there.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), a) };
        lanes.into_iter().fold(f64::NEG_INFINITY, f64::max)
    }

    #[inline(always)]
    fn reduce_add_d(self, a: __m256d) -> f64 {
        let mut lanes = [0.0f64; 4];
        // SAFETY: `self` proves AVX2; 4 doubles are there.
        unsafe { _mm256_storeu_pd(lanes.as_mut_ptr(), a) };
        lanes.into_iter().sum()
    }

    #[inline(always)]
    fn load_f16(self, from: &[f16]) -> __m256 {
        assert!(from.len() >= 8);
        // SAFETY: `self` proves F16C; 8 numbers of 16 bits are there.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16]) -> __m256 {
        assert!(from.len() >= 8);
        // SAFETY: `self` proves AVX2; 8 numbers of 16 bits are there.
        unsafe {
            let upper = _mm256_cvtepu16_epi32(_mm_loadu_si128(from.as_ptr().cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(upper))
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, at: *const T) {
        // SAFETY: a hint, which reads nothing and cannot fail.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
    }

    instructions! {
        fn splat(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        fn sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn div(a: __m256, b: __m256) -> __m256 = _mm256_div_ps(a, b);
        fn max(a: __m256, b: __m256) -> __m256 = _mm256_max_ps(a, b);
        fn abs(a: __m256) -> __m256 = _mm256_andnot_ps(_mm256_set1_ps(-0.0), a);
        fn fract(a: __m256) -> __m256 = _mm256_sub_ps(a, _mm256_floor_ps(a));
        fn ge(a: __m256, b: __m256) -> u32 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(a, b)) as u32;
        fn lt(a: __m256, b: __m256) -> u32 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_LT_OQ>(a, b)) as u32;
        fn eq(a: __m256, b: __m256) -> u32 = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)) as u32;
        fn select_lt(a: __m256, b: __m256, x: __m256, y: __m256) -> __m256 =
            _mm256_blendv_ps(y, x, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b));
        fn splat_d(x: f64) -> __m256d = _mm256_set1_pd(x);
        fn widen(a: __m256) -> [__m256d; 2] =
            [_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a))];
        fn narrow(a: [__m256d; 2]) -> __m256 =
            _mm256_set_m128(_mm256_cvtpd_ps(a[1]), _mm256_cvtpd_ps(a[0]));
        fn add_d(a: __m256d, b: __m256d) -> __m256d = _mm256_add_pd(a, b);
        fn sub_d(a: __m256d, b: __m256d) -> __m256d = _mm256_sub_pd(a, b);
        fn mul_d(a: __m256d, b: __m256d) -> __m256d = _mm256_mul_pd(a, b);
        fn add_shifted_bits(entry: __m256d, n: __m256d) -> __m256d = {
            let n = _mm256_slli_epi64::<45>(_mm256_castpd_si256(n));
            _mm256_castsi256_pd(_mm256_add_epi64(_mm256_castpd_si256(entry), n))
        };
        fn eq_d(a: __m256d, b: __m256d) -> u32 = _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_EQ_OQ>(a, b)) as u32;
        fn select_eq_d(a: __m256d, b: __m256d, x: __m256d, y: __m256d) -> __m256d =
            _mm256_blendv_pd(y, x, _mm256_cmp_pd::<_CMP_EQ_OQ>(a, b));
        fn div_d(a: __m256d, b: __m256d) -> __m256d = _mm256_div_pd(a, b);
        fn fma_d(a: __m256d, b: __m256d, c: __m256d) -> __m256d = _mm256_fmadd_pd(a, b, c);
        fn fms_d(a: __m256d, b: __m256d, c: __m256d) -> __m256d = _mm256_fmsub_pd(a, b, c);
        fn abs_d(a: __m256d) -> __m256d = _mm256_andnot_pd(_mm256_set1_pd(-0.0), a);
        fn max_d(a: __m256d, b: __m256d) -> __m256d = _mm256_max_pd(a, b);
        fn fma(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn add_bits(a: __m256, b: __m256) -> __m256 =
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_castps_si256(b)));
        fn ldexp(a: __m256, shifted: __m256) -> __m256 = {
            let power = _mm256_slli_epi32::<23>(_mm256_castps_si256(shifted));
            _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), power))
        };
    }
}

/// Runs a kernel, compiled with these instructions.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt,bmi1,bmi2")]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function runs only where the processor has these features.
    kernel.run(unsafe { Avx2::new() })
}
