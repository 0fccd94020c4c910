//! Tests tsampler's invariants and guarantees, in its order and under its names.

use crate::support::arrays::Shape;
use crate::support::fresh_rng;
use crate::{INF, kept, kept_sorted, logits, new, open};
use llama_sieve::metrics;
use llama_sieve::sieve::{self, Method, Order, Params, Penalties};

/// Each stage sees the candidates that the previous one left. With these logits, exchanging any two
/// neighbouring stages would leave other candidates.
#[test]
fn sampler_chain_order_is_fixed() {
    // Probabilities .4 .3 .2 .1, as logits.
    let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
    let params = open();
    // Top-k before top-p: the first of the two remaining tokens has 4/7, so top-p .55 needs only
    // it. Over all four tokens it would need two.
    let two = Params {
        top_k: 2,
        top_p: 0.55,
        ..params.clone()
    };
    assert_eq!(kept(&two, &logits), [0]);
    // Typical before top-p: typical .2 keeps the token nearest to the entropy, which is not the
    // first.
    let typical = Params {
        typical_p: 0.2,
        top_p: 0.3,
        ..params.clone()
    };
    assert_eq!(kept(&typical, &logits), [1]);
    // Penalties before top-k: the first token loses its place.
    let mut penalised = new(&Params {
        top_k: 2,
        penalty_present: 5.0,
        ..params.clone()
    });
    penalised.accept(0);
    penalised.sample(&logits).expect("there is a candidate");
    let ids: Vec<i32> = penalised.candidates().iter().map(|c| c.id).collect();
    assert_eq!(ids, [1, 2]);
    // Min-p before top-n-sigma: the deviation is that of the survivors. Of all four it is .52
    // and would keep 0 and 1.
    let sigma = Params {
        min_p: 0.7,
        top_n_sigma: 1.0,
        ..params.clone()
    };
    let mut sieve = new(&sigma);
    sieve.sample(&logits).expect("there is a candidate");
    assert_eq!(sieve.stats().after_min_p, 2);
    assert_eq!(sieve.stats().after_top_n_sigma, 1);
}

#[test]
fn temperature_is_applied_after_all_filters() {
    let mut rng = fresh_rng("temperature_is_applied_after_all_filters");
    let logits = logits(Shape::Peaked, 3000, &mut rng);
    let base = Params {
        min_p: 0.1,
        top_p: 0.9,
        top_k: 100,
        ..open()
    };
    let at_one = kept_sorted(&base, &logits);
    for temperature in [0.2, 3.0] {
        let params = Params {
            temperature,
            ..base.clone()
        };
        assert_eq!(kept_sorted(&params, &logits), at_one);
        let first = Params {
            order: Order::TempFirst,
            ..params
        };
        assert_ne!(kept_sorted(&first, &logits), at_one);
    }
    // The draw uses the temperature, too: the reported logits are divided.
    let mut sieve = new(&Params {
        temperature: 2.0,
        ..base
    });
    sieve.sample(&logits).expect("there is a candidate");
    for candidate in sieve.candidates() {
        assert_eq!(candidate.logit, logits[candidate.id as usize] / 2.0);
    }
}

