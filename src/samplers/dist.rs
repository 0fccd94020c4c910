//! Dist: draws a candidate with the probability that softmax gives it.
//!
//! Probabilities are `exp(logit - max)` over their sum, added in array order in `double`; one `double` of std::mt19937 is drawn
//! per non-empty array, also for a single candidate; the choice is the first whose running sum reaches draw * sum.
//! The sum is formed in any order and kept for every block of candidates, among which the choice is a binary search; only a draw that falls within
//! the rounding error of the border between two candidates makes it add in order. `p` is multiplied by the reciprocal of the sum in `double`, which moves it by 1
//! ulp at most.
//!
//! Reads 12 bytes per candidate, one `exp` each, and writes 12.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::Workspace;
use crate::rng::SeededMt19937;
use crate::sampler::{Kind, Sampler};

/// Draws from the distribution and writes the probabilities.
#[derive(Clone, Debug)]
pub struct Dist {
    rng: SeededMt19937,
    work: Workspace,
}

impl Dist {
    /// `seed` 0xFFFFFFFF takes a random seed, again at each reset.
    pub fn new(seed: u32) -> Self {
        Self {
            rng: SeededMt19937::new(seed),
            work: Workspace::default(),
        }
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
        let sum = self
            .work
            .exponentiate_double(candidates.as_slice(), candidates.is_sorted());
        let chosen = self
            .work
            .choose(sum, draw, |values| one_by_one(values, draw));
        self.work
            .write_p_scaled(candidates.as_mut_slice(), 1.0 / sum);
        candidates.select(Some(chosen));
    }

    fn reset(&mut self) {
        self.rng.restart();
    }

    fn seed(&self) -> Option<u32> {
        Some(self.rng.current_seed())
    }
}

/// The choice in the operations of the built-in.
fn one_by_one(values: &[f32], draw: f64) -> usize {
    let sum = values.iter().fold(0.0f64, |sum, &p| sum + f64::from(p));
    let target = sum * draw;
    let mut running = 0.0f64;
    let chosen = values.iter().position(|&p| {
        running += f64::from(p);
        running >= target
    });
    // The sum is NaN when the largest logit is infinite: nothing is ever reached, and the built-in takes the last.
    chosen.unwrap_or(values.len() - 1)
}
