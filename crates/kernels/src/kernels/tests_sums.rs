//! Compares exponentials, logarithms and sums, on every instruction set that this processor has,
//! with the naive passes and the C library.

use super::entropy::{entropies, fused_entropy, lns};
use super::layout::{GROUP, SUM_BLOCK};
use super::moments::{moments, squares_masking, squares_of_logits};
use super::naive;
use super::quotient::divide_p_double;
use super::rewrite::divide_p;
use super::rounding_test::softmax_sum;
use super::sequential_sum::{rounded_tail, sum, sum_double};
use super::signed_sum::{signed_sum, signed_sum_of_logits};
use super::softmax::{exp_double, exp_p_by, exp_p_in_order_by, exp_sum, exp_sum_double};
use super::sums_f64::SumsF64;
use super::tests::{array, bits, bits_of, for_all, inputs, same};
use crate::lcg::Lcg;
use crate::simd::exp::HIGHEST;
use crate::simd::{Isa, libm};
use crate::token::comparable;

#[test]
fn exponentials_and_their_sums() {
    for_all(|isa, logits| {
        let data = array(logits);
        let mut xs = vec![0.0; data.len()];
        let largest = naive::logits(&data, &mut xs);
        // The second maximum is that of an array that is wrongly marked as sorted.
        let claimed = xs.first().copied().unwrap_or(0.0);
        for max in [largest, claimed] {
            if largest - max >= HIGHEST {
                continue;
            }
            let (mut a, mut b) = (xs.clone(), xs.clone());
            let sums = (exp_sum(0.0, &mut a, max), naive::exp_sum(0.0, &mut b, max));
            assert_eq!(bits(&a), bits(&b), "{:?}", isa);
            assert!(same(sums.0, sums.1), "{:?} {sums:?}", isa);
            check_double(&xs, max);
        }
    });
}

fn check_double(xs: &[f32], max: f32) {
    let blocks = xs.len().div_ceil(SUM_BLOCK);
    let (mut a, mut b) = (xs.to_vec(), xs.to_vec());
    let (mut sums_a, mut sums_b) = (vec![0.0; blocks], vec![0.0; blocks]);
    let total_a = exp_sum_double(&mut a, max, &mut sums_a);
    let total_b = naive::exp_sum_double(&mut b, max, &mut sums_b);
    assert_eq!(bits(&a), bits(&b));
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert!(same(total_a, total_b), "{total_a} {total_b}");
    assert!(sums_a.iter().zip(&sums_b).all(|(&a, &b)| same(a, b)));
    // The order of these additions, and so the last bits, are not fixed.
    let near = |a: f64, b: f64| {
        let error = (a - b).abs();
        error <= b.abs() * xs.len() as f64 * f64::EPSILON || same(a, b)
    };
    let again = sum_double(&b, &mut sums_a);
    assert!(near(again, total_b));
    assert!(sums_a.iter().zip(&sums_b).all(|(&a, &b)| near(a, b)));
}

/// Checks that exponentials are the same if they are computed in place, in an array of candidates.
#[test]
fn exponentials_in_place() {
    for_all(|isa, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = naive::logits(&array(logits), &mut xs);
        let blocks = xs.len().div_ceil(SUM_BLOCK);
        let (mut sums, mut expected_sums) = (vec![0.0; blocks], vec![0.0; blocks]);
        let mut data = array(logits);
        let mut expected = data.clone();
        let sum = exp_p_by(isa, &mut data, max, &mut [0.0; SUM_BLOCK], &mut sums);
        let total = naive::exp_sum_double(&mut xs, max, &mut expected_sums);
        naive::set_p(&mut expected, &xs);
        assert_eq!(bits_of(&data), bits_of(&expected), "{:?}", isa);
        let near = |a: f64, b: f64| (a - b).abs() <= b * 1e-10 || a.is_nan() && b.is_nan();
        let exactly = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(exactly(sum, total), "{:?} {sum} {total}", isa);
        let mut pairs = sums.iter().zip(&expected_sums);
        assert!(pairs.all(|(&a, &b)| exactly(a, b)), "{:?}", isa);
        let mut in_order = array(logits);
        let sum = exp_p_in_order_by(isa, &mut in_order, max, &mut [0.0; SUM_BLOCK]);
        assert_eq!(bits_of(&in_order), bits_of(&expected), "{:?}", isa);
        let total = xs.iter().fold(0.0, |sum, x| sum + x);
        assert!(same(sum, total), "{:?} {sum} {total}", isa);
        let total = naive::divide_p(&mut in_order.clone(), 0.7, &mut expected_sums);
        let sum = divide_p(&mut in_order, 0.7, &mut sums);
        assert!(near(sum, total), "{:?} {sum} {total}", isa);
        assert!(sums.iter().zip(&expected_sums).all(|(&a, &b)| near(a, b)));
        naive::divide(&mut xs, 0.7);
        let ps: Vec<f32> = in_order.iter().map(|c| c.p).collect();
        assert_eq!(bits(&ps), bits(&xs), "{:?}", isa);
        divide_p_double(&mut data, 3.0);
        naive::divide_p_double(&mut expected, 3.0);
        assert_eq!(bits_of(&data), bits_of(&expected), "{:?}", isa);
    });
}

