//! Top-p, nucleus sampling: keeps the smallest set of most probable candidates whose total
//! probability reaches p (Holtzman et al. 2019).
//!
//! The probabilities are `float`s normalised by a `float` sum in array order, and they are added up
//! again in descending order. Rounding decides where the cut is, so these additions are done in the
//! built-in's order. Only the nucleus needs an order. A sample gives a threshold that the nucleus
//! and few other candidates reach, and only candidates above it are ranked. If they do not suffice,
//! a lower threshold is tried, and finally all candidates are ranked.
//!
//! Straight from the logits, not even the nucleus needs an order: [`DescendingCut`] finds its last
//! candidate, and the pool ranks the nucleus when the candidates are read. A small nucleus is
//! ranked immediately, unless it contains equal logits.

use std::ffi::CStr;

use super::lists::{Column, Kept, Picked, Places, Ps};
use super::running::{Enough, Running, SUMMED_AT_ONCE};
use crate::algorithms::argsort::Ranking;
use crate::algorithms::descending_sum::{Cut, DescendingCut, End, NucleusSample};
use crate::algorithms::host_order::{HostOrder, overflows};
use crate::algorithms::scratch::Room;
use crate::algorithms::{Scratch, Workspace};
use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::kernels;
use crate::kernels::compact::pick_at_least;
use crate::kernels::logits::Logits;
use crate::kernels::online_softmax::Sums;
use crate::kernels::scan::count_at_least;
use crate::pool::{First, Whole};
use crate::sampler::{About, Sampler, Tell, scratch};
use crate::token::TokenData;

/// Keeps the nucleus, sorted and with probabilities.
#[derive(Clone, Debug)]
pub struct TopP {
    p: f32,
    min_keep: usize,
    work: Scratch<Workspace>,
    order: Scratch<HostOrder>,
    sample: Scratch<NucleusSample>,
    logits: Scratch<Column>,
    indices: Scratch<Places>,
    picked: Scratch<Picked>,
    ranking: Scratch<Ranking>,
    /// The exponentials of the ranked candidates.
    ps: Scratch<Ps>,
    kept: Scratch<Kept>,
    /// Finds the end of a nucleus that is not ranked.
    ending: Scratch<DescendingCut>,
}

/// Returns the condition of a nucleus: the fewest most probable candidates that reach `p`, but at
/// least `min_keep`.
fn enough(p: f32, min_keep: usize) -> Enough {
    Enough {
        sum: p,
        n: min_keep,
    }
}

impl TopP {
    /// Returns a sampler that keeps at least `min_keep` candidates. `None` if `p` disables it:
    /// `p >= 1`.
    pub fn new(p: f32, min_keep: usize) -> Option<Self> {
        if p >= 1.0 {
            return None;
        }
        Some(Self {
            p,
            min_keep,
            work: Scratch::default(),
            order: Scratch::default(),
            sample: Scratch::default(),
            logits: Scratch::default(),
            indices: Scratch::default(),
            picked: Scratch::default(),
            ranking: Scratch::default(),
            ps: Scratch::default(),
            kept: Scratch::default(),
            ending: Scratch::default(),
        })
    }

    /// Returns the number of the descending probabilities `ps` that are in the nucleus; `None` if
    /// more are needed.
    fn cut(&self, ps: &[f32]) -> Option<usize> {
        let mut running = Running::default();
        let mut blocks = ps.chunks(SUMMED_AT_ONCE);
        let enough = enough(self.p, self.min_keep);
        blocks.find_map(|block| running.add(block, enough))
    }

    /// Selects the candidates with logits at or above `threshold`. `maxima` contains the block
    /// maxima of `logits`, if they are known, and blocks below the threshold are then skipped. If
    /// many blocks reach it, only the logits are collected, without their indices.
    fn select(&mut self, logits: &[f32], maxima: Option<&[f32]>, threshold: f32) {
        self.indices.clear();
        self.picked.clear();
        let Some(maxima) = maxima.filter(|_| threshold > f32::NEG_INFINITY) else {
            return kernels::select(logits, threshold, &mut self.indices, &mut self.picked);
        };
        if count_at_least(maxima, threshold) > maxima.len() / FEW_BLOCKS {
            return pick_at_least(logits, threshold, &mut self.picked);
        }
        self.kept.clear();
        Logits::F32(logits).collect(maxima, 0, threshold, &mut self.kept);
        self.indices.extend(self.kept.iter().map(|c| c.id as u32));
        self.picked.extend(self.kept.iter().map(|c| c.logit));
    }

