//! Tests logits that are NaN, masked, infinite, or of half precision.

use crate::support::arrays::{ODD_SIZES, Shape, odd_logits};
use crate::support::{fresh_rng, replay};
use crate::{INF, logits, new, open};
use llama_sieve::sieve::{self, Error, Method, Order, Params, Sieve};
use llama_sieve::token::array_of;
use llama_sieve::{Candidates, TokenData};

#[test]
fn a_vocabulary_without_a_token_is_named() {
    assert_eq!(
        new(&open()).sample(&[0f32; 0][..]),
        Err(Error::EmptyVocabulary)
    );
    assert_eq!(sieve::greedy(&[0f32; 0][..]), Err(Error::EmptyVocabulary));
    assert_eq!(sieve::greedy(&[f32::NAN][..]), Err(Error::NoCandidate));
    assert_eq!(sieve::greedy(&[f32::NAN, -INF, -1.0, -1.0][..]), Ok(2));
}

#[test]
fn nan_is_minus_infinity_also_beside_infinite_logits() {
    let mut rng = fresh_rng("NaN of a sieve");
    let (mut tokens, mut none) = (0, 0);
    for case in 0..5000 {
        let n = rng.pick(&ODD_SIZES);
        // The large number becomes infinite at a low temperature.
        let [with, without] = odd_logits(n, 1e30, &mut rng);
        let params = Params {
            seed: case,
            temperature: rng.pick(&[0.8, 1.0, 0.0, 1e-38]),
            top_k: rng.pick(&[40, 0, 3]),
            top_p: rng.pick(&[0.95, 1.0]),
            min_p: rng.pick(&[0.05, 0.0]),
            typical_p: rng.pick(&[1.0, 0.7]),
            top_n_sigma: rng.pick(&[-1.0, 1.0]),
            bias: vec![(0, rng.pick(&[-INF, 1.0])), (1, rng.pick(&[INF, -1.0]))],
            order: rng.pick(&[Order::TempLast, Order::TempFirst]),
            method: rng.pick(&[Method::Cdf, Method::Gumbel]),
            ..Params::default()
        };
        let params = match rng.chance(0.5) {
            true => params,
            false => Params {
                bias: vec![],
                ..params
            },
        };
        let (mut ours, mut expected) = (new(&params), new(&params));
        let token = ours.sample(&with[..]);
        let what = || format!("{}, case {case}, {params:?}", replay());
        assert_eq!(token, expected.sample(&without[..]), "{}", what());
        let bits = |c: &TokenData| (c.id, c.logit.to_bits(), c.p.is_nan(), c.p.max(0.0));
        let of = |sieve: &mut Sieve| sieve.candidates().iter().map(bits).collect::<Vec<_>>();
        if params.bias.is_empty() {
            assert_eq!(of(&mut ours), of(&mut expected), "{}", what());
        }
        // In a host's chain, banned candidates cannot be distinguished.
        let mut candidates: Vec<_> = array_of(&with);
        let mut candidates = Candidates::new(&mut candidates, false);
        let mut in_chain = new(&params);
        if let Ok(token) = token {
            assert!(with[token as usize] > -INF, "{}", what());
            in_chain.sample_candidates(&mut candidates).expect("one");
            let chosen = candidates.selected().map(|i| candidates.as_slice()[i].id);
            assert_eq!(chosen, Some(token), "{}", what());
        }
        tokens += usize::from(token.is_ok());
        none += usize::from(token.is_err());
    }
    assert!(tokens > 1000 && none > 200, "{tokens} tokens, {none} none");
}

/// An early temperature can turn every logit into minus infinity.
#[test]
fn logits_that_a_temperature_divides_to_minus_infinity_are_no_candidates() {
    let cold = Params {
        temperature: 0.002,
        order: Order::TempFirst,
        ..open()
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
                assert_eq!(
                    sieve.sample(&logits[..]),
                    Err(Error::NoCandidate),
                    "{params:?}"
                );
                assert!(sieve.candidates().is_empty());
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
    let mut rng = fresh_rng("f16_and_bf16_choose_what_their_widened_logits_choose");
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