/// Checks the sum in order that the moments may include.
#[test]
fn sums_beside_moments() {
    let mut came = 0;
    for_all(|isa, logits| {
        let data = array(logits);
        let mut sums = vec![[0.0; 2]; data.len().div_ceil(SUM_BLOCK)];
        let mut maxima = vec![0.0; data.len().div_ceil(GROUP)];
        let (max, sum) = moments(&data, &mut sums, &mut maxima, true);
        assert_eq!(max, naive::max(&data), "{:?}", isa);
        if logits.iter().all(|x| x.is_finite())
            && let Some(sum) = sum
        {
            came += usize::from(logits.len() > 10 * SUM_BLOCK);
            assert_eq!(sum, naive::signed_sum(&data).0, "{:?}", isa);
        }
    });
    assert!(came > 0 || cfg!(miri));
}

/// Checks sums that leave a binade and return to it, by terms whose squares are 0.
#[test]
fn sums_of_tiny_logits_beside_moments() {
    for exponent in [-90, -80, -65, -60, -50] {
        let c = 2f32.powi(exponent);
        let up = c / 1024.0 + c * f32::EPSILON;
        let mut logits = vec![c * (1.9 / 512.0); SUM_BLOCK];
        for (part, x) in [(2, up), (4, -2.0 * up), (4, 0.0)] {
            logits.extend(vec![x; SUM_BLOCK / part]);
        }
        let data = array(&logits);
        let (mut sums, mut maxima) = (vec![[0.0; 2]; 2], vec![0.0; 2 * SUM_BLOCK / GROUP]);
        let (_, sum) = moments(&data, &mut sums, &mut maxima, true);
        let expected = naive::signed_sum(&data).0;
        assert_eq!(sum.unwrap_or(expected), expected, "2^{exponent}");
    }
}

#[test]
fn exponentials_in_double_precision() {
    for_all(|isa, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = naive::logits(&array(logits), &mut xs);
        if !max.is_finite() {
            return;
        }
        for descending in [false, true] {
            if descending {
                xs.sort_by(|a, b| b.total_cmp(a));
            }
            // The sum is at least 1, since it includes the largest term.
            for start in [1.0, 1.999_999_999, 77.7, 1e17] {
                let (mut a, mut b) = (xs.clone(), xs.clone());
                let sum = exp_double(start, &mut a, max);
                let expected = naive::exp_double(start, &mut b, max);
                assert_eq!(bits(&a), bits(&b), "{:?}", isa);
                assert_eq!(sum.to_bits(), expected.to_bits(), "{:?}", isa);
            }
        }
    });
}

/// Sums terms near half of the distance between two doubles near 1.
#[test]
fn sums_of_halves_in_double_precision() {
    for start in [1.0, 1.0 + f64::EPSILON, 3.5] {
        let xs: Vec<f32> = (0..5000).map(|i| -36.5 + (i % 97) as f32 / 60.0).collect();
        for isa in Isa::supported() {
            let _forced = isa.force();
            let (mut a, mut b) = (xs.clone(), xs.clone());
            let sum = exp_double(start, &mut a, 0.0);
            let expected = naive::exp_double(start, &mut b, 0.0);
            assert_eq!(sum.to_bits(), expected.to_bits(), "{:?}", isa);
        }
    }
}

