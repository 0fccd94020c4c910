//! The constructors of the drop-in samplers, with the arguments of llama.cpp's own, if it has one.
//!
//! Each returns a `llama_sampler` of the host, to be added to a chain or freed with
//! `llama_sampler_free`, or NULL on failure, such as without a host. Parameters that disable the
//! built-in give a sampler that does nothing, whose name begins with a question mark, like the
//! built-in's. If a parameter is not finite, one warning is logged, a filter does nothing, and a
//! selector takes the largest logit.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;

use crate::ffi::breakers::breakers_for;
use crate::ffi::failure::{begin, made, part};
use crate::ffi::given::argument;
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use crate::ffi::host::profile;
use crate::ffi::host::vocabulary::{host_vocabulary, llama_vocab};
use crate::ffi::vtable::{Vtable, into_host, vtable};
use crate::log;
use crate::memory;
use crate::sampler::Sampler;
use crate::samplers::{
    AdaptiveP, Disabled, DisabledSelector, Dist, Dry, DryParams, EpsilonCutoff, EtaCutoff, Greedy,
    Infill, LogitBias, MinK, MinP, Mirostat, MirostatV2, PLess, Penalties, Quadratic, Softmax,
    TailFree, Temp, TempExt, TopA, TopH, TopK, TopNSigma, TopP, Typical, Xtc,
};
use crate::token::Token;

/// Defines the vtables, whose addresses identify the kinds of samplers. Each is a static, since a
/// promoted constant could have two addresses.
macro_rules! vtables {
    ($($name:ident: $sampler:ident,)*) => {
        $(pub(super) static $name: Vtable = vtable::<$sampler>();)*

        /// All vtables of these samplers.
        pub(super) static DROP_INS: [&Vtable; [$(stringify!($name)),*].len()] = [$(&$name),*];
    };
}

vtables! {
    TOP_K: TopK,
    TOP_P: TopP,
    MIN_P: MinP,
    TEMP: Temp,
    DIST: Dist,
    PENALTIES: Penalties,
    DISABLED: Disabled,
    DRY: Dry,
    TOP_N_SIGMA: TopNSigma,
    TYPICAL: Typical,
    XTC: Xtc,
    TEMP_EXT: TempExt,
    GREEDY: Greedy,
    LOGIT_BIAS: LogitBias,
    ADAPTIVE_P: AdaptiveP,
    MIROSTAT: Mirostat,
    MIROSTAT_V2: MirostatV2,
    INFILL: Infill,
    DISABLED_SELECTOR: DisabledSelector,
    SOFTMAX: Softmax,
    TAIL_FREE: TailFree,
    TOP_A: TopA,
    EPSILON_CUTOFF: EpsilonCutoff,
    ETA_CUTOFF: EtaCutoff,
    P_LESS: PLess,
    TOP_H: TopH,
    QUADRATIC: Quadratic,
    MIN_K: MinK,
}

/// The vtables of the drop-in samplers that report their seed.
pub(super) static SEEDED: [&Vtable; 3] = [&DIST, &MIROSTAT, &MIROSTAT_V2];

/// The vtables of the samplers that have a built-in counterpart in a host's graph.
pub(super) static REPLACEABLE: [&Vtable; 9] = [
    &DIST,
    &GREEDY,
    &LOGIT_BIAS,
    &MIN_P,
    &PENALTIES,
    &TEMP,
    &TEMP_EXT,
    &TOP_K,
    &TOP_P,
];

/// Returns true if `smpl` is a disabled sampler of this library.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub(super) unsafe fn is_disabled(smpl: *const llama_sampler) -> bool {
    // SAFETY: not NULL, and the caller guarantees the sampler.
    !smpl.is_null() && unsafe { DISABLED.is_of(smpl) }
}

/// Returns at most `most` of the tokens that are or begin sequence breakers of a DRY sampler; none
/// for any other sampler.
///
/// # Safety
/// `smpl` is NULL or a live sampler.
#[cfg(all(any(target_os = "linux", windows), not(miri)))]
pub(super) unsafe fn begin_breakers(smpl: *mut llama_sampler, most: usize) -> Vec<Token> {
    // SAFETY: not NULL, and the caller guarantees the sampler.
    if smpl.is_null() || !unsafe { DRY.is_of(smpl) } {
        return Vec::new();
    }
    // SAFETY: the vtable is that of `Dry`.
    let tokens = unsafe { DRY.run::<Dry, _>(smpl, "breakers", |dry| dry.begin_breakers(most)) };
    tokens.unwrap_or_default()
}

