//! A sieve as a sampler of a chain.

use std::ffi::CStr;

use crate::candidates::Candidates;
use crate::last_error;
use crate::sampler::{Kind, Sampler};
use crate::sieve::{Error, Params, Sieve};
use crate::token::Token;

/// A sampler that chooses the token as a sieve does, from the candidates that earlier samplers of
/// the chain have left. Afterwards the array has the candidates from which the token was drawn,
/// with their probabilities.
///
/// If the sieve fails, for example because every candidate is masked, the first candidate with the
/// largest logit is selected, since a host aborts if no candidate is selected.
#[derive(Clone, Debug)]
pub struct SieveSampler(Sieve);

impl SieveSampler {
    /// Returns a sampler with these parameters. Fails as [`Sieve::new`] does.
    pub fn new(params: &Params) -> Result<Self, Error> {
        Sieve::new(params).map(Self)
    }
}

/// Makes a sampler of a sieve, for example of one with custom stages.
impl From<Sieve> for SieveSampler {
    fn from(sieve: Sieve) -> Self {
        Self(sieve)
    }
}

impl Sampler for SieveSampler {
    const KIND: Kind = Kind::Selector;
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"sieve"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if let Err(error) = self.0.sample_candidates(candidates) {
            last_error::set(error.code(), &format!("sieve: {error}"));
            let best = candidates.argmax();
            candidates.select(best);
        }
    }

    fn accept(&mut self, token: Token) {
        self.0.accept(token);
    }

    fn reset(&mut self) {
        self.0.reset();
    }

    fn seed(&self) -> Option<u32> {
        Some(self.0.seed() as u32)
    }
}
