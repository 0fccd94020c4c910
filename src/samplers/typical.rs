//! Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy, until their probabilities exceed p
//! (Meister et al. 2022).
//!
//! Sorts all candidates by logit, then keeps some in the order of their distance from the entropy: the visible order is part of the
//! contract. Candidates at equal distance keep their descending order. The built-in leaves them as its unstable sort happens to; since
//! their probabilities differ, that also moves the rounding of the sum, and the cut can fall one candidate apart.
//!
//! A candidate of probability 0 (a masked one, say) makes the built-in's entropy NaN, since 0 * ln 0 is, and then no score is less
//! than another: what its sort leaves of that is reproduced exactly.
//!
//! A large array is not sorted: sum and entropy are found without the order (see [`Descending`]), which takes the probabilities of the largest candidates and the logarithms of these. Within
//! the distance of those next below all are known; it is shortened to what their probabilities prove, and only what is as near is ranked: beside the two sums some passes of 8 bytes for
//! each that is taken. What does not go that way is sorted by logit; the most typical candidates then are neighbours, and are collected outwards from the entropy on both sides.
//!
//! What is ranked lies in no order in memory: fetching the probabilities, then indices and logits, of 29,000 takes as long as all passes over the array.

use std::ffi::CStr;

use super::running::{Running, SUMMED_AT_ONCE};
use crate::candidates::Candidates;
use crate::kernels::descending::Descending;
use crate::kernels::fallbacks::Fallback;
use crate::kernels::math::ln;
use crate::kernels::order::{Order, ascending, order_of_equals};
use crate::kernels::ranking::Ranking;
use crate::kernels::{self, Workspace};
use crate::sampler::Sampler;
use crate::token::{Token, TokenData};

/// Keeps the locally typical candidates, most typical first.
#[derive(Clone, Debug)]
pub struct Typical {
    p: f32,
    min_keep: usize,
    order: Order,
    work: Workspace,
    /// Keys by distance from the entropy.
    scores: Vec<u64>,
    ranking: Ranking,
    kept: Vec<TokenData>,
    descending: Descending,
    /// The distances of what may be kept, negative.
    nearness: Vec<f32>,
    /// Which of these are ranked, and their distances; then which they are in order.
    near: Vec<u32>,
    picked: Vec<f32>,
    /// Their probabilities.
    ps: Vec<f32>,
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
            order: Order::default(),
            work: Workspace::default(),
            scores: Vec::new(),
            ranking: Ranking::default(),
            kept: Vec::new(),
            descending: Descending::default(),
            nearness: Vec::new(),
            near: Vec::new(),
            picked: Vec::new(),
            ps: Vec::new(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// Makes room for what `n` candidates can take: however many are taken, an array of this size has warmed up.
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

    /// Keeps what is to be kept without sorting all. Says whether it could.
    fn keep_by_sums(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() {
            return false;
        }
        let data = candidates.as_slice();
        self.reserve(data.len());
        let beside = (BESIDE * (1.0 - self.p)).clamp(0.001, 0.2);
        let sum = self.descending.sum(data, beside);
        let Some(sum) = sum else {
            return false;
        };
        let Some(entropy) = self.descending.entropy(sum) else {
            return false;
        };
        let reach = self.take_enough(data.len(), sum, entropy, beside);
        let Some(kept) = self.rank_nearest(reach) else {
            Fallback::Typical.note();
            return false;
        };
        self.keep_ranked(candidates, kept);
        true
    }

    /// Takes of `n` candidates until those within some distance from the entropy have probabilities that together exceed `p`, and gives the distance within which they do so by little.
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

    /// A distance up to `reach`, within which is `mass`, that has more than `enough` within it, by little.
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

    /// Ranks the candidates within `reach`, and tells how many of the nearest have a sum that exceeds `p`, if those within `reach` do.
    #[expect(
        clippy::indexing_slicing,
        reason = "ranked are places of `nearness`, one for each that is taken; `start` and `end` are at most as many as are ranked, and what `running` counts is less"
    )]
    fn rank_nearest(&mut self, reach: f32) -> Option<usize> {
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
            let mut end = distances.len().min(start + SUMMED_AT_ONCE);
            while end < distances.len() && distances[end] == distances[end - 1] {
                end += 1;
            }
            let ranked = &mut self.near[start..end];
            order_ties(&distances[start..end], taken.logits, ranked);
            self.ps.extend(ranked.iter().map(p));
            // The sum must be above `p`.
            if let Some(kept) = running.add(&self.ps[start..], self.p.next_up(), self.min_keep) {
                return (-distances[kept - 1] < reach).then_some(kept);
            }
        }
        None
    }

    /// Keeps the first `n` of the ranked candidates.
    #[expect(
        clippy::indexing_slicing,
        reason = "`n` is at most the number of what was ranked, which are places of what was taken, and those of the candidates"
    )]
    fn keep_ranked(&mut self, candidates: &mut Candidates<'_>, n: usize) {
        let taken = self.descending.taken();
        let ranked = self.near[..n].iter().map(|&i| i as usize).zip(&self.ps);
        touch(taken.indices);
        touch(taken.logits);
        if self.descending.column().plain {
            // Then no candidate need be fetched from the array, which lies further away, and it can be written.
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

    /// Leaves the indices of `data` in `scores`, most typical first.
    fn rank(&mut self, data: &[TokenData], entropy: f32) {
        let scores = data.iter().enumerate();
        let scores = scores.map(|(i, candidate)| ascending(distance(candidate, entropy), i));
        self.scores.clear();
        self.scores.extend(scores);
        if entropy.is_nan() {
            order_of_equals(&mut self.scores);
        } else {
            self.ranking.sort(&mut self.scores);
        }
    }

    /// Collects candidates of `data`, which descends, outwards from the entropy on both sides until their sum exceeds `p`: no other candidate is scored.
    ///
    /// Says whether that is the order of the scores. It is if these rise on both sides, as surprisals do but for the rounding of `ln`; so
    /// the scores taken are compared, and those not taken that lie within many times that rounding.
    #[expect(
        clippy::indexing_slicing,
        reason = "no score is NaN, as the entropy is not; one below infinity is that of a candidate"
    )]
    fn collect_outwards(&mut self, data: &[TokenData], entropy: f32) -> bool {
        let score = |i: usize| data.get(i).map_or(f32::INFINITY, |c| distance(c, entropy));
        // To the left of the first candidate there is none: index -1 wraps around to one beyond the last.
        let left_of = |i: usize| score(i.wrapping_sub(1));
        let mut right = data.partition_point(|c| -ln(c.p) < entropy);
        let mut left = right;
        let (mut left_score, mut right_score) = (left_of(left), score(right));
        self.kept.clear();
        let mut sum = 0.0f32;
        while self.kept.len() < data.len() {
            let taken = left_score.min(right_score);
            // Of equal scores the smaller indices come first: those to the left, in rising order.
            let group = if left_score <= right_score {
                let end = left;
                while left > 0 && left_of(left) == taken {
                    left -= 1;
                }
                left_score = left_of(left);
                left..end
            } else {
                right += 1;
                right_score = score(right);
                right - 1..right
            };
            if left_score.min(right_score) < taken {
                return false;
            }
            for candidate in &data[group] {
                self.kept.push(*candidate);
                sum += candidate.p;
                if sum > self.p && self.kept.len() >= self.min_keep {
                    let near = taken + 1e-4 * (1.0 + taken);
                    let lefts = (0..left).rev().map(score);
                    let rights = (right..data.len()).map(score);
                    let rises = |score: f32| score >= taken;
                    return lefts.take_while(|&s| s <= near).all(rises)
                        && rights.take_while(|&s| s <= near).all(rises);
                }
            }
        }
        true
    }

    /// Collects candidates of `data` in the order of `scores` until their sum exceeds `p`.
    #[expect(clippy::indexing_slicing, reason = "scores have the indices of `data`")]
    fn collect(&mut self, data: &[TokenData]) {
        self.kept.clear();
        let mut sum = 0.0f32;
        for &score in &self.scores {
            let candidate = data[score as u32 as usize];
            self.kept.push(candidate);
            sum += candidate.p;
            if sum > self.p && self.kept.len() >= self.min_keep {
                return;
            }
        }
    }
}

