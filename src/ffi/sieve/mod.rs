//! The sieve for C: `struct llama_sieve` ([`Handle`]) and the functions for it, and the sieve as a
//! sampler of a chain.

mod batch;
mod context;
mod handle;
mod history;
mod in_chain;
mod params;
mod results;
mod stages;
mod state;
mod stateless;

use std::ffi::c_int;

use half::slice::HalfBitsSliceExt;
use half::{bf16, f16};

use crate::errors::{LLAMA_SIEVE_ERROR_BUSY, LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_SIZE};
use crate::ffi::failure::{Failure, answer, made, value};
use crate::ffi::given::vocabulary_of;
use crate::ffi::guard::guard;
use crate::ffi::logits::logits_of;
use crate::log;
use crate::sieve::{Params, Sieve};
use crate::token::Token;

pub use batch::*;
pub use context::*;
pub use handle::*;
pub use history::*;
pub(in crate::ffi) use in_chain::SIEVE;
pub use in_chain::*;
pub use params::*;
pub use results::*;
pub use stages::*;
pub use state::*;
pub use stateless::*;

/// Returns the default parameters, which are llama.cpp's: temperature 0.8, top_k 40, top_p 0.95,
/// min_p 0.05, everything else disabled, a random seed, mt19937, CDF, and temperature last. With
/// the seed of a llama.cpp program, a sieve gives the tokens of its default chain.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_default_params() -> llama_sieve_params {
    guard("llama_sieve_default_params", defaults, defaults)
}

/// The largest vocabulary, in tokens, for which llama_sieve_reserve allocates memory.
pub const LLAMA_SIEVE_MAX_RESERVED: usize = 16_777_216;

fn defaults() -> llama_sieve_params {
    params_for_c(&Params::default())
}

/// Makes a sieve without history, to be freed with llama_sieve_free. Returns NULL, with an error,
/// if `params` is NULL or has an unknown struct_size, or if a parameter is not finite, not a value
/// of its enumeration, or out of its range (penalty_repeat <= 0, a bias that is NaN).
///
/// # Safety
/// `params` is NULL or as long as its struct_size says; its bias is NULL or n_bias elements, which
/// are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_new(params: *const llama_sieve_params) -> *mut Handle {
    made("llama_sieve_new", || {
        // SAFETY: the caller guarantees the parameters.
        let params = unsafe { params_of(params) }?;
        let sieve = Sieve::new(&params)?;
        Ok(Handle::boxed(sieve))
    })
}

/// Makes a copy of the sieve with the same parameters, history and generator state. Free it with
/// llama_sieve_free. Returns NULL, with an error, for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_clone(sieve: *const Handle) -> *mut Handle {
    made("llama_sieve_clone", || {
        // SAFETY: the caller guarantees the sieve.
        let copy = unsafe { look(sieve, |sieve| Ok(sieve.clone())) }?;
        Ok(Handle::boxed(copy))
    })
}

/// Frees the sieve. NULL is allowed. A sieve in use by another thread is not freed: an error is
/// logged, and its memory is leaked. A sieve of llama_sieve_of_sampler is not freed either, since
/// its sampler frees it.
///
/// # Safety
/// `sieve` is NULL or came from llama_sieve_new or llama_sieve_clone, and is not used any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_free(sieve: *mut Handle) {
    guard(
        "llama_sieve_free",
        || (),
        || {
            if sieve.is_null() {
                return;
            }
            // SAFETY: the caller guarantees that it is a live sieve.
            if unsafe { handle(sieve) }.is_ok_and(|handle| handle.in_chain) {
                return log::error(
                    LLAMA_SIEVE_ERROR_INVALID,
                    "llama_sieve_free: the sieve belongs to a sampler, which frees it; nothing is \
                     freed",
                );
            }
            // SAFETY: the caller guarantees that it is a live sieve; its state is behind a lock.
            let Ok(state) = (unsafe { handle(sieve) }).and_then(Handle::lock) else {
                return log::error(
                    LLAMA_SIEVE_ERROR_BUSY,
                    "llama_sieve_free: the sieve is in use by another thread, or no sieve; its \
                     memory is leaked, not pulled away",
                );
            };
            // The lock is never released, so that no other call gets the sieve before it is freed.
            std::mem::forget(state);
            // SAFETY: as above, and the sieve is not used any more.
            drop(unsafe { Box::from_raw(sieve) });
        },
    )
}

/// Resets the sieve to its initial state: the history is empty, and the generator starts again from
/// its seed, or from a new one if the seed is random. Parameters and buffers stay.
///
/// # Safety
/// `sieve` is NULL (an error) or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_reset(sieve: *mut Handle) {
    value("llama_sieve_reset", (), || {
        let reset = |sieve: &mut Sieve| {
            sieve.reset();
            Ok(())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, reset) }
    })
}

