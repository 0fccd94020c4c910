//! Copies the logits, 4 bytes per candidate, and finds their extremes in the same pass.

use super::compact::{Selection, extend};
use super::registers::LastChunk;
use crate::simd::{Vector, dispatched};
use crate::token::{TokenData, comparable};

/// The properties of an array of candidates, found while its logits were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// The largest logit; minus infinity if there is none.
    pub max: f32,
    /// The smallest logit except minus infinity; `f32::MAX` if there is none.
    pub min: f32,
    /// True if the id of each candidate is its index, and no logit is NaN.
    pub plain: bool,
}

dispatched! {
    /// Copies the logits, NaN as minus infinity, and returns the largest. Reads 12 bytes per
    /// candidate and writes 4.
    pub fn copy_logits(data: &[TokenData], to: &mut [f32]) -> f32 => copy_logits_on;
    /// Copies the logits, NaN as minus infinity, and returns the properties of the logits and the
    /// ids.
    pub fn copy_column(data: &[TokenData], to: &mut [f32]) -> Column => column_on;
    fn copy_column_selecting(
        data: &[TokenData], to: &mut [f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>,
    ) -> Column => column_selecting_on;
}

/// Copies the logits, NaN as minus infinity, and returns the properties of the logits and the ids.
/// Reads 12 bytes per candidate and writes 4.
pub fn column(data: &[TokenData], to: &mut Vec<f32>) -> Column {
    to.resize(data.len(), 0.0);
    copy_column(data, to)
}

/// Copies the logits as [`column`](column()) does, and appends the indices and values of those at
/// or above `threshold`.
pub fn column_selecting(
    data: &[TokenData],
    to: &mut Vec<f32>,
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) -> Column {
    to.resize(data.len(), 0.0);
    copy_column_selecting(data, to, threshold, indices, picked)
}

/// Implements [`copy_logits`], from the front: a backward pass would slow down the next pass, which
/// reads the copy.
#[inline(always)]
pub fn copy_logits_on<V: Vector>(v: V, data: &[TokenData], to: &mut [f32]) -> f32 {
    assert_eq!(data.len(), to.len());
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    let (Some(last), Some(to_last)) = (data.last_chunk_of::<V>(), to.last_chunk_of_mut::<V>())
    else {
        let mut max = f32::NEG_INFINITY;
        for (candidate, to) in data.iter().zip(to) {
            *to = comparable(candidate.logit);
            max = max.max(*to);
        }
        return max;
    };
    // NaN becomes minus infinity.
    let x = v.max(v.load_logits(last), lowest);
    v.store(to_last, x);
    max = v.max(x, max);
    let chunks = data.chunks_exact(V::LANES);
    for (chunk, to) in chunks.zip(to.chunks_exact_mut(V::LANES)) {
        let x = v.max(v.load_logits(chunk), lowest);
        v.store(to, x);
        max = v.max(x, max);
    }
    v.reduce_max(max)
}

#[inline(always)]
fn column_on<V: Vector>(v: V, data: &[TokenData], to: &mut [f32]) -> Column {
    column_and::<V, false>(v, data, to, &mut Selection::none(v))
}

#[inline(always)]
// In bounds: the lengths are equal: asserted; `whole` is at most that.
fn column_selecting_on<V: Vector>(
    v: V,
    data: &[TokenData],
    to: &mut [f32],
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) -> Column {
    let mut selection = Selection::new(v, data.len(), threshold, indices, picked);
    let column = column_and::<V, true>(v, data, to, &mut selection);
    let count = selection.count;
    // SAFETY: that many were appended.
    unsafe { extend(count, indices, picked) };
    let whole = data.len() - data.len() % V::LANES;
    for (&x, i) in to[whole..].iter().zip(whole as u32..) {
        if x >= threshold {
            indices.push(i);
            picked.push(x);
        }
    }
    column
}

#[inline(always)]
fn column_and<V: Vector, const SELECT: bool>(
    v: V,
    data: &[TokenData],
    to: &mut [f32],
    selection: &mut Selection<'_, V>,
) -> Column {
    assert_eq!(data.len(), to.len());
    let lowest = v.splat(f32::NEG_INFINITY);
    let mut max = lowest;
    let mut min = v.splat(f32::MAX);
    let mut plain = true;
    let mut first = 0;
    let mut chunks = data.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let x = v.load_logits(chunk);
        plain &= v.ids_count_from(chunk, first) && v.eq(x, x).count_ones() as usize == V::LANES;
        // NaN becomes minus infinity.
        let x = v.max(x, lowest);
        v.store(to, x);
        if SELECT {
            selection.push(v, x);
        }
        max = v.max(x, max);
        let x = v.select_lt(x, v.splat(f32::MIN), v.splat(f32::MAX), x);
        min = v.select_lt(x, min, x, min);
        first += V::LANES as u32;
    }
    let mut column = Column {
        max: v.reduce_max(max),
        min: -v.reduce_max(v.sub(v.splat(0.0), min)),
        plain,
    };
    for (candidate, to) in chunks.remainder().iter().zip(rest.into_remainder()) {
        *to = comparable(candidate.logit);
        column.plain &= candidate.id as u32 == first && !candidate.logit.is_nan();
        column.max = column.max.max(*to);
        if *to != f32::NEG_INFINITY {
            column.min = column.min.min(*to);
        }
        first += 1;
    }
    column
}
