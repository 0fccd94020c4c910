//! Compares stages in any order with the same built-ins in a chain, bit for bit. Also tests what
//! they remember, and their errors.

use crate::states::{KINDS, saved};
use crate::support::arrays::{Array, Recipe, Rng};
use crate::support::compare::same;
use crate::support::family::vocabulary;
use crate::support::{HostSampler, fresh_rng, number_from_env, replay};
use llama_sieve::ffi::sieve::*;
use llama_sieve::samplers::DryParams;
use llama_sieve::sieve::{Error, Method, Params, RngKind, Sieve, SieveSampler, Stage};
use llama_sieve::{Candidates, Sampler, TokenData};
use std::ptr::null_mut;
use vendor_llama_cpp::sys;

/// Returns the stages that change candidates, in a random order, and perhaps one that draws after
/// them.
fn random_stages(rng: &mut Rng) -> Vec<Stage> {
    let mut stages = vec![
        Stage::Penalties,
        Stage::Dry(DryParams {
            multiplier: rng.pick(&[0.8, 1.5, 0.0]),
            base: rng.pick(&[1.75, 1.0, 3.0]),
            allowed_length: rng.pick(&[2, 0, 1]),
            last_n: rng.pick(&[64, 5, 0]),
        }),
        Stage::TopK,
        Stage::Typical,
        Stage::TopP,
        Stage::MinP,
        Stage::TopNSigma,
        Stage::Xtc {
            probability: rng.pick(&[0.5, 1.0, 0.0]),
            threshold: rng.pick(&[0.1, 0.02, 0.0, 0.6]),
        },
        Stage::Temperature,
        Stage::DynamicTemperature {
            range: rng.pick(&[0.3, 0.0, 1.5]),
            exponent: rng.pick(&[1.0, 2.0]),
        },
    ];
    rng.shuffle(&mut stages);
    stages.truncate(1 + rng.below(stages.len()));
    let (tau, eta) = (rng.pick(&[5.0, 2.0, 8.0]), rng.pick(&[0.1, 1.0]));
    match rng.below(6) {
        0 => stages.push(Stage::Mirostat {
            tau,
            eta,
            m: rng.pick(&[100, 2, 0]),
        }),
        1 => stages.push(Stage::MirostatV2 { tau, eta }),
        2 => stages.push(Stage::AdaptiveP {
            target: rng.pick(&[0.5, 0.1, -1.0]),
            decay: rng.pick(&[0.9, 0.0, 0.99]),
        }),
        _ => {}
    }
    stages
}

pub fn random_params(rng: &mut Rng) -> Params {
    Params {
        rng: RngKind::Mt19937,
        temperature: rng.pick(&[0.8, 1.0, 1.5, 0.0]),
        top_k: rng.pick(&[40, 0, 5, 1000]),
        top_p: rng.pick(&[0.95, 0.5, 1.0]),
        min_p: rng.pick(&[0.05, 0.0, 0.3]),
        typical_p: rng.pick(&[1.0, 0.9]),
        top_n_sigma: rng.pick(&[-1.0, 1.0, 2.5]),
        min_keep: rng.pick(&[1, 0, 3]),
        penalty_last_n: rng.pick(&[64, 4, 0]),
        penalty_repeat: rng.pick(&[1.1, 1.5, 1.0]),
        penalty_present: rng.pick(&[0.0, 0.4]),
        seed: rng.next() >> 40,
        ..Params::default()
    }
}

/// Returns a logit for each token of the vocabulary, with and without ties and masked logits.
pub fn random_logits(rng: &mut Rng, n: usize) -> Vec<f32> {
    let mut logits = Recipe::random(rng).array(n, n, rng).logits();
    logits.resize_with(n, || 2.0 * rng.normal());
    logits
}

