//! Tests that no drop-in allocates after warm-up, neither in `apply` nor in `accept`.

use crate::counting_allocator::{bytes_since, without_allocating};
use crate::support::arrays::{Array, Shape};
use crate::support::family::{FAMILY, vocabulary};
use crate::support::{HostSampler, alone, fresh_rng};
use llama_sieve::errors::LLAMA_SIEVE_ERROR_NO_CANDIDATE;
use llama_sieve::ffi::bans::{
    LLAMA_SIEVE_BAN_FOLD_CASE, llama_sieve_init_ban_strings, llama_sieve_init_ban_strings_bias,
};
use llama_sieve::ffi::chain::llama_sieve_chain_sample_batch;
use llama_sieve::ffi::loops::llama_sieve_init_loop_breaker;
use llama_sieve::ffi::samplers as sieve;
use llama_sieve::ffi::samplers::{llama_sieve_init_dist, llama_sieve_init_top_k};
use vendor_llama_cpp::sys;

/// Samples a token from `logits` with `chain`. There must be one.
fn sample_logits(chain: &HostSampler, logits: &[f32]) {
    let token = chain.sample_logits(logits);
    assert!(token >= 0, "{}", llama_sieve::last_error::get());
}

#[test]
fn no_drop_in_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 4000;
    let mut rng = fresh_rng("no_drop_in_allocates_after_warm_up");
    for member in FAMILY {
        for _ in 0..20 {
            let pair = (member.make)(&mut rng, N as i32, true);
            let mut arrays = Vec::new();
            for _ in 0..20 {
                let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Shuffled]);
                arrays.push(shape.array(N.min(member.max_size), &mut rng));
            }
            // Warm-up: every path that these arrays take, and a window in which every token has
            // been replaced. Twice, since some samplers choose a method by the previous array.
            for array in arrays.iter().chain(&arrays) {
                pair.ours.apply(&mut array.clone());
            }
            for _ in 0..5000 {
                pair.ours.accept(rng.below(N) as i32);
            }
            without_allocating(&pair.label, || {
                for array in &mut arrays {
                    pair.ours.apply(array);
                    pair.ours.accept(rng.below(N) as i32);
                }
            });
        }
    }
}

/// Returns the samplers that llama.cpp does not have.
fn others() -> Vec<HostSampler> {
    let made = [
        sieve::llama_sieve_init_top_a(0.2),
        sieve::llama_sieve_init_epsilon_cutoff(3e-4),
        sieve::llama_sieve_init_eta_cutoff(3e-4),
        sieve::llama_sieve_init_p_less(false),
        sieve::llama_sieve_init_p_less(true),
        sieve::llama_sieve_init_top_h(0.4),
        sieve::llama_sieve_init_min_k(0.0),
        sieve::llama_sieve_init_quadratic(0.2, 1.5),
    ];
    let texts = [c"the", c"e", c"LORD"].map(std::ffi::CStr::as_ptr);
    let vocab = vocabulary().cast();
    // SAFETY: a live vocabulary, and as many strings as the call is told; NULL is allowed.
    let others = unsafe {
        [
            llama_sieve_init_ban_strings(vocab, texts.as_ptr(), 3, 0),
            llama_sieve_init_ban_strings(vocab, texts.as_ptr(), 3, LLAMA_SIEVE_BAN_FOLD_CASE),
            llama_sieve_init_ban_strings_bias(vocab, texts.as_ptr(), 3, 0, -2.0),
            llama_sieve_init_ban_strings_bias(
                vocab,
                texts.as_ptr(),
                3,
                LLAMA_SIEVE_BAN_FOLD_CASE,
                -2.0,
            ),
            llama_sieve_init_loop_breaker(std::ptr::null()),
        ]
    };
    made.into_iter()
        .chain(others)
        .map(HostSampler::new)
        .collect()
}

