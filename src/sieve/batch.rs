//! Many sequences at once, over threads.

use rayon::prelude::*;

use crate::sieve::source::Logits;
use crate::sieve::{Error, Sieve};
use crate::token::Token;

/// One sequence of a batch.
#[derive(Debug)]
pub struct Job<'a> {
    /// The sequence's own sieve.
    pub sieve: &'a mut Sieve,
    /// Its logits.
    pub logits: Logits<'a>,
    /// What came of it.
    pub token: Result<Token, Error>,
}

impl<'a> Job<'a> {
    /// Not yet run.
    pub fn new(sieve: &'a mut Sieve, logits: Logits<'a>) -> Self {
        Self {
            sieve,
            logits,
            token: Err(Error::NoCandidate),
        }
    }

    fn run(&mut self) {
        self.token = self.sieve.sample(self.logits);
    }
}

/// Runs every job, in as many parts as there are `threads`, on rayon's global pool; 0 or 1 on the calling thread alone.
///
/// A sequence depends on nothing but its own sieve and logits, so the tokens do not depend on the number of threads.
pub fn sample_batch(jobs: &mut [Job<'_>], threads: usize) {
    if threads <= 1 || jobs.len() <= 1 {
        return jobs.iter_mut().for_each(Job::run);
    }
    let part = jobs.len().div_ceil(threads);
    jobs.par_chunks_mut(part)
        .for_each(|jobs| jobs.iter_mut().for_each(Job::run));
}
