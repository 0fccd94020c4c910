//! Tests tsampler's guarantees, under its names, as far as they do not follow from the comparison
//! with llama.cpp's chain.

use crate::support::arrays::Shape;
use crate::support::fresh_rng;
use crate::{INF, logits, new, open};
use llama_sieve::sieve::{self, Order, Params, Penalties};

#[test]
fn greedy_takes_the_most_probable() {
    let mut rng = fresh_rng("greedy_takes_the_most_probable");
    let logits = logits(Shape::Peaked, 5000, &mut rng);
    let best = sieve::greedy(&logits).expect("there is a candidate");
    for (temperature, top_k) in [(0.0, 40), (0.000_999, 0), (-1.0, 40), (0.8, 1)] {
        let mut sieve = new(&Params {
            temperature,
            top_k,
            ..Params::default()
        });
        assert_eq!(sieve.sample(&logits), Ok(best));
        let probable = sieve.candidates().iter().filter(|c| c.p > 0.0);
        let probable: Vec<(i32, f32)> = probable.map(|c| (c.id, c.p)).collect();
        assert_eq!(probable, [(best, 1.0)]);
    }
    // At the limit it still counts as a temperature.
    let tied = [1.0f32; 50];
    let mut sieve = new(&Params {
        temperature: 1e-3,
        seed: 1,
        ..Params::default()
    });
    sieve.sample(&tied[..]).expect("there is a candidate");
    assert!(sieve.candidates().iter().all(|c| c.p > 0.0));
}

#[test]
fn candidate_count_monotonicity() {
    let mut rng = fresh_rng("candidate_count_monotonicity");
    for i in 0..3000 {
        let n = 1 + rng.below(if i % 100 == 0 { 20_000 } else { 600 });
        let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Jitter]);
        let logits = logits(shape, n, &mut rng);
        let params = Params {
            order: rng.pick(&[Order::TempLast, Order::TempFirst]),
            temperature: rng.pick(&[0.5, 1.0, 1.5]),
            top_k: rng.pick(&[0, 5, 40]),
            typical_p: rng.pick(&[1.0, 0.5]),
            top_p: rng.pick(&[1.0, 0.9, 0.0]),
            min_p: rng.pick(&[0.0, 0.05]),
            top_n_sigma: rng.pick(&[-1.0, 1.0]),
            ..Params::default()
        };
        let mut sieve = new(&params);
        if sieve.sample(&logits).is_err() {
            continue;
        }
        let s = *sieve.stats();
        let counts = [
            s.n_vocab,
            s.after_top_k,
            s.after_typical,
            s.after_top_p,
            s.after_min_p,
            s.after_top_n_sigma,
            1,
        ];
        assert_eq!(s.n_vocab, n);
        assert!(counts.is_sorted_by(|a, b| a >= b), "{counts:?} {params:?}");
        let live = sieve.candidates().iter().filter(|c| c.logit > -INF).count();
        assert_eq!(live, s.after_top_n_sigma);
    }
}

#[test]
fn penalty_application_order_is_repeat_frequency_presence() {
    let logits = [3.0f32, -2.0, 0.0, 1.0];
    let params = Params {
        penalty_repeat: 1.5,
        penalty_freq: 0.25,
        penalty_present: 0.5,
        ..open()
    };
    let mut sieve = new(&Params { ..params.clone() });
    for token in [0, 0, 1, 2, 0, 99, -5] {
        sieve.accept(token);
    }
    sieve.sample(&logits[..]).expect("there is a candidate");
    let mut found = [0.0; 4];
    for candidate in sieve.candidates() {
        found[candidate.id as usize] = candidate.logit;
    }
    let expected = [
        3.0 / 1.5 - (3.0 * 0.25 + 0.5),
        -2.0 * 1.5 - (0.25 + 0.5),
        0.0 * 1.5 - (0.25 + 0.5),
        1.0,
    ];
    assert_eq!(found, expected);
    assert_eq!(sieve.adjusted(0, 3.0), expected[0]);
    // The three samplers alone, applied in this order to one array, give the same result.
    let mut history = llama_sieve::history::History::new(64);
    for token in [0, 0, 1, 2, 0, 99, -5] {
        history.accept(token);
    }
    let mut array = logits;
    Penalties::repetition(1.5).apply(&mut array, &history);
    Penalties::frequency(0.25).apply(&mut array, &history);
    Penalties::presence(0.5).apply(&mut array, &history);
    assert_eq!(array, [0.75, -3.75, -0.75, 1.0]);
    assert!(!Penalties::repetition(1.0).is_active());
}

#[test]
fn workspace_is_reused_and_never_shrinks() {
    let mut rng = fresh_rng("workspace_is_reused_and_never_shrinks");
    let [small, large] = [4_000, 40_000].map(|n| logits(Shape::Flat, n, &mut rng));
    let mut sieve = new(&Params {
        top_k: 40,
        ..open()
    });
    assert_eq!(sieve.workspace_bytes(), 0);
    sieve.sample(&small).expect("there is a candidate");
    let few = sieve.workspace_bytes();
    sieve.sample(&large).expect("there is a candidate");
    let many = sieve.workspace_bytes();
    assert!(many > few);
    for _ in 0..10 {
        sieve.sample(&small).expect("there is a candidate");
        assert_eq!(sieve.workspace_bytes(), many);
    }
}

/// New parameters take effect whatever the parameters were before.
#[test]
fn other_parameters_act_as_those_of_a_new_sieve() {
    let mut rng = fresh_rng("other_parameters_act_as_those_of_a_new_sieve");
    let changes: [fn(&mut Params); 6] = [
        |p| p.top_k = 20,
        |p| p.typical_p = 0.4,
        |p| p.top_p = 0.5,
        |p| p.min_p = 0.4,
        |p| p.top_n_sigma = 0.5,
        |p| p.temperature = 0.3,
    ];
    for n in [50, 3000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        for change in changes {
            let before = Params {
                top_k: 45,
                typical_p: 0.95,
                top_p: 0.95,
                min_p: 0.01,
                top_n_sigma: 3.0,
                ..Params::default()
            };
            let mut after = before.clone();
            change(&mut after);
            let (mut changed, mut fresh) = (new(&before), new(&after));
            changed.sample(&logits).expect("a token");
            changed.set_params(&after).expect("good parameters");
            changed.sample(&logits).expect("a token");
            fresh.sample(&logits).expect("a token");
            assert_eq!(changed.candidates(), fresh.candidates(), "{after:?}");
        }
    }
}
