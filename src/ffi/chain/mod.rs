//! Sampling from raw logits with a host's chain, which is not changed.
//!
//! The host's functions list the members. Members of this library are recognised by their vtables
//! and run on a [`Pool`], each inside the guard. Any other member gets an array of the remaining
//! candidates and runs outside the guard, so that its exceptions reach the caller. The buffers of
//! pools belong to the thread that runs the chain, which reuses them.

mod batch;
mod disabled;
pub(in crate::ffi) mod host;
pub mod in_front;
pub(in crate::ffi) mod traced;
mod workspace;

use std::ffi::{CStr, c_char, c_int};
use std::fmt::Display;
use std::ptr::null_mut;

use half::{bf16, f16};

use crate::chain::{check, outcome};
use crate::errors::{LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_OK};
use crate::ffi::bans::{BAN_BIASES, BANS};
use crate::ffi::failure::{Failure, answer, begin, part, usable};
use crate::ffi::given::{argument, judge};
use crate::ffi::grammar::hosted::HOSTED;
use crate::ffi::grammar::making::GRAMMAR;
use crate::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use crate::ffi::logits::{ContextFunctions, logits_of, logits_of_output};
use crate::ffi::loops::LOOP_BREAKER;
use crate::ffi::samplers::DROP_INS;
use crate::ffi::sieve::SIEVE;
use crate::ffi::trie::TOKEN_TRIE;
use crate::ffi::vtable::Vtable;
use crate::kernels::logits::Logits;
use crate::last_error;
use crate::memory;
use crate::pool::Pool;
use crate::sampler::{About, Expected, Tell};
use crate::token::{Token, TokenData};
use crate::trace::{self, Link, Name, Off, Watch};
use batch::Batch;
#[cfg(test)]
pub(crate) use host::ChainParams;
use host::{Functions, SamplingFunctions, functions};
use workspace::{Last, RawLogits, Taken, Workspace, forget};

/// Returns true if `smpl` is a disabled sampler of the host, and false for any other sampler.
/// Returns `None` if `smpl` is NULL, if there is no host, or if the vtable of the host's disabled
/// samplers is not known. Must not be called inside the guard, since it calls the host.
///
/// # Safety
/// `smpl` is NULL or a live sampler of the host's.
pub unsafe fn switched_off(smpl: *const llama_sampler) -> Option<bool> {
    let disabled = functions("switched_off").ok()?.disabled;
    // SAFETY: the caller guarantees the sampler.
    let iface = unsafe { smpl.as_ref()?.iface };
    disabled.is_known().then(|| disabled.has(iface))
}

/// Samples like llama_sampler_sample, with the same arguments: the chain selects a token among the
/// logits of output `idx` (-1: the last), and every member accepts it. The token is the same, but
/// no array of the whole vocabulary is filled unless a member needs one.
///
/// `chain` is a llama_sampler_chain, or a single sampler, of this library's samplers, built-ins and
/// others in any order. If the context has already sampled on a backend (llama_set_sampler), or a
/// member that is not this library's was once given to a backend, the host's own
/// llama_sampler_sample is called. Exceptions of members reach the caller.
///
/// Returns the token, or a negative error, with nothing accepted: chain or context NULL, no host,
/// no logits for `idx`, LLAMA_SIEVE_ERROR_NO_CANDIDATE if the chain leaves no candidate or selects
/// one whose logit is minus infinity or NaN (where llama_sampler_sample returns a banned token, or
/// ends the process), LLAMA_SIEVE_ERROR_INVALID if it selects none (where llama_sampler_sample ends
/// the process) or if a member leaves an array that cannot be used. NaN among the logits counts as
/// minus infinity.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's, `ctx` NULL or a live context of the same host;
/// both are used by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_sample(
    chain: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
) -> Token {
    const CALL: &str = "llama_sieve_chain_sample";
    // SAFETY: the caller guarantees chain and context.
    let sampled = || unsafe {
        begin(CALL)?;
        let host = prepare(CALL, chain)?;
        let (context, sampling) = part(CALL, || {
            usable("the context", ctx)?;
            Ok((ContextFunctions::of_host()?, SamplingFunctions::of_host()?))
        })?;
        let mut workspace = members_of(&CALL, &host, chain)?;
        let is_offloaded = workspace.members.iter().any(|member| member.is_offloaded());
        if is_offloaded || sampling.has_sampled(ctx, idx) {
            // The host's function may call this one again, which needs the workspace.
            drop(workspace);
            return Ok((sampling.sample)(chain, ctx, idx));
        }
        let logits = context.logits(ctx, idx);
        let logits = part(CALL, || logits_of_output(logits, idx))?;
        let token = run(
            &CALL,
            &host,
            &mut workspace,
            chain,
            Logits::F32(logits),
            BANS_NAN,
            chosen,
        )?;
        drop(workspace);
        (host.accept)(chain, token);
        traced::deliver(ctx, Some(token));
        Ok(token)
    };
    sampled().unwrap_or_else(|code: c_int| code)
}

