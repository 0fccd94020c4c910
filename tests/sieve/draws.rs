//! Tests that draws follow the distribution: chi-square tests of a million draws, for both methods
//! and every generator.
//!
//! Seeds are fixed, so a test that passes once always passes. The limit is 4 standard deviations of
//! the chi-square statistic, transformed to a normal one (Wilson and Hilferty 1931): a correct
//! sampler would fail with one seed in 30,000.

use crate::states::KINDS;
use crate::support::arrays::{Rng, Shape};
use llama_sieve::sieve::{Method, Order, Params, RngKind, Sieve};

const DRAWS: usize = 1_000_000;

/// Returns the number of standard deviations by which the counts differ from the expected ones.
/// Bins with few expected counts are merged, and left out if these are few even together.
fn deviation(counts: &[usize], p: &[f64], draws: usize) -> f64 {
    let (mut chi_square, mut bins) = (0.0, 0);
    let (mut few, mut few_expected) = (0, 0.0);
    let mut add = |count: usize, expected: f64| {
        chi_square += (count as f64 - expected).powi(2) / expected;
        bins += 1;
    };
    for (&count, p) in counts.iter().zip(p) {
        let expected = p * draws as f64;
        if expected >= 10.0 {
            add(count, expected);
        } else {
            few += count;
            few_expected += expected;
        }
    }
    if few_expected >= 10.0 {
        add(few, few_expected);
    }
    let freedom = f64::from(bins - 1);
    let spread = 2.0 / (9.0 * freedom);
    ((chi_square / freedom).cbrt() - (1.0 - spread)) / spread.sqrt()
}

/// Draws with `params`, and checks the counts against the probabilities of the definition: the
/// softmax of logit / temperature over the kept tokens.
fn check(params: &Params, logits: &[f32], draws: usize) {
    let mut sieve = Sieve::new(params).expect("valid parameters");
    let mut counts = vec![0usize; logits.len()];
    let mut p = vec![0.0; logits.len()];
    for draw in 0..draws {
        let token = sieve.sample(logits).expect("there is a candidate");
        counts[token as usize] += 1;
        if draw == 0 {
            for candidate in sieve.candidates() {
                let id = candidate.id as usize;
                p[id] = f64::from(logits[id] / params.temperature).exp();
            }
        }
        if params.rng == RngKind::Position {
            sieve.accept(token);
        }
    }
    let sum: f64 = p.iter().sum();
    p.iter_mut().for_each(|p| *p /= sum);
    for (token, &count) in counts.iter().enumerate() {
        assert!(
            count == 0 || p[token] > 0.0,
            "token {token} was not a candidate"
        );
    }
    let deviation = deviation(&counts, &p, draws);
    let what = format!("{:?} {:?}", params.method, params.rng);
    eprintln!("{what}: {deviation:+.2} standard deviations");
    assert!(deviation.abs() < 4.0, "{what}: {deviation}");
}

fn logits(n: usize) -> Vec<f32> {
    Shape::Peaked.array(n, &mut Rng(77)).logits()
}

fn params(method: Method, rng: RngKind) -> Params {
    Params {
        method,
        rng,
        seed: 20_001,
        temperature: 1.7,
        penalty_repeat: 1.0,
        ..Params::default()
    }
}

#[test]
fn a_million_draws_by_cdf() {
    for rng in KINDS {
        check(&params(Method::Cdf, rng), &logits(300), DRAWS);
    }
}

#[test]
fn a_million_draws_by_gumbel() {
    for rng in KINDS {
        check(&params(Method::Gumbel, rng), &logits(300), DRAWS);
    }
}

#[test]
fn a_million_draws_without_filters() {
    for method in [Method::Cdf, Method::Gumbel] {
        let params = Params {
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            ..params(method, RngKind::Xoroshiro128Plus)
        };
        check(&params, &logits(40), DRAWS);
    }
}

#[test]
fn draws_of_a_nucleus_in_a_large_vocabulary() {
    for method in [Method::Cdf, Method::Gumbel] {
        for order in [Order::TempLast, Order::TempFirst] {
            let params = Params {
                order,
                top_k: 0,
                top_p: 0.9,
                min_p: 0.0,
                ..params(method, RngKind::Xoroshiro128Plus)
            };
            check(&params, &logits(8200), 5000);
        }
    }
}

/// Successive draws are independent: pairs of them are evenly distributed over the square.
#[test]
fn pairs_of_draws_are_independent() {
    let uniform = [0.0f32; 16];
    for method in [Method::Cdf, Method::Gumbel] {
        for rng in KINDS {
            let open = Params {
                top_k: 0,
                top_p: 1.0,
                min_p: 0.0,
                temperature: 1.0,
                ..params(method, rng)
            };
            let mut sieve = Sieve::new(&open).expect("valid parameters");
            let mut counts = [0usize; 256];
            let mut last = 0;
            for i in 0..400_000 {
                let token = sieve.sample(&uniform[..]).expect("there is a candidate");
                sieve.accept(token);
                if i % 2 == 1 {
                    counts[last * 16 + token as usize] += 1;
                }
                last = token as usize;
            }
            let deviation = deviation(&counts, &[1.0 / 256.0; 256], 200_000);
            assert!(deviation.abs() < 4.0, "{method:?} {rng:?}: {deviation}");
        }
    }
}
