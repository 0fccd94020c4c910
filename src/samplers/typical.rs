//! Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy, until
//! their probabilities exceed p (Meister et al. 2022).
//!
//! Sorts all candidates by logit, then keeps some in the order of their distance from the entropy.
//! Where distances are equal, which they often are on both sides of the entropy, the order is that
//! of the built-in's second sort, and decides where the cut falls (see
//! [`host_order`](crate::algorithms::host_order)).
//!
//! A candidate of probability 0 (a masked one, say) makes the built-in's entropy NaN, since
//! 0 * ln 0 is, and then no score is less than another: all are tied.
//!
//! A large array is not sorted: sum and entropy are found without the order (see
//! [`DescendingSum`]), which takes the probabilities of the largest candidates and the logarithms
//! of these. Within the distance of those next below all are known; it is shortened to what their
//! probabilities prove, and only what is as near is ranked: beside the two sums some passes of 8
//! bytes for each that is taken. Only where a tie stands among what is kept, or at the cut, both
//! sorts are replayed.

use std::ffi::CStr;
use std::hint::black_box;
use std::ops::Range;

use super::running::{Enough, Running, SUMMED_AT_ONCE};
use crate::algorithms::argsort::Ranking;
use crate::algorithms::descending_sum::DescendingSum;
use crate::algorithms::fallbacks::Fallback;
use crate::algorithms::host_order::introsort::{self, Wanted};
use crate::algorithms::host_order::{HostOrder, Item, any_equal, item, overflows, place};
use crate::algorithms::scratch::clone_by_field;
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::kernels;
use crate::pool::Pool;
use crate::sampler::Sampler;
use crate::simd::libm::ln;
use crate::token::{Token, TokenData};

/// Keeps the locally typical candidates, most typical first.
#[derive(Debug)]
pub struct Typical {
    p: f32,
    min_keep: usize,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
    /// The candidates by distance from the entropy, where that is replayed.
    scores: Scratch<Vec<Item>>,
    ranking: Scratch<Ranking>,
    kept: Scratch<Vec<TokenData>>,
    descending: Scratch<DescendingSum>,
    /// The distances of what may be kept, negative.
    nearness: Scratch<Vec<f32>>,
    /// Which of these are ranked, and their distances; then which they are in order.
    near: Scratch<Vec<u32>>,
    picked: Scratch<Vec<f32>>,
    /// Their probabilities.
    ps: Scratch<Vec<f32>>,
    /// Whether there were ties, as there then will be again. Only a guess, for speed.
    tied: bool,
}

clone_by_field!(Typical {
    p,
    min_keep,
    order,
    work,
    scores,
    ranking,
    kept,
    descending,
    nearness,
    near,
    picked,
    ps,
    tied
});

/// What the most typical candidates are: as few as exceed `p`, at least `min_keep`.
fn enough(p: f32, min_keep: usize) -> Enough<f32> {
    Enough {
        sum: p.next_up(),
        n: min_keep,
    }
}

/// The same of sums in double precision.
pub(crate) fn enough_double(p: f32, min_keep: usize) -> Enough<f64> {
    Enough {
        sum: f64::from(p).next_up(),
        n: min_keep,
    }
}