    /// Returns the approximate sum of the exponentials of the selected candidates, which include
    /// the largest one, if it reaches about the share `p` of the sum. This test is faster than
    /// ranking.
    fn enough_mass(&self, of: Nucleus) -> Option<f64> {
        // An infinite logit has all the probability.
        if !of.max.is_finite() {
            return Some(f64::INFINITY);
        }
        let mut sums = Sums::default();
        sums.add_mass(Logits::F32(&self.picked), &mut []);
        // The term of the largest logit is 1.
        let mass = 1.0 + sums.rest;
        let enough = f64::from(of.sum) * f64::from(self.p + 0.01 * (1.0 - self.p));
        (mass > enough).then_some(mass)
    }

    /// Finds the nucleus of the candidates with these logits. If it is ranked, `indices` has the
    /// indices of the kept candidates, the ranking has their logits and `ps` their exponentials,
    /// all in the host's order. If the block maxima of the logits are passed as `maxima`, the order
    /// may be deferred.
    fn find(&mut self, logits: &[f32], maxima: Option<&[f32]>, of: Nucleus) -> Found {
        if let Some(found) = self.find_near_max(logits, maxima, of) {
            return found;
        }
        if logits.len() >= 8 * NucleusSample::SIZE {
            let mut too_high = f32::INFINITY;
            for share in SHARES {
                let mut threshold = self.threshold(logits, of, share);
                if threshold >= too_high {
                    // The sample does not tell the two thresholds apart: in that of a sorted array,
                    // for example, few logits are large.
                    threshold = self.sample.next_below(too_high);
                }
                too_high = threshold;
                if let Some(found) = self.find_at_least(logits, maxima, threshold, of) {
                    return found;
                }
            }
        }
        // Masked candidates are usually not in the nucleus, so they are left out at first.
        let (lazily, mass) = (maxima.is_some(), f64::from(of.sum));
        for threshold in [f32::MIN, f32::NEG_INFINITY] {
            self.select(logits, None, threshold);
            if let Some(found) = self.find_selected(logits, threshold, lazily, mass, of) {
                return found;
            }
        }
        Found::Ranked(0)
    }

    /// Finds the nucleus of a peaked distribution, in which few blocks have a logit near the
    /// largest. It needs no sample. `None` if there are more such blocks, or if the candidates near
    /// the largest do not suffice.
    fn find_near_max(
        &mut self,
        logits: &[f32],
        maxima: Option<&[f32]>,
        of: Nucleus,
    ) -> Option<Found> {
        let threshold = of.max - NEAR_MAX;
        if count_at_least(maxima?, threshold) > maxima?.len() / FEW_BLOCKS {
            return None;
        }
        self.find_at_least(logits, maxima, threshold, of)
    }

    /// Selects the candidates at or above `threshold`, and finds the nucleus among them. `None` if
    /// they do not contain it.
    fn find_at_least(
        &mut self,
        logits: &[f32],
        maxima: Option<&[f32]>,
        threshold: f32,
        of: Nucleus,
    ) -> Option<Found> {
        self.select(logits, maxima, threshold);
        let mass = self.enough_mass(of)?;
        self.find_selected(logits, threshold, maxima.is_some(), mass, of)
    }