/// Displays the name of the export that makes a sampler, for error messages. The field is the name
/// of the disabled sampler, such as `?top-k`.
struct Constructor(&'static CStr);

impl fmt::Display for Constructor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.to_string_lossy();
        let name = name.trim_start_matches('?').replace('-', "_");
        write!(f, "llama_sieve_init_{name}")
    }
}

/// Returns true if all parameters are finite. Otherwise logs one warning, which ends with
/// `instead`.
fn all_finite(disabled_name: &CStr, parameters: &[f32], instead: &str) -> bool {
    let finite = parameters.iter().all(|p| p.is_finite());
    if !finite {
        let name = disabled_name.to_string_lossy();
        let name = name.trim_start_matches('?');
        log::warn(&format!(
            "{name}: the parameters {parameters:?} are not all finite numbers; {instead}"
        ));
    }
    finite
}

/// Returns a sampler of the host for the filter that `make` returns. If `make` returns `None`, or a
/// parameter is not finite, returns a disabled sampler named `disabled_name`.
fn construct<S: Sampler>(
    vtable: &'static Vtable,
    disabled_name: &'static CStr,
    parameters: &[f32],
    make: impl FnOnce() -> Option<S>,
) -> *mut llama_sampler {
    settled(made(Constructor(disabled_name), || {
        Ok(filter(vtable, disabled_name, parameters, make))
    }))
}

fn filter<S: Sampler>(
    vtable: &'static Vtable,
    disabled_name: &'static CStr,
    parameters: &[f32],
    make: impl FnOnce() -> Option<S>,
) -> *mut llama_sampler {
    let enabled = all_finite(disabled_name, parameters, "the sampler is disabled")
        .then(make)
        .flatten();
    match enabled {
        Some(sampler) => into_host(vtable, sampler),
        None => into_host(&DISABLED, Disabled::new(disabled_name)),
    }
}

/// Returns a sampler of the host for the selector that `make` returns. If a parameter is not
/// finite, returns a selector that takes the largest logit.
fn construct_selector<S: Sampler>(
    vtable: &'static Vtable,
    disabled_name: &'static CStr,
    parameters: &[f32],
    make: impl FnOnce() -> S,
) -> *mut llama_sampler {
    settled(made(Constructor(disabled_name), || {
        if all_finite(
            disabled_name,
            parameters,
            "the largest logit is selected instead",
        ) {
            return Ok(into_host(vtable, make()));
        }
        Ok(into_host(
            &DISABLED_SELECTOR,
            DisabledSelector::new(disabled_name),
        ))
    }))
}

/// Returns `made`, after determining the arithmetic of the host.
///
/// Must be called outside the guard, so that the host's exceptions pass through. If the host
/// throws, the sampler is leaked.
fn settled(made: *mut llama_sampler) -> *mut llama_sampler {
    let others = profile::settle_by_itself().unwrap_or_default();
    if !others.is_empty() {
        let others = others.join(", ");
        let warn = || {
            log::warn(&format!(
                "{others}: the host's own leave something else than ours do under every known \
                 arithmetic of a host; llama_sieve_certify says what differs"
            ));
        };
        guard("profile", || (), warn);
    }
    made
}

/// Selects the candidate with the largest logit, the first one if several are equal.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_greedy() -> *mut llama_sampler {
    construct_selector(&GREEDY, c"?greedy", &[], || Greedy)
}

/// Draws a candidate by the softmax probabilities, with a std::mt19937 that is seeded with `seed`.
/// 0xFFFFFFFF (LLAMA_DEFAULT_SEED) means a random seed, which changes at each reset.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_dist(seed: u32) -> *mut llama_sampler {
    construct_selector(&DIST, c"?dist", &[], || Dist::new(seed))
}

/// Keeps the `k` largest logits, in descending order (Fan et al. 2018, arXiv:1805.04833). Disabled:
/// `k` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_top_k(k: i32) -> *mut llama_sampler {
    construct(&TOP_K, c"?top-k", &[], || TopK::new(k))
}

/// Nucleus sampling: keeps the smallest set of most probable candidates whose total probability
/// reaches `p`, but at least `min_keep` candidates (Holtzman et al. 2019, arXiv:1904.09751).
/// Disabled: `p` >= 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_top_p(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&TOP_P, c"?top-p", &[p], || TopP::new(p, min_keep))
}

/// Keeps the candidates whose probability is at least `p` times the largest one, but at least
/// `min_keep` candidates (Nguyen et al. 2024, arXiv:2407.01082). Disabled: `p` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_min_p(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&MIN_P, c"?min-p", &[p], || MinP::new(p, min_keep))
}

