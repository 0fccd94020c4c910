//! The ranks of a few numbers by comparing each with all, without branches that depend on them:
//! between two tokens a model runs, and what branches were taken is forgotten by then.

use crate::simd::{MAX_LANES, Vector, dispatched};

/// So many numbers can be ranked.
pub const MOST: usize = 64;

dispatched! {
    /// Writes for each of `xs`, [`MOST`] at most and none of them NaN or minus infinity, how many
    /// are larger, or equal and before it.
    pub fn ranks(xs: &[f32], to: &mut [u32]) => ranks_on;
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: at most `MOST` numbers, which is a multiple of the lanes"
)]
fn ranks_on<V: Vector>(v: V, xs: &[f32], to: &mut [u32]) {
    let mut padded = [f32::NEG_INFINITY; MOST];
    padded[..xs.len()].copy_from_slice(xs);
    let used = &padded[..xs.len().next_multiple_of(V::LANES)];
    for (i, (&x, to)) in xs.iter().zip(to).enumerate() {
        let one = v.splat(x);
        let (mut larger, mut equal) = (0u64, 0u64);
        for (at, others) in used.chunks_exact(V::LANES).enumerate() {
            let others = v.load(others);
            larger |= u64::from(v.lt(one, others)) << (at * V::LANES);
            equal |= u64::from(v.eq(one, others)) << (at * V::LANES);
        }
        let before = (1 << i) - 1;
        *to = (larger | equal & before).count_ones();
    }
}

const _: () = assert!(MOST == u64::BITS as usize && MOST.is_multiple_of(MAX_LANES));

#[cfg(test)]
mod tests;
