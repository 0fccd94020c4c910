//! tsampler's invariants and parameter tables, each as a test with its name; then what the sieve
//! adds.

mod support;

use llama_sieve::sieve::{
    self, Error, Job, Logits, Method, Mode, Order, Params, Penalties, RngKind, Sieve,
};
use llama_sieve::{Candidates, Sampler, TokenData, metrics, sieve::SieveSampler};
use support::arrays::{Array, Rng, Shape};

const INF: f32 = f32::INFINITY;

/// No stage is on: every token of the vocabulary is a candidate, with its softmax probability.
fn open() -> Params {
    Params {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        penalty_repeat: 1.0,
        seed: 1,
        ..Params::default()
    }
}

fn new(params: &Params) -> Sieve {
    Sieve::new(params).expect("valid parameters")
}

/// The ids of what the first token is drawn from.
fn kept(params: &Params, logits: &[f32]) -> Vec<i32> {
    let mut sieve = new(params);
    sieve.sample(logits).expect("there is a candidate");
    sieve.candidates().iter().map(|c| c.id).collect()
}

fn kept_sorted(params: &Params, logits: &[f32]) -> Vec<i32> {
    let mut ids = kept(params, logits);
    ids.sort_unstable();
    ids
}

fn logits(shape: Shape, n: usize, rng: &mut Rng) -> Vec<f32> {
    shape.array(n, rng).data.iter().map(|c| c.logit).collect()
}

const MODES: [Mode; 2] = [Mode::Fast, Mode::Parity];

// Invariants and guarantees, in tsampler's order.