/// Locally typical sampling: keeps the candidates whose surprisal is nearest to the entropy until
/// their total probability exceeds `p`, but at least `min_keep` candidates (Meister et al. 2022,
/// arXiv:2202.00666). Disabled: `p` >= 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_typical(p: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&TYPICAL, c"?typical", &[p], || Typical::new(p, min_keep))
}

/// Divides every logit by the temperature `t`. If `t` <= 0, the largest logit stays and all others
/// become minus infinity. Disabled: `t` == 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_temp(t: f32) -> *mut llama_sampler {
    construct(&TEMP, c"?temp", &[t], || Temp::new(t))
}

/// Masks every logit more than `n` standard deviations below the largest (Tang et al. 2024,
/// arXiv:2411.07641). Disabled: `n` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_top_n_sigma(n: f32) -> *mut llama_sampler {
    construct(&TOP_N_SIGMA, c"?top-n-sigma", &[n], || TopNSigma::new(n))
}

/// Penalises the tokens among the last `last_n` accepted ones: `repeat` divides a logit above 0 and
/// multiplies one at or below 0 (Keskar et al. 2019, arXiv:1909.05858), then `freq` is subtracted
/// once per occurrence and `present` once. `n_vocab` is the size of the vocabulary, used only for
/// warnings about tokens outside it, and by the built-in that replaces the sampler in a host's
/// graph; 0 if unknown. llama.cpp has changed that built-in's arguments, so it is used only if the
/// build is known: from the library's release or build number, or from the environment variable
/// LLAMA_SIEVE_HOST. Otherwise penalties and the samplers after them stay out of the graph.
/// Disabled: `last_n` <= 0, or `repeat` == 1 with `freq` and `present` == 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_penalties(
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

/// Dynamic temperature: divides every logit by a temperature, which rises from max(0, `t` -
/// `delta`) to `t` + `delta`, linearly with the normalised entropy raised to the power `exponent`.
/// Plain temperature if `delta` <= 0. Disabled: `t` == 1 and `delta` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_temp_ext(
    t: f32,
    delta: f32,
    exponent: f32,
) -> *mut llama_sampler {
    construct(&TEMP_EXT, c"?temp-ext", &[t, delta, exponent], || {
        TempExt::new(t, delta, exponent)
    })
}

/// XTC, exclude top choices: with chance `p` removes every candidate of probability `t` or more
/// except the least probable of these, unless fewer than `min_keep` would be left
/// (text-generation-webui pull request 6335). `seed` is as for dist. Disabled: `p` <= 0 or `t` >
/// 0.5.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_xtc(
    p: f32,
    t: f32,
    min_keep: usize,
    seed: u32,
) -> *mut llama_sampler {
    construct(&XTC, c"?xtc", &[p, t], || Xtc::new(p, t, min_keep, seed))
}

/// Mirostat 1: selects so that the surprisal of the text stays near `tau` bits per token. `eta` is
/// the learning rate. The exponent of the distribution is estimated from the `m` most probable
/// candidates, and `n_vocab` is the size of the vocabulary, which enters the estimate of how many
/// to keep (Basu et al. 2020, arXiv:2007.14966). `seed` is as for dist. If a parameter is not
/// finite, the largest logit is selected.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_mirostat(
    n_vocab: i32,
    seed: u32,
    tau: f32,
    eta: f32,
    m: i32,
) -> *mut llama_sampler {
    construct_selector(&MIROSTAT, c"?mirostat", &[tau, eta], || {
        Mirostat::new(n_vocab, seed, tau, eta, m)
    })
}

/// Mirostat 2: keeps the surprisal of the text near `tau` bits per token, as mirostat 1 does. It
/// removes the candidates whose surprisal is above a limit. After each token it lowers the limit by
/// `eta` times the error, which is the token's surprisal minus `tau` (Basu et al. 2020,
/// arXiv:2007.14966). `seed` is as for dist. If a parameter is not finite, the largest logit is
/// selected.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_mirostat_v2(
    seed: u32,
    tau: f32,
    eta: f32,
) -> *mut llama_sampler {
    construct_selector(&MIROSTAT_V2, c"?mirostat-v2", &[tau, eta], || {
        MirostatV2::new(seed, tau, eta)
    })
}

