//! Finds the rank at which the running sum of the probabilities, the largest first, reaches a
//! number.
//!
//! Exact probabilities of all candidates would take most of the time. So only those are computed
//! that lie above the threshold at which the sum has entered the binade of its target, and those
//! near the cut, which a sample brackets. The probabilities in between are rounded to the unit of
//! that binade, for which approximate exponentials suffice (see the module `remainder`). If the
//! sample misleads, exact probabilities of all candidates are computed.

use super::binades::{Binades, GROUP, Outcome, Reached, Reaching, SIZE, Series, sort_descending};
use super::exponentials;
use super::remainder::{Ended, Remainder};
use super::sample::take_groups;
use crate::algorithms::scratch::room;
use crate::kernels::compact::{pick, pick_at_least};
use crate::kernels::layout::binade;
use crate::kernels::rounding_test::{Rounded, Terms, approximate_exp_sum};
use crate::kernels::scan::count_at_least;
use crate::per_thread::lent_per_thread;
use crate::simd::libm;

/// Buffers for finding a cut.
#[derive(Clone, Debug, Default)]
pub struct DescendingCut {
    /// Some of the logits.
    part: Vec<f32>,
    /// The exponentials and probabilities of all logits or of some.
    es: Vec<f32>,
    ps: Vec<f32>,
    pub(super) binades: Binades,
    /// A sample of the exponentials of all logits, descending.
    sample: Vec<f32>,
    words: Vec<u32>,
    remainder: Remainder,
    /// Logits with equal exponentials.
    equals: Vec<f32>,
    /// The number of cuts that were found by a sample.
    #[cfg(test)]
    pub(super) by_sample: usize,
}

lent_per_thread!(DescendingCut);
room!(DescendingCut: part, es, ps, binades, sample, words, remainder, equals);

/// The result of a search for the cut of a descending sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum End {
    /// The running sum of the probabilities, the largest first, reaches the threshold.
    At {
        /// The number of probabilities in the sum when it first reaches the threshold.
        n: usize,
        /// The logit of the last of them.
        last: f32,
    },
    /// The sum of all probabilities does not reach the threshold.
    Beyond,
    /// The cut can be found only by sorting all candidates.
    Unknown,
}

/// The numbers that determine a cut.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// The largest logit, which is finite.
    pub max: f32,
    /// The sum by which exponentials are divided.
    pub sum: f32,
    /// The number that the sum of the probabilities is to reach.
    pub p: f32,
    /// The approximate sum of the exponentials of the given logits.
    pub total: f64,
}

impl Cut {
    /// Returns the probabilities `ps`, of logits with the exponentials `es`, as terms to add.
    /// `total` is the approximate sum of the exponentials.
    fn series<'a>(&self, es: &'a [f32], ps: &'a [f32], total: f64) -> Series<'a> {
        Series {
            keys: es,
            values: ps,
            terms: Terms::Probabilities(self.sum),
            total: total / f64::from(self.sum),
            until: self.p,
        }
    }

    /// Returns the logit of an exponential, approximately.
    fn logit(&self, e: f32) -> f32 {
        self.max + libm::ln(e)
    }
}

/// The least number of logits for which a sample is taken.
const MANY: usize = 8192;
/// The part of the distance between the binade's beginning and the target that the exact terms
/// before the approximate ones are to cover: so much that they hardly ever end in another binade.
const COVERED: f32 = 0.15;

impl DescendingCut {
    /// Returns the number of `logits`, from the largest down, at which the `float` sum of their
    /// probabilities reaches `of.p`. No logit is NaN.
    pub fn find(&mut self, logits: &[f32], of: Cut) -> End {
        let Some(end) = self.find_by_sample(logits, of) else {
            return self.find_among_all(logits, of);
        };
        #[cfg(test)]
        {
            self.by_sample += 1;
        }
        end
    }

    fn find_among_all(&mut self, logits: &[f32], of: Cut) -> End {
        let total = self.exponentiate(logits, of);
        self.binades.prepare(&self.es);
        match self.binades.run(of.series(&self.es, &self.ps, total)) {
            Some(Outcome::Here(reaching)) => self.end(0, logits, reaching),
            Some(Outcome::All(_)) => End::Beyond,
            None => End::Unknown,
        }
    }