impl Typical {
    /// Keeps at least `min_keep` candidates. `None` if `p` disables it: `p >= 1`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p >= 1.0 {
            return None;
        }
        Some(Self {
            p,
            min_keep,
            order: Scratch::default(),
            work: Scratch::default(),
            scores: Scratch::default(),
            ranking: Scratch::default(),
            kept: Scratch::default(),
            descending: Scratch::default(),
            nearness: Scratch::default(),
            near: Scratch::default(),
            picked: Scratch::default(),
            ps: Scratch::default(),
            tied: false,
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// Makes room for what `n` candidates can take: however many are taken, an array of this size
    /// has warmed up.
    fn reserve(&mut self, n: usize) {
        for buffer in [&mut self.nearness, &mut self.picked, &mut self.ps] {
            buffer.clear();
            buffer.reserve(n + 64);
        }
        self.near.clear();
        self.near.reserve(n + 64);
        self.ranking.reserve(n);
        self.kept.clear();
        self.kept.reserve(n);
    }

    /// The same for replaying both sorts, too: the first tie may come late in a text.
    fn reserve_either_way(&mut self, n: usize) {
        self.reserve(n);
        self.order.warm_up(n);
        self.work.warm_up(n);
        self.scores.clear();
        self.scores.reserve(n);
    }

    /// The same whichever way is taken, before there are any candidates.
    pub(crate) fn warm_up(&mut self, n: usize) {
        self.reserve_either_way(n);
        self.descending.reserve(n);
        self.order.warm_up_top(n);
    }

    /// Keeps what is to be kept without sorting all. Says whether it could.
    fn keep_by_sums(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() || self.tied || flushes_to_zero() {
            return false;
        }
        let data = candidates.as_slice();
        self.reserve_either_way(data.len());
        let beside = self.beside();
        let sum = self.descending.sum(data, beside);
        let Some(kept) = self.rank_kept(data.len(), sum) else {
            return false;
        };
        self.keep_ranked(candidates, kept);
        true
    }

    /// The same of the logits of a vocabulary.
    #[expect(
        clippy::indexing_slicing,
        reason = "`kept` is at most the number of what was ranked, which are places of what was taken"
    )]
    fn keep_of_whole(&mut self, pool: &mut Pool<'_>) -> bool {
        if self.tied || flushes_to_zero() {
            return false;
        }
        let Some((logits, max)) = pool.contiguous_numbers() else {
            return false;
        };
        let n = logits.len();
        self.reserve_either_way(n);
        let beside = self.beside();
        let sum = self.descending.sum_of_logits(logits, max, beside);
        let Some(kept) = self.rank_kept(n, sum) else {
            return false;
        };
        let taken = self.descending.taken();
        let ranked = self.near[..kept]
            .iter()
            .map(|&i| i as usize)
            .zip(self.ps.iter());
        touch(taken.indices);
        touch(taken.logits);
        self.kept.extend(ranked.map(|(i, &p)| TokenData {
            id: taken.indices[i] as Token,
            logit: taken.logits[i],
            p,
        }));
        pool.keep(&self.kept, false);
        true
    }

    /// What share of the probabilities is added up without being taken.
    fn beside(&self) -> f32 {
        (BESIDE * (1.0 - self.p)).clamp(0.001, 0.2)
    }

    /// Ranks what is to be kept of `n` candidates, given the sum of all exponentials. Gives how
    /// many there are, if it could without sorting.
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
            Nearest::Beyond => {
                Fallback::Typical.note();
                None
            }
        }
    }

    /// Takes of `n` candidates until those within some distance from the entropy have probabilities
    /// that together exceed `p`, and gives the distance within which they do so by little.
    fn take_enough(&mut self, n: usize, sum: f32, entropy: f32, beside: f32) -> f32 {
        // Far more than rounding makes of a sum.
        let enough = self.p + 2e-4;
        let mut beside = beside;
        loop {
            let taken = self.descending.taken();
            self.nearness.resize(taken.lns.len(), 0.0);
            kernels::nearness(taken.lns, entropy, &mut self.nearness);
            if taken.indices.len() == n {
                return f32::INFINITY;
            }
            // Within it nothing is that was not taken, whatever rounding does.
            let reach = -ln(self.descending.most_left(sum)) - entropy - 1e-3;
            let mass = self.mass_within(reach);
            if mass > enough {
                return self.shorten(reach, mass, enough);
            }
            beside /= 4.0;
            self.descending.take_more(sum, beside);
        }
    }

    /// A distance up to `reach`, within which is `mass`, that has more than `enough` within it, by
    /// little.
    fn shorten(&self, reach: f32, mass: f32, enough: f32) -> f32 {
        let (mut short, mut mass_of_short) = (0.0, 0.0);
        let (mut reach, mut mass) = (reach, mass);
        for _ in 0..SHORTENINGS {
            // Aimed a little beyond, so that it is the longer one that is moved.
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

    /// The sum of the probabilities of what is taken within `reach`, about.
    fn mass_within(&self, reach: f32) -> f32 {
        kernels::sum_above(&self.nearness, self.descending.taken().ps, -reach)
    }

    /// Ranks the candidates within `reach`, and tells how many of the nearest have a sum that
    /// exceeds `p`.
    #[expect(
        clippy::indexing_slicing,
        reason = "ranked are places of `nearness`, one for each that is taken; `start` and `end` are at most as many as are ranked, and what `running` counts is less"
    )]
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
            let kept = running.add(&self.ps[start..], enough(self.p, self.min_keep));
            // Together with the first that is not kept, or not looked at yet.
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
    #[expect(
        clippy::indexing_slicing,
        reason = "`n` is at most the number of what was ranked, which are places of what was taken, and those of the candidates"
    )]
    fn keep_ranked(&mut self, candidates: &mut Candidates<'_>, n: usize) {
        let taken = self.descending.taken();
        let ranked = self.near[..n]
            .iter()
            .map(|&i| i as usize)
            .zip(self.ps.iter());
        touch(taken.indices);
        touch(taken.logits);
        if self.descending.column().plain {
            // Then no candidate need be fetched from the array, which lies further away, and it can
            // be written.
            let data = candidates.as_mut_slice();
            for (to, (i, &p)) in data.iter_mut().zip(ranked) {
                *to = TokenData {
                    id: taken.indices[i] as Token,
                    logit: taken.logits[i],
                    p,
                };
            }
            return candidates.truncate(n);
        }
        let data = candidates.as_slice();
        let kept = ranked.map(|(i, &p)| TokenData {
            p,
            ..data[taken.indices[i] as usize]
        });
        self.kept.clear();
        self.kept.extend(kept);
        candidates.replace(&self.kept);
    }

    /// Keeps what is to be kept in the built-in's own way: ranks all by logit, and as far as needed
    /// by distance.
    #[expect(
        clippy::indexing_slicing,
        reason = "what is kept are ranks, of which there is one for each candidate, as of probabilities"
    )]
    fn keep_in_order(&mut self, candidates: &mut Candidates<'_>) {
        let ranked = !candidates.is_sorted() && self.order.rank_loosely(candidates.as_slice());
        if !ranked {
            candidates.sort_with_softmax(&mut self.order, &mut self.work);
        }
        let data = candidates.as_slice();
        self.reserve(data.len());
        if ranked {
            let sorted = self.order.ranking().sorted();
            let sum = self.work.exponentiate_sorted(sorted);
            self.ps.extend_from_slice(self.work.values());
            kernels::divide(&mut self.ps, sum);
        } else {
            self.ps.extend(data.iter().map(|candidate| candidate.p));
        }
        self.rank_by_distance();
        let ranks = self.near.iter().map(|&rank| rank as usize);
        if ranked {
            self.order.settle_ranks(&self.near);
            let places = self.order.ranking().indices();
            self.kept.extend(ranks.map(|rank| TokenData {
                p: self.ps[rank],
                ..data[places[rank] as usize]
            }));
        } else {
            self.kept.extend(ranks.map(|rank| data[rank]));
        }
        candidates.replace(&self.kept);
        candidates.set_sorted(false);
    }

    /// Leaves in `near` the ranks by logit of what is kept, nearest first.
    fn rank_by_distance(&mut self) {
        self.find_distances();
        self.scores.clear();
        let scores = self.nearness.iter().enumerate();
        self.scores.extend(scores.map(|(i, &x)| item(x, i)));
        let mut kept = Kept {
            ps: &self.ps,
            p: self.p,
            min_keep: self.min_keep,
            sum: 0.0,
            ranks: &mut self.near,
        };
        introsort::sort(&mut self.scores, &mut kept);
        // The first that is not kept stands behind the kept ones, if it has been sorted at all.
        let kept = self.scores.get(..self.near.len() + 1);
        self.tied &= any_equal(kept.unwrap_or(&self.scores));
    }

    /// Finds how far each surprisal is from the entropy, negative; all alike where that is NaN.
    fn find_distances(&mut self) {
        let ps = &self.ps;
        self.nearness.resize(ps.len(), 0.0);
        // From 0 on, which is what the fast sum asks for, and without one that makes it NaN.
        let ordinary = |&p: &f32| p > 0.0 && p <= 1.0;
        let entropy = if ps.iter().all(ordinary) {
            kernels::entropies(ps, &mut self.nearness);
            kernels::sum(0.0, &self.nearness)
        } else {
            ps.iter().fold(0.0, |entropy, p| entropy + -p * ln(*p))
        };
        if entropy.is_nan() {
            return self.nearness.fill(0.0);
        }
        self.picked.resize(ps.len(), 0.0);
        kernels::lns(ps, &mut self.picked);
        kernels::nearness(&self.picked, entropy, &mut self.nearness);
    }
}