/// Returns the built-in for a stage, with the sieve's seed.
pub fn built_in(stage: &Stage, params: &Params, n_vocab: i32) -> HostSampler {
    let seed = params.seed as u32;
    let keep = params.min_keep;
    // SAFETY: constructors without preconditions, but for the vocabulary, which lives.
    HostSampler::new(unsafe {
        match *stage {
            Stage::Penalties => sys::llama_sampler_init_penalties(
                n_vocab,
                params.penalty_last_n,
                params.penalty_repeat,
                params.penalty_freq,
                params.penalty_present,
            ),
            Stage::Dry(dry) => sys::llama_sampler_init_dry(
                vocabulary(),
                dry.multiplier,
                dry.base,
                dry.allowed_length,
                dry.last_n,
                null_mut(),
                0,
            ),
            Stage::TopK => sys::llama_sampler_init_top_k(params.top_k),
            Stage::Typical => sys::llama_sampler_init_typical(params.typical_p, keep),
            Stage::TopP => sys::llama_sampler_init_top_p(params.top_p, keep),
            Stage::MinP => sys::llama_sampler_init_min_p(params.min_p, keep),
            Stage::TopNSigma => sys::llama_sampler_init_top_n_sigma(params.top_n_sigma),
            Stage::Xtc {
                probability,
                threshold,
            } => sys::llama_sampler_init_xtc(probability, threshold, keep, seed),
            Stage::Temperature => sys::llama_sampler_init_temp(params.temperature),
            Stage::DynamicTemperature { range, exponent } => {
                sys::llama_sampler_init_temp_ext(params.temperature, range, exponent)
            }
            Stage::Mirostat { tau, eta, m } => {
                sys::llama_sampler_init_mirostat(n_vocab, seed, tau, eta, m)
            }
            Stage::MirostatV2 { tau, eta } => sys::llama_sampler_init_mirostat_v2(seed, tau, eta),
            Stage::AdaptiveP { target, decay } => {
                sys::llama_sampler_init_adaptive_p(target, decay, seed)
            }
            Stage::Sampler(slot) => unreachable!("slot {slot} holds no built-in"),
        }
    })
}

/// Returns the chain of built-ins for these stages, each with the sieve's seed.
fn built_ins(stages: &[Stage], params: &Params, n_vocab: i32) -> HostSampler {
    let member = |stage: &Stage| built_in(stage, params, n_vocab);
    let mut members: Vec<HostSampler> = stages.iter().map(member).collect();
    if !stages.last().is_some_and(|stage| stage.draws()) {
        let seed = params.seed as u32;
        // SAFETY: a constructor without preconditions.
        members.push(HostSampler::new(unsafe {
            sys::llama_sampler_init_dist(seed)
        }));
    }
    HostSampler::chain(members)
}

/// Returns the sieve after operations that are possible between any two calls and change no token.
fn disturbed(rng: &mut Rng, mut sieve: Sieve, stages: &[Stage]) -> Sieve {
    // Sets the stages and the parameters that it already has.
    if rng.chance(0.2) {
        sieve.set_stages(Some(stages)).expect("good stages");
    }
    if rng.chance(0.2) {
        let params = sieve.params().clone();
        sieve.set_params(&params).expect("good parameters");
    }
    if rng.chance(0.05) {
        sieve
            .reserve(1 + rng.below(1_000))
            .expect("there is memory");
    }
    sieve.measure(rng.chance(0.2));
    // Replaces the original by a copy.
    if rng.chance(0.2) {
        let left = sieve.candidates().to_vec();
        sieve = sieve.clone();
        assert_eq!(format!("{:?}", sieve.candidates()), format!("{left:?}"));
    }
    // Replaces the original by a sieve with the saved state.
    if rng.chance(0.2) {
        let bytes = saved(&sieve);
        sieve = Sieve::new(&Params::default()).expect("good parameters");
        sieve.set_stages(Some(stages)).expect("good stages");
        sieve.load_with_params(&bytes).expect("the same stages");
    }
    sieve
}

