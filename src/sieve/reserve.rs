//! Reservation of memory before the first token.
//!
//! How much memory a stage needs follows from the vocabulary size and the parameters, but which
//! buffers a token needs depends on its logits. So one token is sampled from each kind of logits
//! that takes a different code path. Each buffer is reserved for the number of candidates, not for
//! those that are kept.

use crate::memory;
use crate::sieve::{Error, Logits, RngKind, Sieve, stateless};

/// More bytes for each token of the vocabulary than all buffers together take.
const MOST_PER_TOKEN: usize = 512;

/// Kinds of logits, each a function of the index of a token and a number in [0, 1) that is as good
/// as random.
const KINDS: [fn(usize, f32) -> f32; 10] = [
    // A few far above the others.
    |i, x| if i % 997 == 0 { 20.0 + x } else { 4.0 * x },
    // All about as probable.
    |_, x| x,
    // The same in half precision, so with many ties.
    |_, x| (x * 128.0).floor() / 128.0,
    // All equal.
    |_, _| 1.0,
    // Probabilities that become 0.
    |_, x| 600.0 * x,
    // So large that the host's order does not begin with the largest.
    |_, x| 1e38 * (x - 0.5),
    |i, x| if i % 997 == 0 { f32::INFINITY } else { x },
    // All but a few masked, distinct and tied.
    |i, x| {
        if i % 61 == 0 {
            8.0 * x
        } else {
            f32::NEG_INFINITY
        }
    },
    |i, x| {
        if i % 61 == 0 {
            (8.0 * x).floor()
        } else {
            f32::NEG_INFINITY
        }
    },
    // Half of them masked.
    |i, x| {
        if i % 2 == 0 {
            f32::NEG_INFINITY
        } else {
            12.0 * x * x
        }
    },
];

impl Sieve {
    /// Takes the memory for vocabularies of up to `n_vocab` tokens with the parameters in force, so
    /// that the first token, too, allocates nothing, but where stages of its own grow with the
    /// logits. Nothing else changes. Takes as long as some tokens. Fails, and changes nothing, for
    /// 0, for more than there are token numbers, and without memory.
    pub fn reserve(&mut self, n_vocab: usize) -> Result<(), Error> {
        stateless::check(n_vocab)?;
        memory::room(n_vocab.saturating_mul(MOST_PER_TOKEN))?;
        let mut logits = Vec::new();
        logits.try_reserve_exact(n_vocab)?;
        logits.resize(n_vocab, 0.0f32);
        let k = self.params.top_k_of(n_vocab).unwrap_or(n_vocab);
        self.stages.reserve(n_vocab, k);
        let (generator, stats) = (self.generator.clone(), self.stats);
        let (remembered, mt19937) = self.remembered()?;
        for kind in KINDS {
            // Weyl's sequence: multiples of an irrational number, without their whole part.
            for (i, logit) in logits.iter_mut().enumerate() {
                *logit = kind(i, (i as f64 * 0.618_033_988_749_895).fract() as f32);
            }
            self.rehearse(&logits);
        }
        self.generator = generator;
        self.stats = stats;
        self.pipeline.clear();
        // Its own.
        let _ = self.pipeline.members.load(mt19937, &remembered);
        Ok(())
    }

    /// Returns the memory of the stages as bytes, and true if that includes their random streams,
    /// as it does with mt19937.
    fn remembered(&self) -> Result<(Vec<u8>, bool), Error> {
        let mt19937 = self.params.rng == RngKind::Mt19937;
        let mut bytes = Vec::new();
        let members = self.members();
        memory::reserve_exact(&mut bytes, members.saved_size(mt19937))?;
        members.save(mt19937, &mut |part| bytes.extend_from_slice(part));
        Ok((bytes, mt19937))
    }

    /// Samples a token of these logits with XTC acting, and without. What there is to draw from,
    /// and whether anything, does not matter.
    fn rehearse(&mut self, logits: &[f32]) {
        let swap = |sieve: &mut Self, probability: f32| {
            let members = &mut sieve.pipeline.members;
            members.swap_xtc_probability(probability)
        };
        let asked = swap(self, 0.0);
        let _ = self.run(Logits::F32(logits), None);
        if let Some(probability) = asked {
            swap(self, 1.0);
            let _ = self.run(Logits::F32(logits), None);
            swap(self, probability);
        }
    }
}

#[cfg(test)]
mod tests;