    /// Finds the nucleus among the candidates selected at or above `threshold`, if they contain it.
    /// If `lazily` is true, its order may be deferred. `mass` is the approximate sum of the
    /// exponentials of the selected candidates.
    // In bounds: as many candidates are ranked as are selected; `kept` is at most that number, and
    // at least 1 if two are tied; a pair has two elements.
    fn find_selected(
        &mut self,
        logits: &[f32],
        threshold: f32,
        lazily: bool,
        mass: f64,
        of: Nucleus,
    ) -> Option<Found> {
        if lazily && self.picked.len() > RANKED {
            let cut = Cut {
                max: of.max,
                sum: of.sum,
                p: self.p,
                total: mass,
            };
            match self.ending.find(&self.picked, cut) {
                End::At { n, last } if n >= self.min_keep => return Some(Found::Open { n, last }),
                End::Beyond if self.picked.len() < logits.len() => return None,
                End::At { .. } | End::Beyond | End::Unknown => {}
            }
        }
        if self.indices.len() < self.picked.len() {
            self.select(logits, None, threshold);
        }
        self.ranking
            .rank_selected(logits, &self.indices, &self.picked);
        let all = self.indices.len() == logits.len();
        let kept = self.cut_ranked(of).or(all.then_some(logits.len()))?;
        let (ranked, sorted) = self.ranking.parts_mut();
        // The first candidate that is not kept is included. All candidates equal to it are
        // selected.
        let seen = &sorted[..sorted.len().min(kept + 1)];
        let are_tied = seen.windows(2).any(|pair| pair[0] == pair[1]);
        if are_tied && lazily {
            let last = sorted[kept - 1];
            return Some(Found::Open { n: kept, last });
        }
        let ids = &mut self.indices[..kept];
        ids.copy_from_slice(&ranked[..kept]);
        if are_tied {
            let sorted_by_host = sorted_for(kept, logits.len());
            self.order
                .settle(logits, sorted_by_host, ids, &mut sorted[..kept]);
        } else {
            // The buffer gets the size for this array in any case.
            self.order.warm_up(logits.len());
        }
        Some(Found::Ranked(kept))
    }

    /// Replaces the candidates with the first `kept` of the nucleus.
    // In bounds: the found indices are those of candidates, and `kept` is at most their number.
    fn keep_found(&mut self, candidates: &mut Candidates<'_>, of: Nucleus, kept: usize) {
        let (ids, ps) = (&self.indices[..kept], &self.ps[..kept]);
        if of.plain {
            let logits = &self.ranking.sorted()[..kept];
            let data = &mut candidates.as_mut_slice()[..kept];
            kernels::write_divided(data, ids, logits, ps, of.sum);
            candidates.truncate(kept);
        } else {
            let data = candidates.as_slice();
            let kept = ids.iter().zip(ps).map(|(&i, &e)| TokenData {
                p: e / of.sum,
                ..data[i as usize]
            });
            self.kept.clear();
            self.kept.extend(kept);
            candidates.replace(&self.kept);
        }
        candidates.set_sorted(true);
    }

    /// Keeps the nucleus by the built-in's own steps. This is needed if the largest logit is so
    /// large that the host's order does not begin with it.
    // In bounds: the indices are those of the candidates, whose probabilities are in `work`.
    fn keep_in_order(&mut self, candidates: &mut Candidates<'_>) {
        candidates.softmax(&mut self.work);
        let data = candidates.as_slice();
        for sorted in [sorted_for(0, data.len()), data.len()] {
            let places = self.order.places(&self.logits, sorted, sorted);
            let first = places.iter().map(|&i| data[i as usize]);
            self.kept.clear();
            self.kept.extend(first);
            self.ps.clear();
            self.ps
                .extend(self.kept.iter().map(|candidate| candidate.p));
            if let Some(kept) = self.cut(&self.ps) {
                self.kept.truncate(kept);
                break;
            }
        }
        candidates.replace(&self.kept);
        candidates.set_sorted(true);
    }

    /// Returns the number of the ranked candidates that are in the nucleus; `None` if more are
    /// needed. Leaves their exponentials in `ps`.
    // In bounds: `running` counts the added elements of `ps`; a chunk has at most `SUMMED_AT_ONCE`.
    fn cut_ranked(&mut self, of: Nucleus) -> Option<usize> {
        let logits = self.ranking.sorted();
        self.ps.clear();
        let mut probabilities = [0.0; SUMMED_AT_ONCE];
        let mut running = Running::default();
        let enough = enough(self.p, self.min_keep);
        for logits in logits.chunks(SUMMED_AT_ONCE) {
            let start = self.ps.len();
            self.ps.extend_from_slice(logits);
            let es = &mut self.ps[start..];
            kernels::exp_sum(0.0, es, of.max);
            let ps = &mut probabilities[..es.len()];
            ps.copy_from_slice(es);
            kernels::divide(ps, of.sum);
            if let Some(kept) = running.add(ps, enough) {
                return Some(kept);
            }
        }
        None
    }

