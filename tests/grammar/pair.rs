//! One grammar in this library's sampler and in the built-in.

use std::ffi::CString;
use std::ptr;

use llama_sieve::ffi::grammar as sieve;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::host::vocabulary::llama_vocab;
use vendor_llama_cpp::{Model, sys};

use crate::support::{Array, HostSampler};

/// Grammars that accept many texts, so that the text after a trigger goes on for a while.
pub const OPEN: [&str; 6] = [
    "root ::= .*",
    "root ::= [ab01 ]* .{0,5} \"c\"*",
    "root ::= .{0,2} <[6]>* .*",
    "root ::= !<[7]>* .{2,9}",
    "root ::= ([^c] | \"c\" [^c])* \"c\"",
    "root ::= .{0,4} | \"a\" root",
];

/// This library's sampler and the built-in, with the same history.
#[derive(Clone)]
pub struct Pair {
    pub ours: HostSampler,
    pub theirs: HostSampler,
}

/// A loaded vocabulary, with the properties that tests need.
pub struct Vocabulary {
    pub model: Model,
    pub n_tokens: usize,
    pub eog: Vec<i32>,
    pub pieces: Vec<Vec<u8>>,
}

impl Vocabulary {
    pub fn new(model: Model) -> Self {
        let n_tokens = model.n_vocab();
        let tokens = 0..n_tokens as i32;
        Self {
            eog: tokens
                .clone()
                .filter(|&token| model.is_eog(token))
                .collect(),
            pieces: tokens.map(|token| model.piece(token)).collect(),
            n_tokens,
            model,
        }
    }

    pub fn as_ours(&self) -> *const llama_vocab {
        self.model.vocab().cast()
    }
}

/// Runs `body` with the output of C++ discarded, since the built-in prints each text that it
/// refuses.
pub fn quietly<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: plain descriptors of this process.
    unsafe {
        let kept = libc::dup(2);
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        assert!(kept >= 0 && null >= 0);
        libc::dup2(null, 2);
        let done = body();
        libc::dup2(kept, 2);
        libc::close(kept);
        libc::close(null);
        done
    }
}

/// Returns this library's sampler; NULL if the text is refused.
pub fn ours(text: &[u8], root: &str, vocabulary: &Vocabulary) -> *mut llama_sampler {
    let (text, root) = (c_string(text), c_string(root.as_bytes()));
    // SAFETY: C strings and a vocabulary that live through the call.
    unsafe { sieve::llama_sieve_init_grammar(vocabulary.as_ours(), text.as_ptr(), root.as_ptr()) }
}

/// Returns the built-in; NULL if the text is refused.
pub fn theirs(text: &[u8], root: &str, vocabulary: &Vocabulary) -> *mut sys::llama_sampler {
    let (text, root) = (c_string(text), c_string(root.as_bytes()));
    let vocab = vocabulary.model.vocab();
    // SAFETY: C strings and a vocabulary that live through the call.
    quietly(|| unsafe {
        sys::vendor_llama_grammar(
            vocab,
            text.as_ptr(),
            root.as_ptr(),
            false,
            ptr::null_mut(),
            0,
            ptr::null(),
            0,
        )
    })
}

/// Returns the text up to its first NUL, as C would read it.
pub fn c_string(text: &[u8]) -> CString {
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    CString::new(text).expect("there is no NUL in it")
}

impl Pair {
    /// Applies both to the same array. Fails if the results differ.
    pub fn apply(&self, input: &Array) -> Result<Array, String> {
        let (mut a, mut b) = (input.clone(), input.clone());
        self.ours.apply(&mut a);
        self.theirs.apply(&mut b);
        crate::support::compare::same(&a, &b).map(|()| b)
    }

    /// Lets both accept a token. Returns true if both allow it; fails if they disagree.
    pub fn accept(&self, token: i32) -> Result<bool, String> {
        self.ours.accept(token);
        // SAFETY: the sampler lives.
        let theirs = unsafe { sys::vendor_llama_sampler_accept(self.theirs.as_ptr(), token) };
        let error = error(&self.ours);
        if (error == 0) != theirs {
            return Err(format!(
                "token {token}: ours gives {error}, theirs {theirs}"
            ));
        }
        Ok(theirs)
    }

    pub fn reset(&self) {
        self.ours.reset();
        quietly(|| self.theirs.reset());
    }
}

pub fn error(ours: &HostSampler) -> i32 {
    // SAFETY: the sampler lives.
    unsafe { sieve::llama_sieve_grammar_error(ours.as_ptr().cast()) }
}

pub fn is_complete(ours: &HostSampler) -> bool {
    // SAFETY: the sampler lives.
    unsafe { sieve::llama_sieve_grammar_is_complete(ours.as_ptr().cast()) }
}

/// Returns the tokens that this library's mask allows.
pub fn mask(ours: &HostSampler, n_tokens: usize) -> Vec<i32> {
    let mut words = vec![0_u32; n_tokens.div_ceil(32) + 1];
    // SAFETY: the sampler lives, and the words are as many as is said.
    let n = unsafe {
        let smpl = ours.as_ptr().cast();
        sieve::llama_sieve_grammar_mask(smpl, words.as_mut_ptr(), words.len())
    };
    let is_set = |token: &i32| words[*token as usize / 32] >> (token % 32) & 1 != 0;
    let tokens: Vec<i32> = (0..32 * words.len() as i32).filter(is_set).collect();
    assert_eq!(tokens.len(), n);
    tokens
}
