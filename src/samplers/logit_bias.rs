//! Logit bias: adds a constant to the logits of given tokens; minus infinity bans a token.
//!
//! While the array has not been reordered, each token is found in one step: O(biases). If a token
//! is not at its index, one pass looks up every candidate. A token that is listed several times
//! gets all its biases at its index, but only the first one if it has to be searched for, as in the
//! built-in.

use std::ffi::CStr;

use crate::built_in::{BuiltIn, InGraph};
use crate::candidates::Candidates;
use crate::history::TokenMap;
use crate::memory;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell};
use crate::token::Token;

/// Adds biases to logits.
#[derive(Clone, Debug)]
pub struct LogitBias {
    /// The size of the vocabulary, which only a built-in that replaces the sampler needs.
    n_vocab: i32,
    biases: Vec<(Token, f32)>,
    /// The first bias of each token.
    first: TokenMap<f32>,
}

impl LogitBias {
    /// Returns a sampler; `None` if there are no biases.
    pub fn new(biases: &[(Token, f32)]) -> Option<Self> {
        if biases.is_empty() {
            return None;
        }
        let mut first = TokenMap::default();
        first
            .try_reserve(biases.len())
            .unwrap_or_else(memory::exhausted);
        for &(token, bias) in biases {
            first.entry(token).or_insert(bias);
        }
        Some(Self {
            n_vocab: 0,
            biases: memory::copied(biases),
            first,
        })
    }

    /// Returns the sampler with this size of the vocabulary.
    pub fn of_vocabulary(self, n_vocab: i32) -> Self {
        Self { n_vocab, ..self }
    }

    // In bounds: `i` runs below the number of candidates.
    fn add_by_search(&self, candidates: &mut Candidates<'_>) {
        for i in 0..candidates.len() {
            let id = candidates.as_slice()[i].id;
            let Some(bias) = self.first.get(&id) else {
                continue;
            };
            if candidates.index_in_place(id).is_none() {
                candidates.as_mut_slice()[i].logit += bias;
            }
        }
    }
}

impl Sampler for LogitBias {
    const IN_GRAPH: InGraph = InGraph::AsBuiltIn;

    fn name(&self) -> &'static CStr {
        c"logit-bias"
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        if about == About::Parameters {
            to("n", self.biases.len() as f64);
        }
    }

    fn built_in(&self) -> Option<BuiltIn> {
        Some(BuiltIn::LogitBias {
            n_vocab: self.n_vocab,
            biases: self.biases.clone(),
        })
    }

    // In bounds: `index_in_place` returns indices of the array.
    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        let mut all_in_place = true;
        for &(token, bias) in &self.biases {
            match candidates.index_in_place(token) {
                Some(i) => candidates.as_mut_slice()[i].logit += bias,
                None => all_in_place = false,
            }
        }
        if !all_in_place {
            self.add_by_search(candidates);
        }
    }

    /// Adds all biases of each token at its index.
    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        whole.add(self.biases.iter().copied());
        true
    }
}
