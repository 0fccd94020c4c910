//! Finds the maximum of raw logits, and that of each group.
//!
//! Numbers of f16 and bf16 take half the bytes. With AVX-512, [`block_maxima`] compares their bits
//! as integers, which have the same order for numbers of 0 or more, in registers that hold twice as
//! many. It widens only an incomplete chunk, or one that has a group without such a number, or a
//! positive NaN.

use std::ops::Range;

use super::layout::{CHUNK, GROUP};
use super::logits::{Load, Logits, each};
use crate::simd::{Vector, dispatched};
use crate::token::comparable;

dispatched! {
    /// Returns the maximum; minus infinity if every logit is masked. Reads each number once.
    pub fn max_of_logits(xs: Logits<'_>) -> f32 => max_of_logits_on;
    /// Writes the maximum of each group of [`GROUP`] into `maxima`, which has as many elements as
    /// there are groups, and returns the maximum of all. Reads each number once.
    pub fn block_maxima(xs: Logits<'_>, maxima: &mut [f32]) -> f32 => block_maxima_on;
    fn masked_block_maxima(xs: Logits<'_>, allowed: &[u64], maxima: &mut [f32]) -> f32
        => masked_block_maxima_on;
}

impl Logits<'_> {
    /// Returns the maximum; minus infinity if every logit is masked.
    pub fn max(&self) -> f32 {
        max_of_logits(*self)
    }

    /// Writes the maximum of each group of [`GROUP`] into `maxima`, which has as many elements as
    /// there are groups, and returns the maximum of all: minus infinity if every logit is masked.
    pub fn block_maxima(&self, maxima: &mut [f32]) -> f32 {
        block_maxima(*self, maxima)
    }

    /// Writes the maximum of each group of [`GROUP`] into `maxima`, as
    /// [`block_maxima`](Self::block_maxima) does, but only of the logits whose bits in `allowed`
    /// are set: bit i % 64 of word i / 64. The other logits count as minus infinity. Groups without
    /// a set bit are not read.
    pub fn masked_block_maxima(&self, allowed: &[u64], maxima: &mut [f32]) -> f32 {
        masked_block_maxima(*self, allowed, maxima)
    }
}

#[inline(always)]
fn max_of_logits_on<V: Vector>(v: V, xs: Logits<'_>) -> f32 {
    each!(xs, xs => max_of(v, xs))
}

#[inline(always)]
// In bounds: a group has four times the lanes; `head` is at most the lanes, and there are as many.
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
    let mut max = v.reduce_max(lanes);
    for x in groups.remainder() {
        max = max.max(comparable(x.to_f32()));
    }
    max
}

/// Returns the number of elements before the first one from which on whole registers can be loaded
/// without crossing a cache line.
#[inline(always)]
fn lanes_to_line<V: Vector, T>(xs: &[T]) -> usize {
    let register = V::LANES * size_of::<T>();
    let behind = xs.as_ptr() as usize % register / size_of::<T>();
    (V::LANES - behind) % V::LANES
}

#[inline(always)]
fn block_maxima_on<V: Vector>(v: V, xs: Logits<'_>, maxima: &mut [f32]) -> f32 {
    each!(xs, xs => maxima_of(v, xs, maxima))
}

/// Returns the maximum of each lane over a block.
#[inline(always)]
fn max_lanes<V: Vector, T: Load>(v: V, block: &[T]) -> V::F {
    let mut lanes = [v.splat(f32::NEG_INFINITY); 2];
    for pair in block.chunks_exact(2 * V::LANES) {
        lanes[0] = v.max(T::load(v, pair), lanes[0]);
        lanes[1] = v.max(T::load(v, &pair[V::LANES..]), lanes[1]);
    }
    v.max(lanes[0], lanes[1])
}

#[inline(always)]
// In bounds: there are as many maxima as blocks, and the range is of blocks that are there.
fn maxima_of<V: Vector, T: Load>(v: V, xs: &[T], maxima: &mut [f32]) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    let done = match V::ALIGNS_LOADS {
        true => maxima_of_lines(v, T::singles(xs), maxima),
        false => 0..0,
    };
    let (before, behind) = (..done.start, done.end..);
    maxima_of_groups(v, &xs[..done.start * GROUP], &mut maxima[before]);
    let (xs, rest) = (&xs[done.end * GROUP..], &mut maxima[behind]);
    let mut chunks = 0;
    if T::IS_HALF {
        chunks = xs.len() / CHUNK;
        for i in in_streams(chunks) {
            let chunk = &xs[i * CHUNK..][..CHUNK];
            let maxima = &mut rest[i * (CHUNK / GROUP)..][..CHUNK / GROUP];
            if !maxima_of_bits(v, chunk, maxima) {
                maxima_of_groups(v, chunk, maxima);
            }
        }
    }
    let done = chunks * CHUNK;
    maxima_of_groups(v, &xs[done..], &mut rest[done / GROUP..]);
    max_of(v, maxima)
}

