//! Entropy, surprisal and perplexity for C: the functions `llama_sieve_entropy` to
//! `llama_sieve_ppl_free`.

use std::ffi::c_int;

use crate::ffi::failure::{Failure, made, usable, value};
use crate::ffi::given::{Argument, argument};
use crate::ffi::guard::guard;
use crate::metrics::{self, Base, RollingPerplexity};
use crate::token::{Token, TokenData};

fn base_of(base: c_int) -> Result<Base, String> {
    match base {
        0 => Ok(Base::Nats),
        2 => Ok(Base::Bits),
        _ => Err(format!("base is {base}; 0 gives nats, 2 gives bits")),
    }
}

const LOGITS: Argument = argument!("logits", "n");
const CANDIDATES: Argument = argument!("candidates", "n");

/// Returns the elements as a slice.
///
/// # Safety
/// `elements` is NULL or valid for `n` elements during `'a`.
unsafe fn slice<'a, T>(
    argument: Argument,
    elements: *const T,
    n: usize,
) -> Result<&'a [T], Failure> {
    if n == 0 {
        return Err(format!("the number of {} is 0", argument.array).into());
    }
    // SAFETY: the caller guarantees the elements.
    unsafe { argument.slice(elements, n) }
}

/// Returns the logits as a slice.
///
/// # Safety
/// `logits` is NULL or `n` floats, if `n` is above 0.
unsafe fn logits_of<'a>(logits: *const f32, n: i32) -> Result<&'a [f32], Failure> {
    let count = usize::try_from(n).map_err(|_| format!("the number of logits is {n}"))?;
    // SAFETY: the caller guarantees the logits.
    unsafe { slice(LOGITS, logits, count) }
}

fn defined(value: Option<f32>) -> Result<f32, Failure> {
    value.ok_or_else(|| MASKED.to_owned().into())
}

const MASKED: &str = "every logit is minus infinity or NaN, so there is no distribution";

/// Returns the Shannon entropy of the model's distribution, from its `n` raw logits: between 0 and
/// the logarithm of `n`.
///
/// The result is in nats for `base` 0, and in bits for `base` 2. The relative error is below 1e-6,
/// whatever offset all logits share. Tokens with NaN or minus infinity have no probability. Plus
/// infinity takes all of it (the first one, if there are several). Returns NaN, with an error, if
/// `logits` is NULL, `n` <= 0, `base` is another number, or no token has a probability. It takes
/// one pass over the logits, and may be called from any thread.
///
/// # Safety
/// `logits` is NULL or `n` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_entropy(logits: *const f32, n: i32, base: c_int) -> f32 {
    value("llama_sieve_entropy", f32::NAN, || {
        let base = base_of(base)?;
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n) }?;
        defined(metrics::entropy(logits, base))
    })
}

/// Returns the surprisal of `token` in the model's distribution, from its `n` raw logits: minus the
/// logarithm of its probability.
///
/// `base` and errors are as for llama_sieve_entropy. Also returns NaN for a `token` outside [0, n).
/// Returns plus infinity for a masked token.
///
/// # Safety
/// `logits` is NULL or `n` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_surprisal(
    logits: *const f32,
    n: i32,
    token: Token,
    base: c_int,
) -> f32 {
    value("llama_sieve_surprisal", f32::NAN, || {
        let base = base_of(base)?;
        // SAFETY: the caller guarantees the logits.
        let logits = unsafe { logits_of(logits, n) }?;
        if !(0..n).contains(&token) {
            let text = format!("token {token} is outside the vocabulary of {n} tokens");
            return Err(text.into());
        }
        defined(metrics::surprisal(logits, token, base))
    })
}

/// Returns the entropy of the distribution over `n` candidates, from their logits: the uncertainty
/// of the draw after the filters. Probabilities are ignored. `base` and errors are as for
/// llama_sieve_entropy.
///
/// # Safety
/// `candidates` is NULL or `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_candidates_entropy(
    candidates: *const TokenData,
    n: usize,
    base: c_int,
) -> f32 {
    value("llama_sieve_candidates_entropy", f32::NAN, || {
        let base = base_of(base)?;
        // SAFETY: the caller guarantees the candidates.
        let candidates = unsafe { slice(CANDIDATES, candidates, n) }?;
        defined(metrics::candidates_entropy(candidates, base))
    })
}

/// Returns the surprisal of `token` in the distribution over `n` candidates, from their logits.
/// Returns plus infinity for a token that is not among them. `base` and errors are as for
/// llama_sieve_entropy.
///
/// # Safety
/// `candidates` is NULL or `n` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_candidates_surprisal(
    candidates: *const TokenData,
    n: usize,
    token: Token,
    base: c_int,
) -> f32 {
    value("llama_sieve_candidates_surprisal", f32::NAN, || {
        let base = base_of(base)?;
        // SAFETY: the caller guarantees the candidates.
        let candidates = unsafe { slice(CANDIDATES, candidates, n) }?;
        defined(metrics::candidates_surprisal(candidates, token, base))
    })
}