    /// Finds the cut with the help of a sample. `None` if there are few logits, or if the sample
    /// misleads.
    fn find_by_sample(&mut self, logits: &[f32], of: Cut) -> Option<End> {
        if logits.len() < MANY || !(0.01..1.0).contains(&of.p) {
            return None;
        }
        let mut part = std::mem::take(&mut self.part);
        let end = self.find_in_parts(logits, of, &mut part);
        self.part = part;
        end
    }

    fn find_in_parts(&mut self, logits: &[f32], of: Cut, part: &mut Vec<f32>) -> Option<End> {
        let c = binade(of.p.next_down());
        self.take_sample(logits, of.max);
        let covered = self.reaching(c + COVERED * (of.p - c), logits.len(), of)?;
        let lowest = of.logit(covered);
        part.clear();
        pick_at_least(logits, lowest, part);
        let total = self.exponentiate(part, of);
        self.binades.prepare(&self.es);
        let series = of.series(&self.es, &self.ps, total);
        let mut sum = match self.binades.run(series)? {
            Outcome::Here(reaching) => return Some(self.end(0, part, reaching)),
            Outcome::All(sum) => sum,
        };
        if sum < c {
            return None;
        }
        let from = Reached {
            sum,
            bound: covered,
        };
        let series = of.series(&[], &[], of.total);
        let bracket = self.binades.bracket_in(&mut self.sample, series, from);
        let high = if bracket.few {
            lowest
        } else {
            of.logit(bracket.high).min(lowest)
        };
        if high < lowest {
            let between = Rounded {
                max: of.max,
                above: high.next_down(),
                below: lowest,
                c,
                terms: series.terms,
            };
            sum = match self.remainder.add(sum, logits, between)? {
                Ended::At(sum) if sum < of.p => sum,
                Ended::At(_) | Ended::Beyond(_) => return None,
            };
        }
        part.clear();
        pick(logits, logits, of.logit(bracket.low), high, part);
        let total = self.exponentiate(part, of);
        let series = of.series(&self.es, &self.ps, total);
        let reaching = self.binades.run_on(series, sum)?;
        Some(self.end(count_at_least(logits, high), part, reaching))
    }

    /// Takes a sample of the exponentials.
    fn take_sample(&mut self, logits: &[f32], max: f32) {
        take_groups(logits, SIZE, GROUP, &mut self.sample);
        approximate_exp_sum(&mut self.sample, max);
        sort_descending(&mut self.sample, &mut self.words);
    }

    /// Returns the exponential down to which the probabilities of the `n` logits sum to about `p`,
    /// or a larger sum; `None` if they sum to less. The sample is used from its least element on,
    /// since few large elements, which it may or may not contain, can have most of the sum.
    fn reaching(&self, p: f32, n: usize, of: Cut) -> Option<f32> {
        let rest = (of.total - f64::from(p * of.sum)) * SIZE as f64 / n as f64;
        let mut added = 0.0;
        let mut es = self.sample.iter().copied().rev();
        es.find(|&e| {
            added += f64::from(e);
            added >= rest
        })
    }

    /// Computes the exponentials and probabilities of `logits`. Returns the approximate sum of the
    /// exponentials.
    fn exponentiate(&mut self, logits: &[f32], of: Cut) -> f64 {
        let total = exponentials(logits, of.max, &mut self.es);
        Terms::Probabilities(of.sum).of(&self.es, &mut self.ps);
        total
    }

    /// Returns the cut at a term of the logits whose exponentials were computed last. `before` is
    /// the number of larger logits that are not among these.
    // In bounds: the term that was found is one of those with its key.
    fn end(&mut self, before: usize, logits: &[f32], at: Reaching) -> End {
        // Several logits may have this exponential.
        let above = at.key.next_up();
        self.equals.clear();
        pick(&self.es, logits, at.key, above, &mut self.equals);
        let (_, &mut last, _) = self
            .equals
            .select_nth_unstable_by(at.nth, |a, b| b.total_cmp(a));
        End::At {
            n: before + count_at_least(&self.es, above) + at.nth + 1,
            last,
        }
    }
}
