//! What locally typical sampling keeps, in the built-in's own way: all candidates by logit, then as
//! far as needed by distance from the entropy, both as the host's sorts leave them.

use std::ops::Range;

use super::Candidates;
use crate::algorithms::Workspace;
use crate::algorithms::host_order::introsort::{self, Wanted};
use crate::algorithms::host_order::{HostOrder, Item, any_equal, items_of, place};
use crate::algorithms::scratch::room_to_write_over;
use crate::kernels;
use crate::per_thread::lent_per_thread;
use crate::simd::libm::ln;
use crate::token::TokenData;

/// Where locally typical sampling cuts.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// As few are kept as have more than this probability.
    pub p: f32,
    /// But at least so many.
    pub min_keep: usize,
}

/// Buffers for this.
#[derive(Clone, Debug, Default)]
pub struct ByDistance {
    /// By rank, as the logits descend.
    ps: Vec<f32>,
    lns: Vec<f32>,
    /// The distances, negative.
    nearness: Vec<f32>,
    scores: Vec<Item>,
    /// The ranks of what is kept, nearest first.
    ranks: Vec<u32>,
    kept: Vec<TokenData>,
}

lent_per_thread!(ByDistance);

impl ByDistance {
    /// Makes room for what `n` candidates can take.
    pub fn reserve(&mut self, n: usize) {
        self.ps.clear();
        self.ps.reserve(n);
        for buffer in [&mut self.lns, &mut self.nearness] {
            room_to_write_over(buffer, n);
        }
        room_to_write_over(&mut self.scores, n);
        self.ranks.clear();
        self.ranks.reserve(n);
        self.kept.clear();
        self.kept.reserve(n);
    }

    /// Keeps what is to be kept. Says whether some of it, or the first that is not, are equally
    /// near. `order` and `work` lend their buffers.
    #[expect(
        clippy::indexing_slicing,
        reason = "what is kept are ranks, of which there is one for each candidate, as of probabilities"
    )]
    pub fn keep(
        &mut self,
        candidates: &mut Candidates<'_>,
        (order, work): (&mut HostOrder, &mut Workspace),
        cut: Cut,
    ) -> bool {
        let ranked = !candidates.is_sorted() && order.rank_loosely(candidates.as_slice());
        if !ranked {
            candidates.sort_with_softmax(order, work);
        }
        let data = candidates.as_slice();
        self.reserve(data.len());
        if ranked {
            let sum = work.exponentiate_sorted(order.ranking().sorted());
            self.ps.extend_from_slice(work.values());
            kernels::divide(&mut self.ps, sum);
        } else {
            self.ps.extend(data.iter().map(|candidate| candidate.p));
        }
        let tied = self.rank(cut);
        let ranks = self.ranks.iter().map(|&rank| rank as usize);
        if ranked {
            order.settle_ranks(&self.ranks);
            let places = order.ranking().indices();
            self.kept.extend(ranks.map(|rank| TokenData {
                p: self.ps[rank],
                ..data[places[rank] as usize]
            }));
        } else {
            self.kept.extend(ranks.map(|rank| data[rank]));
        }
        candidates.replace(&self.kept);
        candidates.set_sorted(false);
        tied
    }

    /// Finds the ranks of what is kept. Says whether there are ties.
    fn rank(&mut self, cut: Cut) -> bool {
        self.find_distances();
        items_of(&self.nearness, &mut self.scores);
        let mut kept = Kept {
            ps: &self.ps,
            cut,
            sum: 0.0,
            ranks: &mut self.ranks,
        };
        introsort::sort(&mut self.scores, &mut kept);
        // The first that is not kept stands behind the kept ones, if it has been sorted at all.
        let kept = self.scores.get(..self.ranks.len() + 1);
        any_equal(kept.unwrap_or(&self.scores))
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
        self.lns.resize(ps.len(), 0.0);
        kernels::lns(ps, &mut self.lns);
        kernels::nearness(&self.lns, entropy, &mut self.nearness);
    }
}

/// The candidates that are kept, as the second sort finds them.
struct Kept<'a> {
    ps: &'a [f32],
    cut: Cut,
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
            if self.sum > self.cut.p && self.ranks.len() >= self.cut.min_keep {
                return false;
            }
        }
        true
    }
}
