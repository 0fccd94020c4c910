//! `LD_PRELOAD=libllama_sieve_preload.so program`: the program's llama.cpp samplers become
//! llama-sieve's, without recompiling anything.
//!
//! The library exports the names of the built-in samplers' constructors, of the functions that
//! sample, `llama_sampler_get_seed`, `llama_sampler_copy` and `llama_sampler_free`. Loaded first,
//! it is found first by whatever calls them through the dynamic linker: the program, its libraries,
//! and what they load later, also with RTLD_LOCAL. Not reached are programs and libraries with a
//! llama.cpp linked in, and callers that ask libllama's own handle for a symbol, as Python's ctypes
//! does. Constructors that llama-sieve has no counterpart of are not exported, and stay what they
//! are.
//!
//! The rule: it never changes tokens, and never breaks a program. Where it is not certain that ours
//! is the host's equal, it steps aside and calls the host's own constructor, with the same
//! arguments: see `choice` for when. In a program that offloads its chain into the graph
//! (`llama_set_sampler`), ours give way to the built-ins.
//!
//! Every export decides inside the guard, and calls the host outside it: an exception that the
//! host throws passes through to whoever catches it.
//!
//! - `settings`: the environment variables.
//! - `constructors`: what there is to stand in for, and what must be known of a host before.
//! - `host_constructors`: finding what we stand in front of; `routes`: what was found.
//! - `choice`: ours or the host's; `callers`: who asks.
//! - `calls`: the token that a thread is sampling, and what is answered meanwhile; `columns`: the
//!   answers; `watch`: what the host does where it samples itself; `proof`: what follows for all.
//! - `budget`: the sampler that comes before a chain.
//! - `presence`: what is told of the library itself.
//! - `thread_end`: destructors of what is kept for a thread.
//! - `sampling`: the exports that sample; `grammars`: those for grammars; this file: all others.

// Where the interposition is known to work; elsewhere the library is empty.
#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

/// Calls the host's function that a [`choice::Theirs`] or a [`routes::Route`] leads to, with these
/// arguments: outside any guard, so that what it throws passes through. Where there may be no way,
/// the last argument is what there is then.
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

mod budget;
mod callers;
mod calls;
mod choice;
mod columns;
mod constructors;
mod grammars;
mod host_constructors;
mod presence;
mod proof;
mod routes;
mod sampling;
mod settings;
mod thread_end;
mod watch;

use std::ffi::{c_char, c_void};
use std::mem::transmute;

use llama_sieve::ffi::exchange::copy_between;
use llama_sieve::ffi::host::build::Build;
use llama_sieve::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use llama_sieve::ffi::host::vocabulary::llama_vocab;
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;

use choice::{Chosen, Named, choose};
use routes::Function;

/// Another copy of this library that is loaded knows this one by it, and does not take it for a
/// llama.cpp.
#[unsafe(no_mangle)]
#[used]
pub static llama_sieve_preload_marker: u8 = 1;