/// The number of positions from which logits are read in turn: the wait for the first lines of each
/// page of memory overlaps with the arrival of other pages' lines. 8 and 16 positions are as good;
/// pieces of twice [`CHUNK`] and more gain little.
const STREAMS: usize = 4;

/// Returns all numbers below `n`, alternating between [`STREAMS`] positions.
#[inline(always)]
fn in_streams(n: usize) -> impl Iterator<Item = usize> {
    let of_each = n / STREAMS;
    let in_turn = (0..STREAMS * of_each).map(move |i| i % STREAMS * of_each + i / STREAMS);
    in_turn.chain(STREAMS * of_each..n)
}

/// Writes the maxima of all blocks except the first and the last few, if loads of their registers
/// cross cache lines. Loads whole lines instead, of which one in four belongs to two blocks.
/// Returns the range of the blocks whose maxima are written. Loads that cross lines of the
/// second-level cache take twice the time.
#[inline(always)]
// In bounds: there are more than a block, a group has four, and a block several times the lanes.
fn maxima_of_lines<V: Vector>(v: V, xs: &[f32], maxima: &mut [f32]) -> Range<usize> {
    let behind = (V::LANES - lanes_to_line::<V, f32>(xs)) % V::LANES;
    if behind == 0 || xs.len() < GROUP + V::LANES {
        return 0..0;
    }
    let lowest = v.splat(f32::NEG_INFINITY);
    let own = u32::MAX << behind;
    let lines = &xs[GROUP - behind..];
    let n = ((lines.len() - V::LANES) / (4 * GROUP)).min((maxima.len() - 1) / 4);
    let to = &mut maxima[1..];
    for i in in_streams(n) {
        let group = &lines[i * 4 * GROUP..][..V::LANES + 4 * GROUP];
        let (shared, group) = group.split_at(V::LANES);
        let mut shared = v.load(shared);
        let mut of_each = [lowest; 4];
        for (block, lanes) in group.chunks_exact(GROUP).zip(&mut of_each) {
            let (whole, last) = block.split_at(GROUP - V::LANES);
            *lanes = v.max_masked(own, shared, lowest);
            for line in whole.chunks_exact(V::LANES) {
                *lanes = v.max(v.load(line), *lanes);
            }
            shared = v.load(last);
            *lanes = v.max_masked(!own, shared, *lanes);
        }
        to[4 * i..][..4].copy_from_slice(&v.reduce_max_each(of_each));
    }
    1..1 + 4 * n
}

/// Writes the maximum of each block of a whole chunk, found by comparing bits in registers that
/// hold twice as many numbers as widened ones. Writes nothing and returns false if a block has no
/// number of 0 or more, or has a positive NaN, or if the instruction set has no fast method.
#[inline(always)]
// In bounds: `at` and a register more are within `BLOCKS`, and there are as many maxima: checked
// above.
fn maxima_of_bits<V: Vector, T: Load>(v: V, chunk: &[T], maxima: &mut [f32]) -> bool {
    const BLOCKS: usize = CHUNK / GROUP;
    if chunk.len() < CHUNK || maxima.len() < BLOCKS {
        return false;
    }
    let mut largest = [0; BLOCKS];
    let groups = T::bits(chunk).chunks_exact(4 * GROUP);
    for (group, to) in groups.zip(largest.chunks_exact_mut(4)) {
        let Some(of_each) = v.reduce_max_u16_each(group, T::INFINITE) else {
            return false;
        };
        to.copy_from_slice(&of_each);
    }
    for at in (0..BLOCKS).step_by(V::LANES) {
        v.store(&mut maxima[at..], T::load_bits(v, &largest[at..]));
    }
    true
}

