//! Sieves: constructors and sampling.

use std::ptr::{null, null_mut};

use llama_sieve::TokenData;
use llama_sieve::ffi::library::*;
use llama_sieve::ffi::sieve::*;
use llama_sieve_fuzz::params::CParams;

use crate::answers::{OF_LOGITS, assert_answer, assert_count, assert_reason, last_error};
use crate::calls::{Call, Logits};
use crate::{MOST_OBJECTS, World};

impl World {
    /// Makes a call about sieves. Passes any other call on to [`Self::call_results`].
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_sieve(&mut self, call: &Call) {
        let full = self.sieves.len() >= MOST_OBJECTS;
        // SAFETY: NULL or live, and arrays are as long as the calls expect.
        unsafe {
            match call {
                Call::SieveNew(changes) if !full => {
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let sieve =
                        llama_sieve_new(params.as_ref().map_or(null(), |p| &raw const p.raw));
                    assert_eq!(
                        sieve.is_null(),
                        !params.is_some_and(|params| params.is_valid())
                    );
                    self.keep_sieve(sieve);
                }
                Call::SieveClone(which) if !full => {
                    let sieve = self.sieve(*which);
                    let copy = llama_sieve_clone(sieve);
                    assert_eq!(copy.is_null(), sieve.is_null());
                    self.keep_sieve(copy);
                }
                Call::SieveFree(which) => {
                    let sieve = self.sieve(*which);
                    self.sieves.retain(|&s| s != sieve);
                    llama_sieve_free(sieve);
                }
                Call::SieveReset(which) => llama_sieve_reset(self.sieve(*which)),
                Call::SieveSet { which, changes } => {
                    let sieve = self.sieve(*which);
                    let params = changes.as_ref().map(|changes| CParams::new(changes));
                    let answer = llama_sieve_set_params(
                        sieve,
                        params.as_ref().map_or(null(), |p| &raw const p.raw),
                    );
                    let done = assert_answer(
                        answer,
                        &[
                            LLAMA_SIEVE_ERROR_NULL,
                            LLAMA_SIEVE_ERROR_PARAMS,
                            LLAMA_SIEVE_ERROR_SIZE,
                        ],
                    );
                    assert_eq!(
                        done,
                        !sieve.is_null() && params.is_some_and(|params| params.is_valid())
                    );
                }
                Call::SieveAccept { which, token } => {
                    llama_sieve_accept(self.sieve(*which), token.0)
                }
                Call::Sample {
                    which,
                    logits,
                    width,
                } => {
                    let (values, n) = logits.get();
                    let sieve = self.sieve(*which);
                    let halves = Logits::halves(&values);
                    let half = halves.as_ref().map_or(null(), |halves| halves.as_ptr());
                    let token = match width % 3 {
                        0 => llama_sieve_sample(sieve, Logits::pointer(&values), n),
                        1 => llama_sieve_sample_f16(sieve, half, n),
                        _ => llama_sieve_sample_bf16(sieve, half, n),
                    };
                    assert_count(token, &OF_LOGITS);
                    assert!(token < n.max(0));
                    if !sieve.is_null() && n > 0 && values.is_some() {
                        assert_eq!(token >= 0, llama_sieve_candidates(sieve, null_mut(), 0) > 0);
                    }
                }
                Call::SampleCtx { which } => {
                    assert_eq!(
                        llama_sieve_sample_ctx(self.sieve(*which), null_mut(), -1),
                        LLAMA_SIEVE_ERROR_NULL
                    );
                    assert_reason();
                }
                Call::Batch {
                    which,
                    logits,
                    threads,
                } => self.batch(which, logits, *threads),
                Call::Top { logits, n, null } => {
                    let (values, n_vocab) = logits.get();
                    let n = n.0.min(500);
                    let mut out = vec![TokenData::new(-7, 0.0); usize::try_from(n).unwrap_or(0)];
                    let pointer = if *null { null_mut() } else { out.as_mut_ptr() };
                    let written =
                        llama_sieve_top_candidates(Logits::pointer(&values), n_vocab, n, pointer);
                    assert_count(written, &OF_LOGITS);
                    let count = usize::try_from(written).unwrap_or(0);
                    assert!(out[..count].iter().all(|c| (0..n_vocab).contains(&c.id)));
                    assert!(out[count..].iter().all(|c| c.id == -7));
                    assert!(out[..count].is_sorted_by(|a, b| a.logit >= b.logit));
                }
                Call::Greedy(logits) => {
                    let (values, n) = logits.get();
                    let token = llama_sieve_greedy(Logits::pointer(&values), n);
                    assert_count(token, &OF_LOGITS);
                    let mut best = None;
                    for (i, &x) in values
                        .iter()
                        .flatten()
                        .enumerate()
                        .filter(|(i, _)| (*i as i32) < n)
                    {
                        if x > best.map_or(f32::NEG_INFINITY, |(_, best)| best) {
                            best = Some((i as i32, x));
                        }
                    }
                    assert_eq!(best.map(|(i, _)| i), (token >= 0).then_some(token));
                }
                other => self.call_results(other),
            }
        }
    }

    fn keep_sieve(&mut self, sieve: *mut Handle) {
        match sieve.is_null() {
            true => assert_reason(),
            false => {
                assert_eq!(last_error(), "");
                self.sieves.push(sieve);
            }
        }
    }

    /// Samples with several sieves at once, and checks the results.
    ///
    /// # Safety
    /// All objects must be alive.
    unsafe fn batch(&mut self, which: &[u8], logits: &Logits, threads: u8) {
        let (values, n) = logits.get();
        let sieves: Vec<*mut Handle> = which
            .iter()
            .take(6)
            .map(|&which| self.sieve(which))
            .collect();
        let arrays = vec![Logits::pointer(&values); sieves.len()];
        let mut out = vec![-77; sieves.len()];
        // SAFETY: sieves are NULL or live, the arrays have as many elements as the call expects.
        let answer = unsafe {
            llama_sieve_sample_batch(
                sieves.as_ptr(),
                arrays.as_ptr(),
                n,
                sieves.len(),
                out.as_mut_ptr(),
                i32::from(threads % 3),
            )
        };
        assert_count(answer, &OF_LOGITS);
        let untouched = out.iter().all(|&token| token == -77);
        let mut distinct = sieves.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let wrong = distinct.len() < sieves.len()
            || sieves.contains(&null_mut())
            || values.is_none()
            || n <= 0;
        assert!(wrong == untouched || sieves.is_empty());
        if wrong && !sieves.is_empty() {
            assert!(answer < 0);
        } else {
            assert!(out.iter().all(|&token| (-11..n.max(0)).contains(&token)));
            let first = out.iter().find(|&&token| token < 0);
            assert_eq!(answer, first.copied().unwrap_or(0));
        }
    }
}
