//! How long DRY's constructor takes to find all tokens that overlap its sequence breakers, beside the built-in's, on a vocabulary of 128,256 tokens.
//!
//! `cargo bench --bench dry_breakers`: alternates both in one process, checks that both lead to the same logits, and prints medians and their ratio.

#[path = "../tests/support/mod.rs"]
mod support;

use std::ffi::c_char;
use std::time::Instant;

use llama_sieve::ffi::samplers::llama_sieve_init_dry;
use support::arrays::Rng;
use support::{Array, HostSampler};
use vendor_llama_cpp::{Model, sys, test_model};

const N_VOCAB: usize = 128_256;
const ROUNDS: usize = 9;

fn main() {
    let model = Model::load(test_model::cached(N_VOCAB, 1)).expect("the model loads");
    // llama.cpp's defaults.
    let mut breakers: Vec<*const c_char> = [c"\n", c":", c"\"", c"*"].map(|b| b.as_ptr()).into();
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        let (pointer, n) = (breakers.as_mut_ptr(), breakers.len());
        let start = Instant::now();
        // SAFETY: the vocabulary and the breakers live during the call.
        let ours = HostSampler::new(unsafe {
            llama_sieve_init_dry(model.vocab().cast(), 0.8, 1.75, 2, 1000, pointer, n)
        });
        times[0].push(start.elapsed().as_secs_f64() * 1e3);
        let start = Instant::now();
        // SAFETY: as above.
        let theirs = HostSampler::new(unsafe {
            sys::llama_sampler_init_dry(model.vocab(), 0.8, 1.75, 2, 1000, pointer, n)
        });
        times[1].push(start.elapsed().as_secs_f64() * 1e3);
        check(&ours, &theirs);
    }
    let [ours, theirs] = times.map(median);
    println!(
        "sequence breakers over {N_VOCAB} tokens: ours {ours:.1} ms, built-in {theirs:.1} ms, ratio {:.2}",
        theirs / ours
    );
}

/// Both sides penalise alike after a text in which every token of the first thousand may be a breaker.
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
