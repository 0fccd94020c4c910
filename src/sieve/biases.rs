//! Logit bias: numbers that are added to the logits of some tokens before all stages.

use std::collections::TryReserveError;
use std::ffi::CStr;

use crate::memory;
use crate::pool::Pool;
use crate::sampler::{About, Step, Tell};
use crate::token::{Token, TokenData};

/// The biases of one sieve.
#[derive(Clone, Debug, Default)]
pub(super) struct Biases(
    /// The biases sorted by token; those of one token are in the caller's order.
    Vec<Bias>,
);

/// A token, its index in the caller's order, and its bias.
type Bias = (Token, u32, f32);

impl Biases {
    /// Allocates the memory for `n` biases. Changes nothing on failure.
    pub(super) fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let missing = n.saturating_sub(self.0.len());
        memory::reserve_exact(&mut self.0, missing)
    }

    pub(super) fn set(&mut self, biases: &[(Token, f32)]) {
        self.0.clear();
        let biases = biases.iter().zip(0..);
        self.0
            .extend(biases.map(|(&(token, bias), place)| (token, place, bias)));
        // The index is part of the key, since a stable sort would allocate.
        self.0
            .sort_unstable_by_key(|&(token, place, _)| (token, place));
    }

    /// Returns `logit` plus the biases of `token`.
    pub(super) fn add(&self, token: Token, logit: f32) -> f32 {
        self.of(token)
            .iter()
            .fold(logit, |logit, &(.., bias)| logit + bias)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    // In bounds: a partition point is at most the length.
    fn of(&self, token: Token) -> &[Bias] {
        let first = self.0.partition_point(|&(t, ..)| t < token);
        let last = first + self.0[first..].partition_point(|&(t, ..)| t == token);
        &self.0[first..last]
    }

    /// Adds the biases to the candidates of an array. As in llama.cpp's own sampler, a candidate
    /// whose index differs from its token gets only the first of several biases, and the array
    /// stays marked as sorted.
    fn add_to_candidates(&self, candidates: &mut [TokenData]) {
        for (place, candidate) in candidates.iter_mut().enumerate() {
            let biases = self.of(candidate.id);
            let is_in_place = usize::try_from(candidate.id) == Ok(place);
            let n = if is_in_place { biases.len() } else { 1 };
            for &(.., bias) in biases.iter().take(n) {
                candidate.logit += bias;
            }
        }
    }
}

impl Step for Biases {
    fn name(&self) -> &'static CStr {
        c"logit-bias"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("n", self.0.len() as f64);
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        match pool.whole() {
            Some(mut whole) => whole.add(self.0.iter().map(|&(token, _, bias)| (token, bias))),
            None => self.add_to_candidates(pool.array().0),
        }
    }
}
