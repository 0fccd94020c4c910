//! NEON, which every 64-bit ARM processor has: 4 floats.

use std::arch::aarch64::*;

use half::bf16;

use crate::simd::exp::TABLE;
use crate::simd::kernel::Kernel;
use crate::simd::vector::Vector;
use crate::token::TokenData;

/// The NEON backend.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// # Safety
    /// None: the architecture always has NEON. Unsafe only because the constructors of the other
    /// instruction sets are.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

static ENTRIES: [u64; 32] = TABLE;

/// The bytes of lanes 0, 2, 1 and 3.
static ODD_NEIGHBOURS: [u8; 16] = [0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15];

/// Defines methods that are one expression of intrinsics.
macro_rules! instructions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: the architecture has NEON; nothing here touches memory.
            unsafe { $body }
        }
    )*};
}

/// Returns one bit per lane of a comparison.
#[inline(always)]
fn bits(lanes: uint32x4_t) -> u32 {
    static BITS: [u32; 4] = [1, 2, 4, 8];
    // SAFETY: the architecture has NEON; 4 numbers are there.
    unsafe { vaddvq_u32(vandq_u32(lanes, vld1q_u32(BITS.as_ptr()))) }
}

#[inline(always)]
// In bounds: taken modulo the number of entries.
fn exp2_32nds_half(n: float64x2_t) -> float64x2_t {
    let entry = |lane: u64| ENTRIES[(lane % 32) as usize];
    // SAFETY: the architecture has NEON; 2 numbers are there.
    unsafe {
        let n = vreinterpretq_u64_f64(n);
        let entries = [entry(vgetq_lane_u64::<0>(n)), entry(vgetq_lane_u64::<1>(n))];
        let entries = vld1q_u64(entries.as_ptr());
        vreinterpretq_f64_u64(vaddq_u64(entries, vshlq_n_u64::<47>(n)))
    }
}

/// Returns the ids (as bits), logits and probabilities of 4 candidates.
#[inline(always)]
fn fields(data: &[TokenData]) -> float32x4x3_t {
    assert!(data.len() >= 4);
    // SAFETY: 4 candidates are 12 words.
    unsafe { vld3q_f32(data.as_ptr().cast()) }
}

/// Writes the three fields of 4 candidates.
#[inline(always)]
fn set_fields(data: &mut [TokenData], fields: float32x4x3_t) {
    assert!(data.len() >= 4);
    // SAFETY: 4 candidates are 12 words, all of which any bits may fill.
    unsafe { vst3q_f32(data.as_mut_ptr().cast(), fields) }
}

impl Vector for Neon {
    const LANES: usize = 4;
    type F = float32x4_t;
    type D = float64x2_t;

    #[inline(always)]
    fn load(self, from: &[f32]) -> float32x4_t {
        assert!(from.len() >= 4);
        // SAFETY: 4 floats are there.
        unsafe { vld1q_f32(from.as_ptr()) }
    }

    #[inline(always)]
    fn load_d(self, from: &[f64]) -> float64x2_t {
        assert!(from.len() >= 2);
        // SAFETY: 2 doubles are there.
        unsafe { vld1q_f64(from.as_ptr()) }
    }