/// Samplers that llama.cpp does not have do not allocate either, on arrays and on logits, with a
/// draw after them.
#[test]
fn no_other_sampler_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 9000;
    let mut rng = fresh_rng("no_other_sampler_allocates_after_warm_up");
    for sampler in others() {
        let label = sampler.name();
        // What a bias adds in a state of its automaton is found when a text first reaches it.
        let mut small = Shape::Flat.array(16, &mut rng);
        for token in 0..2000 {
            sampler.accept(token);
            sampler.apply(&mut small);
        }
        sampler.reset();
        let dist = HostSampler::new(llama_sieve_init_dist(1));
        let chain = HostSampler::chain(vec![sampler.clone(), dist]);
        let shapes = [Shape::Peaked, Shape::Flat, Shape::Masked];
        let arrays: Vec<Array> = shapes.map(|shape| shape.array(N, &mut rng)).into();
        let mut use_all = |mut arrays: Vec<Array>, logits: &[Vec<f32>]| {
            for (array, logits) in arrays.iter_mut().zip(logits) {
                sampler.apply(array);
                sample_logits(&chain, logits);
                for _ in 0..200 {
                    sampler.accept(rng.below(2000) as i32);
                }
            }
            arrays
        };
        let logits: Vec<Vec<f32>> = arrays.iter().map(Array::logits).collect();
        // Warm-up by the first array only. Others of the same size keep more candidates, or fewer.
        for _ in 0..2 {
            use_all(arrays[..1].to_vec(), &logits);
        }
        let mut left = Vec::new();
        without_allocating(&label, || left = use_all(arrays, &logits));
        assert_eq!(left.len(), shapes.len());
    }
}

/// A new sampler uses the buffers that other samplers have left to their thread, even while these
/// samplers are still in use. Its first array allocates less than a byte per candidate, where a
/// buffer has four.
#[test]
fn buffers_belong_to_the_thread() {
    let _alone = alone();
    const N: usize = 4000;
    let mut rng = fresh_rng("buffers_belong_to_the_thread");
    for member in FAMILY {
        for _ in 0..5 {
            let pair = (member.make)(&mut rng, N as i32, true);
            let mut arrays = Vec::new();
            for shape in [Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Shuffled] {
                arrays.push(shape.array(N.min(member.max_size), &mut rng));
            }
            for array in arrays.iter().chain(&arrays) {
                pair.ours.apply(&mut array.clone());
            }
            for array in &mut arrays {
                let n = array.data.len();
                let made = pair.ours.clone();
                let before = bytes_since(0);
                made.apply(array);
                let taken = bytes_since(before);
                assert!(taken < n.max(512) as isize, "{}: {taken}", pair.label);
            }
        }
    }
}

/// The memory that a thread keeps after its samplers are freed is bounded by the largest array.
#[test]
fn a_thread_keeps_one_buffer_of_each_kind() {
    let _alone = alone();
    const N: usize = 40_000;
    let kept = std::thread::spawn(|| {
        let mut rng = fresh_rng("a_thread_keeps_one_buffer_of_each_kind");
        let before = bytes_since(0);
        for member in FAMILY {
            for _ in 0..5 {
                let pair = (member.make)(&mut rng, N as i32, true);
                for shape in [Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Shuffled] {
                    let mut array = shape.array(N.min(member.max_size), &mut rng);
                    pair.ours.apply(&mut array);
                }
            }
        }
        bytes_since(before)
    });
    let kept = kept.join().expect("no panic") as usize / N;
    println!("{kept} bytes for each candidate");
    assert!(
        (100..400).contains(&kept),
        "{kept} bytes for each candidate"
    );
}

/// After sorted arrays, top-k does not allocate for an unsorted one, even if that has more
/// candidates.
#[test]
fn no_top_k_allocates_behind_sorted_arrays() {
    let _alone = alone();
    let mut rng = fresh_rng("no_top_k_allocates_behind_sorted_arrays");
    for (n_sorted, n) in [(2, 128), (128, 128), (4000, 4000), (40_000, 40_000)] {
        let top_k = HostSampler::new(llama_sieve_init_top_k(40));
        let mut unsorted = Shape::Peaked.array(n, &mut rng);
        let mut sorted = unsorted.clone();
        sorted.data.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        sorted.data.truncate(n_sorted);
        for _ in 0..3 {
            top_k.apply(&mut sorted.clone());
        }
        without_allocating(&n, || top_k.apply(&mut unsorted));
    }
}

