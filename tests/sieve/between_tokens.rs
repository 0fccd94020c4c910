//! Tests parameters that change between tokens, seeds, and saved states.

use crate::states::{KINDS, check_alike, saved};
use crate::support::arrays::Shape;
use crate::support::fresh_rng;
use crate::{logits, new, open};
use llama_sieve::sieve::{Method, Params, RngKind, Sieve};

#[test]
fn set_params_keeps_history_and_generator() {
    let mut rng = fresh_rng("set_params_keeps_history_and_generator");
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
            // Other parameters for one token may change that token, but not the following ones.
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
    // A smaller window keeps the newest tokens.
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
    let mut rng = fresh_rng("one_seed_gives_one_text_and_reset_begins_it_anew");
    let logits = logits(Shape::Flat, 500, &mut rng);
    for rng_kind in KINDS {
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
        // A random seed differs each time.
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
fn state_saved_and_loaded_goes_on_with_the_same_tokens() {
    let mut rng = fresh_rng("state_saved_and_loaded_goes_on_with_the_same_tokens");
    let logits = logits(Shape::Flat, 500, &mut rng);
    for kind in KINDS {
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
            let bytes = saved(&sieve);
            let words = if kind == RngKind::Mt19937 { 624 } else { 0 };
            assert_eq!(bytes.len(), 64 + 72 + 4 * 64 + 4 * words);
            let mut restored = new(&params);
            restored.accept(3);
            restored.load(&bytes).expect("a state");
            assert_eq!(restored.seed(), sieve.seed());
            assert_eq!(restored.accepted(), 100);
            assert_eq!(saved(&restored), bytes);
            check_alike(&mut sieve, &mut restored, &logits, 50);
        }
    }
}

#[test]
fn a_state_that_is_not_whole_is_refused_and_changes_nothing() {
    let params = Params {
        seed: 7,
        rng: RngKind::Xoroshiro128Plus,
        ..Params::default()
    };
    let mut sieve = new(&params);
    for token in [1, 2, 3] {
        sieve.accept(token);
    }
    let bytes = saved(&sieve);
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
            // The number of biases.
            136..140 => "another length",
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

/// A new seed takes effect at the next beginning, before any token is sampled.
#[test]
fn another_seed_waits_for_the_reset() {
    let mut rng = fresh_rng("another_seed_waits_for_the_reset");
    let logits = logits(Shape::Flat, 2000, &mut rng);
    let with = |seed| Params { seed, ..open() };
    let text = |sieve: &mut Sieve| -> Vec<i32> {
        let token = |_| sieve.sample(&logits).expect("there is a candidate");
        (0..10).map(token).collect()
    };
    let (mut first, mut second) = (new(&with(1)), new(&with(2)));
    let mut sieve = first.clone();
    sieve.set_params(&with(2)).expect("valid");
    assert_eq!(text(&mut sieve), text(&mut first));
    assert!(!sieve.candidates().is_empty());
    sieve.reset();
    assert!(sieve.candidates().is_empty());
    assert_eq!(text(&mut sieve), text(&mut second));
}
