//! Dist: draws a candidate with the probability that softmax gives it.
//!
//! Probabilities are `exp(logit - max)` over their sum, added in array order in `double`; one `double` of std::mt19937 is drawn
//! per non-empty array, also for a single candidate; the choice is the first whose running sum reaches draw * sum.
//! Three passes of 12 bytes per candidate (two if the array is sorted), one `exp` each.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels;
use crate::rng::SeededMt19937;
use crate::sampler::{Kind, Sampler};

/// Draws from the distribution and writes the probabilities.
#[derive(Clone, Debug)]
pub struct Dist {
    rng: SeededMt19937,
}

impl Dist {
    /// `seed` 0xFFFFFFFF takes a random seed, again at each reset.
    pub fn new(seed: u32) -> Self {
        let rng = SeededMt19937::new(seed);
        Self { rng }
    }
}

impl Sampler for Dist {
    const KIND: Kind = Kind::Selector;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"dist"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            candidates.select(None);
            return;
        }
        let draw = self.rng.stream.uniform();
        if let [only] = candidates.as_mut_slice() {
            only.p = 1.0;
            candidates.select(Some(0));
            return;
        }
        let max = candidates.max_logit();
        let data = candidates.as_mut_slice();
        let (_, sum) = kernels::exponentiate(data, max);

        let target = sum * draw;
        let mut running = 0.0f64;
        let mut chosen = None;
        for (i, candidate) in data.iter_mut().enumerate() {
            if chosen.is_none() {
                running += f64::from(candidate.p);
                if running >= target {
                    chosen = Some(i);
                }
            }
            candidate.p = (f64::from(candidate.p) / sum) as f32;
        }
        // The sum is NaN when the largest logit is infinite: nothing is ever reached, and the built-in takes the last.
        let last = data.len() - 1;
        candidates.select(Some(chosen.unwrap_or(last)));
    }

    fn reset(&mut self) {
        self.rng.restart();
    }

    fn seed(&self) -> Option<u32> {
        Some(self.rng.current_seed())
    }
}