/// A sampler that takes over the state of another by `llama_sampler_copy` does not allocate
/// afterwards, since it keeps its buffers.
#[test]
fn no_drop_in_allocates_after_a_copy() {
    let _alone = alone();
    const N: usize = 4000;
    let mut rng = fresh_rng("no_drop_in_allocates_after_a_copy");
    for member in FAMILY {
        for _ in 0..10 {
            let pair = (member.make)(&mut rng, N as i32, false);
            let chain =
                HostSampler::chain(vec![pair.ours, HostSampler::new(llama_sieve_init_dist(1))]);
            // A repetition, for samplers that remember tokens.
            for token in [1, 2, 3, 1, 2, 3, 1, 2] {
                chain.accept(token);
            }
            let source = chain.clone();
            let array = Shape::Peaked.array(N.min(member.max_size), &mut rng);
            let logits = array.logits();
            if chain.clone().sample_logits(&logits) == LLAMA_SIEVE_ERROR_NO_CANDIDATE {
                continue;
            }
            let sample = |mut array: Array| {
                chain.apply(&mut array);
                sample_logits(&chain, &logits);
                array
            };
            for _ in 0..3 {
                chain.copy_from(&source);
                sample(array.clone());
            }
            chain.copy_from(&source);
            without_allocating(&pair.label, || sample(array));
        }
    }
}

/// A chain that samples from logits does not allocate when it sees the same logits again.
#[test]
fn no_chain_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 9000;
    let mut rng = fresh_rng("no_chain_allocates_after_warm_up");
    let (mut made, mut kept) = (0, 0);
    for member in FAMILY {
        if member.max_size < N {
            continue;
        }
        // At a threshold of 0, XTC now and then leaves a masked candidate, if there is one, since
        // it acts at random.
        let shapes = match member.name {
            "xtc" => &[Shape::Peaked, Shape::Flat][..],
            _ => &[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Few],
        };
        for _ in 0..4 {
            let pair = (member.make)(&mut rng, N as i32, false);
            let chain = HostSampler::chain(vec![pair.ours]);
            let dist = llama_sieve::ffi::samplers::llama_sieve_init_dist(1);
            chain.add(HostSampler::new(dist));
            let mut all = Vec::new();
            for _ in 0..12 {
                all.push(rng.pick(shapes).array(N, &mut rng).logits());
            }
            // A tiny temperature may leave no candidate, which is reported by a message.
            made += all.len();
            all.retain(|logits| chain.sample_logits(logits) != LLAMA_SIEVE_ERROR_NO_CANDIDATE);
            kept += all.len();
            for _ in 0..3 {
                all.iter().for_each(|logits| sample_logits(&chain, logits));
            }
            let label = format!("a chain of {}", pair.label);
            without_allocating(&label, || {
                all.iter().for_each(|logits| sample_logits(&chain, logits))
            });
        }
    }
    assert!(kept > made * 9 / 10, "{kept} of {made}");
}

/// A batch does not allocate either: chains of this library's samplers, of built-ins, and of both.
/// It runs on one thread, since handing work to a helper allocates.
#[test]
fn no_batch_of_chains_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 9000;
    const CHAINS: usize = 6;
    let mut rng = fresh_rng("no_batch_of_chains_allocates_after_warm_up");
    let arrays: Vec<Array> = (0..2 * CHAINS)
        .map(|_| Shape::Peaked.array(N, &mut rng))
        .collect();
    let logits: Vec<Vec<f32>> = arrays.iter().map(Array::logits).collect();
    // SAFETY: constructors without preconditions.
    let chains: Vec<HostSampler> = (0..CHAINS as u32)
        .map(|i| unsafe {
            let top_k = match i % 3 {
                0 => HostSampler::new(sys::llama_sampler_init_top_k(40)),
                _ => HostSampler::new(llama_sieve_init_top_k(40)),
            };
            HostSampler::chain(vec![top_k, HostSampler::new(llama_sieve_init_dist(i))])
        })
        .collect();
    let pointers: Vec<_> = chains.iter().map(|chain| chain.as_ptr().cast()).collect();
    let mut out = [0; CHAINS];
    let mut sample = |logits: &[Vec<f32>]| {
        let logits: [*const f32; CHAINS] = std::array::from_fn(|i| logits[i].as_ptr());
        let (chains, logits) = (pointers.as_ptr(), logits.as_ptr());
        let (n, out) = (N as i32, out.as_mut_ptr());
        // SAFETY: as many live chains, logits and results as the call is told.
        let code = unsafe { llama_sieve_chain_sample_batch(chains, logits, n, CHAINS, out, 1) };
        assert_eq!(code, 0, "{}", llama_sieve::last_error::get());
    };
    let (first, second) = logits.split_at(CHAINS);
    sample(first);
    sample(second);
    without_allocating(&"a batch", || {
        sample(first);
        sample(second);
    });
}
