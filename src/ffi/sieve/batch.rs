//! Sampling of many sequences in one call.

use std::ffi::c_int;

use crate::ffi::failure::{Failure, answer};
use crate::ffi::given::{LLAMA_SIEVE_MAX_BATCH, argument};
use crate::ffi::guard::{Payload, attempt, guard, report};
use crate::ffi::logits::logits_of;
use crate::sieve::{self, Logits};
use crate::token::Token;

use super::handle::*;

/// Chooses a token for each of `n` independent sequences, on the calling thread and at most
/// `n_threads` - 1 threads of the library's own pool, which is made when first needed and has at
/// most one thread for each processor. If no thread can be started, and in a child that was forked
/// after a batch, the calling thread does all the work. The tokens do not depend on the number of
/// threads. They are not accepted.
///
/// Do not pass an `n_threads` above 1 in a constructor that runs inside `dlopen`: a new thread
/// waits for the dynamic linker's lock, which the caller holds.
///
/// Writes to `out[i]` the token that `sieves[i]` chooses from `logits[i]`, or its negative error,
/// whose text `llama_sieve_error(sieves[i])` returns. Returns LLAMA_SIEVE_OK, or the first error in
/// `out`, whose text llama_sieve_last_error returns. Errors of the call leave `out` untouched: an
/// array, a sieve or an element of `logits` that is NULL, `n` above LLAMA_SIEVE_MAX_BATCH,
/// `n_vocab` <= 0, or a sieve that is in use or occurs twice in the batch. An internal error
/// (LLAMA_SIEVE_ERROR_INTERNAL in `out`) disables only that sieve.
///
/// # Safety
/// `sieves`, `logits` and `out` are NULL or `n` elements; each sieve is NULL or alive; each element
/// of `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_batch(
    sieves: *const *mut Handle,
    logits: *const *const f32,
    n_vocab: i32,
    n: usize,
    out: *mut Token,
    n_threads: c_int,
) -> c_int {
    answer("llama_sieve_sample_batch", || {
        if n == 0 {
            return Ok(());
        }
        // SAFETY: the caller guarantees arrays of `n` elements.
        let (sieves, logits, out) = unsafe {
            (
                argument!("sieves", "n", LLAMA_SIEVE_MAX_BATCH).slice(sieves, n)?,
                argument!("logits", "n", LLAMA_SIEVE_MAX_BATCH).slice(logits, n)?,
                argument!("out", "n", LLAMA_SIEVE_MAX_BATCH).room(out, n)?,
            )
        };
        let threads = usize::try_from(n_threads).unwrap_or(0);
        // SAFETY: the caller guarantees sieves and logits.
        unsafe { sample_batch(sieves, logits, n_vocab, out, threads) }
    })
}

/// A sequence of a batch.
struct Entry<'a> {
    state: &'a mut State,
    logits: Logits<'a>,
    token: Result<Result<Token, Failure>, Payload>,
}

impl Entry<'_> {
    /// Chooses the entry's token; may be called on any thread. A panic is kept in `token`, and the
    /// thread that called the batch must report it.
    fn run(&mut self) {
        let Some(sieve) = self.state.sieve.as_mut() else {
            self.token = Ok(Err(out_of_use()));
            return;
        };
        self.token = attempt(|| sieve.sample(self.logits).map_err(Failure::from));
    }
}

/// Chooses a token for each sieve, and writes the tokens or errors to `out`.
///
/// # Safety
/// Each sieve is NULL or alive; each element of `logits` is NULL or `n_vocab` floats.
unsafe fn sample_batch(
    sieves: &[*mut Handle],
    logits: &[*const f32],
    n_vocab: i32,
    out: &mut [Token],
    threads: usize,
) -> Result<(), Failure> {
    // All sieves are locked before the first one runs, so that errors of the call are found before
    // anything changes.
    let mut states = Vec::new();
    states.try_reserve_exact(sieves.len())?;
    for (i, sieve) in sieves.iter().enumerate() {
        // SAFETY: the caller guarantees the sieves.
        let state = unsafe { handle(*sieve) }.and_then(Handle::enter);
        states.push(state.map_err(|failure| failure.of(&format!("sieve {i}")))?);
    }
    let mut jobs = Vec::new();
    jobs.try_reserve_exact(sieves.len())?;
    for (state, &logits) in states.iter_mut().zip(logits) {
        // SAFETY: the caller guarantees the logits.
        let logits: &[f32] = unsafe { logits_of(logits, n_vocab) }?;
        jobs.push(Entry {
            state,
            logits: Logits::from(logits),
            token: Ok(Err(out_of_use())),
        });
    }
    sieve::share(&mut jobs, threads, Entry::run);
    let mut first = None;
    for (i, (job, out)) in jobs.into_iter().zip(out).enumerate() {
        let token = job.token.unwrap_or_else(|payload| {
            report(&format!("llama_sieve_sample_batch: sequence {i}"), payload);
            // After a panic this sieve may be inconsistent. The other sieves are not affected.
            guard("llama_sieve_sample_batch", || (), || job.state.sieve = None);
            Err(Failure::caught())
        });
        job.state.note(&token);
        *out = token.unwrap_or_else(|failure| {
            let failure = failure.of(&format!("sequence {i}"));
            let code = failure.code();
            first.get_or_insert(failure);
            code
        });
    }
    first.map_or(Ok(()), Err)
}
