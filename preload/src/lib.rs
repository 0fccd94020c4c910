//! `LD_PRELOAD=libllama_sieve_preload.so program`: the program's llama.cpp samplers become
//! llama-sieve's, without recompiling anything.
//!
//! The library exports the names of the built-in samplers' constructors, of the functions that
//! sample, and of some that handle samplers, models and vocabularies (`exports.txt`). Since it is
//! loaded first, the dynamic linker finds its definitions first, for calls from the program, its
//! libraries, and libraries that are loaded later, even with RTLD_LOCAL. It does not affect
//! programs and libraries with a statically linked llama.cpp, or callers that look up a symbol
//! through libllama's own handle, as Python's ctypes does. Constructors without a counterpart in
//! llama-sieve are not exported, and stay unchanged.
//!
//! Only members that the user adds (`extra`) change tokens. If it is not certain that this
//! library's sampler equals the host's, the call goes unchanged to the host's own constructor:
//! `choice` decides, and `stubs` passes the call on. In a program that offloads its chain into the
//! graph (`llama_set_sampler`), built-ins replace this library's samplers.
//!
//! Code of an export that could panic runs inside `guard`, which catches panics. The host's
//! functions that could throw are called outside it, so that their exceptions pass through.
//! Constructors begin in assembly, and usually pass a call on by a jump.
//!
//! On Windows no library comes first: a module calls the function of the library that it names.
//! There this library can only be attached to a running process. The functions that sample stay the
//! host's, since calls within the host's own library cannot be intercepted, so that the host cannot
//! be watched.
//!
//! - `settings`: the environment variables.
//! - `attach`: replaces functions in a running process; `slots`: the words through which they are
//!   called.
//! - `constructors`: the functions that are replaced, and the facts about a host that each
//!   requires.
//! - `host_constructors`: finds the functions to which calls are passed on; `routes`: keeps the
//!   results.
//! - `choice`: this library's sampler or the host's; `callers`: whether a call comes from
//!   llama.cpp's own samplers.
//! - `calls`: the token that a thread is sampling, and the answers to queries during that;
//!   `columns`: the data of the answers; `watch`: the steps of a host that does the sampling;
//!   `proof`: the conclusions for the process.
//! - `extra`: members that the user wants in every chain.
//! - `budget`: reasoning budgets, samplers that may come before a chain.
//! - `vocabularies`: the vocabularies that the host has returned.
//! - `presence`: reports that the library is loaded, that it samples, and how many tokens it
//!   sampled.
//! - `functions`: llama-sieve's own functions, for users that have only this library.
//! - `thread_end`: destructors of a thread's data.
//! - `sampling`: the exports that sample; `grammars`: the exports for grammars; this file: the
//!   other constructors, and the functions for seeds and copies.
//!
//! These modules are in layers, which `tests/rules/layers.rs` names. No module imports from a layer
//! above its own.

// The library is empty on systems on which interposition is not known to work.
#![cfg(any(
    all(windows, target_arch = "x86_64"),
    all(
        target_os = "linux",
        any(target_env = "gnu", target_env = "musl"),
        any(target_arch = "x86_64", target_arch = "aarch64")
    )
))]

/// Calls the host's function to which a [`choice::Theirs`] or a [`host_constructors::Route`] leads,
/// with these arguments. The call is made outside any guard, so that the function's exceptions pass
/// through. For an optional route, the last argument is the result if there is none.
macro_rules! call_host {
    ($way:expr, ($($kind:ty),*) -> $result:ty, ($($argument:expr),*), $otherwise:expr) => {
        match $way {
            Some(theirs) => call_host!(theirs, ($($kind),*) -> $result, ($($argument),*)),
            None => $otherwise,
        }
    };
    ($theirs:expr, ($($kind:ty),* $(,)?) -> $result:ty, ($($argument:expr),* $(,)?)) => {{
        type Function = unsafe extern "C-unwind" fn($($kind),*) -> $result;
        let theirs = $theirs;
        // SAFETY: the host's function of the name that was called, with the arguments of the call.
        unsafe { transmute::<*mut c_void, Function>(theirs.address())($($argument),*) }
    }};
}

mod attach;
mod budget;
mod callers;
mod calls;
mod choice;
mod columns;
mod constructors;
mod extra;
mod functions;
mod grammars;
mod host_constructors;
mod presence;
mod proof;
mod routes;
mod sampling;
mod settings;
mod slots;
mod stubs;
#[cfg(not(windows))]
mod thread_end;
mod vocabularies;
mod watch;

use std::ffi::{c_char, c_void};
use std::mem::transmute;

use llama_sieve::ffi::certificate::layouts::Changing;
use llama_sieve::ffi::exchange::copy_between;
use llama_sieve::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use llama_sieve::ffi::host::vocabulary::llama_vocab;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;

use choice::{Argument, Call, Named, choose};
use routes::Function;
use stubs::{Answer, Arguments, Saved, stand_in};

