//! Finds the rank at which the running sum of the probabilities, the largest first, reaches a
//! number.

use super::binades::{Binades, Outcome, Reaching, Series};
use super::exponentials;
use super::terms::Terms;
use crate::algorithms::scratch::room;
use crate::kernels::compact::pick;
use crate::kernels::scan::count_at_least;
use crate::per_thread::lent_per_thread;

/// Buffers for finding a cut.
#[derive(Clone, Debug, Default)]
pub struct DescendingCut {
    es: Vec<f32>,
    ps: Vec<f32>,
    pub(super) binades: Binades,
    /// Logits with equal exponentials.
    equals: Vec<f32>,
}

lent_per_thread!(DescendingCut);
room!(DescendingCut: es, ps, binades, equals);

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

impl DescendingCut {
    /// Returns the number of `logits`, from the largest down, at which the `float` sum of their
    /// probabilities reaches `p`. No logit is NaN; `max` is the largest, and finite. `sum` is the
    /// sum of the exponentials, by which they are divided.
    // In bounds: the term that was found is one of those with its key.
    pub fn find(&mut self, logits: &[f32], max: f32, sum: f32, p: f32) -> End {
        let total = exponentials(logits, max, &mut self.es);
        let terms = Terms::Probabilities(sum);
        terms.of(&self.es, &mut self.ps);
        self.binades.prepare(&self.es);
        let series = Series {
            keys: &self.es,
            values: &self.ps,
            terms,
            total: total / f64::from(sum),
            until: p,
        };
        let Reaching { key, nth } = match self.binades.run(series) {
            Some(Outcome::Here(reaching)) => reaching,
            Some(Outcome::All(_)) => return End::Beyond,
            None => return End::Unknown,
        };
        // Several logits may have this exponential.
        let above = key.next_up();
        self.equals.clear();
        pick(&self.es, logits, key, above, &mut self.equals);
        let (_, &mut last, _) = self
            .equals
            .select_nth_unstable_by(nth, |a, b| b.total_cmp(a));
        End::At {
            n: count_at_least(&self.es, above) + nth + 1,
            last,
        }
    }
}
