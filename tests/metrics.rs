//! Compares the metrics with a reference in `double` by the textbook formulas, and checks their
//! results where the metric is undefined.

mod support;

use llama_sieve::TokenData;
use llama_sieve::ffi::metrics::*;
use llama_sieve::last_error;
use llama_sieve::metrics::{self, Base, RollingPerplexity, Summary};
use support::arrays::{Rng, Shape};
use support::fresh_rng;

/// A sum with Neumaier's compensation, so that the reference has digits to spare.
#[derive(Default)]
struct Exact {
    sum: f64,
    lost: f64,
}

impl Exact {
    fn add(&mut self, term: f64) {
        let sum = self.sum + term;
        self.lost += if self.sum.abs() >= term.abs() {
            (self.sum - sum) + term
        } else {
            (term - sum) + self.sum
        };
        self.sum = sum;
    }

    fn value(&self) -> f64 {
        self.sum + self.lost
    }
}

/// Returns the entropy, the log-sum-exp relative to the largest logit, and the largest logit. The
/// sum leaves out the largest logit, so that the logarithm keeps all digits.
fn reference(logits: &[f32]) -> (f64, f64, f32) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let at = logits.iter().position(|&l| l == max).expect("not empty");
    let (mut rest, mut spread) = (Exact::default(), Exact::default());
    for (i, &logit) in logits.iter().enumerate() {
        if i == at || logit == f32::NEG_INFINITY {
            continue;
        }
        let d = f64::from(logit) - f64::from(max);
        rest.add(d.exp());
        spread.add(-d * d.exp());
    }
    let log_mass = rest.value().ln_1p();
    (
        log_mass + spread.value() / (1.0 + rest.value()),
        log_mass,
        max,
    )
}

fn relative(a: f64, b: f64) -> f64 {
    if a == b {
        return 0.0;
    }
    (a - b).abs() / b.abs().max(f64::from(f32::MIN_POSITIVE))
}

fn check(label: &str, logits: &[f32], rng: &mut Rng) -> f64 {
    let (entropy, log_mass, max) = reference(logits);
    let mut worst: f64 = 0.0;
    let mut see = |what: &str, ours: Option<f32>, expected: f64| {
        let ours = f64::from(ours.expect("defined"));
        let error = relative(ours, expected);
        assert!(
            error < 1e-6,
            "{label}, n {}: {what} {ours} != {expected}",
            logits.len()
        );
        worst = worst.max(error);
    };
    see("entropy", metrics::entropy(logits, Base::Nats), entropy);
    see(
        "entropy in bits",
        metrics::entropy(logits, Base::Bits),
        entropy / std::f64::consts::LN_2,
    );
    for _ in 0..8 {
        let token = rng.below(logits.len());
        let expected = f64::from(max) - f64::from(logits[token]) + log_mass;
        let token = token as i32;
        see(
            "surprisal",
            metrics::surprisal(logits, token, Base::Nats),
            expected,
        );
    }
    let candidates: Vec<TokenData> = logits
        .iter()
        .enumerate()
        .map(|(i, &logit)| TokenData {
            id: 7 + i as i32,
            logit,
            p: 0.25,
        })
        .collect();
    see(
        "entropy of candidates",
        metrics::candidates_entropy(&candidates, Base::Nats),
        entropy,
    );
    let best = logits.iter().position(|&l| l == max).expect("not empty");
    see(
        "surprisal of a candidate",
        metrics::candidates_surprisal(&candidates, 7 + best as i32, Base::Bits),
        log_mass / std::f64::consts::LN_2,
    );
    worst
}

