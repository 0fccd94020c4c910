//! Compares long generations on logits like those of a model in half precision, full of ties: ten
//! chains of this library's samplers with the same chains of built-ins, on vocabularies of 32,000
//! to 151,936 tokens. No token and no bit of a candidate may differ, nor any token of the same
//! chains straight from the logits.
//!
//! Runs 4,000 tokens; LLAMA_SIEVE_TEST_TOKENS sets another number, a million for the long run:
//! `LLAMA_SIEVE_TEST_TOKENS=1000000 cargo test --release --locked --test samplers rounded`.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::arrays::{Recipe, Rng, Shape};
use crate::support::compare::same;
use crate::support::straight::Straight;
use crate::support::{Grid, HostSampler, both, fresh_rng, number_from_env, replay};

/// The sizes of vocabularies, mostly the smallest: ties are as frequent, and a million tokens take
/// hours less.
const SIZES: [usize; 8] = [
    32_000, 32_000, 32_000, 32_000, 32_000, 50_257, 128_256, 151_936,
];
/// The number of tokens in one generation.
const LENGTH: usize = 50;

/// Returns the members of a chain, on both sides, for a vocabulary of `n` tokens.
type Members = fn(n: i32, seed: u32) -> Vec<[HostSampler; 2]>;

fn dist(seed: u32) -> [HostSampler; 2] {
    both!(llama_sieve_init_dist, llama_sampler_init_dist; seed)
}

fn temp() -> [HostSampler; 2] {
    both!(llama_sieve_init_temp, llama_sampler_init_temp; 0.8)
}

fn top_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_top_p, llama_sampler_init_top_p; 0.95, 1)
}

fn min_p() -> [HostSampler; 2] {
    both!(llama_sieve_init_min_p, llama_sampler_init_min_p; 0.05, 1)
}

const CHAINS: [(&str, Members); 10] = [
    ("default", |_, seed| {
        let top_k = both!(llama_sieve_init_top_k, llama_sampler_init_top_k; 40);
        vec![top_k, top_p(), min_p(), temp(), dist(seed)]
    }),
    ("top-p", |_, seed| vec![top_p(), dist(seed)]),
    ("typical", |_, seed| {
        let typical = both!(llama_sieve_init_typical, llama_sampler_init_typical; 0.9, 1);
        vec![typical, dist(seed)]
    }),
    ("min-p", |_, seed| vec![min_p(), temp(), dist(seed)]),
    ("xtc", |_, seed| {
        let xtc = both!(llama_sieve_init_xtc, llama_sampler_init_xtc; 0.7, 0.05, 1, seed);
        vec![xtc, dist(seed)]
    }),
    ("dynamic temperature", |_, seed| {
        let temp_ext = both!(llama_sieve_init_temp_ext, llama_sampler_init_temp_ext; 0.8, 0.3, 1.0);
        vec![temp_ext, dist(seed)]
    }),
    ("mirostat 1", |n, seed| {
        vec![both!(llama_sieve_init_mirostat, llama_sampler_init_mirostat; n, seed, 5.0, 0.1, 100)]
    }),
    ("mirostat 2", |_, seed| {
        vec![both!(llama_sieve_init_mirostat_v2, llama_sampler_init_mirostat_v2; seed, 5.0, 0.1)]
    }),
    ("top-n-sigma", |_, seed| {
        let sigma = both!(llama_sieve_init_top_n_sigma, llama_sampler_init_top_n_sigma; 1.0);
        vec![sigma, temp(), dist(seed)]
    }),
    ("adaptive-p", |_, seed| {
        let adaptive =
            both!(llama_sieve_init_adaptive_p, llama_sampler_init_adaptive_p; 0.5, 0.9, seed);
        vec![min_p(), adaptive]
    }),
];

/// Compares some tokens of one chain.
fn generate(name: &str, members: Members, rng: &mut Rng) {
    let n = rng.pick(&SIZES);
    let recipe = Recipe {
        grid: rng.pick(&[Grid::F16, Grid::Bf16]),
        ..Recipe::of_shape(rng.pick(&[Shape::Peaked, Shape::Flat]))
    };
    let (mut ours, mut theirs) = (vec![], vec![]);
    for [a, b] in members(n as i32, rng.next() as u32 >> 1) {
        ours.push(a);
        theirs.push(b);
    }
    let (ours, theirs) = (HostSampler::chain(ours), HostSampler::chain(theirs));
    // The same chain, straight from the logits.
    let straight = ours.clone();
    for position in 0..LENGTH {
        let mut array = recipe.array(n, n, rng);
        let mut expected = array.clone();
        let logits = array.logits();
        ours.apply(&mut array);
        theirs.apply(&mut expected);
        if let Err(difference) = same(&array, &expected) {
            panic!(
                "{name}, {n}, {recipe:?}, token {position}, {}: {difference}",
                replay()
            );
        }
        let token = array.chosen().id;
        let from_logits = Straight::new(&logits, Grid::F32).sample(&straight);
        let what = format!("{name}, {n}, {recipe:?}, token {position}, {}", replay());
        assert_eq!(from_logits, token, "from logits: {what}");
        for side in [&ours, &straight, &theirs] {
            side.accept(token);
        }
    }
}

#[test]
fn ten_chains_choose_the_tokens_of_the_built_ins() {
    let tokens = number_from_env("LLAMA_SIEVE_TEST_TOKENS", 4000);
    let generations = tokens.div_ceil(LENGTH);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let generation = next.fetch_add(1, Ordering::Relaxed);
                    if generation >= generations {
                        return;
                    }
                    let (name, members) = CHAINS[generation % CHAINS.len()];
                    let mut rng = fresh_rng(&format!("generation {generation}"));
                    generate(name, members, &mut rng);
                }
            });
        }
    });
    println!("{} tokens, none different", generations * LENGTH);
}
