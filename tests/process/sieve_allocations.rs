//! Tests that the sieve does not allocate after warm-up: not in `sample`, not in `accept`, and not
//! when parameters change.

use crate::counting_allocator::{bytes_since, without_allocating};
use crate::support::arrays::{Recipe, Rng, Shape};
use crate::support::{alone, fresh_rng, replay};
use llama_sieve::algorithms::host_order::HostOrder;
use llama_sieve::algorithms::scratch::Room;
use llama_sieve::samplers::{
    DryParams, EtaCutoff, LoopAction, LoopBreaker, LoopParams, MinK, PLess, Quadratic, TopA, TopH,
};
use llama_sieve::sieve::{Method, Order, Params, RngKind, Sieve, Stage};
use llama_sieve::token::TokenData;

const KINDS: [RngKind; 3] = [
    RngKind::Xoroshiro128Plus,
    RngKind::Mt19937,
    RngKind::Position,
];

#[test]
fn no_sample_allocates_after_warm_up() {
    let _alone = alone();
    const N: usize = 20_000;
    let mut rng = fresh_rng("no_sample_allocates_after_warm_up");
    for case in 0..120 {
        let params = Params {
            rng: KINDS[case % 3],
            method: [Method::Cdf, Method::Gumbel][case / 2 % 2],
            order: [Order::TempLast, Order::TempFirst][case / 4 % 2],
            top_k: rng.pick(&[40, 0, 3000, 1]),
            top_p: rng.pick(&[0.95, 1.0]),
            min_p: rng.pick(&[0.05, 0.0]),
            typical_p: rng.pick(&[1.0, 0.9]),
            top_n_sigma: rng.pick(&[-1.0, 1.5]),
            penalty_last_n: rng.pick(&[64, 1000]),
            bias: vec![(5, 1.0), (3, f32::NEG_INFINITY)],
            seed: case as u64,
            ..Params::default()
        };
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        sieve.measure(true);
        let mut arrays: Vec<Vec<f32>> = Vec::new();
        for _ in 0..6 {
            let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked]);
            arrays.push(shape.array(N, &mut rng).logits());
        }
        for logits in &arrays {
            sieve.sample(logits).expect("there is a candidate");
        }
        for _ in 0..3000 {
            sieve.accept(rng.below(N) as i32);
        }
        // Once more, since penalties lead to more edits.
        for logits in &arrays {
            sieve.sample(logits).expect("there is a candidate");
        }
        without_allocating(&format_args!("{params:?}"), || {
            for logits in &arrays {
                let token = sieve.sample(logits).expect("there is a candidate");
                sieve.accept(token);
            }
        });
    }
}

/// It does not allocate either with stages in another order, including stages that remember tokens.
#[test]
fn no_stage_allocates_after_reserve() {
    let _alone = alone();
    const N: usize = 20_000;
    let mut rng = fresh_rng("no_stage_allocates_after_reserve");
    let dry = Stage::Dry(DryParams {
        multiplier: 0.8,
        base: 1.75,
        allowed_length: 1,
        last_n: 200,
    });
    for case in 0..60 {
        let last = [
            Stage::Temperature,
            Stage::MirostatV2 { tau: 5.0, eta: 0.1 },
            Stage::AdaptiveP {
                target: 0.3,
                decay: 0.9,
            },
            Stage::Mirostat {
                tau: 5.0,
                eta: 0.1,
                m: 100,
            },
        ][case % 4];
        let xtc = Stage::Xtc {
            probability: 0.5,
            threshold: 0.1,
        };
        let dynamic = Stage::DynamicTemperature {
            range: 0.5,
            exponent: 1.0,
        };
        let mut stages = vec![
            dry,
            Stage::Penalties,
            Stage::TopK,
            Stage::MinP,
            xtc,
            dynamic,
        ];
        rng.shuffle(&mut stages);
        stages.push(last);
        let params = Params {
            rng: KINDS[case % 3],
            top_k: rng.pick(&[40, 0, 3000]),
            seed: case as u64,
            ..Params::default()
        };
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        sieve.set_stages(Some(&stages)).expect("good stages");
        for _ in 0..300 {
            sieve.accept(rng.below(5) as i32);
        }
        sieve.reserve(N).expect("there is memory");
        let arrays: Vec<Vec<f32>> = (0..4)
            .map(|_| {
                let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked]);
                shape.array(N, &mut rng).logits()
            })
            .collect();
        let label = format!("{}: {case}, {params:?}, {stages:?}", replay());
        without_allocating(&format_args!("{label}"), || {
            for logits in &arrays {
                let token = sieve.sample(logits).expect("there is a candidate");
                sieve.accept(token % 5);
            }
        });
    }
}

