//! What a large nucleus leaves of a vocabulary: too many to make candidates of unless someone asks.
//!
//! A bit for each token of the vocabulary, and the logits of those whose bit is set: 16 KB and 4
//! bytes each, where candidates take 12. The bytes count: buffers of hundreds of kilobytes are cold
//! by the time that a model has computed the next logits. A cut and a temperature are remembered,
//! not applied.

use super::collect::{Passing, ROOM, block_of};
use super::layout::{GROUP, SUM_BLOCK};
use super::logits::{Load, Logits, each, padded};
use super::online_softmax::ADDED;
use super::reference::{NEAR_REFERENCE, Reference, term};
use super::scan::count_at_least;
use crate::simd::{Vector, dispatched};
use crate::token::{Token, TokenData};

/// At how many thresholds [`masses_above`] divides.
pub const THRESHOLDS: usize = 8;

/// Many tokens of a vocabulary with their logits, in order of the tokens. Grows by powers of two,
/// never shrinks.
#[derive(Clone, Debug)]
pub struct Packed {
    /// A bit for each token, a word for each block of the vocabulary.
    marks: Vec<u64>,
    logits: Vec<f32>,
    /// How many of the logits are in use.
    len: usize,
    /// What is below is left out.
    threshold: f32,
    /// What is left is divided by this.
    divisor: f32,
    /// The largest of the logits, undivided.
    max: f32,
}

impl Default for Packed {
    fn default() -> Self {
        Self {
            marks: Vec::new(),
            logits: Vec::new(),
            len: 0,
            threshold: f32::MIN,
            divisor: 1.0,
            max: f32::NEG_INFINITY,
        }
    }
}

impl Packed {
    /// Forgets all; the vocabulary has `n` tokens, the largest logit is `max`.
    pub fn clear(&mut self, n: usize, max: f32) {
        let blocks = n.div_ceil(GROUP);
        self.marks.clear();
        if self.marks.capacity() < blocks {
            self.marks.reserve_exact(blocks.next_power_of_two());
        }
        self.marks.resize(blocks, 0);
        self.len = 0;
        self.threshold = f32::MIN;
        self.divisor = 1.0;
        self.max = max;
    }