/// Exports of constructors whose arguments have been the same in every build: forwards them as they
/// are.
macro_rules! constructors {
    ($($which:ident: $symbol:ident($($argument:ident: $kind:ty),*) => $ours:ident;)*) => {$(
        /// The built-in constructor's stand-in.
        ///
        /// # Safety
        /// The arguments are what llama.h asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $symbol($($argument: $kind),*) -> *mut llama_sampler {
            let chosen = choose(
                &constructors::$which,
                &|_| vec![$((stringify!($argument), &$argument)),*],
                // SAFETY: the caller guarantees the arguments, which mean the same to ours.
                #[allow(unused_unsafe)]
                |_| unsafe { $ours($($argument),*) },
            );
            match chosen {
                Chosen::Made(sampler) => sampler,
                Chosen::Theirs(theirs) => {
                    call_host!(theirs, ($($kind),*) -> *mut llama_sampler, ($($argument),*))
                }
            }
        }
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

// Penalties and dry have had several argument lists, and the build is not always known. So they are
// declared with as many integer and floating-point arguments as any of those lists has. In the ABIs
// of System V x86-64 and AAPCS64 the two kinds are counted apart: the n-th integer argument (six at
// most) and the n-th floating-point argument (eight at most) come in the n-th register of their
// kind, wherever they stand in the list, and nothing goes over the stack. An argument that the
// caller did not pass is whatever its register holds. Passing all of them on in the same order is
// passing the call on, whatever its arguments are. A 32-bit integer is the lower half of its
// register.

/// Stand-in for penalties: (n_vocab, last_n, repeat, freq, present), in older builds without
/// n_vocab.
///
/// # Safety
/// The arguments are what the llama.h of the host asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_init_penalties(
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    repeat: f32,
    freq: f32,
    present: f32,
) -> *mut llama_sampler {
    let ours = |build: Option<Build>| {
        let (n_vocab, last_n) = match build.is_some_and(Build::penalties_take_n_vocab) {
            true => (a as i32, b as i32),
            false => (0, a as i32),
        };
        llama_sieve_init_penalties(n_vocab, last_n, repeat, freq, present)
    };
    let [first, second] = [a as i32, b as i32];
    // Of an unknown build's integers the names are not known.
    let arguments = |build: Option<Build>| {
        let mut named: Vec<Named<'_>> = match build.map(Build::penalties_take_n_vocab) {
            Some(true) => vec![("n_vocab", &first), ("last_n", &second)],
            Some(false) => vec![("last_n", &first)],
            None => Vec::new(),
        };
        named.extend::<[Named<'_>; 3]>([
            ("repeat", &repeat),
            ("freq", &freq),
            ("present", &present),
        ]);
        named
    };
    let chosen = choose(&constructors::PENALTIES, &arguments, ours);
    match chosen {
        Chosen::Made(sampler) => sampler,
        Chosen::Theirs(theirs) => call_host!(
            theirs,
            (usize, usize, usize, usize, usize, usize, f32, f32, f32) -> *mut llama_sampler,
            (a, b, c, d, e, f, repeat, freq, present)
        ),
    }
}

/// Stand-in for dry: (vocab, multiplier, base, allowed_length, last_n, breakers, n_breakers), in
/// older builds with n_ctx_train behind vocab.
///
/// # Safety
/// The arguments are what the llama.h of the host asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sampler_init_dry(
    vocab: *const llama_vocab,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    multiplier: f32,
    base: f32,
) -> *mut llama_sampler {
    let ours = |build: Option<Build>| {
        let (allowed_length, last_n, breakers, n_breakers) =
            match build.is_some_and(Build::dry_takes_n_ctx_train) {
                // There, a last_n of -1 means all of the context.
                true if d as i32 == -1 => (c as i32, b as i32, e, f),
                true => (c as i32, d as i32, e, f),
                false => (b as i32, c as i32, d, e),
            };
        // SAFETY: the caller guarantees the arguments, which mean the same to ours.
        unsafe {
            llama_sieve_init_dry(
                vocab,
                multiplier,
                base,
                allowed_length,
                last_n,
                breakers as *mut *const c_char,
                n_breakers,
            )
        }
    };
    let [second, third, fourth] = [b as i32, c as i32, d as i32];
    let arguments = |build: Option<Build>| {
        let mut named: Vec<Named<'_>> = match build.map(Build::dry_takes_n_ctx_train) {
            Some(true) => vec![
                ("n_ctx_train", &second),
                ("allowed_length", &third),
                ("last_n", &fourth),
                ("n_breakers", &f),
            ],
            Some(false) => vec![
                ("allowed_length", &second),
                ("last_n", &third),
                ("n_breakers", &e),
            ],
            None => Vec::new(),
        };
        named.extend::<[Named<'_>; 2]>([("multiplier", &multiplier), ("base", &base)]);
        named
    };
    match choose(&constructors::DRY, &arguments, ours) {
        Chosen::Made(sampler) => sampler,
        Chosen::Theirs(theirs) => call_host!(
            theirs,
            (*const llama_vocab, usize, usize, usize, usize, usize, f32, f32)
                -> *mut llama_sampler,
            (vocab, b, c, d, e, f, multiplier, base)
        ),
    }
}

/// Stand-in for `llama_sampler_get_seed`: knows ours, too.
///
/// # Safety
/// `smpl` is what llama.h asks for.
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

/// Stand-in for `llama_sampler_copy`, which aborts where one of the two has given way to the
/// built-in (`llama_set_sampler`) and the other is still ours: the built-in is copied then.
///
/// # Safety
/// `src` and `dst` are what llama.h asks for.
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
