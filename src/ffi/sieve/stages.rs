//! The stages in an order that the caller sets.

use std::ffi::{c_char, c_int};

use crate::errors::{
    LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_PARAMS, LLAMA_SIEVE_OK,
};
use crate::ffi::breakers::{BREAKERS, breakers_for};
use crate::ffi::chain::own_of;
use crate::ffi::failure::{Failure, answer, begin, part, struct_size, usable};
use crate::ffi::given::{Argument, argument};
use crate::ffi::grammar::hosted::HOSTED;
use crate::ffi::guard::guard;
use crate::ffi::host::llama_h::llama_sampler;
use crate::ffi::host::vocabulary::llama_vocab;
use crate::memory;
use crate::sampler::Member;
use crate::samplers::DryParams;
use crate::sieve::{MAX_SAMPLERS, Stage};

use super::handle::*;

/// Stage: the penalties of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_PENALTIES: i32 = 1;
/// Stage: DRY, don't repeat yourself.
pub const LLAMA_SIEVE_STAGE_DRY: i32 = 2;
/// Stage: top_k of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_TOP_K: i32 = 3;
/// Stage: typical_p of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_TYPICAL: i32 = 4;
/// Stage: top_p of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_TOP_P: i32 = 5;
/// Stage: min_p of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_MIN_P: i32 = 6;
/// Stage: top_n_sigma of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_TOP_N_SIGMA: i32 = 7;
/// Stage: XTC, exclude top choices.
pub const LLAMA_SIEVE_STAGE_XTC: i32 = 8;
/// Stage: temperature of llama_sieve_params.
pub const LLAMA_SIEVE_STAGE_TEMPERATURE: i32 = 9;
/// Stage: dynamic temperature, which depends on the entropy.
pub const LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE: i32 = 10;
/// Stage: mirostat, which draws the token.
pub const LLAMA_SIEVE_STAGE_MIROSTAT: i32 = 11;
/// Stage: mirostat 2, which draws the token.
pub const LLAMA_SIEVE_STAGE_MIROSTAT_V2: i32 = 12;
/// Stage: adaptive-p, which draws the token.
pub const LLAMA_SIEVE_STAGE_ADAPTIVE_P: i32 = 13;

/// Stage: the sampler in the first slot. For other slots, add the number of the slot. See
/// llama_sieve_set_sampler.
pub const LLAMA_SIEVE_STAGE_SAMPLER: i32 = 64;
/// The number of slots for samplers in a sieve.
pub const LLAMA_SIEVE_MAX_SAMPLERS: usize = 16;
const _: () = assert!(LLAMA_SIEVE_MAX_SAMPLERS == MAX_SAMPLERS);
/// One more than the number of the last slot's stage.
const SAMPLERS_END: i32 = LLAMA_SIEVE_STAGE_SAMPLER + LLAMA_SIEVE_MAX_SAMPLERS as i32;

/// The stages of a sieve in their order, and the parameters of those that llama_sieve_params does
/// not have. Begin with llama_sieve_default_stages, which also sets struct_size.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_stages {
    /// sizeof(llama_sieve_stages) of the caller.
    pub struct_size: usize,
    /// n_stages numbers LLAMA_SIEVE_STAGE_*, in the order in which they run, each at most once.
    /// They are copied. The default is the order of llama.cpp's programs: penalties, DRY,
    /// top-n-sigma, top-k, typical, top-p, min-p, XTC, dynamic temperature.
    pub stages: *const i32,
    /// The number of stages. Default 9.
    pub n_stages: usize,
    /// The factor of every penalty of DRY. Default 0, which disables it.
    pub dry_multiplier: f32,
    /// The base of DRY's exponential. Default 1.75; disabled by < 1.
    pub dry_base: f32,
    /// The minimum number of repeated tokens whose continuation is penalised. Default 2.
    pub dry_allowed_length: i32,
    /// The number of most recently accepted tokens that DRY searches. Default 64; disabled by <= 0.
    pub dry_penalty_last_n: i32,
    /// The chance that XTC acts. Default 0; disabled by <= 0.
    pub xtc_probability: f32,
    /// The minimum probability at which XTC removes a token. Default 0.1; disabled by > 0.5.
    pub xtc_threshold: f32,
    /// The largest deviation of the temperature in both directions. Default 0, which means a fixed
    /// temperature.
    pub dynatemp_range: f32,
    /// The power to which the entropy, divided by the largest possible one, is raised. Default 1.
    pub dynatemp_exponent: f32,
    /// The target surprisal of both mirostats, in bits. Default 5.
    pub mirostat_tau: f32,
    /// The fraction of the error that both mirostats correct at each token. Default 0.1.
    pub mirostat_eta: f32,
    /// The number of candidates for the first mirostat's estimate. Default 100.
    pub mirostat_m: i32,
    /// The target probability of adaptive-p, from 0 to 1. Default -1, with which it draws from the
    /// unchanged distribution.
    pub adaptive_target: f32,
    /// The weight of the past, from 0 to 0.99: the average covers about 1 / (1 - decay) tokens.
    /// Default 0.9.
    pub adaptive_decay: f32,
}

