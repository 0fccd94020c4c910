//! Computes exact sums from approximate terms, by Ziv's rounding test.
//!
//! While a `float` sum stays in one binade, a term counts as the nearest multiple of that binade's
//! unit (see [`sequential_sum`](super::sequential_sum)). That multiple can be determined without
//! the exact term, unless the term is near the middle between two multiples. An exponential in
//! single precision with an error of at most [`ERROR`] takes a quarter of the time of one with the
//! built-in's last bit, and suffices for all but a few terms. Of any number of terms with the sum
//! S, rounded to units of u, about 2 S / u times the error are too near the middle. Since S / u is
//! below 2^24, these are some dozens in an array. They are computed exactly. One or two of them are
//! exactly half-way.

use std::mem::MaybeUninit;

use super::layout::{SUM_BLOCK, binade};
use super::sequential_sum::add_block;
use super::softmax::exp_block;
use crate::simd::bits::push_indices;
use crate::simd::libm::{exp, ln};
use crate::simd::{MAX_LANES, Vector, dispatched};

/// The largest relative distance between an exponential in single precision and the rounded exact
/// one. It covers, down to e^-40, the error of `exp_approx` (2.8e-7), half a unit of a float for
/// rounding the exact one, and a margin. It is three units in the last place of 1.
pub const ERROR: f32 = 3.0 * f32::EPSILON;

/// The largest relative distance between a probability in single precision and the exact one. It
/// covers [`ERROR`], half a unit each for the sum's reciprocal, the product and the exact quotient,
/// and a margin. It is five units in the last place of 1.
pub const ERROR_OF_PROBABILITY: f32 = 5.0 * f32::EPSILON;

/// The largest relative distance between an entropy term below 0.3 in single precision and the
/// exact one. It covers, in single precision, the exponential, the sum's reciprocal, its logarithm,
/// the logarithm as a difference, and two products; and in the exact term a quotient, a logarithm
/// and a product, half a unit each. It is ten units in the last place of 1.
pub const ERROR_OF_ENTROPY: f32 = 10.0 * f32::EPSILON;

/// The largest distance below the largest logit that is computed. Logits further below are treated
/// as if at this distance; their exponentials do not affect any sum that occurs.
pub const FURTHEST: f32 = -40.0;

/// The smallest sum that is computed by this method: 2^-26. Half a unit of its floats is more than
/// the term of a logit at [`FURTHEST`], also if that is the term of an entropy.
pub const SMALLEST: f32 = 1.0 / (1 << 26) as f32;

/// The logits whose terms are added, and the way in which the terms are computed and rounded.
#[derive(Clone, Copy, Debug)]
pub struct Rounded {
    /// The largest of all logits.
    pub max: f32,
    /// The logit above which logits are selected.
    pub above: f32,
    /// The logit below which logits are selected.
    pub below: f32,
    /// The power of two at which the binade of the sum begins; at least [`SMALLEST`].
    pub c: f32,
    /// The kind of the terms.
    pub terms: Terms,
}

/// The kinds of terms that are added up in the order of the exponentials.
#[derive(Clone, Copy, Debug)]
pub enum Terms {
    /// The exponentials themselves.
    Exponentials,
    /// The probabilities, given the sum of all exponentials.
    Probabilities(f32),
    /// The terms of the entropy, given the sum of all exponentials. If they are added
    /// approximately, each exponential is below 0.3 of the sum.
    Entropies(f32),
}

impl Rounded {
    /// Returns the term that a logit adds to the sum, in the arithmetic of the built-ins.
    #[inline]
    pub fn term(&self, x: f32) -> f32 {
        let e = exp(x - self.max);
        match self.terms {
            Terms::Exponentials => e,
            Terms::Probabilities(sum) => e / sum,
            Terms::Entropies(sum) => {
                let p = e / sum;
                if p > 0.0 { -p * ln(p) } else { 0.0 }
            }
        }
    }

    /// Returns a term rounded to the unit; `None` if it is half-way between two multiples.
    #[inline]
    pub fn round(&self, term: f32) -> Option<f32> {
        let rounded = (term + self.c) - self.c;
        let halfway = (term - rounded).abs() == self.c * (f32::EPSILON / 2.0);
        (!halfway).then_some(rounded)
    }
}