    /// Makes room for all of a vocabulary of `n` tokens.
    pub fn reserve(&mut self, n: usize) {
        self.clear(n, f32::NEG_INFINITY);
        if self.logits.len() < n + ROOM {
            self.grow(n + ROOM);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.marks.capacity() * size_of::<u64>() + self.logits.capacity() * size_of::<f32>()
    }

    /// How many places there are; some may be left out.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Their logits, undivided, also of those left out.
    #[expect(clippy::indexing_slicing, reason = "`room` made room for `len`")]
    pub fn logits(&self) -> &[f32] {
        &self.logits[..self.len]
    }

    /// Leaves out the one at `place`, which is below [`len`](Self::len).
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a place is below `len`, and `room` made room for that"
    )]
    pub fn leave_out(&mut self, place: usize) {
        self.logits[place] = f32::NEG_INFINITY;
    }

    /// Leaves out those below `threshold`, which is above minus infinity; gives how many are left.
    /// Reads 4 bytes each.
    pub fn cut(&mut self, threshold: f32) -> usize {
        self.threshold = threshold;
        count_at_least(self.logits(), threshold)
    }

    /// Divides all by `divisor`, if it is the first.
    pub fn divide(&mut self, divisor: f32) {
        self.divisor = divisor;
    }

    /// The largest logit, divided.
    pub fn max(&self) -> f32 {
        self.max / self.divisor
    }

    /// The logit at `place`, which is below [`len`](Self::len), divided; `None` if it is left out.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a place is below `len`, and `room` made room for that"
    )]
    pub fn at(&self, place: usize) -> Option<f32> {
        let logit = self.logits[place];
        (logit >= self.threshold).then_some(logit / self.divisor)
    }

    /// What is remembered is applied. Reads and writes 4 bytes each.
    #[expect(clippy::indexing_slicing, reason = "`room` made room for `len`")]
    pub fn settle(&mut self) -> &[f32] {
        for place in 0..self.len {
            self.logits[place] = self.at(place).unwrap_or(f32::NEG_INFINITY);
        }
        self.max /= self.divisor;
        self.threshold = f32::MIN;
        self.divisor = 1.0;
        self.logits()
    }

    /// The running sum of e^(x - the largest), x divided, of those up to the end of each
    /// [`SUM_BLOCK`]; right within 5e-7. Reads 4 bytes each. The largest, divided, must be finite.
    pub fn masses(&self, to: &mut Vec<f64>) {
        let blocks = self.len.div_ceil(SUM_BLOCK);
        to.clear();
        if to.capacity() < blocks {
            to.reserve_exact(blocks.next_power_of_two());
        }
        to.resize(blocks, 0.0);
        kept_masses(self, to);
    }

    /// The token at `place`. Reads up to 8 bytes per block.
    pub fn token(&self, place: usize) -> Token {
        let mut left = place;
        for (block, &word) in self.marks.iter().enumerate() {
            let here = word.count_ones() as usize;
            if left >= here {
                left -= here;
                continue;
            }
            let rest = (0..left).fold(word, |word, _| word & (word - 1));
            return (block * GROUP) as Token + rest.trailing_zeros() as Token;
        }
        0
    }

    /// Appends those that are not left out to `to`, without probabilities.
    pub fn write_to(&self, to: &mut Vec<TokenData>) {
        let mut place = 0;
        for (block, &word) in self.marks.iter().enumerate() {
            let mut word = word;
            while word != 0 {
                let id = (block * GROUP) as Token + word.trailing_zeros() as Token;
                word &= word - 1;
                if let Some(logit) = self.at(place) {
                    to.push(TokenData { id, logit, p: 0.0 });
                }
                place += 1;
            }
        }
    }

    /// The threshold, and what the rest is divided by.
    fn kept(&self) -> (f32, f32) {
        (self.threshold, self.divisor)
    }

    /// [`ROOM`] behind the last logit.
    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "just grown")]
    fn room(&mut self) -> &mut [f32; ROOM] {
        let end = self.len + ROOM;
        if self.logits.len() < end {
            self.grow(end);
        }
        let (room, _) = self.logits[self.len..].split_at_mut(ROOM);
        room.try_into().unwrap_or_else(|_| std::process::abort())
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        let n = end.next_power_of_two();
        self.logits.reserve_exact(n - self.logits.len());
        self.logits.resize(n, 0.0);
    }

    /// As many logits as `marks`, those of the tokens of the block from `first` on, have been
    /// written.
    #[expect(
        clippy::indexing_slicing,
        reason = "documented: a token of the vocabulary, each block of which has marks"
    )]
    fn keep(&mut self, first: u32, marks: u64) {
        self.marks[first as usize / GROUP] = marks;
        self.len += marks.count_ones() as usize;
    }
}

dispatched! {
    fn collect(xs: Logits<'_>, maxima: &[f32], first: u32, threshold: f32, to: &mut Packed)
        => collect_on;
    fn kept_masses(packed: &Packed, to: &mut [f64]) => kept_masses_on;
    /// Returns the sums of e^(x - max), of all finite numbers and of those at or above each
    /// threshold; `max` is finite, and no number above it. Right within 5e-7. Reads 4 bytes per
    /// number.
    pub fn masses_above(xs: &[f32], max: f32, thresholds: &[f32; THRESHOLDS])
        -> [f64; 1 + THRESHOLDS] => masses_above_on;
}

impl Logits<'_> {
    /// Packs the logits that are at least `threshold`, of which none is at `first` or behind it in
    /// `to` yet; `first` is a multiple of [`GROUP`]. Only groups whose maximum in `maxima` reaches
    /// the threshold are looked at.
    pub fn collect_packed(&self, maxima: &[f32], first: u32, threshold: f32, to: &mut Packed) {
        collect(*self, maxima, first, threshold, to);
    }
}

