//! Compares the sieve with the built-in chain: candidates and tokens must be the same, bit for bit.

use std::collections::HashSet;
use std::ptr::{null, null_mut};

use crate::logits;
use crate::stages::built_in;
use crate::support::arrays::{Array, Recipe, Rng, Shape};
use crate::support::compare::same;
use crate::support::family::vocabulary;
use crate::support::{
    HostSampler, fresh_rng, logit_biases, number_from_env, replay, trained_model,
};
use llama_sieve::TokenData;
use llama_sieve::ffi::sieve::*;
use llama_sieve::sieve::{Error, Method, Mode, Order, Params, RngKind, Sieve, Stage};
use vendor_llama_cpp::{Context, Model, sys};

/// Returns the chain of built-ins for the stages, in the order of the parameters.
fn built_in_chain(params: &Params, n_vocab: i32) -> HostSampler {
    let filters = [
        Stage::TopK,
        Stage::Typical,
        Stage::TopP,
        Stage::MinP,
        Stage::TopNSigma,
    ];
    let mut stages = vec![Stage::Penalties];
    stages.extend(filters);
    let place = match params.order {
        Order::TempFirst => 1,
        Order::TempLast => stages.len(),
    };
    stages.insert(place, Stage::Temperature);
    let [_, bias] = logit_biases(n_vocab, &params.bias);
    // SAFETY: a constructor without preconditions.
    let dist = unsafe { sys::llama_sampler_init_dist(params.seed as u32) };
    let mut members = vec![bias];
    members.extend(stages.iter().map(|stage| built_in(stage, params, n_vocab)));
    members.push(HostSampler::new(dist));
    HostSampler::chain(members)
}

/// Returns random parameters, with each stage on or off.
fn random_params(rng: &mut Rng, n: usize) -> Params {
    let mut params = Params {
        mode: rng.pick(&[Mode::Fast, Mode::Parity]),
        rng: RngKind::Mt19937,
        temperature: rng.pick(&[0.0, 0.1, 0.5, 0.8, 1.0, 1.3, 2.5]),
        top_k: rng.pick(&[
            40,
            0,
            -1,
            1,
            2,
            7,
            1000,
            n as i32,
            n as i32 - 1,
            2 * n as i32,
            i32::MAX,
            i32::MIN,
        ]),
        top_p: rng.pick(&[1.0, 0.95, 0.5, 0.1, 0.0, -1.0, 0.999, 2.0]),
        min_p: rng.pick(&[0.0, 0.05, 0.3, 0.001, 1.0, 1.5, -0.1]),
        typical_p: rng.pick(&[1.0, 1.0, 7.0, 0.9, 0.2, 0.0]),
        top_n_sigma: rng.pick(&[-1.0, -1.0, 0.0, 1.0, 2.5, 0.1]),
        min_keep: rng.pick(&[1, 1, 1, 0, 2, 5, 60]),
        penalty_last_n: rng.pick(&[64, 0, 1, 5, -1]),
        penalty_repeat: rng.pick(&[1.1, 1.0, 1.5, 0.8]),
        penalty_freq: rng.pick(&[0.0, 0.0, 0.2, -0.1]),
        penalty_present: rng.pick(&[0.0, 0.0, 0.4, -0.2]),
        seed: rng.next() >> 40,
        order: rng.pick(&[Order::TempLast, Order::TempLast, Order::TempFirst]),
        ..Params::default()
    };
    if rng.chance(0.3) {
        for _ in 0..rng.below(5) {
            let token = rng.below(n + 4) as i32 - 1;
            let bias = rng.pick(&[1.5, -2.25, f32::NEG_INFINITY]);
            if params.bias.iter().all(|b| b.0 != token) {
                params.bias.push((token, bias));
            }
        }
    }
    params
}

/// Returns logits of every kind, with and without ties, and with infinities of both signs. A logit
/// that a bias of minus infinity would make NaN is replaced, since the chain is undefined on NaN.
fn random_logits(params: &Params, rng: &mut Rng, n: usize) -> Vec<f32> {
    let mut logits = Recipe::random(rng).array(n, n, rng).logits();
    if rng.chance(0.05) {
        for _ in 0..1 + rng.below(3) {
            let infinities = [f32::INFINITY, f32::INFINITY, f32::NEG_INFINITY];
            let at = rng.below(logits.len());
            logits[at] = rng.pick(&infinities);
        }
    }
    for &(token, bias) in &params.bias {
        match logits.get_mut(token as usize) {
            Some(logit) if (*logit + bias).is_nan() => *logit = 1.0,
            _ => {}
        }
    }
    logits
}