/// Runs 3,000 orders; LLAMA_SIEVE_TEST_CHAINS sets another number.
#[test]
fn stages_in_any_order_are_the_chain_of_the_built_ins() {
    let cases = number_from_env("LLAMA_SIEVE_TEST_CHAINS", 3_000);
    let mut rng = fresh_rng("stages");
    let mut tokens = 0;
    for case in 0..cases {
        let n = rng.pick(&[3, 60, 400, 5_000]) + rng.below(50);
        let (params, stages) = (random_params(&mut rng), random_stages(&mut rng));
        let chain = built_ins(&stages, &params, n as i32);
        let mut sieve = Sieve::new(&params).expect("good parameters");
        sieve.set_stages(Some(&stages)).expect("good stages");
        assert_eq!(sieve.stages(), Some(&stages[..]));
        for step in 0..6 {
            let logits = random_logits(&mut rng, n);
            let mut array = Array::of_logits(logits.iter().copied());
            let what = format!(
                "{}, case {case}, step {step}, {params:?}, {stages:?}",
                replay()
            );
            if logits.iter().all(|&logit| logit == f32::NEG_INFINITY) {
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                break;
            }
            chain.apply(&mut array);
            let theirs = array.chosen().id;
            if array.selects_none() {
                assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate), "{what}");
                break;
            }
            sieve = disturbed(&mut rng, sieve, &stages);
            let ours = sieve.sample(&logits).expect("there is a candidate");
            let left = array.with(sieve.candidates());
            assert_eq!(same(&left, &array), Ok(()), "{what}");
            assert_eq!(ours, theirs, "{what}");
            // Also while adaptive-p waits for its token to be accepted.
            sieve = disturbed(&mut rng, sieve, &stages);
            // Repetitions, for DRY.
            let tokens_of_text = [ours, rng.below(4) as i32, rng.below(4) as i32];
            for token in tokens_of_text {
                sieve.accept(token);
                chain.accept(token);
            }
            tokens += 1;
        }
    }
    eprintln!("{cases} orders, {tokens} tokens");
}

/// Checks random stages as one sampler of a chain, with candidates that are a part of the
/// vocabulary in another order.
#[test]
fn stages_in_a_chain_see_the_candidates_that_are_left() {
    let mut rng = fresh_rng("stages in a chain");
    for case in 0..500 {
        let n = 50 + rng.below(3_000);
        let (params, mut stages) = (random_params(&mut rng), random_stages(&mut rng));
        // Mirostat's estimate needs the size of the vocabulary, which is not known there.
        stages.retain(|stage| !matches!(stage, Stage::Mirostat { .. }));
        let chain = built_ins(&stages, &params, n as i32);
        let mut sieve = Sieve::new(&params).expect("good parameters");
        sieve.set_stages(Some(&stages)).expect("good stages");
        let mut sampler = SieveSampler::from(sieve);
        for step in 0..4 {
            let what = format!(
                "{}, case {case}, step {step}, {params:?}, {stages:?}",
                replay()
            );
            let mut array = Recipe::random(&mut rng).array(n / 2, n, &mut rng);
            let mut data = array.tokens();
            if data.iter().all(|c| c.logit == f32::NEG_INFINITY) {
                break;
            }
            let mut candidates = Candidates::new(&mut data, array.sorted);
            sampler.apply(&mut candidates);
            let chosen = candidates.selected().expect("one is");
            let ours = Array {
                sorted: candidates.is_sorted(),
                selected: chosen as i64,
                ..array.with(candidates.as_slice())
            };
            let token = ours.data[chosen].id;
            chain.apply(&mut array);
            assert_eq!(token, array.chosen().id, "{what}");
            assert_eq!(same(&ours, &array), Ok(()), "{what}");
            sampler.accept(token);
            chain.accept(token);
        }
    }
}

const DRY: Stage = Stage::Dry(DryParams {
    multiplier: 0.8,
    base: 1.75,
    allowed_length: 1,
    last_n: 64,
});
const XTC: Stage = Stage::Xtc {
    probability: 0.5,
    threshold: 0.05,
};
const MIROSTAT: Stage = Stage::MirostatV2 { tau: 3.0, eta: 0.3 };
const ADAPTIVE_P: Stage = Stage::AdaptiveP {
    target: 0.3,
    decay: 0.9,
};

fn logits_at(position: i32) -> Vec<f32> {
    let mut rng = Rng(position as u64 + 7);
    (0..300).map(|_| 2.0 * rng.normal()).collect()
}