/// Selects a token with the chain among `n_vocab` logits, indexed by token, which are only read.
/// The token is not accepted: call llama_sampler_accept once it is known to be kept. Every member
/// takes part, even if llama_set_sampler has once given it to a backend. If there are fewer logits
/// than the vocabulary has tokens, a token trie or a grammar may add a token that has no logit
/// among them, and that token may be selected.
///
/// Returns the token, or a negative error: chain or logits NULL, `n_vocab` <= 0, no host, and those
/// of llama_sieve_chain_sample.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's, used by no other thread during the call;
/// `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_sample_logits(
    chain: *mut llama_sampler,
    logits: *const f32,
    n_vocab: i32,
) -> Token {
    const CALL: &str = "llama_sieve_chain_sample_logits";
    // SAFETY: the caller guarantees chain and logits.
    unsafe { sample_raw(CALL, chain, logits, n_vocab, Logits::F32) }
}

/// Selects a token like llama_sieve_chain_sample_logits, from logits in IEEE half precision.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's, used by no other thread during the call;
/// `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_sample_f16(
    chain: *mut llama_sampler,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    const CALL: &str = "llama_sieve_chain_sample_f16";
    let logits = logits.cast::<f16>();
    // SAFETY: the caller guarantees chain and logits; f16 is 16 bits of any value.
    unsafe { sample_raw(CALL, chain, logits, n_vocab, Logits::F16) }
}

/// Selects a token like llama_sieve_chain_sample_logits, from logits in bfloat16, the upper half of
/// a float.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's, used by no other thread during the call;
/// `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_sample_bf16(
    chain: *mut llama_sampler,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    const CALL: &str = "llama_sieve_chain_sample_bf16";
    let logits = logits.cast::<bf16>();
    // SAFETY: the caller guarantees chain and logits; bf16 is 16 bits of any value.
    unsafe { sample_raw(CALL, chain, logits, n_vocab, Logits::Bf16) }
}