    #[inline(always)]
    fn store_d(self, to: &mut [f64], x: float64x2_t) {
        assert!(to.len() >= 2);
        // SAFETY: 2 doubles are there.
        unsafe { vst1q_f64(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn store(self, to: &mut [f32], x: float32x4_t) {
        assert!(to.len() >= 4);
        // SAFETY: 4 floats are there.
        unsafe { vst1q_f32(to.as_mut_ptr(), x) }
    }

    #[inline(always)]
    fn load_bf16(self, from: &[bf16]) -> float32x4_t {
        assert!(from.len() >= 4);
        // SAFETY: the architecture has NEON; 4 numbers of 16 bits are there.
        unsafe {
            let upper = vshll_n_u16::<16>(vld1_u16(from.as_ptr().cast()));
            vreinterpretq_f32_u32(upper)
        }
    }

    #[inline(always)]
    fn load_logits(self, data: &[TokenData]) -> float32x4_t {
        fields(data).1
    }

    #[inline(always)]
    fn load_probabilities(self, data: &[TokenData]) -> float32x4_t {
        fields(data).2
    }

    #[inline(always)]
    fn store_logits(self, data: &mut [TokenData], x: float32x4_t) {
        let all = fields(data);
        set_fields(data, float32x4x3_t(all.0, x, all.2));
    }

    #[inline(always)]
    fn store_probabilities(self, data: &mut [TokenData], x: float32x4_t) {
        let all = fields(data);
        set_fields(data, float32x4x3_t(all.0, all.1, x));
    }

    #[inline(always)]
    fn store_candidates(
        self,
        data: &mut [TokenData],
        ids: &[u32],
        logits: float32x4_t,
        ps: float32x4_t,
    ) {
        let ids = self.load_u32(ids);
        set_fields(data, float32x4x3_t(ids, logits, ps));
    }

    #[inline(always)]
    fn ids_count_from(self, data: &[TokenData], first: u32) -> bool {
        static COUNT: [u32; 4] = [0, 1, 2, 3];
        let ids = fields(data).0;
        // SAFETY: the architecture has NEON; 4 numbers are there.
        unsafe {
            let expected = vaddq_u32(vld1q_u32(COUNT.as_ptr()), vdupq_n_u32(first));
            bits(vceqq_u32(vreinterpretq_u32_f32(ids), expected)) == 15
        }
    }

    #[inline(always)]
    fn compare_exchange_even(self, x: float32x4_t, y: float32x4_t) -> (float32x4_t, float32x4_t) {
        static ODD: [u32; 4] = [0, u32::MAX, 0, u32::MAX];
        // SAFETY: the architecture has NEON; 4 words are there.
        unsafe {
            let (other, other_y) = (vrev64q_f32(x), vrev64q_f32(y));
            let (rises, falls) = (vcltq_f32(x, other), vcltq_f32(other, x));
            let swap = vbslq_u32(vld1q_u32(ODD.as_ptr()), falls, rises);
            (vbslq_f32(swap, other, x), vbslq_f32(swap, other_y, y))
        }
    }

    #[inline(always)]
    fn compare_exchange_odd(self, x: float32x4_t, y: float32x4_t) -> (float32x4_t, float32x4_t) {
        static SECOND: [u32; 4] = [0, 0, u32::MAX, 0];
        static OUTER: [u32; 4] = [u32::MAX, 0, 0, u32::MAX];
        // SAFETY: the architecture has NEON; 4 words and 16 bytes are there.
        unsafe {
            let lanes = vld1q_u8(ODD_NEIGHBOURS.as_ptr());
            let other = vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(x), lanes));
            let other_y = vreinterpretq_f32_u8(vqtbl1q_u8(vreinterpretq_u8_f32(y), lanes));
            let (rises, falls) = (vcltq_f32(x, other), vcltq_f32(other, x));
            let swap = vbslq_u32(vld1q_u32(SECOND.as_ptr()), falls, rises);
            let swap = vbicq_u32(swap, vld1q_u32(OUTER.as_ptr()));
            (vbslq_f32(swap, other, x), vbslq_f32(swap, other_y, y))
        }
    }

    #[inline(always)]
    fn exp2_32nds(self, n: [float64x2_t; 2]) -> [float64x2_t; 2] {
        [exp2_32nds_half(n[0]), exp2_32nds_half(n[1])]
    }

    instructions! {
        // The instruction for the maximum returns NaN if either operand is NaN.
        fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        fn max_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vbslq_f64(vcgtq_f64(a, b), a, b);
        fn splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fn abs(a: float32x4_t) -> float32x4_t = vabsq_f32(a);
        fn fract(a: float32x4_t) -> float32x4_t = vsubq_f32(a, vrndmq_f32(a));
        fn ge(a: float32x4_t, b: float32x4_t) -> u32 = bits(vcgeq_f32(a, b));
        fn lt(a: float32x4_t, b: float32x4_t) -> u32 = bits(vcltq_f32(a, b));
        fn eq(a: float32x4_t, b: float32x4_t) -> u32 = bits(vceqq_f32(a, b));
        fn select_lt(a: float32x4_t, b: float32x4_t, x: float32x4_t, y: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), x, y);
        fn reduce_max(a: float32x4_t) -> f32 = vmaxvq_f32(a);
        fn reduce_add(a: float32x4_t) -> f32 = vaddvq_f32(a);
        fn splat_d(x: f64) -> float64x2_t = vdupq_n_f64(x);
        fn widen(a: float32x4_t) -> [float64x2_t; 2] = [vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)];
        fn narrow(a: [float64x2_t; 2]) -> float32x4_t = vcvt_high_f32_f64(vcvt_f32_f64(a[0]), a[1]);
        fn add_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vaddq_f64(a, b);
        fn sub_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vsubq_f64(a, b);
        fn mul_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vmulq_f64(a, b);
        fn add_shifted_bits(entry: float64x2_t, n: float64x2_t) -> float64x2_t = {
            let n = vshlq_n_u64::<45>(vreinterpretq_u64_f64(n));
            vreinterpretq_f64_u64(vaddq_u64(vreinterpretq_u64_f64(entry), n))
        };
        fn eq_d(a: float64x2_t, b: float64x2_t) -> u32 = {
            let equal = vceqq_f64(a, b);
            (vgetq_lane_u64::<0>(equal) & 1 | vgetq_lane_u64::<1>(equal) & 2) as u32
        };
        fn select_eq_d(a: float64x2_t, b: float64x2_t, x: float64x2_t, y: float64x2_t) -> float64x2_t = vbslq_f64(vceqq_f64(a, b), x, y);
        fn div_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vdivq_f64(a, b);
        fn fma_d(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmaq_f64(c, a, b);
        fn fms_d(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmaq_f64(vnegq_f64(c), a, b);
        fn abs_d(a: float64x2_t) -> float64x2_t = vabsq_f64(a);
        fn reduce_max_d(a: float64x2_t) -> f64 = vmaxvq_f64(a);
        fn reduce_add_d(a: float64x2_t) -> f64 = vaddvq_f64(a);
        fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        fn add_bits(a: float32x4_t, b: float32x4_t) -> float32x4_t =
            vreinterpretq_f32_u32(vaddq_u32(vreinterpretq_u32_f32(a), vreinterpretq_u32_f32(b)));
        fn ldexp(a: float32x4_t, shifted: float32x4_t) -> float32x4_t = {
            let power = vshlq_n_s32::<23>(vreinterpretq_s32_f32(shifted));
            vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), power))
        };
    }
}

/// Runs a kernel, compiled with these instructions.
#[target_feature(enable = "neon")]
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: this function runs only where the processor has these features.
    kernel.run(unsafe { Neon::new() })
}