/// Samples and accepts the tokens at `positions`. Returns the tokens.
fn text(sieve: &mut Sieve, positions: std::ops::Range<i32>) -> Vec<i32> {
    let token = |position| {
        let token = sieve.sample(&logits_at(position)).expect("a candidate");
        sieve.accept(token % 5);
        token
    };
    positions.map(token).collect()
}

fn with_stages(rng: RngKind, method: Method, stages: &[Stage]) -> Sieve {
    let params = Params {
        rng,
        method,
        seed: 5,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params).expect("good parameters");
    sieve.set_stages(Some(stages)).expect("good stages");
    sieve
}

/// Tests copies, saved states and resets with every generator and every stage that remembers
/// something.
#[test]
fn stages_go_on_where_they_were() {
    for rng in KINDS {
        for last in [Stage::Temperature, MIROSTAT, ADAPTIVE_P] {
            let stages = [DRY, Stage::Penalties, XTC, last];
            let mut sieve = with_stages(rng, Method::Cdf, &stages);
            let beginning = text(&mut sieve, 0..40);
            let state = saved(&sieve);
            let mut copy = sieve.clone();
            let rest = text(&mut sieve, 40..80);
            assert_eq!(text(&mut copy, 40..80), rest, "{rng:?}, {last:?}");
            sieve.load(&state).expect("its own state");
            assert_eq!(saved(&sieve), state);
            assert_eq!(text(&mut sieve, 40..80), rest, "{rng:?}, {last:?}");
            sieve.reset();
            assert_eq!(text(&mut sieve, 0..40), beginning, "{rng:?}, {last:?}");
            // Reserving room for a vocabulary changes nothing.
            let state = saved(&sieve);
            sieve.reserve(1000).expect("there is memory");
            assert_eq!(saved(&sieve), state);
            assert_eq!(text(&mut sieve, 40..80), rest, "{rng:?}, {last:?}");
        }
    }
}

/// With the positional generator, and stages that remember nothing, a token depends only on its
/// position.
#[test]
fn a_position_is_replayed_alone() {
    let stages = [Stage::TopK, XTC, Stage::Temperature];
    for method in [Method::Cdf, Method::Gumbel] {
        let mut sieve = with_stages(RngKind::Position, method, &stages);
        let all = text(&mut sieve, 0..50);
        for position in [0, 17, 49] {
            let mut other = with_stages(RngKind::Position, method, &stages);
            (0..position).for_each(|_| other.accept(1));
            let token = other.sample(&logits_at(position)).expect("a candidate");
            assert_eq!(token, all[position as usize]);
        }
    }
}

/// XTC acts as often as its probability says, with every generator.
#[test]
fn what_draws_is_told_by_other_numbers() {
    for rng in KINDS {
        let xtc = Stage::Xtc {
            probability: 0.3,
            threshold: 0.2,
        };
        let mut sieve = with_stages(rng, Method::Cdf, &[xtc]);
        // XTC removes the first token when it acts. The others are equally probable.
        let logits = [1.2f32, 1.0, 1.0];
        let (mut acted, mut second) = (0, 0);
        const TOKENS: i32 = 30_000;
        for _ in 0..TOKENS {
            let token = sieve.sample(&logits).expect("a candidate");
            sieve.accept(token);
            acted += i32::from(sieve.candidates().len() < 3);
            second += i32::from(sieve.candidates().len() == 1);
        }
        // Both equal tokens are above the threshold, so two are removed.
        assert_eq!(acted, second);
        let share = f64::from(acted) / f64::from(TOKENS);
        assert!((share - 0.3).abs() < 0.015, "{rng:?}: {share}");
    }
}

/// The 32-bit value that means a random seed has no such meaning as the lower half of a 64-bit
/// seed.
#[test]
fn stages_that_draw_begin_at_the_seed() {
    for last in [
        XTC,
        Stage::Mirostat {
            tau: 3.0,
            eta: 0.3,
            m: 100,
        },
        MIROSTAT,
        ADAPTIVE_P,
    ] {
        let make = || {
            let params = Params {
                rng: RngKind::Mt19937,
                seed: 0x1_FFFF_FFFF,
                ..Params::default()
            };
            let mut sieve = Sieve::new(&params).expect("good parameters");
            sieve.set_stages(Some(&[last])).expect("good stages");
            sieve
        };
        let (mut sieve, mut other) = (make(), make());
        let beginning = text(&mut sieve, 0..40);
        assert_eq!(text(&mut other, 0..40), beginning, "{last:?}");
        sieve.reset();
        assert_eq!(text(&mut sieve, 0..40), beginning, "{last:?}");
    }
}

