//! Min-k: cuts at the steepest fall of the sorted logits (Ding et al. 2026).
//!
//! With x the descending logits, the fall after the first k is weighted by `1 / k`, and the
//! candidates before the largest weighted fall stay (the first of equal falls). If the logits are
//! nearly equal, at least `floor(tau / (x_1 - x_n + 1e-8))` stay. Masked candidates do not count
//! and are dropped, unless all are masked. Candidates keep their order, and equal ones stay or are
//! removed together.
//!
//! The falls are compared in `double`. Once the remaining fall is too small, the rest of the order
//! does not matter, so usually only the largest are read.

use std::ffi::CStr;

use super::lists::{Kept, Picked};
use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::kernels::layout::GROUP;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::token::comparable;

/// Keeps the candidates before the steepest fall.
#[derive(Clone, Debug)]
pub struct MinK {
    tau: f32,
    /// A buffer for the largest logits, in descending order.
    picked: Scratch<Picked>,
    kept: Scratch<Kept>,
}

/// A number that is added to the range of the logits, so that the divisor is never 0.
const NEARLY_0: f64 = 1e-8;

/// The number of largest candidates that are read first.
const FEW: usize = 64;

impl MinK {
    /// Returns a sampler; `None` if `tau` disables it: `tau < 0`.
    pub fn new(tau: f32) -> Option<Self> {
        if tau < 0.0 {
            return None;
        }
        Some(Self {
            tau,
            picked: Scratch::default(),
            kept: Scratch::default(),
        })
    }

    /// Returns the smallest logit that is kept. `None` if the picked logits, which descend, do not
    /// determine it.
    fn least(&self, all: Outline) -> Option<f32> {
        let picked = &self.picked[..];
        let cliff = cliff(picked, all)?;
        let range = f64::from(*picked.first()?) - f64::from(all.lowest);
        let flat = (f64::from(self.tau) / (range + NEARLY_0)).floor();
        let kept = (flat as usize).clamp(cliff, all.n);
        picked.get(kept - 1).copied()
    }
}

/// The number of candidates that are not masked, and the smallest of their logits.
#[derive(Clone, Copy, Debug)]
struct Outline {
    n: usize,
    lowest: f32,
}

impl Outline {
    fn of(logits: impl Iterator<Item = f32>) -> Self {
        let none = Self {
            n: 0,
            lowest: f32::INFINITY,
        };
        logits.fold(none, |Self { n, lowest }, x| match x > f32::NEG_INFINITY {
            true => Self {
                n: n + 1,
                lowest: if x < lowest { x } else { lowest },
            },
            false => Self { n, lowest },
        })
    }
}

/// Returns the number of candidates before the steepest fall. `None` if these largest logits do not
/// determine it.
fn cliff(descending: &[f32], all: Outline) -> Option<usize> {
    let (mut cliff, mut steepest) = (1, 0.0);
    let falls = descending.windows(2).zip(1..);
    for (pair, n) in falls {
        let &[before, behind] = pair else { continue };
        let weighted = |to: f32| (f64::from(before) - f64::from(to)) / f64::from(n);
        if weighted(behind) > steepest {
            (cliff, steepest) = (n as usize, weighted(behind));
        }
        if weighted(all.lowest) <= steepest {
            return Some(cliff);
        }
    }
    (descending.len() == all.n).then_some(cliff)
}

impl MinK {
    /// Keeps the `n` largest of the picked logits, and sorts them.
    fn sort_largest(&mut self, n: usize) {
        let descending = |a: &f32, b: &f32| b.total_cmp(a);
        if n < self.picked.len() {
            self.picked.select_nth_unstable_by(n, descending);
            self.picked.truncate(n);
        }
        self.picked.sort_unstable_by(descending);
    }

    /// Returns the smallest logit that is kept of a vocabulary.
    fn least_of_whole(&mut self, whole: &mut Whole<'_, '_>, all: Outline) -> Option<f32> {
        for n in [FEW, whole.n_vocab() / GROUP / 2, all.n] {
            let largest = match n < all.n {
                true => whole.largest(n.max(1)),
                false => whole.at_least(f32::MIN),
            };
            self.picked.clear();
            self.picked.extend(largest.iter().map(|c| c.logit));
            self.sort_largest(all.n);
            if let Some(least) = self.least(all) {
                return Some(least);
            }
        }
        None
    }
}

impl Sampler for MinK {
    fn name(&self) -> &'static CStr {
        c"min-k"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("tau", f64::from(self.tau));
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        self.warm_up(candidates.len());
        let logits = candidates.as_slice().iter().map(|c| comparable(c.logit));
        let all = Outline::of(logits.clone());
        for n in [FEW, all.n] {
            self.picked.clear();
            self.picked
                .extend(logits.clone().filter(|&x| x > f32::NEG_INFINITY));
            self.sort_largest(n);
            if let Some(least) = self.least(all) {
                return candidates.retain(|c| c.logit >= least);
            }
        }
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        self.warm_up(whole.n_vocab());
        let all = Outline::of(whole.contiguous().iter().map(|&x| comparable(x)));
        let Some(least) = self.least_of_whole(&mut whole, all) else {
            return true;
        };
        self.kept.extend_from_slice(whole.at_least(least));
        if self.kept.len() < whole.n_vocab() {
            whole.keep(&self.kept, false);
        }
        true
    }

    scratch!(picked, kept);
}
