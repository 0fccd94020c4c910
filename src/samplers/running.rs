//! The running sum at which top-p and locally typical sampling cut, and the condition that ends it.

use crate::kernels;

/// The number of probabilities that are added before the sum is compared.
pub(super) const SUMMED_AT_ONCE: usize = 512;

/// The condition for the first of some ranked candidates to be enough: their probabilities have
/// reached `sum`, and there are at least `n` of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Enough {
    pub sum: f32,
    pub n: usize,
}

impl Enough {
    /// True if `n` candidates with this sum are enough.
    #[inline(always)]
    pub(super) fn at(&self, sum: f32, n: usize) -> bool {
        sum >= self.sum && n >= self.n
    }
}

/// A `float` sum of probabilities in order. It ends once enough candidates are kept.
#[derive(Debug, Default)]
pub(super) struct Running {
    sum: f32,
    /// The number of probabilities added.
    pub(super) count: usize,
}

impl Running {
    /// Adds the probabilities `ps`. Returns the number of candidates that are enough; `None` if
    /// more are needed.
    pub(super) fn add(&mut self, ps: &[f32], enough: Enough) -> Option<usize> {
        let after = kernels::sum(self.sum, ps);
        let start = self.count;
        self.count += ps.len();
        // The nucleus does not end within the block, since its sum stays below, or since too few
        // candidates are kept.
        if after < enough.sum || self.count < enough.n {
            self.sum = after;
            return None;
        }
        for (i, x) in ps.iter().enumerate() {
            self.sum += x;
            if enough.at(self.sum, start + i + 1) {
                return Some(start + i + 1);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the last candidate of a block may be the one that makes the sum enough.
    #[test]
    fn a_block_ends_where_it_has_enough() {
        for (n, sum, expected) in [
            (4, 0.1, Some(4)),
            (5, 0.1, None),
            (1, 2.0, Some(4)),
            (1, 1.5, Some(3)),
            (1, 2.5, None),
        ] {
            let mut running = Running::default();
            assert_eq!(running.add(&[0.5; 4], Enough { sum, n }), expected);
            assert_eq!(running.count, 4);
        }
    }
}