/// Tests dynamic temperature around several temperatures, most of which would be greedy alone.
#[test]
fn a_temperature_moves_around_any_middle() {
    let mut rng = fresh_rng("middles");
    for temperature in [-1.0, -0.2, 0.0, 0.0005, 0.3] {
        for range in [0.0, 0.4, 2.0] {
            let params = Params {
                temperature,
                ..random_params(&mut rng)
            };
            let stages = [Stage::DynamicTemperature {
                range,
                exponent: 1.0,
            }];
            let chain = built_ins(&stages, &params, 300);
            let mut sieve = Sieve::new(&params).expect("good parameters");
            sieve.set_stages(Some(&stages)).expect("good stages");
            for step in 0..5 {
                let logits = logits_at(step);
                let mut array = Array::of_logits(logits.iter().copied());
                chain.apply(&mut array);
                let ours = sieve.sample(&logits).expect("a candidate");
                let what = format!("{}, {temperature}, {range}, {step}", replay());
                assert_eq!(ours, array.chosen().id, "{what}");
                // The built-in still divides by temperatures that are greedy here.
                if range > 0.0 || temperature <= 0.0 {
                    let left = array.with(sieve.candidates());
                    assert_eq!(same(&left, &array), Ok(()), "{what}");
                }
            }
        }
    }
}

#[test]
fn stages_that_cannot_be_are_named_and_change_nothing() {
    let mut sieve = with_stages(RngKind::Mt19937, Method::Cdf, &[Stage::TopK, XTC]);
    text(&mut sieve, 0..3);
    let before = saved(&sieve);
    let infinite = Stage::Xtc {
        probability: f32::NAN,
        threshold: 0.1,
    };
    let wrong: [(&[Stage], &str); 4] = [
        (
            &[Stage::TopK, Stage::TopP, Stage::TopK],
            "top_k is named twice",
        ),
        (&[MIROSTAT, Stage::TopK], "mirostat_v2 draws the token"),
        (&[MIROSTAT, ADAPTIVE_P], "mirostat_v2 draws the token"),
        (&[infinite], "probability of the stage xtc is NaN"),
    ];
    for (stages, says) in wrong {
        let error = sieve.set_stages(Some(stages)).expect_err("wrong stages");
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(sieve.stages(), Some(&[Stage::TopK, XTC][..]));
        assert_eq!(saved(&sieve), before);
    }
    let dynamic = |range, exponent| Stage::DynamicTemperature { range, exponent };
    let dry = |multiplier, base| {
        Stage::Dry(DryParams {
            multiplier,
            base,
            allowed_length: 2,
            last_n: 64,
        })
    };
    let mirostat = |tau, eta| Stage::Mirostat { tau, eta, m: 100 };
    let mirostat_v2 = |tau, eta| Stage::MirostatV2 { tau, eta };
    let adaptive_p = |target, decay| Stage::AdaptiveP { target, decay };
    for (stage, number) in [
        (dynamic(f32::NAN, 1.0), "range"),
        (dynamic(0.3, f32::INFINITY), "exponent"),
        (dry(f32::INFINITY, 1.75), "multiplier"),
        (dry(0.8, f32::NAN), "base"),
        (mirostat(f32::NAN, 0.1), "tau"),
        (mirostat_v2(5.0, f32::NAN), "eta"),
        (adaptive_p(f32::INFINITY, 0.9), "target"),
        (adaptive_p(0.3, f32::NAN), "decay"),
    ] {
        let error = sieve.set_stages(Some(&[stage])).expect_err("no number");
        let says = format!("{number} of the stage {}", stage.name());
        assert!(error.to_string().contains(&says), "{error}");
        assert_eq!(saved(&sieve), before);
    }
}

