//! Top-H: keeps the most probable candidates while their entropy, after normalisation, is at most
//! alpha times the entropy of all candidates (Potraghloo et al. 2025).
//!
//! Let x be the descending logits and m the largest of them, and let `Z = sum(exp(x - m))` and `S =
//! sum((m - x) * exp(x - m))` over the first k. Their entropy is `ln Z + S / Z`, which rises with
//! k. It is compared in `double`. Masked candidates are not kept, unless all are masked. The kept
//! candidates are sorted, with their probabilities among all. An array takes a sort of all
//! candidates. Straight from the logits only the largest are read, and the sort of the kept
//! candidates is deferred.

use std::ffi::CStr;

use super::lists::{Picked, Ps};
use super::threshold::{entropy_of, exact_entropy};
use crate::algorithms::host_order::{HostOrder, overflows};
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::kernels;
use crate::kernels::compact::pick;
use crate::kernels::layout::GROUP;
use crate::kernels::logits::Logits;
use crate::metrics::Summary;
use crate::pool::{First, Whole};
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::exp_f64;
use crate::token::comparable;

/// Keeps the most probable candidates while their entropy is at most a fraction of the entropy of
/// all candidates.
#[derive(Clone, Debug)]
pub struct TopH {
    alpha: f32,
    work: Scratch<Workspace>,
    order: Scratch<HostOrder>,
    /// A buffer for the largest logits, in ascending order of token.
    picked: Scratch<Picked>,
    /// A buffer for a copy of `picked` in descending order.
    descending: Scratch<Ps>,
}

/// The largest relative error of the entropy of all candidates, as one pass computes it, and so of
/// the limit, which is alpha times that entropy.
const ERROR: f64 = 2e-6;

/// The entropy below which one fast pass is too imprecise, since it adds every term below e^-130 as
/// e^-130.
const TINY: f64 = 1e-40;

/// The number of largest candidates that are read first.
const FEW: usize = 64;

impl TopH {
    /// Returns a sampler that always keeps the most probable candidate. `None` if `alpha` disables
    /// it: `alpha >= 1`.
    pub fn new(alpha: f32) -> Option<Self> {
        if alpha >= 1.0 {
            return None;
        }
        Some(Self {
            alpha,
            work: Scratch::default(),
            order: Scratch::default(),
            picked: Scratch::default(),
            descending: Scratch::default(),
        })
    }

    fn most(&self, entropy: f64) -> f64 {
        f64::from(self.alpha) * entropy
    }

    /// Picks the `n` largest unmasked logits, and perhaps more; none if they cannot be found
    /// quickly.
    fn pick_largest(&mut self, whole: &mut Whole<'_, '_>, n: usize) {
        self.picked.clear();
        if n < whole.n_vocab() {
            let largest = whole.largest(n.max(1)).iter();
            self.picked.extend(largest.map(|c| c.logit));
        } else {
            let logits = whole.contiguous();
            pick(logits, logits, f32::MIN, f32::INFINITY, &mut self.picked);
        }
        self.descending.clear();
        self.descending.extend_from_slice(&self.picked);
        self.descending.sort_unstable_by(|a, b| b.total_cmp(a));
    }

    /// Returns the number of candidates that are kept of a vocabulary whose entropy is about
    /// `entropy`, and the logit of the last one. `None` if the picked logits do not determine them.
    /// If `all` is true, the picked logits are those of all candidates, otherwise only the largest.
    fn end(&self, whole: &mut Whole<'_, '_>, entropy: f64, all: bool) -> Option<(usize, f32)> {
        let logits = &self.descending[..];
        let kept = |entropy: f64| kept(logits.iter().copied(), self.most(entropy));
        let (mut n, most) = (kept(entropy * (1.0 - ERROR)), kept(entropy * (1.0 + ERROR)));
        if n != most || entropy < TINY {
            n = kept(exact_entropy(whole.contiguous().iter().copied()));
        }
        let is_known = all || n < logits.len();
        let last = *logits.get(n.checked_sub(1)?)?;
        is_known.then_some((n, last))
    }
}

/// Returns the largest number of first candidates whose entropy is at most `most`; at least 1 if
/// there is a candidate. The logits must descend.
fn kept(mut logits: impl Iterator<Item = f32>, most: f64) -> usize {
    let Some(first) = logits.next() else {
        return 0;
    };
    let (mut others, mut spread) = (0.0, 0.0);
    let ends = |logit: f32| {
        let below = f64::from(first) - f64::from(logit);
        let e = exp_f64(-below);
        others += e;
        spread += below * e;
        // NaN fails a comparison, and so ends the sum.
        let is_kept = e > 0.0 && entropy_of(others, spread) <= most;
        !is_kept
    };
    1 + logits.map(ends).take_while(|ends| !ends).count()
}

/// Sorts by descending logit, with the lower token first among equals.
fn sort_by_logit(candidates: &mut Candidates<'_>) {
    let data = candidates.as_mut_slice();
    data.sort_unstable_by(|a, b| {
        let [a_logit, b_logit] = [a, b].map(|c| comparable(c.logit));
        b_logit.total_cmp(&a_logit).then(a.id.cmp(&b.id))
    });
    candidates.set_sorted(true);
}

impl Sampler for TopH {
    fn name(&self) -> &'static CStr {
        c"top-h"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("alpha", f64::from(self.alpha));
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let max = kernels::max_logit(candidates.as_slice(), false);
        if max == f32::NEG_INFINITY {
            return;
        }
        let entropy = exact_entropy(candidates.as_slice().iter().map(|c| c.logit));
        candidates.softmax(&mut self.work);
        if overflows(max) && !candidates.is_sorted() {
            // In this case the host's order need not begin with the largest logit.
            sort_by_logit(candidates);
        }
        candidates.sort(&mut self.order);
        let logits = candidates.as_slice().iter().map(|c| c.logit);
        let kept = kept(logits, self.most(entropy));
        candidates.truncate(kept);
    }

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        // The buffers get the size for this vocabulary, however many candidates are kept.
        self.warm_up(whole.n_vocab());
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        if overflows(max) {
            return false;
        }
        let (n_vocab, sum) = (logits.len(), kernels::softmax_sum(logits, max));
        let entropy = Summary::of(Logits::F32(logits)).entropy().unwrap_or(0.0);
        // The maxima of the blocks serve to find the largest logits, if there are enough blocks.
        let blocks = n_vocab / GROUP;
        for n in [FEW, blocks / 2, blocks - blocks / 16, n_vocab] {
            self.pick_largest(&mut whole, n);
            let Some((n, last)) = self.end(&mut whole, entropy, n == n_vocab) else {
                continue;
            };
            let first = First {
                n,
                last,
                sum,
                sorted: n_vocab,
            };
            whole.keep_first(first, max, &mut self.picked);
            return true;
        }
        false
    }

    scratch!(work, order, picked, descending);
}
