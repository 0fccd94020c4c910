//! Computes the terms of a descending sum.

use crate::kernels::entropy::entropies;
use crate::kernels::layout::CHUNK;
use crate::kernels::rewrite::divide;
use crate::kernels::rounding_test::Terms;

/// The number of different keys of half-way terms beyond which sorting is cheaper.
pub(super) const MANY: usize = 16;

impl Terms {
    /// Computes the terms of candidates with the exponentials `es`, and writes them to `to`.
    // In bounds: a chunk has at most `CHUNK` terms.
    pub(super) fn of(self, es: &[f32], to: &mut Vec<f32>) {
        to.clear();
        to.extend_from_slice(es);
        let sum = match self {
            Self::Exponentials => return,
            Self::Probabilities(sum) => return divide(to, sum),
            Self::Entropies(sum) => sum,
        };
        let mut ps = [0.0; CHUNK];
        for terms in to.chunks_mut(CHUNK) {
            let ps = &mut ps[..terms.len()];
            ps.copy_from_slice(terms);
            divide(ps, sum);
            entropies(ps, terms);
        }
    }
}