/// DRY, don't repeat yourself: subtracts `multiplier` * `base`^(n - `allowed_length`) from the
/// logit of a token that would continue a repetition of n tokens, with n >= `allowed_length`
/// (text-generation-webui pull request 5677).
///
/// The last `last_n` accepted tokens are searched. A repetition does not extend across any of the
/// `n_breakers` strings `breakers`, each cut to 40 bytes; NULL or empty ones are skipped. `vocab`
/// is used only within this call. Exceptions of the host's tokenizer pass through. Disabled:
/// `multiplier` == 0, `base` < 1, or `last_n` <= 0. If it is not disabled, returns NULL for more
/// than LLAMA_SIEVE_DRY_MAX_BREAKERS breakers.
///
/// # Safety
/// `vocab` is NULL (then there are no breakers) or a vocabulary of the host; `breakers` is NULL or
/// `n_breakers` pointers, each NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_dry(
    vocab: *const llama_vocab,
    multiplier: f32,
    base: f32,
    allowed_length: i32,
    last_n: i32,
    breakers: *mut *const c_char,
    n_breakers: usize,
) -> *mut llama_sampler {
    const NAME: &CStr = c"?dry";
    let params = DryParams {
        multiplier,
        base,
        allowed_length,
        last_n,
    };
    let is_used = !params.are_disabled() && multiplier.is_finite() && base.is_finite();
    let none = |text: String| {
        log::warn(&format!(
            "dry: {text}; repetitions reach across the sequence breakers"
        ));
        Ok(())
    };
    let breakers = begin(Constructor(NAME)).and_then(|()| match is_used {
        // SAFETY: the caller guarantees the arguments.
        true => unsafe { breakers_for(&Constructor(NAME), vocab, (breakers, n_breakers), none) },
        false => Ok(None),
    });
    let made = breakers.and_then(|breakers| {
        part(Constructor(NAME), || {
            Ok(filter(&DRY, NAME, &[multiplier, base], || {
                let mut dry = Dry::new(params)?;
                if let Some(breakers) = breakers {
                    dry.set_breakers(breakers);
                }
                Some(dry)
            }))
        })
    });
    made.unwrap_or(null_mut())
}

/// Adaptive-p: selects a candidate near the probability `target` (0 to 1; if it is negative, the
/// draw is from the unchanged distribution), and adjusts the goal so that the chosen tokens have
/// this probability on average. With `decay` (0 to 0.99) the average covers about 1 / (1 - `decay`)
/// tokens (llama.cpp pull request 17927). `seed` is as for dist. If a parameter is not finite, the
/// largest logit is selected.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_adaptive_p(
    target: f32,
    decay: f32,
    seed: u32,
) -> *mut llama_sampler {
    construct_selector(&ADAPTIVE_P, c"?adaptive-p", &[target, decay], || {
        AdaptiveP::new(target, decay, seed)
    })
}

/// Adds biases to the logits of tokens. `bias` is `n` pairs of token and bias, which are copied.
/// Minus infinity bans a token. `n_vocab` is the size of the vocabulary, which only the built-in
/// that replaces the sampler in a host's graph reads. Disabled: `n` <= 0, or `bias` NULL (with a
/// warning).
///
/// # Safety
/// `bias` is NULL or `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_logit_bias(
    n_vocab: i32,
    n: i32,
    bias: *const llama_logit_bias,
) -> *mut llama_sampler {
    construct(&LOGIT_BIAS, c"?logit-bias", &[], || {
        let n = usize::try_from(n).ok().filter(|&n| n > 0)?;
        // SAFETY: the caller guarantees `n` elements.
        let biases = match unsafe { argument!("bias", "n").slice(bias, n) } {
            Ok(biases) => biases,
            Err(failure) => {
                let why = failure.text();
                log::warn(&format!("logit-bias: {why}; the sampler is disabled"));
                return None;
            }
        };
        let mut pairs: Vec<(Token, f32)> = memory::with_room(n).unwrap_or_else(memory::exhausted);
        pairs.extend(biases.iter().map(|b| (b.token, b.bias)));
        LogitBias::new(&pairs).map(|sampler| sampler.of_vocabulary(n_vocab))
    })
}

/// Infill sampling, for code: prefers to end the generation. If the text of one candidate is a
/// prefix of another's, the two are merged into the more probable one (llama.cpp pull request
/// 9896). Put it after samplers that leave few candidates. `vocab` must outlive the sampler and its
/// clones. Disabled, with a warning, if `vocab` is NULL.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host, and outlives the sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_init_infill(
    vocab: *const llama_vocab,
) -> *mut llama_sampler {
    construct(&INFILL, c"?infill", &[], || {
        // SAFETY: the caller guarantees the vocabulary.
        match unsafe { host_vocabulary(vocab) } {
            Ok(vocabulary) => Some(Infill::new(Arc::new(vocabulary))),
            Err(text) => {
                log::warn(&format!("infill: {text}; the sampler is disabled"));
                None
            }
        }
    })
}

