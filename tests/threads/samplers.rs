//! Tests independent samplers on many threads: each thread has its own chain of all samplers, and
//! all must get the same tokens.
//!
//! `ci/sanitize tsan` runs this under ThreadSanitizer. Runs 10,000 steps; LLAMA_SIEVE_TEST_STEPS
//! sets another number.

use crate::support::arrays::{Rng, Shape};
use crate::support::family::FAMILY;
use crate::support::{HostSampler, alone, number_from_env};

const THREADS: usize = 16;

/// Runs the samplers of one thread. Returns a hash of everything that they selected and kept.
fn work(steps: usize) -> u64 {
    let mut rng = Rng(41);
    let mut digest = 0u64;
    let mut samplers: Vec<HostSampler> = Vec::new();
    for step in 0..steps {
        if step % 100 == 0 {
            samplers = FAMILY
                .iter()
                .map(|member| (member.make)(&mut rng, 2048, true).ours)
                .collect();
        }
        let mut array = Shape::Peaked.array(1 + rng.below(40), &mut rng);
        for (sampler, member) in samplers.iter_mut().zip(FAMILY) {
            sampler.apply(&mut array);
            sampler.accept(rng.below(50) as i32);
            if rng.chance(0.01) {
                *sampler = sampler.clone();
            }
            // Some of the members here empty the array for those after them.
            let empty = array.data.is_empty();
            for candidate in &array.data {
                let bits = u64::from(candidate.logit.to_bits()) ^ candidate.id as u64;
                digest = (digest ^ bits).wrapping_mul(0x0100_0000_01B3);
            }
            if empty || member.name == "infill" {
                array = Shape::Flat.array(1 + rng.below(40), &mut rng);
            }
        }
    }
    digest
}

#[test]
fn sixteen_threads_with_their_own_samplers_do_not_disturb_each_other() {
    let _alone = alone();
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
    // A first round on one thread, for everything that is set up once: the vocabulary, and the
    // tables of the host's tokenizer. ThreadSanitizer does not see how the standard libraries of
    // Rust and C++ make other threads wait for that.
    work(1);
    let steps = number_from_env("LLAMA_SIEVE_TEST_STEPS", 10_000);
    let threads: Vec<_> = (0..THREADS)
        .map(|_| std::thread::spawn(move || work(steps)))
        .collect();
    let digests: Vec<u64> = threads
        .into_iter()
        .map(|t| t.join().expect("no panic"))
        .collect();
    assert!(
        digests.iter().all(|&digest| digest == digests[0]),
        "{digests:?}"
    );
}
