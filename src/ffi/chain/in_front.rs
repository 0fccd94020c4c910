//! Samples chains without the host's array, if all their members are this library's. This module is
//! for a library that replaces the host's own functions. If one of its functions cannot do its
//! work, the caller must call the host's own function. No member has run then, except in
//! [`sample`] if the chain selects no token.

use std::sync::atomic::AtomicU64;

use super::host::{Functions, SamplingFunctions};
use super::workspace::{Taken, Workspace};
use super::{Member, list, members_of, prepare, run, selected_of_array, traced};
use crate::chain::selected;
use crate::ffi::failure::{Failure, part, usable};
use crate::ffi::grammar::hosted::HOSTED;
use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use crate::ffi::host::per_host::PerHost;
use crate::ffi::logits::{ContextFunctions, logits_of_output};
use crate::kernels::logits::Logits;
use crate::memory;
use crate::pool::Pool;
use crate::token::{Token, TokenData};
use crate::trace;

const CALL: &str = "sampling in front of llama.cpp";

/// The argument of [`run`] that keeps NaN among the candidates, as in the array that the host
/// fills.
const LEAVES_NAN: bool = false;

/// The candidates that a chain leaves of the whole vocabulary, as the host's own array would
/// contain them after `llama_sampler_apply`.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// The candidates that are left, in order.
    pub data: &'a [TokenData],
    /// True if the candidates are marked as sorted.
    pub sorted: bool,
    /// The index of the chosen candidate, or -1.
    pub selected: i64,
}

/// The samplers before the chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// A sampler of the host that comes first.
    pub first: Option<First>,
    /// A grammar of this library (see [`is_grammar`]).
    pub grammar: Option<*mut llama_sampler>,
}

/// A sampler that changes only logits.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// A sampler of the host, used by no other thread.
    pub sampler: *mut llama_sampler,
    /// Returns the logits that the sampler would leave for the logits it is given; `None` if they
    /// are not known.
    pub edit: unsafe fn(*mut llama_sampler, &[f32]) -> Option<Edited>,
}

/// The logits with which the chain, or a grammar before it, begins.
#[derive(Debug)]
pub enum Edited {
    /// The logits of the output, unchanged.
    AsTheyAre,
    /// Other logits, as many as the output has.
    Others(Vec<f32>),
}

impl Edited {
    /// Returns the logits with which the chain, or a grammar before it, begins; `None` if they are
    /// not known.
    ///
    /// # Safety
    /// The first sampler is alive.
    unsafe fn by(before: Before, logits: &[f32]) -> Option<Self> {
        match before.first {
            // SAFETY: the caller guarantees the sampler.
            Some(first) => unsafe { (first.edit)(first.sampler, logits) },
            None => Some(Self::AsTheyAre),
        }
    }

    /// Returns `logits`, or the logits that replace them.
    fn of<'a>(&'a self, logits: &'a [f32]) -> &'a [f32] {
        match self {
            Self::AsTheyAre => logits,
            Self::Others(others) => others,
        }
    }
}

/// The outcome of [`sample`].
#[derive(Clone, Copy, Debug)]
pub enum Sampled<'a> {
    /// The token, which every member has accepted.
    Token(Token),
    /// No token, because the chain's [`note`] did not allow it.
    Nothing(&'a AtomicU64),
}

/// Samples like llama_sampler_sample, if all members of the chain are this library's and `may`
/// returns true for the chain's [`note`]. Every member accepts the token. `None` if the host's own
/// function is to be called.
///
/// # Safety
/// `chain` is NULL or a live sampler of the bound host, which lives on during `'a`, `ctx` NULL or a
/// live context of that host; both are used by no other thread during the call.
pub unsafe fn sample<'a>(
    chain: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
    may: impl FnOnce(&'a AtomicU64) -> bool,
) -> Option<Sampled<'a>> {
    // SAFETY: the caller guarantees chain and context; an output's logits stay during the call.
    unsafe {
        let (host, mut workspace, logits) = output(chain, ctx, idx)?;
        let note = note_of(&workspace.members)?;
        if !may(note) {
            return Some(Sampled::Nothing(note));
        }
        // The token is returned even if its logit is minus infinity, as the host's own chain would
        // do.
        let token = |pool: &mut Pool<'_>| Ok(selected(pool)?);
        let logits = Logits::F32(logits);
        let token = run(
            &CALL,
            &host,
            &mut workspace,
            chain,
            logits,
            LEAVES_NAN,
            token,
        )
        .ok()?;
        drop(workspace);
        (host.accept)(chain, token);
        traced::deliver(ctx, Some(token));
        Some(Sampled::Token(token))
    }
}

/// Returns true for a grammar of this library that replaces a host's own.
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
pub unsafe fn is_grammar(smpl: *const llama_sampler) -> bool {
    // SAFETY: not NULL, and the caller guarantees the sampler.
    !smpl.is_null() && unsafe { HOSTED.is_of(smpl) }
}

