//! The exports that sample: the functions that programs call for every token.

use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null_mut;

use llama_sieve::Token;
use llama_sieve::ffi::chain::in_front::{self, Candidates, Sampled};
use llama_sieve::ffi::host::llama_h::{llama_context, llama_sampler, llama_token_data_array};
use llama_sieve::trace;

use crate::budget;
use crate::calls::{self, Apply, Entered, Run};
use crate::choice;
use crate::host_constructors::Route;
use crate::presence;
use crate::proof::{self, Entry};
use crate::routes::Function;
use crate::watch;

/// The common library's `common_sampler`.
#[allow(non_camel_case_types)]
#[repr(C)]
pub struct common_sampler {
    _opaque: [u8; 0],
}

const NO_TOKEN: Token = -1;

/// Stand-in for `llama_sampler_sample`: a chain whose members are all this library's is sampled
/// straight from the logits, once the host has been observed to give the same result.
///
/// # Safety
/// The arguments meet the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_sample(
    smpl: *mut llama_sampler,
    ctx: *mut llama_context,
    idx: i32,
) -> Token {
    static HOSTS: Function = Function::new(c"llama_sampler_sample");
    presence::sampling();
    let way = HOSTS.route();
    let mut entered = None;
    if way.is_some_and(|way| choice::serves(way, Entry::Sampler)) {
        // SAFETY: the caller guarantees the samplers, which are of the host that is served.
        match unsafe { in_front::sample(smpl, ctx, idx, calls::may_sample) } {
            Some(Sampled::Token(token)) => {
                proof::used(Entry::Sampler);
                presence::directly();
                presence::report_once("llama_sampler_sample");
                return token;
            }
            Some(Sampled::Nothing(note)) => {
                entered = Some(Entered::sampler((ctx, idx), smpl, note));
                // SAFETY: as above.
                unsafe {
                    let nothing = in_front::Before::default();
                    in_front::rehearse(nothing, smpl, (ctx, idx), calls::keep_rehearsed);
                }
            }
            None => {}
        }
    }
    let token = call_host!(
        way,
        (*mut llama_sampler, *mut llama_context, i32) -> Token,
        (smpl, ctx, idx),
        NO_TOKEN
    );
    if let Some(entered) = entered {
        entered.finish(token);
    }
    token
}

/// Stand-in for `llama_sampler_apply`: sets the selected index if the chain has already run, and
/// records the samplers that are applied to an array of the host.
///
/// # Safety
/// The arguments meet the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_apply(
    smpl: *mut llama_sampler,
    array: *mut llama_token_data_array,
) {
    static HOSTS: Function = Function::new(c"llama_sampler_apply");
    let is_own = trace::is_on() && !calls::is_inside();
    // SAFETY: the caller guarantees sampler and array.
    if is_own && unsafe { in_front::record(smpl, array) } {
        return;
    }
    // SAFETY: the caller guarantees sampler and array.
    let during = match unsafe { calls::apply(smpl, array) } {
        Apply::Nothing => return,
        Apply::Run(now, output) => {
            // SAFETY: the samplers that the caller guarantees, and the context of this call.
            unsafe {
                let run = in_front::narrow(now.before, now.chain, output, calls::keep);
                calls::chain_was_run(run == Some(true), array);
            }
            return;
        }
        Apply::First(applying) => {
            // SAFETY: the caller guarantees both, and the sampler is about to be applied.
            calls::comes_first(unsafe { budget::recognise(smpl, array) });
            applying
        }
        Apply::Theirs(applying) => applying,
    };
    call_host!(
        HOSTS.route(),
        (*mut llama_sampler, *mut llama_token_data_array) -> (),
        (smpl, array),
        ()
    );
    // SAFETY: as above.
    unsafe {
        during.finish(array);
        if is_own {
            in_front::looked_at(array);
        }
    }
}

/// Stand-in for the common library's `common_sampler_sample`: records the call, so that the host's
/// queries during it can be answered.
///
/// # Safety
/// The arguments meet the requirements of sampling.h.
#[unsafe(export_name = "_Z21common_sampler_sampleP14common_samplerP13llama_contextib")]
pub unsafe extern "C-unwind" fn common_sampler_sample(
    gsmpl: *mut common_sampler,
    ctx: *mut llama_context,
    idx: i32,
    grammar_first: bool,
) -> Token {
    static HOSTS: Function =
        Function::new(c"_Z21common_sampler_sampleP14common_samplerP13llama_contextib");
    presence::sampling();
    let way = HOSTS.route();
    let get = way.and_then(choice::common_sampler_get);
    let chain = call_host!(
        get,
        (*mut common_sampler) -> *mut llama_sampler,
        (gsmpl),
        null_mut()
    );
    let sample = || {
        call_host!(
            way,
            (*mut common_sampler, *mut llama_context, i32, bool) -> Token,
            (gsmpl, ctx, idx, grammar_first),
            NO_TOKEN
        )
    };
    // SAFETY: the host's chain, which lives while it samples.
    let entered = unsafe { enter(way, chain, (ctx, idx), grammar_first) };
    let token = sample();
    match entered.is_some_and(|entered| entered.finish(token)) {
        true => sample(),
        false => token,
    }
}

