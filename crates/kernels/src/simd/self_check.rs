//! Checks that the exponentials and logarithms of an instruction set are those of the C library,
//! bit for bit.
//!
//! They are on the GNU C library since 2.28. Where they are not, exactness goes before speed, and
//! the built-ins themselves spend most of their time in `expf`.

use super::kernel::Kernel;
use super::libm;
use super::vector::Vector;

/// The number of values that each is tried on.
const N: usize = 4096;

/// `expf`.
pub(super) struct Exp;

impl Kernel for Exp {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // Densest near 0, down to where everything rounds to 0.
        let xs = (0..N).map(|i| i as f32 / N as f32);
        let xs: Vec<f32> = xs.map(|x| -104.5 * x * x).collect();
        let mut ours = vec![0.0; N];
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

/// `exp`.
pub(super) struct ExpF64;

impl Kernel for ExpF64 {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // In no order, densest near 0, of every exponent.
        let xs = (0..N).map(|i| i.wrapping_mul(2_654_435_761) % N);
        let xs: Vec<f64> = xs.map(|i| -120.0 * (i as f64 / N as f64).powi(5)).collect();
        let mut ours = vec![0.0; N];
        let half = V::LANES / 2;
        for (xs, to) in xs.chunks_exact(half).zip(ours.chunks_exact_mut(half)) {
            v.store_d(to, v.exp_d(v.load_d(xs)));
        }
        let theirs = xs.iter().map(|&x| libm::exp_f64(x).to_bits());
        ours.iter().map(|x: &f64| x.to_bits()).eq(theirs)
    }
}

/// `logf`.
pub(super) struct Ln;

impl Kernel for Ln {
    type Output = bool;
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        // Over all powers of two, with mantissas of every kind.
        let step = (f32::MAX.to_bits() - f32::MIN_POSITIVE.to_bits()) / N as u32;
        let bits = (0..N as u32).map(|i| f32::MIN_POSITIVE.to_bits() + i * step);
        let xs: Vec<f32> = bits.map(f32::from_bits).collect();
        let mut ours = vec![0.0; N];
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
