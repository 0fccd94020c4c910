//! Many chains at once.

use std::ffi::c_int;
use std::fmt::{self, Display};
use std::ptr::null_mut;

use super::host::Functions;
use super::workspace::{Job, Lists, RawLogits, Taken, Workspace, forget};
use super::{list, run_own, sample, traced};
use crate::chain::{check, outcome};
use crate::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_OK};
use crate::ffi::failure::{Failure, part, usable};
use crate::ffi::given::{LLAMA_SIEVE_MAX_BATCH, argument};
use crate::ffi::guard::{attempt, report};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::logits::logits_of;
use crate::kernels::logits::Logits;
use crate::last_error;
use crate::memory;
use crate::pool::Pool;
use crate::sieve::share;
use crate::token::Token;
use crate::trace::{self, Off};

/// The checked arguments of a batch.
pub(super) struct Batch<'a> {
    chains: &'a [*mut llama_sampler],
    logits: &'a [*const f32],
    n_vocab: i32,
    out: &'a mut [Token],
    threads: usize,
    lists: Taken<Lists>,
}

// SAFETY: the members are samplers that no other thread uses during the call, as the caller of the
// batch guarantees, and this library's samplers may move between threads; the list of the members
// and the logits are only read.
unsafe impl Send for Job {}

/// The name of one chain of a batch, for messages.
struct OfChain<'a>(&'a str, usize);

impl Display for OfChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: chain {}", self.0, self.1)
    }
}

impl<'a> Batch<'a> {
    /// Returns the checked arguments, or the error of the call.
    ///
    /// # Safety
    /// The requirements of `llama_sieve_chain_sample_batch` apply.
    pub(super) unsafe fn new(
        chains: *const *mut llama_sampler,
        logits: *const *const f32,
        n_vocab: i32,
        n: usize,
        out: *mut Token,
        n_threads: c_int,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees `n` elements of each.
        let (chains, logits, out) = unsafe {
            (
                argument!("chains", "n", LLAMA_SIEVE_MAX_BATCH).slice(chains, n)?,
                argument!("logits", "n", LLAMA_SIEVE_MAX_BATCH).slice(logits, n)?,
                argument!("out", "n", LLAMA_SIEVE_MAX_BATCH).room(out, n)?,
            )
        };
        let threads = usize::try_from(n_threads).map_err(|_| {
            let text = format!("n_threads is {n_threads}; it must not be negative");
            Failure::new(LLAMA_SIEVE_ERROR_SIZE, text)
        })?;
        let mut lists = Taken::<Lists>::new();
        lists.clear(n)?;
        for (i, (&chain, &logits)) in chains.iter().zip(logits).enumerate() {
            let of = |failure: Failure| failure.of(&format!("chain {i}"));
            usable("the chain", chain).map_err(of)?;
            // SAFETY: the caller guarantees the logits.
            let floats = unsafe { logits_of(logits, n_vocab) }.map_err(of)?;
            check(floats.len()).map_err(Failure::from).map_err(of)?;
            lists.seen.push((chain as usize, i));
        }
        lists.seen.sort_unstable();
        let is_twice = |pair: &&[(usize, usize)]| matches!(pair, [a, b] if a.0 == b.0);
        if let Some([a, b]) = lists.seen.windows(2).find(is_twice) {
            let text = format!("chains {} and {} are the same", a.1, b.1);
            return Err(Failure::new(LLAMA_SIEVE_ERROR_BUSY, text));
        }
        Ok(Self {
            chains,
            logits,
            n_vocab,
            out,
            threads,
            lists,
        })
    }

