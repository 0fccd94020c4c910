//! The kinds of samplers that are tried, with the arguments of their trials.

use std::ffi::{c_char, c_void};
use std::mem::transmute;
use std::ptr::{null, null_mut};

use crate::ffi::host::build::Build;
use crate::ffi::host::linker::{Name, host_name};
use crate::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::samplers::*;
use crate::token::Token;

/// A kind of sampler.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) constructor: Name,
    /// Returns true for builds whose sampler can be made with these arguments; `None` means all
    /// builds.
    pub(super) takes: Option<fn(Build) -> bool>,
    /// Makes the host's and this library's sampler with the arguments of a trial; `None` after the
    /// last trial.
    pub(super) make: unsafe fn(*mut c_void, usize) -> Option<Samplers>,
}

/// The host's sampler, followed by this library's.
pub(super) type Samplers = [*mut llama_sampler; 2];

/// Defines the kinds. Each trial has a line with the arguments of this library's sampler and those
/// of the host's. The first trial uses all arrays, which were chosen for its arguments. The others
/// use a few arrays.
macro_rules! kinds {
    ($(
        $name:literal, $constructor:literal, $takes:expr,
        $ours:ident, ($($kind:ty),*): $(($($mine:expr),*) ($($theirs:expr),*);)+
    )*) => {
        pub(super) static KINDS: &[Kind] = &[$(Kind {
            name: $name,
            constructor: host_name!($constructor),
            takes: $takes,
            make: {
                unsafe fn make(address: *mut c_void, trial: usize) -> Option<Samplers> {
                    type Theirs = unsafe extern "C-unwind" fn($($kind),*) -> *mut llama_sampler;
                    // SAFETY: the host's constructor of that name; if its arguments have changed
                    // between builds, `takes` has accepted the build.
                    let theirs = unsafe { transmute::<*mut c_void, Theirs>(address) };
                    let mut left = trial;
                    $(
                        if left == 0 {
                            // SAFETY: the arguments are those that both constructors require.
                            #[allow(unused_unsafe)]
                            return unsafe { Some([theirs($($theirs),*), $ours($($mine),*)]) };
                        }
                        left = left.wrapping_sub(1);
                    )+
                    let _ = left;
                    None
                }
                make
            },
        }),*];
    };
}

pub(super) const BIASES: [llama_logit_bias; 4] = [
    bias(3, 1.7),
    bias(0, -2.3),
    bias(15, f32::NEG_INFINITY),
    bias(3, 0.1),
];

pub(super) const fn bias(token: Token, bias: f32) -> llama_logit_bias {
    llama_logit_bias { token, bias }
}

pub(super) fn new_penalties(build: Build) -> bool {
    build.penalties_take_n_vocab()
}
pub(super) fn old_penalties(build: Build) -> bool {
    !build.penalties_take_n_vocab()
}
pub(super) fn old_dry(build: Build) -> bool {
    build.dry_takes_n_ctx_train()
}
pub(super) fn new_dry(build: Build) -> bool {
    !build.dry_takes_n_ctx_train()
}
pub(super) fn any_known(_: Build) -> bool {
    true
}

pub(super) const NO_VOCAB: *const llama_vocab = null();