#[test]
fn zero_copy_logits_are_never_modified() {
    let mut rng = fresh_rng("zero_copy_logits_are_never_modified");
    let logits = logits(Shape::Peaked, 5000, &mut rng);
    let before: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
    for order in [Order::TempLast, Order::TempFirst] {
        for (top_k, top_p) in [(40, 0.95), (0, 0.95), (0, 1.0)] {
            let params = Params {
                order,
                top_k,
                top_p,
                bias: vec![(3, 9.0)],
                ..Params::default()
            };
            let mut sieve = new(&params);
            for token in 0..60 {
                sieve.accept(token);
                sieve.sample(&logits).expect("there is a candidate");
            }
        }
    }
    let after: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
    assert!(before == after);
}

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
fn greedy_still_applies_penalties() {
    let logits = [1.0, 5.0, 4.9, 0.0];
    let mut sieve = new(&Params {
        temperature: 0.0,
        penalty_repeat: 1.1,
        ..Params::default()
    });
    assert_eq!(sieve.sample(&logits[..]), Ok(1));
    sieve.accept(1);
    // 5 / 1.1 is below 4.9.
    assert_eq!(sieve.sample(&logits[..]), Ok(2));
    // The bias takes effect, too.
    let mut params = sieve.params().clone();
    params.bias = vec![(0, 100.0)];
    sieve.set_params(&params).expect("valid parameters");
    assert_eq!(sieve.sample(&logits[..]), Ok(0));
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
fn renormalisation_before_the_draw() {
    let mut rng = fresh_rng("renormalisation_before_the_draw");
    let logits = logits(Shape::Peaked, 20_000, &mut rng);
    for method in [Method::Cdf, Method::Gumbel] {
        for (top_k, top_p) in [(5, 1.0), (40, 0.5), (0, 0.9), (0, 1.0)] {
            let mut sieve = new(&Params {
                method,
                top_k,
                top_p,
                ..Params::default()
            });
            sieve.sample(&logits).expect("there is a candidate");
            let sum: f64 = sieve.candidates().iter().map(|c| f64::from(c.p)).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        }
    }
}

#[test]
fn top_k_of_the_vocabulary_or_more_keeps_all() {
    let mut rng = fresh_rng("top_k_of_the_vocabulary_or_more_keeps_all");
    let logits = logits(Shape::Peaked, 700, &mut rng);
    let all: Vec<i32> = (0..700).collect();
    for top_k in [700, 701, i32::MAX] {
        // Sorted, as in llama.cpp.
        assert_eq!(kept_sorted(&Params { top_k, ..open() }, &logits), all);
    }
    for top_k in [0, -1, i32::MIN] {
        assert_eq!(kept(&Params { top_k, ..open() }, &logits), all);
    }
    let params = Params {
        top_k: 699,
        ..open()
    };
    assert_eq!(kept(&params, &logits).len(), 699);
}

#[test]
fn top_p_of_1_or_more_is_disabled() {
    let mut rng = fresh_rng("top_p_of_1_or_more_is_disabled");
    let logits = logits(Shape::Peaked, 20_000, &mut rng);
    for top_p in [1.0, 1.5] {
        assert_eq!(kept(&Params { top_p, ..open() }, &logits).len(), 20_000);
    }
}

#[test]
fn top_p_of_0_or_less_is_greedy_by_probability_not_by_index() {
    let mut rng = fresh_rng("top_p_of_0_or_less_is_greedy_by_probability_not_by_index");
    for n in [5, 300, 20_000] {
        let mut logits = logits(Shape::Flat, n, &mut rng);
        logits[n / 2] = 20.0;
        for top_p in [0.0, -3.0] {
            let params = Params { top_p, ..open() };
            assert_eq!(kept(&params, &logits), [n as i32 / 2]);
        }
    }
    // Typical sampling has reordered the candidates: .4 .3 .2 .1 are .3 .2 .4 .1 by distance from
    // the entropy.
    let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].iter().map(|p| p.ln()).collect();
    let typical = Params {
        typical_p: 0.85,
        ..open()
    };
    assert_ne!(kept(&typical, &logits)[0], 3);
    assert_eq!(
        kept(
            &Params {
                top_p: 0.0,
                ..typical
            },
            &logits
        ),
        [3]
    );
}

/// Returns the entropy as llama.cpp adds it up, in `float`s, which is off by 1e-4 for 30,000 terms.
fn entropy_in_floats(logits: &[f32]) -> f32 {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let terms: Vec<f32> = sorted.iter().map(|x| (x - sorted[0]).exp()).collect();
    let sum = terms.iter().fold(0.0, |sum, term| sum + term);
    let ps = terms.iter().map(|term| term / sum);
    ps.fold(0.0, |sum, p| sum - p * p.ln())
}