/// Begins a call of `common_sampler_sample` with `chain`, if all members of the chain are this
/// library's.
///
/// # Safety
/// `chain` is NULL or a live sampler of the host that is served, and lives on until the call ends.
unsafe fn enter(
    host: Option<Route>,
    chain: *mut llama_sampler,
    output: (*mut llama_context, i32),
    grammar_first: bool,
) -> Option<Entered> {
    if chain.is_null() {
        return None;
    }
    // SAFETY: the caller guarantees the chain.
    let note = unsafe { in_front::note(chain) }?;
    Some(Entered::common(host?, output, chain, grammar_first, note))
}

/// Stand-in for `llama_get_sampled_probs_ith`, the first query of the host's
/// `common_sampler_sample`: runs the chain before it answers, if all members are this library's.
///
/// # Safety
/// The arguments meet the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_get_sampled_probs_ith(
    ctx: *mut llama_context,
    idx: i32,
) -> *mut f32 {
    if let Some(now) = calls::to_be_run(ctx, idx) {
        let (before, chain, output) = (now.before, now.chain, (ctx, idx));
        // SAFETY: the samplers of the call that this thread is in, and the context of the question.
        let kept = unsafe {
            match now.run {
                Run::Itself => in_front::narrow(before, chain, output, calls::keep),
                Run::Copies => {
                    let keep = |_: &[f32], _: &[f32], left: Candidates<'_>| calls::keep(left);
                    in_front::rehearse(before, chain, output, keep)
                }
                Run::Rehearsal => {
                    in_front::rehearse(before, chain, output, calls::keep_rehearsed);
                    None
                }
            }
        };
        if kept == Some(true) && now.run == Run::Itself {
            proof::used(Entry::Common);
            // After a grammar's rejection the same token is sampled once more, and must not be
            // counted twice.
            if before.grammar.is_none() {
                presence::directly();
            }
            presence::report_once(match (before.grammar, before.first) {
                (None, None) => "common_sampler_sample",
                (Some(_), _) => "common_sampler_sample after a grammar",
                (None, Some(_)) => "common_sampler_sample after a budget",
            });
        }
    }
    if let Some(probs) = calls::probs(ctx, idx) {
        return probs;
    }
    call_host!(
        watch::SAMPLED_PROBS.route(),
        (*mut llama_context, i32) -> *mut f32,
        (ctx, idx),
        null_mut()
    )
}

/// Defines the stand-ins for the other queries of a backend's results.
macro_rules! questions {
    ($($symbol:ident($text:literal) -> $result:ty: $answer:path, $otherwise:expr;)*) => {$(
        /// Answers with the candidates that the chain left, if it was run for the host. The host
        /// itself answers the query of the token.
        ///
        /// # Safety
        /// The arguments meet the requirements of llama.h.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol(ctx: *mut llama_context, idx: i32) -> $result {
            static HOSTS: Function = Function::new($text);
            if let Some(answer) = $answer(ctx, idx) {
                return answer;
            }
            call_host!(
                HOSTS.route(),
                (*mut llama_context, i32) -> $result,
                (ctx, idx),
                $otherwise
            )
        }
    )*};
}

questions! {
    llama_get_sampled_logits_ith(c"llama_get_sampled_logits_ith") -> *mut f32:
        calls::logits, null_mut();
    llama_get_sampled_candidates_ith(c"llama_get_sampled_candidates_ith") -> *mut Token:
        calls::candidates, null_mut();
    llama_get_sampled_probs_count_ith(c"llama_get_sampled_probs_count_ith") -> u32:
        calls::count, 0;
    llama_get_sampled_logits_count_ith(c"llama_get_sampled_logits_count_ith") -> u32:
        calls::count, 0;
    llama_get_sampled_candidates_count_ith(c"llama_get_sampled_candidates_count_ith") -> u32:
        calls::count, 0;
    llama_get_sampled_token_ith(c"llama_get_sampled_token_ith") -> Token:
        calls::token, NO_TOKEN;
}