dispatched! {
    fn softmax_sum_of_finite(xs: &[f32], max: f32) -> f32 => softmax_sum_on with Exp;
    /// Returns the exact sum of the rounded terms, except those whose rounding is in doubt. The
    /// indices of these are appended to `doubtful`. They depend on the instruction set, and include
    /// the terms that are half-way. Reads 4 bytes per element, and a block with a term in doubt
    /// twice.
    pub fn rounded_sum(xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64 => rounded_sum_on with Exp;
    /// Replaces every x, none of which is NaN or above `max`, by approximately e^(x - max), and
    /// returns the sum of the results. The relative error of a result is at most [`ERROR`] down to
    /// e^[`FURTHEST`]; lower ones are replaced by that. Reads and writes 4 bytes per element.
    pub fn approximate_exp_sum(xs: &mut [f32], max: f32) -> f64 => approximate_exp_sum_on with Exp;
}

/// Returns the sum of `exp(logit - max)`, a `float`, as if added in order; no logit is NaN or above
/// `max`. Reads 4 bytes per element. Reads a block again if most of it changes the sum, and a part
/// again if it has a term in doubt or the sum leaves its binade there.
pub fn softmax_sum(logits: &[f32], max: f32) -> f32 {
    if !max.is_finite() && !logits.is_empty() {
        // One of the differences is that of two infinities.
        return f32::NAN;
    }
    softmax_sum_of_finite(logits, max)
}

/// Returns approximately e^d of one register, with d = x - max.
#[inline(always)]
fn approximate_exp<V: Vector>(v: V, d: V::F) -> V::F {
    v.exp_approx(v.max(d, v.splat(FURTHEST)))
}

#[inline(always)]
// In bounds: a remainder has fewer elements than a register has lanes.
fn approximate_exp_sum_on<V: Vector>(v: V, xs: &mut [f32], max: f32) -> f64 {
    let maxima = v.splat(max);
    let mut sums = [v.splat_d(0.0); 2];
    let mut chunks = xs.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        let e = approximate_exp(v, v.sub(v.load(chunk), maxima));
        v.store(chunk, e);
        let [low, high] = v.widen(e);
        sums = [v.add_d(sums[0], low), v.add_d(sums[1], high)];
    }
    let mut sum = v.reduce_add_d(v.add_d(sums[0], sums[1]));
    let rest = chunks.into_remainder();
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let e = approximate_exp(v, v.sub(v.load(&padded), maxima));
    v.store(&mut padded, e);
    for (x, &e) in rest.iter_mut().zip(&padded) {
        *x = e;
        sum += f64::from(e);
    }
    sum
}

/// Counts terms in units of the floats from c to 2 c.
///
/// Adding a term to c rounds it to the unit, and the bits of the result count the units. That takes
/// two operations: a multiplication by a little less than 1, fused with the addition, and an
/// integer addition. They are repeated with a little more than 1. If both sums of a block are
/// equal, each of its terms was rounded in the same direction. Rounding first and then examining
/// the part that was rounded off takes 7 operations instead of 4.
#[derive(Clone, Copy)]
struct Units<V: Vector> {
    c: V::F,
    less: V::F,
    more: V::F,
}

impl<V: Vector> Units<V> {
    #[inline(always)]
    fn new(v: V, c: f32, error: f32) -> Self {
        Self {
            c: v.splat(c),
            less: v.splat(1.0 - error),
            more: v.splat(1.0 + error),
        }
    }

    /// Returns the lower and the upper bound on a term, each plus c and rounded.
    #[inline(always)]
    fn round(self, v: V, term: V::F) -> [V::F; 2] {
        [
            v.fma(term, self.less, self.c),
            v.fma(term, self.more, self.c),
        ]
    }

    /// Returns, in each lane, the rounded term if the two bounds from [`round`](Self::round) agree,
    /// and otherwise c, which counts no units. Appends the indices of the lanes where they differ,
    /// counted from `first`, to `doubtful`.
    #[inline(always)]
    fn sure(self, v: V, [less, more]: [V::F; 2], first: u32, doubtful: &mut Vec<u32>) -> V::F {
        push_indices(v.lt(less, more), first, doubtful);
        v.select_lt(less, more, self.c, less)
    }
}

