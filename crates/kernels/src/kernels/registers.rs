//! The ends of arrays, which fill no whole register, and cache lines asked for ahead.

use crate::simd::{MAX_LANES, Vector};
use crate::token::TokenData;

/// Candidates whose logits do not matter: they fill an array up to whole registers.
const PADDING: TokenData = TokenData {
    id: 0,
    logit: f32::NEG_INFINITY,
    p: 0.0,
};

/// The last candidates, fewer than a register's, and padding.
#[inline(always)]
pub(super) fn padded_candidates(rest: &[TokenData]) -> [TokenData; MAX_LANES] {
    let mut padded = [PADDING; MAX_LANES];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// The last elements of an array, as many as a register has lanes. Passes whose results do not
/// depend on what comes twice end with them, instead of going through the remainder one by one;
/// some of the elements then belong to the register before, too.
pub(super) trait LastChunk {
    /// `None` if there are too few.
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self>;

    /// Returns the last elements, as many as a register has lanes, to rewrite; `None` if there are
    /// too few.
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self>;
}

impl<T> LastChunk for [T] {
    #[inline(always)]
    // In bounds: the subtraction would have failed.
    fn last_chunk_of<V: Vector>(&self) -> Option<&Self> {
        self.len().checked_sub(V::LANES).map(|at| &self[at..])
    }

    #[inline(always)]
    // In bounds: the subtraction would have failed.
    fn last_chunk_of_mut<V: Vector>(&mut self) -> Option<&mut Self> {
        self.len().checked_sub(V::LANES).map(|at| &mut self[at..])
    }
}

/// The prefetch distance, in candidates, of a pass that writes without having read. The processor
/// asks early for what a loop reads, but not for what it writes, and stores would wait for one line
/// after the other.
pub(super) const AHEAD: usize = 128;

/// The prefetch distance of a pass that computes so much with what it reads that the processor has
/// little of what comes next in view.
pub(super) const FAR: usize = 2 * AHEAD;

/// Asks for the cache lines of the candidates of a register; they may be outside of the array.
#[inline(always)]
pub(super) fn prefetch_candidates<V: Vector>(v: V, at: *const TokenData) {
    for offset in (0..V::LANES * size_of::<TokenData>()).step_by(64) {
        v.prefetch(at.wrapping_byte_add(offset));
    }
}
