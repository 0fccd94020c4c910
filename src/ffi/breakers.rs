//! DRY's sequence breakers in a vocabulary of the host.

use std::ffi::{c_char, c_int};
use std::fmt::Display;

use crate::ffi::failure::{Failure, part};
use crate::ffi::given::{Argument, LLAMA_SIEVE_DRY_MAX_BREAKERS, argument, c_bytes_within};
use crate::ffi::host::Host;
use crate::ffi::host::vocabulary::{Tokenizer, host_vocabulary, llama_vocab};
use crate::samplers::{Breakers, FoundBreakers, MAX_BREAKER_BYTES};
use crate::{log, memory};

/// The breakers as a C caller passes them.
pub(super) const BREAKERS: Argument =
    argument!("breakers", "n_breakers", LLAMA_SIEVE_DRY_MAX_BREAKERS);

/// Reads and tokenizes the sequence breakers. Returns `None` if there are no breakers. If the
/// vocabulary cannot be read (it is NULL, for example, or the host lacks a function), `otherwise`
/// decides whether the result is `None` as well or an error. On failure returns the error code of
/// the call. Must not be called inside the guard, since the host's tokenizer may throw.
///
/// # Safety
/// `vocab` is NULL or a vocabulary of the host; `breakers` is NULL or `n` pointers, each NULL or a
/// C string.
pub(super) unsafe fn breakers_for(
    call: &dyn Display,
    vocab: *const llama_vocab,
    (breakers, n): (*mut *const c_char, usize),
    otherwise: impl FnOnce(String) -> Result<(), Failure>,
) -> Result<Option<Breakers>, c_int> {
    let prepared = part(call, || {
        // SAFETY: the caller guarantees the arguments.
        let texts = unsafe { breaker_texts(breakers, n) }?;
        if texts.is_empty() {
            return Ok(None);
        }
        let found = || {
            // SAFETY: as above; the vocabulary is not kept.
            let vocabulary = unsafe { host_vocabulary(vocab) }?;
            // SAFETY: as above.
            let tokenizer = unsafe { Tokenizer::of(&Host::get()?, vocab) }?;
            Ok((FoundBreakers::new(&vocabulary, &texts), tokenizer))
        };
        found()
            .map(Some)
            .or_else(|text| otherwise(text).map(|()| None))
    })?;
    let Some((mut found, tokenizer)) = prepared else {
        return Ok(None);
    };
    found.for_each_tail(|text, tokens| {
        // SAFETY: the caller guarantees the vocabulary.
        unsafe { tokenizer.tokens(vocab, text, tokens) };
    });
    part(call, || Ok(Some(found.into_breakers())))
}

/// Returns the breakers that are neither NULL nor empty, each cut to [`MAX_BREAKER_BYTES`].
///
/// # Safety
/// `breakers` is NULL or `n` pointers, each NULL or a C string that outlives `'a`.
unsafe fn breaker_texts<'a>(
    breakers: *mut *const c_char,
    n: usize,
) -> Result<Vec<&'a [u8]>, Failure> {
    if breakers.is_null() {
        return Ok(Vec::new());
    }
    if n <= LLAMA_SIEVE_DRY_MAX_BREAKERS && !breakers.is_aligned() {
        log::warn("dry: the sequence breakers are not aligned; there are none");
        return Ok(Vec::new());
    }
    let mut texts = Vec::new();
    // SAFETY: the caller guarantees `n` pointers.
    let breakers = unsafe { BREAKERS.slice(breakers, n) }?;
    for (i, &text) in breakers.iter().enumerate() {
        let text = match text.is_null() {
            true => &[],
            // SAFETY: the caller guarantees the strings.
            false => unsafe { c_bytes_within(text, MAX_BREAKER_BYTES) },
        };
        if text.is_empty() {
            log::warn(&format!(
                "dry: sequence breaker {i} is NULL or empty, and skipped"
            ));
            continue;
        }
        memory::push(&mut texts, text);
    }
    Ok(texts)
}
