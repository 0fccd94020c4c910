//! What a sample of the logits says of all of them.

use crate::sieve::source::Source;
use crate::token::comparable;

/// A whole number below `bins`. By way of 32 bits, which takes two instructions where 64 take ten.
#[inline]
pub(super) fn place_in(x: f32, bins: usize) -> usize {
    (x as i32).max(0).min(bins as i32 - 1) as usize
}

/// How many logits are looked at to guess a threshold.
const SAMPLE: usize = 2048;
/// How many of them lie together: from the second-level cache each line takes longer than all that
/// is done with it.
const NEIGHBOURS: usize = 8;

/// A histogram of some of the logits, from all over the vocabulary, without bias and penalties.
pub(super) struct Sample {
    max: f32,
    /// How many logits are in each bin; the first has the largest.
    pub(super) bins: [u32; Self::BINS],
    pub(super) n: usize,
}

impl Sample {
    pub(super) const BINS: usize = 1024;
    /// Bins for each unit of a logit: what lies further down than all of them is in the last.
    pub(super) const PER_UNIT: f32 = 32.0;

    #[expect(
        clippy::indexing_slicing,
        reason = "`place_in` gives a number below `BINS`; a group has `NEIGHBOURS` at most"
    )]
    pub(super) fn take(source: &Source<'_>, max: f32) -> Self {
        let mut sample = Self {
            max,
            bins: [0; Self::BINS],
            n: SAMPLE.min(source.len()),
        };
        // From within each of as many intervals, at another place each time, so that no pattern of
        // the vocabulary repeats in it.
        let group = NEIGHBOURS.min(source.len());
        let groups = sample.n / group.max(1);
        sample.n = groups * group;
        let interval = (source.len() - group) / groups.max(1) + 1;
        let (mut start, mut place) = (0, 0);
        let step = 7919 % interval;
        let mut logits = [0.0; NEIGHBOURS];
        for _ in 0..groups {
            let here = (start + place).min(source.len() - group);
            source.logits.widen(here, &mut logits[..group]);
            let places = logits.map(|logit| {
                let below = (comparable(logit / source.divisor) - max) * -Self::PER_UNIT;
                place_in(below, Self::BINS)
            });
            // In the last bin, too, are the undefined ones.
            for place in &places[..group] {
                sample.bins[*place] += 1;
            }
            start += interval;
            place += step;
            place -= if place >= interval { interval } else { 0 };
        }
        sample
    }

    /// The upper end of a bin.
    pub(super) fn upper_end(&self, bin: usize) -> f32 {
        self.max - bin as f32 / Self::PER_UNIT
    }
}

/// A threshold that a sample says the `k` largest reach, with room for chance.
pub(super) fn sampled_threshold(k: usize, max: f32, source: &Source<'_>) -> f32 {
    let sample = Sample::take(source, max);
    let expected = (k * sample.n) as f64 / source.len() as f64;
    let rank = (expected + 4.0 * expected.sqrt() + 3.0) as usize;
    let mut above = 0;
    let bin = sample.bins[..Sample::BINS - 1].iter().position(|&bin| {
        above += bin as usize;
        above > rank
    });
    bin.map_or(f32::MIN, |bin| sample.upper_end(bin + 1).max(f32::MIN))
}
