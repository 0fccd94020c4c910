//! The parameters of a sieve for C.

use std::ffi::c_int;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, answer, struct_size};
use crate::ffi::given::argument;
use crate::ffi::host::llama_h::llama_logit_bias;
use crate::memory::{reserve_exact, with_room};
use crate::sieve::{Method, Mode, Order, Params, RngKind};
use crate::token::Token;

use super::handle::*;

/// Mode: the default of tsampler, a sampler library. It is kept with the parameters, and has no
/// effect.
pub const LLAMA_SIEVE_MODE_FAST: i32 = 0;
/// Mode: llama.cpp's chain of built-in samplers. Every sieve computes as that chain does, in any
/// mode.
pub const LLAMA_SIEVE_MODE_PARITY: i32 = 1;
/// Generator: xoroshiro128+, seeded through SplitMix64.
pub const LLAMA_SIEVE_RNG_XOROSHIRO128PLUS: i32 = 0;
/// Generator: std::mt19937, as in llama.cpp. It takes the lower 32 bits of the seed.
pub const LLAMA_SIEVE_RNG_MT19937: i32 = 1;
/// Generator: a hash of the seed and the number of accepted tokens, without a stream, so that any
/// position can be replayed alone.
pub const LLAMA_SIEVE_RNG_POSITION: i32 = 2;
/// Draw: by inversion of the cumulative distribution function.
pub const LLAMA_SIEVE_METHOD_CDF: i32 = 0;
/// Draw: the largest of logit / temperature + Gumbel noise.
pub const LLAMA_SIEVE_METHOD_GUMBEL: i32 = 1;
/// Order: temperature after all filters (tsampler, llama.cpp's default chain).
pub const LLAMA_SIEVE_ORDER_TEMP_LAST: i32 = 0;
/// Order: temperature right after the penalties (Akunu, transformers, vLLM).
pub const LLAMA_SIEVE_ORDER_TEMP_FIRST: i32 = 1;

/// The parameters of a sieve. Begin with llama_sieve_default_params, which also sets struct_size.
/// The struct is frozen: new parameters are set by functions.
#[allow(non_camel_case_types)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct llama_sieve_params {
    /// sizeof(llama_sieve_params) of the caller. A size that this library does not know is an
    /// error.
    pub struct_size: usize,
    /// Divides the logits. Default 0.8. 1 has no effect; below 0.001 the most probable token that
    /// the filters leave is chosen.
    pub temperature: f32,
    /// The number of largest logits that are kept. Default 40; disabled by <= 0.
    pub top_k: i32,
    /// Keeps the smallest set of most probable tokens whose probabilities add up to at least this
    /// value. Default 0.95; disabled by >= 1; <= 0 keeps only the most probable token.
    pub top_p: f32,
    /// Keeps the tokens whose probability is at least this fraction of the largest one. Default
    /// 0.05; disabled by <= 0.
    pub min_p: f32,
    /// Keeps the tokens whose surprisal is nearest to the entropy until the sum of their
    /// probabilities exceeds this value. Default 1; disabled by >= 1.
    pub typical_p: f32,
    /// Keeps the logits within this many standard deviations of the largest. Default -1; disabled
    /// by <= 0.
    pub top_n_sigma: f32,
    /// The minimum number of tokens that typical, top-p, min-p and XTC keep. Default 1.
    pub min_keep: usize,
    /// The number of most recently accepted tokens that are penalised. Default 64; disabled
    /// by <= 0.
    pub penalty_last_n: i32,
    /// Divides the logit of a penalised token if it is above 0, and multiplies it otherwise.
    /// Default 1, which disables it; must be above 0.
    pub penalty_repeat: f32,
    /// The penalty subtracted from a token's logit once per occurrence. Default 0, which disables
    /// it.
    pub penalty_freq: f32,
    /// The penalty subtracted from a token's logit once if it occurs. Default 0, which disables it.
    pub penalty_present: f32,
    /// The seed. Default 0xFFFFFFFF (LLAMA_DEFAULT_SEED), which means a random one that changes at
    /// each reset.
    pub seed: u64,
    /// LLAMA_SIEVE_MODE_*. Default PARITY. It has no effect.
    pub mode: i32,
    /// LLAMA_SIEVE_RNG_*. Default MT19937.
    pub rng: i32,
    /// LLAMA_SIEVE_METHOD_*. Default CDF.
    pub method: i32,
    /// LLAMA_SIEVE_ORDER_*. Default TEMP_LAST.
    pub order: i32,
    /// n_bias pairs of token and bias, which are added to the logits before the penalties. They are
    /// copied. Minus infinity bans a token. Default NULL.
    pub bias: *const llama_logit_bias,
    /// The number of biases. Default 0.
    pub n_bias: usize,
}

const NAME: &str = "llama_sieve_params";
const SIZES: [usize; 1] = [size_of::<llama_sieve_params>()];

