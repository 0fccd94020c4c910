//! Computes the softmax of candidates in place, in their field for the probability.

use super::categorical::choose;
use super::scratch::Room;
use crate::kernels::layout::SUM_BLOCK;
use crate::kernels::rewrite::divide_p;
use crate::kernels::scan::{claimed_max, max};
use crate::kernels::softmax::{exp_p_by, exp_p_in_order_by, isa_for};
use crate::per_thread::lent_per_thread;
use crate::token::TokenData;

/// Computes the softmax of candidates, and keeps the sums of its blocks in a reused buffer.
///
/// It takes three passes: for the largest logit, the exponentials, and the division. The last one
/// begins where the previous one ended, with data that is still in the caches. There is no buffer
/// for a copy of the logits: it would have left the caches by the time the model has computed the
/// next ones.
#[derive(Clone, Debug)]
pub struct Softmax {
    sums: Vec<f64>,
    /// Scratch for one block.
    values: Box<[f32; SUM_BLOCK]>,
}

lent_per_thread!(Softmax);

/// The number of blocks that the buffer has room for: more than an array of a usual vocabulary has.
const BLOCKS: usize = 512;

impl Default for Softmax {
    fn default() -> Self {
        Self {
            sums: Vec::new(),
            values: Box::new([0.0; SUM_BLOCK]),
        }
    }
}

impl Room for Softmax {
    fn warm_up(&mut self, n: usize) {
        let blocks = n.div_ceil(SUM_BLOCK).max(BLOCKS);
        if self.sums.capacity() < blocks {
            let room = blocks.next_power_of_two();
            self.sums.reserve(room - self.sums.len());
        }
    }
}

impl Softmax {
    /// Writes `exp(logit - max)` into every `p`, and returns their sum in `double`, as if added one
    /// by one. If `sorted`, the first logit counts as the largest.
    ///
    /// Reads 12 bytes per candidate twice, and writes them once.
    pub fn exponentiate(&mut self, data: &mut [TokenData], sorted: bool) -> f64 {
        self.reserve(data.len());
        let largest = max(data);
        let max = claimed_max(data, sorted, largest);
        exp_p_by(
            isa_for(largest, max),
            data,
            max,
            &mut self.values,
            &mut self.sums,
        )
    }

    /// Writes `exp(logit - max)` into every `p`, and returns their sum as a `float`, as if added in
    /// order.
    pub fn exponentiate_in_order(&mut self, data: &mut [TokenData], sorted: bool) -> f32 {
        let largest = max(data);
        let max = claimed_max(data, sorted, largest);
        self.exponentiate_from(data, largest, max)
    }

    /// Writes `exp(logit - max)` into every `p`, and returns their sum as a `float`, as if added in
    /// order. `largest` is the largest logit. Reads and writes 12 bytes per candidate.
    pub fn exponentiate_from(&mut self, data: &mut [TokenData], largest: f32, max: f32) -> f32 {
        exp_p_in_order_by(isa_for(largest, max), data, max, &mut self.values)
    }

    /// Divides every `p` by `by`, and returns their sum in `double`, not added in order. Reads and
    /// writes 12 bytes per candidate.
    pub fn divide(&mut self, data: &mut [TokenData], by: f32) -> f64 {
        self.reserve(data.len());
        divide_p(data, by, &mut self.sums)
    }

    fn reserve(&mut self, n: usize) {
        self.warm_up(n);
        self.sums.resize(n.div_ceil(SUM_BLOCK), 0.0);
    }

    /// Returns the index at which the running sum of the `p` reaches `draw` times `sum`, the result
    /// of the last call. Where rounding could decide, `exactly` computes the index by the
    /// operations of the built-in.
    pub fn choose(
        &self,
        data: &[TokenData],
        sum: f64,
        draw: f64,
        exactly: impl FnOnce(&[TokenData]) -> usize,
    ) -> usize {
        choose(data, |c| c.p, &self.sums, (sum, draw), exactly)
    }
}