/// Samplers in slots do not allocate either, even in a loop. Only the message that a loop was found
/// allocates.
#[test]
fn no_sampler_in_a_slot_allocates_after_reserve() {
    let _alone = alone();
    const N: usize = 20_000;
    let mut rng = fresh_rng("no_sampler_in_a_slot_allocates_after_reserve");
    for case in 0..40 {
        let mut sieve = Sieve::new(&Params {
            seed: case,
            ..Params::default()
        })
        .expect("valid parameters");
        let heat = LoopParams {
            min_tokens: 1,
            action: LoopAction::Temperature(1.5),
            ..LoopParams::default()
        };
        let put = [
            sieve.set_sampler(0, Some(LoopBreaker::new(heat).expect("good parameters"))),
            sieve.set_sampler(1, TopA::new(0.2)),
            sieve.set_sampler(2, EtaCutoff::new(3e-4)),
            sieve.set_sampler(3, Some(PLess::new(true))),
            sieve.set_sampler(4, TopH::new(0.4)),
            sieve.set_sampler(5, MinK::new(0.0)),
            sieve.set_sampler(6, Quadratic::new(0.2, 1.5)),
        ];
        put.into_iter().for_each(|put| put.expect("a slot"));
        let mut stages: Vec<Stage> = (0..7).map(Stage::Sampler).collect();
        rng.shuffle(&mut stages);
        stages.truncate(1 + rng.below(7));
        sieve.set_stages(Some(&stages)).expect("good stages");
        sieve.reserve(N).expect("there is memory");
        let shapes = [Shape::Peaked, Shape::Flat, Shape::Masked];
        let logits = shapes.map(|shape| shape.array(N, &mut rng).logits());
        let mut use_all = || {
            for logits in &logits {
                sieve.sample(logits).expect("there is a candidate");
                (0..5).for_each(|_| sieve.accept(3));
                sieve.sample(logits).expect("there is a candidate");
                sieve.accept(rng.below(N) as i32);
            }
        };
        // Twice, since some samplers choose a method by the previous array.
        (0..2).for_each(|_| use_all());
        (0..5).for_each(|_| sieve.accept(3));
        let label = format!("{}: {case}, {stages:?}", replay());
        without_allocating(&format_args!("{label}"), || {
            for logits in &logits {
                sieve.sample(logits).expect("there is a candidate");
                sieve.accept(3);
            }
        });
    }
}

/// Samplers before the sieve leave few candidates now and then, and a varying number.
#[test]
fn an_order_that_warmed_up_has_room_for_few() {
    let _alone = alone();
    let few = |n: i32| -> Vec<TokenData> {
        let candidate = |id| TokenData::new(id, (id * 37 % 64) as f32);
        (0..n).map(candidate).collect()
    };
    // The first call in a process finds the available instruction sets.
    HostOrder::default().sort(&mut few(1));
    let mut order = HostOrder::default();
    order.warm_up(20_000);
    for n in [2, 1, 127, 30, 128, 129, 40] {
        let mut data = few(n);
        without_allocating(&n, || order.sort(&mut data));
    }
}

/// After `reserve`, the first token does not allocate either, on logits of any shape and with ties.
#[test]
fn no_first_token_allocates_after_reserve() {
    let _alone = alone();
    let mut rng = fresh_rng("reserve");
    for case in 0..200 {
        // On a new thread, which has no buffers of earlier cases.
        let first = || first_tokens_after_reserve(case, &mut rng);
        std::thread::scope(|scope| scope.spawn(first).join().expect("no panic"));
    }
}

fn first_tokens_after_reserve(case: u64, rng: &mut Rng) {
    let n = rng.pick(&[10, 1000, 8192, 8193, 20_000]);
    let params = Params {
        rng: rng.pick(&KINDS),
        method: rng.pick(&[Method::Cdf, Method::Gumbel]),
        order: rng.pick(&[Order::TempLast, Order::TempFirst]),
        temperature: rng.pick(&[0.8, 1.0, 1.7, 0.0]),
        top_k: rng.pick(&[40, 0, 3000, 1]),
        top_p: rng.pick(&[0.95, 1.0, 0.3]),
        min_p: rng.pick(&[0.05, 0.0]),
        typical_p: rng.pick(&[1.0, 0.9, 0.2]),
        top_n_sigma: rng.pick(&[-1.0, 1.5]),
        min_keep: rng.pick(&[1, 50]),
        bias: match rng.chance(0.5) {
            true => vec![(5, 1.0), (3, f32::NEG_INFINITY)],
            false => Vec::new(),
        },
        seed: case,
        ..Params::default()
    };
    let mut sieve = Sieve::new(&params).expect("valid parameters");
    let mut plain = sieve.clone();
    sieve.measure(rng.chance(0.3));
    for _ in 0..rng.pick(&[0, 30]) {
        let token = rng.below(n) as i32;
        sieve.accept(token);
        plain.accept(token);
    }
    sieve.reserve(n).expect("there is memory");
    let mut arrays: Vec<Vec<f32>> = Vec::new();
    for _ in 0..4 {
        let logits = Recipe::random(rng).array(n, n, rng).logits();
        if logits.len() == n && logits.iter().any(|&x| x > f32::NEG_INFINITY) {
            arrays.push(logits);
        }
    }
    for (i, logits) in arrays.iter().enumerate() {
        let label = format!("{}: {case}, token {i}, {n}, {params:?}", replay());
        // Rounding may mask every candidate.
        let drawn = without_allocating(&label, || {
            let drawn = sieve.sample(logits);
            if let Ok(token) = drawn {
                sieve.accept(token);
            }
            drawn
        });
        // Only the memory differs.
        assert_eq!(plain.sample(logits), drawn, "{}", replay());
        if let Ok(token) = drawn {
            plain.accept(token);
        }
    }
}

