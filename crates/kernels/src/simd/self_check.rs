//! Checks that the exponentials and logarithms of an instruction set are those of the C library,
//! bit for bit.
//!
//! They agree with the GNU C library since 2.28, and with musl. If a function does not agree, the C
//! library's is called instead: exactness comes before speed, and the built-ins themselves spend
//! most of their time in `expf`.
//!
//! Two good implementations of a function differ in the last bit only where the exact result is
//! near the middle between two numbers. So the check includes hard values, for which the GNU C
//! library rounds to the farther neighbour: it does so for one in 2,000 to 5,000 values of `expf`
//! and `logf`, and one in 1,400 of `exp`. Hardly any other implementation has the same bits for all
//! of them.

use super::kernel::Kernel;
use super::libm;
use super::vector::Vector;

/// The number of values on which each function is tried, in addition to the hard ones.
const N: usize = 4096;

/// A kernel that returns true if `expf` agrees.
pub(super) struct Exp;

impl Kernel for Exp {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // Densest near 0, down to where all results round to 0.
        let xs = (0..N).map(|i| i as f32 / N as f32);
        let xs = xs.map(|x| -104.5 * x * x);
        let xs: Vec<f32> = xs.chain(HARD_EXP.map(f32::from_bits)).collect();
        let mut ours = vec![0.0; xs.len()];
        for (xs, to) in xs
            .chunks_exact(V::LANES)
            .zip(ours.chunks_exact_mut(V::LANES))
        {
            let x = v.max(v.load(xs), v.splat(super::exp::LOWEST));
            v.store_narrowed(to, v.exp(v.widen(x)));
        }
        let theirs = xs.iter().map(|&x| libm::exp(x).to_bits());
        ours.iter().map(|x| x.to_bits()).eq(theirs)
    }
}

/// A kernel that returns true if `exp` agrees.
pub(super) struct ExpF64;

impl Kernel for ExpF64 {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // In scrambled order, densest near 0, with exponents from -54 to 6.
        let xs = (0..N).map(|i| i.wrapping_mul(2_654_435_761) % N);
        let xs = xs.map(|i| -120.0 * (i as f64 / N as f64).powi(5));
        let xs: Vec<f64> = xs.chain(HARD_EXP_F64.map(f64::from_bits)).collect();
        let mut ours = vec![0.0; xs.len()];
        let half = V::LANES / 2;
        for (xs, to) in xs.chunks_exact(half).zip(ours.chunks_exact_mut(half)) {
            v.store_d(to, v.exp_d(v.load_d(xs)));
        }
        let theirs = xs.iter().map(|&x| libm::exp_f64(x).to_bits());
        ours.iter().map(|x: &f64| x.to_bits()).eq(theirs)
    }
}

/// A kernel that returns true if `logf` agrees.
pub(super) struct Ln;

impl Kernel for Ln {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // All exponents, with mantissas of every kind.
        let step = (f32::MAX.to_bits() - f32::MIN_POSITIVE.to_bits()) / N as u32;
        let bits = (0..N as u32).map(|i| f32::MIN_POSITIVE.to_bits() + i * step);
        let xs: Vec<f32> = bits.chain(HARD_LN).map(f32::from_bits).collect();
        let mut ours = vec![0.0; xs.len()];
        for (xs, to) in xs
            .chunks_exact(V::LANES)
            .zip(ours.chunks_exact_mut(V::LANES))
        {
            v.store(to, v.ln(v.load(xs)));
        }
        let theirs = xs.iter().map(|&x| libm::ln(x).to_bits());
        ours.iter().map(|x| x.to_bits()).eq(theirs)
    }
}

/// The bits of the only number from -2^-20 down to -104 for which fused operations change `expf`.
/// It was found by comparing all of them.
const NOT_FUSED: u32 = 0xc27c_65d9;

/// Bits of numbers whose `expf` is hard.
const HARD_EXP: [u32; 16] = [
    NOT_FUSED,
    0xbd40_c58e,
    0xbe52_17cd,
    0xc114_c32e,
    0xc157_1276,
    0xc162_9566,
    0xc177_53f6,
    0xc199_a7c3,
    0xc1aa_0dbb,
    0xc1e3_7db2,
    0xc1ef_825d,
    0xc1ff_396d,
    0xc215_f257,
    0xc284_5dba,
    0xc29f_001c,
    0xc2a6_9619,
];