/// The stages as an argument. No stage may occur twice, so there are at most as many stages as
/// kinds of stages.
const STAGES: Argument = Argument::new(
    "stages",
    "n_stages",
    (
        LLAMA_SIEVE_STAGE_ADAPTIVE_P as usize + LLAMA_SIEVE_MAX_SAMPLERS,
        "each at most once",
    ),
)
.answered_with(LLAMA_SIEVE_ERROR_PARAMS);

/// The order of the stages in llama.cpp's programs.
static DEFAULT: [i32; 9] = [
    LLAMA_SIEVE_STAGE_PENALTIES,
    LLAMA_SIEVE_STAGE_DRY,
    LLAMA_SIEVE_STAGE_TOP_N_SIGMA,
    LLAMA_SIEVE_STAGE_TOP_K,
    LLAMA_SIEVE_STAGE_TYPICAL,
    LLAMA_SIEVE_STAGE_TOP_P,
    LLAMA_SIEVE_STAGE_MIN_P,
    LLAMA_SIEVE_STAGE_XTC,
    LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE,
];

/// Returns the stages in the order of llama.cpp's programs, with the defaults of these programs,
/// which disable all stages except those of llama_sieve_params. The array of stages stays valid
/// forever. DRY's breakers are not included: set them by llama_sieve_set_dry_breakers. llama.cpp's
/// programs have four: newline, colon, quotation mark, asterisk.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_default_stages() -> llama_sieve_stages {
    guard("llama_sieve_default_stages", defaults, defaults)
}

fn defaults() -> llama_sieve_stages {
    llama_sieve_stages {
        struct_size: size_of::<llama_sieve_stages>(),
        stages: DEFAULT.as_ptr(),
        n_stages: DEFAULT.len(),
        dry_multiplier: 0.0,
        dry_base: 1.75,
        dry_allowed_length: 2,
        dry_penalty_last_n: 64,
        xtc_probability: 0.0,
        xtc_threshold: 0.1,
        dynatemp_range: 0.0,
        dynatemp_exponent: 1.0,
        mirostat_tau: 5.0,
        mirostat_eta: 0.1,
        mirostat_m: 100,
        adaptive_target: -1.0,
        adaptive_decay: 0.9,
    }
}

/// Sets the stages of the sieve from the next token on. NULL restores the order of its parameters.
/// With n_stages 0 it only draws. Each stage is the exact sampler, as in a chain, with one
/// exception: a temperature below 0.001 counts as 0, unless it is a dynamic temperature with a
/// range above 0. The bias still comes first. If the last stage is mirostat or adaptive-p, it draws
/// the token. Otherwise the parameters' method draws. No other stage may be one of these. With
/// mt19937 and LLAMA_SIEVE_METHOD_CDF the tokens are those of llama.cpp's chain of these samplers
/// and dist, all with the sieve's seed. May be called between any two tokens: stages that stay keep
/// their memory, even after parameters that disabled them.
///
/// Returns LLAMA_SIEVE_OK or, with the stages unchanged, a negative error: NULL, a sieve in use,
/// too little memory, or LLAMA_SIEVE_ERROR_PARAMS for an unknown struct_size, a stage that is
/// unknown, occurs twice or draws before the end, or a number that is not finite.
///
/// # Safety
/// `sieve` is NULL or alive; `stages` is NULL or as long as its struct_size says; its stages are
/// NULL or n_stages numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_set_stages(
    sieve: *mut Handle,
    stages: *const llama_sieve_stages,
) -> c_int {
    answer("llama_sieve_set_stages", || {
        let stages = match stages.is_null() {
            true => None,
            // SAFETY: the caller guarantees the stages.
            false => Some(unsafe { stages_of(stages) }?),
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, |sieve| Ok(sieve.set_stages(stages.as_deref())?)) }
    })
}

