//! For a library that stands in front of the host's own functions: chains of ours alone, sampled
//! without the host's array. Where anything speaks against that, nothing has been run, and the
//! host's own function does it all.

use std::sync::atomic::AtomicU8;

use super::host::{Functions, SamplingFunctions};
use super::workspace::{Taken, Workspace};
use super::{Member, list, members_of, prepare, run, selected_of_array};
use crate::chain::selected;
use crate::ffi::failure::{Failure, part, usable};
use crate::ffi::grammar::hosted::HOSTED;
use crate::ffi::host::llama_h::{llama_context, llama_sampler};
use crate::ffi::logits::{ContextFunctions, logits_of_output};
use crate::kernels::logits::Logits;
use crate::memory;
use crate::pool::Pool;
use crate::token::{Token, TokenData};

const CALL: &str = "sampling in front of llama.cpp";

/// The candidates that a chain leaves of the whole vocabulary: what the host's own array would be
/// after `llama_sampler_apply`.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// What is left, in order.
    pub data: &'a [TokenData],
    /// Whether they are marked as sorted.
    pub sorted: bool,
    /// Index of the chosen one, or -1.
    pub selected: i64,
}

/// What llama_sampler_sample does, for a chain of ours alone: samples, and lets every member accept
/// the token. `None`: the host's own is to be called.
///
/// # Safety
/// `chain` is NULL or a live sampler of the bound host, `ctx` NULL or a live context of it; both
/// are used by no other thread during the call.
pub unsafe fn sample(
    chain: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
) -> Option<Token> {
    // SAFETY: the caller guarantees chain and context; an output's logits stay during the call.
    unsafe {
        let (host, mut workspace, logits) = output(chain, ctx, idx)?;
        // Also a banned one, where there is no other: it is the host's chain that answers.
        let token = |pool: &mut Pool<'_>| Ok(selected(pool)?);
        let token = run(&CALL, &host, &mut workspace, chain, logits, token).ok()?;
        drop(workspace);
        (host.accept)(chain, token);
        Some(token)
    }
}

/// Whether this is a grammar that a host was given in the place of its own.
///
/// # Safety
/// `smpl` is NULL or a live sampler of any kind.
pub unsafe fn is_grammar(smpl: *const llama_sampler) -> bool {
    // SAFETY: not NULL, and the caller guarantees the sampler.
    !smpl.is_null() && unsafe { HOSTED.is_of(smpl) }
}

/// Hands what the chain makes of the logits of output `idx` to `take`; nothing is accepted. With a
/// `grammar`, what that and then the chain make of them. `None`: the host is to do it all.
///
/// # Safety
/// As for [`sample`]; the grammar [is one](is_grammar), and is used by no other thread either.
pub unsafe fn narrow<T>(
    grammar: Option<*mut llama_sampler>,
    chain: *mut llama_sampler,
    (ctx, idx): (*mut llama_context, i32),
    take: impl FnOnce(Candidates<'_>) -> T,
) -> Option<T> {
    // SAFETY: the caller guarantees grammar, chain and context; an output's logits stay during the
    // call.
    unsafe {
        let (host, mut workspace, logits) = output(chain, ctx, idx)?;
        if let Some(smpl) = grammar {
            let own = Some(&HOSTED);
            let first = |members: &mut Vec<Member>| {
                memory::push(members, Member { smpl, own });
                members.rotate_right(1);
                Ok(())
            };
            part(CALL, || first(&mut workspace.members)).ok()?;
        }
        let taken = |pool: &mut Pool<'_>| {
            let selected = selected_of_array(pool);
            let (data, sorted) = pool.array();
            Ok(take(Candidates {
                data,
                sorted,
                selected,
            }))
        };
        run(&CALL, &host, &mut workspace, chain, logits, taken).ok()
    }
}

/// A byte that lives with the first member of the chain, for whoever stands in front to note what
/// was seen of the chain's surroundings. Zero at first, in clones, too. `None` unless all members
/// are ours.
///
/// # Safety
/// `chain` is NULL or a live sampler of the bound host, which lives on during `'a`.
pub unsafe fn note<'a>(chain: *mut llama_sampler) -> Option<&'a AtomicU8> {
    let host = prepare(CALL, chain).ok()?;
    let mut workspace = Taken::<Workspace>::new();
    workspace.members.clear();
    // SAFETY: the caller guarantees the chain.
    unsafe { list(&CALL, &host, chain, &mut workspace.members) }.ok()?;
    if !are_ours(&workspace.members) {
        return None;
    }
    let first = workspace.members.first()?;
    // SAFETY: as above; a chain's members live as long as it, and `list` has compared the vtables.
    unsafe { first.own?.note_of(first.smpl) }
}

fn are_ours(members: &[Member]) -> bool {
    !members.is_empty() && members.iter().all(|member| member.own.is_some())
}

/// The logits of output `idx`, if no backend has sampled from them, and the members of the chain,
/// if all of them are ours: then no backend has a part of it.
///
/// # Safety
/// As for [`sample`]; the logits stay as they are during `'a`.
unsafe fn output<'a>(
    chain: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
) -> Option<(Functions, Taken<Workspace>, Logits<'a>)> {
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
        Some((host, workspace, Logits::F32(logits)))
    }
}
