//! The scalar backend: plain Rust, with 4 floats. It runs everywhere, even in Miri. It calls the C
//! library for exponentials and logarithms, so it is also used where the vector forms differ from
//! the C library.

use super::libm;
use super::vector::Vector;
use crate::token::TokenData;

/// The backend that uses only the instructions of every processor.
#[derive(Clone, Copy)]
pub(super) struct Scalar;

const LANES: usize = 4;

type F = [f32; LANES];
type D = [f64; LANES / 2];

/// Returns `f` of each pair of lanes.
#[inline(always)]
fn zip<T: Copy, U: Default + Copy, const N: usize>(
    a: [T; N],
    b: [T; N],
    f: impl Fn(T, T) -> U,
) -> [U; N] {
    let mut lanes = [U::default(); N];
    for ((a, b), lane) in a.into_iter().zip(b).zip(&mut lanes) {
        *lane = f(a, b);
    }
    lanes
}

/// Returns a word with one bit for each lane.
#[inline(always)]
fn bits(lanes: [bool; LANES]) -> u32 {
    let lanes = lanes.into_iter().enumerate();
    lanes.fold(0, |bits, (i, lane)| bits | u32::from(lane) << i)
}

#[inline(always)]
fn load<T: Copy + Default, const N: usize>(from: &[T]) -> [T; N] {
    assert!(from.len() >= N);
    from.first_chunk().copied().unwrap_or([T::default(); N])
}

#[inline(always)]
fn store<T: Copy, const N: usize>(to: &mut [T], x: [T; N]) {
    assert!(to.len() >= N);
    for (to, x) in to.iter_mut().zip(x) {
        *to = x;
    }
}

impl Vector for Scalar {
    const LANES: usize = LANES;
    type F = F;
    type D = D;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        [x; LANES]
    }
    #[inline(always)]
    fn load(self, from: &[f32]) -> F {
        load(from)
    }
    #[inline(always)]
    fn store(self, to: &mut [f32], x: F) {
        store(to, x);
    }
    #[inline(always)]
    fn load_logits(self, data: &[TokenData]) -> F {
        load::<_, LANES>(data).map(|c| c.logit)
    }
    #[inline(always)]
    fn store_logits(self, data: &mut [TokenData], x: F) {
        assert!(data.len() >= LANES);
        for (candidate, x) in data.iter_mut().zip(x) {
            candidate.logit = x;
        }
    }
    #[inline(always)]
    fn store_probabilities(self, data: &mut [TokenData], x: F) {
        assert!(data.len() >= LANES);
        for (candidate, x) in data.iter_mut().zip(x) {
            candidate.p = x;
        }
    }
    #[inline(always)]
    fn splat_d(self, x: f64) -> D {
        [x; LANES / 2]
    }
    #[inline(always)]
    fn load_d(self, from: &[f64]) -> D {
        load(from)
    }
    #[inline(always)]
    fn store_d(self, to: &mut [f64], x: D) {
        store(to, x);
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        zip(a, b, |a, b| a / b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        let mut lanes = c;
        for ((a, b), c) in a.into_iter().zip(b).zip(&mut lanes) {
            *c = libm::fma(a, b, *c);
        }
        lanes
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        zip(a, b, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn abs(self, a: F) -> F {
        a.map(f32::abs)
    }
    #[inline(always)]
    fn fract(self, a: F) -> F {
        a.map(|a| a - a.floor())
    }
    #[inline(always)]
    fn add_bits(self, a: F, b: F) -> F {
        zip(a, b, |a, b| {
            f32::from_bits(a.to_bits().wrapping_add(b.to_bits()))
        })
    }
    #[inline(always)]
    fn ldexp(self, a: F, shifted: F) -> F {
        zip(a, shifted, |a, shifted| {
            f32::from_bits(a.to_bits().wrapping_add(shifted.to_bits() << 23))
        })
    }
    #[inline(always)]
    fn add_d(self, a: D, b: D) -> D {
        zip(a, b, |a, b| a + b)
    }
    #[inline(always)]
    fn sub_d(self, a: D, b: D) -> D {
        zip(a, b, |a, b| a - b)
    }
    #[inline(always)]
    fn mul_d(self, a: D, b: D) -> D {
        zip(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn fma_d(self, a: D, b: D, c: D) -> D {
        let mut lanes = c;
        for ((a, b), c) in a.into_iter().zip(b).zip(&mut lanes) {
            *c = libm::fma_f64(a, b, *c);
        }
        lanes
    }
    #[inline(always)]
    fn max_d(self, a: D, b: D) -> D {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn ge(self, a: F, b: F) -> u32 {
        bits(zip(a, b, |a, b| a >= b))
    }
    #[inline(always)]
    fn lt(self, a: F, b: F) -> u32 {
        bits(zip(a, b, |a, b| a < b))
    }
    #[inline(always)]
    fn eq(self, a: F, b: F) -> u32 {
        bits(zip(a, b, |a, b| a == b))
    }
    #[inline(always)]
    fn select_lt(self, a: F, b: F, x: F, y: F) -> F {
        let below = zip(a, b, |a, b| a < b);
        let mut lanes = y;
        for ((lane, x), below) in lanes.iter_mut().zip(x).zip(below) {
            *lane = if below { x } else { *lane };
        }
        lanes
    }

    #[inline(always)]
    fn widen(self, [a, b, c, d]: F) -> [D; 2] {
        [[a, b], [c, d]].map(|half| half.map(f64::from))
    }
    #[inline(always)]
    fn narrow(self, [[a, b], [c, d]]: [D; 2]) -> F {
        [a, b, c, d].map(|x| x as f32)
    }

    const EXP_IS_OF_DOUBLES: bool = false;
    #[inline(always)]
    fn exp(self, x: [D; 2]) -> [D; 2] {
        x.map(|half| half.map(|x| f64::from(libm::exp(x as f32))))
    }
    #[inline(always)]
    fn exp_d(self, x: D) -> D {
        x.map(libm::exp_f64)
    }
    #[inline(always)]
    fn ln(self, x: F) -> F {
        x.map(libm::ln)
    }
    /// Calls the C library, which is as fast as the polynomial is without fused multiplication.
    #[inline(always)]
    fn exp_approx(self, x: F) -> F {
        x.map(libm::exp)
    }
}