/// Each stage sees what the one before left: permuting any two neighbours would leave other
/// candidates of these logits.
#[test]
fn sampler_chain_order_is_fixed() {
    // Probabilities .4 .3 .2 .1, as logits.
    let logits: Vec<f32> = [0.4f32, 0.3, 0.2, 0.1].iter().map(|p| p.ln()).collect();
    for mode in MODES {
        let params = Params { mode, ..open() };
        // Top-k before top-p: of the two that are left the first has 4/7, so top-p .55 needs only
        // it; over all four it would need two.
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
}

#[test]
fn temperature_is_applied_after_all_filters() {
    let mut rng = Rng(1);
    let logits = logits(Shape::Peaked, 3000, &mut rng);
    for mode in MODES {
        let base = Params {
            mode,
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
            assert_eq!(kept_sorted(&params, &logits), at_one, "{mode:?}");
            let first = Params {
                order: Order::TempFirst,
                ..params
            };
            assert_ne!(kept_sorted(&first, &logits), at_one, "{mode:?}");
        }
        // And the draw uses it: the reported logits are divided.
        let mut sieve = new(&Params {
            temperature: 2.0,
            ..base
        });
        sieve.sample(&logits).expect("there is a candidate");
        for candidate in sieve.candidates() {
            assert_eq!(candidate.logit, logits[candidate.id as usize] / 2.0);
        }
    }
}

#[test]
fn zero_copy_logits_are_never_modified() {
    let mut rng = Rng(2);
    let logits = logits(Shape::Peaked, 5000, &mut rng);
    let before: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
    for mode in MODES {
        for order in [Order::TempLast, Order::TempFirst] {
            for (top_k, top_p) in [(40, 0.95), (0, 0.95), (0, 1.0)] {
                let params = Params {
                    mode,
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
    }
    let after: Vec<u32> = logits.iter().map(|l| l.to_bits()).collect();
    assert!(before == after);
}

#[test]
fn greedy_fast_path() {
    let mut rng = Rng(3);
    let logits = logits(Shape::Peaked, 5000, &mut rng);
    let best = sieve::greedy(&logits).expect("there is a candidate");
    // Filters that would remove the largest logit are skipped.
    let skipped = Params {
        typical_p: 0.1,
        ..Params::default()
    };
    for params in [
        Params {
            temperature: 0.0,
            ..skipped.clone()
        },
        Params {
            temperature: 0.000_999,
            ..skipped.clone()
        },
        Params {
            temperature: -1.0,
            ..skipped.clone()
        },
        Params {
            top_k: 1,
            ..skipped.clone()
        },
    ] {
        assert!(params.is_greedy());
        let mut sieve = new(&params);
        assert_eq!(sieve.sample(&logits), Ok(best));
        assert_eq!(sieve.candidates().len(), 1);
        assert_eq!(sieve.candidates()[0].p, 1.0);
    }
    assert!(
        !Params {
            temperature: 1e-3,
            ..skipped
        }
        .is_greedy()
    );
}

#[test]
fn greedy_fast_path_still_applies_penalties() {
    let logits = [1.0, 5.0, 4.9, 0.0];
    for mode in MODES {
        let mut sieve = new(&Params {
            temperature: 0.0,
            mode,
            ..Params::default()
        });
        assert_eq!(sieve.sample(&logits[..]), Ok(1));
        sieve.accept(1);
        // 5 / 1.1 is below 4.9.
        assert_eq!(sieve.sample(&logits[..]), Ok(2));
        // And the bias.
        let mut params = sieve.params().clone();
        params.bias = vec![(0, 100.0)];
        sieve.set_params(&params).expect("valid parameters");
        assert_eq!(sieve.sample(&logits[..]), Ok(0));
    }
}

#[test]
fn candidate_count_monotonicity() {
    let mut rng = Rng(4);
    for i in 0..3000 {
        let n = 1 + rng.below(if i % 100 == 0 { 20_000 } else { 600 });
        let shape = rng.pick(&[Shape::Peaked, Shape::Flat, Shape::Masked, Shape::Jitter]);
        let logits = logits(shape, n, &mut rng);
        let params = Params {
            mode: rng.pick(&MODES),
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
        let s = sieve.stats();
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
    let mut rng = Rng(5);
    let logits = logits(Shape::Peaked, 20_000, &mut rng);
    for mode in MODES {
        for method in [Method::Cdf, Method::Gumbel] {
            for (top_k, top_p) in [(5, 1.0), (40, 0.5), (0, 0.9), (0, 1.0)] {
                let mut sieve = new(&Params {
                    mode,
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
}

#[test]
fn top_k_of_the_vocabulary_or_more_keeps_all_in_token_order() {
    let mut rng = Rng(6);
    let logits = logits(Shape::Peaked, 700, &mut rng);
    let all: Vec<i32> = (0..700).collect();
    for top_k in [700, 701, i32::MAX, 0, -1, i32::MIN] {
        assert_eq!(kept(&Params { top_k, ..open() }, &logits), all);
        // llama.cpp keeps all, too, but sorted.
        let parity = Params {
            top_k,
            mode: Mode::Parity,
            ..open()
        };
        assert_eq!(kept_sorted(&parity, &logits), all);
    }
    assert_eq!(
        kept(
            &Params {
                top_k: 699,
                ..open()
            },
            &logits
        )
        .len(),
        699
    );
}

#[test]
fn top_p_of_1_or_more_is_disabled() {
    let mut rng = Rng(7);
    let logits = logits(Shape::Peaked, 20_000, &mut rng);
    for top_p in [1.0, 1.5] {
        assert_eq!(kept(&Params { top_p, ..open() }, &logits).len(), 20_000);
    }
}

#[test]
fn top_p_of_0_or_less_is_greedy_by_probability_not_by_index() {
    let mut rng = Rng(8);
    for mode in MODES {
        for n in [5, 300, 20_000] {
            let mut logits = logits(Shape::Flat, n, &mut rng);
            logits[n / 2] = 20.0;
            for top_p in [0.0, -3.0] {
                let params = Params {
                    mode,
                    top_p,
                    ..open()
                };
                assert_eq!(kept(&params, &logits), [n as i32 / 2]);
            }
        }
        // After typical has reordered the candidates: .4 .3 .2 .1 come as .3 .2 .4 .1 by distance
        // from the entropy.
        let logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].iter().map(|p| p.ln()).collect();
        let typical = Params {
            mode,
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
}

/// tsampler takes 512 candidates for the entropy; here it is that of all of them, which is more
/// stable still.
#[test]
fn typical_p_takes_the_entropy_of_every_candidate() {
    let mut rng = Rng(9);
    for n in [600, 9000, 30_000] {
        let logits = logits(Shape::Flat, n, &mut rng);
        let params = Params {
            typical_p: 0.5,
            ..open()
        };
        let ids = kept(&params, &logits);
        let entropy = f64::from(metrics::entropy(&logits, metrics::Base::Nats).expect("defined"));
        let distance = |id: i32| {
            let surprisal = metrics::surprisal(&logits, id, metrics::Base::Nats).expect("defined");
            (f64::from(surprisal) - entropy).abs()
        };
        // The kept are the nearest: sorting all by distance gives them as its head.
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
        assert!(mass > 0.5 - 1e-5 && mass < 0.5 + 1e-5 + last, "{mass}");
    }
}

/// In FAST a masked token has no part in the entropy; llama.cpp computes with NaN there.
#[test]
fn typical_p_with_masked_tokens() {
    let mut logits: Vec<f32> = [0.1f32, 0.2, 0.3, 0.4].iter().map(|p| p.ln()).collect();
    let params = Params {
        typical_p: 0.2,
        ..open()
    };
    let without = kept(&params, &logits);
    logits.extend([-INF, f32::NAN, -INF]);
    assert_eq!(kept(&params, &logits), without);
}

#[test]
fn min_p_is_relative_to_the_largest_probability() {
    for mode in MODES {
        for (largest, others) in [(0.9f32, [0.05f32, 0.04, 0.01]), (0.3, [0.25, 0.25, 0.2])] {
            let p = [others[0], largest, others[1], others[2]];
            let logits: Vec<f32> = p.iter().map(|p| p.ln()).collect();
            for min_p in [0.01, 0.05, 0.2, 0.82, 0.99] {
                let params = Params {
                    mode,
                    min_p,
                    ..open()
                };
                let expected = (0..4).filter(|&i| p[i as usize] >= largest * min_p);
                let expected: Vec<i32> = expected.collect();
                assert_eq!(kept(&params, &logits), expected, "{mode:?} {min_p}");
            }
        }
    }
}

#[test]
fn min_p_always_keeps_the_most_probable() {
    let mut rng = Rng(10);
    let logits = logits(Shape::Jitter, 500, &mut rng);
    let best = sieve::greedy(&logits).expect("there is a candidate");
    for mode in MODES {
        for min_p in [1.0, 2.0, 1e9] {
            assert_eq!(
                kept(
                    &Params {
                        mode,
                        min_p,
                        ..open()
                    },
                    &logits
                ),
                [best]
            );
        }
    }
}

#[test]
fn top_n_sigma_of_0_or_less_is_disabled_not_greedy() {
    let mut rng = Rng(11);
    let logits = logits(Shape::Flat, 300, &mut rng);
    for top_n_sigma in [0.0, -1.0, -100.0] {
        assert_eq!(
            kept(
                &Params {
                    top_n_sigma,
                    ..open()
                },
                &logits
            )
            .len(),
            300
        );
    }
    assert!(
        kept(
            &Params {
                top_n_sigma: 1.0,
                ..open()
            },
            &logits
        )
        .len()
            < 50
    );
}

/// tsampler collapses this to one token. llama.cpp, whose distribution both modes give, keeps what
/// is not below the largest minus n times 0: all.
#[test]
fn top_n_sigma_with_all_logits_equal_keeps_all_as_llama_cpp_does() {
    for mode in MODES {
        let params = Params {
            mode,
            top_n_sigma: 1.0,
            ..open()
        };
        assert_eq!(kept(&params, &[2.5; 64]).len(), 64);
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
    for mode in MODES {
        let mut sieve = new(&Params {
            mode,
            ..params.clone()
        });
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
    }
    // The three alone, in this order on one array, give the same.
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
fn workspace_reuse_grows_by_powers_of_two_and_never_shrinks() {
    let mut rng = Rng(12);
    let logits = logits(Shape::Flat, 40_000, &mut rng);
    let mut sieve = new(&Params {
        top_k: 40,
        ..open()
    });
    assert_eq!(sieve.workspace_bytes(), 0);
    sieve.sample(&logits).expect("there is a candidate");
    let small = sieve.workspace_bytes();
    sieve
        .set_params(&Params {
            top_k: 320,
            ..open()
        })
        .expect("valid");
    sieve.sample(&logits).expect("there is a candidate");
    let large = sieve.workspace_bytes();
    assert!(large > small);
    sieve
        .set_params(&Params {
            top_k: 40,
            ..open()
        })
        .expect("valid");
    for _ in 0..10 {
        sieve.sample(&logits).expect("there is a candidate");
        assert_eq!(sieve.workspace_bytes(), large);
    }
    // 320 candidates of 12 bytes, what reaches their threshold besides, and room for a block: 1024;
    // their 8-byte keys before the cut: 512, as many exponentials and two sums of them (4 is the
    // least that a buffer has); 625 maxima of blocks, and as many to select from: 1024.
    assert_eq!(large, 1024 * 12 + 512 * (8 + 4) + 4 * 8 + 1024 * (4 + 4));
}

// The parameter tables.

#[test]
fn defaults_are_those_of_the_table() {
    let params = Params::default();
    assert_eq!(params.temperature, 0.8);
    assert_eq!(params.top_k, 40);
    assert_eq!(params.top_p, 0.95);
    assert_eq!(params.min_p, 0.05);
    assert_eq!(params.typical_p, 1.0);
    assert_eq!(params.top_n_sigma, -1.0);
    assert_eq!(params.min_keep, 1);
    assert_eq!(params.penalty_last_n, 64);
    assert_eq!(params.penalty_repeat, 1.1);
    assert_eq!(params.penalty_freq, 0.0);
    assert_eq!(params.penalty_present, 0.0);
    assert_eq!(params.seed, 0xFFFF_FFFF);
    assert_eq!(params.mode, Mode::Fast);
    assert_eq!(params.rng, RngKind::Xoroshiro128Plus);
    assert_eq!(params.method, Method::Cdf);
    assert_eq!(params.order, Order::TempLast);
    assert!(params.bias.is_empty());
}

#[test]
fn disabled_values_leave_every_candidate() {
    let mut rng = Rng(13);
    let logits = logits(Shape::Peaked, 300, &mut rng);
    for mode in MODES {
        let base = Params { mode, ..open() };
        for params in [
            Params {
                top_k: 0,
                ..base.clone()
            },
            Params {
                top_k: -7,
                ..base.clone()
            },
            Params {
                top_p: 1.0,
                ..base.clone()
            },
            Params {
                min_p: 0.0,
                ..base.clone()
            },
            Params {
                min_p: -1.0,
                ..base.clone()
            },
            Params {
                typical_p: 1.0,
                ..base.clone()
            },
            Params {
                typical_p: 7.0,
                ..base.clone()
            },
            Params {
                top_n_sigma: 0.0,
                ..base.clone()
            },
        ] {
            let mut sieve = new(&params);
            sieve.sample(&logits).expect("there is a candidate");
            assert_eq!(sieve.candidates().len(), 300, "{params:?}");
            for candidate in sieve.candidates() {
                assert_eq!(candidate.logit, logits[candidate.id as usize]);
            }
        }
        for (penalty_last_n, penalty_repeat) in [(0, 2.0), (-1, 2.0), (64, 1.0)] {
            let mut sieve = new(&Params {
                penalty_last_n,
                penalty_repeat,
                ..base.clone()
            });
            sieve.accept(5);
            assert_eq!(sieve.adjusted(5, 3.0), 3.0);
        }
    }
}

#[test]
fn parameters_that_are_not_finite_or_out_of_range_are_named() {
    type Setter = fn(&mut Params, f32);
    let set: [(&str, Setter); 8] = [
        ("temperature", |p, x| p.temperature = x),
        ("top_p", |p, x| p.top_p = x),
        ("min_p", |p, x| p.min_p = x),
        ("typical_p", |p, x| p.typical_p = x),
        ("top_n_sigma", |p, x| p.top_n_sigma = x),
        ("penalty_repeat", |p, x| p.penalty_repeat = x),
        ("penalty_freq", |p, x| p.penalty_freq = x),
        ("penalty_present", |p, x| p.penalty_present = x),
    ];
    let mut sieve = new(&open());
    for (name, set) in set {
        for value in [f32::NAN, INF, -INF] {
            let mut params = open();
            set(&mut params, value);
            let error = sieve.set_params(&params).expect_err(name);
            assert!(error.to_string().contains(name), "{error}");
            assert_eq!(sieve.params(), &open());
        }
    }
    for repeat in [0.0, -1.0] {
        let params = Params {
            penalty_repeat: repeat,
            ..open()
        };
        assert!(matches!(Sieve::new(&params), Err(Error::Parameter(_))));
    }
    let bias = vec![(1, 0.5), (7, f32::NAN)];
    let error = Sieve::new(&Params { bias, ..open() }).expect_err("NaN");
    assert!(error.to_string().contains("token 7"), "{error}");
}

// Logits that are no numbers.

#[test]
fn infinite_and_undefined_logits() {
    let every = |params: &Params, logits: &[f32]| {
        let mut found = Vec::new();
        for mode in MODES {
            for method in [Method::Cdf, Method::Gumbel] {
                for order in [Order::TempLast, Order::TempFirst] {
                    let params = Params {
                        mode,
                        method,
                        order,
                        ..params.clone()
                    };
                    found.push(new(&params).sample(logits));
                }
            }
        }
        found
    };
    let settings = [
        Params {
            seed: 3,
            ..Params::default()
        },
        open(),
        Params {
            top_p: 0.9,
            ..open()
        },
        Params {
            min_p: 0.1,
            ..open()
        },
        Params {
            top_n_sigma: 1.0,
            ..open()
        },
        Params {
            top_k: 2,
            typical_p: 0.9,
            ..open()
        },
        Params {
            typical_p: 0.9,
            ..open()
        },
        Params {
            temperature: 0.0,
            ..open()
        },
    ];
    for n in [4, 10_000] {
        let mut base = vec![0.5; n];
        base[0] = f32::NAN;
        for params in &settings {
            // One infinite logit wins, of several the first.
            let mut one = base.clone();
            one[2] = INF;
            assert!(
                every(params, &one).iter().all(|t| *t == Ok(2)),
                "{params:?}"
            );
            one[3] = INF;
            assert!(
                every(params, &one).iter().all(|t| *t == Ok(2)),
                "{params:?}"
            );
            // NaN is never chosen.
            let mut rare = vec![f32::NAN; n];
            rare[1] = -3.0;
            assert!(
                every(params, &rare).iter().all(|t| *t == Ok(1)),
                "{params:?}"
            );
            // Nothing to choose.
            for nothing in [f32::NAN, -INF] {
                let none = every(params, &vec![nothing; n]);
                assert!(none.iter().all(|t| *t == Err(Error::NoCandidate)));
            }
        }
    }
    assert_eq!(
        new(&open()).sample(&[0f32; 0][..]),
        Err(Error::EmptyVocabulary)
    );
    assert_eq!(sieve::greedy(&[0f32; 0][..]), Err(Error::EmptyVocabulary));
    assert_eq!(sieve::greedy(&[f32::NAN][..]), Err(Error::NoCandidate));
    assert_eq!(sieve::greedy(&[f32::NAN, -INF, -1.0, -1.0][..]), Ok(2));
}

/// An early temperature can divide every logit beyond the lowest number.
#[test]
fn logits_that_a_temperature_divides_to_minus_infinity_are_no_candidates() {
    let cold = Params {
        temperature: 0.002,
        order: Order::TempFirst,
        ..open()
    };
    let saved = |sieve: &Sieve| {
        let mut bytes = vec![0; sieve.state_size()];
        sieve.save(&mut bytes).expect("there is room");
        bytes
    };
    for method in [Method::Cdf, Method::Gumbel] {
        for (top_k, n) in [(0, 100), (2, 100), (40, 100), (99, 100), (9000, 10_000)] {
            let logits = vec![-1e36f32; n];
            for (top_p, min_p, typical_p, top_n_sigma) in [
                (1.0, 0.0, 1.0, -1.0),
                (0.9, 0.0, 1.0, -1.0),
                (1.0, 0.1, 1.0, 1.0),
                (0.9, 0.1, 0.5, -1.0),
            ] {
                let params = Params {
                    method,
                    top_k,
                    top_p,
                    min_p,
                    typical_p,
                    top_n_sigma,
                    ..cold.clone()
                };
                let mut sieve = new(&params);
                let before = saved(&sieve);
                assert_eq!(
                    sieve.sample(&logits[..]),
                    Err(Error::NoCandidate),
                    "{params:?}"
                );
                assert!(sieve.candidates().is_empty());
                assert_eq!(saved(&sieve), before);
            }
        }
    }
}

#[test]
fn a_failure_leaves_the_stream_where_it_was() {
    let logits = [0.1, 0.2, 0.3, 0.4];
    let mut a = new(&open());
    let mut b = a.clone();
    assert!(b.sample(&[-INF; 4][..]).is_err());
    assert!(b.candidates().is_empty());
    for _ in 0..20 {
        assert_eq!(a.sample(&logits[..]), b.sample(&logits[..]));
    }
}

#[test]
fn a_banned_token_is_never_drawn() {
    let mut rng = Rng(14);
    let logits = logits(Shape::Peaked, 2000, &mut rng);
    let best = sieve::greedy(&logits).expect("there is a candidate");
    for mode in MODES {
        let mut sieve = new(&Params {
            mode,
            bias: vec![(best, -INF), (-4, 1.0), (9999, INF)],
            ..open()
        });
        for _ in 0..200 {
            assert_ne!(sieve.sample(&logits), Ok(best));
        }
        assert_eq!(sieve.adjusted(best, 3.0), -INF);
    }
}

#[test]
fn biases_of_one_token_add_up() {
    let bias = vec![(1, 1.0), (0, 0.25), (1, 0.5)];
    let sieve = new(&Params { bias, ..open() });
    assert_eq!(sieve.adjusted(1, 2.0), 3.5);
    assert_eq!(sieve.adjusted(0, 2.0), 2.25);
    assert_eq!(sieve.adjusted(2, 2.0), 2.0);
}

// Half precision.

#[test]
fn f16_and_bf16_choose_what_their_widened_logits_choose() {
    let mut rng = Rng(15);
    for n in [1, 7, 1023, 1025, 20_000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        let f16: Vec<half::f16> = logits.iter().map(|&l| half::f16::from_f32(l)).collect();
        let bf16: Vec<half::bf16> = logits.iter().map(|&l| half::bf16::from_f32(l)).collect();
        let wide_f16: Vec<f32> = f16.iter().map(|l| l.to_f32()).collect();
        let wide_bf16: Vec<f32> = bf16.iter().map(|l| l.to_f32()).collect();
        for params in [
            Params {
                seed: 1,
                ..Params::default()
            },
            Params {
                mode: Mode::Parity,
                seed: 1,
                ..Params::default()
            },
            Params {
                top_p: 0.9,
                ..open()
            },
            Params {
                temperature: 0.0,
                ..open()
            },
        ] {
            let [mut a, mut b, mut c, mut d] = [(); 4].map(|()| new(&params));
            for _ in 0..5 {
                let token = a.sample(&f16[..]).expect("there is a candidate");
                assert_eq!(b.sample(&wide_f16), Ok(token));
                assert_eq!(a.candidates(), b.candidates());
                a.accept(token);
                b.accept(token);
                let token = c.sample(&bf16[..]).expect("there is a candidate");
                assert_eq!(d.sample(&wide_bf16), Ok(token));
                c.accept(token);
                d.accept(token);
            }
        }
    }
}

// Parameters between tokens, seeds, state.

#[test]
fn set_params_keeps_history_and_generator() {
    let mut rng = Rng(16);
    let logits = logits(Shape::Peaked, 2000, &mut rng);
    let other = Params {
        temperature: 1.7,
        top_k: 0,
        top_p: 0.8,
        typical_p: 0.9,
        min_p: 0.0,
        ..Params::default()
    };
    let base = Params {
        seed: 9,
        ..Params::default()
    };
    let mut steady = new(&base);
    let mut changed = new(&base);
    for i in 0..30 {
        let a = steady.sample(&logits).expect("there is a candidate");
        if i % 3 == 1 {
            // Other parameters for one token: it may differ, what follows does not.
            changed
                .set_params(&Params {
                    seed: 9,
                    ..other.clone()
                })
                .expect("valid");
            changed.sample(&logits).expect("there is a candidate");
            changed.set_params(&base).expect("valid");
        } else {
            assert_eq!(changed.sample(&logits), Ok(a), "token {i}");
        }
        steady.accept(a);
        changed.accept(a);
    }
    assert_eq!(changed.history().len(), 30);
    // A smaller window keeps the newest.
    changed
        .set_params(&Params {
            penalty_last_n: 4,
            ..base
        })
        .expect("valid");
    let newest: Vec<i32> = changed.history().tokens().collect();
    let expected: Vec<i32> = steady.history().tokens().skip(26).collect();
    assert_eq!(newest, expected);
    let newest_token = newest[3];
    assert!(changed.history().contains(newest_token) && changed.history().count(newest_token) >= 1);
}

#[test]
fn one_seed_gives_one_text_and_reset_begins_it_anew() {
    let mut rng = Rng(17);
    let logits = logits(Shape::Flat, 500, &mut rng);
    for rng_kind in [
        RngKind::Xoroshiro128Plus,
        RngKind::Mt19937,
        RngKind::Position,
    ] {
        let params = Params {
            rng: rng_kind,
            seed: 4,
            ..open()
        };
        let text = |sieve: &mut Sieve| -> Vec<i32> {
            let next = |_| {
                let token = sieve.sample(&logits).expect("there is a candidate");
                sieve.accept(token);
                token
            };
            (0..30).map(next).collect()
        };
        let mut sieve = new(&params);
        let first = text(&mut sieve);
        assert_ne!(text(&mut sieve), first);
        sieve.reset();
        assert_eq!(sieve.accepted(), 0);
        assert_eq!(text(&mut sieve), first, "{rng_kind:?}");
        assert_eq!(text(&mut new(&params)), first);
        assert_ne!(
            text(&mut new(&Params {
                seed: 5,
                ..params.clone()
            })),
            first
        );
        // A random seed is another one each time.
        let random = Params {
            seed: 0xFFFF_FFFF,
            ..params
        };
        assert_ne!(text(&mut new(&random)), text(&mut new(&random)));
        let mut random = new(&random);
        let seed = random.seed();
        random.reset();
        assert_ne!(random.seed(), seed);
    }
}

#[test]
fn a_position_can_be_replayed_alone() {
    let mut rng = Rng(18);
    let logits = logits(Shape::Flat, 500, &mut rng);
    let params = Params {
        rng: RngKind::Position,
        seed: 4,
        ..open()
    };
    let mut whole = new(&params);
    let mut text = Vec::new();
    for _ in 0..20 {
        // Asking twice changes nothing: there is no stream.
        let token = whole.sample(&logits).expect("there is a candidate");
        assert_eq!(whole.sample(&logits), Ok(token));
        whole.accept(token);
        text.push(token);
    }
    let mut alone = new(&params);
    for &token in &text[..13] {
        alone.accept(token);
    }
    assert_eq!(alone.sample(&logits), Ok(text[13]));
}

#[test]
fn state_saved_and_loaded_goes_on_with_the_same_tokens() {
    let mut rng = Rng(19);
    let logits = logits(Shape::Flat, 500, &mut rng);
    for kind in [
        RngKind::Xoroshiro128Plus,
        RngKind::Mt19937,
        RngKind::Position,
    ] {
        for method in [Method::Cdf, Method::Gumbel] {
            let params = Params {
                rng: kind,
                method,
                seed: 0xFFFF_FFFF,
                penalty_present: 2.0,
                ..open()
            };
            let mut sieve = new(&params);
            for _ in 0..100 {
                let token = sieve.sample(&logits).expect("there is a candidate");
                sieve.accept(token);
            }
            let mut bytes = vec![0; sieve.state_size()];
            sieve.save(&mut bytes).expect("there is room");
            let words = if kind == RngKind::Mt19937 { 624 } else { 0 };
            assert_eq!(bytes.len(), 64 + 4 * 64 + 4 * words);
            let mut restored = new(&params);
            restored.accept(3);
            restored.load(&bytes).expect("a state");
            assert_eq!(restored.seed(), sieve.seed());
            assert_eq!(restored.accepted(), 100);
            let mut again = vec![0; restored.state_size()];
            restored.save(&mut again).expect("there is room");
            assert_eq!(again, bytes);
            for _ in 0..50 {
                let token = sieve.sample(&logits).expect("there is a candidate");
                assert_eq!(restored.sample(&logits), Ok(token), "{kind:?}");
                sieve.accept(token);
                restored.accept(token);
            }
        }
    }
}

#[test]
fn a_state_that_is_not_whole_is_refused_and_changes_nothing() {
    let params = Params {
        seed: 7,
        ..Params::default()
    };
    let mut sieve = new(&params);
    for token in [1, 2, 3] {
        sieve.accept(token);
    }
    let mut bytes = vec![0; sieve.state_size()];
    sieve.save(&mut bytes).expect("there is room");
    let mut small = vec![0; bytes.len() - 1];
    assert!(sieve.save(&mut small).is_err());

    let mut other = new(&params);
    other.accept(9);
    let before = other.clone();
    let mut refuse = |bytes: &[u8], words: &str| {
        let error = other.load(bytes).expect_err(words);
        assert!(error.to_string().contains(words), "{words}: {error}");
        assert_eq!(other.accepted(), 1);
        assert!(other.history().tokens().eq(before.history().tokens()));
    };
    refuse(&[], "too few");
    refuse(
        &bytes[..bytes.len() - 4],
        "a state of 3 tokens has another length",
    );
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let words = match at {
            0..4 => "no state",
            4..8 => "version",
            12..16 => "tokens",
            _ => "damaged",
        };
        refuse(&damaged, words);
    }
    let mut mt = new(&Params {
        rng: RngKind::Mt19937,
        ..params
    });
    assert!(
        mt.load(&bytes)
            .expect_err("another")
            .to_string()
            .contains("generator")
    );
}

// Metrics beside the sample, top candidates, batch, chain.

#[test]
fn stats_are_the_metrics_of_the_same_logits() {
    let mut rng = Rng(20);
    for n in [1, 50, 3000, 20_000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        for (mode, top_k, top_p) in [
            (Mode::Fast, 40, 0.95),
            (Mode::Fast, 0, 0.95),
            (Mode::Fast, 0, 1.0),
            (Mode::Fast, 1, 1.0),
            (Mode::Parity, 40, 0.95),
        ] {
            let mut sieve = new(&Params {
                mode,
                top_k,
                top_p,
                ..Params::default()
            });
            sieve.accept(0);
            sieve.sample(&logits).expect("there is a candidate");
            assert!(sieve.stats().model_entropy.is_nan());
            sieve.measure(true);
            let token = sieve.sample(&logits).expect("there is a candidate");
            let stats = sieve.stats();
            let nats = metrics::Base::Nats;
            assert_eq!(Some(stats.model_entropy), metrics::entropy(&logits, nats));
            assert_eq!(
                Some(stats.surprisal),
                metrics::surprisal(&logits, token, nats)
            );
            let drawn = metrics::candidates_entropy(sieve.candidates(), nats);
            assert_eq!(Some(stats.sampling_entropy), drawn);
        }
    }
}

#[test]
fn top_candidates_are_the_head_of_the_softmax() {
    let mut rng = Rng(21);
    for n in [1, 3, 1000, 40_000] {
        let logits = logits(Shape::Peaked, n, &mut rng);
        let lse = metrics::Summary::of(&logits).log_sum_exp();
        let mut order: Vec<i32> = (0..n as i32).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        for wanted in [0, 1, 5, 200, n, n + 1] {
            let mut top = Vec::new();
            sieve::top_candidates(&logits, wanted, &mut top).expect("there is a candidate");
            assert_eq!(top.len(), wanted.min(n));
            for (candidate, &id) in top.iter().zip(&order) {
                assert_eq!(candidate.logit, logits[id as usize]);
                let p = (f64::from(candidate.logit) - lse).exp();
                assert!((f64::from(candidate.p) - p).abs() <= 1e-6 * p);
            }
        }
    }
    let mut top = Vec::new();
    sieve::top_candidates(&[1.0, INF, INF][..], 3, &mut top).expect("there is a candidate");
    let p: Vec<(i32, f32)> = top.iter().map(|c| (c.id, c.p)).collect();
    assert_eq!(p, [(1, 1.0), (2, 0.0), (0, 0.0)]);
    sieve::top_candidates(&[1.0, -INF, f32::NAN][..], 3, &mut top).expect("there is a candidate");
    assert_eq!(top.len(), 1);
}

#[test]
fn a_batch_does_not_depend_on_the_number_of_threads() {
    let mut rng = Rng(22);
    let n = 4000;
    let logits: Vec<Vec<f32>> = (0..33)
        .map(|_| logits(Shape::Peaked, n, &mut rng))
        .collect();
    let run = |threads: usize| -> Vec<Vec<i32>> {
        let make = |seed| {
            new(&Params {
                seed,
                top_k: [40, 0][seed as usize % 2],
                ..Params::default()
            })
        };
        let mut sieves: Vec<Sieve> = (0..33).map(make).collect();
        let step = |_| {
            let pairs = sieves.iter_mut().zip(&logits);
            let mut jobs: Vec<Job> = pairs.map(|(s, l)| Job::new(s, Logits::from(l))).collect();
            sieve::sample_batch(&mut jobs, threads);
            let tokens: Vec<i32> = jobs
                .iter()
                .map(|j| *j.token.as_ref().expect("a token"))
                .collect();
            for (sieve, &token) in sieves.iter_mut().zip(&tokens) {
                sieve.accept(token);
            }
            tokens
        };
        (0..10).map(step).collect()
    };
    let one = run(1);
    for threads in [0, 2, 3, 8, 100] {
        assert_eq!(run(threads), one, "{threads} threads");
    }
}

/// As one sampler of a chain it does to the candidates what it does to logits.
#[test]
fn in_a_chain_it_chooses_what_it_chooses_of_logits() {
    let mut rng = Rng(23);
    for case in 0..200 {
        let n = 1 + rng.below(3000);
        let params = Params {
            mode: rng.pick(&MODES),
            seed: case,
            top_k: rng.pick(&[40, 0]),
            top_p: rng.pick(&[0.95, 1.0]),
            bias: vec![(rng.below(n) as i32, 2.0)],
            ..Params::default()
        };
        let mut sieve = new(&params);
        let mut sampler = SieveSampler::new(&params).expect("valid parameters");
        for _ in 0..3 {
            let array = Shape::Peaked.array(n, &mut rng);
            let logits: Vec<f32> = array.data.iter().map(|c| c.logit).collect();
            let token = sieve.sample(&logits).expect("there is a candidate");
            let mut data = to_data(&array);
            let mut candidates = Candidates::new(&mut data, false);
            sampler.apply(&mut candidates);
            let selected = candidates.selected().expect("selected");
            assert_eq!(candidates.as_slice()[selected].id, token);
            assert_eq!(candidates.as_slice(), sieve.candidates());
            // Candidates that an earlier sampler has cut and shuffled: ids, not places, are
            // penalised and biased.
            let mut few: Vec<TokenData> = to_data(&array).into_iter().rev().step_by(2).collect();
            let mut again = sampler.clone();
            let mut candidates = Candidates::new(&mut few, false);
            again.apply(&mut candidates);
            for candidate in candidates.as_slice() {
                let expected = sieve.adjusted(candidate.id, logits[candidate.id as usize]);
                assert_eq!(candidate.logit, expected / params.temperature);
            }
            sieve.accept(token);
            sampler.accept(token);
        }
    }
    // Nothing to choose from: the host aborts unless something is selected.
    let mut sampler = SieveSampler::new(&open()).expect("valid parameters");
    let mut data = [TokenData {
        id: 8,
        logit: -INF,
        p: 0.0,
    }; 3];
    let mut candidates = Candidates::new(&mut data, false);
    sampler.apply(&mut candidates);
    assert_eq!(candidates.selected(), Some(0));
}

fn to_data(array: &Array) -> Vec<TokenData> {
    let data = array.data.iter();
    data.map(|c| TokenData {
        id: c.id,
        logit: c.logit,
        p: c.p,
    })
    .collect()
}

/// Nothing but the order of the tokens says where such a nucleus ends.
#[test]
fn a_nucleus_of_equal_logits_is_the_first_tokens() {
    const N: usize = 20_000;
    let logits = vec![1.5f32; N];
    for (top_p, kept) in [(0.0, 1), (1e-5, 1), (0.25, N / 4), (0.5, N / 2)] {
        let mut sieve = Sieve::new(&Params {
            top_k: 0,
            top_p,
            min_p: 0.0,
            temperature: 0.7,
            seed: 3,
            ..Params::default()
        })
        .expect("valid parameters");
        for _ in 0..3 {
            let token = sieve.sample(&logits).expect("there is a candidate");
            let candidates = sieve.candidates();
            let share = candidates.len().abs_diff(kept);
            assert!(share <= 1, "{top_p}: {} candidates", candidates.len());
            assert_eq!(sieve.stats().after_top_n_sigma, candidates.len());
            let n = candidates.len() as i32;
            assert!(candidates.iter().all(|c| c.id < n && c.logit == 1.5 / 0.7));
            assert!(candidates.iter().any(|c| c.id == token));
            let sum: f64 = candidates.iter().map(|c| f64::from(c.p)).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
        }
    }
}
