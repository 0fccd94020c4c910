//! Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy, until
//! their probabilities exceed p (Meister et al. 2022).
//!
//! The built-in sorts all candidates by logit, and then keeps some in the order of their distance
//! from the entropy. Two candidates often have equal distances, one on each side of the entropy.
//! Their order is then that of the built-in's second sort, and may decide where the cut is (see
//! [`ByDistance`]).
//!
//! A candidate of probability 0, such as a masked one, makes the built-in's entropy NaN, since 0 *
//! ln 0 is NaN. Then no score is less than another, so all candidates are tied.
//!
//! A large array is not sorted: [`DescendingSum`] finds sum and entropy without the order, from the
//! probabilities of the largest candidates and their logarithms. Every candidate that is nearer to
//! the entropy than the most probable of the remaining ones is then known. That distance is reduced
//! as far as the probabilities allow, and only candidates within it are ranked. Both sorts are
//! replayed only if there is a tie among the kept candidates or at the cut.

mod by_distance;

use std::ffi::CStr;
use std::hint::black_box;

use super::lists::{Column, Kept, Picked, Places, Ps};
use super::running::{Enough, Running, SUMMED_AT_ONCE};
use crate::algorithms::argsort::Ranking;
use crate::algorithms::descending_sum::{DescendingSum, Taken};
use crate::algorithms::host_order::{HostOrder, is_easy, overflows};
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::host_profile::{Fused, fuses};
use crate::kernels;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::simd::libm::ln;
use crate::token::{Token, TokenData};
use by_distance::{ByDistance, Cut};

/// Keeps the locally typical candidates, the most typical ones first.
#[derive(Clone, Debug)]
pub struct Typical {
    cut: Cut,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
    by_distance: Scratch<ByDistance>,
    ranking: Scratch<Ranking>,
    kept: Scratch<Kept>,
    descending: Scratch<DescendingSum>,
    /// For each candidate that may be kept, the negative of its distance from the entropy.
    nearness: Scratch<Column>,
    /// The indices in `nearness` of the candidates to rank; then these in the order of the ranks.
    near: Scratch<Places>,
    /// The values in `nearness` of the candidates to rank.
    picked: Scratch<Picked>,
    /// The probabilities of the ranked candidates.
    ps: Scratch<Ps>,
    /// True if the last array had ties. It is a prediction for the next array, and affects only the
    /// speed.
    tied: bool,
    /// True after the first array. This affects only the speed.
    began: bool,
}

/// Returns the condition of the kept candidates: the fewest most typical ones that exceed `p`, but
/// at least `min_keep`.
fn enough(cut: Cut) -> Enough {
    Enough {
        sum: cut.p.next_up(),
        n: cut.min_keep,
    }
}

