//! Where a large nucleus ends.
//!
//! A sample brackets the cut; the exponentials of what may be in it are added up, and of those
//! above each of eight thresholds in the bracket; what lies between the two thresholds around the
//! cut is divided by a histogram, and of one of its bins the logits are sorted.

use crate::algorithms::host_order::{Item, item, place};
use crate::kernels::collect::between;
use crate::kernels::packed::{Packed, THRESHOLDS, masses_above};
use crate::memory::reserve;
use crate::samplers::running::Enough;
use crate::sieve::sampled::{Sample, place_in};
use crate::sieve::source::Source;
use crate::token::TokenData;

/// Two thresholds between which a nucleus ends, as a sample says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bracket {
    /// What lies below is not of the nucleus.
    pub low: f32,
    /// What lies at or above is.
    pub high: f32,
}

impl Bracket {
    /// Where the exponentials relative to `max` of all logits from the smallest on reach
    /// `left_out`: each end is off by four standard deviations of the sample.
    ///
    /// The logits below have small exponentials of which the sample has many, so the estimate is
    /// good; how many larger ones the sample has missed does not matter.
    pub(super) fn guess(left_out: f64, max: f32, source: &Source<'_>) -> Self {
        let sample = Sample::take(source, max);
        let weight = source.len() as f64 / sample.n as f64;
        let mut bracket = Self {
            low: f32::MIN,
            high: f32::INFINITY,
        };
        let (mut sum, mut squares) = (0.0, 0.0);
        let step = f64::from(1.0 / Sample::PER_UNIT).exp();
        // In the middle of the last bin.
        let mut e = weight * step.powf(0.5 - Sample::BINS as f64);
        for (i, &n) in sample.bins.iter().enumerate().rev() {
            sum += f64::from(n) * e;
            squares += f64::from(n) * e * e;
            e *= step;
            let error = 4.0 * squares.sqrt();
            if sum + error < left_out {
                bracket.low = sample.upper_end(i).max(f32::MIN);
            } else if sum - error > left_out {
                bracket.high = sample.upper_end(i);
                break;
            }
        }
        bracket
    }
}

/// Up to here candidates are sorted.
pub(super) const SORTED: usize = 1024;
/// Into how many parts a bracket is divided.
const BINS: usize = 512;

/// What a cut needs beside the candidates.
pub(super) struct Cut<'a> {
    pub keys: &'a mut Vec<Item>,
    pub band: &'a mut Vec<TokenData>,
    pub exponentials: &'a mut crate::algorithms::Workspace,
}

/// Leaves of `survivors` the most probable ones whose exponentials relative to the largest logit
/// `max` are `enough`, which asks for at least one; gives how many those are. All are at or above
/// `low`.
///
/// Only what lies in the part of `divided` that the cut falls into is ranked: a histogram of it,
/// with sums of exponentials, gives the bin that the cut falls into, and that alone is sorted.
pub(super) fn cut_nucleus(
    enough: Enough<f64>,
    (max, low): (f32, f32),
    divided: &Divided,
    survivors: &mut Packed,
    cut: &mut Cut<'_>,
) -> usize {
    let (range, over) = divided.part(enough, low);
    let histogram = Histogram::of(range, max, survivors, cut);
    let last = histogram.last_kept(over, enough, cut);
    let (threshold, last) = last.unwrap_or((range.0, u32::MAX));
    // Of equal ones, those behind the last.
    for tied in &*cut.band {
        if tied.logit == threshold && tied.id as u32 > last {
            survivors.leave_out(tied.id as usize);
        }
    }
    survivors.cut(threshold)
}

/// Where, as shares of a bracket; its upper end comes last.
const SHARES: [f32; THRESHOLDS - 1] = [0.25, 0.34, 0.42, 0.5, 0.58, 0.66, 0.75];

/// Logits that divide a bracket, narrowly in the middle, where the cut is most likely, and the
/// exponentials of all candidates at or above them.
pub(super) struct Divided {
    thresholds: [f32; THRESHOLDS],
    above: [f64; THRESHOLDS],
    /// Of all candidates.
    pub sum: f64,
}

impl Divided {
    pub(super) fn of(survivors: &Packed, max: f32, bracket: Bracket) -> Self {
        let high = bracket.high.min(max);
        let low = bracket.low.max(max - Histogram::FURTHEST);
        let at = |share: f32| low + (high - low) * share;
        let mut thresholds = [bracket.high; THRESHOLDS];
        for (threshold, share) in thresholds.iter_mut().zip(SHARES) {
            *threshold = at(share);
        }
        let [sum, above @ ..] = masses_above(survivors.logits(), max, &thresholds);
        Self {
            thresholds,
            above,
            sum,
        }
    }

