//! The passes of [`floats`](super::floats), written once for every instruction set.

use std::mem::MaybeUninit;
use std::ops::Range;

use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};

use super::floats::{BLOCK, CHUNK, Logits, Number, each, room};
use super::portable_sums::widen_into;
use super::vector::{MAX_LANES, Vector};
use crate::token::{Token, TokenData, comparable};

/// A precision that an instruction set can load.
pub(super) trait Load: Number {
    /// Whether it has 16 bits: 1 of sign, which comes first, and then the magnitude, so that those
    /// from 0 on order as the bits do.
    const IS_HALF: bool;
    /// Infinity, if it has.
    const INFINITE: u16 = 0;
    /// The first numbers of `from`, widened.
    fn load<V: Vector>(v: V, from: &[Self]) -> V::F;
    /// All of a chunk in single precision, where they are or in `to`.
    #[inline(always)]
    fn widened<'c, V: Vector>(v: V, chunk: &'c [Self], to: &'c mut [f32; CHUNK]) -> &'c [f32] {
        widen_into(v, chunk, to)
    }
    /// The numbers, of single precision.
    #[inline(always)]
    fn singles(_from: &[Self]) -> &[f32] {
        &[]
    }
    /// The bits, of numbers that have 16.
    #[inline(always)]
    fn bits(_from: &[Self]) -> &[u16] {
        &[]
    }
    /// As many numbers of those bits as a register holds, widened.
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, _bits: &[u16]) -> V::F {
        v.splat(0.0)
    }
}

impl Load for f32 {
    const IS_HALF: bool = false;
    #[inline(always)]
    fn widened<'c, V: Vector>(_v: V, chunk: &'c [f32], _to: &'c mut [f32; CHUNK]) -> &'c [f32] {
        chunk
    }
    #[inline(always)]
    fn singles(from: &[f32]) -> &[f32] {
        from
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f32]) -> V::F {
        v.load(from)
    }
}

impl Load for f16 {
    const IS_HALF: bool = true;
    const INFINITE: u16 = 0x7C00;
    #[inline(always)]
    fn bits(from: &[f16]) -> &[u16] {
        from.reinterpret_cast()
    }
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, bits: &[u16]) -> V::F {
        v.load_f16(bits.reinterpret_cast())
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[f16]) -> V::F {
        v.load_f16(from)
    }
}

impl Load for bf16 {
    const IS_HALF: bool = true;
    const INFINITE: u16 = 0x7F80;
    #[inline(always)]
    fn bits(from: &[bf16]) -> &[u16] {
        from.reinterpret_cast()
    }
    #[inline(always)]
    fn load_bits<V: Vector>(v: V, bits: &[u16]) -> V::F {
        v.load_bf16(bits.reinterpret_cast())
    }
    #[inline(always)]
    fn load<V: Vector>(v: V, from: &[bf16]) -> V::F {
        v.load_bf16(from)
    }
}

/// The last numbers, fewer than a register's, widened, and behind them minus infinity.
#[inline(always)]
pub(super) fn padded<T: Load>(rest: &[T]) -> [f32; MAX_LANES] {
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    for (to, x) in padded.iter_mut().zip(rest) {
        *to = x.to_f32();
    }
    padded
}

/// Reads each number once.
#[inline(always)]
pub fn max<V: Vector>(v: V, xs: Logits<'_>) -> f32 {
    each!(xs, xs => max_of(v, xs))
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a group has four times the lanes; `head` is at most the lanes, and there are as many"
)]
fn max_of<V: Vector, T: Load>(v: V, xs: &[T]) -> f32 {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 4];
    let head = match xs.len() < V::LANES {
        true => 0,
        false => lanes_to_line::<V, T>(xs),
    };
    if head > 0 {
        lanes[0] = v.max(T::load(v, xs), lanes[0]);
    }
    let mut groups = xs[head..].chunks_exact(4 * V::LANES);
    for group in &mut groups {
        for (i, lanes) in lanes.iter_mut().enumerate() {
            *lanes = v.max(T::load(v, &group[i * V::LANES..]), *lanes);
        }
    }
    let lanes = v.max(v.max(lanes[0], lanes[1]), v.max(lanes[2], lanes[3]));
    let mut max = v.largest(lanes);
    for x in groups.remainder() {
        max = max.max(comparable(x.to_f32()));
    }
    max
}

/// How many numbers lie before the next one from which loads cross no line of the cache.
#[inline(always)]
fn lanes_to_line<V: Vector, T>(xs: &[T]) -> usize {
    let register = V::LANES * size_of::<T>();
    let behind = xs.as_ptr() as usize % register / size_of::<T>();
    (V::LANES - behind) % V::LANES
}

