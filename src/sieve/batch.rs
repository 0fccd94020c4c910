//! Many sequences at once, over threads.

use parking_lot::Mutex;

use crate::pool;
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

/// Runs every job, on the calling thread and at most `threads` - 1 of the library's own; 0 or 1: on the calling thread alone.
///
/// Each thread takes the next job when it is done with one, so that a thread which shares its processor delays the others by one job at most, and one that wakes up late by
/// nothing.
///
/// A sequence depends on nothing but its own sieve and logits, so the tokens do not depend on the number of threads.
pub fn sample_batch(jobs: &mut [Job<'_>], threads: usize) {
    let helpers = threads.min(jobs.len()).saturating_sub(1);
    // What lost: a fixed share for each thread.
    let left = Mutex::new(jobs.iter_mut());
    pool::share(helpers, &|| {
        // A variable of its own, so that the lock is given back before the job runs.
        let next = || left.lock().next();
        while let Some(job) = next() {
            job.run();
        }
    });
}