/// tsampler computes the entropy from 512 candidates. Here it is computed from all, which is even
/// more stable.
#[test]
fn typical_p_takes_the_entropy_of_every_candidate() {
    let mut rng = fresh_rng("typical_p_takes_the_entropy_of_every_candidate");
    for n in [600, 9000, 30_000] {
        let logits = logits(Shape::Flat, n, &mut rng);
        let params = Params {
            typical_p: 0.5,
            ..open()
        };
        let ids = kept(&params, &logits);
        let entropy = f64::from(entropy_in_floats(&logits));
        let exact = metrics::entropy(&logits, metrics::Base::Nats).expect("defined");
        assert!(
            (entropy - f64::from(exact)).abs() < 1e-3,
            "{entropy} {exact}"
        );
        let distance = |id: i32| {
            let surprisal = metrics::surprisal(&logits, id, metrics::Base::Nats).expect("defined");
            (f64::from(surprisal) - entropy).abs()
        };
        // The kept candidates are the nearest: the first ones when all are sorted by distance.
        let lse = metrics::Summary::of(&logits).log_sum_exp();
        let near = |l: f32| (lse - f64::from(l) - entropy).abs();
        let radius = ids.iter().map(|&id| distance(id)).fold(0.0, f64::max);
        let inside = logits.iter().filter(|l| near(**l) < radius - 1e-4).count();
        assert!(inside < ids.len(), "{inside} {}", ids.len());
        let mass: f64 = ids
            .iter()
            .map(|&id| (f64::from(logits[id as usize]) - lse).exp())
            .sum();
        let last = ids
            .iter()
            .map(|&id| logits[id as usize])
            .fold(-INF, f32::max);
        let last = (f64::from(last) - lse).exp();
        // Added up as `float`s, 15,000 probabilities are off by some 1e-5.
        assert!(mass > 0.5 - 1e-4 && mass < 0.5 + 1e-4 + last, "{mass}");
    }
}

#[test]
fn min_p_is_relative_to_the_largest_probability() {
    for (largest, others) in [(0.9f32, [0.05f32, 0.04, 0.01]), (0.3, [0.25, 0.25, 0.2])] {
        let p = [others[0], largest, others[1], others[2]];
        let logits: Vec<f32> = p.iter().map(|p| p.ln()).collect();
        for min_p in [0.01, 0.05, 0.2, 0.82, 0.99] {
            let params = Params { min_p, ..open() };
            let expected = (0..4).filter(|&i| p[i as usize] >= largest * min_p);
            let expected: Vec<i32> = expected.collect();
            assert_eq!(kept(&params, &logits), expected, "{min_p}");
        }
    }
}

#[test]
fn min_p_always_keeps_the_most_probable() {
    let mut rng = fresh_rng("min_p_always_keeps_the_most_probable");
    let mut logits = logits(Shape::Jitter, 500, &mut rng);
    let best = sieve::greedy(&logits).expect("there is a candidate");
    // No other token is as probable.
    logits[best as usize] = logits[best as usize].next_up();
    for min_p in [1.0, 2.0, 1e9] {
        let params = Params { min_p, ..open() };
        assert_eq!(kept(&params, &logits), [best]);
    }
}

#[test]
fn top_n_sigma_of_0_or_less_is_disabled_not_greedy() {
    let mut rng = fresh_rng("top_n_sigma_of_0_or_less_is_disabled_not_greedy");
    let logits = logits(Shape::Flat, 300, &mut rng);
    for (top_n_sigma, kept) in [
        (0.0, 300..301),
        (-1.0, 300..301),
        (-100.0, 300..301),
        (1.0, 1..50),
    ] {
        let mut sieve = new(&Params {
            top_n_sigma,
            ..open()
        });
        sieve.sample(&logits).expect("there is a candidate");
        assert!(
            kept.contains(&sieve.stats().after_top_n_sigma),
            "{top_n_sigma}"
        );
    }
}

/// tsampler reduces this case to one token. llama.cpp, whose distribution this is, keeps every
/// logit that is not below the largest minus n times 0: all of them.
#[test]
fn top_n_sigma_with_all_logits_equal_keeps_all_as_llama_cpp_does() {
    let params = Params {
        top_n_sigma: 1.0,
        ..open()
    };
    assert_eq!(kept(&params, &[2.5; 64]).len(), 64);
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

/// This holds whatever the parameters were before.
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