/// Bits of numbers whose `logf` is hard.
const HARD_LN: [u32; 16] = [
    0x1c81_25c6,
    0x203d_10a6,
    0x3e79_f2e9,
    0x3f2a_2083,
    0x3f2d_8c8b,
    0x3f6b_7609,
    0x3f72_0dfc,
    0x3f72_3dec,
    0x3f72_3eb1,
    0x3f74_95fa,
    0x3f79_28c1,
    0x3f79_9f00,
    0x3f7a_d0e5,
    0x3f7b_7025,
    0x3f7c_f7d5,
    0x3f7c_fbb9,
];

/// Bits of numbers whose `exp` is hard.
const HARD_EXP_F64: [u64; 16] = [
    0xbf64_8f6c_cc01_5591,
    0xbff7_aaf5_6172_9b2d,
    0xbff9_03a5_2550_ff09,
    0xc003_a464_74f6_e197,
    0xc003_c6b9_89b3_f54f,
    0xc009_a149_b15b_8ffe,
    0xc00a_beeb_6248_4c9b,
    0xc010_e2ed_6962_23ae,
    0xc01b_de29_1f77_f197,
    0xc044_fda1_86db_95ff,
    0xc046_bb98_2892_1393,
    0xc04c_35b9_6084_a036,
    0xc050_d623_e3d8_b897,
    0xc052_ca48_95d0_f88b,
    0xc059_1848_041f_91d4,
    0xc05d_8585_e882_a6f2,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lcg::Lcg;
    use crate::simd::dispatch::tests as tests_of_dispatch;
    use crate::simd::{Function, Isa, MAX_LANES};

    /// The kernel that computes `expf` of the hard values.
    struct HardExp;

    impl Kernel for HardExp {
        type Output = [f32; 16];
        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> [f32; 16] {
            let mut es = HARD_EXP.map(f32::from_bits);
            for es in es.chunks_exact_mut(V::LANES) {
                let exponentials = v.exp(v.load_widened(es));
                v.store_narrowed(es, exponentials);
            }
            es
        }
    }

    /// The kernel that finds the first of a million doubles for which `exp` differs. Every exponent
    /// occurs among them.
    struct ManyExpF64;

    impl Kernel for ManyExpF64 {
        type Output = Option<f64>;
        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> Option<f64> {
            let mut lcg = Lcg(3);
            let (mut xs, mut ours) = ([0.0; MAX_LANES / 2], [0.0; MAX_LANES / 2]);
            for _ in 0..1_000_000 / (V::LANES / 2) {
                for x in &mut xs {
                    let (far, fine) = (f64::from(lcg.unit()), f64::from(lcg.unit()));
                    *x = -120.0 * (far + fine / 16_777_216.0).powi(4);
                }
                v.store_d(&mut ours, v.exp_d(v.load_d(&xs)));
                let of_both = xs.iter().zip(&ours).take(V::LANES / 2);
                for (x, e) in of_both {
                    if e.to_bits() != libm::exp_f64(*x).to_bits() {
                        return Some(*x);
                    }
                }
            }
            None
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn exp_in_double_precision_is_that_of_the_host() {
        for isa in Isa::supported() {
            let exact = tests_of_dispatch::exact(isa, Function::ExpF64);
            assert_eq!(exact.run(ManyExpF64), None, "{isa:?}");
        }
    }

    /// Checks that every vector form rounds the hard values to the farther of the two nearest
    /// floats. A computation in `double` shows which is nearer.
    #[test]
    fn what_is_hard_is_rounded_to_the_farther_neighbour() {
        let forms = Isa::supported().into_iter();
        for isa in forms.filter(|isa| *isa != Isa::SCALAR) {
            let found = isa.run(HardExp).into_iter().zip(HARD_EXP);
            for (e, x) in found.filter(|(_, x)| *x != NOT_FUSED) {
                let exact = f64::from(f32::from_bits(x)).exp();
                let distance = (f64::from(e) - exact).abs();
                let nearest = (f64::from(exact as f32) - exact).abs();
                let is_farther = nearest < distance && distance < 1.01 * nearest;
                assert!(is_farther, "{isa:?}: {x:#x}");
            }
        }
    }
}