/// Sums terms most of which are half-way between two doubles near the sum, with odd and even sums
/// in every order.
#[test]
fn sums_of_floats_in_double_precision() {
    let mut lcg = Lcg(7);
    let mut random = || lcg.bits() >> 8;
    for isa in Isa::supported() {
        let _forced = isa.force();
        for case in (0..300).step_by(if cfg!(miri) { 25 } else { 1 }) {
            let n = [70, 512, 513, 3000][case % 4];
            // Terms down to 2^-60, with mantissas of a few bits or of all.
            let terms = (0..n).map(|_| {
                let exponent = 127 - 24 - random() % [3, 8, 36][case % 3];
                let mask = [0x0070_0000, 0x007f_ffff, 0x0000_000f][random() as usize % 3];
                f32::from_bits(exponent << 23 | random() & mask)
            });
            // The logits are logarithms of the terms, since only the sum is tested.
            let mut data = array(&terms.map(f32::ln).collect::<Vec<_>>());
            data[0].logit = [0.0, -3.0, -9.0][case % 3];
            let blocks = data.len().div_ceil(SUM_BLOCK);
            let (mut sums, mut expected) = (vec![0.0; blocks], vec![0.0; blocks]);
            let mut same = data.clone();
            let sum = exp_p_by(isa, &mut data, 0.0, &mut [0.0; SUM_BLOCK], &mut sums);
            let total = naive::exp_p(&mut same, 0.0, &mut [0.0; SUM_BLOCK], &mut expected);
            assert_eq!(sum.to_bits(), total.to_bits(), "{:?}, case {case}", isa);
            assert_eq!(sums, expected, "{:?}, case {case}", isa);
        }
    }
}

#[test]
fn sums() {
    for_all(|isa, logits| {
        let terms: Vec<f32> = logits.iter().map(|x| x.abs()).collect();
        for start in [0.0, 1e-20, 0.75, 1.0, 16_777_215.0] {
            let (a, b) = (sum(start, &terms), naive::sum(start, &terms));
            assert!(same(a, b), "{:?} {a} {b}", isa);
        }
        let data = array(logits);
        let (a, b) = (signed_sum(&data), naive::signed_sum(&data));
        assert!(same(a.0, b.0) && a.1 == b.1, "{:?} {a:?} {b:?}", isa);
        let numbers: Vec<f32> = logits.iter().map(|&x| comparable(x)).collect();
        let alone = signed_sum_of_logits(&numbers);
        assert!(
            same(alone.0, b.0) && alone.1 == b.1,
            "{:?} {alone:?} {b:?}",
            isa
        );
        for mean in [0.0, -1.5, 1e-9, 100.0] {
            let (mut ours, mut reference) = (data.clone(), data.clone());
            let a = squares_masking(&mut ours, mean, mean + 1.0);
            let b = naive::squares_masking(&mut reference, mean, mean + 1.0);
            assert!(same(a, b), "{:?} {a} {b}", isa);
            let alone = squares_of_logits(&numbers, mean);
            assert!(same(alone, b), "{:?} {alone} {b}", isa);
            assert_eq!(bits_of(&ours), bits_of(&reference), "{:?}", isa);
        }
    });
}

#[test]
fn logarithms_and_entropies() {
    for_all(|isa, logits| {
        let mut ps: Vec<f32> = logits.iter().map(|x| x.abs().min(40.0)).collect();
        ps.iter_mut().for_each(|x| *x = libm::exp(-*x));
        for xs in [&ps[..], logits] {
            let (mut a, mut b) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
            lns(xs, &mut a);
            naive::lns(xs, &mut b);
            assert_eq!(bits(&a), bits(&b), "{:?}", isa);
            let smallest = (entropies(xs, &mut a), naive::entropies(xs, &mut b));
            assert_eq!(smallest.0, smallest.1);
            // -0 and +0 have the same effect on a sum.
            assert!(a.iter().zip(&b).all(|(&a, &b)| a == b || same(a, b)));
        }
        // Sums that start at several numbers, including one that leaves many binades.
        let total: f32 = ps.iter().sum();
        let shares: Vec<f32> = ps.iter().map(|p| p / total).collect();
        for (start, ps) in [(0.0, &ps), (0.0, &shares), (3.0, &shares)] {
            let fused = (fused_entropy(start, ps), naive::fused_entropy(start, ps));
            assert!(same(fused.0, fused.1), "{fused:?}, {isa:?}");
        }
    });
}

/// Tries one positive float in 997.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ln_is_that_of_the_host() {
    ln_on_every(997);
}

/// Tries all positive floats, which takes a minute.
#[test]
#[ignore = "takes a minute; the test above takes one float in 997"]
fn ln_is_that_of_the_host_on_every_float() {
    ln_on_every(1);
}

fn ln_on_every(step: usize) {
    for isa in Isa::supported() {
        let _forced = isa.force();
        let mut all = (0..=f32::INFINITY.to_bits()).step_by(step).peekable();
        while all.peek().is_some() {
            let xs: Vec<f32> = all.by_ref().take(4096).map(f32::from_bits).collect();
            let mut ours = vec![0.0; xs.len()];
            lns(&xs, &mut ours);
            for (x, ours) in xs.iter().zip(&ours) {
                assert_eq!(ours.to_bits(), libm::ln(*x).to_bits(), "{:?}: ln({x})", isa);
            }
        }
    }
}

