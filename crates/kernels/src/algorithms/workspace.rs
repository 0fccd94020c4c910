//! Computes the softmax outside the array, with 4 bytes per candidate, in reused buffers.

use super::categorical;
use super::descending_draw::Descending;
use super::scratch::Room;
use crate::host_profile::{Fused, fuses};
use crate::kernels::column::copy_logits;
use crate::kernels::entropy;
use crate::kernels::layout::{CHUNK, NOTHING, SUM_BLOCK};
use crate::kernels::quotient::set_quotients;
use crate::kernels::rewrite::divide;
use crate::kernels::rounding_test::approximate_exp_sum;
use crate::kernels::scan::claimed_max;
use crate::kernels::sequential_sum::{self, sum_double};
use crate::kernels::softmax::{
    exp_double, exp_double_by, exp_sum, exp_sum_by, exp_sum_double, exp_sum_double_by, isa_for,
};
use crate::per_thread::lent_per_thread;
use crate::simd::{Function, Isa, libm, prefetch};
use crate::token::TokenData;

/// One `float` per candidate, and sums of these, in reused buffers.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    values: Vec<f32>,
    /// The number of `values` in use.
    len: usize,
    sums: Vec<f64>,
}

lent_per_thread!(Workspace);

impl Room for Workspace {
    /// Requests zeroed memory from the system. Writing the zeros would make all of the memory
    /// resident, however little is used.
    fn warm_up(&mut self, n: usize) {
        if self.values.len() < n {
            self.values = Vec::new();
            self.values = vec![0.0; n.next_power_of_two()];
        }
        let blocks = n.div_ceil(SUM_BLOCK);
        if self.sums.len() < blocks {
            self.sums = vec![0.0; blocks.next_power_of_two()];
        }
    }
}

impl Workspace {
    /// Sets the number of values to `n`. The buffer never shrinks, and keeps the old values if it
    /// is large enough: zeroing would be an extra pass.
    #[inline]
    pub fn reserve(&mut self, n: usize) {
        self.len = n;
        self.warm_up(n);
    }

