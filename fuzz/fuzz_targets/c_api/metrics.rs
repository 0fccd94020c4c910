//! Entropy, surprisal and perplexity.

use std::ptr::null;

use llama_sieve::ffi::metrics::*;
use llama_sieve::token::array_of;

use crate::answers::assert_reason;
use crate::calls::{Call, Logits};
use crate::{MOST_OBJECTS, World};

impl World {
    /// Makes a call about metrics. Passes any other call on to [`Self::call_sieve`].
    ///
    /// # Safety
    /// All objects must be alive.
    pub(crate) unsafe fn call_metrics(&mut self, call: &Call) {
        // SAFETY: NULL or live, and arrays are as long as the calls expect.
        unsafe {
            match call {
                Call::PplNew if self.ppls.len() < MOST_OBJECTS => {
                    self.ppls.push(llama_sieve_ppl_new())
                }
                Call::PplNew => {}
                Call::PplClone(which) => {
                    let ppl = self.ppl(*which);
                    let copy = llama_sieve_ppl_clone(ppl);
                    assert_eq!(copy.is_null(), ppl.is_null());
                    if !copy.is_null() {
                        assert_eq!(llama_sieve_ppl_count(copy), llama_sieve_ppl_count(ppl));
                        self.ppls.push(copy);
                    }
                }
                Call::PplAdd(which, number) => {
                    let ppl = self.ppl(*which);
                    let before = llama_sieve_ppl_count(ppl);
                    llama_sieve_ppl_add(ppl, number.get());
                    let added = usize::from(!ppl.is_null() && !number.get().is_nan());
                    assert_eq!(llama_sieve_ppl_count(ppl), before + added);
                    assert!(
                        ppl.is_null()
                            || before + added == 0
                            || !llama_sieve_ppl_value(ppl).is_nan()
                    );
                }
                Call::PplReset(which) => {
                    let ppl = self.ppl(*which);
                    llama_sieve_ppl_reset(ppl);
                    assert_eq!(llama_sieve_ppl_count(ppl), 0);
                }
                Call::PplFree(which) => {
                    let ppl = self.ppl(*which);
                    self.ppls.retain(|&p| p != ppl);
                    llama_sieve_ppl_free(ppl);
                }
                Call::Metrics {
                    logits,
                    token,
                    base,
                } => metrics(logits, token.0, i32::from(*base % 4)),
                other => self.call_sieve(other),
            }
        }
    }
}

fn metrics(logits: &Logits, token: i32, base: i32) {
    let (values, n) = logits.get();
    let data = array_of(values.as_deref().unwrap_or_default());
    let candidates = if values.is_some() {
        data.as_ptr()
    } else {
        null()
    };
    // SAFETY: NULL or as many elements as the calls expect.
    let (entropy, surprisal) = unsafe {
        (
            llama_sieve_entropy(Logits::pointer(&values), n, base),
            llama_sieve_surprisal(Logits::pointer(&values), n, token, base),
        )
    };
    let defined = values
        .iter()
        .flatten()
        .take(n.max(0) as usize)
        .any(|&x| x > f32::NEG_INFINITY)
        && n > 0;
    let good_base = base == 0 || base == 2;
    assert_eq!(!entropy.is_nan(), defined && good_base);
    assert!(entropy.is_nan() || entropy >= 0.0 && entropy <= (n as f32).log2() * 1.0001 + 1e-6);
    assert_eq!(
        !surprisal.is_nan(),
        defined && good_base && (0..n).contains(&token)
    );
    assert!(surprisal.is_nan() || surprisal >= 0.0, "{surprisal}");
    if entropy.is_nan() {
        assert_reason();
    }
    // SAFETY: as above.
    unsafe {
        let size = if values.is_some() { data.len() } else { 3 };
        llama_sieve_candidates_surprisal(candidates, size, token, base);
        let of_candidates = llama_sieve_candidates_entropy(candidates, size, base);
        if n > 0 && size == n as usize {
            assert!(of_candidates.is_nan() == entropy.is_nan());
        }
    }
}
