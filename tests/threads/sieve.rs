//! Tests sieves and threads: each thread may use its own sieve, and two threads with one sieve get
//! an error, not a data race.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::support::alone;
use crate::support::arrays::{Rng, Shape};
use llama_sieve::ffi::library::LLAMA_SIEVE_ERROR_BUSY;
use llama_sieve::ffi::sieve::{
    Handle, llama_sieve_accept, llama_sieve_default_params, llama_sieve_free, llama_sieve_new,
    llama_sieve_sample,
};

#[derive(Clone, Copy)]
struct Shared(*mut Handle);
// SAFETY: the functions of a sieve may be called from any thread. It is tested that they refuse a
// second thread at the same time.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

fn new(seed: u64) -> Shared {
    let mut params = llama_sieve_default_params();
    params.seed = seed;
    // SAFETY: a whole struct.
    let sieve = unsafe { llama_sieve_new(&params) };
    assert!(!sieve.is_null());
    Shared(sieve)
}

fn logits() -> Vec<f32> {
    Shape::Peaked.array(50_000, &mut Rng(41)).logits()
}

fn sample(sieve: Shared, logits: &[f32]) -> i32 {
    // SAFETY: the sieve lives, the logits have that length.
    unsafe { llama_sieve_sample(sieve.0, logits.as_ptr(), logits.len() as i32) }
}

#[test]
fn two_threads_with_one_sieve_get_an_error() {
    let _alone = alone();
    let logits = logits();
    let sieve = new(1);
    let (busy, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..200_000 {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    let token = sample(sieve, &logits);
                    assert!(token >= 0 || token == LLAMA_SIEVE_ERROR_BUSY, "{token}");
                    if token == LLAMA_SIEVE_ERROR_BUSY {
                        busy.fetch_add(1, Ordering::Relaxed);
                        done.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert!(busy.load(Ordering::Relaxed) > 0, "the two never met");
    assert!(sample(sieve, &logits) >= 0);
    // SAFETY: not used any more.
    unsafe { llama_sieve_free(sieve.0) };
}

#[test]
fn threads_with_their_own_sieves_generate_alike() {
    let _alone = alone();
    let logits = logits();
    let generate = || -> Vec<i32> {
        let sieve = new(9);
        let next = |_| {
            let token = sample(sieve, &logits);
            // SAFETY: the sieve lives.
            unsafe { llama_sieve_accept(sieve.0, token) };
            token
        };
        let tokens = (0..50).map(next).collect();
        // SAFETY: not used any more.
        unsafe { llama_sieve_free(sieve.0) };
        tokens
    };
    let alone = generate();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(generate)).collect();
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), alone);
        }
    });
}
