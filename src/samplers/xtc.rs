//! XTC, "exclude top choices": with a given chance removes every candidate above a threshold but
//! the least probable of them, to make text less predictable (p-e-w, text-generation-webui pull
//! request 6335).
//!
//! One `float` of std::mt19937 per array of two or more candidates decides whether anything
//! happens. If so: a sort of all candidates and two passes of 12 bytes each with one `exp`. What is
//! removed is the head of the array, which costs nothing.

use std::ffi::CStr;

use crate::algorithms::Workspace;
use crate::algorithms::host_order::HostOrder;
use crate::candidates::Candidates;
use crate::pool::Pool;
use crate::rng::SeededMt19937;
use crate::sampler::Sampler;

/// Removes the most probable candidates, sometimes.
#[derive(Clone, Debug)]
pub struct Xtc {
    probability: f32,
    threshold: f32,
    min_keep: usize,
    rng: SeededMt19937,
    order: HostOrder,
    work: Workspace,
}

impl Xtc {
    /// Acts with chance `probability` on candidates of probability `threshold` or more, and leaves
    /// at least `min_keep`. `seed` 0xFFFFFFFF takes a random seed, again at each reset. `None` if
    /// the parameters disable it: `probability <= 0` or `threshold > 0.5`, above which no two
    /// candidates can be.
    pub fn new(probability: f32, threshold: f32, min_keep: usize, seed: u32) -> Option<Self> {
        if probability <= 0.0 || threshold > 0.5 {
            return None;
        }
        Some(Self {
            probability,
            threshold,
            min_keep,
            rng: SeededMt19937::new(seed),
            order: HostOrder::default(),
            work: Workspace::default(),
        })
    }
}

impl Sampler for Xtc {
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"xtc"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if self.acts_on(candidates.len()) {
            self.exclude(candidates);
        }
    }

    /// Nothing is done to most pools.
    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if self.acts_on(pool.len()) {
            pool.apply(|candidates| self.exclude(candidates));
        }
    }

    fn reset(&mut self) {
        self.rng.restart();
    }
}

impl Xtc {
    /// Whether it acts on so many candidates; draws if there are two or more.
    fn acts_on(&mut self, n: usize) -> bool {
        // Written so that a NaN acts, as in the built-in.
        let spared = n < 2 || self.rng.stream.uniform_f32() > self.probability;
        !spared
    }

    fn exclude(&mut self, candidates: &mut Candidates<'_>) {
        candidates.sort_with_softmax(&mut self.order, &mut self.work);
        let data = candidates.as_slice();
        let above = data.iter().take_while(|c| c.p >= self.threshold).count();
        // The least probable of those above the threshold stays.
        let removed = above.saturating_sub(1);
        if removed > 0 && data.len() - removed >= self.min_keep {
            candidates.drop_front(removed);
        }
    }
}