/// Checks that a saved state is restored only by a sieve with the same stages that remember
/// something.
#[test]
fn a_state_of_other_stages_is_refused() {
    let lists: [&[Stage]; 5] = [&[XTC], &[DRY], &[MIROSTAT], &[DRY, XTC], &[ADAPTIVE_P]];
    for rng in KINDS {
        let mut sieves: Vec<Sieve> = lists
            .map(|stages| with_stages(rng, Method::Cdf, stages))
            .into();
        let params = Params {
            rng,
            ..Params::default()
        };
        sieves.push(Sieve::new(&params).expect("good parameters"));
        for sieve in &mut sieves {
            text(sieve, 0..5);
        }
        // XTC remembers its stream, which exists only with mt19937.
        let what = |at: usize| match (rng, at) {
            (RngKind::Mt19937, _) => at,
            (_, 0) => 5,
            (_, 3) => 1,
            _ => at,
        };
        let states: Vec<Vec<u8>> = sieves.iter().map(saved).collect();
        for (of, state) in states.iter().enumerate() {
            for (at, sieve) in sieves.iter_mut().enumerate() {
                let same = what(of) == what(at);
                let alone = sieve.load(state);
                assert_eq!(alone.is_ok(), same, "{rng:?}, {of}, {at}: {alone:?}");
                let with_params = sieve.load_with_params(state);
                assert_eq!(with_params.is_ok(), same, "{rng:?}, {of}, {at}");
                let now = if same { state } else { &states[at] };
                assert_eq!(&saved(sieve), now);
                sieve.load_with_params(&states[at]).expect("its own state");
            }
        }
    }
}

/// Checks that a state is refused if its window has more tokens than the stage looks back on.
#[test]
fn a_state_that_a_window_does_not_hold_is_refused() {
    let dry = |last_n| {
        Stage::Dry(DryParams {
            multiplier: 0.8,
            base: 1.75,
            allowed_length: 2,
            last_n,
        })
    };
    let mut long = with_stages(RngKind::Mt19937, Method::Cdf, &[dry(64)]);
    text(&mut long, 0..40);
    let state = saved(&long);
    for (last_n, holds) in [(40, true), (39, false)] {
        let mut sieve = with_stages(RngKind::Mt19937, Method::Cdf, &[dry(last_n)]);
        assert_eq!(sieve.load(&state).is_ok(), holds);
    }
}

/// Each reported count is the one after the stage in its name, wherever that stage is in the order.
#[test]
fn counts_follow_the_stages() {
    let mut sieve = with_stages(
        RngKind::Mt19937,
        Method::Cdf,
        &[Stage::TopP, Stage::TopK, Stage::MinP],
    );
    let params = Params {
        top_k: 10,
        top_p: 0.99,
        min_p: 0.1,
        ..sieve.params().clone()
    };
    sieve.set_params(&params).expect("good parameters");
    sieve.sample(&logits_at(0)).expect("a candidate");
    let stats = *sieve.stats();
    assert!(
        stats.after_top_p > 10 && stats.after_top_p < 300,
        "{stats:?}"
    );
    assert_eq!(stats.after_top_k, 10);
    assert_eq!(stats.after_min_p, sieve.candidates().len());
    assert_eq!(stats.after_typical, stats.after_min_p);
    assert_eq!(stats.after_top_n_sigma, stats.after_min_p);
    // The same with the order of the parameters.
    sieve.set_stages(None).expect("the order of the parameters");
    assert_eq!(sieve.stages(), None);
    sieve.sample(&logits_at(0)).expect("a candidate");
    assert_eq!(sieve.stats().after_top_k, 10);
    assert_eq!(sieve.stats().after_top_p, 10);
}

