//! Every instruction set that this processor has against the naive passes, on the same arrays.

use super::column::{column_selecting, copy_column, copy_logits};
use super::compact::{at_least, near_max, pick, select};
use super::entropy::{entropies, lns};
use super::layout::{GROUP, SUM_BLOCK};
use super::moments::{moments, squares_masking};
use super::naive;
use super::quotient::{divide_p_double, set_quotients, write_quotients};
use super::rewrite::{
    Curve, bend, divide, divide_logits, divide_p, mask_below, set_p, write_divided,
};
use super::rounding_test::softmax_sum;
use super::scan::{any_between, argmax, max, next_rise};
use super::sequential_sum::{rounded_tail, sum, sum_double};
use super::signed_sum::signed_sum;
use super::softmax::{exp_double, exp_p_by, exp_p_in_order_by, exp_sum, exp_sum_double, exp_wide};
use super::sort_key::{fetch, steps};
use crate::simd::exp::HIGHEST;
use crate::simd::{Isa, libm};
use crate::token::TokenData;

/// A small generator of test inputs.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn unit(&mut self) -> f32 {
        (self.next() & 0xFF_FFFF) as f32 / 16_777_216.0
    }

    fn normal(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| self.unit()).sum();
        sum - 6.0
    }
}

#[cfg(not(miri))]
pub(super) const SIZES: [usize; 22] = [
    0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 127, 128, 129, 255, 1000, 1025, 5000, 40_001,
];

/// Miri takes minutes for all of them.
#[cfg(miri)]
pub(super) const SIZES: [usize; 3] = [0, 1, 17];

/// Under Miri, one input in so many.
pub(super) const STEP: usize = if cfg!(miri) { 4 } else { 1 };

/// Logits of every kind that a pass may meet.
pub(super) fn inputs(n: usize) -> Vec<Vec<f32>> {
    let mut rng = Rng(n as u64 + 1);
    let normal: Vec<f32> = (0..n).map(|_| rng.normal() * 2.4 - 1.5).collect();
    let mut peaked = normal.clone();
    for i in 0..n.min(60) {
        peaked[rng.next() as usize % n] = 17.0 - i as f32 / 8.0;
    }
    let mut sorted = peaked.clone();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let rising: Vec<f32> = sorted.iter().rev().copied().collect();
    let mut special = normal.clone();
    for x in &mut special {
        let odd = [
            f32::NAN,
            -f32::NAN,
            f32::NEG_INFINITY,
            0.0,
            -0.0,
            f32::MIN,
            -300.0,
        ];
        if rng.unit() < 0.3 {
            *x = odd[rng.next() as usize % odd.len()];
        }
    }
    // Multiples of a power of two are half-way between the multiples of the next one.
    let coarse = (0..n).map(|_| (rng.next() % 64) as f32 / 16.0 - 2.0);
    let coarse = coarse.collect();
    let mut infinite = normal.clone();
    if n > 0 {
        infinite[n / 2] = f32::INFINITY;
    }
    vec![
        normal,
        peaked,
        sorted,
        rising,
        special,
        coarse,
        infinite,
        vec![3.0; n],
        vec![f32::NEG_INFINITY; n],
        vec![f32::NAN; n],
        (0..n).map(|_| rng.unit() * 600.0 - 300.0).collect(),
        (0..n).map(|_| rng.unit() * 1e-38).collect(),
    ]
}

fn array(logits: &[f32]) -> Vec<TokenData> {
    let candidates = logits.iter().enumerate().map(|(i, &logit)| TokenData {
        id: i as i32,
        logit,
        p: i as f32,
    });
    candidates.collect()
}

fn bits(xs: &[f32]) -> Vec<u32> {
    // All NaN are one.
    let canonical = xs.iter().map(|x| if x.is_nan() { f32::NAN } else { *x });
    canonical.map(f32::to_bits).collect()
}

fn bits_of(data: &[TokenData]) -> Vec<(i32, u32, u32)> {
    let p = |x: f32| bits(&[x])[0];
    data.iter().map(|c| (c.id, p(c.logit), p(c.p))).collect()
}

fn same(a: f32, b: f32) -> bool {
    bits(&[a]) == bits(&[b])
}

/// Calls `check` on every instruction set, with every input.
fn for_all(mut check: impl FnMut(Isa, &[f32])) {
    for isa in Isa::supported() {
        for n in SIZES {
            for logits in inputs(n).into_iter().step_by(STEP) {
                let _forced = isa.force();
                check(isa, &logits);
            }
        }
    }
}

