//! Sampling of many sequences at once, on several threads.

use llama_sieve_kernels::sync::Mutex;

use crate::log::OfHelpers;
use crate::sieve::{Error, Logits, Sieve, pool};
use crate::token::Token;
use crate::trace;

/// One sequence of a batch.
#[derive(Debug)]
pub struct Job<'a> {
    /// The sequence's own sieve.
    pub sieve: &'a mut Sieve,
    /// The logits for the sequence's next token.
    pub logits: Logits<'a>,
    /// The chosen token, or the reason why there is none. It is an error until the job has run.
    pub token: Result<Token, Error>,
}

impl<'a> Job<'a> {
    /// Returns a job that has not run yet.
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

/// Runs every job, on the calling thread and at most `threads` - 1 threads of the library's pool.
/// If `threads` is 0 or 1, all run on the calling thread.
pub fn sample_batch(jobs: &mut [Job<'_>], threads: usize) {
    share(jobs, threads, Job::run);
}

/// Calls `work` with each item once, on the calling thread and at most `threads` - 1 threads of the
/// library's pool.
///
/// Each thread takes the next item when it has finished its last one. So a thread that wakes up
/// late, or shares its processor, delays the others by one item at most.
///
/// A sequence depends only on its own sieve and logits, so the tokens do not depend on the number
/// of threads.
pub fn share<T: Send>(items: &mut [T], threads: usize, work: impl Fn(&mut T) + Sync) {
    // A slower alternative was a fixed share for each thread of the pool, while the calling thread
    // waited: two threads were 1.53 times as fast as one.
    let helpers = threads.min(items.len()).saturating_sub(1);
    let pool = if helpers > 0 { pool::of(helpers) } else { None };
    let Some(pool) = pool else {
        return items.iter_mut().for_each(work);
    };
    let left = Mutex::new(items.iter_mut());
    let work_on = || {
        // The result is in a variable, so that the lock is released before the item is worked on.
        let next = || left.lock().next();
        while let Some(item) = next() {
            work(item);
        }
    };
    let delivers = trace::delivers();
    let messages = OfHelpers::default();
    pool.in_place_scope(|scope| {
        for _ in 0..helpers.min(pool.current_num_threads()) {
            scope.spawn(|_| messages.keep(|| trace::delivering(delivers, work_on)));
        }
        work_on();
    });
    messages.log();
}
