//! The host's own grammars, and the host's functions that use them.
//!
//! These functions are called outside the guard, so that their exceptions pass through.

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::ffi::host::built_ins::{Free, free_of};
use crate::ffi::host::llama_h::{Accept, Apply, llama_sampler};
use crate::ffi::host::vocabulary::llama_vocab;
use crate::ffi::host::{Host, host_function};
use crate::token::Token;

type Strings = *const *const c_char;
type Tokens = *const Token;
type Vocab = *const llama_vocab;
type Text = *const c_char;
/// The constructor of grammars that are not lazy.
type Plain = unsafe extern "C-unwind" fn(Vocab, Text, Text) -> *mut llama_sampler;
/// The constructors of lazy grammars, with words or with patterns.
type Lazy = unsafe extern "C-unwind" fn(
    Vocab,
    Text,
    Text,
    Strings,
    usize,
    Tokens,
    usize,
) -> *mut llama_sampler;
type Reset = unsafe extern "C-unwind" fn(*mut llama_sampler);
type Clone = unsafe extern "C-unwind" fn(*const llama_sampler) -> *mut llama_sampler;

/// The host's functions for grammars.
#[derive(Debug, Clone, Copy)]
pub(super) struct Functions {
    pub(super) plain: Plain,
    pub(super) patterns: Lazy,
    /// The deprecated constructor with words, which later hosts may lack.
    pub(super) words: Option<Lazy>,
    pub(super) apply: Apply,
    pub(super) accept: Accept,
    pub(super) reset: Reset,
    pub(super) clone: Clone,
    pub(super) free: Free,
}

impl Functions {
    pub(super) fn of(host: &Host) -> Result<Self, String> {
        let words = || {
            let words = host_function!(host, c"llama_sampler_init_grammar_lazy", Lazy);
            Ok::<_, String>(words)
        };
        Ok(Self {
            plain: host_function!(host, c"llama_sampler_init_grammar", Plain),
            patterns: host_function!(host, c"llama_sampler_init_grammar_lazy_patterns", Lazy),
            words: words().ok(),
            apply: host_function!(host, c"llama_sampler_apply", Apply),
            accept: host_function!(host, c"llama_sampler_accept", Accept),
            reset: host_function!(host, c"llama_sampler_reset", Reset),
            clone: host_function!(host, c"llama_sampler_clone", Clone),
            free: free_of(host)?,
        })
    }
}

/// A sampler that the host has made. It is freed even if an exception passes through.
pub(super) struct Owned(pub(super) *mut llama_sampler, pub(super) Free);

impl Drop for Owned {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: a live sampler, to which no other code has a pointer.
            unsafe { (self.1)(self.0) }
        }
    }
}

impl Owned {
    /// Returns the sampler. From now on the caller must free it.
    pub(super) fn given(mut self) -> *mut llama_sampler {
        std::mem::replace(&mut self.0, null_mut())
    }
}
