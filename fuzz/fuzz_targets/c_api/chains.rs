//! Sampling from raw logits with a sampler of the host's, one at a time and many at once.

use std::ptr::{null, null_mut};

use llama_sieve::TokenData;
use llama_sieve::ffi::chain::*;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::library::*;

use crate::World;
use crate::answers::{assert_answer, assert_count, assert_reason};
use crate::calls::{Call, Logits};

/// The errors of sampling with a chain; INVALID means that the chain selects no token.
const OF_CHAIN: [i32; 4] = [
    LLAMA_SIEVE_ERROR_NULL,
    LLAMA_SIEVE_ERROR_SIZE,
    LLAMA_SIEVE_ERROR_NO_CANDIDATE,
    LLAMA_SIEVE_ERROR_INVALID,
];

impl World {
    /// Makes a call about chains. Passes any other call on to [`Self::call_grammar`].
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_chain(&mut self, call: &Call) {
        // SAFETY: NULL or live, and arrays are as long as the calls expect.
        unsafe {
            match call {
                Call::ChainSample {
                    which,
                    other,
                    logits,
                    width,
                    cap,
                } => {
                    let (chain, other) = (self.smp(*which), self.smp(*other));
                    let token = chain_sample(chain, other, logits, *width, usize::from(*cap));
                    assert!(self.puts_back || token < logits.get().1.max(0));
                }
                Call::ChainSampleCtx { which, idx } => {
                    let token = llama_sieve_chain_sample(self.smp(*which), null_mut(), idx.0);
                    assert_eq!(token, LLAMA_SIEVE_ERROR_NULL);
                    assert_reason();
                }
                Call::ChainBatch {
                    which,
                    logits,
                    threads,
                    null,
                } => {
                    let chains = which.iter().take(6).map(|&which| self.smp(which));
                    let chains: Vec<_> = chains.collect();
                    let out = batch(&chains, logits, i32::from(*threads % 4), *null);
                    let n = logits.get().1;
                    assert!(self.puts_back || out.iter().all(|&token| token < n.max(0)));
                }
                other => self.call_grammar(other),
            }
        }
    }
}

/// Samples with `chain` from logits, checks the result and the candidates, and returns the token.
///
/// # Safety
/// `chain` and `other` are NULL or alive.
unsafe fn chain_sample(
    chain: *mut llama_sampler,
    other: *mut llama_sampler,
    logits: &Logits,
    width: u8,
    cap: usize,
) -> i32 {
    let (values, n) = logits.get();
    let halves = Logits::halves(&values);
    let half = halves.as_ref().map_or(null(), |halves| halves.as_ptr());
    // SAFETY: NULL or live; NULL or as many logits as the call expects, which stay until the last
    // call here.
    unsafe {
        let token = match width % 3 {
            0 => llama_sieve_chain_sample_logits(chain, Logits::pointer(&values), n),
            1 => llama_sieve_chain_sample_f16(chain, half, n),
            _ => llama_sieve_chain_sample_bf16(chain, half, n),
        };
        assert_count(token, &OF_CHAIN);
        if chain.is_null() || values.is_none() || n <= 0 {
            assert!(token < 0);
        }
        candidates(chain, (token >= 0).then_some(token), cap);
        assert_eq!(
            llama_sieve_chain_check(chain, null_mut(), cap) < 0,
            chain.is_null()
        );
        if other != chain {
            assert!(llama_sieve_chain_candidates(other, null_mut(), 0) <= 0);
            assert_reason();
        }
        // The logits are freed after this, so the library must not read them again.
        assert!(llama_sieve_chain_sample_logits(chain, null(), 3) < 0);
        assert!(llama_sieve_chain_candidates(chain, null_mut(), 0) <= 0);
        assert_reason();
        token
    }
}

/// Checks the candidates that `token` was drawn from, if there is a token.
///
/// # Safety
/// `chain` is NULL or alive, and so are the logits that it sampled from.
unsafe fn candidates(chain: *mut llama_sampler, token: Option<i32>, cap: usize) {
    let mut out = vec![TokenData::new(-7, 0.0); cap];
    // SAFETY: NULL or live, and there is room.
    unsafe {
        let n = llama_sieve_chain_candidates(chain, out.as_mut_ptr(), cap);
        assert_count(n, &[LLAMA_SIEVE_ERROR_NULL]);
        assert_eq!(n < 0, chain.is_null());
        let answer = llama_sieve_chain_candidates(chain, null_mut(), cap);
        if cap > 0 {
            assert!(!assert_answer(answer, &[LLAMA_SIEVE_ERROR_NULL]));
        }
        assert_eq!(llama_sieve_chain_candidates(chain, null_mut(), 0), n);
        let n = usize::try_from(n).unwrap_or(0);
        assert_eq!(out.iter().filter(|c| c.id != -7).count(), n.min(cap));
        match token {
            None if n == 0 => assert_reason(),
            None => {}
            Some(token) => assert!(n > cap || out.iter().any(|c| c.id == token)),
        }
    }
}

/// Samples with several chains at once, checks the results, and returns the tokens.
///
/// # Safety
/// The chains are NULL or alive.
unsafe fn batch(
    chains: &[*mut llama_sampler],
    logits: &Logits,
    n_threads: i32,
    null_array: u8,
) -> Vec<i32> {
    let (values, n) = logits.get();
    let arrays = vec![Logits::pointer(&values); chains.len()];
    let mut out = vec![-77; chains.len()];
    // SAFETY: chains are NULL or live, the arrays NULL or as long as the call expects.
    let answer = unsafe {
        llama_sieve_chain_sample_batch(
            if null_array == 1 {
                null()
            } else {
                chains.as_ptr()
            },
            if null_array == 2 {
                null()
            } else {
                arrays.as_ptr()
            },
            n,
            chains.len(),
            if null_array == 3 {
                null_mut()
            } else {
                out.as_mut_ptr()
            },
            n_threads,
        )
    };
    let errors = [&OF_CHAIN[..], &[LLAMA_SIEVE_ERROR_BUSY]].concat();
    assert_answer(answer, &errors);
    let mut distinct = chains.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    let wrong = distinct.len() < chains.len()
        || chains.contains(&null_mut())
        || values.is_none()
        || n <= 0
        || n_threads < 0
        || (1..=3).contains(&null_array);
    if chains.is_empty() {
        assert_eq!(answer, LLAMA_SIEVE_OK);
    } else if wrong {
        assert!(answer < 0 && out.iter().all(|&token| token == -77));
    } else {
        assert!(out.iter().all(|&token| token >= -11));
        let first = out.iter().find(|&&token| token < 0);
        assert_eq!(answer, first.copied().unwrap_or(LLAMA_SIEVE_OK));
    }
    out
}
