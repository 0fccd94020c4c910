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
//! Once sorted by logit, the most typical candidates are neighbours, and are collected outwards from the entropy on both sides: no second sort. One sort, one `exp` and
//! one `ln` per candidate.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::kernels::Workspace;
use crate::kernels::math::ln;
use crate::kernels::order::{Order, ascending, order_of_equals};
use crate::kernels::ranking::Ranking;
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
        })
    }

    /// Other parameters with the same buffers; `p` is not one that disables.
    pub(crate) fn set(&mut self, p: f32, min_keep: usize) {
        self.p = p;
        self.min_keep = min_keep;
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