/// Reads each number once.
#[inline(always)]
pub fn block_maxima<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> f32 {
    each!(xs, xs => maxima_of(v, xs, maxima))
}

/// The largest of each lane of a block.
#[inline(always)]
#[expect(clippy::indexing_slicing, reason = "a pair has twice the lanes")]
fn max_lanes<V: Vector, T: Load>(v: V, block: &[T]) -> V::F {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 2];
    for pair in block.chunks_exact(2 * V::LANES) {
        lanes[0] = v.max(T::load(v, pair), lanes[0]);
        lanes[1] = v.max(T::load(v, &pair[V::LANES..]), lanes[1]);
    }
    v.max(lanes[0], lanes[1])
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "there are as many maxima as blocks, and the range is of blocks that are there"
)]
fn maxima_of<V: Vector, T: Load>(v: V, xs: &[T], maxima: &mut [f32]) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let done = match V::AVOIDS_SPLITS {
        true => maxima_of_lines(v, T::singles(xs), maxima),
        false => 0..0,
    };
    let (before, behind) = (..done.start, done.end..);
    maxima_of_chunk(v, &xs[..done.start * BLOCK], &mut maxima[before]);
    let (xs, rest) = (&xs[done.end * BLOCK..], &mut maxima[behind]);
    for (chunk, maxima) in xs.chunks(CHUNK).zip(rest.chunks_mut(CHUNK / BLOCK)) {
        if !(T::IS_HALF && maxima_of_bits(v, chunk, maxima)) {
            maxima_of_chunk(v, chunk, maxima);
        }
    }
    max_of(v, maxima)
}

/// The maxima of all blocks but the first and the last few, if registers of these cross lines:
/// whole lines are loaded, of which one in four is shared by two blocks. Gives which blocks are
/// done. Splitting loads from the second-level cache take 15 us for 128,256 numbers, these 7.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "there are more than a block, a group has four, and a block several times the lanes"
)]
fn maxima_of_lines<V: Vector>(v: V, xs: &[f32], maxima: &mut [f32]) -> Range<usize> {
    let behind = (V::LANES - lanes_to_line::<V, f32>(xs)) % V::LANES;
    if behind == 0 || xs.len() < BLOCK + V::LANES {
        return 0..0;
    }
    let lowest = v.splat(f32::NEG_INFINITY);
    let own = u32::MAX << behind;
    let (shared, lines) = xs[BLOCK - behind..].split_at(V::LANES);
    let mut shared = v.load(shared);
    let mut done = 0;
    let groups = lines.chunks_exact(4 * BLOCK);
    for (group, to) in groups.zip(maxima[1..].chunks_exact_mut(4)) {
        let mut of_each = [lowest; 4];
        for (block, lanes) in group.chunks_exact(BLOCK).zip(&mut of_each) {
            let (whole, last) = block.split_at(BLOCK - V::LANES);
            *lanes = v.max_in(own, shared, lowest);
            for line in whole.chunks_exact(V::LANES) {
                *lanes = v.max(v.load(line), *lanes);
            }
            shared = v.load(last);
            *lanes = v.max_in(!own, shared, *lanes);
        }
        to.copy_from_slice(&v.largest_of_each(of_each));
        done += 4;
    }
    1..1 + done
}

/// The same of a whole chunk by its bits, in registers that hold twice as many numbers as widened
/// ones; or nothing, and false: if a block has none from 0 on, or has NaN.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "`at` and a register more are within `BLOCKS`, and there are as many maxima: asked above"
)]
fn maxima_of_bits<V: Vector, T: Load>(v: V, chunk: &[T], maxima: &mut [f32]) -> bool {
    const BLOCKS: usize = CHUNK / BLOCK;
    if chunk.len() < CHUNK || maxima.len() < BLOCKS {
        return false;
    }
    let mut largest = [0; BLOCKS];
    let groups = T::bits(chunk).chunks_exact(4 * BLOCK);
    for (group, to) in groups.zip(largest.chunks_exact_mut(4)) {
        let Some(of_each) = v.largest_bits_of_each(group, T::INFINITE) else {
            return false;
        };
        to.copy_from_slice(&of_each);
    }
    for at in (0..BLOCKS).step_by(V::LANES) {
        v.store(&mut maxima[at..], T::load_bits(v, &largest[at..]));
    }
    true
}

