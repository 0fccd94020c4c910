//! Handles the ends of arrays, which do not fill a whole register, and prefetches.

use crate::simd::{MAX_LANES, Vector};
use crate::token::TokenData;

/// A candidate that fills an array up to whole registers.
const PADDING: TokenData = TokenData::new(0, f32::NEG_INFINITY);

/// Returns the last candidates, which are fewer than a register holds, and padding.
#[inline(always)]
pub(super) fn padded_candidates(rest: &[TokenData]) -> [TokenData; MAX_LANES] {
    let mut padded = [PADDING; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// The last elements of an array, as many as a register has lanes. A pass whose result does not
/// change if elements are processed twice processes these instead of a loop over the remainder.
/// Some of them are then also in another register.
pub(super) trait LastChunk {
    /// Returns the last elements, as many as a register has lanes; `None` if there are too few.
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self>;

    /// Returns the last elements, as many as a register has lanes, to be rewritten; `None` if there
    /// are too few.
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self>;
}

impl<T> LastChunk for [T] {
    #[inline(always)]
    // In bounds: otherwise the subtraction would have failed.
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self> {
        self.len().checked_sub(V::LANES).map(|at| &self[at..])
    }

    #[inline(always)]
    // In bounds: otherwise the subtraction would have failed.
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self> {
        self.len().checked_sub(V::LANES).map(|at| &mut self[at..])
    }
}

/// The prefetch distance, in candidates, of a pass that writes them. The processor prefetches what
/// a loop reads, but not what it only writes, so each store would wait for its cache line.
pub(super) const AHEAD: usize = 128;

/// The prefetch distance of a pass that computes so much with each element that the processor
/// itself reads only a few elements ahead.
pub(super) const FAR: usize = 2 * AHEAD;

/// Prefetches the cache lines of a register's candidates, which may be outside the array.
#[inline(always)]
pub(super) fn prefetch_candidates<V: Vector>(v: V, at: *const TokenData) {
    for offset in (0..V::LANES * size_of::<TokenData>()).step_by(64) {
        v.prefetch(at.wrapping_byte_add(offset));
    }
}
