//! Memory before the first token.
//!
//! What the stages take follows from the size of the vocabulary and the parameters, but which of
//! them a token needs from its logits. The sieve's own buffers are therefore made as large as they
//! can become, and the stages rehearse on logits of each kind that leads them another way; they
//! reserve by the size of what they are given.

use crate::kernels::collect::ROOM;
use crate::kernels::layout::{CHUNK, SUM_BLOCK};
use crate::memory::{self, reserve};
use crate::sieve::fast::FEW;
use crate::sieve::workspace::Workspace;
use crate::sieve::{Error, Logits, Params, RngKind, Sieve, Source, check_size};

/// More bytes for each token of the vocabulary than all buffers together take.
const MOST_PER_TOKEN: usize = 512;

/// Kinds of logits, by the place of a token and a number in [0, 1) that is as good as random.
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
        check_size(n_vocab)?;
        memory::room(n_vocab.saturating_mul(MOST_PER_TOKEN))?;
        let mut logits = Vec::new();
        logits.try_reserve_exact(n_vocab)?;
        logits.resize(n_vocab, 0.0f32);
        if !self.is_pipeline() {
            self.workspace.reserve_all(n_vocab, &self.params);
        }
        let k = self.params.top_k_of(n_vocab).unwrap_or(n_vocab);
        let most = if self.is_pipeline() { usize::MAX } else { FEW };
        self.stages.reserve(n_vocab, k, most);
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
        self.workspace.clear();
        if let Some(pipeline) = &mut self.pipeline {
            pipeline.clear();
            // Its own.
            let _ = pipeline.members.load(mt19937, &remembered);
        }
        Ok(())
    }

    /// What the stages remember, and whether their streams are among it.
    fn remembered(&self) -> Result<(Vec<u8>, bool), Error> {
        let mt19937 = self.params.rng == RngKind::Mt19937;
        let mut bytes = Vec::new();
        if let Some(members) = self.members() {
            memory::reserve_exact(&mut bytes, members.saved_size(mt19937))?;
            members.save(mt19937, &mut |part| bytes.extend_from_slice(part));
        }
        Ok((bytes, mt19937))
    }

    /// A token of these logits, by every way that a call can take.
    fn rehearse(&mut self, logits: &[f32]) {
        let logits = Logits::F32(logits);
        if self.is_pipeline() {
            return self.rehearse_pipeline(logits);
        }
        let mut keys = std::mem::take(&mut self.workspace.keys);
        let mut touched = std::mem::take(&mut self.workspace.touched);
        let (n, raw) = (logits.len(), |i| logits.at(i));
        self.adjustments
            .collect(n, &self.history, raw, &mut keys, &mut touched);
        self.workspace.keys = keys;
        for touched in [&[], &touched[..]] {
            let source = Source {
                logits,
                touched,
                divisor: 1.0,
            };
            for may_stay_apart in [true, false] {
                // What there is to draw from, and whether anything, does not matter.
                let _ = self.run(&source, logits, may_stay_apart && !self.measured);
            }
        }
        self.workspace.touched = touched;
    }

    /// The same of a pipeline, in which XTC acts, or does not.
    fn rehearse_pipeline(&mut self, logits: Logits<'_>) {
        let swap = |sieve: &mut Self, probability: f32| {
            let members = &mut sieve.pipeline.as_mut()?.members;
            members.swap_xtc_probability(probability)
        };
        let asked = swap(self, 0.0);
        let _ = self.run_pipeline(logits, None);
        if let Some(probability) = asked {
            swap(self, 1.0);
            let _ = self.run_pipeline(logits, None);
            swap(self, probability);
        }
    }
}

impl Workspace {
    /// Makes every buffer as large as a vocabulary of `n` tokens can make it.
    fn reserve_all(&mut self, n: usize, params: &Params) {
        // What is collected is written by registers, behind the last.
        let padded = n + ROOM;
        reserve(&mut self.candidates, padded);
        reserve(&mut self.spare, padded);
        let k = params.top_k_of(n).unwrap_or(0);
        // As many as the selection of the k largest looks at before it throws some away.
        reserve(&mut self.keys, padded.max((4 * k).max(CHUNK) + CHUNK));
        if !params.bias.is_empty() {
            reserve(&mut self.gathered, n);
        }
        if k == 0 {
            self.exponentials.warm_up(n);
            reserve(&mut self.sums, n.div_ceil(SUM_BLOCK));
            self.survivors.reserve(n);
            self.nearest.reserve(n);
        }
    }
}

#[cfg(test)]
mod tests;