/// A symbol that marks this library, so that another loaded copy does not mistake it for a
/// llama.cpp.
#[unsafe(no_mangle)]
#[used]
pub static llama_sieve_preload_marker: u8 = 1;

/// Exports the constructors that have only one known argument list.
macro_rules! constructors {
    ($($which:ident: $symbol:ident($($argument:ident: $kind:ty),*) => $ours:ident;)*) => {$(
        const _: () = {
            unsafe extern "C-unwind" fn decide(saved: &Saved) -> Answer {
                let mut _arguments = Arguments::of(saved);
                // SAFETY: the caller of the constructor guarantees the arguments.
                $(let $argument: $kind = unsafe { _arguments.next() };)*
                let call = Call {
                    constructor: &constructors::$which,
                    saved,
                    arguments: &|_| vec![$((stringify!($argument), &$argument)),*],
                    are_finite: true $(&& Argument::is_finite(&$argument))*,
                };
                // SAFETY: as above. The argument list is either known or was proven.
                #[allow(unused_unsafe)]
                choose(&call, |_| unsafe { $ours($($argument),*) })
            }
            stand_in!($symbol, decide);
        };
    )*};
}

constructors! {
    GREEDY: llama_sampler_init_greedy() => llama_sieve_init_greedy;
    DIST: llama_sampler_init_dist(seed: u32) => llama_sieve_init_dist;
    TOP_K: llama_sampler_init_top_k(k: i32) => llama_sieve_init_top_k;
    TOP_P: llama_sampler_init_top_p(p: f32, min_keep: usize) => llama_sieve_init_top_p;
    MIN_P: llama_sampler_init_min_p(p: f32, min_keep: usize) => llama_sieve_init_min_p;
    TYPICAL: llama_sampler_init_typical(p: f32, min_keep: usize) => llama_sieve_init_typical;
    TEMP: llama_sampler_init_temp(t: f32) => llama_sieve_init_temp;
    TEMP_EXT: llama_sampler_init_temp_ext(t: f32, delta: f32, exponent: f32)
        => llama_sieve_init_temp_ext;
    XTC: llama_sampler_init_xtc(p: f32, t: f32, min_keep: usize, seed: u32)
        => llama_sieve_init_xtc;
    TOP_N_SIGMA: llama_sampler_init_top_n_sigma(n: f32) => llama_sieve_init_top_n_sigma;
    MIROSTAT: llama_sampler_init_mirostat(n_vocab: i32, seed: u32, tau: f32, eta: f32, m: i32)
        => llama_sieve_init_mirostat;
    MIROSTAT_V2: llama_sampler_init_mirostat_v2(seed: u32, tau: f32, eta: f32)
        => llama_sieve_init_mirostat_v2;
    ADAPTIVE_P: llama_sampler_init_adaptive_p(target: f32, decay: f32, seed: u32)
        => llama_sieve_init_adaptive_p;
    LOGIT_BIAS: llama_sampler_init_logit_bias(n_vocab: i32, n: i32, bias: *const llama_logit_bias)
        => llama_sieve_init_logit_bias;
    INFILL: llama_sampler_init_infill(vocab: *const llama_vocab) => llama_sieve_init_infill;
}

/// The indices of the argument lists of penalties and DRY: the current list, and the one of older
/// builds.
const LISTS: [usize; 2] = [0, 1];

/// True if all numbers are finite, so that this library's sampler treats them as the built-in does.
/// The arguments of a constructor with two lists are read by each list. What the wrong list reads
/// is arbitrary, so it is enough if the numbers of one list are finite.
fn are_finite(numbers: &[f32]) -> bool {
    numbers.iter().all(|number| number.is_finite())
}

/// Decides on a call of `llama_sampler_init_penalties`. The arguments are (n_vocab, last_n, repeat,
/// freq, present), in older builds without n_vocab.
///
/// # Safety
/// `saved` is a program's call of that constructor.
unsafe extern "C-unwind" fn penalties(saved: &Saved) -> Answer {
    let registers = saved.registers();
    let read = |list| {
        // Registers are read even if the call has passed fewer arguments.
        let [first, second, ..] = registers.integers_of(Changing::Penalties, list);
        let factors = registers.vectors_of(Changing::Penalties, list);
        (first as i32, second as i32, factors.map(f32::from_bits))
    };
    let both = LISTS.map(read);
    let told = |list: Option<usize>| {
        let [(n_vocab, last_n, _), (older_last_n, ..)] = &both;
        // If the list is unknown, so are the names of the integers.
        let mut named: Vec<Named<'_>> = match list {
            Some(0) => vec![("n_vocab", n_vocab), ("last_n", last_n)],
            Some(_) => vec![("last_n", older_last_n)],
            None => Vec::new(),
        };
        let (_, _, [repeat, freq, present]) = if list == Some(1) { &both[1] } else { &both[0] };
        named.extend::<[Named<'_>; 3]>([("repeat", repeat), ("freq", freq), ("present", present)]);
        named
    };
    let call = Call {
        constructor: &constructors::PENALTIES,
        saved,
        arguments: &told,
        are_finite: both.iter().any(|(.., factors)| are_finite(factors)),
    };
    choose(&call, |list| {
        let (first, second, [repeat, freq, present]) = read(list);
        let (n_vocab, last_n) = match list {
            0 => (first, second),
            _ => (0, first),
        };
        llama_sieve_init_penalties(n_vocab, last_n, repeat, freq, present)
    })
}
stand_in!(llama_sampler_init_penalties, penalties);

