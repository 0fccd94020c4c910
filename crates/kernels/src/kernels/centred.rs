//! Sums of exponentials about a centre, for decisions that those of
//! [`online_softmax`](super::online_softmax) leave open.
//!
//! The mean of the logits that are drawn is the centre plus `offset / mass`. Next to it the offsets
//! above and below cancel, so that the rounding of `float`s costs half a millionth of the mean
//! distance from the centre. Sums relative to the largest logit cost a millionth of the distance
//! from that, which is several times as far in a flat distribution.

use super::reference::{Reference, fine_term};
use crate::simd::{MAX_LANES, Vector, dispatched};

/// Sums over logits x relative to their largest, m, which is less than [`LARGEST`](Self::LARGEST)
/// away from 0, and about a centre c.
///
/// All are right within [`ERROR`](Self::ERROR) times `mass`, or times `distance` for the other two,
/// and 1e-30.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CentredSums {
    /// Sum of e^(x - m).
    pub mass: f64,
    /// Sum of (x - c) e^(x - m).
    pub offset: f64,
    /// Sum of |x - c| e^(x - m).
    pub distance: f64,
}

impl CentredSums {
    /// The relative error of a sum, at most: 2e-7 of an exponential, and 2^-24 each for the
    /// difference, the product, and two additions. All others are of `double`s.
    pub const ERROR: f64 = 5e-7;
    /// The bound for the magnitude of the largest logit.
    pub const LARGEST: f32 = 65_536.0;

    /// Adds `logits`, of which none is above `max`, NaN as minus infinity. Reads 4 bytes per logit.
    pub fn add(&mut self, logits: &[f32], max: f32, centre: f32) {
        let [mass, offset, distance] = centred_sums(logits, max, centre);
        self.mass += mass;
        self.offset += offset;
        self.distance += distance;
    }
}

dispatched! {
    /// The sums of e^d, (x - centre) e^d and |x - centre| e^d, with d = x - max.
    fn centred_sums(logits: &[f32], max: f32, centre: f32) -> [f64; 3] => centred_sums_on;
}

/// Adds the terms of a register to sums of `float`s.
#[inline(always)]
fn add_register<V: Vector>(
    v: V,
    x: V::F,
    reference: &Reference,
    centre: V::F,
    [mass, offset, distance]: &mut [V::F; 3],
) {
    let (x, e) = fine_term(v, x, reference);
    let away = v.sub(x, centre);
    *mass = v.add(*mass, e);
    *offset = v.fma(away, e, *offset);
    *distance = v.fma(v.abs(away), e, *distance);
}

#[inline(always)]
// In bounds: a register has as many elements as lanes, or less at the end, and is padded then.
fn centred_sums_on<V: Vector>(v: V, logits: &[f32], max: f32, centre: f32) -> [f64; 3] {
    let reference = Reference::of(max);
    let (centre, zero) = (v.splat(centre), v.splat(0.0));
    let mut sums = [[v.splat_d(0.0); 2]; 3];
    let mut fours = logits.chunks_exact(4 * V::LANES);
    let mut add = |four: [V::F; 4]| {
        let [mut low, mut high] = [[zero; 3]; 2];
        for (i, x) in four.into_iter().enumerate() {
            let half = if i < 2 { &mut low } else { &mut high };
            add_register(v, x, &reference, centre, half);
        }
        for ((low, high), sum) in low.into_iter().zip(high).zip(&mut sums) {
            let halves = v.widen(v.add(low, high));
            *sum = [v.add_d(sum[0], halves[0]), v.add_d(sum[1], halves[1])];
        }
    };
    for four in &mut fours {
        add(std::array::from_fn(|i| v.load(&four[i * V::LANES..])));
    }
    let mut rest = fours.remainder().chunks(V::LANES);
    add(std::array::from_fn(|_| {
        let register = rest.next().unwrap_or_default();
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        padded[..register.len()].copy_from_slice(register);
        v.load(&padded)
    }));
    sums.map(|[low, high]| v.reduce_add_d(v.add_d(low, high)) * reference.fine_unit)
}
