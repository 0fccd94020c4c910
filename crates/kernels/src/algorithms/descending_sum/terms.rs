//! Computes the terms of a descending sum.

use crate::kernels::entropy::entropies;
use crate::kernels::layout::CHUNK;
use crate::kernels::rewrite::divide;

/// The number of different keys of half-way terms beyond which sorting is cheaper.
pub(super) const MANY: usize = 16;

/// The kinds of terms that are added up in the order of the exponentials.
#[derive(Clone, Copy, Debug)]
pub(super) enum Terms {
    /// The exponentials themselves.
    Exponentials,
    /// The probabilities, given the sum of all exponentials.
    Probabilities(f32),
    /// The terms of the entropy, given the sum of all exponentials.
    Entropies(f32),
}

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

    /// Returns the sum of all exponentials, if the terms are those of an entropy.
    pub(super) fn sum(self) -> Option<f32> {
        match self {
            Self::Exponentials | Self::Probabilities(_) => None,
            Self::Entropies(sum) => Some(sum),
        }
    }
}
