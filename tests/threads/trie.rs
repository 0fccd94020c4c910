//! Tests tries on many threads: 64 threads set, clone, sample and free at random, share one slot
//! and its handle, and churn the cache.
//!
//! `ci/sanitize tsan` runs this under ThreadSanitizer. Runs for a second; LLAMA_SIEVE_TEST_SECONDS
//! sets another length.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::arrays::Rng;
use crate::support::span::{json, one};
use crate::support::{Array, HostSampler, alone, number_from_env};
use llama_sieve::ffi::library::LLAMA_SIEVE_OK;
use llama_sieve::ffi::trie::handles::*;
use llama_sieve::ffi::trie::*;
use llama_sieve::last_error;

const THREADS: u64 = 64;

fn slot() -> HostSampler {
    // SAFETY: without a vocabulary nothing is followed.
    HostSampler::new(unsafe { llama_sieve_init_trie_slot(std::ptr::null()) })
}

fn set(smpl: *mut vendor_llama_cpp::sys::llama_sampler, json: &str) -> i32 {
    // SAFETY: the sampler lives, the length is the text's.
    unsafe { llama_sieve_trie_set(smpl.cast(), json.as_ptr().cast(), json.len(), 1) }
}

/// Returns a payload with one value of two tokens, `2 * n` and `2 * n + 1`.
fn payload(n: usize) -> String {
    let first = 2 * n as i32;
    json(&one(vec![(format!("v{n}"), vec![first, first + 1])]))
}

/// The number of payloads, more than the cache holds.
const PAYLOADS: usize = 200;

fn array() -> Array {
    Array::of_logits((0..2 * PAYLOADS).map(|i| (i % 7) as f32))
}

/// The minimum number of constraints that a thread sets, so that all threads set most payloads,
/// more than the cache holds, on a slow machine as well.
const LEAST: usize = 10;

/// Threads that share nothing but the cache: each sees its own constraint, exactly.
fn work_alone(seed: u64, end: Instant) {
    let mut rng = Rng(seed);
    let mut sampler = slot();
    for round in 0.. {
        if round >= LEAST && Instant::now() >= end {
            break;
        }
        let n = rng.below(PAYLOADS);
        assert_eq!(set(sampler.as_ptr(), &payload(n)), LLAMA_SIEVE_OK);
        if rng.chance(0.3) {
            sampler = sampler.clone();
        }
        for token in [2 * n, 2 * n + 1] {
            let mut array = array();
            sampler.apply(&mut array);
            assert_eq!(array.ids(), [token as i32]);
            sampler.accept(token as i32);
        }
        let mut free = array();
        sampler.apply(&mut free);
        assert_eq!(free, array(), "the span is complete");
        if rng.chance(0.1) {
            sampler = slot();
        }
    }
}

#[test]
fn sixty_four_threads_share_the_cache() {
    let _alone = alone();
    let seconds = number_from_env("LLAMA_SIEVE_TEST_SECONDS", 1) as u64;
    let end = Instant::now() + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..THREADS)
        .map(|seed| std::thread::spawn(move || work_alone(seed, end)))
        .collect();
    threads
        .into_iter()
        .for_each(|t| t.join().expect("no panic"));
    let mut stats = llama_sieve_cache_stats {
        hits: 0,
        misses: 0,
        evictions: 0,
        entries: 0,
        bytes: 0,
    };
    // SAFETY: writable.
    unsafe { llama_sieve_trie_cache_stats(&raw mut stats) };
    assert!(stats.entries <= 128 && stats.evictions > 0, "{stats:?}");
    assert!(stats.hits + stats.misses > stats.evictions, "{stats:?}");
}

#[test]
fn a_slot_is_set_by_handle_while_a_token_is_being_sampled() {
    let _alone = alone();
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    static STOP: AtomicBool = AtomicBool::new(false);
    let handle = std::ptr::without_provenance_mut::<c_void>(0xABCD);
    let sampler = slot();
    // SAFETY: the sampler lives; the handle is only compared.
    let bound = unsafe { eliza_inference_bind_token_trie(handle, sampler.as_ptr().cast()) };
    assert_eq!(bound, LLAMA_SIEVE_OK);
    let handle = handle.addr();
    let setters: Vec<_> = (0..4)
        .map(|seed| {
            std::thread::spawn(move || {
                let handle = std::ptr::without_provenance_mut::<c_void>(handle);
                let mut rng = Rng(seed);
                while !STOP.load(Ordering::Relaxed) {
                    let json = payload(rng.below(PAYLOADS));
                    // SAFETY: the length is the text's; the handle is only compared.
                    unsafe {
                        eliza_inference_set_token_trie(handle, json.as_ptr().cast(), json.len(), 1)
                    };
                    if rng.chance(0.2) {
                        eliza_inference_clear_token_trie(handle);
                    }
                }
            })
        })
        .collect();
    let seconds = number_from_env("LLAMA_SIEVE_TEST_SECONDS", 1) as u64;
    let end = Instant::now() + Duration::from_secs(seconds);
    // On a busy machine, no setter may have run by the end. The loop then waits for one, for at
    // most ten minutes.
    let latest = end + Duration::from_secs(600);
    let mut constrained = 0;
    while Instant::now() < end || (constrained == 0 && Instant::now() < latest) {
        let mut array = array();
        sampler.apply(&mut array);
        // Either one whole constraint or none, never a mixture or a part.
        assert!(array.data.len() == 1 || array.data.len() == 2 * PAYLOADS);
        constrained += usize::from(array.data.len() == 1);
        sampler.accept(array.data[0].id);
    }
    STOP.store(true, Ordering::Relaxed);
    setters
        .into_iter()
        .for_each(|t| t.join().expect("no panic"));
    assert!(constrained > 0);

    // A freed slot and an unknown handle give an error.
    drop(sampler);
    let handle = std::ptr::without_provenance_mut::<c_void>(handle);
    eliza_inference_clear_token_trie(handle);
    assert!(last_error::get().contains("no live token trie sampler"));
    eliza_inference_clear_token_trie(std::ptr::without_provenance_mut(1));
    assert!(last_error::get().contains("no live token trie sampler"));
    // SAFETY: NULL is allowed.
    unsafe {
        assert!(eliza_inference_bind_token_trie(std::ptr::null_mut(), std::ptr::null_mut()) < 0);
        assert_eq!(
            eliza_inference_bind_token_trie(handle, std::ptr::null_mut()),
            LLAMA_SIEVE_OK
        );
        assert!(eliza_inference_bind_token_trie(handle, std::ptr::null_mut()) < 0);
    }
}