/// Changing parameters of stages in any order, and accepting tokens that they remember, does not
/// allocate either.
#[test]
fn changing_parameters_of_stages_does_not_allocate() {
    let _alone = alone();
    let mut rng = fresh_rng("changing_parameters_of_stages");
    let last = [
        Stage::Temperature,
        Stage::Mirostat {
            tau: 2.0,
            eta: 0.3,
            m: 100,
        },
        Stage::MirostatV2 { tau: 2.0, eta: 0.3 },
        Stage::AdaptiveP {
            target: 0.3,
            decay: 0.9,
        },
    ];
    for case in 0..12 {
        let mut params = Params {
            rng: RngKind::Mt19937,
            seed: case as u64,
            ..Params::default()
        };
        let stages = [
            Stage::Penalties,
            Stage::Dry(DryParams {
                multiplier: 0.8,
                base: 1.75,
                allowed_length: 1,
                last_n: 1000,
            }),
            Stage::Xtc {
                probability: 0.5,
                threshold: 0.01,
            },
            Stage::TopK,
            Stage::DynamicTemperature {
                range: 0.4,
                exponent: 1.0,
            },
            last[case % 4],
        ];
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        // The last cases without stages, in the order of the parameters.
        if case < 10 {
            sieve.set_stages(Some(&stages)).expect("good stages");
        }
        let logits = Shape::Peaked.array(5_000, &mut rng).logits();
        for i in 0..30 {
            let token = sieve.sample(&logits).expect("there is a candidate");
            params.temperature = 0.5 + i as f32 / 30.0;
            params.top_k = 10 + i;
            let label = format_args!("{params:?}, {:?}", sieve.stages()).to_string();
            without_allocating(&label, || {
                sieve.set_params(&params).expect("good parameters");
                sieve.accept(token);
            });
        }
    }
}

/// Steering sets other parameters and a bias for every token.
#[test]
fn changing_parameters_at_every_token_does_not_allocate() {
    let _alone = alone();
    const N: usize = 20_000;
    let mut rng = fresh_rng("changing_parameters_at_every_token_does_not_allocate");
    let logits = Shape::Peaked.array(N, &mut rng).logits();
    let settings: Vec<Params> = (0..8)
        .map(|i| Params {
            temperature: 0.5 + i as f32 / 10.0,
            top_k: [40, 320, 0, 20][i % 4],
            top_p: 0.8 + i as f32 / 50.0,
            typical_p: if i == 5 { 0.9 } else { 1.0 },
            penalty_last_n: [64, 32][i % 2],
            bias: (0..i as i32).map(|token| (token, 1.5)).collect(),
            seed: 5,
            ..Params::default()
        })
        .collect();
    let mut sieve = Sieve::new(&settings[0]).expect("valid parameters");
    let mut run = |rounds: usize| {
        for _ in 0..rounds {
            for params in &settings {
                sieve.set_params(params).expect("valid parameters");
                let token = sieve.sample(&logits).expect("there is a candidate");
                sieve.accept(token);
            }
        }
    };
    run(40);
    without_allocating(&"a sieve that is steered", || run(10));
}

/// With the stages that need the most memory, `reserve` takes as much as the header says, and no
/// more.
#[test]
fn what_reserve_takes_is_bounded() {
    let _alone = alone();
    const N: usize = 100_000;
    let params = Params {
        typical_p: 0.9,
        top_n_sigma: 1.5,
        ..Params::default()
    };
    // On a new thread, which has no buffers.
    let taken = std::thread::spawn(move || {
        let mut sieve = Sieve::new(&params).expect("valid parameters");
        let before = bytes_since(0);
        sieve.reserve(N).expect("there is memory");
        bytes_since(before) as usize / N
    });
    let taken = taken.join().expect("no panic");
    assert!((256..1024).contains(&taken), "{taken} bytes for each token");
    println!("{taken} bytes for each token");
}