    /// Returns a logit, estimated from a sample, that the nucleus and few other candidates reach. A
    /// smaller `share` gives a lower logit.
    fn threshold(&mut self, logits: &[f32], of: Nucleus, share: f32) -> f32 {
        let left_out = share * (1.0 - self.p) * of.sum;
        self.sample.threshold_of_logits(logits, of.max, left_out)
    }
}

/// The shares of the probability beyond `p` that are left out. The first one is tried first, the
/// others only if too few candidates were selected. That happened at p = 0.95 with 151,936 flat
/// logits, where ranking all of them took 2.5 times as long as trying a second threshold.
const SHARES: [f32; 3] = [1.0, 0.7, 0.3];

/// The distance below the largest logit within which most of the probability of a peaked
/// distribution lies: further tokens have at most 1/3000 of the largest probability each.
const NEAR_MAX: f32 = 8.0;
/// The largest number of selected candidates that are ranked immediately.
const RANKED: usize = 2048;
/// Candidates are selected by the block maxima if at most one in this many blocks reaches the
/// threshold.
const FEW_BLOCKS: usize = 8;

/// The nucleus that was found.
#[derive(Clone, Copy, Debug)]
enum Found {
    /// The number of its candidates, which are in the host's order.
    Ranked(usize),
    /// The number of its candidates, and the logit of the last one.
    Open { n: usize, last: f32 },
}

/// Returns the number of candidates, of `n`, that the built-in sorts to find a nucleus of this
/// size. It first sorts a few candidates of a large array, and all of them only if those do not
/// suffice.
fn sorted_for(nucleus: usize, n: usize) -> usize {
    const AT_FIRST: usize = 256;
    const LARGE: usize = 1024;
    if n > LARGE && nucleus <= AT_FIRST {
        AT_FIRST
    } else {
        n
    }
}

/// The largest logit and the sum that determine the probabilities of all candidates.
#[derive(Clone, Copy, Debug)]
struct Nucleus {
    max: f32,
    sum: f32,
    /// True if ids are indices, and no logit is NaN.
    plain: bool,
}

impl Sampler for TopP {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"top-p"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("p", f64::from(self.p));
            to("min_keep", self.min_keep as f64);
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::TopP {
            p: self.p,
            min_keep: self.min_keep,
        })
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_sorted() {
            candidates.softmax(&mut self.work);
            if let Some(kept) = self.cut(self.work.values()) {
                candidates.truncate(kept);
            }
            return;
        }
        let column = kernels::column(candidates.as_slice(), &mut self.logits);
        if overflows(column.max) {
            return self.keep_in_order(candidates);
        }
        let of = Nucleus {
            max: column.max,
            sum: kernels::softmax_sum(&self.logits, column.max),
            plain: column.plain,
        };
        let logits = std::mem::take(&mut self.logits);
        let found = self.find(&logits, None, of);
        self.logits = logits;
        if let Found::Ranked(kept) = found {
            self.keep_found(candidates, of, kept);
        }
    }

    // In bounds: the found indices are tokens of the vocabulary, and `kept` is at most their
    // number.
    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        // The buffers get the size for this vocabulary, however many candidates are kept.
        self.warm_up(whole.n_vocab());
        let Some((logits, maxima, max)) = whole.numbers_and_maxima() else {
            return false;
        };
        if overflows(max) {
            return false;
        }
        let n = logits.len();
        let of = Nucleus {
            max,
            sum: kernels::softmax_sum(logits, max),
            plain: true,
        };
        let found = self.find(logits, Some(maxima), of);
        let kept = match found {
            Found::Ranked(kept) => kept,
            Found::Open { n: kept, last } => {
                let first = First {
                    n: kept,
                    last,
                    sum: of.sum,
                    sorted: sorted_for(kept, n),
                };
                whole.keep_first(first, max, &mut self.picked);
                return true;
            }
        };
        self.kept.clear();
        self.kept.resize(kept, TokenData::default());
        let (ids, ps) = (&self.indices[..kept], &self.ps[..kept]);
        let logits = &self.ranking.sorted()[..kept];
        kernels::write_divided(&mut self.kept, ids, logits, ps, of.sum);
        whole.keep(&self.kept, true);
        true
    }

    scratch!(
        work, order, sample, logits, indices, picked, ranking, ps, kept, ending
    );
}

#[cfg(test)]
mod tests;