/// What ranking the nearest candidates gave.
enum Nearest {
    /// So many are kept, and no two of them, nor the first that is not, are equally near.
    Distinct(usize),
    /// Two are.
    Tied,
    /// The probabilities within reach are not enough.
    Beyond,
}

fn is_tied(pair: &[f32]) -> bool {
    matches!(pair, [a, b] if a == b)
}

/// The candidates that are kept, as the second sort finds them.
struct Kept<'a> {
    ps: &'a [f32],
    p: f32,
    min_keep: usize,
    sum: f32,
    ranks: &'a mut Vec<u32>,
}

impl Wanted for Kept<'_> {
    fn wants(&mut self, _: &mut [Item], _: Range<usize>) -> bool {
        true
    }

    fn take(&mut self, items: &[Item], _: Range<usize>) -> bool {
        for &item in items {
            let rank = place(item);
            self.ranks.push(rank as u32);
            self.sum += self.ps.get(rank).copied().unwrap_or(0.0);
            if self.sum > self.p && self.ranks.len() >= self.min_keep {
                return false;
            }
        }
        true
    }
}

/// What of the probability beyond `p` is not taken at first.
const BESIDE: f32 = 0.35;
/// How often a distance is shortened: each takes a pass of 8 bytes per selected candidate, and
/// spares the ranking of some.
const SHORTENINGS: usize = 3;

/// Reads an array in order that will be read in none: so it comes into the cache in half the time.
fn touch<T: Copy>(xs: &[T]) {
    const LINE: usize = 64;
    for x in xs.iter().step_by(LINE / size_of::<T>()) {
        std::hint::black_box(*x);
    }
}

/// Whether this thread takes denormal numbers for zero, as a program may ask of its processor. More
/// probabilities are 0 then, and one of them makes the entropy NaN.
fn flushes_to_zero() -> bool {
    black_box(f32::MIN_POSITIVE) / 2.0 == 0.0
}

impl Sampler for Typical {
    fn name(&self) -> &'static CStr {
        c"typical"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        if !self.keep_by_sums(candidates) {
            self.keep_in_order(candidates);
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if !(pool.is_whole() && self.keep_of_whole(pool)) {
            pool.apply(|candidates| self.apply(candidates));
        }
    }
}

#[cfg(test)]
mod tests;
