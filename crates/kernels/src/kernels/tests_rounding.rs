//! Compares the sums of approximate terms with those of exact ones.

use super::entropy::{nearness, surprisals};
use super::layout::binade;
use super::naive;
use super::rounding_test::{
    ERROR, FURTHEST, Rounded, SMALLEST, Terms, approximate_exp_sum, rounded_sum, softmax_sum,
};
use super::tests::{SIZES, inputs};
use crate::simd::Isa;
use crate::simd::libm::exp;

/// Calls `check` with every input, at several scales and offsets and without NaN, and with its
/// largest logit, if that is finite.
fn for_all(mut check: impl FnMut(&[f32], f32)) {
    for n in SIZES {
        for logits in inputs(n) {
            for (factor, offset) in [(1.0, 0.0), (3.0, -5.0), (0.3, 1e4), (20.0, -1e6)] {
                let scaled = logits.iter().map(|x| x * factor + offset);
                let xs: Vec<f32> = scaled.filter(|x| !x.is_nan()).collect();
                let max = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                if max.is_finite() {
                    check(&xs, max);
                }
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn sums_of_exponentials_are_those_one_by_one() {
    for_all(|xs, max| {
        let exact = xs.iter().fold(0.0, |sum, x| sum + exp(x - max));
        for isa in Isa::supported() {
            let _forced = isa.force();
            let ours = softmax_sum(xs, max);
            assert_eq!(ours.to_bits(), exact.to_bits(), "{isa:?}");
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn approximate_exponentials_are_near_the_exact_ones() {
    let exact = |x: f32| f64::from(exp(x.max(FURTHEST)));
    for_all(|xs, max| {
        let expected: Vec<f64> = xs.iter().map(|x| exact(x - max)).collect();
        let sum: f64 = expected.iter().sum();
        for isa in Isa::supported() {
            let _forced = isa.force();
            let mut es = xs.to_vec();
            let ours = approximate_exp_sum(&mut es, max);
            let near = |a: f64, b: f64| (a - b).abs() <= f64::from(ERROR) * b;
            let all_near = es
                .iter()
                .zip(&expected)
                .all(|(&a, &b)| near(f64::from(a), b));
            assert!(all_near && near(ours, sum), "{isa:?}");
        }
    });
}

/// Returns the rounded sum, including the terms in doubt, and the number of these that were
/// half-way.
fn resolved(
    rounded_sum: impl Fn(&[f32], Rounded, &mut Vec<u32>) -> f64,
    xs: &[f32],
    of: Rounded,
) -> (f64, usize) {
    let mut doubtful = Vec::new();
    let mut sum = rounded_sum(xs, of, &mut doubtful);
    let mut halfway = 0;
    for &i in &doubtful {
        match of.round(of.term(xs[i as usize])) {
            Some(rounded) => sum += f64::from(rounded),
            None => halfway += 1,
        }
    }
    (sum, halfway)
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn rounded_sums_are_those_of_exact_terms() {
    for_all(|xs, max| {
        for (below, above) in [(0.0, f32::NEG_INFINITY), (-1.7, -9.0), (-5.0, -60.0)] {
            let exponentials = Rounded {
                max,
                above: max + above,
                below: max + below,
                c: 64.0,
                terms: Terms::Exponentials,
            };
            let entropies = Rounded {
                below: max + below.min(-1.5),
                c: 4.0,
                terms: Terms::Entropies(70.0),
                ..exponentials
            };
            let probabilities = Rounded {
                c: 0.5,
                terms: Terms::Probabilities(70.0),
                ..exponentials
            };
            let tiny = Rounded {
                c: SMALLEST,
                ..exponentials
            };
            for of in [exponentials, probabilities, entropies, tiny] {
                let exact = resolved(naive::rounded_sum, xs, of);
                // A sum beyond the binade is not exact, and need not be.
                if exact.0 > f64::from(of.c) {
                    continue;
                }
                for isa in Isa::supported() {
                    let _forced = isa.force();
                    let ours = resolved(rounded_sum, xs, of);
                    assert_eq!(ours, exact, "{isa:?} {of:?} {}", xs.len());
                }
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn surprisals_and_distances_are_those_of_the_host() {
    for_all(|xs, max| {
        let es: Vec<f32> = xs.iter().map(|x| exp(x - max)).collect();
        let of = |isa: Option<Isa>| {
            let _forced = isa.map(Isa::force);
            let mut to = [
                vec![0.0; es.len()],
                vec![0.0; es.len()],
                vec![0.0; es.len()],
            ];
            let [ps, lns, terms] = &mut to;
            let mut distances = vec![0.0; es.len()];
            let total = match isa {
                Some(_) => {
                    let total = surprisals(&es, 70.0, ps, lns, terms);
                    nearness(lns, 4.3, &mut distances);
                    total
                }
                None => {
                    let total = naive::surprisals(&es, 70.0, ps, lns, terms);
                    naive::nearness(lns, 4.3, &mut distances);
                    total
                }
            };
            let bits = |xs: &Vec<f32>| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            // The sign of a term of 0 does not matter.
            terms.iter_mut().for_each(|term| *term += 0.0);
            (to.each_ref().map(bits), bits(&distances), total)
        };
        let expected = of(None);
        for isa in Isa::supported() {
            let ours = of(Some(isa));
            assert!(ours.0 == expected.0 && ours.1 == expected.1);
            assert!((ours.2 - expected.2).abs() <= 1e-9 * (1.0 + expected.2));
        }
    });
}

/// Checks the rounding of the terms of every `step`-th float from `first` to [`FURTHEST`]
/// below the largest, with a unit so fine that an error beyond the margin is noticed.
fn margin_suffices(first: f32, terms: Terms, fineness: f32, step: usize) {
    let bits = (first.to_bits()..(-FURTHEST).to_bits()).step_by(step);
    let mut xs = [0.0f32; 16];
    let mut bits = bits.map(|bits| -f32::from_bits(bits)).peekable();
    while bits.peek().is_some() {
        xs.iter_mut().for_each(|x| *x = bits.next().unwrap_or(*x));
        let mut of = Rounded {
            max: 0.0,
            above: f32::NEG_INFINITY,
            below: 0.0,
            c: 1.0,
            terms,
        };
        of.c = binade(of.term(xs[0])) * fineness;
        let exact = resolved(naive::rounded_sum, &xs, of).0;
        for isa in Isa::supported() {
            let _forced = isa.force();
            let ours = resolved(rounded_sum, &xs, of).0;
            assert_eq!(ours, exact, "{isa:?} {xs:?} {of:?}");
        }
    }
}

fn margins_suffice(step: usize) {
    margin_suffices(1e-9, Terms::Exponentials, 16.0, step);
    for sum in [1.0, 1.999_999_9, 3.7, 70.3, 1e5] {
        margin_suffices(1e-9, Terms::Probabilities(sum), 16.0, step);
        margin_suffices(1.3, Terms::Entropies(sum), 4.0, step);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn the_margins_of_error_suffice() {
    margins_suffice(997);
}

#[test]
#[ignore = "takes minutes; the test above takes one float in 997"]
fn the_margins_of_error_suffice_for_every_float() {
    margins_suffice(1);
}