impl Typical {
    /// Returns a sampler that keeps at least `min_keep` candidates. `None` if `p` disables it:
    /// `p >= 1`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p >= 1.0 {
            return None;
        }
        Some(Self {
            cut: Cut { p, min_keep },
            order: Scratch::default(),
            work: Scratch::default(),
            by_distance: Scratch::default(),
            ranking: Scratch::default(),
            kept: Scratch::default(),
            descending: Scratch::default(),
            nearness: Scratch::default(),
            near: Scratch::default(),
            picked: Scratch::default(),
            ps: Scratch::default(),
            tied: false,
            began: false,
        })
    }

    /// Cuts without sorting all candidates. Returns false if that is not possible.
    fn keep_by_sums(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() || self.tied || has_own_entropy() {
            return false;
        }
        let data = candidates.as_slice();
        // An array that is ordered, or has few different values, usually has ties among the
        // distances as well.
        if !std::mem::replace(&mut self.began, true) && is_easy(data) {
            return false;
        }
        self.warm_up(data.len());
        let beside = self.beside();
        let sum = self.descending.sum(data, beside);
        let Some(kept) = self.rank_kept(data.len(), sum) else {
            return false;
        };
        self.keep_ranked(candidates, kept);
        true
    }

    /// Returns the share of the probability mass whose candidates are at first only summed, not
    /// selected.
    fn beside(&self) -> f32 {
        (BESIDE * (1.0 - self.cut.p)).clamp(0.001, 0.2)
    }

    /// Ranks the candidates to keep of `n`, given the sum of all exponentials. Returns their
    /// number; `None` if all candidates have to be sorted.
    fn rank_kept(&mut self, n: usize, sum: Option<f32>) -> Option<usize> {
        let sum = sum.filter(|_| !overflows(self.descending.column().max))?;
        let entropy = self.descending.entropy(sum)?;
        let reach = self.take_enough(n, sum, entropy, self.beside());
        match self.rank_nearest(reach) {
            Nearest::Distinct(kept) => Some(kept),
            Nearest::Tied => {
                self.tied = true;
                None
            }
            Nearest::Beyond => None,
        }
    }

    /// Selects from `n` candidates until the probabilities of those within some distance from the
    /// entropy together exceed `p`. Returns a distance within which they exceed `p` only slightly;
    /// infinity if all candidates were selected.
    fn take_enough(&mut self, n: usize, sum: f32, entropy: f32, beside: f32) -> f32 {
        // The margin is far larger than the rounding error of a sum.
        let enough = self.cut.p + 2e-4;
        let mut beside = beside;
        loop {
            let taken = self.descending.taken();
            self.nearness.resize(taken.lns.len(), 0.0);
            kernels::nearness(taken.lns, entropy, &mut self.nearness);
            if taken.indices.len() == n {
                return f32::INFINITY;
            }
            // Every candidate within this distance was selected, whatever rounding does.
            let reach = -ln(self.descending.most_left(sum)) - entropy - 1e-3;
            let mass = self.mass_within(reach);
            if mass > enough {
                return self.shorten(reach, mass, enough);
            }
            beside /= 4.0;
            self.descending.take_more(sum, beside);
        }
    }

    /// Returns a distance of at most `reach` within which the sum of the probabilities exceeds
    /// `enough` only slightly. Those within `reach` add up to `mass`.
    fn shorten(&self, reach: f32, mass: f32, enough: f32) -> f32 {
        let (mut short, mut mass_of_short) = (0.0, 0.0);
        let (mut reach, mut mass) = (reach, mass);
        for _ in 0..SHORTENINGS {
            // The aim is slightly beyond the estimate, so that the longer distance shrinks.
            let share = (enough - mass_of_short) / (mass - mass_of_short);
            let middle = short + (reach - short) * (share + 0.02).min(1.0);
            if middle >= reach {
                break;
            }
            let within = self.mass_within(middle);
            if within > enough {
                (reach, mass) = (middle, within);
            } else {
                (short, mass_of_short) = (middle, within);
            }
        }
        reach
    }

    /// Returns the approximate sum of the selected probabilities within `reach`.
    fn mass_within(&self, reach: f32) -> f32 {
        kernels::sum_above(&self.nearness, self.descending.taken().ps, -reach)
    }

    /// Ranks the candidates within `reach`, and finds the number of nearest ones whose sum exceeds
    /// `p`.
    // In bounds: the ranking has indices of `nearness`, which has one entry per selected candidate;
    // `start`, `end` and the count of `running` are at most the number ranked.
    fn rank_nearest(&mut self, reach: f32) -> Nearest {
        let taken = self.descending.taken();
        self.near.clear();
        self.picked.clear();
        kernels::select(&self.nearness, -reach, &mut self.near, &mut self.picked);
        self.ranking
            .rank_selected(&self.nearness, &self.near, &self.picked);
        self.near.clear();
        self.near.extend_from_slice(self.ranking.indices());
        let distances = self.ranking.sorted();
        let p = |&i: &u32| taken.ps[i as usize];
        self.ps.clear();
        let mut running = Running::default();
        while self.ps.len() < distances.len() {
            let start = self.ps.len();
            let end = distances.len().min(start + SUMMED_AT_ONCE);
            self.ps.extend(self.near[start..end].iter().map(p));
            let kept = running.add(&self.ps[start..], enough(self.cut));
            // The first candidate that is not kept, or not yet read, is included.
            let seen = distances.len().min(kept.unwrap_or(end) + 1);
            if distances[start..seen].windows(2).any(is_tied) {
                return Nearest::Tied;
            }
            if let Some(kept) = kept {
                return match -distances[kept - 1] < reach {
                    true => Nearest::Distinct(kept),
                    false => Nearest::Beyond,
                };
            }
        }
        Nearest::Beyond
    }

    /// Keeps the first `n` of the ranked candidates.
    // In bounds: `n` is at most the number ranked; the ranking holds indices of selected
    // candidates, and these are indices of the array.
    fn keep_ranked(&mut self, candidates: &mut Candidates<'_>, n: usize) {
        let ranked = ranked(self.descending.taken(), &self.near[..n], &self.ps);
        if self.descending.column().plain {
            // In this case no candidate need be read from the array, which is less likely to be
            // cached, and the array can be overwritten.
            let data = candidates.as_mut_slice();
            data.iter_mut().zip(ranked).for_each(|(to, c)| *to = c);
            return candidates.truncate(n);
        }
        let data = candidates.as_slice();
        let kept = ranked.map(|c| TokenData {
            p: c.p,
            ..data[c.id as usize]
        });
        self.kept.clear();
        self.kept.extend(kept);
        candidates.replace(&self.kept);
    }

    /// Cuts by the built-in's own steps.
    fn keep_in_order(&mut self, candidates: &mut Candidates<'_>) {
        let buffers = (&mut *self.order, &mut *self.work);
        self.tied &= self.by_distance.keep(candidates, buffers, self.cut);
    }
}

