//! Draws from candidates in descending order, without sorting them.
//!
//! The drawn candidate is the one at which the running sum of the exponentials, the largest first,
//! reaches a share of their sum. In a peaked distribution it is among the few hundred largest,
//! which are found from the maxima of blocks. Otherwise it is bracketed by two logits of a sample,
//! by adding up the exponentials above logits of that sample. The bracket is narrowed in the same
//! way until few candidates remain to be ranked. Among equal logits the host's order decides (see
//! [`host_order`](super::host_order)).
//!
//! The sums are `double`s, which are not added in the order of the built-in. Approximate
//! exponentials usually suffice; if their errors could decide, exact ones are computed. If the
//! rounding of the sums could decide, the result is `None`.

use super::Workspace;
use super::argsort::Ranking;
use super::scratch::{Room, room};
use crate::kernels::compact::pick;
use crate::kernels::rounding_test;
use crate::kernels::scan::sum_from;
use crate::per_thread::lent_per_thread;
use crate::token::TokenData;

/// The candidates to draw from: those of a vocabulary, in the descending order of their logits.
#[derive(Clone, Copy, Debug)]
pub struct Descending<'a> {
    /// The logits, none of which is NaN. If [`DescendingDraw::find`] gets candidates as `larger` or
    /// `head`, these are the logits of all tokens, in the order of their ids. Otherwise they may be
    /// those of only some tokens.
    pub logits: &'a [f32],
    /// The number of candidates excluded at the start.
    pub dropped: usize,
    /// The number of candidates excluded at the end, all equal to the last one that is not
    /// excluded.
    pub behind: usize,
    /// The logit of the first candidate that is not excluded, which is finite.
    pub first: f32,
    /// The divisor of all logits, above 0, applied before the exponentials are made.
    pub divisor: f32,
}

/// A candidate that was drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The logit of the candidate.
    pub logit: f32,
    /// The rank among the candidates with this logit, in the host's order and counted from 0.
    /// Excluded candidates are counted.
    pub nth: usize,
    /// The number of candidates with this logit.
    pub of: usize,
}

/// Buffers for a draw in descending order.
#[derive(Clone, Debug, Default)]
pub struct DescendingDraw {
    work: Workspace,
    /// The logits that may be drawn. There are two buffers, and narrowing copies from one to the
    /// other; likewise for the exponentials.
    keys: [Vec<f32>; 2],
    es: [Vec<f32>; 2],
    sample: Vec<f32>,
    ranking: Ranking,
}

lent_per_thread!(DescendingDraw);
room!(DescendingDraw: work, keys, es, sample, ranking);

/// The accuracy of exponentials.
#[derive(Clone, Copy, Debug)]
enum Exponentials {
    /// The relative errors are at most [`ERROR`](rounding_test::ERROR).
    Approximate,
    /// The exponentials are those of the host.
    Exact,
}

/// An interval of sums of exponentials that contains the target despite rounding and errors.
#[derive(Clone, Copy, Debug)]
struct Target {
    earliest: f64,
    latest: f64,
}

/// The most candidates that are ranked. More are narrowed first.
const RANKED: usize = 2048;
/// The size of the sample that finds a bracket. It consists of groups of [`NEIGHBOURS`] adjacent
/// logits.
const SAMPLE: usize = 256;
const NEIGHBOURS: usize = 4;
/// One round of narrowing leaves about one candidate in this many. There are at most [`ROUNDS`]
/// rounds.
const PARTS: usize = 8;
const ROUNDS: usize = 3;

impl DescendingDraw {
    /// Returns the candidate at which the running sum of the exponentials of `from` reaches the
    /// share `draw` of their sum.
    ///
    /// `larger` are the candidates with logits above `from.first`, all of which are excluded.
    /// `head` are some of the largest candidates in any order, or none; it includes every candidate
    /// that is equal to one of them. `None` if rounding could decide.
    pub fn find(
        &mut self,
        from: Descending<'_>,
        larger: &[TokenData],
        head: &[TokenData],
        draw: f64,
    ) -> Option<Drawn> {
        self.warm_up(from.logits.len());
        self.find_with(Exponentials::Approximate, from, larger, head, draw)
            .or_else(|| self.find_with(Exponentials::Exact, from, larger, head, draw))
    }

    /// Returns the candidate with exponentials of this kind. `None` if rounding, or their error,
    /// could decide.
    fn find_with(
        &mut self,
        exponentials: Exponentials,
        from: Descending<'_>,
        larger: &[TokenData],
        head: &[TokenData],
        draw: f64,
    ) -> Option<Drawn> {
        let (sum, error) = match exponentials {
            Exponentials::Approximate => {
                let sum = self.work.approximate_without(from, larger);
                (sum, f64::from(rounding_test::ERROR))
            }
            Exponentials::Exact => (self.work.exponentiate_without(from, larger), 0.0),
        };
        // Excluded candidates that are equal to the first remaining one precede it. Each adds 1 to
        // the sum.
        let before = from.dropped.checked_sub(larger.len())? as f64;
        let behind = self.sum_behind(from);
        let target = before + (sum - before - behind) * draw;
        // The margin of `categorical::choose`, relative to the larger sum, and the errors of a sum
        // near the target and of the terms of the target itself.
        let margin = sum * (from.logits.len() + 16) as f64 * (2.0 * f64::EPSILON)
            + error * (2.0 * target + before + 3.0 * behind);
        let target = Target {
            earliest: target - margin,
            latest: target + margin,
        };
        match self.in_head(head, target) {
            Head::Here(drawn) => drawn,
            Head::Behind => self.in_all(from.logits, target),
        }
    }

