//! The sieve in PARITY against the built-in chain: the same candidates and tokens, bit for bit; and
//! FAST against PARITY: the same distribution.

use std::collections::{BTreeMap, HashSet};

use crate::support::arrays::{Array, Recipe, Rng, Shape};
use crate::support::compare::same;
use crate::support::{HostSampler, fresh_rng, number_from_env, replay, trained_model};
use llama_sieve::TokenData;
use llama_sieve::ffi::sieve::*;
use llama_sieve::sieve::{Error, Method, Mode, Order, Params, RngKind, Sieve};
use vendor_llama_cpp::{Context, Model, sys};

/// The chain of built-ins that PARITY stands for.
fn built_in_chain(params: &Params, n_vocab: i32) -> HostSampler {
    let bias: Vec<sys::llama_logit_bias> = params
        .bias
        .iter()
        .map(|&(token, bias)| sys::llama_logit_bias { token, bias })
        .collect();
    // SAFETY: constructors without preconditions; the biases are copied.
    unsafe {
        let temp = || HostSampler::new(sys::llama_sampler_init_temp(params.temperature));
        let mut members = vec![
            HostSampler::new(sys::llama_sampler_init_logit_bias(
                n_vocab,
                bias.len() as i32,
                bias.as_ptr(),
            )),
            HostSampler::new(sys::llama_sampler_init_penalties(
                n_vocab,
                params.penalty_last_n,
                params.penalty_repeat,
                params.penalty_freq,
                params.penalty_present,
            )),
        ];
        if params.order == Order::TempFirst {
            members.push(temp());
        }
        let keep = params.min_keep;
        members.push(HostSampler::new(sys::llama_sampler_init_top_k(
            params.top_k,
        )));
        members.push(HostSampler::new(sys::llama_sampler_init_typical(
            params.typical_p,
            keep,
        )));
        members.push(HostSampler::new(sys::llama_sampler_init_top_p(
            params.top_p,
            keep,
        )));
        members.push(HostSampler::new(sys::llama_sampler_init_min_p(
            params.min_p,
            keep,
        )));
        members.push(HostSampler::new(sys::llama_sampler_init_top_n_sigma(
            params.top_n_sigma,
        )));
        if params.order == Order::TempLast {
            members.push(temp());
        }
        members.push(HostSampler::new(sys::llama_sampler_init_dist(
            params.seed as u32,
        )));
        HostSampler::chain(members)
    }
}

/// Parameters of which each stage is on or off at random.
fn random_params(rng: &mut Rng, n: usize) -> Params {
    let mut params = Params {
        mode: Mode::Parity,
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
        ]),
        top_p: rng.pick(&[1.0, 0.95, 0.5, 0.1, 0.0, -1.0, 0.999, 2.0]),
        min_p: rng.pick(&[0.0, 0.05, 0.3, 0.001, 1.0, 1.5, -0.1]),
        typical_p: rng.pick(&[1.0, 1.0, 1.0, 0.9, 0.2, 0.0]),
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
            let token = rng.below(n + 3) as i32;
            let bias = rng.pick(&[1.5, -2.25, f32::NEG_INFINITY]);
            if params.bias.iter().all(|b| b.0 != token) {
                params.bias.push((token, bias));
            }
        }
    }
    params
}

/// Logits of every kind, with and without ties, infinities of both signs among them. A token whose
/// logit a bias of minus infinity would make NaN has another: of NaN the chain makes nothing that
/// is defined.
fn random_logits(params: &Params, rng: &mut Rng, n: usize) -> Vec<f32> {
    let array = Recipe::random(rng).array(n, n, rng);
    let mut logits: Vec<f32> = array.data.iter().map(|c| c.logit).collect();
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

/// Logits as a model gives them, no two alike: FAST promises nothing about which of equals it
/// keeps.
fn distinct_logits(rng: &mut Rng, n: usize) -> Vec<f32> {
    let shape = rng.pick(&[
        Shape::Peaked,
        Shape::Peaked,
        Shape::Flat,
        Shape::Masked,
        Shape::Wide,
    ]);
    let array = shape.array(n, rng);
    let mut seen = HashSet::new();
    let distinct = array.data.iter().map(|c| {
        let mut logit = c.logit;
        while logit > f32::NEG_INFINITY && !seen.insert(logit.to_bits()) {
            logit = logit.next_up();
        }
        logit
    });
    distinct.collect()
}

fn random_size(rng: &mut Rng) -> usize {
    let (low, high) = rng.pick(&[(1, 10), (10, 200), (10, 200), (200, 1500), (1500, 6000)]);
    low + rng.below(high - low)
}

/// What the sieve left, as a host has it.
pub fn array_of(candidates: &[TokenData], like: &Array) -> Array {
    let data = candidates.iter().map(|c| sys::llama_token_data {
        id: c.id,
        logit: c.logit,
        p: c.p,
    });
    Array {
        data: data.collect(),
        ..*like
    }
}

/// Whether bias and penalties leave nothing but minus infinity.
fn masked_after_penalties(chain: &HostSampler, array: &Array) -> bool {
    let mut array = array.clone();
    chain.apply_member(0, &mut array);
    chain.apply_member(1, &mut array);
    array.data.iter().all(|c| c.logit == f32::NEG_INFINITY)
}

/// 20,000 by default; LLAMA_SIEVE_PARITY_CASES sets another number.
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
                // The chain draws all the same, from the same generator.
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                masked += 1;
                break;
            }
            infinite += usize::from(logits.contains(&f32::INFINITY));
            chain.apply(&mut array);
            let theirs = array.data[array.selected as usize].id;
            if array.selects_none() {
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                break;
            }
            let ours = sieve.sample(&logits).expect("there is a candidate");
            // Which candidate was chosen is compared as a token.
            let left = array_of(sieve.candidates(), &array);
            assert_eq!(same(&left, &array), Ok(()), "{what}");
            assert_eq!(ours, theirs, "{what}");
            sieve.accept(ours);
            chain.accept(ours);
            // Some history besides.
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
        c.mode = LLAMA_SIEVE_MODE_PARITY;
        c.rng = LLAMA_SIEVE_RNG_MT19937;
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