/// Checks that DRY's sequence breakers, read with the vocabulary of a host, act as those of its
/// built-in sampler.
#[test]
fn breakers_are_those_of_the_built_in() {
    let mut rng = fresh_rng("breakers");
    let vocabulary = vocabulary();
    let mut texts = [c":".as_ptr(), c"\n".as_ptr(), c"the LORD".as_ptr()];
    // SAFETY: a live vocabulary.
    let n = unsafe { sys::llama_vocab_n_tokens(vocabulary) };
    let mut broken = 0;
    for case in 0..200 {
        let (last_n, seed) = (rng.pick(&[10, 64]), 1 + case);
        let mut params = llama_sieve_default_params();
        params.rng = LLAMA_SIEVE_RNG_MT19937;
        params.seed = seed;
        let order = [LLAMA_SIEVE_STAGE_DRY];
        let stages = llama_sieve_stages {
            stages: order.as_ptr(),
            n_stages: 1,
            dry_multiplier: 3.0,
            dry_allowed_length: 1,
            dry_penalty_last_n: last_n,
            ..llama_sieve_default_stages()
        };
        let (mut left, mut without) = (Vec::new(), Vec::new());
        // SAFETY: the vocabulary, texts and stages live during the calls, the sieves until they are
        // freed, and there is room.
        unsafe {
            let (sieve, plain) = (llama_sieve_new(&params), llama_sieve_new(&params));
            // Set before the stage exists, or afterwards.
            let first = rng.chance(0.5);
            for breakers in [first, !first] {
                if breakers {
                    let texts = texts.as_mut_ptr();
                    let answer = llama_sieve_set_dry_breakers(sieve, vocabulary.cast(), texts, 3);
                    assert_eq!(answer, 0);
                } else {
                    assert_eq!(llama_sieve_set_stages(sieve, &stages), 0);
                }
            }
            assert_eq!(llama_sieve_set_stages(plain, &stages), 0);
            let chain = HostSampler::chain(vec![
                HostSampler::new(sys::llama_sampler_init_dry(
                    vocabulary,
                    3.0,
                    stages.dry_base,
                    1,
                    last_n,
                    texts.as_mut_ptr(),
                    3,
                )),
                HostSampler::new(sys::llama_sampler_init_dist(seed as u32)),
            ]);
            let mut array = [0; 16];
            let mut tokens = Vec::new();
            for text in [c":", c"\n", c"the LORD", c" and", c" said"] {
                let len = text.count_bytes() as i32;
                let (text, out) = (text.as_ptr(), array.as_mut_ptr());
                let n = sys::llama_tokenize(vocabulary, text, len, out, 16, false, false);
                tokens.extend_from_slice(&array[..usize::try_from(n).expect("there is room")]);
            }
            for _ in 0..60 {
                let token = rng.pick(&tokens);
                chain.accept(token);
                llama_sieve_accept(sieve, token);
                llama_sieve_accept(plain, token);
            }
            let logits: Vec<f32> = (0..n).map(|_| 2.0 * rng.normal()).collect();
            let mut theirs = Array::of_logits(logits.iter().copied());
            chain.apply(&mut theirs);
            for (sieve, left) in [(sieve, &mut left), (plain, &mut without)] {
                let token = llama_sieve_sample(sieve, logits.as_ptr(), n);
                assert!(token >= 0);
                left.resize(n as usize, TokenData::default());
                llama_sieve_candidates(sieve, left.as_mut_ptr(), left.len());
            }
            let ours = theirs.with(&left);
            assert_eq!(same(&ours, &theirs), Ok(()), "{}, {case}", replay());
            llama_sieve_free(sieve);
            llama_sieve_free(plain);
        }
        broken += i32::from(format!("{left:?}") != format!("{without:?}"));
    }
    assert!(broken > 20, "{broken}: the breakers change nothing");
}

/// Checks that a stage whose parameters switch it off for a while does not begin again, even if a
/// state is loaded meanwhile.
#[test]
fn a_stage_that_is_off_for_a_while_goes_on() {
    let off = Stage::Xtc {
        probability: 0.0,
        threshold: 0.05,
    };
    let mut sieve = with_stages(RngKind::Mt19937, Method::Cdf, &[XTC]);
    let mut other = with_stages(RngKind::Mt19937, Method::Cdf, &[XTC]);
    text(&mut sieve, 0..10);
    text(&mut other, 0..10);
    let before = saved(&sieve);
    sieve.set_stages(Some(&[off])).expect("good stages");
    // A saved state includes it, too.
    sieve.load(&before).expect("the same stages");
    sieve.set_stages(Some(&[XTC])).expect("good stages");
    assert_eq!(text(&mut sieve, 10..40), text(&mut other, 10..40));
}