/// Returns the stages that C passes, or an error if they cannot be read or are not allowed.
///
/// # Safety
/// `stages` is not NULL and as long as its struct_size says; its stages are NULL or n_stages
/// numbers.
unsafe fn stages_of(stages: *const llama_sieve_stages) -> Result<Vec<Stage>, Failure> {
    let known = [size_of::<llama_sieve_stages>()];
    // SAFETY: the caller guarantees the first member.
    unsafe { struct_size("stages", "llama_sieve_stages", stages, &known) }?;
    // SAFETY: the size is that of the whole struct, whose members are plain numbers and a pointer.
    let c = unsafe { stages.read() };
    let mut found = Vec::new();
    if c.n_stages == 0 {
        return Ok(found);
    }
    // SAFETY: the caller guarantees the numbers.
    let numbers = unsafe { STAGES.slice(c.stages, c.n_stages) }?;
    memory::reserve_exact(&mut found, numbers.len())?;
    for number in numbers {
        found.push(stage_of(*number, &c)?);
    }
    Ok(found)
}

fn stage_of(number: i32, c: &llama_sieve_stages) -> Result<Stage, Failure> {
    let (tau, eta) = (c.mirostat_tau, c.mirostat_eta);
    Ok(match number {
        LLAMA_SIEVE_STAGE_PENALTIES => Stage::Penalties,
        LLAMA_SIEVE_STAGE_DRY => Stage::Dry(DryParams {
            multiplier: c.dry_multiplier,
            base: c.dry_base,
            allowed_length: c.dry_allowed_length,
            last_n: c.dry_penalty_last_n,
        }),
        LLAMA_SIEVE_STAGE_TOP_K => Stage::TopK,
        LLAMA_SIEVE_STAGE_TYPICAL => Stage::Typical,
        LLAMA_SIEVE_STAGE_TOP_P => Stage::TopP,
        LLAMA_SIEVE_STAGE_MIN_P => Stage::MinP,
        LLAMA_SIEVE_STAGE_TOP_N_SIGMA => Stage::TopNSigma,
        LLAMA_SIEVE_STAGE_XTC => Stage::Xtc {
            probability: c.xtc_probability,
            threshold: c.xtc_threshold,
        },
        LLAMA_SIEVE_STAGE_TEMPERATURE => Stage::Temperature,
        LLAMA_SIEVE_STAGE_DYNAMIC_TEMPERATURE => Stage::DynamicTemperature {
            range: c.dynatemp_range,
            exponent: c.dynatemp_exponent,
        },
        LLAMA_SIEVE_STAGE_MIROSTAT => Stage::Mirostat {
            tau,
            eta,
            m: c.mirostat_m,
        },
        LLAMA_SIEVE_STAGE_MIROSTAT_V2 => Stage::MirostatV2 { tau, eta },
        LLAMA_SIEVE_STAGE_ADAPTIVE_P => Stage::AdaptiveP {
            target: c.adaptive_target,
            decay: c.adaptive_decay,
        },
        LLAMA_SIEVE_STAGE_SAMPLER..SAMPLERS_END => {
            Stage::Sampler((number - LLAMA_SIEVE_STAGE_SAMPLER) as u8)
        }
        _ => {
            let text = format!(
                "a stage is {number}; they go from {LLAMA_SIEVE_STAGE_PENALTIES} to \
                 {LLAMA_SIEVE_STAGE_ADAPTIVE_P}, and the {LLAMA_SIEVE_MAX_SAMPLERS} samplers from \
                 {LLAMA_SIEVE_STAGE_SAMPLER} on"
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        }
    })
}

/// Writes the first `cap` of the sieve's stages to `out`, as numbers LLAMA_SIEVE_STAGE_* in the
/// order in which they run. Returns their number, which may be larger; 0 also if the parameters
/// decide the order. Returns a negative error for NULL and for a sieve in use. `out` may be NULL if
/// `cap` is 0.
///
/// # Safety
/// `sieve` is NULL or alive; `out` has room for `cap` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_get_stages(
    sieve: *const Handle,
    out: *mut i32,
    cap: usize,
) -> c_int {
    answer("llama_sieve_get_stages", || {
        let argument = argument!("out", "cap");
        argument.check(out, cap)?;
        // SAFETY: the caller guarantees the sieve, and room for `cap` numbers.
        unsafe {
            look(sieve, |sieve| {
                let stages = sieve.stages().unwrap_or_default();
                let room = argument.room(out, cap.min(stages.len()))?;
                for (to, stage) in room.iter_mut().zip(stages) {
                    *to = stage.number() as i32;
                }
                Ok(stages.len() as c_int)
            })
        }
    })
}

