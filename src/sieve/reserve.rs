//! Allocates memory before the first token.

use crate::memory;
use crate::sieve::{Error, Sieve, stateless};

/// An upper bound on the bytes that all buffers together take for each token of the vocabulary.
const MOST_PER_TOKEN: usize = 1024;

impl Sieve {
    /// Allocates the memory for vocabularies of up to `n_vocab` tokens with the current parameters,
    /// so that even the first token allocates nothing on this thread. Two kinds of buffers may
    /// still grow: those of [custom stages](Self::set_stages), with the number of logits, and the
    /// tables of penalties and DRY, as tokens are accepted. Changes nothing else. Fails, and
    /// changes nothing, if `n_vocab` is 0 or exceeds the largest token id, or if there is too
    /// little memory.
    pub fn reserve(&mut self, n_vocab: usize) -> Result<(), Error> {
        stateless::check(n_vocab)?;
        memory::room(n_vocab.saturating_mul(MOST_PER_TOKEN))?;
        self.stages.warm_up(n_vocab);
        self.pipeline.warm_up(n_vocab)?;
        Ok(())
    }
}
