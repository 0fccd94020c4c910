//! Locally typical sampling by the built-in's own steps: all candidates are sorted by logit, and
//! then, as far as needed, by distance from the entropy. Both orders are those of the host's sorts.

use std::ops::Range;

use crate::algorithms::Workspace;
use crate::algorithms::host_order::sort::{Wanted, sort_numbers};
use crate::algorithms::host_order::{HostOrder, Item, any_equal, item, place, write_items};
use crate::algorithms::scratch::{Room, room};
use crate::candidates::Candidates;
use crate::host_profile::{Fused, fuses};
use crate::kernels;
use crate::per_thread::lent_per_thread;
use crate::simd::libm::{fma, ln};
use crate::token::{Token, TokenData};

/// The parameters by which locally typical sampling cuts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    /// The number that the sum of the probabilities of the kept candidates must exceed.
    pub(super) p: f32,
    /// The minimum number of candidates kept.
    pub(super) min_keep: usize,
}

/// The number of distances that are computed at once, on the stack.
const PART: usize = 512;

/// Buffers for the built-in's steps.
#[derive(Clone, Debug, Default)]
pub(super) struct ByDistance {
    /// The distances of all candidates, in descending order of their logits.
    scores: Vec<Item>,
    /// The ranks of the kept candidates, nearest first.
    ranks: Vec<u32>,
    kept: Vec<TokenData>,
}

lent_per_thread!(ByDistance);
room!(ByDistance: ranks, kept; scores);

impl ByDistance {
    /// Cuts the candidates. Returns true if two of them are equally near, among those that are kept
    /// and the first one that is not. `order` and `work` provide their buffers.
    // In bounds: ranks are kept, and each candidate has one rank and one probability.
    pub(super) fn keep(
        &mut self,
        candidates: &mut Candidates<'_>,
        (order, work): (&mut HostOrder, &mut Workspace),
        cut: Cut,
    ) -> bool {
        let ranked = match candidates.is_sorted() {
            true => None,
            false => order.rank_loosely(candidates.as_slice()),
        };
        if ranked.is_none() {
            candidates.sort_with_softmax(order, work);
        }
        self.warm_up(candidates.len());
        if ranked.is_some() {
            let sum = work.exponentiate_sorted(order.ranking().sorted());
            kernels::divide(work.values_mut(), sum);
        } else {
            work.take_ps(candidates.as_slice());
        }
        let ps = work.values();
        let tied = self.rank(ps, cut);
        let ranks = self.ranks.iter().map(|&rank| rank as usize);
        let kept = self.ranks.len();
        match ranked {
            Some(column) => {
                order.settle_ranks(&self.ranks);
                let (places, logits) = order.ranking().parts_mut();
                let candidate = |rank: usize| TokenData {
                    id: places[rank] as Token,
                    logit: logits[rank],
                    p: ps[rank],
                };
                if column.plain {
                    // In this case no candidate need be read from the array, which can be
                    // overwritten.
                    let data = candidates.as_mut_slice().iter_mut();
                    data.zip(ranks).for_each(|(to, rank)| *to = candidate(rank));
                    candidates.truncate(kept);
                } else {
                    let data = candidates.as_slice();
                    self.kept.extend(ranks.map(|rank| TokenData {
                        p: ps[rank],
                        ..data[places[rank] as usize]
                    }));
                    candidates.replace(&self.kept);
                }
            }
            None => {
                let data = candidates.as_slice();
                self.kept.extend(ranks.map(|rank| data[rank]));
                candidates.replace(&self.kept);
            }
        }
        candidates.set_sorted(false);
        tied
    }

    /// Finds the ranks of the kept candidates. Returns true if there are ties.
    fn rank(&mut self, ps: &[f32], cut: Cut) -> bool {
        self.find_distances(ps);
        let mut kept = Kept {
            ps,
            cut,
            sum: 0.0,
            ranks: &mut self.ranks,
        };
        sort_numbers(&mut self.scores, &mut kept);
        // The first candidate that is not kept follows the kept ones, if it has been sorted at all.
        let kept = self.scores.get(..self.ranks.len() + 1);
        any_equal(kept.unwrap_or(&self.scores))
    }

    /// Computes the negative distance of each surprisal from the entropy; all are equal if the
    /// entropy is NaN.
    ///
    /// The work is done in small parts, so that it needs no memory besides the probabilities and
    /// the scores.
    // In bounds: a part has at most `PART` elements.
    fn find_distances(&mut self, ps: &[f32]) {
        // The fast sum requires terms at or above 0, and none that makes it NaN.
        let ordinary = |&p: &f32| p > 0.0 && p <= 1.0;
        let fused = fuses(Fused::TypicalEntropy);
        let mut terms = [0.0; PART];
        let all_ordinary = ps.iter().all(ordinary);
        let entropy = if all_ordinary && fused {
            kernels::fused_entropy(0.0, ps)
        } else if all_ordinary {
            ps.chunks(PART).fold(0.0, |entropy, ps| {
                let terms = &mut terms[..ps.len()];
                kernels::entropies(ps, terms);
                kernels::sum(entropy, terms)
            })
        } else {
            ps.iter().fold(0.0, |entropy, p| match fused {
                true => fma(-p, ln(*p), entropy),
                false => entropy + -p * ln(*p),
            })
        };
        self.scores.resize(ps.len(), 0);
        if entropy.is_nan() {
            let scores = self.scores.iter_mut().enumerate();
            return scores.for_each(|(rank, score)| *score = item(0.0, rank));
        }
        let (mut lns, mut nearness) = (terms, [0.0; PART]);
        let parts = ps.chunks(PART).zip(self.scores.chunks_mut(PART));
        for ((ps, scores), first) in parts.zip((0..).step_by(PART)) {
            let (lns, nearness) = (&mut lns[..ps.len()], &mut nearness[..ps.len()]);
            kernels::lns(ps, lns);
            kernels::nearness(lns, entropy, nearness);
            write_items(nearness, first, scores);
        }
    }
}

/// The kept candidates, as far as the second sort has found them.
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