/// Returns the number of units that the bits of the lanes count beyond `added` times the bits of
/// `c` in each lane. No lane counts 2^32 or more.
#[inline(always)]
// In bounds: a register has at most `MAX_LANES` lanes.
fn count<V: Vector>(v: V, bits: V::F, added: usize, c: f32) -> u64 {
    let mut lanes = [0; MAX_LANES];
    v.store_u32(&mut lanes, bits);
    let none = c.to_bits().wrapping_mul(added as u32);
    let lanes = lanes[..V::LANES].iter();
    lanes.map(|lane| u64::from(lane.wrapping_sub(none))).sum()
}

/// Returns true if all bits of two registers are equal.
#[inline(always)]
// In bounds: a register has at most `MAX_LANES` lanes.
fn equal<V: Vector>(v: V, a: V::F, b: V::F) -> bool {
    let (mut lanes_of_a, mut lanes_of_b) = ([0; MAX_LANES], [0; MAX_LANES]);
    v.store_u32(&mut lanes_of_a, a);
    v.store_u32(&mut lanes_of_b, b);
    lanes_of_a[..V::LANES] == lanes_of_b[..V::LANES]
}

#[inline(always)]
fn softmax_sum_on<V: Vector>(v: V, xs: &[f32], max: f32) -> f32 {
    let mut sum = 0.0;
    let mut large = Large::new();
    // The empty block causes the last kept elements to be added.
    for block in xs.chunks(SUM_BLOCK).chain([&[][..]]) {
        let is_taken = large.take(v, sum, block, max);
        if is_taken && large.n < AT_ONCE {
            continue;
        }
        let whole = if is_taken { &[] } else { block };
        for xs in [large.drain::<V>(), whole] {
            if !xs.is_empty() {
                sum = add(v, sum, xs, max);
            }
        }
    }
    sum
}

/// Returns `sum` plus e^(x - max) of all elements, as if added one by one.
#[inline(always)]
fn add<V: Vector>(v: V, sum: f32, xs: &[f32], max: f32) -> f32 {
    if let Some(after) = try_approximately(v, sum, xs, max) {
        return after;
    }
    let mut sum = sum;
    for part in xs.chunks(PART) {
        sum = match try_approximately(v, sum, part, max) {
            Some(after) => after,
            None => add_exactly(v, sum, part, max),
        };
    }
    sum
}

/// The elements whose exponentials can change a sum, and which are not yet added to it. In a peaked
/// distribution they are few.
struct Large {
    kept: [MaybeUninit<f32>; AT_ONCE + SUM_BLOCK + MAX_LANES],
    /// The number of kept elements.
    n: usize,
    /// The power of two at or below the sum, and the least element whose exponential can change it.
    c: f32,
    least: f32,
    /// The number of blocks that are still processed whole because most of an earlier block
    /// counted.
    dense: usize,
}

/// The number of kept elements that are added at once. Fewer take longer: the steps of one register
/// depend on each other, and the last elements cannot be read before they are in the cache. More
/// are read more often again, since one in doubt is more likely among them.
const AT_ONCE: usize = 256;

/// The number of blocks that are processed whole after a block most of whose elements count.
const DENSE: usize = 15;

impl Large {
    fn new() -> Self {
        Self {
            kept: [MaybeUninit::new(f32::NEG_INFINITY); AT_ONCE + SUM_BLOCK + MAX_LANES],
            n: 0,
            c: 0.0,
            least: f32::NEG_INFINITY,
            dense: 0,
        }
    }