/// Tail-free sampling: cuts where the curve of the sorted probabilities flattens. `z` is the
/// fraction of the absolute second differences to keep, and `min_keep` the minimum number of
/// candidates (Trenton Bricken 2019). llama.cpp no longer has it. Disabled: `z` >= 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_tail_free(z: f32, min_keep: usize) -> *mut llama_sampler {
    construct(&TAIL_FREE, c"?tail-free", &[z], || {
        TailFree::new(z, min_keep)
    })
}

/// Sorts the candidates by descending logit and writes their probabilities. llama.cpp no longer has
/// it.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_softmax() -> *mut llama_sampler {
    construct(&SOFTMAX, c"?softmax", &[], || Some(Softmax::default()))
}

/// Top-a: keeps the candidates with p >= `a` p1^2, in their order; p1 is the largest probability
/// (BlinkDL, RWKV-LM; KoboldCpp). Equal candidates are kept or dropped together, and the largest
/// are kept in any case. llama.cpp does not have it. Disabled: `a` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_top_a(a: f32) -> *mut llama_sampler {
    construct(&TOP_A, c"?top-a", &[a], || TopA::new(a))
}

/// Epsilon sampling: keeps the candidates with p >= `epsilon`, in their order (Hewitt et al. 2022,
/// arXiv:2210.15191). Equal candidates are kept or dropped together, and the largest are kept in
/// any case. llama.cpp does not have it. Disabled: `epsilon` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_epsilon_cutoff(epsilon: f32) -> *mut llama_sampler {
    construct(&EPSILON_CUTOFF, c"?epsilon-cutoff", &[epsilon], || {
        EpsilonCutoff::new(epsilon)
    })
}

/// Eta sampling: keeps the candidates with p >= min(`eta`, sqrt(`eta`) exp(-H)), in their order; H
/// is the entropy in nats (Hewitt et al. 2022, arXiv:2210.15191). Equal candidates are kept or
/// dropped together, and the largest are kept in any case. llama.cpp does not have it. Disabled:
/// `eta` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_eta_cutoff(eta: f32) -> *mut llama_sampler {
    construct(&ETA_CUTOFF, c"?eta-cutoff", &[eta], || EtaCutoff::new(eta))
}

/// P-less sampling: keeps the candidates with p >= c, in their order; c is the sum s of all p^2 or,
/// if `normalised`, (v s - 1) / (v - 1) for v candidates, which is lower (Tan, Wu and Howard 2025,
/// arXiv:2509.23234). Equal candidates are kept or dropped together. llama.cpp does not have it.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_p_less(normalised: bool) -> *mut llama_sampler {
    construct(&P_LESS, c"?p-less", &[], || Some(PLess::new(normalised)))
}

/// Top-H: keeps as many of the most probable candidates as possible while their entropy, after
/// normalisation, is at most `alpha` times that of all; at least one (Potraghloo et al. 2025,
/// arXiv:2509.02510). They are sorted as by top-p, with probabilities. Of equal candidates at the
/// cut only some may be kept. llama.cpp does not have it. Disabled: `alpha` >= 1.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_top_h(alpha: f32) -> *mut llama_sampler {
    construct(&TOP_H, c"?top-h", &[alpha], || TopH::new(alpha))
}

/// Quadratic sampling, also called smoothing: replaces each logit by max - k d^2 + s d^3. Here max
/// is the largest logit, d the logit minus max, k = `factor` (3 - `curve`) / 2 and s = `factor`
/// (`curve` - 1) / 2 (kalomaze, text-generation-webui; KoboldCpp). With `curve` == 1 the function
/// is a parabola. With `curve` from 1 to 3 the logits stay in order. Masked candidates stay masked.
/// llama.cpp does not have it. Disabled: `factor` <= 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_quadratic(factor: f32, curve: f32) -> *mut llama_sampler {
    construct(&QUADRATIC, c"?quadratic", &[factor, curve], || {
        Quadratic::new(factor, curve)
    })
}

/// Min-k: keeps the candidates before the steepest fall of the sorted logits, in their order. The
/// fall after the first k is weighted by 1 / k. At least floor(`tau` / (largest - smallest + 1e-8))
/// are kept, which matters if the logits are nearly equal (Ding et al. 2026, arXiv:2604.11012).
/// Apart from that minimum, the cut does not depend on a temperature before it. Equal candidates
/// are kept or dropped together. Masked ones do not count and are dropped, unless all are masked.
/// llama.cpp does not have it. Disabled: `tau` < 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn llama_sieve_init_min_k(tau: f32) -> *mut llama_sampler {
    construct(&MIN_K, c"?min-k", &[tau], || MinK::new(tau))
}
