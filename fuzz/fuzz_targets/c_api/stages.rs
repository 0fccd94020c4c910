//! Stages in any order, with any parameters.

use std::ptr::{null, null_mut};

use llama_sieve::ffi::host::vocabulary::llama_vocab;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve_fuzz::stages::{CStages, Stages};

use crate::answers::{OF_LOGITS, assert_answer, assert_count};
use crate::support::family::vocabulary;

/// Sets stages and breakers. Rejected stages must change nothing, and the sieve must still sample
/// afterwards.
///
/// # Safety
/// `sieve` is NULL or alive.
pub(crate) unsafe fn set_stages(
    sieve: *mut Handle,
    stages: Option<&Stages>,
    breakers: Option<(u8, bool)>,
) {
    let stages = stages.map(CStages::new);
    let pointer = stages
        .as_ref()
        .map_or(null(), |stages| &raw const stages.raw);
    let is_valid = stages.as_ref().is_none_or(CStages::is_valid);
    // SAFETY: NULL or live; the stages are whole, and texts as many as is said.
    unsafe {
        // The order of the default stages is static.
        let defaults = llama_sieve_default_stages();
        let order = std::slice::from_raw_parts(defaults.stages, defaults.n_stages);
        assert!(order.len() == 9 && order.iter().all(|stage| (1..=10).contains(stage)));
        let mut before = [-99; 32];
        let n = llama_sieve_get_stages(sieve, before.as_mut_ptr(), before.len());
        assert_count(n, &[LLAMA_SIEVE_ERROR_NULL]);
        let size = llama_sieve_state_size(sieve);
        let answer = llama_sieve_set_stages(sieve, pointer);
        let errors = [LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS];
        let done = assert_answer(answer, &errors);
        assert_eq!(done, is_valid && !sieve.is_null());
        if done {
            let is_there = stages.as_ref().is_none_or(|stages| stages.are_of(sieve));
            assert!(is_there, "{:?}", pointer.as_ref());
        } else {
            let mut after = [-99; 32];
            let same = llama_sieve_get_stages(sieve, after.as_mut_ptr(), after.len());
            assert_eq!((same, after), (n, before));
            assert_eq!(llama_sieve_state_size(sieve), size);
        }
        if let Some((n, vocab)) = breakers {
            set_breakers(sieve, n, vocab);
        }
        let mut order = [0; 32];
        llama_sieve_get_stages(sieve, order.as_mut_ptr(), order.len());
        let has_slots = order.iter().any(|&n| n >= LLAMA_SIEVE_STAGE_SAMPLER);
        let logits = [0.5, 3.0, f32::NEG_INFINITY, 2.5, 2.5, -1.0];
        for _ in 0..3 {
            let token = llama_sieve_sample(sieve, logits.as_ptr(), 6);
            assert_count(token, &OF_LOGITS);
            // A trie in a slot may put back a token for which there is no logit.
            assert!(token < 6 || has_slots);
            let left = llama_sieve_candidates(sieve, null_mut(), 0);
            assert_eq!(token >= 0, left > 0);
            if token >= 0 {
                llama_sieve_accept(sieve, token);
            }
        }
    }
}

/// Sets the sequence breakers of DRY, and checks the result.
///
/// # Safety
/// `sieve` is NULL or alive.
unsafe fn set_breakers(sieve: *mut Handle, n: u8, vocab: bool) {
    let mut texts = [c"\n".as_ptr(), null(), c"".as_ptr(), c"the LORD".as_ptr()];
    let n = usize::from(n % 5);
    let vocab: *const llama_vocab = match vocab {
        true => vocabulary().cast(),
        false => null(),
    };
    // SAFETY: NULL or live, and there are at least as many texts.
    unsafe {
        let answer = llama_sieve_set_dry_breakers(sieve, vocab, texts.as_mut_ptr(), n);
        // Skipped breakers are also reported by the last error.
        assert_count(answer, &[LLAMA_SIEVE_ERROR_NULL]);
        let done = !sieve.is_null() && (n == 0 || !vocab.is_null());
        assert_eq!(answer == LLAMA_SIEVE_OK, done, "{answer}");
    }
}