/// Selects one token for each of `n` chains, each from its own `n_vocab` logits, on the calling
/// thread and at most `n_threads` - 1 threads of the library. With 0 or 1, all run on the calling
/// thread. Nothing is accepted. Chains with a member that is not this library's run on the calling
/// thread, after the others. The tokens do not depend on the number of threads.
///
/// Do not pass an `n_threads` above 1 in a constructor that runs inside `dlopen`: a new thread
/// waits for the dynamic linker's lock, which the caller holds.
///
/// Writes to `out[i]` the token of chain i or its negative error. Returns LLAMA_SIEVE_OK if every
/// chain gave a token, otherwise the first error in `out`, whose text llama_sieve_last_error
/// returns. If a member that is not this library's throws, `out` is written for all chains without
/// such a member, and for the other chains before the one that threw. Errors of the call leave
/// `out` untouched: arrays NULL, `n` above LLAMA_SIEVE_MAX_BATCH, a chain NULL or given twice
/// (LLAMA_SIEVE_ERROR_BUSY), logits NULL, `n_vocab` <= 0, `n_threads` < 0, no host. `n` 0 does
/// nothing.
///
/// # Safety
/// `chains`, `logits` and `out` are NULL or have `n` elements. Each chain is NULL or a live sampler
/// of the host's, which no other thread uses during the call and which shares no member with
/// another; each element of `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_sample_batch(
    chains: *const *mut llama_sampler,
    logits: *const *const f32,
    n_vocab: i32,
    n: usize,
    out: *mut Token,
    n_threads: c_int,
) -> c_int {
    const CALL: &str = "llama_sieve_chain_sample_batch";
    // SAFETY: the caller guarantees the arrays and their elements.
    let done = || unsafe {
        begin(CALL)?;
        if n == 0 {
            return Ok(LLAMA_SIEVE_OK);
        }
        let batch = part(CALL, || {
            Batch::new(chains, logits, n_vocab, n, out, n_threads)
        })?;
        let host = functions(CALL)?;
        forget();
        batch.run(CALL, &host)
    };
    done().unwrap_or_else(|code: c_int| code)
}

/// Writes the candidates that the last token of this chain was drawn from, as the built-in chain
/// would have left them: at most `cap` to `out`. Returns their total number, which may be larger.
///
/// The last token is that of the last llama_sieve_chain_sample, _logits, _f16 or _bf16 on this
/// thread, which must have been with this chain. Otherwise the function returns 0, and the last
/// error says why. It also returns 0 after llama_sieve_chain_sample_batch, and if the host's own
/// llama_sampler_sample was called. The candidates may be computed from the logits again, so the
/// caller must not have changed these since. A new chain at the address of a freed one must sample
/// first.
///
/// Returns a negative error if the chain is NULL, if `out` is NULL although `cap` is not 0, or if
/// `cap` is too large.
///
/// # Safety
/// `out` is NULL or has room for `cap` elements; the logits that the last token was sampled from
/// still exist and are unchanged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_chain_candidates(
    chain: *mut llama_sampler,
    out: *mut TokenData,
    cap: usize,
) -> c_int {
    answer("llama_sieve_chain_candidates", || {
        usable("the chain", chain)?;
        argument!("out", "cap").check(out, cap)?;
        let mut workspace = Taken::<Workspace>::new();
        let Some(last) = workspace.last.filter(|last| last.chain == chain) else {
            last_error::set(
                LLAMA_SIEVE_ERROR_INVALID,
                "llama_sieve_chain_candidates: the last token that this library sampled on this \
                 thread was not this chain's",
            );
            return Ok(0);
        };
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { last.logits.get() };
        let pool = Pool::resume(logits, &mut workspace.buffers, last.left);
        let Some(mut pool) = pool else {
            return Err(Failure::caught());
        };
        let (data, _) = pool.array();
        let n = data.len();
        if cap > 0 {
            // SAFETY: the caller guarantees room for `cap`.
            unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), out, n.min(cap)) };
        }
        // The candidates are kept, so that the next query need not compute them again.
        let left = pool.leave();
        workspace.last = Some(Last { left, ..last });
        Ok(n as c_int)
    })
}

