//! Many chains at once.

use std::ffi::c_int;

use super::host::Functions;
use super::workspace::{Taken, forget};
use super::{Member, list, sample};
use crate::chain::{check, outcome};
use crate::ffi::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_OK};
use crate::ffi::failure::{Failure, part, usable};
use crate::ffi::guard::{Payload, attempt, report};
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::logits::logits_of;
use crate::kernels::logits::Logits;
use crate::last_error;
use crate::memory;
use crate::pool::Pool;
use crate::sieve::share;
use crate::simd;
use crate::token::Token;

/// The arguments of a batch, checked.
pub(super) struct Batch<'a> {
    chains: &'a [*mut llama_sampler],
    logits: Vec<&'a [f32]>,
    out: &'a mut [Token],
    threads: usize,
}

/// One chain of a batch, all of whose members are ours.
struct Job<'a> {
    index: usize,
    members: &'a [Member],
    logits: &'a [f32],
    token: Result<Result<Token, Failure>, Payload>,
}

// SAFETY: the members are samplers that no other thread uses during the call, as the caller of the
// batch guarantees, and ours may move between threads.
unsafe impl Send for Job<'_> {}

impl<'a> Batch<'a> {
    /// # Safety
    /// As for `llama_sieve_chain_sample_batch`.
    pub unsafe fn new(
        chains: *const *mut llama_sampler,
        logits: *const *const f32,
        n_vocab: i32,
        n: usize,
        out: *mut Token,
        n_threads: c_int,
    ) -> Result<Self, Failure> {
        usable("chains", chains)?;
        usable("logits", logits)?;
        usable("out", out)?;
        let threads = usize::try_from(n_threads).map_err(|_| {
            let text = format!("n_threads is {n_threads}; it must not be negative");
            Failure::new(LLAMA_SIEVE_ERROR_SIZE, text)
        })?;
        // SAFETY: the caller guarantees `n` elements of each; NULL and alignment were checked.
        let (chains, pointers, out) = unsafe {
            (
                std::slice::from_raw_parts(chains, n),
                std::slice::from_raw_parts(logits, n),
                std::slice::from_raw_parts_mut(out, n),
            )
        };
        let mut seen = Vec::new();
        seen.try_reserve_exact(n)?;
        let mut logits = Vec::new();
        logits.try_reserve_exact(n)?;
        for (i, (&chain, &pointer)) in chains.iter().zip(pointers).enumerate() {
            let of = |failure: Failure| failure.of(&format!("chain {i}"));
            usable("the chain", chain).map_err(of)?;
            // SAFETY: the caller guarantees the logits.
            let floats = unsafe { logits_of(pointer, n_vocab) }.map_err(of)?;
            check(floats.len()).map_err(Failure::from).map_err(of)?;
            logits.push(floats);
            seen.push((chain as usize, i));
        }
        seen.sort_unstable();
        let twice = seen
            .windows(2)
            .find(|pair| matches!(pair, [a, b] if a.0 == b.0));
        if let Some([a, b]) = twice {
            let text = format!("chains {} and {} are the same", a.1, b.1);
            return Err(Failure::new(LLAMA_SIEVE_ERROR_BUSY, text));
        }
        Ok(Self {
            chains,
            logits,
            out,
            threads,
        })
    }

    /// # Safety
    /// As for `llama_sieve_chain_sample_batch`.
    pub unsafe fn run(self, call: &str, host: &Functions) -> Result<c_int, c_int> {
        let mut members = Vec::new();
        let mut ends = part(call, || reserved(self.chains.len()))?;
        for &chain in self.chains {
            // SAFETY: the caller guarantees the chains.
            unsafe { list(call, host, chain, &mut members) }?;
            ends.push(members.len());
        }
        let mut first = First::default();
        let mut foreign = part(call, || reserved(self.chains.len()))?;
        let mut jobs = part(call, || reserved(self.chains.len()))?;
        let mut start = 0;
        for (index, (&logits, &end)) in self.logits.iter().zip(&ends).enumerate() {
            let members = members.get(start..end).unwrap_or_default();
            start = end;
            if members.iter().any(|member| member.own.is_none()) {
                foreign.push(index);
                continue;
            }
            jobs.push(Job {
                index,
                members,
                logits,
                token: Ok(Err(Failure::caught())),
            });
        }
        let ran = part(call, || {
            // The instructions are chosen here: a helper must not be the one to have a message.
            simd::instruction_set();
            share(&mut jobs, self.threads, Job::run);
            Ok(())
        });
        for job in jobs {
            let chain = format!("chain {}", job.index);
            let token = part(call, || {
                let token = job.token.unwrap_or_else(|payload| {
                    report(&format!("{call}: {chain}"), payload);
                    Err(Failure::caught())
                });
                token.map_err(|failure| failure.of(&chain))
            });
            first.note(job.index, token);
            write(self.out, job.index, token);
        }
        ran?;
        for index in foreign {
            let (Some(&chain), Some(&logits)) = (self.chains.get(index), self.logits.get(index))
            else {
                continue;
            };
            // SAFETY: the caller guarantees chains and logits.
            let token = unsafe {
                sample(
                    &format!("{call}: chain {index}"),
                    host,
                    chain,
                    Logits::F32(logits),
                )
            };
            forget();
            first.note(index, token);
            write(self.out, index, token);
        }
        first.tell()
    }
}

/// Of the chains that give no token, the first: its error number and text.
#[derive(Default)]
struct First(Option<(usize, c_int, String)>);

impl First {
    /// Takes note of what came of a chain, when the last error still speaks of it.
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
        last_error::set(&text);
        Err(code)
    }
}

/// An empty vector with room for `n`.
fn reserved<T>(n: usize) -> Result<Vec<T>, Failure> {
    let mut made = Vec::new();
    made.try_reserve_exact(n)?;
    Ok(made)
}

fn write(out: &mut [Token], index: usize, token: Result<Token, c_int>) {
    if let Some(out) = out.get_mut(index) {
        *out = token.unwrap_or_else(|code| code);
    }
}

impl Job<'_> {
    /// On whatever thread: what a panic says is the calling one's to tell.
    fn run(&mut self) {
        let (members, logits) = (self.members, self.logits);
        self.token = attempt(|| {
            let mut workspace = Taken::new();
            workspace.last = None;
            let room = workspace.buffers.try_reserve(logits.len());
            room.unwrap_or_else(memory::exhausted);
            let mut pool = Pool::new(logits, &mut workspace.buffers);
            for member in members {
                if let Some(vtable) = member.own {
                    // SAFETY: a live sampler with this vtable, which nobody else uses: the caller
                    // of the batch guarantees it.
                    unsafe { vtable.narrow(member.smpl, &mut pool) };
                }
            }
            outcome(&pool).map_err(Failure::from)
        });
    }
}