/// The perplexity of a text so far: the exponential of the mean surprisal of its tokens.
///
/// It is made by llama_sieve_ppl_new or llama_sieve_ppl_clone and owned by the caller. One thread
/// may use it at a time.
#[allow(non_camel_case_types)]
#[derive(Debug)]
pub struct llama_sieve_ppl(RollingPerplexity);

/// Returns the perplexity for reading.
///
/// # Safety
/// `ppl` is NULL or alive.
unsafe fn ppl_of<'a>(ppl: *const llama_sieve_ppl) -> Result<&'a llama_sieve_ppl, Failure> {
    usable("the object", ppl)?;
    // SAFETY: not NULL, and the caller guarantees that it is alive.
    Ok(unsafe { &*ppl })
}

/// Returns the perplexity for writing.
///
/// # Safety
/// `ppl` is NULL or alive, and used by no other code.
unsafe fn ppl_mut<'a>(ppl: *mut llama_sieve_ppl) -> Result<&'a mut llama_sieve_ppl, Failure> {
    usable("the object", ppl)?;
    // SAFETY: not NULL, and the caller guarantees that the object is alive, and that no other code
    // uses it.
    Ok(unsafe { &mut *ppl })
}

/// Returns a new perplexity without tokens, to be freed with llama_sieve_ppl_free. Returns NULL
/// only if there is too little memory.
#[unsafe(no_mangle)]
pub extern "C" fn llama_sieve_ppl_new() -> *mut llama_sieve_ppl {
    made("llama_sieve_ppl_new", || {
        let ppl = llama_sieve_ppl(RollingPerplexity::default());
        Ok(Box::into_raw(Box::new(ppl)))
    })
}

/// Adds the surprisal of one token, in nats. NaN is an error and not added. Plus infinity makes the
/// perplexity infinite.
///
/// # Safety
/// `ppl` is NULL (an error) or alive, and used by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_add(ppl: *mut llama_sieve_ppl, surprisal_nats: f32) {
    value("llama_sieve_ppl_add", (), || {
        // SAFETY: the caller guarantees the object.
        let ppl = unsafe { ppl_mut(ppl) }?;
        if surprisal_nats.is_nan() {
            return Err("the surprisal is NaN; it is left out".to_owned().into());
        }
        ppl.0.add(surprisal_nats);
        Ok::<_, Failure>(())
    })
}

/// Returns the perplexity: 1 if every token was certain. NaN before the first token, and for NULL.
///
/// # Safety
/// `ppl` is NULL or alive, and changed by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_value(ppl: *const llama_sieve_ppl) -> f32 {
    value("llama_sieve_ppl_value", f32::NAN, || {
        // SAFETY: the caller guarantees the object.
        let ppl = unsafe { ppl_of(ppl) }?;
        Ok::<_, Failure>(ppl.0.value())
    })
}

/// Returns the number of added tokens; 0 for NULL.
///
/// # Safety
/// `ppl` is NULL or alive, and changed by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_count(ppl: *const llama_sieve_ppl) -> usize {
    value("llama_sieve_ppl_count", 0, || {
        // SAFETY: the caller guarantees the object.
        let ppl = unsafe { ppl_of(ppl) }?;
        Ok::<_, Failure>(ppl.0.count())
    })
}

/// Forgets all tokens. For NULL only the last error is set.
///
/// # Safety
/// `ppl` is NULL or alive, and used by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_reset(ppl: *mut llama_sieve_ppl) {
    value("llama_sieve_ppl_reset", (), || {
        // SAFETY: the caller guarantees the object.
        let ppl = unsafe { ppl_mut(ppl) }?;
        ppl.0.reset();
        Ok::<_, Failure>(())
    })
}

/// Makes a second object with the same tokens, which must be freed separately. Returns NULL for
/// NULL.
///
/// # Safety
/// `ppl` is NULL or alive, and changed by no other thread during the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_clone(
    ppl: *const llama_sieve_ppl,
) -> *mut llama_sieve_ppl {
    made("llama_sieve_ppl_clone", || {
        // SAFETY: the caller guarantees the object.
        let ppl = unsafe { ppl_of(ppl) }?;
        Ok(Box::into_raw(Box::new(llama_sieve_ppl(ppl.0))))
    })
}

/// Frees the object. NULL is allowed.
///
/// # Safety
/// `ppl` is NULL or came from llama_sieve_ppl_new or llama_sieve_ppl_clone, and is not used any
/// more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_ppl_free(ppl: *mut llama_sieve_ppl) {
    guard(
        "llama_sieve_ppl_free",
        || (),
        || {
            if usable("the object", ppl).is_ok() {
                // SAFETY: the caller guarantees that it comes from llama_sieve_ppl_new or
                // llama_sieve_ppl_clone, and is not used any more.
                drop(unsafe { Box::from_raw(ppl) });
            }
        },
    )
}