#[test]
fn maxima() {
    for_all(|isa, logits| {
        let data = array(logits);
        // -0 and +0 are equal.
        assert_eq!(max(&data), naive::max(&data), "{:?}", isa);
        assert_eq!(argmax(&data).unwrap_or(0), naive::argmax(&data));
        for below in [0.0, -3.0, -1e4] {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let max = near_max(&data, below, &mut a);
            assert_eq!(max, naive::near_max(&data, below, &mut b));
            // What is kept besides depends on the instruction set.
            for kept in [&mut a, &mut b] {
                kept.retain(|c| c.logit >= max + below);
            }
            assert_eq!(bits_of(&a), bits_of(&b), "{:?}", isa);
            let expected = data.iter().filter(|c| c.logit >= max + below);
            assert!(expected.map(|c| c.id).eq(a.iter().map(|c| c.id)));
        }
        let (mut a, mut b) = (vec![0.0; data.len()], vec![0.0; data.len()]);
        assert_eq!(copy_logits(&data, &mut a), naive::logits(&data, &mut b));
        assert_eq!(bits(&a), bits(&b));
    });
}

#[test]
fn exponentials_and_their_sums() {
    for_all(|isa, logits| {
        let data = array(logits);
        let mut xs = vec![0.0; data.len()];
        let largest = naive::logits(&data, &mut xs);
        // The second as in an array that is wrongly said to be sorted.
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
    // Here the order of additions is free, and with it the last bits.
    let near = |a: f64, b: f64| {
        let error = (a - b).abs();
        error <= b.abs() * xs.len() as f64 * f64::EPSILON || same(a, b)
    };
    let again = sum_double(&b, &mut sums_a);
    assert!(near(again, total_b));
    assert!(sums_a.iter().zip(&sums_b).all(|(&a, &b)| near(a, b)));
}

/// Those of candidates, in place, are the same.
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

/// The sum in order that comes with the moments, where it comes.
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

#[test]
fn wide_exponentials() {
    for_all(|_, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = naive::logits(&array(logits), &mut xs);
        if !max.is_finite() {
            return;
        }
        let (mut a, mut b) = (xs.clone(), xs);
        let sums = (exp_wide(&mut a, max), naive::exp_wide(&mut b, max));
        assert!((sums.0 - sums.1).abs() <= sums.1 * 1e-9, "{sums:?}");
        for (a, b) in a.iter().zip(&b) {
            assert!(a.to_bits().abs_diff(b.to_bits()) <= 1, "{a} {b}");
        }
    });
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
            // A sum of 1 or more: the largest of all is in it.
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

/// Terms around half of the distance between two doubles near 1.
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

/// Terms of which most are half-way between two doubles near the sum, in every order of odd and
/// even.
#[test]
fn sums_of_floats_in_double_precision() {
    let mut state = 7u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for isa in Isa::supported() {
        let _forced = isa.force();
        for case in 0..300 {
            let n = [70, 512, 513, 3000][case % 4];
            // Down to 2^-60, with mantissas of few bits and of all.
            let terms = (0..n).map(|_| {
                let exponent = 127 - 24 - random() % [3, 8, 36][case % 3];
                let mask = [0x0070_0000, 0x007f_ffff, 0x0000_000f][random() as usize % 3];
                f32::from_bits(exponent << 23 | random() & mask)
            });
            // Exponentials of themselves: what is tested is the sum.
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
fn quotients_that_are_near_to_a_border() {
    let mut data: Vec<TokenData> = array(&vec![0.0; 4096]);
    // Multiples of an odd divisor, plus half a unit: quotients that lie between two floats.
    for (candidate, i) in data.iter_mut().zip(0u32..) {
        candidate.p = f32::from_bits(0x3f00_0000 + i * 2049);
    }
    for by in [
        1.0 + 2f64.powi(-24),
        3.0,
        2f64.powi(126) * 1.1,
        f64::NAN,
        0.0,
        f64::INFINITY,
    ] {
        for isa in Isa::supported() {
            let _forced = isa.force();
            let (mut a, mut b) = (data.clone(), data.clone());
            divide_p_double(&mut a, by);
            naive::divide_p_double(&mut b, by);
            for (a, b) in a.iter().zip(&b) {
                assert!(same(a.p, b.p), "{:?}, by {by}: {} {}", isa, a.p, b.p);
            }
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
        for mean in [0.0, -1.5, 1e-9, 100.0] {
            let (mut ours, mut reference) = (data.clone(), data.clone());
            let a = squares_masking(&mut ours, mean, mean + 1.0);
            let b = naive::squares_masking(&mut reference, mean, mean + 1.0);
            assert!(same(a, b), "{:?} {a} {b}", isa);
            assert_eq!(bits_of(&ours), bits_of(&reference), "{:?}", isa);
        }
    });
}

#[test]
fn columns() {
    for_all(|isa, logits| {
        for first in [0, 1] {
            let mut data = array(logits);
            // Ids that are no indices, all of them or the last.
            data.iter_mut().for_each(|c| c.id += first);
            let (mut a, mut b) = (vec![0.0; data.len()], vec![0.0; data.len()]);
            let columns = (copy_column(&data, &mut a), naive::column(&data, &mut b));
            assert_eq!(columns.0, columns.1, "{:?}", isa);
            assert_eq!(bits(&a), bits(&b));
            let Some(last) = data.last_mut() else { return };
            last.id = -1;
            assert!(!copy_column(&data, &mut a).plain);
        }
    });
}

#[test]
fn columns_with_what_passes() {
    for_all(|isa, logits| {
        let data = array(logits);
        for threshold in [-1.0, f32::NEG_INFINITY, f32::NAN] {
            let (mut a, mut b) = (Vec::new(), vec![0.0; data.len()]);
            let (mut of_a, mut of_b) = ((vec![7], vec![1.0]), (vec![7], vec![1.0]));
            let ours = column_selecting(&data, &mut a, threshold, &mut of_a.0, &mut of_a.1);
            let expected =
                naive::column_selecting(&data, &mut b, threshold, &mut of_b.0, &mut of_b.1);
            assert_eq!(ours, expected, "{isa:?}");
            assert_eq!(bits(&a), bits(&b), "{isa:?}");
            assert_eq!(of_a.0, of_b.0, "{isa:?}");
            assert_eq!(bits(&of_a.1), bits(&of_b.1), "{isa:?}");
        }
    });
}

#[test]
fn logits_in_a_range() {
    for_all(|isa, logits| {
        let data = array(logits);
        let ends = [
            f32::NEG_INFINITY,
            -7.5,
            0.0,
            4.2,
            16.9,
            f32::INFINITY,
            f32::NAN,
        ];
        for (low, high) in ends.into_iter().flat_map(|a| ends.map(|b| (a, b))) {
            let expected = naive::any_between(&data, low, high);
            assert_eq!(
                any_between(&data, low, high),
                expected,
                "{isa:?} {low} {high}"
            );
        }
    });
}

#[test]
fn steps_below_the_largest() {
    for_all(|isa, logits| {
        let mut xs = vec![0.0; logits.len()];
        let column = naive::column(&array(logits), &mut xs);
        for factor in [1000.0 / (column.max - column.min), 1e30, 0.0] {
            let (mut a, mut b) = (vec![0; xs.len()], vec![0; xs.len()]);
            steps(&xs, column.max, factor, 1000.0, &mut a);
            naive::steps(&xs, column.max, factor, 1000.0, &mut b);
            assert_eq!(a, b, "{:?}", isa);
        }
    });
}

#[test]
fn fetching_keeps_pairs_together() {
    for_all(|isa, logits| {
        let mut xs = vec![0.0; logits.len()];
        naive::logits(&array(logits), &mut xs);
        let mut indices: Vec<u32> = (0..xs.len() as u32).rev().collect();
        let mut to = vec![0.0; xs.len()];
        fetch(&xs, &mut indices, &mut to);
        assert!(
            indices
                .iter()
                .zip(&to)
                .all(|(&i, x)| xs[i as usize].to_bits() == x.to_bits())
        );
        // What is equal stays in the order in which it was.
        let in_order = |pair: &[(u32, f32)]| pair[0].1 != pair[1].1 || pair[0].0 > pair[1].0;
        let pairs: Vec<_> = indices.iter().copied().zip(to).collect();
        assert!(pairs.windows(2).all(in_order), "{:?}", isa);
        indices.sort_unstable();
        assert!(indices.iter().zip(0..).all(|(&i, n)| i == n));
    });
}

#[test]
#[should_panic]
fn fetching_from_outside_is_refused() {
    let mut indices = vec![3; 64];
    indices[40] = 64;
    fetch(&[0.0; 64], &mut indices, &mut [0.0; 64]);
}

#[test]
fn rises() {
    for_all(|_, logits| {
        let mut xs = vec![0.0; logits.len()];
        naive::logits(&array(logits), &mut xs);
        for start in [1, 2, 5, 17, 100].into_iter().filter(|&i| i <= xs.len()) {
            assert_eq!(next_rise(&xs, start), naive::next_rise(&xs, start));
        }
        xs.sort_by(|a, b| b.total_cmp(a));
        let start = xs.len().min(1);
        assert_eq!(next_rise(&xs, start), xs.len());
        if let Some(last) = xs.last_mut().filter(|x| x.is_finite()) {
            *last = f32::INFINITY;
            assert_eq!(next_rise(&xs, start), naive::next_rise(&xs, start));
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
            // -0 and +0 add the same.
            assert!(a.iter().zip(&b).all(|(&a, &b)| a == b || same(a, b)));
        }
    });
}

/// One positive float in 997.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ln_is_that_of_the_host() {
    ln_on_every(997);
}

/// All of them: some seconds.
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

#[test]
fn rewriting() {
    for_all(|isa, logits| {
        macro_rules! same {
            ($name:ident($($argument:expr),*)) => {
                let (mut a, mut b) = (array(logits), array(logits));
                $name(&mut a, $($argument),*);
                naive::$name(&mut b, $($argument),*);
                assert_eq!(bits_of(&a), bits_of(&b), "{:?}", isa);
            };
        }
        same!(set_p(logits));
        same!(set_quotients(logits, 3.0));
        let ids: Vec<u32> = (7..).take(logits.len()).collect();
        same!(write_divided(&ids, logits, logits, 0.3));
        same!(write_quotients(&ids, logits, logits, 3.0));
        same!(divide_logits(0.8));
        same!(mask_below(0.5));
        same!(mask_below(f32::NAN));
        let (mut a, mut b) = (logits.to_vec(), logits.to_vec());
        divide(&mut a, 0.7);
        naive::divide(&mut b, 0.7);
        assert_eq!(bits(&a), bits(&b));
    });
}

#[test]
fn bending() {
    for_all(|isa, logits| {
        for target in [0.3, f32::NAN] {
            let curve = Curve {
                target,
                per_width: 1.0 / 0.3,
                peak: 5.0,
                sharpness: 10.0,
            };
            let (mut a, mut b) = (array(logits), array(logits));
            for (i, (a, b)) in a.iter_mut().zip(&mut b).enumerate() {
                a.p = 1.0 / (1.0 + i as f32);
                b.p = a.p;
            }
            let (mut ps_a, mut ps_b) = (vec![0.0; a.len()], vec![0.0; a.len()]);
            let ours = bend(&mut a, 0.7, &mut ps_a, curve);
            let theirs = naive::bend(&mut b, 0.7, &mut ps_b, curve);
            assert_eq!(ours.1, theirs.1, "{:?}", isa);
            // With a NaN about nobody asks for the largest.
            assert!(ours.0 == theirs.0 || !ours.1);
            assert_eq!(bits_of(&a), bits_of(&b));
            assert_eq!(bits(&ps_a), bits(&ps_b));
        }
    });
}

#[test]
fn thresholds() {
    for_all(|isa, logits| {
        for threshold in [-1.0, 3.0, f32::NEG_INFINITY, f32::NAN, f32::INFINITY] {
            let data = array(logits);
            let (mut a, mut b) = (vec![7], vec![7]);
            at_least(&data, 5, threshold, &mut a);
            naive::at_least(&data, 5, threshold, &mut b);
            assert_eq!(a, b, "{:?}", isa);
            let (mut picked_a, mut picked_b) = (vec![1.0], vec![1.0]);
            select(logits, threshold, &mut a, &mut picked_a);
            naive::select(logits, threshold, &mut b, &mut picked_b);
            assert_eq!(a, b, "{:?}", isa);
            assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", isa);
            let others: Vec<f32> = (0..logits.len()).map(|i| i as f32).collect();
            for high in [f32::INFINITY, 0.5, f32::NAN] {
                pick(logits, &others, threshold, high, &mut picked_a);
                naive::pick(logits, &others, threshold, high, &mut picked_b);
                assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", isa);
            }
        }
    });
}

/// Also where nearly all terms round to nothing, and where the logits are so large that differences
/// are coarse.
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

/// One float in 997 of all from -1e-30 to -110, and from 1e-30 to 90.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn exp_is_that_of_the_host() {
    exp_on_every(997);
}

/// All of them: some seconds.
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
                    // What a descending sum relies on: never up where x goes down.
                    assert!(*e <= previous || from > 0.0, "exp({x})");
                    previous = *e;
                }
            }
        }
    }
}
