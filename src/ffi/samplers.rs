//! The constructors of the drop-in samplers, with the arguments of llama.cpp's own.
//!
//! Each returns a sampler of the host's, to be added to a chain or freed with `llama_sampler_free`, or NULL where no host is bound.
//! Parameters that disable the built-in give a sampler that does nothing, named with a question mark as the built-in is; so do, with one
//! warning, parameters that are not finite.

use std::ffi::CStr;
use std::ptr::null_mut;

use crate::ffi::guard::guard;
use crate::ffi::llama_h::llama_sampler;
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::last_error;
use crate::log;
use crate::sampler::Sampler;
use crate::samplers::{
    Disabled, Dist, Greedy, MinP, Penalties, Temp, TopK, TopNSigma, TopP, Typical,
};

// The identities. A static each: a promoted constant could have two addresses.
static DISABLED: Vtable = vtable::<Disabled>();
static DIST: Vtable = vtable::<Dist>();
static GREEDY: Vtable = vtable::<Greedy>();
static MIN_P: Vtable = vtable::<MinP>();
static PENALTIES: Vtable = vtable::<Penalties>();
static TEMP: Vtable = vtable::<Temp>();
static TOP_K: Vtable = vtable::<TopK>();
static TOP_N_SIGMA: Vtable = vtable::<TopNSigma>();
static TOP_P: Vtable = vtable::<TopP>();
static TYPICAL: Vtable = vtable::<Typical>();

/// Hands the host what `make` gives, or the disabled sampler of that name if it gives none or a parameter is not finite.
fn construct<S: Sampler>(
    vtable: &'static Vtable,
    disabled_name: &'static CStr,
    parameters: &[f32],
    make: impl FnOnce() -> Option<S>,
) -> *mut llama_sampler {
    guard(disabled_name.to_string_lossy(), null_mut, || {
        last_error::clear();
        let finite = parameters.iter().all(|p| p.is_finite());
        if !finite {
            log::warn(&format!(
                "{}: parameters {parameters:?} are not all finite; the sampler is disabled",
                disabled_name.to_string_lossy()
            ));
        }
        match make().filter(|_| finite) {
            Some(sampler) => into_host(vtable, sampler),
            None => into_host(&DISABLED, Disabled::new(disabled_name)),
        }
    })
}

/// Selects the candidate with the largest logit, the first of equals.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_greedy() -> *mut llama_sampler {
    guard("greedy", null_mut, || {
        last_error::clear();
        into_host(&GREEDY, Greedy)
    })
}

/// Draws a candidate with its softmax probability, from std::mt19937 started with `seed`. 0xFFFFFFFF (LLAMA_DEFAULT_SEED): a random seed,
/// another at each reset.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_dist(seed: u32) -> *mut llama_sampler {
    guard("dist", null_mut, || {
        last_error::clear();
        into_host(&DIST, Dist::new(seed))
    })
}

/// Keeps the `k` largest logits, in descending order (Fan et al. 2018, arXiv:1805.04833). Disabled: `k` <= 0.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_top_k(k: i32) -> *mut llama_sampler {
    construct(&TOP_K, c"?top-k", &[], || TopK::new(k))
}

/// Nucleus sampling: keeps the fewest most probable candidates whose probabilities reach `p`, at least `min_keep` (Holtzman et al. 2019,
/// arXiv:1904.09751). Disabled: `p` >= 1.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_top_p(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&TOP_P, c"?top-p", &[p], || TopP::new(p, min_keep))
}

/// Keeps the candidates whose probability is at least `p` times the largest, at least `min_keep` (Nguyen et al. 2024,
/// arXiv:2407.01082). Disabled: `p` <= 0.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_min_p(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&MIN_P, c"?min-p", &[p], || MinP::new(p, min_keep))
}

/// Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy until their probabilities exceed `p`, at
/// least `min_keep` (Meister et al. 2022, arXiv:2202.00666). Disabled: `p` >= 1.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_typical(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&TYPICAL, c"?typical", &[p], || Typical::new(p, min_keep))
}

/// Divides every logit by the temperature `t`. `t` <= 0: the largest logit stays, all others become minus infinity. Disabled: `t` 1.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_temp(t: f32) -> *mut llama_sampler {
    construct(&TEMP, c"?temp", &[t], || Temp::new(t))
}

/// Masks every logit more than `n` standard deviations below the largest (Tang et al. 2024, arXiv:2411.07641). Disabled: `n` <= 0.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_top_n_sigma(n: f32) -> *mut llama_sampler {
    construct(&TOP_N_SIGMA, c"?top-n-sigma", &[n], || TopNSigma::new(n))
}

/// Penalises the tokens among the last `last_n` accepted ones: `repeat` divides a logit above 0 and multiplies one at or below 0 (Keskar et al.
/// 2019, arXiv:1909.05858), then `freq` is subtracted once per occurrence and `present` once. `n_vocab` is the size of the vocabulary, used
/// only to warn of tokens outside it; 0 if unknown. Disabled: `last_n` <= 0, or `repeat` 1 with `freq` and `present` 0.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_init_penalties(
    n_vocab: i32,
    last_n: i32,
    repeat: f32,
    freq: f32,
    present: f32,
) -> *mut llama_sampler {
    construct(&PENALTIES, c"?penalties", &[repeat, freq, present], || {
        Penalties::new(n_vocab, last_n, repeat, freq, present)
    })
}