/// Copies a sampler, with its current state, into a slot of the sieve, and replaces the sampler
/// that was there. NULL empties the slot. The LLAMA_SIEVE_MAX_SAMPLERS slots are numbered from 0
/// on. The copy runs only as the stage LLAMA_SIEVE_STAGE_SAMPLER + slot, where
/// llama_sieve_set_stages places it. It accepts every token that the sieve accepts, is reset by
/// llama_sieve_reset, and is cloned with the sieve.
///
/// The caller still owns the sampler, which is not changed: free it at once, or let it accept the
/// same tokens, so that llama_sieve_ban_rewind returns the number for the sieve as well. It must be
/// a sampler of this library that does not select: a truncation, banned texts, a loop breaker, a
/// grammar, a token trie, penalties, and so on. A copy that draws random numbers, as XTC does, has
/// its own generator, copied from the sampler's. If there are fewer logits than the vocabulary has
/// tokens, a token trie or a grammar may add a token that has no logit among them, and the sieve
/// may choose it.
///
/// Banned texts, biased texts and a loop breaker are part of a saved state. With any other sampler
/// that has a memory no state can be saved: saving returns LLAMA_SIEVE_ERROR_STATE.
///
/// Returns LLAMA_SIEVE_OK or, with the slot unchanged, a negative error: NULL, a sieve in use, too
/// little memory, LLAMA_SIEVE_ERROR_PARAMS for an invalid slot or a sampler that selects, or
/// LLAMA_SIEVE_ERROR_INVALID for a sampler that is not this library's.
///
/// # Safety
/// `sieve` is NULL or alive; `smpl` is NULL or a live sampler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_set_sampler(
    sieve: *mut Handle,
    slot: i32,
    smpl: *const llama_sampler,
) -> c_int {
    answer("llama_sieve_set_sampler", || {
        let member = match smpl.is_null() {
            true => None,
            // SAFETY: not NULL, and the caller guarantees the sampler.
            false => Some(unsafe { member_of(smpl) }?),
        };
        let Ok(place) = usize::try_from(slot) else {
            let text = format!("the slot is {slot}; they go from 0 on");
            return Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text));
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, |sieve| Ok(sieve.set_member(place, member)?)) }
    })
}

/// Returns a copy of a sampler of this library, or an error for any other sampler.
///
/// # Safety
/// `smpl` is a live sampler.
unsafe fn member_of(smpl: *const llama_sampler) -> Result<Box<dyn Member>, Failure> {
    usable("the sampler", smpl)?;
    // SAFETY: the caller guarantees the sampler.
    let Some(own) = (unsafe { own_of(smpl) }).filter(|&own| !std::ptr::eq(own, &HOSTED)) else {
        let text = "the sampler is none of this library's: make it with llama_sieve_init_*";
        return Err(Failure::new(LLAMA_SIEVE_ERROR_INVALID, text));
    };
    // SAFETY: as above, and it has this vtable.
    unsafe { own.member_of(smpl) }.ok_or_else(Failure::told_already)
}

/// Sets the sequence breakers of the stage DRY, across which nothing counts as repeated:
/// `n_breakers` strings `breakers`, each cut to 40 bytes; NULL or empty ones are skipped. `vocab`
/// is used only within this call, and may be NULL if there are no breakers.
///
/// Returns LLAMA_SIEVE_OK or, with the breakers unchanged, a negative error: NULL, a sieve in use,
/// too little memory, more than LLAMA_SIEVE_DRY_MAX_BREAKERS, or LLAMA_SIEVE_ERROR_NO_HOST if there
/// is no llama.cpp. Exceptions of the host's tokenizer pass through, and also leave the breakers
/// unchanged.
///
/// # Safety
/// `sieve` is NULL or alive; `vocab` is NULL or a vocabulary of the host; `breakers` is NULL or
/// `n_breakers` pointers, each NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn llama_sieve_set_dry_breakers(
    sieve: *mut Handle,
    vocab: *const llama_vocab,
    breakers: *mut *const c_char,
    n_breakers: usize,
) -> c_int {
    const CALL: &str = "llama_sieve_set_dry_breakers";
    let checked = begin(CALL).and_then(|()| {
        part(CALL, || match breakers.is_null() {
            true => Ok(()),
            false => BREAKERS.check(breakers, n_breakers),
        })
    });
    let no_host = |text| {
        Err(match vocab.is_null() {
            true => Failure::null("vocab"),
            false => Failure::new(LLAMA_SIEVE_ERROR_NO_HOST, text),
        })
    };
    // SAFETY: the caller guarantees the arguments.
    let breakers = checked
        .and_then(|()| unsafe { breakers_for(&CALL, vocab, (breakers, n_breakers), no_host) });
    let answer = breakers.and_then(|breakers| {
        // SAFETY: the caller guarantees the sieve.
        part(CALL, || unsafe {
            with(sieve, |sieve| {
                sieve.set_dry_breakers(breakers.unwrap_or_default())?;
                Ok(LLAMA_SIEVE_OK)
            })
        })
    });
    answer.unwrap_or_else(|code| code)
}