/// New parameters take effect from the next token on, and apply to everything that the stage
/// remembers.
#[test]
fn other_numbers_act_upon_what_is_remembered() {
    let made = |stage| with_stages(RngKind::Mt19937, Method::Cdf, &[stage]);
    let dry = |multiplier| {
        Stage::Dry(DryParams {
            multiplier,
            base: 1.75,
            allowed_length: 1,
            last_n: 64,
        })
    };
    let xtc = |threshold| Stage::Xtc {
        probability: 0.5,
        threshold,
    };
    let dynamic = |exponent| Stage::DynamicTemperature {
        range: 0.7,
        exponent,
    };
    let mirostat = |tau, m| Stage::Mirostat { tau, eta: 0.3, m };
    let mirostat_v2 = |tau| Stage::MirostatV2 { tau, eta: 0.3 };
    let adaptive_p = |target, decay| Stage::AdaptiveP { target, decay };
    for (before, after) in [
        (dry(0.8), dry(4.0)),
        (xtc(0.05), xtc(0.005)),
        (dynamic(1.0), dynamic(0.1)),
        (mirostat(3.0, 100), mirostat(1.0, 100)),
        (mirostat(3.0, 100), mirostat(3.0, 5)),
        (mirostat_v2(3.0), mirostat_v2(1.0)),
        (adaptive_p(0.3, 0.9), adaptive_p(0.05, 0.9)),
        (adaptive_p(0.3, 0.9), adaptive_p(0.3, 0.1)),
    ] {
        let mut sieve = made(before);
        text(&mut sieve, 0..20);
        let mut unchanged = sieve.clone();
        let mut made_so = made(after);
        made_so
            .load(&saved(&sieve))
            .expect("a state of such stages");
        sieve.set_stages(Some(&[after])).expect("good stages");
        let rest = text(&mut sieve, 20..80);
        assert_eq!(text(&mut made_so, 20..80), rest, "{after:?}");
        assert_ne!(text(&mut unchanged, 20..80), rest, "{after:?}");
    }
}

/// The reported adjusted logit includes penalties only if they are among the stages.
#[test]
fn a_logit_is_adjusted_as_the_stages_see_it() {
    let params = Params {
        penalty_repeat: 1.1,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params).expect("good parameters");
    sieve
        .set_stages(Some(&[Stage::Temperature]))
        .expect("good stages");
    sieve.accept(3);
    assert_eq!(sieve.adjusted(3, 2.2), 2.2);
    let stages = [Stage::Temperature, Stage::Penalties];
    sieve.set_stages(Some(&stages)).expect("good stages");
    assert_eq!(sieve.adjusted(3, 2.2), 2.2 / 1.1);
}

/// A temperature of 0 bans all tokens except the one with the largest logit, which XTC with a
/// threshold of 0 removes.
#[test]
fn a_banned_token_that_the_stages_leave_is_none() {
    let params = Params {
        temperature: 0.0,
        ..Params::default()
    };
    let xtc = Stage::Xtc {
        probability: 1.0,
        threshold: 0.0,
    };
    let stages = [Stage::Temperature, xtc];
    let logits = [1.0f32, 4.0, 3.0, 2.0];
    let chain = built_ins(&stages, &params, 4);
    let mut array = Array::of_logits(logits);
    chain.apply(&mut array);
    assert_eq!(array.chosen().logit, f32::NEG_INFINITY);
    let mut sieve = Sieve::new(&params).expect("good parameters");
    sieve.set_stages(Some(&stages)).expect("good stages");
    assert_eq!(sieve.sample(&logits), Err(Error::NoCandidate));
    assert!(sieve.candidates().is_empty());
    // As one sampler of a chain it chooses what the built-ins choose.
    let mut data = llama_sieve::token::array_of(&logits);
    let mut candidates = Candidates::new(&mut data, false);
    sieve
        .sample_candidates(&mut candidates)
        .expect("there are candidates");
    let chosen = candidates.as_slice()[candidates.selected().expect("it selects")];
    assert_eq!(chosen.id, array.chosen().id);
}