/// Candidates with a probability, and it.
fn distribution(candidates: &[TokenData]) -> BTreeMap<i32, f32> {
    let live = candidates.iter().filter(|c| c.logit > f32::NEG_INFINITY);
    live.map(|c| (c.id, c.p)).collect()
}

/// FAST and PARITY leave the same candidates, but where rounding decides at a threshold; and those
/// have the same probabilities.
#[test]
fn fast_leaves_the_candidates_of_parity() {
    let cases = number_from_env("LLAMA_SIEVE_PARITY_CASES", 20_000);
    let mut rng = Rng(501);
    let (mut compared, mut all, mut different) = (0usize, 0usize, 0usize);
    let mut cases_apart = 0;
    for case in 0..cases {
        // Some as large as a vocabulary.
        let n = match case % 500 {
            0 => 30_000 + rng.below(100_000),
            _ => random_size(&mut rng),
        };
        let params = random_params(&mut rng, n);
        // With masked tokens, and where probabilities vanish, the built-in typical computes with
        // NaN; FAST leaves such tokens out.
        let logits = distinct_logits(&mut rng, n);
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let divisor = match params.order {
            Order::TempFirst => params.temperature.min(1.0),
            Order::TempLast => 1.0,
        };
        let gap = |logit: &f32| (largest - logit) / divisor;
        let vanishing = logits.iter().any(|l| gap(l) > 40.0) || !params.bias.is_empty();
        if params.typical_p < 1.0 && vanishing {
            continue;
        }
        // Greedy skips the filters, and typical may have removed the largest.
        if params.is_greedy() && params.typical_p < 1.0 {
            continue;
        }
        let mut parity = Sieve::new(&params).expect("valid parameters");
        let fast = Params {
            mode: Mode::Fast,
            ..params.clone()
        };
        let mut fast = Sieve::new(&fast).expect("valid parameters");
        for _ in 0..rng.below(80) {
            let token = rng.below(n) as i32;
            parity.accept(token);
            fast.accept(token);
        }
        let (a, b) = (parity.sample(&logits), fast.sample(&logits));
        if a.is_err() || b.is_err() {
            assert_eq!(a, b);
            continue;
        }
        compared += 1;
        let expected = distribution(parity.candidates());
        let found = distribution(fast.candidates());
        all += expected.len();
        let missing = expected.keys().filter(|id| !found.contains_key(id)).count();
        let extra = found.keys().filter(|id| !expected.contains_key(id)).count();
        if missing + extra > 0 {
            different += missing + extra;
            cases_apart += 1;
            // One or two at a threshold, never a share of the set.
            assert!(
                missing + extra <= 2 + expected.len() / 100,
                "case {case}, n {n}: {missing} missing, {extra} more of {}; {params:?}",
                expected.len()
            );
            continue;
        }
        for (id, p) in &expected {
            let error = (p - found[id]).abs();
            assert!(
                error <= 1e-5 * p.max(1e-3),
                "case {case}: token {id}: {p} != {}",
                found[id]
            );
        }
    }
    eprintln!("{compared} cases: {cases_apart} differ, by {different} of {all} candidates");
    assert!(
        different * 10_000 < all,
        "{different} of {all} candidates differ"
    );
    assert!(
        cases_apart * 10_000 <= compared.max(10_000),
        "{cases_apart} of {compared} cases differ"
    );
}

/// With llama.cpp's generator and top-k on, FAST, too, chooses the built-in chain's tokens.
#[test]
fn fast_with_top_k_and_mt19937_chooses_the_tokens_of_the_chain() {
    let mut rng = Rng(502);
    for _ in 0..300 {
        let n = 100 + rng.below(5000);
        let params = Params {
            mode: Mode::Fast,
            top_k: 40,
            temperature: rng.pick(&[0.3, 0.8, 1.2]),
            bias: Vec::new(),
            ..random_params(&mut rng, n)
        };
        let chain = built_in_chain(&params, n as i32);
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        for _ in 0..5 {
            let array = Shape::Peaked.array(n, &mut rng);
            let logits: Vec<f32> = array.data.iter().map(|c| c.logit).collect();
            let mut array = array;
            chain.apply(&mut array);
            let theirs = array.data[array.selected as usize].id;
            if array.selects_none() {
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{params:?}");
                break;
            }
            let ours = sieve.sample(&logits).expect("there is a candidate");
            assert_eq!(ours, theirs, "{params:?}");
            sieve.accept(ours);
            chain.accept(ours);
        }
    }
}

/// Both methods draw from the same candidates.
#[test]
fn the_method_changes_the_draw_not_the_candidates() {
    let mut rng = Rng(503);
    for _ in 0..200 {
        let n = random_size(&mut rng);
        let params = Params {
            mode: Mode::Fast,
            ..random_params(&mut rng, n)
        };
        let logits = distinct_logits(&mut rng, n);
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