#[inline(always)]
fn collect_on<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Packed,
) {
    each!(xs, xs => collect_of(v, xs, maxima, first, threshold, to));
}

#[inline(always)]
fn collect_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Packed,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    let thresholds = v.splat(threshold);
    let mut passing = Passing::new(maxima);
    while let Some(index) = passing.next(v, thresholds) {
        let block = block_of(xs, index);
        let start = first + (index * GROUP) as u32;
        // The length is known to the compiler where the block is whole.
        let marks = match block.first_chunk::<GROUP>() {
            Some(block) => keep_of(v, &block[..], thresholds, to.room()),
            None => {
                let mut padded = [f32::NEG_INFINITY; GROUP];
                for (to, x) in padded.iter_mut().zip(block) {
                    *to = x.to_f32();
                }
                keep_of(v, &padded[..], thresholds, to.room())
            }
        };
        to.keep(start, marks);
    }
}

/// Writes what passes of a whole block to the beginning of `to`; a bit for each.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: a whole block; `lane` and a register more are within it, and `to` is larger"
)]
fn keep_of<V: Vector, T: Load>(v: V, block: &[T], thresholds: V::F, to: &mut [f32; ROOM]) -> u64 {
    let (mut kept, mut marks) = (0, 0u64);
    for lane in (0..GROUP).step_by(V::LANES) {
        let x = T::load(v, &block[lane..]);
        let lanes = v.ge(x, thresholds);
        // So many at most come before.
        v.compress_over(lanes, x, &mut to[kept.min(lane)..]);
        kept += lanes.count_ones() as usize;
        marks |= u64::from(lanes) << lane;
    }
    marks
}

/// How low the kept ones may be, divided, for [`exp_approx`](Vector::exp_approx).
const NEAR_LOWEST: f32 = -80.0;

#[inline(always)]
fn kept_masses_on<V: Vector>(v: V, packed: &Packed, to: &mut [f64]) {
    let (threshold, divisor) = packed.kept();
    let reference = Reference::of(packed.max());
    let near = packed.max().abs() < NEAR_REFERENCE && threshold / divisor > NEAR_LOWEST;
    match near {
        true => masses_of::<V, true>(v, packed, &reference, to),
        false => masses_of::<V, false>(v, packed, &reference, to),
    }
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below 4, and `four` has four times the lanes"
)]
fn masses_of<V: Vector, const NEAR: bool>(
    v: V,
    packed: &Packed,
    reference: &Reference,
    to: &mut [f64],
) {
    let (threshold, divisor) = packed.kept();
    let kept = Kept {
        threshold: v.splat(threshold),
        divisor: v.splat(divisor),
        inverse: v.splat(1.0 / divisor),
    };
    let unit = if NEAR {
        reference.near_unit
    } else {
        reference.unit
    };
    let mut sum = 0.0;
    for (block, to) in packed.logits().chunks(SUM_BLOCK).zip(to) {
        let mut doubles = [v.splat_d(0.0); 2];
        for group in block.chunks(4 * ADDED * V::LANES) {
            let mut floats = [v.splat(0.0); 4];
            let mut fours = group.chunks_exact(4 * V::LANES);
            for four in &mut fours {
                for (i, floats) in floats.iter_mut().enumerate() {
                    let e =
                        kept_term::<V, NEAR>(v, v.load(&four[i * V::LANES..]), &kept, reference);
                    *floats = v.add(*floats, e);
                }
            }
            let mut rest = fours.remainder().chunks_exact(V::LANES);
            for (one, floats) in (&mut rest).zip(&mut floats) {
                let e = kept_term::<V, NEAR>(v, v.load(one), &kept, reference);
                *floats = v.add(*floats, e);
            }
            for one in padded(rest.remainder()).chunks_exact(V::LANES) {
                let e = kept_term::<V, NEAR>(v, v.load(one), &kept, reference);
                floats[3] = v.add(floats[3], e);
            }
            let [a, b, c, d] = floats;
            let halves = v.widen(v.add(v.add(a, b), v.add(c, d)));
            doubles[0] = v.add_d(doubles[0], halves[0]);
            doubles[1] = v.add_d(doubles[1], halves[1]);
        }
        sum += v.reduce_add_d(v.add_d(doubles[0], doubles[1])) * unit;
        *to = sum;
    }
}