    /// Returns the sum of the exponentials of the candidates excluded at the end.
    fn sum_behind(&self, from: Descending<'_>) -> f64 {
        if from.behind == 0 {
            return 0.0;
        }
        let es = self.work.values().iter().copied();
        let least = es.fold(f32::INFINITY, f32::min);
        from.behind as f64 * f64::from(least)
    }

    /// Looks for the draw among the largest candidates.
    // In bounds: candidates are tokens of the vocabulary, each of which has an exponential.
    fn in_head(&mut self, head: &[TokenData], target: Target) -> Head {
        let [keys, _] = &mut self.keys;
        let [es, _] = &mut self.es;
        keys.clear();
        es.clear();
        let values = self.work.values();
        keys.extend(head.iter().map(|c| c.logit));
        es.extend(head.iter().map(|c| values[c.id as usize]));
        let sum: f64 = es.iter().map(|&e| f64::from(e)).sum();
        if sum < target.latest {
            return Head::Behind;
        }
        Head::Here(rank(&mut self.ranking, keys, es, 0.0, target))
    }

    /// Returns the draw among all candidates, whose exponentials `work` holds.
    fn in_all(&mut self, logits: &[f32], target: Target) -> Option<Drawn> {
        let Self {
            work,
            keys: [keys, next_keys],
            es: [es, next_es],
            sample,
            ranking,
        } = self;
        if logits.len() <= RANKED {
            return rank(ranking, logits, work.values(), 0.0, target);
        }
        let mut base = narrow((logits, work.values()), 0.0, target, sample, (keys, es));
        for _ in 1..ROUNDS {
            if keys.len() <= RANKED {
                break;
            }
            base = narrow((keys, es), base, target, sample, (next_keys, next_es));
            std::mem::swap(keys, next_keys);
            std::mem::swap(es, next_es);
        }
        rank(ranking, keys, es, base, target)
    }
}

/// The result of looking for a draw among the largest.
enum Head {
    /// The draw falls on one of the largest candidates; `None` if rounding could decide.
    Here(Option<Drawn>),
    /// The draw falls on a candidate after these.
    Behind,
}

/// Copies from `from` to `to` the keys on which `target` may fall, and their exponentials. Returns
/// the sum of the exponentials of all larger keys: of those in `from`, plus `base`, the sum of
/// those that are not.
fn narrow(
    from: (&[f32], &[f32]),
    base: f64,
    target: Target,
    sample: &mut Vec<f32>,
    to: (&mut Vec<f32>, &mut Vec<f32>),
) -> f64 {
    let (keys, es) = from;
    let (low, high, above) = bracket(from, base, target, sample);
    to.0.clear();
    to.1.clear();
    pick(keys, keys, low, high, to.0);
    pick(keys, es, low, high, to.1);
    above
}

/// Returns two keys between which the sum, from the largest key on, reaches `target`, and the sum
/// down to and including the higher one.
///
/// The sample is bisected by the sums of all keys: if few keys have most of the mass, as in a
/// peaked distribution, the sample does not represent them.
// In bounds: the caller has more than `SAMPLE` keys; `middle` lies within `open`.
fn bracket(
    (keys, es): (&[f32], &[f32]),
    base: f64,
    target: Target,
    sample: &mut Vec<f32>,
) -> (f32, f32, f64) {
    sample.clear();
    let groups = SAMPLE / NEIGHBOURS;
    for start in (0..groups).map(|i| i * (keys.len() - NEIGHBOURS) / groups) {
        sample.extend_from_slice(&keys[start..start + NEIGHBOURS]);
    }
    sample.sort_unstable_by(|a, b| b.total_cmp(a));
    // No key is as large as infinity.
    let (mut low, mut high) = (f32::NEG_INFINITY, f32::INFINITY);
    let mut above = base;
    // The elements of the sample that lie strictly between `low` and `high`.
    let mut open = 0..sample.len();
    while open.len() > SAMPLE / PARTS {
        let middle = sample[open.start + open.len() / 2];
        let sum = base + sum_from(keys, es, middle);
        if sum < target.earliest {
            (high, above) = (middle, sum);
            open.start = sample.partition_point(|&x| x >= middle);
        } else if sum > target.latest {
            low = middle;
            open.end = sample.partition_point(|&x| x > middle);
        } else {
            break;
        }
    }
    (low, high, above)
}

/// Ranks `keys`, and finds the one at which `base` plus the running sum of their exponentials
/// reaches the target. `None` if rounding could decide.
// In bounds: there is an exponential for each key, and the ranked indices are those of the keys.
fn rank(
    ranking: &mut Ranking,
    keys: &[f32],
    es: &[f32],
    base: f64,
    target: Target,
) -> Option<Drawn> {
    ranking.rank(keys);
    let mut running = base;
    let mut sums = ranking.indices().iter().map(|&i| {
        running += f64::from(es[i as usize]);
        running
    });
    let place = sums.position(|sum| sum >= target.earliest)?;
    if running < target.latest {
        return None;
    }
    let sorted = ranking.sorted();
    let logit = sorted[place];
    let start = sorted.partition_point(|&x| x > logit);
    let end = sorted.partition_point(|&x| x >= logit);
    Some(Drawn {
        logit,
        nth: place - start,
        of: end - start,
    })
}

#[cfg(test)]
mod tests;
