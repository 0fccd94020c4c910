//! NEON, which every 64-bit ARM processor has: 4 floats.

use std::arch::aarch64::*;

use half::{bf16, f16};

use super::exp::TABLE;
use super::vector::Vector;
use crate::token::TokenData;

/// NEON.
#[derive(Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// # Safety
    /// None to keep: the architecture has it. Unsafe as the other instruction sets' are.
    #[inline(always)]
    pub unsafe fn new() -> Self {
        Self(())
    }
}

static ENTRIES: [u64; 32] = TABLE;

/// Methods that are one expression of intrinsics.
macro_rules! instructions {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: the architecture has NEON; nothing here touches memory.
            unsafe { $body }
        }
    )*};
}

/// One bit per lane of a comparison.
#[inline(always)]
fn bits(lanes: uint32x4_t) -> u32 {
    static BITS: [u32; 4] = [1, 2, 4, 8];
    // SAFETY: the architecture has NEON; 4 numbers are there.
    unsafe { vaddvq_u32(vandq_u32(lanes, vld1q_u32(BITS.as_ptr()))) }
}

#[inline(always)]
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

/// Ids (as bits), logits and probabilities of 4 candidates.
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
    fn store(self, to: &mut [f32], x: float32x4_t) {
        assert!(to.len() >= 4);
        // SAFETY: 4 floats are there.
        unsafe { vst1q_f32(to.as_mut_ptr(), x) }
    }

    // The vector conversion is not in every compiler that this is for.
    #[inline(always)]
    fn load_f16(self, from: &[f16]) -> float32x4_t {
        self.load(&[0, 1, 2, 3].map(|i| from[i].to_f32()))
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
    fn logits(self, data: &[TokenData]) -> float32x4_t {
        fields(data).1
    }

    #[inline(always)]
    fn set_logits(self, data: &mut [TokenData], x: float32x4_t) {
        let all = fields(data);
        set_fields(data, float32x4x3_t(all.0, x, all.2));
    }

    #[inline(always)]
    fn set_p(self, data: &mut [TokenData], x: float32x4_t) {
        let all = fields(data);
        set_fields(data, float32x4x3_t(all.0, all.1, x));
    }

    #[inline(always)]
    fn exp2_32nds(self, n: [float64x2_t; 2]) -> [float64x2_t; 2] {
        [exp2_32nds_half(n[0]), exp2_32nds_half(n[1])]
    }

    instructions! {
        // The instruction's own maximum is NaN where either is.
        fn max(a: float32x4_t, b: float32x4_t) -> float32x4_t = vbslq_f32(vcgtq_f32(a, b), a, b);
        fn max_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vbslq_f64(vcgtq_f64(a, b), a, b);
        fn splat(x: f32) -> float32x4_t = vdupq_n_f32(x);
        fn add(a: float32x4_t, b: float32x4_t) -> float32x4_t = vaddq_f32(a, b);
        fn sub(a: float32x4_t, b: float32x4_t) -> float32x4_t = vsubq_f32(a, b);
        fn div(a: float32x4_t, b: float32x4_t) -> float32x4_t = vdivq_f32(a, b);
        fn abs(a: float32x4_t) -> float32x4_t = vabsq_f32(a);
        fn ge(a: float32x4_t, b: float32x4_t) -> u32 = bits(vcgeq_f32(a, b));
        fn lt(a: float32x4_t, b: float32x4_t) -> u32 = bits(vcltq_f32(a, b));
        fn eq(a: float32x4_t, b: float32x4_t) -> u32 = bits(vceqq_f32(a, b));
        fn if_lt(a: float32x4_t, b: float32x4_t, x: float32x4_t, y: float32x4_t) -> float32x4_t = vbslq_f32(vcltq_f32(a, b), x, y);
        fn largest(a: float32x4_t) -> f32 = vmaxvq_f32(a);
        fn total(a: float32x4_t) -> f32 = vaddvq_f32(a);
        fn splat_d(x: f64) -> float64x2_t = vdupq_n_f64(x);
        fn widen(a: float32x4_t) -> [float64x2_t; 2] = [vcvt_f64_f32(vget_low_f32(a)), vcvt_high_f64_f32(a)];
        fn narrow(a: [float64x2_t; 2]) -> float32x4_t = vcvt_high_f32_f64(vcvt_f32_f64(a[0]), a[1]);
        fn add_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vaddq_f64(a, b);
        fn sub_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vsubq_f64(a, b);
        fn mul_d(a: float64x2_t, b: float64x2_t) -> float64x2_t = vmulq_f64(a, b);
        fn fma_d(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmaq_f64(c, a, b);
        fn fms_d(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t = vfmaq_f64(vnegq_f64(c), a, b);
        fn abs_d(a: float64x2_t) -> float64x2_t = vabsq_f64(a);
        fn largest_d(a: float64x2_t) -> f64 = vmaxvq_f64(a);
        fn total_d(a: float64x2_t) -> f64 = vaddvq_f64(a);
        fn fma(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        fn times_power(a: float32x4_t, shifted: float32x4_t) -> float32x4_t = {
            let power = vshlq_n_s32::<23>(vreinterpretq_s32_f32(shifted));
            vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(a), power))
        };
    }
}

super::floats::instantiate_floats!(Neon, "neon");
super::instantiate!(Neon, c"neon", "neon");