/// Returns the result of `take` on the candidates that the samplers in `before` and then the chain
/// leave for the logits of output `idx`. No token is accepted. Returns `None` if the host must do
/// everything itself.
///
/// # Safety
/// The requirements of [`sample`] apply. The samplers in `before` are alive and used by no other
/// thread, and [`is_grammar`] is true for the grammar.
pub unsafe fn narrow<T>(
    before: Before,
    chain: *mut llama_sampler,
    (ctx, idx): (*mut llama_context, i32),
    take: impl FnOnce(Candidates<'_>) -> T,
) -> Option<T> {
    // SAFETY: the caller guarantees grammar, chain and context; an output's logits stay during the
    // call.
    unsafe {
        let (host, mut workspace, logits) = behind(before.grammar, chain, (ctx, idx))?;
        let edited = Edited::by(before, logits)?;
        let logits = Logits::F32(edited.of(logits));
        let (refused, sequence) = traced_before(&workspace);
        let taken = |pool: &mut Pool<'_>| Ok(take(left_of(pool)));
        let taken = run(
            &CALL,
            &host,
            &mut workspace,
            chain,
            logits,
            LEAVES_NAN,
            taken,
        )
        .ok();
        traced::again(sequence, refused, before.grammar.is_some());
        if let Edited::Others(_) = edited {
            // These logits are freed when this function returns.
            workspace.last = None;
        }
        taken
    }
}

/// Returns the result of `take` on the logits of output `idx`, the logits with which the chain
/// begins, and the candidates that [`narrow`] would pass. Copies of the grammar and the chain run,
/// and the originals do not change. Returns `None` if the candidates are not known.
///
/// # Safety
/// The requirements of [`narrow`] apply.
pub unsafe fn rehearse<T>(
    before: Before,
    chain: *mut llama_sampler,
    (ctx, idx): (*mut llama_context, i32),
    take: impl FnOnce(&[f32], &[f32], Candidates<'_>) -> T,
) -> Option<T> {
    // SAFETY: as in `narrow`; no other code has a pointer to the copies.
    unsafe {
        let (host, mut workspace, logits) = behind(before.grammar, chain, (ctx, idx))?;
        let edited = Edited::by(before, logits)?;
        let (refused, sequence) = traced_before(&workspace);
        let copies = Copies::of(&workspace.members)?;
        workspace.members.copy_from_slice(&copies.members);
        let begins = edited.of(logits);
        let taken = |pool: &mut Pool<'_>| Ok(take(logits, begins, left_of(pool)));
        let all = Logits::F32(begins);
        let taken = run(&CALL, &host, &mut workspace, chain, all, LEAVES_NAN, taken).ok();
        traced::again(sequence, refused, before.grammar.is_some());
        // The candidates were left by the copies, not by this chain.
        workspace.last = None;
        taken
    }
}

/// Writes the trace's line, if there is a trace, for a call in which [`narrow`] or [`rehearse`] ran
/// and which has ended with this token; `None` means that there is no token.
///
/// # Safety
/// `ctx` is NULL or a live context of the bound host.
pub unsafe fn traced(ctx: *mut llama_context, token: Option<Token>) {
    // SAFETY: the caller guarantees the context.
    unsafe { traced::deliver(ctx, token) };
}

/// Records in the trace, if there is one, that the host uses this sampler to check the token that
/// [`narrow`] or [`rehearse`] has selected. Does nothing unless the sampler is a grammar (see
/// [`is_grammar`]).
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
pub unsafe fn checks(smpl: *const llama_sampler) {
    // SAFETY: the caller guarantees the sampler.
    if trace::is_on() && unsafe { is_grammar(smpl) } {
        // SAFETY: the pointer is to such a sampler.
        unsafe { traced::checks(smpl) };
    }
}

/// Applies a chain like llama_sampler_apply, and writes the call to the trace, if all members are
/// this library's. It is for calls that the functions above do not serve. Returns false if it did
/// nothing, for example without a trace or for a chain with other members. The caller must then
/// call the host's own function.
///
/// # Safety
/// `chain` is NULL or a live sampler of any host, `array` NULL or a valid array; no other thread
/// uses them during the call.
pub unsafe fn record(chain: *mut llama_sampler, array: *mut llama_token_data_array) -> bool {
    // SAFETY: the caller guarantees both.
    trace::is_on() && unsafe { traced::apply(chain, array) }.is_some()
}

/// Notes for the trace, if there is one, that the host has applied a sampler to `array`. In this
/// way a host checks whether a grammar allows a token.
///
/// # Safety
/// `array` is NULL or a valid array.
pub unsafe fn looked_at(array: *const llama_token_data_array) {
    if trace::is_on() {
        // SAFETY: the caller guarantees the array.
        unsafe { traced::looked_at(array) };
    }
}

/// Returns, for the trace, the token of an earlier run in the same call, and the number of the
/// chain.
fn traced_before(workspace: &Workspace) -> (Option<traced::Refused>, u64) {
    match trace::is_on() {
        true => (traced::before(), traced::sequence_of(&workspace.members)),
        false => (None, 0),
    }
}

/// Copies of the members of a chain, freed on drop.
struct Copies {
    members: Vec<Member>,
    free: Free,
}

impl Copies {
    /// Copies the members; `None` unless all could be copied.
    ///
    /// # Safety
    /// The members are alive, and of the bound host.
    unsafe fn of(members: &[Member]) -> Option<Self> {
        static FREE: PerHost<Free> = PerHost::new();
        let begin = || {
            Ok(Self {
                members: memory::with_room(members.len())?,
                free: FREE.of_host(free_of).map_err(Failure::no_host)?,
            })
        };
        let mut copies = part(CALL, begin).ok()?;
        for member in members {
            // SAFETY: the caller guarantees the members; `list` has compared the vtables.
            let smpl = unsafe { member.own?.twin_of(member.smpl) };
            if smpl.is_null() {
                return None;
            }
            copies.members.push(Member { smpl, ..*member });
        }
        Some(copies)
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for copy in &self.members {
            // SAFETY: the host's own function, for samplers that were made here.
            unsafe { (self.free)(copy.smpl) };
        }
    }
}

/// Returns the candidates that are left in a pool.
fn left_of<'a>(pool: &'a mut Pool<'_>) -> Candidates<'a> {
    let selected = selected_of_array(pool);
    let (data, sorted) = pool.array();
    Candidates {
        data,
        sorted,
        selected,
    }
}

/// Returns the result of [`output`], with the grammar put before the chain.
///
/// # Safety
/// The requirements of [`narrow`] apply.
unsafe fn behind<'a>(
    grammar: Option<*mut llama_sampler>,
    chain: *mut llama_sampler,
    (ctx, idx): (*mut llama_context, i32),
) -> Option<(Functions, Taken<Workspace>, &'a [f32])> {
    // SAFETY: the caller guarantees chain and context.
    let (host, mut workspace, logits) = unsafe { output(chain, ctx, idx) }?;
    if let Some(smpl) = grammar {
        let own = Some(&HOSTED);
        let first = |members: &mut Vec<Member>| {
            memory::push(members, Member { smpl, own });
            members.rotate_right(1);
            Ok(())
        };
        part(CALL, || first(&mut workspace.members)).ok()?;
    }
    Some((host, workspace, logits))
}

/// Returns a number that is stored with the first member of the chain. The library that replaces
/// the host's functions uses it to note its findings about the chain. It is 0 at first, also in
/// clones. `None` unless all members are this library's.
///
/// # Safety
/// `chain` is NULL or a live sampler of the bound host, which lives on during `'a`.
pub unsafe fn note<'a>(chain: *mut llama_sampler) -> Option<&'a AtomicU64> {
    let host = prepare(CALL, chain).ok()?;
    let mut workspace = Taken::<Workspace>::new();
    workspace.members.clear();
    // SAFETY: the caller guarantees the chain.
    unsafe { list(&CALL, &host, chain, &mut workspace.members) }.ok()?;
    if !are_ours(&workspace.members) {
        return None;
    }
    // SAFETY: as above; a chain's members live as long as the chain.
    unsafe { note_of(&workspace.members) }
}

/// Returns the [`note`] of a chain with these members.
///
/// # Safety
/// The members are alive, and live on during `'a`.
unsafe fn note_of<'a>(members: &[Member]) -> Option<&'a AtomicU64> {
    let first = members.first()?;
    // SAFETY: the caller guarantees the member; `list` has compared the vtables.
    unsafe { first.own?.note_of(first.smpl) }
}

fn are_ours(members: &[Member]) -> bool {
    !members.is_empty() && members.iter().all(|member| member.own.is_some())
}

/// Returns the logits of output `idx` and the members of the chain. `None` if a backend has sampled
/// from the logits, or if a member is not this library's, since a backend may then run a part of
/// the chain.
///
/// # Safety
/// The requirements of [`sample`] apply, and the logits do not change during `'a`.
unsafe fn output<'a>(
    chain: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
) -> Option<(Functions, Taken<Workspace>, &'a [f32])> {
    let host = prepare(CALL, chain).ok()?;
    let functions = part(CALL, || {
        usable("the context", ctx)?;
        let functions = (ContextFunctions::of_host()?, SamplingFunctions::of_host()?);
        Ok::<_, Failure>(functions)
    });
    let (context, sampling) = functions.ok()?;
    // SAFETY: the caller guarantees chain and context.
    unsafe {
        let workspace = members_of(&CALL, &host, chain).ok()?;
        if !are_ours(&workspace.members) || sampling.has_sampled(ctx, idx) {
            return None;
        }
        let logits = context.logits(ctx, idx);
        let logits = part(CALL, || logits_of_output(logits, idx)).ok()?;
        Some((host, workspace, logits))
    }
}
