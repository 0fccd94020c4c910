//! `LD_PRELOAD=libllama_sieve_preload.so program`: the program's llama.cpp samplers become llama-sieve's, without recompiling anything.
//!
//! The library exports the names of the built-in samplers' constructors, and `llama_sampler_get_seed`. Loaded first, it is found first by
//! whatever calls them through the dynamic linker: the program, its libraries, and what they load later, also with RTLD_LOCAL. Not
//! reached are programs and libraries with a llama.cpp linked in, and callers that ask libllama's own handle for a symbol, as Python's ctypes does.
//! Constructors that llama-sieve has no counterpart of (grammar and others) are not exported, and stay what they are.
//!
//! The rule: it never changes tokens, and never breaks a program. Where it is not certain that ours is the host's equal, it steps aside
//! and calls the host's own constructor, with the same arguments: see `era` for which builds that is, `choice` for when. What it cannot see
//! is a program that will offload its chain into the graph (`llama_set_sampler`): llama.cpp then samples with ours on the CPU, as it does
//! with any sampler that has no graph version.
//!
//! - `settings`: the environment variables.
//! - `era`: which llama.cpp builds our samplers equal, and which arguments they take.
//! - `host_constructors`: finding what we stand in front of.
//! - `choice`: ours or the host's.
//! - this file: the exports.

// Where the interposition is known to work; elsewhere the library is empty.
#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod choice;
mod era;
mod host_constructors;
mod settings;

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr::null_mut;

use llama_sieve::ffi::guard::guard;
use llama_sieve::ffi::host_vocabulary::llama_vocab;
use llama_sieve::ffi::llama_h::{llama_logit_bias, llama_sampler};
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::seed::llama_sieve_get_seed;

use choice::make;