#[test]
fn within_a_millionth_of_the_reference() {
    let mut rng = fresh_rng("within_a_millionth_of_the_reference");
    let mut worst: f64 = 0.0;
    let shapes = [
        Shape::Peaked,
        Shape::Flat,
        Shape::Jitter,
        Shape::Wide,
        Shape::Masked,
        Shape::Sorted,
        Shape::AllEqual,
    ];
    for n in [1, 2, 3, 17, 1023, 1024, 1025, 2048, 32_000, 262_144] {
        for shape in shapes {
            let logits: Vec<f32> = shape
                .array(n, &mut rng)
                .data
                .iter()
                .map(|c| c.logit)
                .collect();
            if logits.iter().all(|&l| l == f32::NEG_INFINITY) {
                continue;
            }
            worst = worst.max(check(&format!("{shape:?}"), &logits, &mut rng));
            // At such an offset the logits themselves lose digits. No more may be lost.
            for offset in [1e4, -1e4] {
                let shifted: Vec<f32> = logits.iter().map(|l| l + offset).collect();
                let label = format!("{shape:?} shifted by {offset}");
                worst = worst.max(check(&label, &shifted, &mut rng));
            }
        }
    }
    // A model that is nearly certain: all logits but one are far below.
    for gap in [1.0f32, 10.0, 30.0, 60.0, 79.0, 81.0] {
        for n in [2, 1500, 262_144] {
            let mut logits = vec![0.0; n];
            logits[n / 2] = gap;
            worst = worst.max(check(&format!("gap {gap}"), &logits, &mut rng));
        }
    }
    eprintln!("largest relative error: {worst:.1e}");
}

#[test]
fn summaries_merge_to_the_summary_of_the_whole() {
    let mut rng = fresh_rng("summaries_merge_to_the_summary_of_the_whole");
    let array = Shape::Peaked.array(5000, &mut rng);
    let logits = array.logits();
    let whole = Summary::of(&logits);
    for cut in [0, 1, 1024, 4999, 5000] {
        let mut merged = Summary::of(&logits[cut..]);
        merged.merge(&Summary::of(&logits[..cut]));
        assert_eq!(merged.max(), whole.max());
        // The division into parts decides which terms are added as floats, so the last digits
        // differ, within the promised error.
        let (entropy, log_mass, max) = reference(&logits);
        assert_eq!((merged.max(), merged.unmasked()), (max, 5000));
        assert!(relative(merged.log_sum_exp(), f64::from(max) + log_mass) < 1e-6);
        assert!(relative(merged.mass().ln(), log_mass) < 1e-6);
        assert!(relative(merged.entropy().expect("defined"), entropy) < 1e-6);
    }
}

#[test]
fn masked_and_infinite_logits() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let none = metrics::entropy(&[-inf, nan], Base::Nats);
    assert_eq!(none, None);
    assert_eq!(metrics::entropy(&[], Base::Nats), None);
    assert_eq!(
        metrics::entropy(&[nan, 1.0, -inf, 1.0], Base::Bits),
        Some(1.0)
    );
    assert_eq!(metrics::surprisal(&[nan, 1.0], 0, Base::Nats), Some(inf));
    assert_eq!(metrics::surprisal(&[nan, 1.0], 1, Base::Nats), Some(0.0));
    // An infinite logit wins; of several, the first.
    let two = [1.0, inf, inf];
    assert_eq!(metrics::entropy(&two, Base::Nats), Some(0.0));
    assert_eq!(metrics::surprisal(&two, 0, Base::Nats), Some(inf));
    assert_eq!(metrics::surprisal(&two, 1, Base::Nats), Some(0.0));
    assert_eq!(metrics::surprisal(&two, 2, Base::Nats), Some(inf));
    assert_eq!(metrics::surprisal(&two, 3, Base::Nats), None);
    assert_eq!(metrics::surprisal(&two, -1, Base::Nats), None);
    let candidates = two.map(|logit| TokenData::new(5, logit));
    assert_eq!(
        metrics::candidates_entropy(&candidates, Base::Nats),
        Some(0.0)
    );
    assert_eq!(
        metrics::candidates_surprisal(&candidates, 6, Base::Nats),
        Some(inf)
    );
    assert_eq!(metrics::candidates_surprisal(&[], 6, Base::Nats), None);
}

#[test]
fn rolling_perplexity() {
    let mut perplexity = RollingPerplexity::default();
    assert!(perplexity.value().is_nan());
    for _ in 0..1_000_000 {
        perplexity.add(50f32.ln());
    }
    perplexity.add(f32::NAN);
    assert_eq!(perplexity.count(), 1_000_000);
    assert!(
        (perplexity.value() - 50.0).abs() < 1e-4,
        "{}",
        perplexity.value()
    );
    perplexity.reset();
    perplexity.add(0.0);
    assert_eq!((perplexity.value(), perplexity.count()), (1.0, 1));
    perplexity.add(f32::INFINITY);
    assert_eq!(perplexity.value(), f32::INFINITY);
}

