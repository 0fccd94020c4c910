//! Sums exponentials in double precision, for decisions that the sums of
//! [`online_softmax`](super::online_softmax) leave open.
//!
//! The exponentials are those of [`Vector::exp`] before they are rounded to a `float`, with an
//! error of at most 2e-10, or, if an instruction set does not have these, those of
//! [`Vector::exp_d`]. They are added as `double`s, in an order that depends on the instruction set.

use crate::simd::exp::LOWEST;
use crate::simd::{MAX_LANES, Vector, dispatched};

/// Sums over logits x with d = x - max. No x is above `max`, and `max` is less than 1e5 away from
/// 0: beyond that, a `float` may not represent a number 104 below it.
///
/// The relative error of the sums is at most [`ERROR`](Self::ERROR). The spread may be off by
/// another 1e-30.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SumsF64 {
    /// The sum of e^d.
    pub mass: f64,
    /// The sum of -d e^d; 0 unless requested.
    pub spread: f64,
    /// The sum of e^2d; 0 unless requested.
    pub squares: f64,
}

impl SumsF64 {
    /// The largest relative error of a sum.
    pub const ERROR: f64 = 1e-9;

    /// Adds e^d of each logit to `mass`, and -d e^d to `spread`; NaN counts as minus infinity.
    /// Reads 4 bytes per logit.
    pub fn add_spread(&mut self, logits: &[f32], max: f32) {
        let [mass, spread] = sums_with_spread(logits, max);
        self.mass += mass;
        self.spread -= spread;
    }

    /// Adds e^d of each logit to `mass`, and e^2d to `squares`; NaN counts as minus infinity.
    /// Reads 4 bytes per logit.
    pub fn add_squares(&mut self, logits: &[f32], max: f32) {
        let [mass, squares] = sums_with_squares(logits, max);
        self.mass += mass;
        self.squares += squares;
    }
}

dispatched! {
    /// Returns the sums of e^d and d e^d.
    fn sums_with_spread(logits: &[f32], max: f32) -> [f64; 2] => sums_with_spread_on;
    /// Returns the sums of e^d and e^2d.
    fn sums_with_squares(logits: &[f32], max: f32) -> [f64; 2] => sums_with_squares_on;
}

#[inline(always)]
fn sums_with_spread_on<V: Vector>(v: V, logits: &[f32], max: f32) -> [f64; 2] {
    sums_on::<V, false>(v, logits, max)
}

#[inline(always)]
fn sums_with_squares_on<V: Vector>(v: V, logits: &[f32], max: f32) -> [f64; 2] {
    sums_on::<V, true>(v, logits, max)
}

/// Adds a register's e^d, and d e^d or the squares, to the sums of each half.
#[inline(always)]
// In bounds: the caller passes a whole register; `i` names one of its halves.
fn add_register<V: Vector, const SQUARES: bool>(
    v: V,
    register: &[f32],
    max: f32,
    sums: &mut [[V::D; 2]; 2],
) {
    // Lower numbers add nothing noticeable, nor does NaN, which becomes the lowest number.
    let x = v.max(v.load(register), v.splat(max + LOWEST));
    let max = v.splat_d(f64::from(max));
    let [low, high] = v.widen(x);
    let d = [v.sub_d(low, max), v.sub_d(high, max)];
    let e = match V::EXP_IS_OF_DOUBLES {
        true => v.exp(d),
        false => d.map(|d| v.exp_d(d)),
    };
    for (i, [mass, other]) in sums.iter_mut().enumerate() {
        *mass = v.add_d(*mass, e[i]);
        *other = v.fma_d(if SQUARES { e[i] } else { d[i] }, e[i], *other);
    }
}

#[inline(always)]
// In bounds: a remainder has fewer elements than a register has lanes.
fn sums_on<V: Vector, const SQUARES: bool>(v: V, logits: &[f32], max: f32) -> [f64; 2] {
    let mut sums = [[v.splat_d(0.0); 2]; 2];
    let mut registers = logits.chunks_exact(V::LANES);
    for register in &mut registers {
        add_register::<V, SQUARES>(v, register, max, &mut sums);
    }
    let rest = registers.remainder();
    if !rest.is_empty() {
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        padded[..rest.len()].copy_from_slice(rest);
        add_register::<V, SQUARES>(v, &padded, max, &mut sums);
    }
    let [[mass, other], [mass_2, other_2]] = sums;
    [v.add_d(mass, mass_2), v.add_d(other, other_2)].map(|sum| v.reduce_add_d(sum))
}
