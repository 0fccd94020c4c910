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
//! A large array is not sorted: the entropy is found from a ranked head (see [`Descending`]), a sample tells how far from it candidates are kept, and only what is
//! as near is ranked, by distance: one pass of 12 bytes per candidate, eight of 4, with one `exp` and one `ln` each, and two sorts of some. What does not go that way is sorted by
//! logit; the most typical candidates then are neighbours, and are collected outwards from the entropy on both sides.

use std::ffi::CStr;

use super::running::{Running, SUMMED_AT_ONCE};
use crate::candidates::Candidates;
use crate::kernels::descending::Descending;
use crate::kernels::fallbacks::Fallback;
use crate::kernels::math::{self, ln};
use crate::kernels::order::{Order, ascending, order_of_equals};
use crate::kernels::ranking::Ranking;
use crate::kernels::{self, Workspace};
use crate::sampler::Sampler;
use crate::token::TokenData;

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
    outline: Vec<f32>,
    away: Vec<f32>,
    indices: Vec<u32>,
    /// Probabilities of what may be kept, and their distances, negative.
    ps: Vec<f32>,
    nearness: Vec<f32>,
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
            outline: Vec::new(),
            away: Vec::new(),
            indices: Vec::new(),
            ps: Vec::new(),
            nearness: Vec::new(),
            summed: Vec::new(),
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
    }

    /// Keeps what is to be kept without sorting all. Says whether it could.
    fn keep_by_head(&mut self, candidates: &mut Candidates<'_>) -> bool {
        if candidates.is_sorted() {
            return false;
        }
        let data = candidates.as_slice();
        let Some(sum) = self.descending.rank_head(data) else {
            return false;
        };
        let Some(entropy) = self.descending.entropy(sum) else {
            return false;
        };
        let reach = self.reach(sum, entropy);
        self.select_within(sum, entropy, reach);
        if !self.collect_nearest(data, reach) {
            Fallback::Typical.note();
            return false;
        }
        candidates.replace(&self.kept);
        true
    }

    /// A distance from the entropy within which is little more than what is kept, as far as the ranked candidates and a sample tell.
    fn reach(&mut self, sum: f32, entropy: f32) -> f32 {
        let weight = self.descending.outline(sum, &mut self.outline);
        let ranked = self.descending.probabilities().len();
        self.away.resize(self.outline.len(), 0.0);
        kernels::lns(&self.outline, &mut self.away);
        self.away.iter_mut().for_each(|x| *x = -*x - entropy);
        let mass = |i: usize| self.outline[i] * if i < ranked { 1.0 } else { weight };
        let wanted = self.p + 0.1 * (1.0 - self.p);
        let at = |i: usize| self.away.get(i).map_or(f32::INFINITY, |x| x.abs());
        let mut right = self.away.partition_point(|&x| x < 0.0);
        let mut left = right;
        // To the left of the first there is none: index -1 wraps around to one beyond the last.
        let (mut on_left, mut on_right) = (at(left.wrapping_sub(1)), at(right));
        let mut within = 0.0;
        while on_left.is_finite() || on_right.is_finite() {
            let reached = on_left.min(on_right);
            if on_left <= on_right {
                left -= 1;
                within += mass(left);
                on_left = at(left.wrapping_sub(1));
            } else {
                within += mass(right);
                right += 1;
                on_right = at(right);
            }
            if within > wanted {
                return reached;
            }
        }
        f32::INFINITY
    }

    /// Leaves the candidates within `reach`, and some more, with probabilities and distances.
    fn select_within(&mut self, sum: f32, entropy: f32, reach: f32) {
        // Far below the rounding of the distances.
        let lowest = sum * math::exp(-(entropy + reach) - 1e-3);
        self.indices.clear();
        self.ps.clear();
        let es = self.descending.exponentials();
        kernels::select(es, lowest, &mut self.indices, &mut self.ps);
        kernels::divide(&mut self.ps, sum);
        self.nearness.resize(self.ps.len(), 0.0);
        kernels::lns(&self.ps, &mut self.nearness);
        for x in &mut self.nearness {
            *x = -(-*x - entropy).abs();
        }
    }

    /// Collects the nearest candidates until their sum exceeds `p`. Says whether that happened within `reach`.
    fn collect_nearest(&mut self, data: &[TokenData], reach: f32) -> bool {
        self.ranking.rank(&self.nearness);
        let (ranked, distances) = (self.ranking.indices(), self.ranking.sorted());
        self.kept.clear();
        let mut running = Running::default();
        while self.kept.len() < ranked.len() {
            let start = self.kept.len();
            let mut end = ranked.len().min(start + SUMMED_AT_ONCE);
            while end < ranked.len() && distances[end] == distances[end - 1] {
                end += 1;
            }
            let candidates = ranked[start..end].iter().map(|&i| TokenData {
                p: self.ps[i as usize],
                ..data[self.indices[i as usize] as usize]
            });
            self.kept.extend(candidates);
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

/// Puts candidates at equal distance into descending order; `distances` are in order.
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
        if self.keep_by_head(candidates) {
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