/// The C functions return the same values, or NaN with a message about the fault.
#[test]
fn the_c_functions_answer_bad_input() {
    let logits = [1.0f32, 2.0, f32::NEG_INFINITY];
    let masked = [f32::NEG_INFINITY; 3];
    let candidates = [TokenData::new(4, 1.0)];
    let (l, m, c) = (logits.as_ptr(), masked.as_ptr(), candidates.as_ptr());
    let null = std::ptr::null();
    // SAFETY: the arrays have the lengths that are passed.
    unsafe {
        assert_eq!(
            Some(llama_sieve_entropy(l, 3, 2)),
            metrics::entropy(&logits, Base::Bits)
        );
        assert_eq!(
            Some(llama_sieve_surprisal(l, 3, 1, 0)),
            metrics::surprisal(&logits, 1, Base::Nats)
        );
        assert_eq!(llama_sieve_candidates_entropy(c, 1, 0), 0.0);
        assert_eq!(llama_sieve_candidates_surprisal(c, 1, 4, 0), 0.0);
        assert_eq!(llama_sieve_candidates_surprisal(c, 1, 5, 0), f32::INFINITY);
        let calls: [(&str, &dyn Fn() -> f32); 12] = [
            ("base is 10", &|| llama_sieve_entropy(l, 3, 10)),
            ("NULL", &|| llama_sieve_entropy(null, 3, 0)),
            ("is 0", &|| llama_sieve_entropy(l, 0, 0)),
            ("is -1", &|| llama_sieve_entropy(l, -1, 0)),
            ("every logit", &|| llama_sieve_entropy(m, 3, 0)),
            ("token 3", &|| llama_sieve_surprisal(l, 3, 3, 0)),
            ("token -1", &|| llama_sieve_surprisal(l, 3, -1, 0)),
            ("every logit", &|| llama_sieve_surprisal(m, 3, 0, 0)),
            ("base is 1", &|| llama_sieve_candidates_entropy(c, 1, 1)),
            ("NULL", &|| {
                llama_sieve_candidates_entropy(std::ptr::null(), 1, 0)
            }),
            ("is 0", &|| llama_sieve_candidates_surprisal(c, 0, 4, 0)),
            ("candidates", &|| {
                llama_sieve_candidates_surprisal(c, usize::MAX, 4, 0)
            }),
        ];
        for (words, call) in calls {
            last_error::clear();
            assert!(call().is_nan(), "{words}");
            assert!(
                last_error::get().contains(words),
                "{words}: {}",
                last_error::get()
            );
        }
    }
}

#[test]
fn perplexity_from_c() {
    let ppl = llama_sieve_ppl_new();
    // SAFETY: the objects live until they are freed; NULL is allowed.
    unsafe {
        llama_sieve_ppl_add(ppl, 2f32.ln());
        llama_sieve_ppl_add(ppl, 8f32.ln());
        llama_sieve_ppl_add(ppl, f32::NAN);
        let copy = llama_sieve_ppl_clone(ppl);
        llama_sieve_ppl_reset(ppl);
        assert_eq!(llama_sieve_ppl_count(ppl), 0);
        assert!(llama_sieve_ppl_value(ppl).is_nan());
        assert_eq!(llama_sieve_ppl_count(copy), 2);
        assert!((llama_sieve_ppl_value(copy) - 4.0).abs() < 1e-5);
        llama_sieve_ppl_free(ppl);
        llama_sieve_ppl_free(copy);
        let null = std::ptr::null_mut();
        llama_sieve_ppl_add(null, 1.0);
        llama_sieve_ppl_reset(null);
        llama_sieve_ppl_free(null);
        assert_eq!(llama_sieve_ppl_count(null), 0);
        assert!(llama_sieve_ppl_value(null).is_nan());
        assert!(llama_sieve_ppl_clone(null).is_null());
        assert!(last_error::get().contains("NULL"));
    }
}
