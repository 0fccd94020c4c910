//! Tests samplers that several threads share. Programs may do that, since a built-in without state
//! only reads its parameters. Each thread must get the same candidates as from the built-in.
//!
//! `ci/sanitize tsan` runs this under ThreadSanitizer.

use std::thread;

use llama_sieve::ffi::samplers::*;
use llama_sieve::last_error;
use vendor_llama_cpp::sys;

use crate::support::arrays::{Rng, Shape};
use crate::support::compare::same;
use crate::support::straight::Straight;
use crate::support::{Array, Grid, HostSampler, alone, both, logit_biases, number_from_env};

const THREADS: u64 = 4;
const N: usize = 20_000;

/// A sampler for all threads.
struct Shared(HostSampler);
// SAFETY: this is tested: that this library's samplers, and chains of them, may be shared.
unsafe impl Sync for Shared {}

impl Shared {
    fn sampler(&self) -> &HostSampler {
        &self.0
    }
}

/// Returns a sampler of each kind that has no state, and one that must leave the same candidates:
/// the built-in, or where llama.cpp has none, a clone.
fn pairs() -> Vec<[HostSampler; 2]> {
    let twice = |sampler| {
        let sampler = HostSampler::new(sampler);
        [sampler.clone(), sampler]
    };
    let biases: Vec<_> = (0..1000)
        .map(|i| (17 * i, 0.5 + 0.001 * i as f32))
        .collect();
    vec![
        logit_biases(N as i32, &biases),
        both!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; 1.5),
        both!(llama_sieve_init_top_k, llama_sampler_init_top_k; 4000),
        twice(llama_sieve_init_tail_free(0.95, 1)),
        both!(llama_sieve_init_typical, llama_sampler_init_typical; 0.9, 1),
        both!(llama_sieve_init_top_p, llama_sampler_init_top_p; 0.95, 1),
        both!(llama_sieve_init_min_p, llama_sampler_init_min_p; 0.001, 1),
        both!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; 0.8, 0.5, 1.0),
        both!(llama_sieve_init_temp, llama_sampler_init_temp; 0.7),
        twice(llama_sieve_init_softmax()),
        twice(llama_sieve_init_top_a(0.01)),
        twice(llama_sieve_init_epsilon_cutoff(1e-5)),
        twice(llama_sieve_init_eta_cutoff(1e-4)),
        twice(llama_sieve_init_p_less(true)),
        twice(llama_sieve_init_top_h(0.9)),
        twice(llama_sieve_init_min_k(1e5)),
        twice(llama_sieve_init_quadratic(0.05, 2.0)),
        both!(llama_sieve_init_greedy, llama_sampler_init_greedy),
    ]
}

/// Returns a chain of the samplers of all pairs, and a chain of their counterparts, which must
/// leave the same candidates.
fn chains() -> [HostSampler; 2] {
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs().into_iter().map(<(_, _)>::from).unzip();
    [ours, theirs].map(chain)
}

/// Returns a chain that does not measure its time, which would be state.
fn chain(members: Vec<HostSampler>) -> HostSampler {
    // SAFETY: a constructor without preconditions.
    let chain = unsafe {
        let mut params = sys::llama_sampler_chain_default_params();
        params.no_perf = true;
        HostSampler::new(sys::llama_sampler_chain_init(params))
    };
    members.into_iter().for_each(|member| chain.add(member));
    chain
}

fn array(seed: u64) -> Array {
    Shape::Peaked.array(N, &mut Rng(seed))
}

fn times() -> usize {
    number_from_env("LLAMA_SIEVE_TEST_STEPS", 200).min(200)
}

/// Runs each piece of work on a thread, and joins the threads. ThreadSanitizer recognizes the end
/// of a thread only by a join, not by the end of a scope.
fn on_threads<F: FnOnce() + Send>(work: impl Iterator<Item = F>) {
    thread::scope(|scope| {
        let threads: Vec<_> = work.map(|piece| scope.spawn(piece)).collect();
        for thread in threads {
            thread.join().expect("no panic");
        }
    });
}

/// Applies `ours` on all threads at the same time, again and again, each to its own array.
fn apply_shared(name: &str, ours: HostSampler, theirs: &HostSampler) {
    let ours = &Shared(ours);
    on_threads((0..THREADS).map(|seed| {
        let before = array(1 + seed);
        let mut expected = before.clone();
        theirs.apply(&mut expected);
        assert!(same(&expected, &before).is_err(), "{name} changes nothing");
        move || {
            for _ in 0..times() {
                let mut array = before.clone();
                ours.sampler().apply(&mut array);
                if let Err(text) = same(&array, &expected) {
                    panic!("{name}: {text} ({})", last_error::get());
                }
            }
        }
    }));
}

#[test]
fn threads_share_a_sampler_without_state() {
    let _alone = alone();
    for [ours, theirs] in pairs() {
        apply_shared(&ours.name(), ours, &theirs);
    }
}

#[test]
fn threads_share_a_chain_of_samplers_without_state() {
    let _alone = alone();
    let [ours, theirs] = chains();
    apply_shared("the chain", ours, &theirs);
}

#[test]
fn threads_sample_logits_with_a_chain_that_they_share() {
    let _alone = alone();
    let [ours, theirs] = chains();
    let ours = &Shared(ours);
    on_threads((0..THREADS).map(|seed| {
        let array = array(1 + seed);
        let logits = array.logits();
        let mut left = array;
        theirs.apply(&mut left);
        let expected = left.chosen().id;
        move || {
            for _ in 0..times() {
                let token = Straight::new(&logits, Grid::F32).sample(ours.sampler());
                assert_eq!(token, expected, "{}", last_error::get());
            }
        }
    }));
}
