//! The tail of a descending sum, which covers most of an array and in which the sum no longer
//! leaves its binade.
//!
//! Rounded to the unit of the binade, the terms can be added in any order, and need no exact
//! exponentials (see [`rounding_test`](crate::kernels::rounding_test)). How a term half-way between
//! two multiples is rounded depends on the sum of the terms before it, and computing that takes
//! another pass. An array usually has one such term or none.

use super::terms::MANY;
use crate::algorithms::scratch::room;
use crate::kernels::compact::pick;
use crate::kernels::rounding_test::{Rounded, SMALLEST, rounded_sum};

/// Buffers for the remainder.
#[derive(Clone, Debug, Default)]
pub(super) struct Remainder {
    /// Logits whose terms are half-way.
    halfway: Vec<f32>,
    larger: Larger,
    /// The logits above a half-way one.
    between: Vec<f32>,
}

/// The rounded terms above a logit.
#[derive(Clone, Debug, Default)]
struct Larger {
    doubtful: Vec<u32>,
    halfway: Vec<f32>,
}

/// The result of adding the remainder.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ended {
    /// The sum, which is still in its binade.
    At(f32),
    /// The approximate sum, which is beyond its binade.
    Beyond(f64),
}

room!(Remainder: halfway, larger, between);
room!(Larger: doubtful, halfway);

impl Remainder {
    /// Returns `sum`, which is in the binade from `of.c` on, plus the terms that `of` describes, as
    /// if added in descending order. `None` if that requires the order.
    pub(super) fn add(&mut self, sum: f32, logits: &[f32], of: Rounded) -> Option<Ended> {
        if !(SMALLEST..1e30).contains(&sum) {
            return None;
        }
        let start = f64::from(sum);
        let end = 2.0 * f64::from(of.c);
        let sum = start + self.larger.sum(logits, of);
        std::mem::swap(&mut self.halfway, &mut self.larger.halfway);
        let resolved = if sum < end {
            self.resolve(start, logits, of)?
        } else {
            0.0
        };
        let sum = sum + f64::from(resolved);
        Some(if sum < end {
            Ended::At(sum as f32)
        } else {
            Ended::Beyond(sum)
        })
    }

    /// Returns the sum of the half-way terms, rounded. `None` if too many of them differ.
    // In bounds: a chunk has at least one element.
    fn resolve(&mut self, start: f64, logits: &[f32], of: Rounded) -> Option<f32> {
        self.halfway.sort_unstable_by(|a, b| b.total_cmp(a));
        let mut resolved = 0.0;
        for (n, equals) in self.halfway.chunk_by(|a, b| a == b).enumerate() {
            if n == MANY {
                return None;
            }
            let above = equals[0];
            // Few logits lie in between. Copying them takes less time than computing all
            // exponentials.
            self.between.clear();
            pick(logits, logits, above.next_up(), of.below, &mut self.between);
            let larger = start + self.larger.sum(&self.between, of);
            for &x in equals {
                // The addition to this sum rounds a half-way term up or down.
                let before = larger as f32 + resolved;
                resolved += (before + of.term(x)) - before;
            }
        }
        Some(resolved)
    }
}

impl Larger {
    /// Returns the sum of the rounded terms, except the half-way ones, which are stored in
    /// `halfway`.
    // In bounds: the doubtful indices are those of `logits`.
    fn sum(&mut self, logits: &[f32], of: Rounded) -> f64 {
        self.doubtful.clear();
        self.halfway.clear();
        let mut sum = rounded_sum(logits, of, &mut self.doubtful);
        for &i in &self.doubtful {
            let x = logits[i as usize];
            match of.round(of.term(x)) {
                Some(rounded) => sum += f64::from(rounded),
                None => self.halfway.push(x),
            }
        }
        sum
    }
}
