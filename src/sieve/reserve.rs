//! Reservation of memory before the first token.

use crate::memory;
use crate::sieve::{Error, Sieve, stateless};

/// More bytes for each token of the vocabulary than all buffers together take.
const MOST_PER_TOKEN: usize = 1024;

impl Sieve {
    /// Takes the memory for vocabularies of up to `n_vocab` tokens with the parameters in force, so
    /// that the first token, too, allocates nothing, but where stages of its own grow with the
    /// logits. Nothing else changes. Fails, and changes nothing, for 0, for more than there are
    /// token numbers, and without memory.
    pub fn reserve(&mut self, n_vocab: usize) -> Result<(), Error> {
        stateless::check(n_vocab)?;
        memory::room(n_vocab.saturating_mul(MOST_PER_TOKEN))?;
        self.stages.warm_up(n_vocab);
        self.pipeline.warm_up(n_vocab)?;
        Ok(())
    }
}