/// Writes the maxima of all blocks, of which the last may be shorter.
#[inline(always)]
// In bounds: there are as many maxima as blocks, and four of them to a group.
fn maxima_of_groups<V: Vector, T: Load>(v: V, xs: &[T], maxima: &mut [f32]) {
    let n = xs.len() / (4 * GROUP);
    for i in in_streams(n) {
        let mut of_each = [v.splat(f32::NEG_INFINITY); 4];
        let group = &xs[i * 4 * GROUP..][..4 * GROUP];
        for (block, lanes) in group.chunks_exact(GROUP).zip(&mut of_each) {
            *lanes = max_lanes(v, block);
        }
        maxima[4 * i..][..4].copy_from_slice(&v.reduce_max_each(of_each));
    }
    let mut to = maxima[4 * n..].iter_mut();
    let mut blocks = xs[4 * n * GROUP..].chunks_exact(GROUP);
    for (block, to) in (&mut blocks).zip(&mut to) {
        *to = v.reduce_max(max_lanes(v, block));
    }
    if let Some(to) = to.next() {
        let mut last = f32::NEG_INFINITY;
        for x in blocks.remainder() {
            last = last.max(comparable(x.to_f32()));
        }
        *to = last;
    }
}

// Each word of a bitmap has the bits of one block.
const _: () = assert!(GROUP == u64::BITS as usize);

#[inline(always)]
fn masked_block_maxima_on<V: Vector>(
    v: V,
    xs: Logits<'_>,
    allowed: &[u64],
    maxima: &mut [f32],
) -> f32 {
    each!(xs, xs => masked_maxima_of(v, xs, allowed, maxima))
}

#[inline(always)]
// In bounds: there are as many maxima as blocks, and four of them to a group.
fn masked_maxima_of<V: Vector, T: Load>(
    v: V,
    xs: &[T],
    allowed: &[u64],
    maxima: &mut [f32],
) -> f32 {
    assert_eq!(maxima.len(), xs.len().div_ceil(GROUP));
    let word = |block: usize| allowed.get(block).copied().unwrap_or(0);
    let n = xs.len() / (4 * GROUP);
    for i in in_streams(n) {
        let mut of_each = [v.splat(f32::NEG_INFINITY); 4];
        let group = &xs[i * 4 * GROUP..][..4 * GROUP];
        let blocks = group.chunks_exact(GROUP).zip(4 * i..);
        for ((block, number), lanes) in blocks.zip(&mut of_each) {
            *lanes = match word(number) {
                0 => continue,
                u64::MAX => max_lanes(v, block),
                word => masked_lanes(v, block, word),
            };
        }
        maxima[4 * i..][..4].copy_from_slice(&v.reduce_max_each(of_each));
    }
    let blocks = xs[4 * n * GROUP..].chunks(GROUP).zip(4 * n..);
    for ((block, number), to) in blocks.zip(&mut maxima[4 * n..]) {
        let set = block.iter().enumerate();
        let set = set.filter(|&(i, _)| word(number) >> i & 1 != 0);
        let numbers = set.map(|(_, x)| comparable(x.to_f32()));
        *to = numbers.fold(f32::NEG_INFINITY, f32::max);
    }
    max_of(v, maxima)
}

/// Returns the maximum of each lane of a block, among the numbers whose bits in `word` are set.
#[inline(always)]
fn masked_lanes<V: Vector, T: Load>(v: V, block: &[T], word: u64) -> V::F {
    let mut lanes = v.splat(f32::NEG_INFINITY);
    for (i, register) in block.chunks_exact(V::LANES).enumerate() {
        let set = (word >> (i * V::LANES)) as u32;
        lanes = v.max_masked(set, T::load(v, register), lanes);
    }
    lanes
}