    /// Returns the size of the buffers in bytes.
    pub fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>() + self.sums.capacity() * size_of::<f64>()
    }

    /// Returns the values that the last call left, one per candidate.
    #[inline]
    pub fn values(&self) -> &[f32] {
        &self.values[..self.len]
    }

    /// Returns the values that the last call left, to be rewritten.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.len]
    }

    /// Copies the logits, NaN as minus infinity, and returns the largest.
    ///
    /// Reads 12 bytes per candidate and writes 4.
    pub fn take_logits(&mut self, data: &[TokenData]) -> f32 {
        self.reserve(data.len());
        copy_logits(data, &mut self.values[..data.len()])
    }

    /// Computes `exp(logit - max)` of every candidate, and returns their sum, a `float`, as if
    /// added in order. If `sorted`, the first logit counts as the largest.
    ///
    /// Reads 12 bytes per candidate once, and writes, reads and writes 4.
    pub fn exponentiate(&mut self, data: &[TokenData], sorted: bool) -> f32 {
        let largest = self.take_logits(data);
        self.exponentiate_values(largest, claimed_max(data, sorted, largest))
    }

    /// Computes `exp(logit - max)` of descending logits, and returns their sum, a `float`, as if
    /// added in order.
    ///
    /// Reads 4 bytes per element and writes 4.
    pub fn exponentiate_sorted(&mut self, logits: &[f32]) -> f32 {
        self.reserve(logits.len());
        let max = logits.first().copied().unwrap_or(0.0);
        let mut sum = 0.0;
        let to = self.values_mut().chunks_mut(CHUNK);
        for (from, to) in logits.chunks(CHUNK).zip(to) {
            // Prefetches the next logits while these are processed.
            for line in (0..CHUNK).step_by(16) {
                prefetch(to, CHUNK + line);
                prefetch(from, CHUNK + line);
            }
            to.copy_from_slice(from);
            sum = exp_sum(sum, to, max);
        }
        sum
    }

    /// Returns the entropy of the softmax of descending logits, with the roundings of `float` sums
    /// in that order. Probabilities of 0 add nothing.
    ///
    /// Both sums end where the remaining terms are too small to change them. Reads 4 bytes per
    /// element and writes 4, once with an `exp` and once with a `ln`.
    // In bounds: `start < done <= len` wherever values are read, and a part has at least one and at
    // most `CHUNK` elements.
    pub fn entropy_of_sorted(&mut self, logits: &[f32]) -> f32 {
        self.reserve(logits.len());
        let mut sum = 0.0;
        let mut done = 0;
        while done < logits.len() && !(done > 0 && self.values[done - 1] < sum * NOTHING) {
            sum = self.exponentiate_next(sum, logits, &mut done);
        }
        let fused = fuses(Fused::Entropy);
        let mut entropies = [0.0; CHUNK];
        let mut entropy = 0.0;
        let mut start = 0;
        while start < logits.len() {
            if start == done {
                self.exponentiate_next(0.0, logits, &mut done);
            }
            let end = done.min(start + CHUNK);
            let ps = &mut self.values[start..end];
            divide(ps, sum);
            let last = ps[ps.len() - 1];
            let last_term = if fused {
                entropy = entropy::fused_entropy(entropy, ps);
                if last > 0.0 {
                    -last * libm::ln(last)
                } else {
                    0.0
                }
            } else {
                let terms = &mut entropies[..ps.len()];
                entropy::entropies(ps, terms);
                entropy = sequential_sum::sum(entropy, terms);
                terms[terms.len() - 1]
            };
            // Below 1 / e, -p ln p falls as p falls.
            if last < 0.3 && last_term < entropy * NOTHING {
                break;
            }
            start = end;
        }
        entropy
    }

    /// Computes the exponentials of the next few descending logits from `done` on, and advances
    /// `done`. Returns `sum` plus these exponentials.
    // In bounds: `done < logits.len()`, and as many values are reserved.
    fn exponentiate_next(&mut self, sum: f32, logits: &[f32], done: &mut usize) -> f32 {
        let end = logits.len().min(*done + CHUNK);
        let values = &mut self.values[*done..end];
        values.copy_from_slice(&logits[*done..end]);
        *done = end;
        exp_sum(sum, values, logits[0])
    }

    /// Divides descending logits by `by`; the largest quotient must be finite. Then computes
    /// `exp(logit - largest)` and the sum in `double`, as [`exponentiate_as_double`] does.
    ///
    /// [`exponentiate_as_double`]: Self::exponentiate_as_double
    pub fn divide_and_exponentiate(&mut self, logits: &mut [f32], by: f32) -> f64 {
        self.reserve(logits.len());
        let max = logits.first().map_or(0.0, |x| x / by);
        let mut sum = 0.0;
        let to = self.values_mut().chunks_mut(CHUNK);
        for (from, to) in logits.chunks_mut(CHUNK).zip(to) {
            divide(from, by);
            to.copy_from_slice(from);
            sum = exp_double(sum, to, max);
        }
        sum
    }

    /// Replaces the values, the largest of which is `largest`, with `exp(value - max)`, and returns
    /// their sum, a `float`, as if added in order.
    pub fn exponentiate_values(&mut self, largest: f32, max: f32) -> f32 {
        exp_sum_by(
            isa_for(largest, max),
            0.0,
            &mut self.values[..self.len],
            max,
        )
    }

    /// Computes the exponentials as [`exponentiate`](Self::exponentiate) does, with a sum in
    /// `double`, as if added one by one; [`choose`](Self::choose) uses it.
    pub fn exponentiate_double(&mut self, data: &[TokenData], sorted: bool) -> f64 {
        let largest = self.take_logits(data);
        let max = claimed_max(data, sorted, largest);
        let values = &mut self.values[..self.len];
        exp_sum_double_by(isa_for(largest, max), values, max, &mut self.sums)
    }

    /// Computes `exp(logit - max)` of a column of logits, the largest of which is `max`, and
    /// returns their sum in `double`, as if added one by one.
    ///
    /// Reads 4 bytes per logit, and writes, reads and writes 4.
    pub fn exponentiate_logits(&mut self, logits: &[f32], max: f32) -> f64 {
        self.reserve(logits.len());
        let values = &mut self.values[..logits.len()];
        values.copy_from_slice(logits);
        exp_sum_double(values, max, &mut self.sums)
    }

    /// Computes `exp(logit - max)` of a column of logits, the largest of which is `largest`, and
    /// returns their sum, a `float`, as if added in order.
    ///
    /// Reads 4 bytes per logit, and writes, reads and writes 4.
    pub fn exponentiate_of_logits(&mut self, logits: &[f32], largest: f32, max: f32) -> f32 {
        self.reserve(logits.len());
        self.values[..logits.len()].copy_from_slice(logits);
        self.exponentiate_values(largest, max)
    }

    /// Computes the exponentials of `from`, relative to the first candidate that is not excluded;
    /// `larger` are the candidates with a larger logit. Returns the sum of the exponentials.
    /// Excluded candidates that are equal to the first one count 1 each.
    ///
    /// Reads 4 bytes per logit, and writes, reads and writes 4.
    pub fn exponentiate_without(&mut self, from: Descending<'_>, larger: &[TokenData]) -> f64 {
        self.divide_without(from, larger);
        let values = &mut self.values[..self.len];
        exp_sum_double(values, from.first / from.divisor, &mut self.sums)
    }

    /// Computes exponentials as [`exponentiate_without`](Self::exponentiate_without) does, but
    /// approximately (see [`approximate_exp_sum`]), which takes a third of the time.
    pub fn approximate_without(&mut self, from: Descending<'_>, larger: &[TokenData]) -> f64 {
        self.divide_without(from, larger);
        approximate_exp_sum(&mut self.values[..self.len], from.first / from.divisor)
    }

    /// Copies the logits of `from`, divided by its divisor. Those of `larger` become minus
    /// infinity.
    // In bounds: a value was just reserved for every token.
    fn divide_without(&mut self, from: Descending<'_>, larger: &[TokenData]) {
        self.reserve(from.logits.len());
        let values = &mut self.values[..from.logits.len()];
        values.copy_from_slice(from.logits);
        for left_out in larger {
            values[left_out.id as usize] = f32::NEG_INFINITY;
        }
        if from.divisor != 1.0 {
            divide(values, from.divisor);
        }
    }

    /// Computes `exp(logit - max)` with difference, exponential and sum in `double`, bit for bit as
    /// the built-in does.
    pub fn exponentiate_as_double(&mut self, data: &[TokenData], max: f32) -> f64 {
        let largest = self.take_logits(data);
        // A logit above the first one can occur only in an array that is wrongly marked as sorted.
        let isa = if largest > max {
            Isa::SCALAR
        } else {
            Isa::exact(Function::ExpF64)
        };
        exp_double_by(isa, 0.0, &mut self.values[..self.len], max)
    }

    /// Writes the probabilities of sorted candidates, computed in `double`, as for dynamic
    /// temperature. The first logit must be finite.
    pub fn softmax_double(&mut self, data: &mut [TokenData]) {
        let max = data.first().map_or(0.0, |first| first.logit);
        let sum = self.exponentiate_as_double(data, max);
        self.write_p_divided(data, sum);
    }

    /// Computes the probabilities of all candidates, normalised by the `float` sum, as for top-p
    /// and typical.
    pub fn softmax(&mut self, data: &[TokenData], sorted: bool) {
        let sum = self.exponentiate(data, sorted);
        divide(self.values_mut(), sum);
    }

    /// Returns the sum of all values in `double`, not added in order, for [`choose`](Self::choose).
    ///
    /// Reads 4 bytes per candidate.
    pub fn sum_double(&mut self) -> f64 {
        sum_double(&self.values[..self.len], &mut self.sums)
    }

    /// Copies the probabilities of `data`.
    pub fn take_ps(&mut self, data: &[TokenData]) {
        self.reserve(data.len());
        for (to, candidate) in self.values_mut().iter_mut().zip(data) {
            *to = candidate.p;
        }
    }

    /// Returns the index at which the running sum of the values reaches `draw` times their sum, as
    /// [`categorical::choose`] does. `sum` is the sum in `double` that the last call returned.
    pub fn choose(&self, sum: f64, draw: f64, exactly: impl FnOnce(&[f32]) -> usize) -> usize {
        categorical::choose(
            self.values(),
            |&value| value,
            &self.sums,
            (sum, draw),
            exactly,
        )
    }

    /// Writes the values divided by `by` in `double` as probabilities.
    pub fn write_p_divided(&self, data: &mut [TokenData], by: f64) {
        set_quotients(data, self.values(), by);
    }
}

#[cfg(test)]
mod tests;