/// Exports of constructors whose arguments have been the same in every build: forwards them as they are.
macro_rules! constructors {
    ($($which:ident: $symbol:ident($($argument:ident: $kind:ty),*) => $ours:ident;)*) => {$(
        /// The built-in constructor's stand-in.
        ///
        /// # Safety
        /// The arguments are what llama.h asks for.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $kind),*) -> *mut llama_sampler {
            guard(stringify!($symbol), null_mut, || {
                make(
                    &era::$which,
                    &[$((stringify!($argument), &$argument)),*],
                    // SAFETY: the caller guarantees the arguments, which mean the same to ours.
                    #[allow(unused_unsafe)]
                    |_| unsafe { $ours($($argument),*) },
                    |theirs| {
                        type Constructor = unsafe extern "C" fn($($kind),*) -> *mut llama_sampler;
                        // SAFETY: the host's function of the same name and arguments.
                        unsafe { transmute::<*mut c_void, Constructor>(theirs)($($argument),*) }
                    },
                )
            })
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
    TEMP_EXT: llama_sampler_init_temp_ext(t: f32, delta: f32, exponent: f32) => llama_sieve_init_temp_ext;
    XTC: llama_sampler_init_xtc(p: f32, t: f32, min_keep: usize, seed: u32) => llama_sieve_init_xtc;
    TOP_N_SIGMA: llama_sampler_init_top_n_sigma(n: f32) => llama_sieve_init_top_n_sigma;
    MIROSTAT: llama_sampler_init_mirostat(n_vocab: i32, seed: u32, tau: f32, eta: f32, m: i32) => llama_sieve_init_mirostat;
    MIROSTAT_V2: llama_sampler_init_mirostat_v2(seed: u32, tau: f32, eta: f32) => llama_sieve_init_mirostat_v2;
    ADAPTIVE_P: llama_sampler_init_adaptive_p(target: f32, decay: f32, seed: u32) => llama_sieve_init_adaptive_p;
    LOGIT_BIAS: llama_sampler_init_logit_bias(n_vocab: i32, n: i32, bias: *const llama_logit_bias) => llama_sieve_init_logit_bias;
    INFILL: llama_sampler_init_infill(vocab: *const llama_vocab) => llama_sieve_init_infill;
}

// Penalties and dry have had several argument lists, and the build is not always known. So they are declared with as many integer and
// floating-point arguments as any of those lists has. In the ABIs of System V x86-64 and AAPCS64 the two kinds are counted apart: the n-th
// integer argument (six at most) and the n-th floating-point argument (eight at most) come in the n-th register of their kind, wherever they
// stand in the list, and nothing goes over the stack. An argument that the caller did not pass is whatever its register holds. Passing all of
// them on in the same order is passing the call on, whatever its arguments are. A 32-bit integer is the lower half of its register.

/// Stand-in for penalties: (n_vocab, last_n, repeat, freq, present), in older builds without n_vocab.
///
/// # Safety
/// The arguments are what the llama.h of the host asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sampler_init_penalties(
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
    type Constructor = unsafe extern "C" fn(
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        f32,
        f32,
        f32,
    ) -> *mut llama_sampler;
    guard("llama_sampler_init_penalties", null_mut, || {
        make(
            &era::PENALTIES,
            &[
                ("first", &(a as i32)),
                ("second", &(b as i32)),
                ("repeat", &repeat),
                ("freq", &freq),
                ("present", &present),
            ],
            |build| {
                let (n_vocab, last_n) = match era::penalties_take_n_vocab(build) {
                    true => (a as i32, b as i32),
                    false => (0, a as i32),
                };
                llama_sieve_init_penalties(n_vocab, last_n, repeat, freq, present)
            },
            |theirs| {
                // SAFETY: the host's function of the same name, with the registers that it was called with.
                unsafe {
                    transmute::<*mut c_void, Constructor>(theirs)(
                        a, b, c, d, e, f, repeat, freq, present,
                    )
                }
            },
        )
    })
}

/// Stand-in for dry: (vocab, multiplier, base, allowed_length, last_n, breakers, n_breakers), in older builds with n_ctx_train behind vocab.
///
/// # Safety
/// The arguments are what the llama.h of the host asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sampler_init_dry(
    vocab: *const llama_vocab,
    b: usize,
    c: usize,
    d: usize,
    e: usize,
    f: usize,
    multiplier: f32,
    base: f32,
) -> *mut llama_sampler {
    type Constructor = unsafe extern "C" fn(
        *const llama_vocab,
        usize,
        usize,
        usize,
        usize,
        usize,
        f32,
        f32,
    ) -> *mut llama_sampler;
    guard("llama_sampler_init_dry", null_mut, || {
        make(
            &era::DRY,
            &[
                ("vocab", &vocab),
                ("multiplier", &multiplier),
                ("base", &base),
                ("second", &(b as i32)),
                ("third", &(c as i32)),
                ("fourth", &(d as *const c_void)),
                ("fifth", &e),
            ],
            |build| {
                let (allowed_length, last_n, breakers, n_breakers) =
                    match era::dry_takes_n_ctx_train(build) {
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
            },
            |theirs| {
                // SAFETY: the host's function of the same name, with the registers that it was called with.
                unsafe {
                    transmute::<*mut c_void, Constructor>(theirs)(
                        vocab, b, c, d, e, f, multiplier, base,
                    )
                }
            },
        )
    })
}

/// Stand-in for `llama_sampler_get_seed`: knows ours, too.
///
/// # Safety
/// `smpl` is what llama.h asks for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sampler_get_seed(smpl: *const llama_sampler) -> u32 {
    type GetSeed = unsafe extern "C" fn(*const llama_sampler) -> u32;
    const NONE: u32 = u32::MAX;
    guard(
        "llama_sampler_get_seed",
        || NONE,
        || {
            let caller = host_constructors::caller();
            // Where none of ours was made, nothing of ours is needed.
            let ours = !settings::settings().is_off() && choice::served(caller).is_ok();
            if ours {
                // SAFETY: the caller guarantees the sampler.
                return unsafe { llama_sieve_get_seed(smpl) };
            }
            match host_constructors::meant(c"llama_sampler_get_seed", caller) {
                // SAFETY: the host's function of the same name and arguments.
                Some(theirs) => unsafe { transmute::<*mut c_void, GetSeed>(theirs.as_ptr())(smpl) },
                None => NONE,
            }
        },
    )
}