fn random_size(rng: &mut Rng) -> usize {
    let (low, high) = rng.pick(&[(1, 10), (10, 200), (10, 200), (200, 1500), (1500, 6000)]);
    low + rng.below(high - low)
}

/// True if bias and penalties leave no logit above minus infinity.
fn masked_after_penalties(chain: &HostSampler, array: &Array) -> bool {
    let mut array = array.clone();
    chain.apply_member(0, &mut array);
    chain.apply_member(1, &mut array);
    array.data.iter().all(|c| c.logit == f32::NEG_INFINITY)
}

/// Runs 20,000 cases; LLAMA_SIEVE_PARITY_CASES sets another number.
#[test]
fn parity_is_the_built_in_chain_for_random_parameters() {
    let cases = number_from_env("LLAMA_SIEVE_PARITY_CASES", 20_000);
    let mut rng = fresh_rng("parity");
    let (mut tokens, mut infinite, mut masked) = (0, 0, 0);
    for case in 0..cases {
        let n = random_size(&mut rng);
        let params = random_params(&mut rng, n);
        let chain = built_in_chain(&params, n as i32);
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        for step in 0..3 {
            let logits = random_logits(&params, &mut rng, n);
            let replay = replay();
            let what = format!("{replay}, case {case}, step {step}, n {n}, {params:?}");
            let mut array = Array::of_logits(logits.iter().copied());
            if masked_after_penalties(&chain, &array) {
                // The chain still draws a number from the same generator.
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                masked += 1;
                break;
            }
            infinite += usize::from(logits.contains(&f32::INFINITY));
            chain.apply(&mut array);
            let theirs = array.chosen().id;
            if array.selects_none() {
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                break;
            }
            let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            let before = bits(&logits);
            let ours = sieve.sample(&logits).expect("there is a candidate");
            assert!(bits(&logits) == before, "written to: {what}");
            // The chosen candidate is compared by its token.
            let left = array.with(sieve.candidates());
            assert_eq!(same(&left, &array), Ok(()), "{what}");
            assert_eq!(ours, theirs, "{what}");
            sieve.accept(ours);
            chain.accept(ours);
            // An additional token for the history.
            let other = rng.below(n + 2) as i32;
            sieve.accept(other);
            chain.accept(other);
            tokens += 1;
        }
    }
    eprintln!(
        "{cases} parameter sets, {tokens} tokens and candidate arrays, {infinite} of them with plus \
         infinity; {masked} without a candidate"
    );
    assert!(infinite >= cases / 100, "{infinite}");
}

/// Whole generations on the trained model, straight from its context.
#[test]
fn parity_gives_the_text_of_the_built_in_chain() {
    const SEEDS: u64 = 50;
    const TOKENS: usize = 200;
    let model = Model::load(trained_model()).expect("the model loads");
    let n_vocab = model.n_vocab() as i32;
    let prompt = model.tokenize("And the LORD said", true);
    let n_ctx = (prompt.len() + TOKENS) as u32;
    let mut context = Context::new(&model, n_ctx, 1).expect("a context");
    let mut texts = HashSet::new();
    let room = model.n_vocab();
    let mut drawn_from = vec![TokenData::default(); room];
    for seed in 0..SEEDS {
        let pick = |values: &[f32], shift: u32| values[(seed >> shift) as usize % values.len()];
        let mut c = llama_sieve_default_params();
        c.seed = seed;
        c.top_k = [40, 0, 1000, 5][seed as usize % 4];
        c.top_p = pick(&[0.95, 1.0, 0.5], 1);
        c.min_p = pick(&[0.05, 0.0, 0.01], 0);
        c.typical_p = pick(&[1.0, 1.0, 0.9], 1);
        c.top_n_sigma = pick(&[-1.0, 1.5], 2);
        c.temperature = pick(&[0.8, 1.0, 1.7], 1);
        c.order = (seed % 3 == 2).into();
        let params = Params {
            seed,
            top_k: c.top_k,
            top_p: c.top_p,
            min_p: c.min_p,
            typical_p: c.typical_p,
            top_n_sigma: c.top_n_sigma,
            temperature: c.temperature,
            order: if c.order == 1 {
                Order::TempFirst
            } else {
                Order::TempLast
            },
            ..Params::default()
        };
        let chain = built_in_chain(&params, n_vocab);
        // SAFETY: the parameters are a whole struct.
        let sieve = unsafe { llama_sieve_new(&c) };
        assert!(!sieve.is_null());
        context.clear();
        context.decode(&prompt).expect("the prompt fits");
        let mut tokens = Vec::new();
        for position in 0..TOKENS {
            let theirs = chain.sample(context.as_ptr());
            // SAFETY: sieve and context live.
            let ours = unsafe { llama_sieve_sample_ctx(sieve, context.as_ptr().cast(), -1) };
            assert_eq!(ours, theirs, "seed {seed}, token {position}");
            // SAFETY: the sieve lives, and there is room for the whole vocabulary.
            let n = unsafe { llama_sieve_candidates(sieve, drawn_from.as_mut_ptr(), room) };
            let drawn_from = &drawn_from[..n as usize];
            let sum: f64 = drawn_from.iter().map(|c| f64::from(c.p)).sum();
            assert!((sum - 1.0).abs() < 1e-5, "seed {seed}: {sum}");
            assert!(drawn_from.iter().any(|c| c.id == ours && c.p > 0.0));
            tokens.push(ours);
            context.decode(&[ours]).expect("there is room");
        }
        texts.insert(tokens);
        // SAFETY: not used any more.
        unsafe { llama_sieve_free(sieve) };
    }
    assert!(texts.len() > SEEDS as usize / 2, "{} texts", texts.len());
}