    /// Samples all chains, and returns the result of the call.
    ///
    /// # Safety
    /// The requirements of `llama_sieve_chain_sample_batch` apply.
    pub(super) unsafe fn run(mut self, call: &str, host: &Functions) -> Result<c_int, c_int> {
        // SAFETY: the caller guarantees the chains.
        unsafe { self.list_members(call, host) }?;
        // SAFETY: the caller guarantees the logits.
        part(call, || unsafe { self.make_jobs() })?;
        let Lists { jobs, foreign, .. } = &mut *self.lists;
        let ran = part(call, || {
            share(jobs, self.threads, Job::run);
            Ok(())
        });
        let mut first = First::default();
        for job in jobs.drain(..) {
            let Job {
                index,
                token,
                waiting,
                ..
            } = job;
            let token = part(call, || {
                let token = token.unwrap_or_else(|payload| {
                    report(&OfChain(call, index), payload);
                    Err(Failure::caught())
                });
                token.map_err(|failure| failure.of(&format!("chain {index}")))
            });
            first.note(index, token);
            write(self.out, index, token);
            if let (Some(waiting), Ok(token)) = (waiting, token) {
                // SAFETY: there is no context.
                unsafe { waiting.deliver(null_mut(), token) };
            }
        }
        ran?;
        for &index in &*foreign {
            let (Some(&chain), Some(&logits)) = (self.chains.get(index), self.logits.get(index))
            else {
                continue;
            };
            // SAFETY: the caller guarantees chains and logits.
            let token = unsafe {
                let logits = part(call, || logits_of(logits, self.n_vocab))?;
                sample(&OfChain(call, index), host, chain, Logits::F32(logits))
            };
            forget();
            first.note(index, token);
            write(self.out, index, token);
        }
        first.tell()
    }

    /// Lists the members of all chains.
    ///
    /// # Safety
    /// The chains are live samplers of the host that `host` belongs to.
    unsafe fn list_members(&mut self, call: &str, host: &Functions) -> Result<(), c_int> {
        let Lists { members, ends, .. } = &mut *self.lists;
        for &chain in self.chains {
            // SAFETY: the caller guarantees the chains.
            unsafe { list(&call, host, chain, members) }?;
            ends.push(members.len());
        }
        Ok(())
    }

    /// Makes a job of each chain that any thread may run, and lists the others, which only the
    /// calling thread may run.
    ///
    /// # Safety
    /// Each chain has `n_vocab` logits.
    unsafe fn make_jobs(&mut self) -> Result<(), Failure> {
        let Lists {
            members,
            ends,
            jobs,
            foreign,
            ..
        } = &mut *self.lists;
        let mut start = 0;
        for (index, (&logits, &end)) in self.logits.iter().zip(&*ends).enumerate() {
            let members = members.get(start..end).unwrap_or_default();
            start = end;
            if members.iter().any(|member| member.own.is_none()) {
                foreign.push(index);
                continue;
            }
            // SAFETY: the caller guarantees the logits.
            let logits = unsafe { logits_of(logits, self.n_vocab) }?;
            jobs.push(Job {
                index,
                members,
                logits: RawLogits::of(Logits::F32(logits)),
                token: Ok(Err(Failure::caught())),
                waiting: None,
            });
        }
        Ok(())
    }
}

/// The first chain without a token: its index, error number and text.
#[derive(Default)]
struct First(Option<(usize, c_int, String)>);

impl First {
    /// Records the result of a chain. Must be called while the last error is still that of this
    /// chain.
    fn note(&mut self, index: usize, token: Result<Token, c_int>) {
        let is_first = self.0.as_ref().is_none_or(|(known, ..)| index < *known);
        if let (Err(code), true) = (token, is_first) {
            self.0 = Some((index, code, last_error::get()));
        }
    }

    fn tell(self) -> Result<c_int, c_int> {
        let Some((_, code, text)) = self.0 else {
            return Ok(LLAMA_SIEVE_OK);
        };
        last_error::set(code, &text);
        Err(code)
    }
}

fn write(out: &mut [Token], index: usize, token: Result<Token, c_int>) {
    if let Some(out) = out.get_mut(index) {
        *out = token.unwrap_or_else(|code| code);
    }
}

impl Job {
    /// Runs the job; may be called on any thread. A panic is kept in `token`, and the thread that
    /// called the batch must report it.
    fn run(&mut self) {
        // SAFETY: the batch's lists and the caller's logits do not change until all chains have
        // run.
        let (members, logits) = unsafe { (&*self.members, self.logits.get()) };
        self.token = attempt(|| {
            let mut workspace = Taken::<Workspace>::new();
            workspace.last = None;
            let room = workspace.buffers.try_reserve(logits.len());
            room.unwrap_or_else(memory::exhausted);
            let mut pool = Pool::new(logits, &mut workspace.buffers).banning_nan();
            match trace::begin(logits) {
                // SAFETY: the caller of the batch guarantees that the samplers are live and not
                // used by any other code.
                None => unsafe { run_own(members, &mut pool, &mut Off) },
                Some(observer) => {
                    // SAFETY: as above.
                    self.waiting = unsafe { traced::run_own(members, &mut pool, observer) };
                }
            }
            outcome(&pool).map_err(Failure::from)
        });
    }
}