    /// Keeps the elements of `xs`, which is at most a block, whose exponentials relative to `max`
    /// can change `sum`. Returns false, and keeps none, if most elements of one of the last blocks
    /// could, if `xs` is empty, or if `sum` or the length is unsuitable. Fewer than [`AT_ONCE`]
    /// elements must be kept so far, and none if `sum` has changed.
    #[inline(always)]
    // In bounds: fewer than `AT_ONCE` were kept; no more are added than are in a block.
    fn take<V: Vector>(&mut self, v: V, sum: f32, xs: &[f32], max: f32) -> bool {
        if !(SMALLEST..f32::INFINITY).contains(&sum)
            || xs.is_empty()
            || !xs.len().is_multiple_of(V::LANES)
        {
            return false;
        }
        if self.dense > 0 {
            self.dense -= 1;
            return false;
        }
        let c = binade(sum);
        if c != self.c {
            self.c = c;
            // An exponential of less than half a unit does not change the sum. The margin is far
            // larger than the rounding errors of `ln` and of the difference to the largest logit.
            let margin = 1e-4 + 1e-6 * max.abs();
            self.least = max + ln(c * (f32::EPSILON / 2.0)) - margin;
        }
        let Some(room) = self.kept[self.n..].first_chunk_mut::<{ SUM_BLOCK + MAX_LANES }>() else {
            return false;
        };
        let least = v.splat(self.least);
        let mut n = 0;
        for chunk in xs.chunks_exact(V::LANES) {
            // No branch checks if any element counts: where one in sixteen does, the branch would
            // be unpredictable.
            let x = v.load(chunk);
            n += v.compress_store_few(v.ge(x, least), x, &mut room[n..]);
        }
        if n > xs.len() / 2 {
            self.dense = DENSE;
        }
        self.n += n;
        true
    }

    /// Returns the kept elements, padded to whole registers with minus infinity. Afterwards none is
    /// kept.
    #[inline(always)]
    // In bounds: there is room for a register after the kept elements.
    fn drain<V: Vector>(&mut self) -> &[f32] {
        let end = self.n.next_multiple_of(V::LANES);
        self.kept[self.n..end].fill(MaybeUninit::new(f32::NEG_INFINITY));
        self.n = 0;
        let kept: *const [MaybeUninit<f32>] = &raw const self.kept[..end];
        // SAFETY: all elements were initialised, and only numbers were written over them.
        unsafe { &*(kept as *const [f32]) }
    }
}

/// The number of elements that get exact exponentials at once, if a block needs them.
const PART: usize = 64;

#[inline(always)]
// In bounds: the caller's parts have at most `PART` elements.
fn add_exactly<V: Vector>(v: V, sum: f32, xs: &[f32], max: f32) -> f32 {
    let mut es = [0.0; PART];
    let es = &mut es[..xs.len()];
    es.copy_from_slice(xs);
    exp_block(v, es, max);
    add_block(v, sum, es)
}

/// Returns `sum` plus e^(x - max) of all elements, as if added one by one, if that needs no exact
/// exponential.
#[inline(always)]
fn try_approximately<V: Vector>(v: V, sum: f32, xs: &[f32], max: f32) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) || !xs.len().is_multiple_of(V::LANES) {
        return None;
    }
    let c = binade(sum);
    let units = Units::new(v, c, ERROR);
    let maxima = v.splat(max);
    let mut counted = [v.splat(0.0); 2];
    for chunk in xs.chunks_exact(V::LANES) {
        let e = approximate_exp(v, v.sub(v.load(chunk), maxima));
        let rounded = units.round(v, e);
        counted = [
            v.add_bits(counted[0], rounded[0]),
            v.add_bits(counted[1], rounded[1]),
        ];
    }
    if !equal(v, counted[0], counted[1]) {
        return None;
    }
    let units = count(v, counted[0], xs.len() / V::LANES, c);
    let total = f64::from(sum) + units as f64 * f64::from(c * f32::EPSILON);
    (total < f64::from(2.0 * c)).then_some(total as f32)
}

/// The kinds of [`Terms`] as parameters of functions.
const EXPONENTIALS: u8 = 0;
const PROBABILITIES: u8 = 1;
const ENTROPIES: u8 = 2;

/// The constants of a sum, each in all lanes.
#[derive(Clone, Copy)]
struct Lanes<V: Vector> {
    max: V::F,
    above: V::F,
    below: V::F,
    inverse: V::F,
    ln_sum: V::F,
    units: Units<V>,
}

