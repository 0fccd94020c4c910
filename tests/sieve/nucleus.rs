//! What FAST leaves of a large vocabulary, against the definition of a nucleus in `f64`.

use crate::support::arrays::Shape;
use crate::support::{fresh_rng, replay};
use crate::{logits, new, open};
use llama_sieve::sieve::{Mode, Order, Params};

/// By how much the exponentials of `float`s are off at most, added up, as a share of all.
const APART: f64 = 1e-6;

/// The unmasked tokens, the most probable first, of equals the lower number.
fn ranking(logits: &[f32]) -> Vec<(i32, f32)> {
    let all = (0..).zip(logits.iter().copied());
    let mut ranking: Vec<_> = all.filter(|c| c.1 > f32::NEG_INFINITY).collect();
    ranking.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranking
}

/// Checks what a new sieve leaves of these logits.
fn check(params: &Params, logits: &[f32], what: &str) {
    let mut sieve = new(params);
    sieve.sample(logits).expect("there is a candidate");
    let what = format!("{what}, {params:?}, {}", replay());
    let early = match params.order {
        Order::TempFirst => params.temperature,
        Order::TempLast => 1.0,
    };
    let divided: Vec<f32> = logits.iter().map(|x| x / early).collect();
    let ranking = ranking(&divided);
    let max = ranking[0].1;
    let e = |&(_, x): &(i32, f32)| f64::from(x - max).exp();
    let asked = f64::from(params.top_p) * ranking.iter().map(e).sum::<f64>();

    let stats = sieve.stats();
    let nucleus = &ranking[..stats.after_top_p];
    let (last, others) = nucleus.split_last().expect("one is always kept");
    let without: f64 = others.iter().map(e).sum();
    let margin = APART * asked;
    assert!(without + e(last) >= asked - margin, "too few: {what}");
    let least = params.min_keep.max(1).min(ranking.len());
    assert!(
        without < asked + margin || nucleus.len() == least,
        "too many: {what}"
    );
    assert!(nucleus.len() >= least, "{what}");

    // What is left of it by min-p, which the last bit may decide.
    let border = max + params.min_p.ln();
    let kept = nucleus.iter().filter(|c| c.1 >= border).count();
    let near = ranking.iter().any(|c| (c.1 - border).abs() < 1e-5);
    let candidates = sieve.candidates();
    assert!(
        near || candidates.len() == kept,
        "{} of {kept}: {what}",
        candidates.len()
    );
    let mut ids: Vec<i32> = candidates.iter().map(|c| c.id).collect();
    ids.sort_unstable();
    let mut expected: Vec<i32> = ranking[..ids.len()].iter().map(|c| c.0).collect();
    expected.sort_unstable();
    assert!(ids == expected, "{what}");
}

#[test]
fn a_nucleus_is_what_it_is_defined_as() {
    let mut rng = fresh_rng("a_nucleus_is_what_it_is_defined_as");
    let shapes = [
        Shape::Flat,
        Shape::Peaked,
        Shape::Jitter,
        Shape::Masked,
        Shape::Few,
        Shape::Two,
        Shape::AllEqual,
        Shape::Ascending,
    ];
    for shape in shapes {
        let logits = logits(shape, 20_000, &mut rng);
        for top_p in [0.0, 0.1, 0.5, 0.9, 0.99, 0.9999] {
            for (min_p, min_keep) in [(0.0, 0), (0.02, 0), (0.0, 3000)] {
                let params = Params {
                    mode: Mode::Fast,
                    order: rng.pick(&[Order::TempLast, Order::TempFirst]),
                    temperature: rng.pick(&[0.7, 1.0, 1.5]),
                    top_p,
                    min_p,
                    min_keep,
                    ..open()
                };
                check(&params, &logits, &format!("{shape:?}"));
            }
        }
    }
}
