//! XTC, "exclude top choices": with a given chance removes every candidate at or above a threshold
//! except the least probable of them, to make text less predictable (p-e-w, text-generation-webui
//! pull request 6335).
//!
//! One `float` of std::mt19937 per array of two or more candidates decides whether candidates are
//! removed. They are the first ones of the sorted array.

use std::ffi::CStr;

use crate::algorithms::descending_sum::DescendingSum;
use crate::algorithms::host_order::{HostOrder, overflows};
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::pool::{Pool, Whole};
use crate::rng::SeededMt19937;
use crate::sampler::{About, Sampler, Tell, scratch};

/// Sometimes removes the most probable candidates.
#[derive(Clone, Debug)]
pub struct Xtc {
    probability: f32,
    threshold: f32,
    min_keep: usize,
    rng: SeededMt19937,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
    descending: Scratch<DescendingSum>,
}

impl Xtc {
    /// Returns a sampler that acts with chance `probability` on candidates of probability
    /// `threshold` or more, and leaves at least `min_keep`. `seed` 0xFFFFFFFF means a random seed,
    /// which changes at each reset. `None` if the parameters disable it: `probability <= 0`, or
    /// `threshold > 0.5`, which no two candidates can reach.
    pub fn new(probability: f32, threshold: f32, min_keep: usize, seed: u32) -> Option<Self> {
        if Self::is_disabled(probability, threshold) {
            return None;
        }
        Some(Self {
            probability,
            threshold,
            min_keep,
            rng: SeededMt19937::new(seed),
            order: Scratch::default(),
            work: Scratch::default(),
            descending: Scratch::default(),
        })
    }

    pub(crate) fn is_disabled(probability: f32, threshold: f32) -> bool {
        probability <= 0.0 || threshold > 0.5
    }

    /// Changes the parameters; the random stream continues.
    pub(crate) fn set(&mut self, probability: f32, threshold: f32, min_keep: usize) {
        self.probability = probability;
        self.threshold = threshold;
        self.min_keep = min_keep;
    }

    /// Returns the generator that decides whether the sampler acts.
    pub(crate) fn rng(&self) -> &SeededMt19937 {
        &self.rng
    }

    pub(crate) fn rng_mut(&mut self) -> &mut SeededMt19937 {
        &mut self.rng
    }
}

/// The share of the probabilities that is summed without exact exponentials, as in mirostat.
const BESIDE: f32 = 0.15;

impl Sampler for Xtc {
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"xtc"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => {
                to("probability", f64::from(self.probability));
                to("threshold", f64::from(self.threshold));
                to("min_keep", self.min_keep as f64);
            }
            About::Next => to("draw", f64::from(self.rng.stream.clone().uniform_f32())),
            About::Token(_) => {}
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if self.acts_on(candidates.len()) {
            self.exclude(candidates);
        }
    }

    /// Applies the sampler to a pool, which stays unchanged if the sampler does not act.
    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if !self.acts_on(pool.len()) {
            return;
        }
        let is_done = pool
            .whole()
            .is_some_and(|whole| self.exclude_of_whole(whole));
        if !is_done {
            pool.apply(|candidates| self.exclude(candidates));
        }
    }

    fn reset(&mut self) {
        self.rng.restart();
    }

    scratch!(order, work, descending);
}

impl Xtc {
    /// Returns true if the sampler acts on `n` candidates. Draws if there are two or more.
    fn acts_on(&mut self, n: usize) -> bool {
        // The comparison is such that a NaN `probability` acts, as in the built-in.
        let spared = n < 2 || self.rng.stream.uniform_f32() > self.probability;
        !spared
    }

    fn exclude(&mut self, candidates: &mut Candidates<'_>) {
        candidates.sort_with_softmax(&mut self.order, &mut self.work);
        let ps = candidates.as_slice().iter();
        let above = ps.take_while(|c| c.p >= self.threshold).count();
        let removed = self.removed(above, candidates.len());
        candidates.drop_front(removed);
    }

    /// Returns the number of candidates, of `n`, that are removed. The first `above` are at or
    /// above the threshold.
    fn removed(&self, above: usize, n: usize) -> usize {
        // The least probable of those above the threshold stays.
        let removed = above.saturating_sub(1);
        if n - removed < self.min_keep {
            return 0;
        }
        removed
    }

    /// Removes candidates of a vocabulary without sorting it. Returns false if that is not
    /// possible.
    fn exclude_of_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        // All candidates reach a threshold of 0, and none reaches a NaN.
        let has_few = self.threshold > 0.0;
        if !has_few {
            return false;
        }
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        let n = logits.len();
        let sum = self.descending.sum_of_logits(logits, max, BESIDE);
        let Some(sum) = sum.filter(|_| !overflows(max)) else {
            return false;
        };
        let ps = self.descending.ranked_at_least(sum, self.threshold);
        let above = ps.iter().take_while(|&&p| p >= self.threshold).count();
        let removed = self.removed(above, n);
        let (_, _, ranked) = self.descending.first_places(removed + 1);
        let Some(&first) = ranked.last() else {
            return false;
        };
        whole.put_in_order(removed, first);
        true
    }
}
