//! Many sequences at once, over threads.

use parking_lot::Mutex;

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

/// Runs every job, on the calling thread and at most `threads` - 1 of rayon's global pool; 0 or 1: on the calling thread alone.
///
/// Each thread takes the next job when it is done with one, so that a thread which wakes up late, or shares its processor, delays the others by one job at most.
///
/// A sequence depends on nothing but its own sieve and logits, so the tokens do not depend on the number of threads.
pub fn sample_batch(jobs: &mut [Job<'_>], threads: usize) {
    // What lost: a fixed share for each thread of the pool, with the caller idle (1.53 times the speed of one thread, of two).
    if threads <= 1 || jobs.len() <= 1 {
        return jobs.iter_mut().for_each(Job::run);
    }
    let helpers = (threads - 1)
        .min(jobs.len() - 1)
        .min(rayon::current_num_threads());
    let left = Mutex::new(jobs.iter_mut());
    let work = || {
        // A variable of its own, so that the lock is given back before the job runs.
        let next = || left.lock().next();
        while let Some(job) = next() {
            job.run();
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 0..helpers {
            scope.spawn(|_| work());
        }
        work();
    });
}