/// Reports members that make no sense in a chain: a second selector, a sampler after a selector, a
/// constraint after a sampler that truncates, xtc after a temperature of 0, top-k after min-p, a
/// sampler that its parameters disable, and a missing selector. Writes a sentence for each to
/// `out`, with a line end between them and a NUL at the end, cut off at `cap` bytes; `out` may be
/// NULL.
///
/// Returns the number of sentences, 0 for a chain without such problems, or a negative error: chain
/// NULL, `cap` too large, no host. An exception that a member throws passes through.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's, used by no other thread during the call; `out`
/// is NULL or has room for `cap` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_chain_check(
    chain: *const llama_sampler,
    out: *mut c_char,
    cap: usize,
) -> c_int {
    const CALL: &str = "llama_sieve_chain_check";
    // SAFETY: the caller guarantees chain and room.
    let checked = || unsafe {
        begin(CALL)?;
        let host = prepare(CALL, chain.cast_mut())?;
        let mut links = Vec::new();
        list_links(&host, chain.cast_mut(), &mut links);
        part(CALL, || {
            let room = argument!("out", "cap").room_or_none(out.cast::<u8>(), cap)?;
            let found = trace::findings(&links);
            let text = found.join("\n");
            if let Some((end, to)) = room.split_last_mut() {
                let mut ends = (0..=to.len().min(text.len())).rev();
                let n = ends.find(|&n| text.is_char_boundary(n)).unwrap_or(0);
                let (to, rest) = to.split_at_mut(n);
                to.copy_from_slice(text.as_bytes().get(..n).unwrap_or_default());
                *rest.first_mut().unwrap_or(end) = 0;
            }
            Ok(c_int::try_from(found.len()).unwrap_or(c_int::MAX))
        })
    };
    checked().unwrap_or_else(|code: c_int| code)
}

/// Appends to `to` the names and parameters of all members of a chain, including those that do
/// nothing.
///
/// # Safety
/// `smpl` is a live sampler of the host that `host` belongs to.
unsafe fn list_links(host: &Functions, smpl: *mut llama_sampler, to: &mut Vec<Link>) {
    // SAFETY: the caller guarantees the sampler.
    if let Some(members) = unsafe { host.chains.members(smpl) } {
        for member in members {
            // SAFETY: a chain's members live as long as the chain.
            unsafe { list_links(host, member, to) };
        }
        return;
    }
    // SAFETY: as above.
    let own = unsafe { own_of(smpl) };
    let member = Member { smpl, own };
    let mut parameters = Vec::new();
    member.tell(About::Parameters, &mut |name, value| {
        parameters.push((name, value));
    });
    to.push(Link {
        name: member.name().into_owned(),
        parameters,
    });
}

/// Selects a token with `chain` among the caller's logits, for which `of` makes the `Logits` of
/// their type. Returns the token or a negative error.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host's; `logits` is NULL or has `n_vocab` elements.
unsafe fn sample_raw<'a, T>(
    call: &str,
    chain: *mut llama_sampler,
    logits: *const T,
    n_vocab: i32,
    of: fn(&'a [T]) -> Logits<'a>,
) -> Token {
    // SAFETY: the caller guarantees chain and logits.
    let sampled = || unsafe {
        begin(call)?;
        let host = prepare(call, chain)?;
        forget();
        let logits = part(call, || logits_of(logits, n_vocab))?;
        sample(&call, &host, chain, of(logits))
    };
    sampled().unwrap_or_else(|code: c_int| code)
}

/// Returns the host's functions, or an error if the chain is NULL or there is no host.
fn prepare(call: &str, chain: *mut llama_sampler) -> Result<Functions, c_int> {
    part(call, || usable("the chain", chain))?;
    functions(call)
}

/// Selects a token with `chain`, and keeps the remaining candidates for a later call.
///
/// # Safety
/// `chain` is a live sampler of the host that `host` belongs to; the logits stay valid until
/// candidates are no longer queried.
unsafe fn sample(
    call: &dyn Display,
    host: &Functions,
    chain: *mut llama_sampler,
    logits: Logits<'_>,
) -> Result<Token, c_int> {
    // SAFETY: the caller guarantees chain and logits.
    unsafe {
        let mut workspace = members_of(call, host, chain)?;
        let token = run(call, host, &mut workspace, chain, logits, BANS_NAN, chosen);
        drop(workspace);
        let token = token?;
        traced::deliver(null_mut(), Some(token));
        Ok(token)
    }
}

