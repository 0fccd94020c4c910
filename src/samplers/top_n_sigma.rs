//! Top-n-sigma: masks every logit that is more than n standard deviations below the largest (Tang
//! et al. 2024).
//!
//! Masked candidates get minus infinity and stay in the array. Mean and deviation leave out what is
//! masked already; both are `float` sums in array order, the squares formed in `double`; they are
//! formed only where bounds for them leave a candidate open (see [`SigmaBounds`]).
//!
//! Reads 12 bytes per candidate twice and writes them once. Where a candidate is left open, or
//! masked already, reads them once or twice more.

use std::ffi::CStr;

use crate::algorithms::Scratch;
use crate::algorithms::scratch::clone_by_field;
use crate::algorithms::sigma_bounds::SigmaBounds;
use crate::candidates::Candidates;
use crate::pool::Pool;
use crate::sampler::Sampler;

/// Masks what lies far below the largest logit.
#[derive(Debug)]
pub struct TopNSigma {
    n: f32,
    deviation: Scratch<SigmaBounds>,
}

clone_by_field!(TopNSigma { n, deviation });

impl TopNSigma {
    /// `None` if `n` disables it: `n <= 0`.
    pub fn new(n: f32) -> Option<Self> {
        (n > 0.0).then(|| Self {
            n,
            deviation: Scratch::default(),
        })
    }

    /// Makes room for what `n` candidates can take.
    pub(crate) fn warm_up(&mut self, n: usize) {
        self.deviation.warm_up(n);
    }
}

impl Sampler for TopNSigma {
    fn name(&self) -> &'static CStr {
        c"top-n-sigma"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.len() <= 1 {
            return;
        }
        self.deviation.mask(candidates.as_mut_slice(), self.n);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if pool.is_whole()
            && pool.len() > 1
            && let Some((column, maxima, max)) = pool.column_and_maxima()
        {
            return self.deviation.mask_logits(column, maxima, max, self.n);
        }
        pool.apply(|candidates| self.apply(candidates));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithms::fallbacks::Fallback;
    use crate::token::TokenData;

    /// The threshold in the operations of the built-in, one by one.
    fn one_by_one(logits: &[f32], n: f32) -> f32 {
        let left = || logits.iter().filter(|&&x| x != f32::NEG_INFINITY);
        let count = left().count() as f32;
        let mean = left().fold(0.0, |sum, x| sum + x) / count;
        let square = |sum: f32, x: &f32| (f64::from(sum) + f64::from(x - mean).powi(2)) as f32;
        let deviation = (left().fold(0.0, square) / count).sqrt();
        left().fold(f32::NEG_INFINITY, |max, &x| max.max(x)) - n * deviation
    }

    /// What is masked already needs the exact sums, and so does what lies at the threshold.
    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn arrays_that_rounding_decides_are_masked_alike() {
        const LEN: usize = 5000;
        let spread = |i: usize| (i * 7919 % LEN) as f32 / 600.0 - 3.0;
        let mut logits: Vec<f32> = (0..LEN).map(spread).collect();
        for masked in [false, true] {
            if masked {
                logits[77] = f32::NEG_INFINITY;
            }
            // Moving it moves the threshold, a little less each time.
            for _ in 0..9 {
                logits[8] = one_by_one(&logits, 1.0);
            }
            let candidate = |(&logit, id): (&f32, i32)| TokenData { id, logit, p: 0.0 };
            let mut data: Vec<_> = logits.iter().zip(0..).map(candidate).collect();
            let before = Fallback::Sigma.count();
            let mut candidates = Candidates::new(&mut data, false);
            let mut sampler = TopNSigma::new(1.0).expect("1 masks something");
            sampler.apply(&mut candidates);
            assert!(Fallback::Sigma.count() > before, "masked: {masked}");
            let threshold = one_by_one(&logits, 1.0);
            for (ours, &x) in data.iter().zip(&logits) {
                let expected = if x < threshold { f32::NEG_INFINITY } else { x };
                assert_eq!(ours.logit, expected, "masked: {masked}");
            }
        }
    }
}
