//! DRY's sequence breakers in a vocabulary of the host's.

use std::ffi::c_char;

use crate::ffi::host::Host;
use crate::ffi::host::vocabulary::{Tokenizer, c_bytes, host_vocabulary, llama_vocab};
use crate::samplers::{Breakers, FoundBreakers};
use crate::{log, memory};

/// Breakers of which the host's tokenizer is still to be [asked](Self::ask).
pub(super) struct HostBreakers<'a> {
    found: FoundBreakers<'a>,
    tokenizer: Tokenizer,
}

impl<'a> HostBreakers<'a> {
    /// Looks for them in all texts of the vocabulary. Fails where the host lacks a function, and
    /// for NULL.
    ///
    /// # Safety
    /// `vocab` is NULL or a vocabulary of the host.
    pub(super) unsafe fn find(
        vocab: *const llama_vocab,
        texts: &[&'a [u8]],
    ) -> Result<Self, String> {
        // SAFETY: the caller guarantees the vocabulary, which is not kept.
        let vocabulary = unsafe { host_vocabulary(vocab) }?;
        Ok(Self {
            found: FoundBreakers::new(&vocabulary, texts),
            tokenizer: Tokenizer::of(&Host::get()?)?,
        })
    }

    /// Asks the host's tokenizer, which may throw: not to be called inside the guard.
    ///
    /// # Safety
    /// `vocab` is that which they were looked for in.
    pub(super) unsafe fn ask(&mut self, vocab: *const llama_vocab) {
        let tokenizer = &self.tokenizer;
        self.found.for_each_tail(|text, tokens| {
            // SAFETY: the caller guarantees the vocabulary.
            unsafe { tokenizer.tokens(vocab, text, tokens) };
        });
    }

    pub(super) fn into_breakers(self) -> Breakers {
        self.found.into_breakers()
    }
}

/// The breakers that are there.
///
/// # Safety
/// `breakers` is NULL or `n` pointers, each NULL or a C string that outlives `'a`.
pub(super) unsafe fn breaker_texts<'a>(breakers: *mut *const c_char, n: usize) -> Vec<&'a [u8]> {
    if breakers.is_null() {
        return Vec::new();
    }
    if !breakers.is_aligned() {
        log::warn("dry: the sequence breakers are not aligned; there are none");
        return Vec::new();
    }
    let mut texts = Vec::new();
    for i in 0..n {
        // SAFETY: the caller guarantees `n` pointers, and the strings.
        let text = unsafe {
            let text = *breakers.add(i);
            if text.is_null() { &[] } else { c_bytes(text) }
        };
        if text.is_empty() {
            log::warn(&format!(
                "dry: sequence breaker {i} is NULL or empty, and skipped"
            ));
            continue;
        }
        memory::push(&mut texts, text);
    }
    texts
}