/// What of the probability beyond `p` is not taken at first.
const BESIDE: f32 = 0.35;
/// How often a distance is shortened: each takes a pass of 8 bytes per selected candidate, and spares the ranking of some.
const SHORTENINGS: usize = 3;

/// Reads an array in order that will be read in none: so it comes into the cache in half the time.
fn touch<T: Copy>(xs: &[T]) {
    const LINE: usize = 64;
    for x in xs.iter().step_by(LINE / size_of::<T>()) {
        std::hint::black_box(*x);
    }
}

/// Puts candidates at equal distance into descending order; `distances` are in order, and `ranked` says which of `logits` belong to them.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller passes a distance for each ranked candidate, and these are places of `logits`"
)]
fn order_ties(distances: &[f32], logits: &[f32], ranked: &mut [u32]) {
    let mut start = 0;
    while start + 1 < distances.len() {
        if distances[start] != distances[start + 1] {
            start += 1;
            continue;
        }
        let run = distances[start..].iter();
        let end = start + run.take_while(|&&x| x == distances[start]).count();
        ranked[start..end].sort_by(|&a, &b| {
            let order = logits[b as usize].partial_cmp(&logits[a as usize]);
            order.unwrap_or(std::cmp::Ordering::Equal)
        });
        start = end;
    }
}

/// The surprisal to expect, a `float` sum in the order of the array.
fn entropy(data: &[TokenData]) -> f32 {
    data.iter()
        .fold(0.0f32, |entropy, c| entropy + -c.p * ln(c.p))
}

/// How far a candidate's surprisal is from the entropy.
#[inline]
fn distance(candidate: &TokenData, entropy: f32) -> f32 {
    (-ln(candidate.p) - entropy).abs()
}

impl Sampler for Typical {
    fn name(&self) -> &'static CStr {
        c"typical"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        if self.keep_by_sums(candidates) {
            return;
        }
        candidates.sort_with_softmax(&mut self.order, &mut self.work);
        let data = candidates.as_slice();
        let entropy = entropy(data);
        if entropy.is_nan() || !self.collect_outwards(data, entropy) {
            self.rank(data, entropy);
            self.collect(data);
        }
        candidates.replace(&self.kept);
        candidates.set_sorted(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More are to be kept than lie as near as the sample says: then all are sorted.
    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn a_reach_that_is_too_short_gives_way() {
        const KEPT: usize = 19_000;
        let mut data: Vec<TokenData> = (0..20_000)
            .map(|i| TokenData {
                id: i,
                logit: (i * 7919 % 20_000) as f32 / 2000.0,
                p: 0.0,
            })
            .collect();
        let before = Fallback::Typical.count();
        let mut candidates = Candidates::new(&mut data, false);
        let mut typical = Typical::new(0.3, KEPT).expect("0.3 cuts something");
        typical.apply(&mut candidates);
        assert!(Fallback::Typical.count() > before);
        assert_eq!(candidates.len(), KEPT);
    }
}