/// Replaces the parameters, from the next token on. History and generator stay. A different rng
/// begins its stream at seed. A new seed of the same rng takes effect at llama_sieve_reset. A
/// smaller penalty_last_n keeps the newest tokens. Allocates nothing if there is no bias and
/// penalty_last_n does not grow.
///
/// Returns LLAMA_SIEVE_OK, or a negative error; the old parameters then stay.
///
/// # Safety
/// `sieve` is NULL or alive; `params` is NULL or as long as its struct_size says; its bias is NULL
/// or n_bias elements, which are copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_set_params(
    sieve: *mut Handle,
    params: *const llama_sieve_params,
) -> c_int {
    answer("llama_sieve_set_params", || {
        // SAFETY: the caller guarantees sieve and parameters.
        unsafe {
            let params = params_of(params)?;
            with(sieve, |sieve| Ok(sieve.set_params(&params)?))
        }
    })
}

/// Allocates the memory for vocabularies of up to `n_vocab` tokens with the current parameters, so
/// that even the first token allocates nothing on this thread. Two kinds of buffers may still grow:
/// those of stages set by llama_sieve_set_stages, with the number of logits, and the tables of
/// penalties and DRY, as tokens are accepted. History, generator and statistics stay. It reserves
/// up to 1024 bytes of address space for each token of the vocabulary, depending on the parameters.
/// The system provides a page only when it is first written to, and most pages never are.
///
/// Returns LLAMA_SIEVE_OK, or, with nothing changed, a negative error: NULL, LLAMA_SIEVE_ERROR_SIZE
/// (`n_vocab` <= 0 or above LLAMA_SIEVE_MAX_RESERVED), LLAMA_SIEVE_ERROR_BUSY, or
/// LLAMA_SIEVE_ERROR_INTERNAL if there is too little memory.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_reserve(sieve: *mut Handle, n_vocab: i32) -> c_int {
    answer("llama_sieve_reserve", || {
        let n = vocabulary_of(n_vocab)?;
        if n > LLAMA_SIEVE_MAX_RESERVED {
            let text = format!(
                "n_vocab is {n_vocab}; it may be {LLAMA_SIEVE_MAX_RESERVED} at most \
                 (LLAMA_SIEVE_MAX_RESERVED)"
            );
            return Err(Failure::new(LLAMA_SIEVE_ERROR_SIZE, text));
        }
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, |sieve| Ok(sieve.reserve(n)?)) }
    })
}

/// Adds a token that has become part of the text to the history, whether or not the sieve chose it.
/// A negative number, such as an error of llama_sieve_sample, is not added, and sets the last
/// error. There is no check that the token is in the vocabulary.
///
/// # Safety
/// `sieve` is NULL (an error) or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_accept(sieve: *mut Handle, token: Token) {
    value("llama_sieve_accept", (), || {
        let accept = |sieve: &mut Sieve| {
            if token < 0 {
                return Err(Failure::from(format!("{token} is no token")));
            }
            sieve.accept(token);
            Ok(())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { with(sieve, accept) }
    })
}

/// Chooses the next token from `n_vocab` raw logits, which are only read. The token is not
/// accepted: call llama_sieve_accept.
///
/// NaN counts as minus infinity, a banned token. A logit of plus infinity has the effect that it
/// has on the built-in chain, which then draws by probabilities that are NaN. Returns the token,
/// which is 0 or above, or LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_SIZE (`n_vocab` <= 0),
/// LLAMA_SIEVE_ERROR_NO_CANDIDATE (no logit is above minus infinity, in which case the random
/// stream does not advance; or a token with minus infinity is drawn), LLAMA_SIEVE_ERROR_BUSY or
/// LLAMA_SIEVE_ERROR_INTERNAL. Allocates nothing after the first tokens.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample(
    sieve: *mut Handle,
    logits: *const f32,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits = logits_of(logits, n_vocab)?;
            sampled("llama_sieve_sample", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}

/// Chooses a token like llama_sieve_sample, from logits in IEEE half precision.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_f16(
    sieve: *mut Handle,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample_f16", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits: &[f16] = logits_of(logits, n_vocab)?.reinterpret_cast();
            sampled("llama_sieve_sample_f16", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}

/// Chooses a token like llama_sieve_sample, from logits in bfloat16.
///
/// # Safety
/// `sieve` is NULL or alive; `logits` is NULL or `n_vocab` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_sample_bf16(
    sieve: *mut Handle,
    logits: *const u16,
    n_vocab: i32,
) -> Token {
    answer("llama_sieve_sample_bf16", || {
        // SAFETY: the caller guarantees sieve and logits.
        unsafe {
            let logits: &[bf16] = logits_of(logits, n_vocab)?.reinterpret_cast();
            sampled("llama_sieve_sample_bf16", sieve, |sieve| {
                Ok(sieve.sample(logits)?)
            })
        }
    })
}
