//! The time of DRY's constructor, which finds all tokens that overlap its sequence breakers,
//! compared with the built-in's. A check verifies that both lead to the same logits.

use std::ffi::c_char;

use llama_sieve::ffi::samplers::llama_sieve_init_dry;
use vendor_llama_cpp::{Model, sys, test_model};

use crate::Options;
use crate::measure::{median, thread_time};
use crate::report::Measurement;
use crate::support::arrays::Rng;
use crate::support::{Array, HostSampler};

const N_VOCAB: usize = 128_256;
const ROUNDS: usize = 9;

const NAME: &str = "init of dry";

/// Measures the only row.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    if !options.wants(NAME) {
        return;
    }
    let model = Model::load(test_model::cached(N_VOCAB, 1)).expect("the model loads");
    // The default breakers of llama.cpp.
    let mut breakers: Vec<*const c_char> = [c"\n", c":", c"\"", c"*"].map(|b| b.as_ptr()).into();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (pointer, n) = (breakers.as_mut_ptr(), breakers.len());
        let start = thread_time();
        // SAFETY: the vocabulary and the breakers live during the call.
        let ours = HostSampler::new(unsafe {
            llama_sieve_init_dry(model.vocab().cast(), 0.8, 1.75, 2, 1000, pointer, n)
        });
        times[0].push((thread_time() - start) * 1e3);
        let start = thread_time();
        // SAFETY: as above.
        let theirs = HostSampler::new(unsafe {
            sys::llama_sampler_init_dry(model.vocab(), 0.8, 1.75, 2, 1000, pointer, n)
        });
        times[1].push((thread_time() - start) * 1e3);
        check(&ours, &theirs);
    }
    let [ours, theirs] = times.map(median);
    done(Measurement {
        part: "dry_breakers".into(),
        name: NAME.into(),
        n: N_VOCAB,
        shape: String::new(),
        ours_ns: ours,
        theirs_ns: Some(theirs),
        floor_ns: None,
    });
}

/// Checks that both samplers penalise alike, after a text of twelve different tokens, one of which
/// is a breaker.
fn check(ours: &HostSampler, theirs: &HostSampler) {
    let mut rng = Rng(51);
    for _ in 0..900 {
        let token = rng.below(12) as i32 + 50;
        ours.accept(token);
        theirs.accept(token);
    }
    let mut a = Array::of_logits((0..1000).map(|i| i as f32 / 10.0));
    let mut b = a.clone();
    ours.apply(&mut a);
    theirs.apply(&mut b);
    assert_eq!(a, b, "the two sides differ");
}
