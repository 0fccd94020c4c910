//! Makes candidates from the raw logits that reach a threshold. Only blocks of [`GROUP`] logits
//! whose maximum reaches the threshold are read.

use std::mem::MaybeUninit;

use super::layout::GROUP;
use super::logits::{Load, Logits, each, padded};
use crate::simd::{Vector, dispatched};
use crate::token::{Token, TokenData};

dispatched! {
    fn collect(xs: Logits<'_>, maxima: &[f32], first: u32, threshold: f32, to: &mut Vec<TokenData>)
        => collect_on;
}

impl Logits<'_> {
    /// Appends the candidates whose logits are at least `threshold`, which must be above minus
    /// infinity. The token id of the first logit is `first`. Only blocks of [`GROUP`] logits whose
    /// maximum in `maxima` reaches `threshold` are read.
    pub fn collect(
        &self,
        maxima: &[f32],
        first: u32,
        threshold: f32,
        candidates: &mut Vec<TokenData>,
    ) {
        collect(*self, maxima, first, threshold, candidates);
    }
}

/// The number of candidates for which memory is reserved before a block is read: those of the
/// block, and a whole register after them. It is the same for every instruction set, so that
/// buffers grow alike.
pub const ROOM: usize = GROUP + 16;

/// Returns spare memory for [`ROOM`] candidates at the end of `to`. If `to` has to grow, its
/// capacity becomes a power of two.
#[inline]
fn room(to: &mut Vec<TokenData>) -> &mut [MaybeUninit<TokenData>] {
    if to.capacity() - to.len() < ROOM {
        let wanted = (to.len() + ROOM).next_power_of_two();
        to.reserve_exact(wanted - to.len());
    }
    &mut to.spare_capacity_mut()[..ROOM]
}

#[inline(always)]
fn collect_on<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
) {
    each!(xs, xs => collect_of(v, xs, maxima, first, threshold, to));
}

/// Finds the blocks whose maximum reaches a threshold, comparing one vector register of maxima at
/// a time.
pub struct Passing<'a> {
    maxima: &'a [f32],
    /// The block whose maximum was in the first lane of the last comparison. The set bits of
    /// `lanes`, counted from this block, are the blocks that are still to be returned.
    start: usize,
    lanes: u32,
    /// The number of maxima compared.
    compared: usize,
}

impl<'a> Passing<'a> {
    /// Returns a search that has compared nothing yet.
    #[inline]
    pub fn new(maxima: &'a [f32]) -> Self {
        Self {
            maxima,
            start: 0,
            lanes: 0,
            compared: 0,
        }
    }

    /// Returns the index of the next block whose maximum reaches the threshold. The threshold must
    /// be above minus infinity, so that padding does not reach it.
    #[inline(always)]
    pub fn next<V: Vector>(&mut self, v: V, thresholds: V::F) -> Option<usize> {
        while self.lanes == 0 {
            let left = self.maxima.get(self.compared..).unwrap_or_default();
            if left.is_empty() {
                return None;
            }
            self.lanes = match left.len() < V::LANES {
                true => v.ge(v.load(&padded(left)), thresholds),
                false => v.ge(v.load(left), thresholds),
            };
            self.start = self.compared;
            self.compared += V::LANES;
        }
        let lane = self.lanes.trailing_zeros() as usize;
        self.lanes &= self.lanes - 1;
        Some(self.start + lane)
    }
}

/// Returns the block at `index`; the last may be shorter.
#[inline(always)]
pub fn block_of<T>(xs: &[T], index: usize) -> &[T] {
    &xs[index * GROUP..xs.len().min((index + 1) * GROUP)]
}

/// The largest number of candidates of a block that are written one by one: a branch for each
/// register would be mispredicted once per block.
const ONE_BY_ONE: u32 = 4;

/// Returns a word with a bit for each number of a whole block, set if it reaches a threshold.
#[inline(always)]
fn passing_of<V: Vector, T: Load>(v: V, block: &[T], thresholds: V::F) -> u64 {
    let registers = block.chunks_exact(V::LANES).enumerate();
    registers.fold(0, |passing, (i, register)| {
        let lanes = v.ge(T::load(v, register), thresholds);
        passing | u64::from(lanes) << (i * V::LANES)
    })
}

/// Writes the numbers whose bits in `passing` are set as candidates, with tokens counted from
/// `first`, to the beginning of `to`. Returns the number of candidates written.
#[inline(always)]
// In bounds: a block has as many numbers as there are bits, and there is room for all of it.
fn keep_each<T: Load>(
    block: &[T],
    mut passing: u64,
    first: u32,
    to: &mut [MaybeUninit<TokenData>],
) -> usize {
    let mut kept = 0;
    while passing != 0 {
        let place = passing.trailing_zeros();
        to[kept].write(TokenData::new(
            (first + place) as Token,
            block[place as usize].to_f32(),
        ));
        kept += 1;
        passing &= passing - 1;
    }
    kept
}

#[inline(always)]
// In bounds: no more are kept than were read of a block, and there is room for all of it and a
// register.
fn collect_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    let thresholds = v.splat(threshold);
    let mut passing = Passing::new(maxima);
    while let Some(index) = passing.next(v, thresholds) {
        let block = block_of(xs, index);
        let mut id = first + (index * GROUP) as u32;
        let spare = room(to);
        let mut kept = 0;
        if block.len() == GROUP {
            let passing = passing_of(v, block, thresholds);
            if passing.count_ones() <= ONE_BY_ONE {
                kept = keep_each(block, passing, id, spare);
                // SAFETY: that many were written.
                unsafe { to.set_len(to.len() + kept) };
                continue;
            }
        }
        let mut chunks = block.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = T::load(v, chunk);
            let lanes = v.ge(x, thresholds);
            if lanes != 0 {
                kept += v.compress_candidates(x, lanes, id, &mut spare[kept..]);
            }
            id += V::LANES as u32;
        }
        for chunk in padded(chunks.remainder()).chunks_exact(V::LANES) {
            let x = v.load(chunk);
            let lanes = v.ge(x, thresholds);
            kept += v.compress_candidates(x, lanes, id, &mut spare[kept..]);
            id += V::LANES as u32;
        }
        // SAFETY: `compress_candidates` has written as many elements at the beginning of the spare
        // ones.
        unsafe { to.set_len(to.len() + kept) };
    }
}
