//! Compares a sieve, after other samplers in a host's chain, with the chain of built-ins that it
//! replaces.

use crate::support::arrays::Shape;
use crate::support::{HostSampler, fresh_rng, replay};
use llama_sieve::ffi::host::llama_h::llama_logit_bias;
use llama_sieve::ffi::sieve::{llama_sieve_default_params, llama_sieve_init_sampler};
use vendor_llama_cpp::sys;

const N: usize = 2000;

/// Returns the sampler before the sieve: none, one that sorts and cuts, one that cuts, or one that
/// moves candidates.
fn in_front(kind: usize) -> Option<HostSampler> {
    // SAFETY: constructors without preconditions.
    unsafe {
        match kind {
            1 => Some(HostSampler::new(sys::llama_sampler_init_top_k(40))),
            2 => Some(HostSampler::new(sys::llama_sampler_init_min_p(0.001, 1))),
            3 => Some(HostSampler::new(sys::llama_sampler_init_top_p(0.99, 1))),
            _ => None,
        }
    }
}

/// Candidates that were sorted or cut keep their mark, sorted or not, after a bias. A candidate
/// that is not at the index of its id gets only the first of its biases.
#[test]
fn a_sieve_with_biases_does_what_the_built_ins_do_behind_any_sampler() {
    let mut rng = fresh_rng("sieve_member");
    for case in 0..60 {
        let biases: Vec<llama_logit_bias> = (0..rng.below(30))
            .map(|_| llama_logit_bias {
                token: rng.below(200) as i32,
                bias: rng.pick(&[3.0, -2.5, 0.25, f32::NEG_INFINITY]),
            })
            .collect();
        let seed = 1 + rng.below(1000) as u32;
        let mut params = llama_sieve_default_params();
        params.top_k = 0;
        params.seed = seed.into();
        (params.bias, params.n_bias) = (biases.as_ptr(), biases.len());
        // SAFETY: whole parameters, and constructors with valid arguments.
        let (sieve, built_ins) = unsafe {
            let bias = biases.as_ptr().cast();
            (
                HostSampler::new(llama_sieve_init_sampler(&params)),
                [
                    sys::llama_sampler_init_logit_bias(N as i32, biases.len() as i32, bias),
                    sys::llama_sampler_init_top_p(params.top_p, 1),
                    sys::llama_sampler_init_min_p(params.min_p, 1),
                    sys::llama_sampler_init_temp(params.temperature),
                    sys::llama_sampler_init_dist(seed),
                ],
            )
        };
        let kind = case % 4;
        let ours = HostSampler::chain(in_front(kind).into_iter().chain([sieve]).collect());
        let members = built_ins.map(HostSampler::new);
        let theirs = HostSampler::chain(in_front(kind).into_iter().chain(members).collect());
        for token in 0..40 {
            let mut of_ours = rng.pick(&[Shape::Peaked, Shape::Flat]).array(N, &mut rng);
            // The most probable candidates are those with biases.
            for candidate in of_ours.data.iter_mut().take(200) {
                candidate.logit += 6.0;
            }
            let mut of_theirs = of_ours.clone();
            ours.apply(&mut of_ours);
            theirs.apply(&mut of_theirs);
            let (a, b) = (of_ours.chosen().id, of_theirs.chosen().id);
            assert_eq!(a, b, "{}: case {case}, token {token}", replay());
        }
    }
}
