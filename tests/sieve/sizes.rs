//! Tests absurd numbers of elements in every function that takes a number: each is an error that
//! names the argument and the limit, nothing is read out of bounds, and nothing is written.

use std::ptr::{null, null_mut};

use crate::support::HostSampler;
use crate::support::family::vocabulary;
use crate::support::sizes::{CASES, absurd};
use llama_sieve::ffi::grammar::{llama_sieve_grammar_mask, llama_sieve_init_grammar};
use llama_sieve::ffi::library::{LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_OK};
use llama_sieve::ffi::samplers::{llama_sieve_init_dry, llama_sieve_init_greedy};
use llama_sieve::ffi::sieve::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;

/// A sampler of each kind whose functions take numbers (a trie, a grammar, a chain), and a sieve.
struct Subjects {
    samplers: [HostSampler; 3],
    sieve: *mut Handle,
}

impl Subjects {
    fn new() -> Self {
        let payload =
            c"{\"descriptors\":[{\"path\":\"p\",\"leaves\":[{\"name\":\"a\",\"tokens\":[1,2]}]}]}";
        let (text, root) = (c"root ::= [a-z]+".as_ptr(), c"root".as_ptr());
        // SAFETY: the vocabulary lives, and all texts are C strings.
        unsafe {
            let trie = llama_sampler_init_token_trie(null(), payload.as_ptr(), 1);
            let grammar = llama_sieve_init_grammar(vocabulary().cast(), text, root);
            let greedy = HostSampler::new(llama_sieve_init_greedy());
            let sieve = llama_sieve_new(&llama_sieve_default_params());
            llama_sieve_accept(sieve, 3);
            Self {
                samplers: [
                    HostSampler::new(trie),
                    HostSampler::new(grammar),
                    HostSampler::chain(vec![greedy]),
                ],
                sieve,
            }
        }
    }

    /// Returns the observable state of the trie and the sieve.
    fn seen(&self) -> (usize, Vec<u8>) {
        // SAFETY: both live, and there is as much room as the call is told.
        unsafe {
            let mut state = vec![0; llama_sieve_state_size(self.sieve)];
            let saved = llama_sieve_state_save(self.sieve, state.as_mut_ptr(), state.len());
            assert_eq!(saved, LLAMA_SIEVE_OK);
            let trie = self.samplers[0].as_ptr().cast();
            (llama_sieve_trie_allowed(trie, null_mut(), 0), state)
        }
    }
}

impl Drop for Subjects {
    fn drop(&mut self) {
        // SAFETY: it lives, and is not used again.
        unsafe { llama_sieve_free(self.sieve) };
    }
}

#[test]
fn no_number_is_followed_that_cannot_be_meant() {
    let subjects = Subjects::new();
    let before = subjects.seen();
    for which in 0..CASES.len() {
        // Just above the limit, and at numbers whose product with a size overflows.
        for number in [0, 1 << 40, 1 << 61, 1 << 62, 1 << 63, u64::MAX] {
            let named = subjects.samplers.each_ref().map(|smpl| {
                // SAFETY: both live.
                unsafe { absurd(smpl.as_ptr().cast(), subjects.sieve, which, number) }
            });
            assert!(named.contains(&true), "case {which}, {number}");
            assert_eq!(subjects.seen(), before, "case {which}, {number}");
        }
    }
}

/// If the output is NULL, the number is ignored.
#[test]
fn without_room_any_number_is_taken() {
    let subjects = Subjects::new();
    let [trie, grammar, _] = subjects.samplers.each_ref().map(|s| s.as_ptr().cast());
    // SAFETY: all live.
    unsafe {
        assert!(llama_sieve_grammar_mask(grammar, null_mut(), usize::MAX) > 0);
        assert_eq!(llama_sieve_trie_allowed(trie, null_mut(), usize::MAX), 1);
        assert_eq!(llama_sieve_trie_forced(trie, null_mut(), usize::MAX), 2);
        let unique = llama_sieve_history_unique(subjects.sieve, null_mut(), usize::MAX);
        assert_eq!(unique, 1);
        let vocab = vocabulary().cast();
        let dry = llama_sieve_init_dry(vocab, 0.8, 1.75, 2, 64, null_mut(), usize::MAX);
        assert_eq!(HostSampler::new(dry).name(), "dry");
    }
}

/// No memory is reserved for an absurd size of the vocabulary.
#[test]
fn no_memory_is_reserved_that_cannot_be_used() {
    let subjects = Subjects::new();
    for n in [LLAMA_SIEVE_MAX_RESERVED as i32 + 1, i32::MAX] {
        // SAFETY: it lives.
        let answer = unsafe { llama_sieve_reserve(subjects.sieve, n) };
        assert_eq!(answer, LLAMA_SIEVE_ERROR_SIZE);
        assert!(last_error::get().contains("LLAMA_SIEVE_MAX_RESERVED"));
    }
}
