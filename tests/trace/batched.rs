//! Tests the trace of a batch: the line of each chain must be the one that it has when it is
//! sampled alone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use llama_sieve::Chain;
use llama_sieve::ffi::chain::{llama_sieve_chain_sample_batch, llama_sieve_chain_sample_logits};
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::*;
use llama_sieve::samplers::{Greedy, TopK};
use llama_sieve::sieve::share;
use llama_sieve::trace::{self, Options};
use serde_json::Value;
use vendor_llama_cpp::sys;

use crate::record::{Lines, tokens};
use crate::support::{HostSampler, alone, fresh_rng};

const CHAINS: usize = 24;
const N_VOCAB: usize = 3000;

/// Returns chain `i`. Every third has a built-in, and every seventh leaves no token.
fn chain(i: usize) -> HostSampler {
    let mut members = vec![
        HostSampler::new(llama_sieve_init_top_k(5 + i as i32)),
        HostSampler::new(llama_sieve_init_temp(0.5 + i as f32 / 8.0)),
    ];
    if i % 3 == 1 {
        // SAFETY: a constructor without preconditions.
        members.push(HostSampler::new(unsafe {
            sys::llama_sampler_init_min_p(0.02, 1)
        }));
    }
    if i % 7 != 6 {
        members.push(HostSampler::new(llama_sieve_init_dist(i as u32)));
    }
    HostSampler::chain(members)
}

fn pointers(chains: &[HostSampler]) -> Vec<*mut llama_sampler> {
    chains.iter().map(|chain| chain.as_ptr().cast()).collect()
}

fn sample_batch(chains: &[*mut llama_sampler], logits: &[Vec<f32>], threads: i32) -> Vec<i32> {
    let rows: Vec<*const f32> = logits.iter().map(|row| row.as_ptr()).collect();
    let mut out = vec![0; chains.len()];
    // SAFETY: live chains, as many rows of logits, and room for as many tokens.
    unsafe {
        llama_sieve_chain_sample_batch(
            chains.as_ptr(),
            rows.as_ptr(),
            N_VOCAB as i32,
            chains.len(),
            out.as_mut_ptr(),
            threads,
        );
    }
    out
}

fn sample_alone(chains: &[*mut llama_sampler], logits: &[Vec<f32>]) -> Vec<i32> {
    let both = chains.iter().zip(logits);
    let token = |(&chain, row): (&*mut llama_sampler, &Vec<f32>)| {
        // SAFETY: a live chain, and that many logits.
        unsafe { llama_sieve_chain_sample_logits(chain, row.as_ptr(), N_VOCAB as i32) }
    };
    both.map(token).collect()
}

fn logits() -> Vec<Vec<f32>> {
    let mut rng = fresh_rng("logits of a batch");
    let mut row = || (0..N_VOCAB).map(|_| 3.0 * rng.normal()).collect();
    (0..CHAINS).map(|_| row()).collect()
}

/// Returns the lines of tokens, sorted, without times and sequences, which depend on the batch.
fn told(lines: &[Value]) -> Vec<String> {
    let timeless = |line: &&Value| {
        let mut line = (*line).clone();
        let fields = line.as_object_mut().expect("an object");
        for field in ["ms", "us", "trace_us", "sequence"] {
            fields.remove(field);
        }
        for stage in fields["stages"].as_array_mut().expect("stages") {
            stage.as_object_mut().expect("an object").remove("us");
        }
        line.to_string()
    };
    let mut told: Vec<String> = tokens(lines).iter().map(timeless).collect();
    told.sort();
    told
}

#[test]
fn a_batch_is_recorded_as_its_chains_alone() {
    let _alone = alone();
    llama_sieve::log::set_sink(Some(Arc::new(|_, _| {})));
    let logits = logits();
    let [plain, single]: [Vec<HostSampler>; 2] =
        std::array::from_fn(|_| (0..CHAINS).map(chain).collect());
    let expected = sample_batch(&pointers(&plain), &logits, 1);
    let lines = Lines::begin("");
    assert_eq!(sample_alone(&pointers(&single), &logits), expected);
    let alone = told(&lines.end());
    let chosen = expected.iter().filter(|&&token| token >= 0).count();
    assert!(chosen < CHAINS && alone.len() == chosen, "{expected:?}");
    for threads in [1, 4] {
        let chains: Vec<HostSampler> = (0..CHAINS).map(chain).collect();
        let lines = Lines::begin("");
        assert_eq!(sample_batch(&pointers(&chains), &logits, threads), expected);
        let lines = lines.end();
        assert_eq!(told(&lines), alone, "{threads} threads");
        let mut sequences: Vec<u64> = tokens(&lines)
            .iter()
            .map(|line| line["sequence"].as_u64().expect("a number"))
            .collect();
        sequences.sort_unstable();
        sequences.dedup();
        assert_eq!(sequences.len(), chosen);
    }
    llama_sieve::log::set_sink(None);
}

#[test]
fn what_threads_sample_for_a_function_is_not_recorded() {
    let _alone = alone();
    let logits = logits();
    let heard = Arc::new(AtomicUsize::new(0));
    let (count, is_inside) = (heard.clone(), AtomicBool::new(false));
    let function = move |_: &[u8]| {
        count.fetch_add(1, Ordering::Relaxed);
        if is_inside.swap(true, Ordering::Relaxed) {
            return;
        }
        // Neither thread continues before the other has started.
        let both = Barrier::new(2);
        share(&mut [(), ()], 2, |()| {
            both.wait();
            let mut chain = Chain::new().with(TopK::new(5)).with(Some(Greedy));
            chain.sample(&logits[0][..]).expect("a token");
        });
        is_inside.store(false, Ordering::Relaxed);
    };
    trace::to_function(Arc::new(function), Options::default()).expect("it cannot fail");
    let chain = chain(0);
    sample_batch(&pointers(&[chain]), &self::logits()[..1], 1);
    trace::stop();
    // The lines for the start, the chain, and its token.
    assert_eq!(heard.load(Ordering::Relaxed), 3);
}