/// Returns the default chain of llama.cpp's programs.
fn default_chain(seed: u32, n_vocab: i32) -> HostSampler {
    // SAFETY: constructors without preconditions, but for the vocabulary, which lives.
    let members = unsafe {
        [
            sys::llama_sampler_init_logit_bias(n_vocab, 0, null()),
            sys::llama_sampler_init_penalties(n_vocab, 64, 1.0, 0.0, 0.0),
            sys::llama_sampler_init_dry(vocabulary(), 0.0, 1.75, 2, 64, null_mut(), 0),
            sys::llama_sampler_init_top_n_sigma(-1.0),
            sys::llama_sampler_init_top_k(40),
            sys::llama_sampler_init_typical(1.0, 0),
            sys::llama_sampler_init_top_p(0.95, 0),
            sys::llama_sampler_init_min_p(0.05, 0),
            sys::llama_sampler_init_xtc(0.0, 0.1, 0, seed),
            sys::llama_sampler_init_temp_ext(0.8, 0.0, 1.0),
            sys::llama_sampler_init_dist(seed),
        ]
    };
    HostSampler::chain(members.map(HostSampler::new).into())
}

/// Tests the defaults with only a seed, from Rust and from C, in both modes.
#[test]
fn the_defaults_give_the_tokens_of_the_default_chain() {
    const N: usize = 5_000;
    let mut rng = fresh_rng("the_defaults_give_the_tokens_of_the_default_chain");
    for seed in [0, 7, 42, 4_000_000_000] {
        let chain = default_chain(seed, N as i32);
        let params = Params {
            seed: seed.into(),
            ..Params::default()
        };
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        let of_c = [None, Some(LLAMA_SIEVE_MODE_FAST)].map(|mode| {
            let mut c = llama_sieve_default_params();
            c.seed = seed.into();
            c.mode = mode.unwrap_or(c.mode);
            // SAFETY: the parameters are a whole struct.
            unsafe { llama_sieve_new(&c) }
        });
        for position in 0..200 {
            let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Jitter, Shape::Few]);
            let logits = logits(shape, N, &mut rng);
            let mut array = Array::of_logits(logits.iter().copied());
            chain.apply(&mut array);
            let theirs = array.chosen().id;
            chain.accept(theirs);
            let what = format!("{}, seed {seed}, token {position}", replay());
            assert_eq!(sieve.sample(&logits), Ok(theirs), "{what}");
            sieve.accept(theirs);
            for of_c in of_c {
                // SAFETY: the sieve lives, and there are as many logits.
                unsafe {
                    let token = llama_sieve_sample(of_c, logits.as_ptr(), N as i32);
                    assert_eq!(token, theirs, "{what}");
                    llama_sieve_accept(of_c, token);
                }
            }
        }
        for of_c in of_c {
            // SAFETY: not used any more.
            unsafe { llama_sieve_free(of_c) };
        }
    }
}

/// Both methods draw from the same candidates.
#[test]
fn the_method_changes_the_draw_not_the_candidates() {
    let mut rng = Rng(503);
    for _ in 0..200 {
        let n = random_size(&mut rng);
        let params = random_params(&mut rng, n);
        let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Wide]);
        let logits = logits(shape, n, &mut rng);
        let mut cdf = Sieve::new(&params).expect("valid parameters");
        let gumbel = Params {
            method: Method::Gumbel,
            ..params
        };
        let mut gumbel = Sieve::new(&gumbel).expect("valid parameters");
        if cdf.sample(&logits).is_ok() {
            let token = gumbel.sample(&logits).expect("the other did");
            assert_eq!(cdf.candidates(), gumbel.candidates());
            assert!(gumbel.candidates().iter().any(|c| c.id == token));
        }
    }
}