kinds! {
    "greedy", c"llama_sampler_init_greedy", None, llama_sieve_init_greedy, ():
        () ();
    "dist", c"llama_sampler_init_dist", None, llama_sieve_init_dist, (u32):
        (42) (42);
        (7) (7);
    "top-k", c"llama_sampler_init_top_k", None, llama_sieve_init_top_k, (i32):
        (200) (200);
        (5) (5);
        (0) (0);
    "top-p", c"llama_sampler_init_top_p", None, llama_sieve_init_top_p, (f32, usize):
        (0.9, 1) (0.9, 1);
        (0.3, 3) (0.3, 3);
        (0.5, 1) (0.5, 1);
        (1.0, 1) (1.0, 1);
    "min-p", c"llama_sampler_init_min_p", None, llama_sieve_init_min_p, (f32, usize):
        (0.02, 1) (0.02, 1);
        (0.9, 6) (0.9, 6);
        (0.5, 0) (0.5, 0);
        (1.0, 1) (1.0, 1);
        (0.0, 1) (0.0, 1);
    "typical", c"llama_sampler_init_typical", None, llama_sieve_init_typical, (f32, usize):
        (0.8, 1) (0.8, 1);
        (0.1, 4) (0.1, 4);
        (0.5, 0) (0.5, 0);
        (1.0, 1) (1.0, 1);
    "temp", c"llama_sampler_init_temp", None, llama_sieve_init_temp, (f32):
        (0.7) (0.7);
        (0.0) (0.0);
        (1.0) (1.0);
    "temp-ext", c"llama_sampler_init_temp_ext", None, llama_sieve_init_temp_ext, (f32, f32, f32):
        (0.8, 0.3, 1.5) (0.8, 0.3, 1.5);
        (0.7, 0.0, 1.0) (0.7, 0.0, 1.0);
        (0.2, 0.5, 1.0) (0.2, 0.5, 1.0);
        (0.0, 0.0, 1.0) (0.0, 0.0, 1.0);
        (1.0, 0.0, 1.0) (1.0, 0.0, 1.0);
    "xtc", c"llama_sampler_init_xtc", None, llama_sieve_init_xtc, (f32, f32, usize, u32):
        (0.7, 0.02, 1, 3) (0.7, 0.02, 1, 3);
        (1.0, 0.05, 3, 7) (1.0, 0.05, 3, 7);
        (1.0, 0.25, 1, 7) (1.0, 0.25, 1, 7);
        (1.0, 0.5, 0, 7) (1.0, 0.5, 0, 7);
        (0.0, 0.1, 1, 42) (0.0, 0.1, 1, 42);
    "top-n-sigma", c"llama_sampler_init_top_n_sigma", None, llama_sieve_init_top_n_sigma, (f32):
        (1.3) (1.3);
        (0.4) (0.4);
        (1.7) (1.7);
        (-1.0) (-1.0);
    "mirostat", c"llama_sampler_init_mirostat", None, llama_sieve_init_mirostat,
        (i32, u32, f32, f32, i32):
        (1025, 42, 4.0, 0.1, 100) (1025, 42, 4.0, 0.1, 100);
        (129, 7, 2.0, 0.3, 20) (129, 7, 2.0, 0.3, 20);
    "mirostat-v2", c"llama_sampler_init_mirostat_v2", None, llama_sieve_init_mirostat_v2,
        (u32, f32, f32):
        (42, 4.0, 0.1) (42, 4.0, 0.1);
        (7, 2.0, 0.3) (7, 2.0, 0.3);
        (7, 1.0, 0.1) (7, 1.0, 0.1);
    "adaptive-p", c"llama_sampler_init_adaptive_p", None, llama_sieve_init_adaptive_p,
        (f32, f32, u32):
        (0.4, 0.9, 42) (0.4, 0.9, 42);
        (0.2, 1.0, 7) (0.2, 1.0, 7);
        (-1.0, 0.9, 7) (-1.0, 0.9, 7);
    "penalties", c"llama_sampler_init_penalties", Some(new_penalties), llama_sieve_init_penalties,
        (i32, i32, f32, f32, f32):
        (1025, 8, 1.3, 0.17, 0.2) (1025, 8, 1.3, 0.17, 0.2);
        (1025, 64, 1.0, 0.3, 0.0) (1025, 64, 1.0, 0.3, 0.0);
        (1025, -1, 1.3, 0.1, 0.2) (1025, -1, 1.3, 0.1, 0.2);
        (1025, 0, 1.3, 0.1, 0.2) (1025, 0, 1.3, 0.1, 0.2);
    "penalties", c"llama_sampler_init_penalties", Some(old_penalties), llama_sieve_init_penalties,
        (i32, f32, f32, f32):
        (0, 8, 1.3, 0.17, 0.2) (8, 1.3, 0.17, 0.2);
        (0, 64, 1.0, 0.3, 0.0) (64, 1.0, 0.3, 0.0);
        (0, -1, 1.3, 0.1, 0.2) (-1, 1.3, 0.1, 0.2);
        (0, 0, 1.3, 0.1, 0.2) (0, 1.3, 0.1, 0.2);
    "dry", c"llama_sampler_init_dry", Some(new_dry), llama_sieve_init_dry,
        (*const llama_vocab, f32, f32, i32, i32, *mut *const c_char, usize):
        (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0) (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0);
        (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0) (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0);
        (NO_VOCAB, 0.0, 1.1, 2, 6, null_mut(), 0) (NO_VOCAB, 0.0, 1.1, 2, 6, null_mut(), 0);
    "dry", c"llama_sampler_init_dry", Some(old_dry), llama_sieve_init_dry,
        (*const llama_vocab, i32, f32, f32, i32, i32, *mut *const c_char, usize):
        (NO_VOCAB, 0.8, 1.75, 1, 64, null_mut(), 0)
        (NO_VOCAB, 512, 0.8, 1.75, 1, 64, null_mut(), 0);
        (NO_VOCAB, 2.0, 1.1, 2, 6, null_mut(), 0)
        (NO_VOCAB, 512, 2.0, 1.1, 2, 6, null_mut(), 0);
    "logit-bias", c"llama_sampler_init_logit_bias", Some(any_known), llama_sieve_init_logit_bias,
        (i32, i32, *const llama_logit_bias):
        (1025, 4, BIASES.as_ptr()) (1025, 4, BIASES.as_ptr());
        (1025, 0, null()) (1025, 0, null());
}