/// Returns the bounds on one register's terms, as [`Units::round`] does.
#[inline(always)]
fn round<V: Vector, const BOUNDED: bool, const TERMS: u8>(
    v: V,
    x: V::F,
    of: Lanes<V>,
) -> [V::F; 2] {
    let zero = v.splat(0.0);
    let d = v.max(v.sub(x, of.max), v.splat(FURTHEST));
    let e = v.exp_approx(d);
    let mut term = match TERMS {
        EXPONENTIALS => e,
        PROBABILITIES => v.mul(e, of.inverse),
        _ => v.mul(v.mul(e, of.inverse), v.sub(of.ln_sum, d)),
    };
    term = v.select_lt(x, of.below, term, zero);
    if BOUNDED {
        term = v.select_lt(of.above, x, term, zero);
    }
    of.units.round(v, term)
}

#[inline(always)]
fn rounded_sum_on<V: Vector>(v: V, xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64 {
    match of.above > f32::NEG_INFINITY {
        false => rounded_sum_within::<V, false>(v, xs, of, doubtful),
        true => rounded_sum_within::<V, true>(v, xs, of, doubtful),
    }
}

#[inline(always)]
fn rounded_sum_within<V: Vector, const BOUNDED: bool>(
    v: V,
    xs: &[f32],
    of: Rounded,
    doubtful: &mut Vec<u32>,
) -> f64 {
    match of.terms {
        Terms::Exponentials => {
            rounded_sum_of::<V, BOUNDED, EXPONENTIALS>(v, xs, of, [1.0, ERROR], doubtful)
        }
        Terms::Probabilities(sum) => {
            let with = [sum, ERROR_OF_PROBABILITY];
            rounded_sum_of::<V, BOUNDED, PROBABILITIES>(v, xs, of, with, doubtful)
        }
        Terms::Entropies(sum) => {
            let with = [sum, ERROR_OF_ENTROPY];
            rounded_sum_of::<V, BOUNDED, ENTROPIES>(v, xs, of, with, doubtful)
        }
    }
}

#[inline(always)]
// In bounds: a remainder has fewer elements than a register has lanes.
fn rounded_sum_of<V: Vector, const BOUNDED: bool, const TERMS: u8>(
    v: V,
    xs: &[f32],
    of: Rounded,
    [sum, error]: [f32; 2],
    doubtful: &mut Vec<u32>,
) -> f64 {
    let lanes = Lanes {
        max: v.splat(of.max),
        above: v.splat(of.above),
        below: v.splat(of.below),
        inverse: v.splat(1.0 / sum),
        ln_sum: v.splat(ln(sum)),
        units: Units::new(v, of.c, error),
    };
    let mut total = 0;
    let mut base = 0;
    for block in xs.chunks(SUM_BLOCK) {
        let mut counted = [v.splat(0.0); 2];
        let mut chunks = block.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let rounded = round::<V, BOUNDED, TERMS>(v, v.load(chunk), lanes);
            counted = [
                v.add_bits(counted[0], rounded[0]),
                v.add_bits(counted[1], rounded[1]),
            ];
        }
        if !equal(v, counted[0], counted[1]) {
            // Counts again, without the terms in doubt.
            counted[0] = v.splat(0.0);
            for (i, chunk) in block.chunks_exact(V::LANES).enumerate() {
                let rounded = round::<V, BOUNDED, TERMS>(v, v.load(chunk), lanes);
                let first = base + (i * V::LANES) as u32;
                let sure = lanes.units.sure(v, rounded, first, doubtful);
                counted[0] = v.add_bits(counted[0], sure);
            }
        }
        total += count(v, counted[0], block.len() / V::LANES, of.c);
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut padded = [f32::NEG_INFINITY; MAX_LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let rounded = round::<V, BOUNDED, TERMS>(v, v.load(&padded), lanes);
            let first = base + (block.len() - rest.len()) as u32;
            let sure = lanes.units.sure(v, rounded, first, doubtful);
            total += count(v, sure, 1, of.c);
        }
        base += SUM_BLOCK as u32;
    }
    total as f64 * f64::from(of.c * f32::EPSILON)
}
