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
//! A large array is not sorted: sum and entropy are found without the order (see [`Descending`]), an outline tells how far from the entropy candidates are kept, those within are
//! selected and added up, the distance is shortened to what they prove, and only what is as near is ranked: beside the two sums a pass of 4 bytes per candidate, and an `exp`, a `ln` and
//! some passes of 8 bytes for each that is selected. What does not go that way is sorted by logit; the most typical candidates then are neighbours, and are collected outwards from
//! the entropy on both sides.

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
    /// Which of these are ranked, and their distances.
    near: Vec<u32>,
    picked: Vec<f32>,
    /// The probabilities that are added next.
    summed: Vec<f32>,
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
            summed: Vec::new(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// Keeps what is to be kept without sorting all. Says whether it could.
    fn keep_by_sums(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() {
            return false;
        }
        let data = candidates.as_slice();
        let beside = (BESIDE * (1.0 - self.p)).clamp(0.001, 0.2);
        let sum = self.descending.sum(data, beside);
        let Some(sum) = sum else {
            return false;
        };
        let Some(entropy) = self.descending.entropy(sum) else {
            return false;
        };
        let reach = self.take_enough(sum, entropy, beside);
        if !self.collect_nearest(data, sum, reach) {
            Fallback::Typical.note();
            return false;
        }
        candidates.replace(&self.kept);
        true
    }

    /// Takes candidates until those within some distance from the entropy have probabilities that together exceed `p`, and gives the distance within which they do so by little.
    fn take_enough(&mut self, sum: f32, entropy: f32, beside: f32) -> f32 {
        // Far more than rounding makes of a sum.
        let enough = self.p + 2e-4;
        let mut beside = beside;
        loop {
            let taken = self.descending.taken(sum);
            self.nearness.resize(taken.lns.len(), 0.0);
            kernels::nearness(taken.lns, entropy, &mut self.nearness);
            if taken.most == 0.0 {
                return f32::INFINITY;
            }
            // Within it nothing is that was not taken, whatever rounding does.
            let reach = -ln(taken.most) - entropy - 1e-3;
            let mass = self.mass_within(sum, reach);
            if mass > enough {
                return self.shorten(sum, reach, mass, enough);
            }
            beside /= 4.0;
            self.descending.take_more(sum, beside);
        }
    }

    /// A distance up to `reach`, within which is `mass`, that has more than `enough` within it, by little.
    fn shorten(&self, sum: f32, reach: f32, mass: f32, enough: f32) -> f32 {
        let (mut short, mut mass_of_short) = (0.0, 0.0);
        let (mut reach, mut mass) = (reach, mass);
        for _ in 0..SHORTENINGS {
            // Aimed a little beyond, so that it is the longer one that is moved.
            let share = (enough - mass_of_short) / (mass - mass_of_short);
            let middle = short + (reach - short) * (share + 0.02).min(1.0);
            if middle >= reach {
                break;
            }
            let within = self.mass_within(sum, middle);
            if within > enough {
                (reach, mass) = (middle, within);
            } else {
                (short, mass_of_short) = (middle, within);
            }
        }
        reach
    }

    /// The sum of the probabilities of what is taken within `reach`, about.
    fn mass_within(&self, sum: f32, reach: f32) -> f32 {
        kernels::sum_above(&self.nearness, self.descending.taken(sum).ps, -reach)
    }

    /// Collects the nearest candidates until their sum exceeds `p`. Says whether that happened within `reach`.
    #[expect(
        clippy::indexing_slicing,
        reason = "ranked are places of `nearness`, one for each of `indices`, which are places of `data`; `kept` and `running` count what was ranked, up to `end`"
    )]
    fn collect_nearest(&mut self, data: &[TokenData], sum: f32, reach: f32) -> bool {
        let taken = self.descending.taken(sum);
        self.near.clear();
        self.picked.clear();
        kernels::select(&self.nearness, -reach, &mut self.near, &mut self.picked);
        self.ranking
            .rank_selected(&self.nearness, &self.near, &self.picked);
        // Then a candidate need not be fetched from the array, which lies further away.
        let plain = self.descending.column().plain;
        let (ranked, distances) = (self.ranking.indices(), self.ranking.sorted());
        self.kept.clear();
        let mut running = Running::default();
        while self.kept.len() < ranked.len() {
            let start = self.kept.len();
            let mut end = ranked.len().min(start + SUMMED_AT_ONCE);
            while end < ranked.len() && distances[end] == distances[end - 1] {
                end += 1;
            }
            let ranked = ranked[start..end].iter().map(|&i| i as usize);
            if plain {
                self.kept.extend(ranked.map(|i| TokenData {
                    id: taken.indices[i] as Token,
                    logit: taken.logits[i],
                    p: taken.ps[i],
                }));
            } else {
                self.kept.extend(ranked.map(|i| TokenData {
                    p: taken.ps[i],
                    ..data[taken.indices[i] as usize]
                }));
            }
            let distances = &distances[start..end];
            if distances.windows(2).any(|pair| pair[0] == pair[1]) {
                order_ties(distances, &mut self.kept[start..]);
            }
            self.summed.clear();
            self.summed.extend(self.kept[start..].iter().map(|c| c.p));
            // The sum must be above `p`.
            if let Some(kept) = running.add(&self.summed, self.p.next_up(), self.min_keep) {
                self.kept.truncate(kept);
                return -distances[kept - 1 - start] < reach;
            }
        }
        false
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

/// Puts candidates at equal distance into descending order; `distances` are in order.
#[expect(
    clippy::indexing_slicing,
    reason = "the caller passes a distance for each candidate"
)]
fn order_ties(distances: &[f32], candidates: &mut [TokenData]) {
    let mut start = 0;
    for run in distances.chunk_by(|a, b| a == b) {
        let end = start + run.len();
        candidates[start..end].sort_by(|a, b| {
            let order = b.logit.partial_cmp(&a.logit);
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