#[inline(always)]
fn maxima_of_chunk<V: Vector, T: Load>(v: V, chunk: &[T], maxima: &mut [f32]) {
    let mut to = maxima.iter_mut();
    let mut groups = chunk.chunks_exact(4 * BLOCK);
    for group in &mut groups {
        let mut of_each = [v.splat(f32::NEG_INFINITY); 4];
        for (block, lanes) in group.chunks_exact(BLOCK).zip(&mut of_each) {
            *lanes = max_lanes(v, block);
        }
        for (max, to) in v.largest_of_each(of_each).into_iter().zip(&mut to) {
            *to = max;
        }
    }
    let mut blocks = groups.remainder().chunks_exact(BLOCK);
    for (block, to) in (&mut blocks).zip(&mut to) {
        *to = v.largest(max_lanes(v, block));
    }
    if let Some(to) = to.next() {
        let mut last = f32::NEG_INFINITY;
        for x in blocks.remainder() {
            last = last.max(comparable(x.to_f32()));
        }
        *to = last;
    }
}

/// Reads the blocks that pass.
#[inline(always)]
pub fn collect<V: Vector>(
    v: V,
    xs: Logits<'_>,
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
) {
    each!(xs, xs => collect_of(v, xs, maxima, first, threshold, to));
}

/// Finds the blocks whose maximum reaches a threshold: a comparison for as many as a register
/// holds.
pub(super) struct Passing<'a> {
    maxima: &'a [f32],
    /// Of which block the first maximum of those compared is, and a bit for each that is still to
    /// be named.
    start: usize,
    lanes: u32,
    /// How many have been compared.
    compared: usize,
}

impl<'a> Passing<'a> {
    pub(super) fn new(maxima: &'a [f32]) -> Self {
        Self {
            maxima,
            start: 0,
            lanes: 0,
            compared: 0,
        }
    }

    /// The next block. No threshold is minus infinity, so that padding reaches none.
    #[inline(always)]
    pub(super) fn next<V: Vector>(&mut self, v: V, thresholds: V::F) -> Option<usize> {
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

/// One of the blocks that are there; the last may be shorter.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: `index` is that of a block"
)]
pub(super) fn block_of<T>(xs: &[T], index: usize) -> &[T] {
    &xs[index * BLOCK..xs.len().min((index + 1) * BLOCK)]
}

/// So many of a block are written one by one: a branch for each register whether it has one is a
/// guess that fails once per block.
const ONE_BY_ONE: u32 = 4;

/// A bit for each number of a whole block that reaches a threshold.
#[inline(always)]
fn passing_of<V: Vector, T: Load>(v: V, block: &[T], thresholds: V::F) -> u64 {
    let registers = block.chunks_exact(V::LANES).enumerate();
    registers.fold(0, |passing, (i, register)| {
        let lanes = v.ge(T::load(v, register), thresholds);
        passing | u64::from(lanes) << (i * V::LANES)
    })
}

/// Writes the numbers that `passing` has bits for as candidates, numbered from `first`, to the
/// beginning of `to`. Gives how many it has written.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a block has as many numbers as there are bits, and there is room for all of it"
)]
fn keep_each<T: Load>(
    block: &[T],
    mut passing: u64,
    first: u32,
    to: &mut [MaybeUninit<TokenData>],
) -> usize {
    let mut kept = 0;
    while passing != 0 {
        let place = passing.trailing_zeros();
        to[kept].write(TokenData {
            id: (first + place) as Token,
            logit: block[place as usize].to_f32(),
            p: 0.0,
        });
        kept += 1;
        passing &= passing - 1;
    }
    kept
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "no more are kept than were read of a block, and there is room for all of it and a register"
)]
fn collect_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    maxima: &[f32],
    first: u32,
    threshold: f32,
    to: &mut Vec<TokenData>,
) {
    assert_eq!(maxima.len(), xs.len().div_ceil(BLOCK));
    let thresholds = v.splat(threshold);
    let mut passing = Passing::new(maxima);
    while let Some(index) = passing.next(v, thresholds) {
        let block = block_of(xs, index);
        let mut id = first + (index * BLOCK) as u32;
        let spare = room(to);
        let mut kept = 0;
        if block.len() == BLOCK {
            let passing = passing_of(v, block, thresholds);
            if passing.count_ones() <= ONE_BY_ONE {
                kept = keep_each(block, passing, id, spare);
                // SAFETY: so many were written.
                unsafe { to.set_len(to.len() + kept) };
                continue;
            }
        }
        let mut chunks = block.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = T::load(v, chunk);
            let lanes = v.ge(x, thresholds);
            if lanes != 0 {
                kept += v.keep(x, lanes, id, &mut spare[kept..]);
            }
            id += V::LANES as u32;
        }
        for chunk in padded(chunks.remainder()).chunks_exact(V::LANES) {
            let x = v.load(chunk);
            let lanes = v.ge(x, thresholds);
            kept += v.keep(x, lanes, id, &mut spare[kept..]);
            id += V::LANES as u32;
        }
        // SAFETY: `keep` has written as many elements at the beginning of the spare ones.
        unsafe { to.set_len(to.len() + kept) };
    }
}
