//! Logit bias: numbers that are added to the logits of some tokens before all stages.

use std::collections::TryReserveError;

use crate::candidates::Candidates;
use crate::memory;
use crate::pool::{Pool, Whole};
use crate::token::Token;

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

    // In bounds: a partition point is at most the length.
    fn of(&self, token: Token) -> &[Bias] {
        let first = self.0.partition_point(|&(t, ..)| t < token);
        let last = first + self.0[first..].partition_point(|&(t, ..)| t == token);
        &self.0[first..last]
    }

    /// Adds the biases to the logits of a vocabulary.
    pub(super) fn add_to_whole(&self, whole: &mut Whole<'_, '_>) {
        let biases = self.0.iter();
        whole.add(biases.map(|&(token, _, bias)| (token, bias)));
    }

    /// Fills `pool` with these candidates, and adds their biases. As in llama.cpp's own sampler, a
    /// candidate whose index differs from its token gets only the first of several biases, and the
    /// array stays marked as sorted.
    pub(super) fn add_to_candidates(&self, candidates: &Candidates<'_>, pool: &mut Pool<'_>) {
        pool.keep(candidates.as_slice(), candidates.is_sorted());
        if self.0.is_empty() {
            return;
        }
        for (place, candidate) in pool.array().0.iter_mut().enumerate() {
            let biases = self.of(candidate.id);
            let is_in_place = usize::try_from(candidate.id) == Ok(place);
            let n = if is_in_place { biases.len() } else { 1 };
            for &(.., bias) in biases.iter().take(n) {
                candidate.logit += bias;
            }
        }
    }
}