#[test]
fn tails() {
    for_all(|isa, logits| {
        let xs: Vec<f32> = logits.iter().map(|x| x.abs()).collect();
        let terms: Vec<f32> = xs.iter().map(|x| x * 0.75).collect();
        for (above, below, c) in [(0.0, 2.0, 1e6), (0.5, 1.5, 1e5), (0.0, 1e-3, 64.0)] {
            let c = f32::from_bits(f32::to_bits(c) & 0x7f80_0000);
            let (mut a, mut b) = (vec![], vec![]);
            let sums = (
                rounded_tail(&xs, &terms, above, below, c, Some(&mut a)),
                naive::tail(&xs, &terms, above, below, c, Some(&mut b)),
            );
            assert!(same(sums.0, sums.1) || sums.1 >= 2.0 * c, "{sums:?}");
            assert_eq!(a, b, "{:?}", isa);
        }
    });
}

/// Sums exponentials of many inputs, some of which nearly all round to 0, and some so large that
/// their differences are coarse.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn what_is_left_out_of_a_sum_of_exponentials_rounds_to_nothing() {
    for n in [0, 1, 511, 513, 5000, 40_001] {
        for logits in inputs(n) {
            for (factor, offset) in [(1.0, 0.0), (3.0, -5.0), (0.3, 1e4), (20.0, -1e6)] {
                let scaled = logits.iter().map(|x| x * factor + offset);
                let xs: Vec<f32> = scaled.filter(|x| !x.is_nan()).collect();
                let max = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let ours = softmax_sum(&xs, max);
                let exact = xs.iter().fold(0.0, |sum, x| sum + libm::exp(x - max));
                assert!(same(ours, exact), "{n} {factor}: {ours} {exact}");
            }
        }
    }
}

/// Tries one in 997 of all floats from -1e-30 to -110, and from 1e-30 to [`HIGHEST`].
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn exp_is_that_of_the_host() {
    exp_on_every(997);
}

/// Tries all floats from -1e-30 to -110, and from 1e-30 to [`HIGHEST`], which takes a minute.
#[test]
#[ignore = "takes a minute; the test above takes one float in 997"]
fn exp_is_that_of_the_host_on_every_float() {
    exp_on_every(1);
}

fn exp_on_every(step: usize) {
    let ranges = [(-1e-30f32, -110.0f32), (1e-30, HIGHEST)];
    for isa in Isa::supported() {
        let _forced = isa.force();
        for (from, to) in ranges {
            let mut previous = f32::INFINITY;
            let mut all = (from.to_bits()..to.to_bits()).step_by(step).peekable();
            while all.peek().is_some() {
                let xs: Vec<f32> = all.by_ref().take(4096).map(f32::from_bits).collect();
                let mut ours = xs.clone();
                exp_sum(0.0, &mut ours, 0.0);
                for (x, e) in xs.iter().zip(&ours) {
                    let host = libm::exp(*x);
                    assert_eq!(e.to_bits(), host.to_bits(), "{:?}: exp({x})", isa);
                    // Descending sums rely on this: the exponential never rises as x falls.
                    assert!(*e <= previous || from > 0.0, "exp({x})");
                    previous = *e;
                }
            }
        }
    }
}

/// Sums in double precision are within the promised error, even if little or nothing is left
/// besides the largest term.
#[test]
fn sums_in_double_precision() {
    for_all(|isa, logits| {
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, &x| max.max(x));
        if max.abs() >= 1e5 {
            return;
        }
        let mut sums = SumsF64::default();
        // Added in two parts, one of which may be empty.
        let (first, second) = logits.split_at(logits.len() / 3);
        sums.add_spread(first, max);
        sums.add_spread(second, max);
        let mut squares = SumsF64::default();
        squares.add_squares(logits, max);
        let expected = naive::sums_f64(logits, max);
        let near = |a: f64, b: f64| (a - b).abs() <= SumsF64::ERROR / 3.0 * b + 1e-30;
        let are_near = near(sums.mass, expected.mass)
            && near(sums.spread, expected.spread)
            && near(squares.mass, expected.mass)
            && near(squares.squares, expected.squares);
        assert!(are_near, "{isa:?}: {sums:?}, {squares:?}, {expected:?}");
    });
}
