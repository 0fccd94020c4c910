//! Tests the tables of parameters: defaults, values that switch a stage off, and limits.

use crate::{INF, new, open};
use llama_sieve::sieve::{Error, Method, Mode, Order, Params, RngKind, Sieve};

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
    assert_eq!(params.penalty_repeat, 1.0);
    assert_eq!(params.penalty_freq, 0.0);
    assert_eq!(params.penalty_present, 0.0);
    assert_eq!(params.seed, 0xFFFF_FFFF);
    assert_eq!(params.mode, Mode::Parity);
    assert_eq!(params.rng, RngKind::Mt19937);
    assert_eq!(params.method, Method::Cdf);
    assert_eq!(params.order, Order::TempLast);
    assert!(params.bias.is_empty());
    let tsampler = Params {
        penalty_repeat: 1.1,
        mode: Mode::Fast,
        rng: RngKind::Xoroshiro128Plus,
        ..params
    };
    assert_eq!(Params::tsampler(), tsampler);
}

#[test]
fn penalties_that_are_disabled_adjust_nothing() {
    for (penalty_last_n, penalty_repeat) in [(0, 2.0), (-1, 2.0), (64, 1.0)] {
        let mut sieve = new(&Params {
            penalty_last_n,
            penalty_repeat,
            ..open()
        });
        sieve.accept(5);
        assert_eq!(sieve.adjusted(5, 3.0), 3.0);
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