/// Which are kept, and what they are divided by.
struct Kept<F> {
    threshold: F,
    divisor: F,
    inverse: F,
}

/// e^x in a unit of `reference` of one register, divided; 0 where it is left out.
///
/// The quotient is made with the inverse and corrected by what it leaves, which rounds it as a
/// division does (Markstein 1990), in a fifth of the time.
#[inline(always)]
fn kept_term<V: Vector, const NEAR: bool>(
    v: V,
    x: V::F,
    kept: &Kept<V::F>,
    reference: &Reference,
) -> V::F {
    let zero = v.splat(0.0);
    let quotient = v.mul(x, kept.inverse);
    let left = v.fma(v.sub(zero, quotient), kept.divisor, x);
    let quotient = v.fma(left, kept.inverse, quotient);
    let e = match NEAR {
        true => v.exp_approx(quotient),
        false if reference.far => term(v, v.sub(quotient, v.splat(reference.max)), reference).1,
        false => term(v, quotient, reference).1,
    };
    v.select_lt(x, kept.threshold, zero, e)
}

#[inline(always)]
fn masses_above_on<V: Vector>(
    v: V,
    xs: &[f32],
    max: f32,
    thresholds: &[f32; THRESHOLDS],
) -> [f64; 1 + THRESHOLDS] {
    let reference = Reference::of(max);
    let mut masses = [[v.splat_d(0.0); 2]; 1 + THRESHOLDS];
    let mut groups = xs.chunks_exact(ADDED * V::LANES);
    for group in &mut groups {
        add_above(v, group, thresholds, &reference, &mut masses);
    }
    let mut rest = groups.remainder().chunks_exact(V::LANES);
    for chunk in &mut rest {
        add_above(v, chunk, thresholds, &reference, &mut masses);
    }
    add_above(
        v,
        &padded(rest.remainder()),
        thresholds,
        &reference,
        &mut masses,
    );
    let mut totals = [0.0; 1 + THRESHOLDS];
    for (total, [a, b]) in totals.iter_mut().zip(masses) {
        *total = v.reduce_add_d(v.add_d(a, b)) * reference.unit;
    }
    totals
}

/// Adds the terms of at most [`ADDED`] registers to the sums of all, and of those at or above each
/// threshold.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`i` is below the number of thresholds, and there is one more of `floats`"
)]
fn add_above<V: Vector>(
    v: V,
    xs: &[f32],
    thresholds: &[f32; THRESHOLDS],
    reference: &Reference,
    masses: &mut [[V::D; 2]; 1 + THRESHOLDS],
) {
    let zero = v.splat(0.0);
    let mut floats = [zero; 1 + THRESHOLDS];
    for x in xs.chunks_exact(V::LANES) {
        let x = v.load(x);
        let from = match reference.far {
            true => v.sub(x, v.splat(reference.max)),
            false => x,
        };
        let (_, e) = term(v, from, reference);
        floats[0] = v.add(floats[0], e);
        for i in 0..THRESHOLDS {
            let e = v.select_lt(x, v.splat(thresholds[i]), zero, e);
            floats[i + 1] = v.add(floats[i + 1], e);
        }
    }
    for (floats, doubles) in floats.into_iter().zip(masses) {
        let halves = v.widen(floats);
        doubles[0] = v.add_d(doubles[0], halves[0]);
        doubles[1] = v.add_d(doubles[1], halves[1]);
    }
}