/// Returns candidates with these ranks and probabilities, with indices of the array as ids.
// In bounds: the caller has ranked indices of selected candidates.
fn ranked<'a>(
    taken: Taken<'a>,
    places: &'a [u32],
    ps: &'a [f32],
) -> impl Iterator<Item = TokenData> + 'a {
    touch(taken.indices);
    touch(taken.logits);
    places.iter().zip(ps).map(move |(&i, &p)| {
        let i = i as usize;
        TokenData {
            id: taken.indices[i] as Token,
            logit: taken.logits[i],
            p,
        }
    })
}

/// The result of ranking the nearest candidates.
enum Nearest {
    /// The number of candidates kept. No two candidates among these and the first one that is not
    /// kept are equally near.
    Distinct(usize),
    /// Two of these candidates are equally near.
    Tied,
    /// The probabilities within the distance are not enough.
    Beyond,
}

fn is_tied(pair: &[f32]) -> bool {
    matches!(pair, [a, b] if a == b)
}

/// The share of the probability beyond `p` that is not selected at first.
const BESIDE: f32 = 0.35;
/// The number of times that a distance is reduced. Each time takes a pass of 8 bytes per selected
/// candidate, and saves the ranking of some candidates.
const SHORTENINGS: usize = 3;

/// Reads an array in order before it is read in random order. Reading in order brings it into the
/// cache in half the time.
fn touch<T: Copy>(xs: &[T]) {
    const LINE: usize = 64;
    for x in xs.iter().step_by(LINE / size_of::<T>()) {
        std::hint::black_box(*x);
    }
}

/// True if the built-in fuses the terms of the entropy, or treats denormal terms as 0.
fn has_own_entropy() -> bool {
    fuses(Fused::TypicalEntropy) || flushes_to_zero()
}

/// True if denormal results are flushed to zero on this thread. More of the built-in's
/// probabilities are then 0, and a single one of these makes the entropy NaN.
fn flushes_to_zero() -> bool {
    black_box(f32::MIN_POSITIVE) / 2.0 == 0.0
}

impl Sampler for Typical {
    fn name(&self) -> &'static CStr {
        c"typical"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("p", f64::from(self.cut.p));
            to("min_keep", self.cut.min_keep as f64);
        }
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        if !self.keep_by_sums(candidates) {
            self.keep_in_order(candidates);
        }
    }

    // In bounds: `kept` is at most the number of ranked candidates; the ranking has indices of the
    // selected ones.
    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        if self.tied || has_own_entropy() {
            return false;
        }
        let Some((logits, max)) = whole.contiguous_numbers() else {
            return false;
        };
        let n = logits.len();
        self.warm_up(n);
        let beside = self.beside();
        let sum = self.descending.sum_of_logits(logits, max, beside);
        let Some(kept) = self.rank_kept(n, sum) else {
            return false;
        };
        let ranked = ranked(self.descending.taken(), &self.near[..kept], &self.ps);
        self.kept.extend(ranked);
        whole.keep(&self.kept, false);
        true
    }

    scratch!(
        order,
        work,
        by_distance,
        ranking,
        kept,
        descending,
        nearness,
        near,
        picked,
        ps
    );
}

#[cfg(test)]
mod tests;
