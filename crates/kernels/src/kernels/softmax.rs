//! Computes exponentials of logits, bit for bit the host's `expf` and `exp`, and their sums as if
//! added in order.
//!
//! An operation with more than one pass copies the array of 12-byte candidates once into a column
//! of 4 bytes per candidate, which stays in the second-level cache, or works in the array itself,
//! block by block.

use super::layout::SUM_BLOCK;
use super::registers::prefetch_candidates;
use super::rewrite::write_p;
use super::sequential_sum::add_block;
use super::sequential_sum_f64::{add_floats_in_order, add_in_order};
use crate::simd::exp::{HIGHEST, LOWEST};
use crate::simd::libm;
use crate::simd::{Function, Isa, MAX_LANES, Vector, dispatched};
use crate::token::{TokenData, comparable};

dispatched! {
    /// Replaces every x by e^(x - max), and returns `start` plus all of them, as if added one by
    /// one. `isa` is the result of [`isa_for`], or any instruction set if no x is far above `max`.
    /// Reads and writes 4 bytes per element.
    pub fn exp_sum_by(start: f32, xs: &mut [f32], max: f32) -> f32 => exp_sum_on by isa;
    /// Replaces every x by e^(x - max) as [`exp_sum_by`] does, on the instruction set in use.
    pub fn exp_sum(start: f32, xs: &mut [f32], max: f32) -> f32 => exp_sum_on with Exp;
    /// Replaces every x by e^(x - max) as [`exp_sum_by`] does, and returns the sum in `double`.
    /// `sums` receives the sum up to the end of each block of [`SUM_BLOCK`].
    pub fn exp_sum_double_by(xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64
        => exp_sum_double_on by isa;
    /// Replaces every x by e^(x - max) as [`exp_sum_double_by`] does, on the instruction set in
    /// use.
    pub fn exp_sum_double(xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64
        => exp_sum_double_on with Exp;
    /// Replaces every x by e^(x - max) with the host's `exp`, and returns the sum as if added one
    /// by one to `start`, with the operations of the built-in. Only [`Isa::SCALAR`] accepts an x
    /// above `max`.
    pub fn exp_double_by(start: f64, xs: &mut [f32], max: f32) -> f64 => exp_double_on by isa;
    /// Replaces every x by e^(x - max) as [`exp_double_by`] does, on the instruction set in use.
    pub fn exp_double(start: f64, xs: &mut [f32], max: f32) -> f64 => exp_double_on with ExpF64;
    /// Writes e^(logit - max), with NaN as minus infinity, as probabilities, and returns their sum
    /// as [`exp_sum_double_by`] does. `sums` has exactly one element for each block; `values` is
    /// scratch. Reads and writes 12 bytes per candidate.
    pub fn exp_p_by(
        data: &mut [TokenData], max: f32, values: &mut [f32; SUM_BLOCK], sums: &mut [f64],
    ) -> f64 => exp_p_on by isa;
    /// Writes e^(logit - max), with NaN as minus infinity, as probabilities, and returns their sum
    /// in `float`, as if added in order.
    pub fn exp_p_in_order_by(
        data: &mut [TokenData], max: f32, values: &mut [f32; SUM_BLOCK],
    ) -> f32 => exp_p_in_order_on by isa;
}

/// Returns the instruction set for e^(x - max) of values whose largest is `largest`. Only in an
/// array that is wrongly marked as sorted can `largest` be too far above `max` for the tables.
/// Called once per array, since a comparison for each register costs more.
#[inline]
pub fn isa_for(largest: f32, max: f32) -> Isa {
    if largest - max >= HIGHEST {
        return Isa::SCALAR;
    }
    Isa::exact(Function::Exp)
}

/// Replaces every x of at most a block by e^(x - max).
#[inline(always)]
// In bounds: a remainder has fewer elements than a register has lanes.
pub fn exp_block<V: Vector>(v: V, xs: &mut [f32], max: f32) {
    if V::WIDENS_FROM_MEMORY {
        for chunk in xs.chunks_exact_mut(V::LANES) {
            v.store(chunk, difference(v, chunk, max));
        }
    }
    let mut chunks = xs.chunks_exact_mut(V::LANES);
    for chunk in &mut chunks {
        let x = if V::WIDENS_FROM_MEMORY {
            v.load_widened(chunk)
        } else {
            v.widen(difference(v, chunk, max))
        };
        let exponentials = v.exp(x);
        v.store_narrowed(chunk, exponentials);
    }
    let rest = chunks.into_remainder();
    if rest.is_empty() {
        return;
    }
    let mut padded = [f32::NEG_INFINITY; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let exponentials = v.exp(v.widen(difference(v, &padded, max)));
    v.store_narrowed(&mut padded, exponentials);
    rest.copy_from_slice(&padded[..rest.len()]);
}

#[inline(always)]
fn difference<V: Vector>(v: V, chunk: &[f32], max: f32) -> V::F {
    difference_of(v, v.load(chunk), max)
}

#[inline(always)]
fn difference_of<V: Vector>(v: V, x: V::F, max: f32) -> V::F {
    let x = v.sub(x, v.splat(max));
    // Lower numbers would round to 0 as well. NaN stays NaN.
    v.max(v.splat(LOWEST), x)
}

#[inline(always)]
fn exp_sum_on<V: Vector>(v: V, start: f32, xs: &mut [f32], max: f32) -> f32 {
    let mut sum = start;
    for block in xs.chunks_mut(SUM_BLOCK) {
        exp_block(v, block, max);
        sum = add_block(v, sum, block);
    }
    sum
}

#[inline(always)]
fn exp_sum_double_on<V: Vector>(v: V, xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64 {
    let mut sum = 0.0;
    for (block, to) in xs.chunks_mut(SUM_BLOCK).zip(sums) {
        exp_block(v, block, max);
        sum = add_floats_in_order(v, sum, block);
        *to = sum;
    }
    sum
}

#[inline(always)]
fn exp_p_on<V: Vector>(
    v: V,
    data: &mut [TokenData],
    max: f32,
    values: &mut [f32; SUM_BLOCK],
    sums: &mut [f64],
) -> f64 {
    let mut sum = 0.0;
    for (block, to) in data.chunks_mut(SUM_BLOCK).zip(sums) {
        let next = block.as_ptr().wrapping_add(SUM_BLOCK);
        let values = exponentials_of(v, block, max, next, values);
        sum = add_floats_in_order(v, sum, values);
        *to = sum;
        write_p(v, block, values);
    }
    sum
}

#[inline(always)]
fn exp_p_in_order_on<V: Vector>(
    v: V,
    data: &mut [TokenData],
    max: f32,
    values: &mut [f32; SUM_BLOCK],
) -> f32 {
    let mut sum = 0.0;
    for block in data.chunks_mut(SUM_BLOCK) {
        let next = block.as_ptr().wrapping_add(SUM_BLOCK);
        let values = exponentials_of(v, block, max, next, values);
        sum = add_block(v, sum, values);
        write_p(v, block, values);
    }
    sum
}

/// Writes e^(logit - max) of a block into `values`. Meanwhile the block at `next` is prefetched
/// into the first-level cache, since computing takes longer than reading.
#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` candidates, and a remainder fewer than a register.
fn exponentials_of<'v, V: Vector>(
    v: V,
    block: &[TokenData],
    max: f32,
    next: *const TokenData,
    values: &'v mut [f32; SUM_BLOCK],
) -> &'v [f32] {
    let lowest = v.splat(f32::NEG_INFINITY);
    let values = &mut values[..block.len()];
    let chunks = block.chunks_exact(V::LANES);
    let rest = chunks.remainder();
    for (chunk, to) in chunks.zip(values.chunks_exact_mut(V::LANES)) {
        let x = v.max(v.load_logits(chunk), lowest);
        v.store(to, difference_of(v, x, max));
    }
    let mut next = next;
    let mut to = values.chunks_exact_mut(V::LANES);
    for chunk in &mut to {
        prefetch_candidates(v, next);
        next = next.wrapping_add(V::LANES);
        let exponentials = v.exp(v.load_widened(chunk));
        v.store_narrowed(chunk, exponentials);
    }
    if rest.is_empty() {
        return values;
    }
    let mut last = [f32::NEG_INFINITY; MAX_LANES];
    for (candidate, x) in rest.iter().zip(&mut last) {
        *x = comparable(candidate.logit);
    }
    let exponentials = v.exp(v.widen(difference(v, &last, max)));
    v.store_narrowed(&mut last, exponentials);
    to.into_remainder().copy_from_slice(&last[..rest.len()]);
    values
}

/// A distance below the maximum at which the exponential is 0 as a `float`, and as a `double` does
/// not change a sum of 1 or more.
const LOWEST_DOUBLE: f64 = -120.0;

#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` elements, and a remainder fewer than a register.
fn exp_double_on<V: Vector>(v: V, start: f64, xs: &mut [f32], max: f32) -> f64 {
    let mut terms = [0.0; SUM_BLOCK];
    let mut sum = start;
    for block in xs.chunks_mut(SUM_BLOCK) {
        let terms = &mut terms[..block.len()];
        let mut chunks = block.chunks_exact_mut(V::LANES);
        let mut to = terms.chunks_exact_mut(V::LANES);
        for (chunk, to) in (&mut chunks).zip(&mut to) {
            exponentiate_doubles(v, chunk, to, max);
        }
        let (rest, to) = (chunks.into_remainder(), to.into_remainder());
        let mut padded = [f32::NEG_INFINITY; MAX_LANES];
        let mut doubles = [0.0; MAX_LANES];
        padded[..rest.len()].copy_from_slice(rest);
        exponentiate_doubles(v, &mut padded[..V::LANES], &mut doubles[..V::LANES], max);
        rest.copy_from_slice(&padded[..rest.len()]);
        to.copy_from_slice(&doubles[..rest.len()]);
        sum = add_in_order(v, sum, terms);
    }
    sum
}

/// Replaces a register of x by e^(x - max); `to` receives the results before they are rounded.
#[inline(always)]
// In bounds: the caller passes whole registers.
fn exponentiate_doubles<V: Vector>(v: V, chunk: &mut [f32], to: &mut [f64], max: f32) {
    let max = v.splat_d(f64::from(max));
    let lowest = v.splat_d(LOWEST_DOUBLE);
    let [low, high] = v.load_widened(chunk);
    let low = v.exp_d(v.max_d(v.sub_d(low, max), lowest));
    let high = v.exp_d(v.max_d(v.sub_d(high, max), lowest));
    v.store_d(to, low);
    v.store_d(&mut to[V::LANES / 2..], high);
    v.store_narrowed(chunk, [low, high]);
}

/// Writes `exp(logit - max)` into every `p` one by one, and returns their sum in `double`, added in
/// array order. For the few candidates at the end of a chain.
pub fn exponentiate(data: &mut [TokenData], max: f32) -> f64 {
    let mut sum = 0.0f64;
    for candidate in data {
        candidate.p = libm::exp(comparable(candidate.logit) - max);
        sum += f64::from(candidate.p);
    }
    sum
}