    /// The part that the cut falls into, and what lies above; from `low` to the largest if it is
    /// above the bracket, or if the number, not the mass, may decide.
    fn part(&self, enough: Enough<f64>, low: f32) -> ((f32, f32), Part) {
        let mut end = f32::INFINITY;
        let mut over = Part { sum: 0.0, n: 0 };
        if enough.n > 1 {
            return ((low, end), over);
        }
        for (&threshold, &sum) in self.thresholds.iter().zip(&self.above).rev() {
            // Of nothing the sum is 0, which a share of 0 would be content with.
            if sum >= enough.sum && sum > 0.0 {
                return ((threshold, end), over);
            }
            end = threshold;
            // How many does not matter: 1 is enough.
            over = Part {
                sum,
                n: usize::from(sum > 0.0),
            };
        }
        ((low, end), over)
    }
}

/// A part of the candidates.
#[derive(Clone, Copy)]
struct Part {
    sum: f64,
    n: usize,
}

/// The candidates whose logits lie in a range.
struct Histogram {
    top: f32,
    factor: f32,
    /// The first has the largest logits.
    bins: [Part; BINS],
}

impl Histogram {
    /// Exponentials beyond this distance from the largest are 0.
    const FURTHEST: f32 = 150.0;

    /// Leaves those of `survivors` that are in the range in the band, with their places, and their
    /// exponentials relative to `max` beside them.
    #[expect(
        clippy::indexing_slicing,
        reason = "`place_in` gives a number below `BINS`"
    )]
    fn of((low, high): (f32, f32), max: f32, survivors: &Packed, cut: &mut Cut<'_>) -> Self {
        cut.band.clear();
        between(survivors.logits(), (low, high), cut.band);
        cut.exponentials.exponentiate_wide(cut.band, max);
        let top = high.min(max);
        let range = (top - low).clamp(1e-30, Self::FURTHEST);
        let mut histogram = Self {
            top,
            factor: BINS as f32 / range,
            bins: [Part { sum: 0.0, n: 0 }; BINS],
        };
        for (ranked, &e) in cut.band.iter().zip(cut.exponentials.values()) {
            let bin = histogram.bin(ranked.logit);
            let bin = &mut histogram.bins[bin];
            bin.sum += f64::from(e);
            bin.n += 1;
        }
        histogram
    }

    /// Does not fall where logits fall.
    fn bin(&self, logit: f32) -> usize {
        place_in((self.top - logit) * self.factor, BINS)
    }

    /// Logit and index of the last of the nucleus, of which `above` comes before the band; `None`
    /// if it is all of the band.
    #[expect(
        clippy::indexing_slicing,
        reason = "keys have places of `band`, for each of which there is an exponential; `half` is below the length"
    )]
    fn last_kept(&self, above: Part, enough: Enough<f64>, cut: &mut Cut<'_>) -> Option<(f32, u32)> {
        let (keys, band) = (&mut *cut.keys, &cut.band[..]);
        let exponentials = cut.exponentials.values();
        let Part { mut sum, mut n } = above;
        let last = self.bins.iter().position(|bin| {
            let reached = enough.at(sum + bin.sum, n + bin.n);
            if !reached {
                sum += bin.sum;
                n += bin.n;
            }
            reached
        });
        let last = last?;
        // Places in `band`, which rise as the candidates' do.
        keys.clear();
        reserve(keys, band.len());
        let ranked = band.iter().enumerate();
        let of_bin = ranked.filter(|(_, ranked)| self.bin(ranked.logit) == last);
        keys.extend(of_bin.map(|(place, ranked)| item(ranked.logit, place)));
        let p = |key: Item| f64::from(exponentials[place(key)]);
        // By halves until few are left: where all are equal they are in one bin.
        let mut rest = &mut keys[..];
        while rest.len() > SORTED {
            let half = rest.len() / 2;
            rest.select_nth_unstable(half);
            let upper: f64 = rest[..half].iter().map(|&key| p(key)).sum();
            if enough.at(sum + upper, n + half) {
                rest = &mut rest[..half];
            } else {
                sum += upper;
                n += half;
                rest = &mut rest[half..];
            }
        }
        rest.sort_unstable();
        let after = |last: Item| {
            let ranked = band[place(last)];
            (ranked.logit, ranked.id as u32)
        };
        for &key in &*rest {
            sum += p(key);
            n += 1;
            if enough.at(sum, n) {
                return Some(after(key));
            }
        }
        // Only rounding leads here.
        rest.last().map(|&key| after(key))
    }
}

#[cfg(test)]
mod tests;