/// Decides on a call of `llama_sampler_init_dry`. The arguments are (vocab, multiplier, base,
/// allowed_length, last_n, breakers, n_breakers), in older builds with n_ctx_train after vocab.
///
/// # Safety
/// `saved` is a program's call of that constructor.
unsafe extern "C-unwind" fn dry(saved: &Saved) -> Answer {
    let registers = saved.registers();
    let read = |list| {
        let integers = registers.integers_of(Changing::Dry, list);
        let [multiplier, base, _] = registers.vectors_of(Changing::Dry, list);
        (integers, [multiplier, base].map(f32::from_bits))
    };
    let both = LISTS.map(read);
    let small = LISTS.map(|list| both[list].0.map(|value| value as i32));
    let told = |list: Option<usize>| {
        let [
            [_, allowed_length, last_n, ..],
            [_, n_ctx_train, older_length, older_last_n, ..],
        ] = &small;
        let [([.., n_breakers, _], _), ([.., older_n_breakers], _)] = &both;
        let mut named: Vec<Named<'_>> = match list {
            Some(0) => vec![
                ("allowed_length", allowed_length),
                ("last_n", last_n),
                ("n_breakers", n_breakers),
            ],
            Some(_) => vec![
                ("n_ctx_train", n_ctx_train),
                ("allowed_length", older_length),
                ("last_n", older_last_n),
                ("n_breakers", older_n_breakers),
            ],
            None => Vec::new(),
        };
        let (_, [multiplier, base]) = if list == Some(1) { &both[1] } else { &both[0] };
        named.extend::<[Named<'_>; 2]>([("multiplier", multiplier), ("base", base)]);
        named
    };
    let call = Call {
        constructor: &constructors::DRY,
        saved,
        arguments: &told,
        are_finite: both.iter().any(|(_, factors)| are_finite(factors)),
    };
    choose(&call, |list| {
        let ([vocab, b, c, d, e, f], [multiplier, base]) = read(list);
        let [second, third, fourth] = [b as i32, c as i32, d as i32];
        let (allowed_length, last_n, breakers, n_breakers) = match list {
            0 => (second, third, d, e),
            // In older builds a last_n of -1 means the whole context.
            _ if fourth == -1 => (third, second, e, f),
            _ => (third, fourth, e, f),
        };
        // SAFETY: the caller of the constructor guarantees the arguments of this list, which have
        // the same meaning for this library's constructor.
        unsafe {
            llama_sieve_init_dry(
                vocab as *const llama_vocab,
                multiplier,
                base,
                allowed_length,
                last_n,
                breakers as *mut *const c_char,
                n_breakers,
            )
        }
    })
}
stand_in!(llama_sampler_init_dry, dry);

/// Stand-in for `llama_sampler_get_seed` that also returns the seeds of this library's samplers.
///
/// # Safety
/// `smpl` meets the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_get_seed(smpl: *const llama_sampler) -> u32 {
    const NONE: u32 = u32::MAX;
    static HOSTS: Function = Function::new(c"llama_sampler_get_seed");
    match choice::other(&HOSTS) {
        // SAFETY: the caller guarantees the sampler.
        choice::Other::Ours(_) => unsafe { llama_sieve_get_seed(smpl) },
        choice::Other::Theirs(theirs) => {
            call_host!(theirs, (*const llama_sampler) -> u32, (smpl))
        }
        choice::Other::Nowhere => NONE,
    }
}

/// Stand-in for `llama_sampler_copy`. The host's function aborts if one of the two samplers was
/// replaced by the built-in (`llama_set_sampler`) and the other was not. In that case the stand-in
/// copies the built-in's state.
///
/// # Safety
/// `src` and `dst` meet the requirements of llama.h.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_copy(
    src: *const llama_sampler,
    dst: *mut llama_sampler,
) {
    type Copy = unsafe extern "C-unwind" fn(*const llama_sampler, *mut llama_sampler);
    static HOSTS: Function = Function::new(c"llama_sampler_copy");
    match choice::other(&HOSTS) {
        choice::Other::Ours(theirs) => {
            // SAFETY: the host's function of this name.
            let copy = unsafe { transmute::<*mut c_void, Copy>(theirs.address()) };
            // SAFETY: the caller guarantees the samplers.
            unsafe { copy_between(src, dst, copy) }
        }
        choice::Other::Theirs(theirs) => {
            call_host!(theirs, (*const llama_sampler, *mut llama_sampler) -> (), (src, dst))
        }
        choice::Other::Nowhere => {}
    }
}
