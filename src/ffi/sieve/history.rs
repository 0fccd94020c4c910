//! The history of a sieve, and its effect on a logit, for C.

use std::ffi::c_char;
use std::ptr::null;

use crate::ffi::failure::{Failure, value};
use crate::ffi::given::argument;
use crate::ffi::library::{Shown, show};
use crate::rng::DEFAULT_SEED;
use crate::sieve::Sieve;
use crate::token::Token;

use super::handle::*;

/// Returns the number of tokens accepted since the sieve was made or reset: the position of the
/// next token, counted from 0. A loaded state sets it. Returns 0, with an error, for NULL and for a
/// sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_n_accepted(sieve: *const Handle) -> u64 {
    value("llama_sieve_n_accepted", 0, || {
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, Sieve::accepted) }
    })
}

/// Returns the seed that the random numbers began with: that of the parameters or, if that is
/// 0xFFFFFFFF, the random one, which allows a run to be repeated. Returns 0xFFFFFFFF
/// (LLAMA_DEFAULT_SEED), with an error, for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_current_seed(sieve: *const Handle) -> u64 {
    value("llama_sieve_current_seed", u64::from(DEFAULT_SEED), || {
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, Sieve::seed) }
    })
}

/// Returns the number of tokens to which the penalties apply: at most penalty_last_n. Returns 0,
/// with an error, for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_history_size(sieve: *const Handle) -> usize {
    value("llama_sieve_history_size", 0, || {
        let size = |sieve: &Sieve| sieve.history().len();
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, size) }
    })
}

/// Returns the number of times that `token` occurs among the tokens to which the penalties apply.
/// Returns 0, with an error, for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_history_count(sieve: *const Handle, token: Token) -> u32 {
    value("llama_sieve_history_count", 0, || {
        let count = |sieve: &Sieve| sieve.history().count(token);
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, count) }
    })
}

/// Returns true if `token` is among the tokens to which the penalties apply. Returns false, with an
/// error, for NULL and for a sieve in use.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_history_contains(sieve: *const Handle, token: Token) -> bool {
    value("llama_sieve_history_contains", false, || {
        let contains = |sieve: &Sieve| sieve.history().contains(token);
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, contains) }
    })
}

/// Writes to `out` at most `cap` of the distinct tokens to which the penalties apply, in no
/// particular order. Returns the number of distinct tokens, which may be larger than `cap`. Returns
/// 0, with an error, for NULL, for a sieve in use, and if `out` is not aligned or `cap` is too
/// large.
///
/// # Safety
/// `sieve` is NULL or alive; `out` is NULL or has room for `cap` tokens.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_history_unique(
    sieve: *const Handle,
    out: *mut Token,
    cap: usize,
) -> usize {
    value("llama_sieve_history_unique", 0, || {
        // SAFETY: the caller guarantees the room.
        let out = unsafe { argument!("out", "cap").room_or_none(out, cap) }?;
        let copy = |sieve: &Sieve| {
            let distinct = sieve.history().distinct();
            for (out, &(token, _)) in out.iter_mut().zip(distinct) {
                *out = token;
            }
            Ok(distinct.len())
        };
        // SAFETY: the caller guarantees the sieve.
        unsafe { look(sieve, copy) }
    })
}

/// Returns the raw `logit` of `token` after bias and the current penalties, as the other stages
/// would see it. With stages set by llama_sieve_set_stages, penalties are included only if they are
/// among the stages. DRY is never included. Returns NaN, with an error, for NULL and for a sieve in
/// use, and NaN for a logit that is NaN.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_adjusted_logit(
    sieve: *const Handle,
    token: Token,
    logit: f32,
) -> f32 {
    value("llama_sieve_adjusted_logit", f32::NAN, || {
        let adjusted = |sieve: &Sieve| sieve.adjusted(token, logit);
        // SAFETY: the caller guarantees the sieve.
        unsafe { told(sieve, adjusted) }
    })
}

/// Returns the error text of the sieve's last sampling, by llama_sieve_sample*, in a batch, or as a
/// sampler of a chain; "" if that returned a token. An error before the sieve is reached (NULL, a
/// size, a sieve in use) is reported only by llama_sieve_last_error.
///
/// Also works for a sieve that an internal error has disabled. Returns NULL, with an error, for
/// NULL and for a sieve in use. The text is valid until this thread calls this function again.
///
/// # Safety
/// `sieve` is NULL or alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_error(sieve: *const Handle) -> *const c_char {
    value("llama_sieve_error", null(), || {
        thread_local! {
            static SHOWN: Shown = const { Shown::new() };
        }
        // SAFETY: the caller guarantees the sieve.
        let state = unsafe { handle(sieve) }?.lock()?;
        Ok::<_, Failure>(show(&SHOWN, &state.error))
    })
}

/// Returns the result of `body`, which only reads the sieve.
///
/// # Safety
/// `sieve` is NULL or alive.
unsafe fn told<T>(sieve: *const Handle, body: impl FnOnce(&Sieve) -> T) -> Result<T, Failure> {
    // SAFETY: the caller guarantees the sieve.
    unsafe { look(sieve, |sieve| Ok(body(sieve))) }
}