/// Returns the thread's workspace, with the members of `chain` listed and no last token.
///
/// # Safety
/// `chain` is a live sampler of the host that `host` belongs to.
unsafe fn members_of(
    call: &dyn Display,
    host: &Functions,
    chain: *mut llama_sampler,
) -> Result<Taken<Workspace>, c_int> {
    let mut workspace = Taken::<Workspace>::new();
    workspace.last = None;
    workspace.members.clear();
    // SAFETY: the caller guarantees the chain.
    unsafe { list(call, host, chain, &mut workspace.members) }?;
    Ok(workspace)
}

/// Returns the token that is selected in `pool`, or an error if there is none or it is banned.
fn chosen(pool: &mut Pool<'_>) -> Result<Token, Failure> {
    Ok(outcome(pool)?)
}

/// The argument of [`run`] that makes NaN count as minus infinity, as the functions of this module
/// document.
const BANS_NAN: bool = true;

/// Runs the listed members, which are those of `chain`, and returns the result of `then` for the
/// pool, computed inside the guard. If `bans_nan` is true, NaN counts as minus infinity. Keeps the
/// remaining candidates for a later call.
///
/// # Safety
/// The requirements of [`sample`] apply, and the members that `workspace` lists are those of
/// `chain`.
unsafe fn run<T>(
    call: &dyn Display,
    host: &Functions,
    workspace: &mut Workspace,
    chain: *mut llama_sampler,
    logits: Logits<'_>,
    bans_nan: bool,
    then: impl FnOnce(&mut Pool<'_>) -> Result<T, Failure>,
) -> Result<T, c_int> {
    let Workspace {
        buffers,
        members,
        last,
    } = workspace;
    part(call, || {
        check(logits.len())?;
        Ok(buffers.try_reserve(logits.len())?)
    })?;
    let mut pool = Pool::new(logits, buffers);
    if bans_nan {
        pool = pool.banning_nan();
    }
    match trace::begin(logits) {
        // SAFETY: the caller guarantees the chain, and a chain's members live as long as the chain.
        None => unsafe { run_members(call, host, members, &mut pool, &mut Off) }?,
        // SAFETY: as above.
        Some(observer) => unsafe { traced::run(call, host, members, &mut pool, observer) }?,
    }
    let value = part(call, || then(&mut pool))?;
    let left = pool.leave();
    *last = Some(Last {
        chain,
        logits: RawLogits::of(logits),
        left,
    });
    Ok(value)
}

/// Runs `members`, one after the other, and reports each to `watch`.
///
/// # Safety
/// The members are alive, and of the host that `host` belongs to.
unsafe fn run_members(
    call: &dyn Display,
    host: &Functions,
    members: &[Member],
    pool: &mut Pool<'_>,
    watch: &mut impl Watch,
) -> Result<(), c_int> {
    for member in members {
        // SAFETY: the caller guarantees the members.
        member.watched(pool, watch, |pool| unsafe { member.run(call, host, pool) })?;
    }
    Ok(())
}

/// Runs this library's samplers among `members`, one after the other, and reports each to `watch`.
/// May be called on any thread.
///
/// # Safety
/// The members are alive, and used by no other thread.
unsafe fn run_own(members: &[Member], pool: &mut Pool<'_>, watch: &mut impl Watch) {
    for member in members {
        if let Some(vtable) = member.own {
            // SAFETY: the caller guarantees the member; `list` has compared the vtables.
            member.watched(pool, watch, |pool| unsafe {
                vtable.narrow(member.smpl, pool);
            });
        }
    }
}

/// A sampler of a chain.
#[derive(Clone, Copy)]
struct Member {
    smpl: *mut llama_sampler,
    /// The vtable, if the sampler is this library's.
    own: Option<&'static Vtable>,
}

impl Member {
    /// Returns true if the host skips the member in its chain, because the member was given to a
    /// backend. From then on the host skips it even if the backend has not sampled, or if the chain
    /// has been detached from its context. The name of such a member begins with a plus. A sampler
    /// of this library is never skipped, since a backend gets the built-in instead.
    ///
    /// # Safety
    /// The sampler is alive.
    unsafe fn is_offloaded(&self) -> bool {
        if self.own.is_some() {
            return false;
        }
        // SAFETY: the caller guarantees the sampler, whose name is a string.
        unsafe {
            let name = (*self.smpl).iface.as_ref().and_then(|iface| iface.name);
            name.is_some_and(|name| name(self.smpl).cast::<u8>().as_ref() == Some(&b'+'))
        }
    }

    /// Runs the member by calling `run`, and reports it to `watch`. The member must be alive.
    #[inline(always)]
    fn watched<T>(
        &self,
        pool: &mut Pool<'_>,
        watch: &mut impl Watch,
        run: impl FnOnce(&mut Pool<'_>) -> T,
    ) -> T {
        watch.expects(|| self.expected());
        watch.before(&|about, to| self.tell(about, to));
        let done = run(pool);
        watch.after(|| self.name(), pool, &|about, to| self.tell(about, to));
        done
    }

    /// Returns a description of what a member of this library lets through next, if it has one. The
    /// member must be alive.
    fn expected(&self) -> Option<Expected> {
        // SAFETY: a member that is alive; `list` has compared the vtables.
        unsafe { self.own?.expected_of(self.smpl) }
    }

    /// Calls `to` with each number that a trace requests; never for a sampler that is not this
    /// library's. The sampler must be alive, as members are while they run.
    fn tell(&self, about: About, to: Tell<'_>) {
        if let Some(vtable) = self.own {
            // SAFETY: a member that is alive; `own_of` has compared the vtables.
            unsafe { vtable.tell(self.smpl, about, to) };
        }
    }

    /// Returns the sampler's name.
    fn name(&self) -> Name {
        // SAFETY: a member that is alive; its vtable may be NULL.
        let name = unsafe { (*self.smpl).iface.as_ref() }.and_then(|iface| iface.name);
        // SAFETY: as above.
        let name = name.map(|name| unsafe { name(self.smpl) });
        let Some(name) = name.filter(|name| !name.is_null()) else {
            return "?".into();
        };
        // SAFETY: a sampler's name is a string.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned().into()
    }

    /// Runs the member on the pool.
    ///
    /// # Safety
    /// The sampler is alive, and of the host that `host` belongs to.
    unsafe fn run(
        &self,
        call: &dyn Display,
        host: &Functions,
        pool: &mut Pool<'_>,
    ) -> Result<(), c_int> {
        match self.own {
            // SAFETY: the caller guarantees the member; `list` has compared the vtables.
            Some(vtable) => unsafe { vtable.narrow(self.smpl, pool) },
            // SAFETY: as above.
            None => unsafe { self.run_foreign(call, host, pool) }?,
        }
        Ok(())
    }

    /// Runs a member that is not this library's, on the pool's array.
    ///
    /// # Safety
    /// The requirements of [`run`](Self::run) apply.
    unsafe fn run_foreign(
        &self,
        call: &dyn Display,
        host: &Functions,
        pool: &mut Pool<'_>,
    ) -> Result<(), c_int> {
        // Samplers of hosts may read beyond the end of an empty array.
        if pool.is_empty() {
            return Ok(());
        }
        let mut array = part(call, || {
            let selected = selected_of_array(pool);
            let (data, sorted) = pool.array();
            Ok(llama_token_data_array {
                data: data.as_mut_ptr(),
                size: data.len(),
                selected,
                sorted: u8::from(sorted),
            })
        })?;
        // SAFETY: the caller guarantees the sampler; the array is valid, and no other code uses it.
        unsafe { (host.apply)(self.smpl, &raw mut array) };
        // SAFETY: a sampler leaves a valid array.
        part(call, || unsafe { take_back(&array, pool) })
    }
}

/// Returns the index of the selected candidate in the pool's array, or -1 if none is selected.
/// Makes the array first if there is none, since without it the index may not be known.
fn selected_of_array(pool: &mut Pool<'_>) -> i64 {
    pool.array();
    pool.selected().map_or(-1, |index| index as i64)
}

/// Replaces the pool's candidates with those that a sampler of another library left in `array`.
/// Returns an error if these cannot be read, or reach beyond the end of the pool's array.
///
/// # Safety
/// `array` has `size` candidates at `data`, if that is not NULL.
unsafe fn take_back(array: &llama_token_data_array, pool: &mut Pool<'_>) -> Result<(), Failure> {
    let (data, _) = pool.array();
    let (start, before) = (data.as_mut_ptr(), data.len());
    let (size, sorted) = (array.size, array.sorted != 0);
    pool.select(usize::try_from(array.selected).ok());
    if size == 0 {
        pool.set_array(before, 0, sorted);
        return Ok(());
    }
    if judge(array.data, size, Token::MAX as usize).is_err() {
        let text = format!("a sampler of the chain left an array of {size} without usable data");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
    }
    let distance = (array.data as usize).wrapping_sub(start as usize);
    let dropped = distance / size_of::<TokenData>();
    if distance.is_multiple_of(size_of::<TokenData>()) && dropped < before {
        if size > before - dropped {
            let text = format!("a sampler of the chain made {size} candidates of {before}");
            return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
        }
        pool.set_array(dropped, size, sorted);
        return Ok(());
    }
    // SAFETY: the caller guarantees the elements, which are not in the pool's memory.
    pool.keep(
        unsafe { std::slice::from_raw_parts(array.data, size) },
        sorted,
    );
    Ok(())
}

/// Appends to `to` the members of a chain, including those of nested chains. For any other sampler,
/// appends the sampler itself. Leaves out the host's disabled samplers, and samplers without
/// `apply`.
///
/// # Safety
/// `smpl` is a live sampler of the host that `host` belongs to.
unsafe fn list(
    call: &dyn Display,
    host: &Functions,
    smpl: *mut llama_sampler,
    to: &mut Vec<Member>,
) -> Result<(), c_int> {
    // SAFETY: the caller guarantees the sampler.
    if let Some(members) = unsafe { host.chains.members(smpl) } {
        for member in members {
            // SAFETY: a chain's members live as long as the chain.
            unsafe { list(call, host, member, to) }?;
        }
        return Ok(());
    }
    // SAFETY: the caller guarantees the sampler.
    let iface = unsafe { (*smpl).iface };
    // A sampler without `apply` is skipped, as the host's chain does.
    //
    // SAFETY: the vtable of a live sampler.
    if iface.is_null() || unsafe { (*iface).apply.is_none() } || host.disabled.has(iface) {
        return Ok(());
    }
    // SAFETY: the caller guarantees the sampler.
    let own = unsafe { own_of(smpl) };
    part(call, || {
        memory::push(to, Member { smpl, own });
        Ok(())
    })
}

/// Returns the vtable of a sampler of this library; `None` for any other.
///
/// # Safety
/// `smpl` is a live sampler.
pub(in crate::ffi) unsafe fn own_of(smpl: *const llama_sampler) -> Option<&'static Vtable> {
    let others = [
        &SIEVE,
        &TOKEN_TRIE,
        &GRAMMAR,
        &HOSTED,
        &BANS,
        &BAN_BIASES,
        &LOOP_BREAKER,
    ];
    let own = DROP_INS.iter().chain(&others);
    // SAFETY: the caller guarantees the sampler.
    own.copied().find(|vtable| unsafe { vtable.is_of(smpl) })
}