/// Returns the parameters for C, without the biases. The caller fills these in if there are any.
pub(super) fn params_for_c(p: &Params) -> llama_sieve_params {
    llama_sieve_params {
        struct_size: size_of::<llama_sieve_params>(),
        temperature: p.temperature,
        top_k: p.top_k,
        top_p: p.top_p,
        min_p: p.min_p,
        typical_p: p.typical_p,
        top_n_sigma: p.top_n_sigma,
        min_keep: p.min_keep,
        penalty_last_n: p.penalty_last_n,
        penalty_repeat: p.penalty_repeat,
        penalty_freq: p.penalty_freq,
        penalty_present: p.penalty_present,
        seed: p.seed,
        mode: p.mode as i32,
        rng: p.rng as i32,
        method: p.method as i32,
        order: p.order as i32,
        bias: std::ptr::null(),
        n_bias: 0,
    }
}

pub(super) fn one_of<T: Copy>(name: &str, number: i32, values: &[T]) -> Result<T, Failure> {
    let value = usize::try_from(number).ok().and_then(|i| values.get(i));
    value.copied().ok_or_else(|| {
        let last = values.len() - 1;
        let text = format!("{name} is {number}; it goes from 0 to {last}");
        Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text)
    })
}

/// Returns the parameters that C passes, or an error if they cannot be read or are not allowed.
///
/// # Safety
/// `params` is NULL or begins with a readable struct_size and has that many bytes; `bias` in it is
/// NULL or `n_bias` elements.
pub(super) unsafe fn params_of(params: *const llama_sieve_params) -> Result<Params, Failure> {
    // SAFETY: the caller guarantees the first member.
    unsafe { struct_size("params", NAME, params, &SIZES) }?;
    // SAFETY: the size is that of the whole struct, whose members are plain numbers and a pointer.
    let c = unsafe { params.read() };
    Ok(Params {
        temperature: c.temperature,
        top_k: c.top_k,
        top_p: c.top_p,
        min_p: c.min_p,
        typical_p: c.typical_p,
        top_n_sigma: c.top_n_sigma,
        min_keep: c.min_keep,
        penalty_last_n: c.penalty_last_n,
        penalty_repeat: c.penalty_repeat,
        penalty_freq: c.penalty_freq,
        penalty_present: c.penalty_present,
        seed: c.seed,
        mode: one_of("mode", c.mode, &[Mode::Fast, Mode::Parity])?,
        rng: one_of(
            "rng",
            c.rng,
            &[
                RngKind::Xoroshiro128Plus,
                RngKind::Mt19937,
                RngKind::Position,
            ],
        )?,
        method: one_of("method", c.method, &[Method::Cdf, Method::Gumbel])?,
        order: one_of("order", c.order, &[Order::TempLast, Order::TempFirst])?,
        // SAFETY: the caller guarantees the biases.
        bias: unsafe { biases(c.bias, c.n_bias) }?,
    })
}

/// Writes the current parameters to `out`, whose struct_size the caller sets. Returns
/// LLAMA_SIEVE_OK or, with `out` unchanged, a negative error.
///
/// `out->bias` belongs to the sieve: it is valid until the next llama_sieve_get_params of this
/// sieve, or its end, and may be passed to llama_sieve_set_params. `out->seed` is the parameter;
/// llama_sieve_current_seed returns the seed in use.
///
/// # Safety
/// `sieve` is NULL or alive; `out` is NULL or as long as its struct_size says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_get_params(
    sieve: *const Handle,
    out: *mut llama_sieve_params,
) -> c_int {
    answer("llama_sieve_get_params", || {
        // SAFETY: the caller guarantees the first member.
        unsafe { struct_size("out", NAME, out, &SIZES) }?;
        // SAFETY: the caller guarantees the sieve.
        let mut state = unsafe { entered(sieve) }?;
        let State { sieve, biases, .. } = &mut *state;
        let params = sieve.as_ref().ok_or_else(out_of_use)?.params();
        biases.clear();
        reserve_exact(biases, params.bias.len())?;
        let pairs = params.bias.iter();
        biases.extend(pairs.map(|&(token, bias)| llama_logit_bias { token, bias }));
        let mut shown = params_for_c(params);
        if !biases.is_empty() {
            (shown.bias, shown.n_bias) = (biases.as_ptr(), biases.len());
        }
        // SAFETY: the size is that of the whole struct.
        unsafe { out.write(shown) };
        Ok(())
    })
}

/// Returns the biases that C passes, or an error if they cannot be read.
///
/// # Safety
/// `bias` is NULL or `n` elements.
pub(super) unsafe fn biases(
    bias: *const llama_logit_bias,
    n: usize,
) -> Result<Vec<(Token, f32)>, Failure> {
    // SAFETY: the caller guarantees the elements.
    let biases = unsafe { argument!("bias", "n_bias").slice(bias, n) }?;
    if n == 0 {
        return Ok(Vec::new());
    }
    let mut pairs = with_room(n)?;
    pairs.extend(biases.iter().map(|b| (b.token, b.bias)));
    Ok(pairs)
}
