//! Every instruction set that this processor has against the scalar reference, on the same arrays.

use super::exp::HIGHEST;
use super::fallbacks::Fallback;
use super::table::{SCALAR, Table, exp_agrees, exp_double_agrees, ln_agrees, supported};
use super::{BLOCK, Curve, GROUP, Workspace, math, softmax_sum};
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

/// Miri takes minutes for all of them, and knows only the scalar passes.
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

/// Calls `check` with every table, the reference included, on every input.
fn for_all(mut check: impl FnMut(&'static Table, &[f32])) {
    for table in supported() {
        for n in SIZES {
            for logits in inputs(n).into_iter().step_by(STEP) {
                check(table, &logits);
            }
        }
    }
}

#[test]
fn maxima() {
    for_all(|table, logits| {
        let data = array(logits);
        // -0 and +0 are equal.
        assert_eq!((table.max)(&data), (SCALAR.max)(&data), "{:?}", table.name);
        assert_eq!((table.argmax)(&data), (SCALAR.argmax)(&data));
        for below in [0.0, -3.0, -1e4] {
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let max = (table.near_max)(&data, below, &mut a);
            assert_eq!(max, (SCALAR.near_max)(&data, below, &mut b));
            // What is kept besides depends on the instruction set.
            for kept in [&mut a, &mut b] {
                kept.retain(|c| c.logit >= max + below);
            }
            assert_eq!(bits_of(&a), bits_of(&b), "{:?}", table.name);
            let expected = data.iter().filter(|c| c.logit >= max + below);
            assert!(expected.map(|c| c.id).eq(a.iter().map(|c| c.id)));
        }
        let (mut a, mut b) = (vec![0.0; data.len()], vec![0.0; data.len()]);
        assert_eq!(
            (table.logits)(&data, &mut a),
            (SCALAR.logits)(&data, &mut b)
        );
        assert_eq!(bits(&a), bits(&b));
    });
}

#[test]
fn exponentials_and_their_sums() {
    for_all(|table, logits| {
        let data = array(logits);
        let mut xs = vec![0.0; data.len()];
        let largest = (SCALAR.logits)(&data, &mut xs);
        // The second as in an array that is wrongly said to be sorted.
        let claimed = xs.first().copied().unwrap_or(0.0);
        for max in [largest, claimed] {
            if largest - max >= HIGHEST {
                continue;
            }
            let (mut a, mut b) = (xs.clone(), xs.clone());
            let sums = (
                (table.exp_sum)(0.0, &mut a, max),
                (SCALAR.exp_sum)(0.0, &mut b, max),
            );
            assert_eq!(bits(&a), bits(&b), "{:?}", table.name);
            assert!(same(sums.0, sums.1), "{:?} {sums:?}", table.name);
            check_double(table, &xs, max);
        }
    });
}

/// However far above the first a logit lies in an array that is wrongly said to be sorted, the
/// exponentials are the host's.
#[test]
fn a_false_promise_of_order_costs_speed_alone() {
    let mut work = Workspace::default();
    for above in [1.0, 88.5, 89.0, 127.0, 128.0, 700.0, 1e30, f32::INFINITY] {
        let mut logits = vec![-3.0; 1000];
        logits[0] = -20.0;
        logits[777] = above - 20.0;
        let data = array(&logits);
        let expected: Vec<f32> = logits.iter().map(|x| math::exp(x + 20.0)).collect();
        let sum = work.exponentiate(&data, true);
        assert_eq!(bits(work.values()), bits(&expected), "{above}");
        assert_eq!(sum, expected.iter().fold(0.0, |sum, e| sum + e));
        let sum = work.exponentiate_double(&data, true);
        assert_eq!(bits(work.values()), bits(&expected), "{above}");
        let total: f64 = expected.iter().map(|&e| f64::from(e)).sum();
        assert!(sum == total || (sum - total).abs() < total * 1e-12);
    }
}

fn check_double(table: &Table, xs: &[f32], max: f32) {
    let blocks = xs.len().div_ceil(BLOCK);
    let (mut a, mut b) = (xs.to_vec(), xs.to_vec());
    let (mut sums_a, mut sums_b) = (vec![0.0; blocks], vec![0.0; blocks]);
    let total_a = (table.exp_sum_double)(&mut a, max, &mut sums_a);
    let total_b = (SCALAR.exp_sum_double)(&mut b, max, &mut sums_b);
    assert_eq!(bits(&a), bits(&b));
    let same = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    assert!(same(total_a, total_b), "{total_a} {total_b}");
    assert!(sums_a.iter().zip(&sums_b).all(|(&a, &b)| same(a, b)));
    // Here the order of additions is free, and with it the last bits.
    let near = |a: f64, b: f64| {
        let error = (a - b).abs();
        error <= b.abs() * xs.len() as f64 * f64::EPSILON || same(a, b)
    };
    let again = (table.sum_double)(&b, &mut sums_a);
    assert!(near(again, total_b));
    assert!(sums_a.iter().zip(&sums_b).all(|(&a, &b)| near(a, b)));
}

/// Those of candidates, in place, are the same.
#[test]
fn exponentials_in_place() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = (SCALAR.logits)(&array(logits), &mut xs);
        let blocks = xs.len().div_ceil(BLOCK);
        let (mut sums, mut expected_sums) = (vec![0.0; blocks], vec![0.0; blocks]);
        let mut data = array(logits);
        let mut expected = data.clone();
        let sum = (table.exp_p)(&mut data, max, &mut [0.0; BLOCK], &mut sums);
        let total = (SCALAR.exp_sum_double)(&mut xs, max, &mut expected_sums);
        (SCALAR.set_p)(&mut expected, &xs);
        assert_eq!(bits_of(&data), bits_of(&expected), "{:?}", table.name);
        let near = |a: f64, b: f64| (a - b).abs() <= b * 1e-10 || a.is_nan() && b.is_nan();
        let exactly = |a: f64, b: f64| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(exactly(sum, total), "{:?} {sum} {total}", table.name);
        let mut pairs = sums.iter().zip(&expected_sums);
        assert!(pairs.all(|(&a, &b)| exactly(a, b)), "{:?}", table.name);
        let mut in_order = array(logits);
        let sum = (table.exp_p_in_order)(&mut in_order, max, &mut [0.0; BLOCK]);
        assert_eq!(bits_of(&in_order), bits_of(&expected), "{:?}", table.name);
        let total = xs.iter().fold(0.0, |sum, x| sum + x);
        assert!(same(sum, total), "{:?} {sum} {total}", table.name);
        let total = (SCALAR.divide_p)(&mut in_order.clone(), 0.7, &mut expected_sums);
        let sum = (table.divide_p)(&mut in_order, 0.7, &mut sums);
        assert!(near(sum, total), "{:?} {sum} {total}", table.name);
        assert!(sums.iter().zip(&expected_sums).all(|(&a, &b)| near(a, b)));
        (SCALAR.divide)(&mut xs, 0.7);
        let ps: Vec<f32> = in_order.iter().map(|c| c.p).collect();
        assert_eq!(bits(&ps), bits(&xs), "{:?}", table.name);
        (table.divide_p_double)(&mut data, 3.0);
        (SCALAR.divide_p_double)(&mut expected, 3.0);
        assert_eq!(bits_of(&data), bits_of(&expected), "{:?}", table.name);
    });
}

/// The sum in order that comes with the moments, where it comes.
#[test]
fn sums_beside_moments() {
    let mut came = 0;
    for_all(|table, logits| {
        let data = array(logits);
        let mut sums = vec![[0.0; 2]; data.len().div_ceil(BLOCK)];
        let mut maxima = vec![0.0; data.len().div_ceil(GROUP)];
        let (max, sum) = (table.moments)(&data, &mut sums, &mut maxima, true);
        assert_eq!(max, (SCALAR.max)(&data), "{:?}", table.name);
        if logits.iter().all(|x| x.is_finite())
            && let Some(sum) = sum
        {
            came += usize::from(logits.len() > 10 * BLOCK);
            assert_eq!(sum, (SCALAR.signed_sum)(&data).0, "{:?}", table.name);
        }
    });
    assert!(came > 0 || supported().len() == 1);
}

#[test]
fn wide_exponentials() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = (SCALAR.logits)(&array(logits), &mut xs);
        if !max.is_finite() {
            return;
        }
        let (mut a, mut b) = (xs.clone(), xs);
        let sums = (
            (table.exp_wide)(&mut a, max),
            (SCALAR.exp_wide)(&mut b, max),
        );
        assert!((sums.0 - sums.1).abs() <= sums.1 * 1e-9, "{sums:?}");
        for (a, b) in a.iter().zip(&b) {
            assert!(a.to_bits().abs_diff(b.to_bits()) <= 1, "{a} {b}");
        }
    });
}

#[test]
fn exponentials_in_double_precision() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        let max = (SCALAR.logits)(&array(logits), &mut xs);
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
                let sum = (table.exp_double)(start, &mut a, max);
                let expected = (SCALAR.exp_double)(start, &mut b, max);
                assert_eq!(bits(&a), bits(&b), "{:?}", table.name);
                assert_eq!(sum.to_bits(), expected.to_bits(), "{:?}", table.name);
            }
        }
    });
}

#[test]
fn exp_in_double_precision_is_that_of_the_host() {
    for table in supported() {
        assert!(exp_double_agrees(table), "{:?}", table.name);
    }
}

/// Terms around half of the distance between two doubles near 1.
#[test]
fn sums_of_halves_in_double_precision() {
    for start in [1.0, 1.0 + f64::EPSILON, 3.5] {
        let xs: Vec<f32> = (0..5000).map(|i| -36.5 + (i % 97) as f32 / 60.0).collect();
        for table in supported() {
            let (mut a, mut b) = (xs.clone(), xs.clone());
            let sum = (table.exp_double)(start, &mut a, 0.0);
            let expected = (SCALAR.exp_double)(start, &mut b, 0.0);
            assert_eq!(sum.to_bits(), expected.to_bits(), "{:?}", table.name);
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
    for table in supported() {
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
            let blocks = data.len().div_ceil(BLOCK);
            let (mut sums, mut expected) = (vec![0.0; blocks], vec![0.0; blocks]);
            let mut same = data.clone();
            let sum = (table.exp_p)(&mut data, 0.0, &mut [0.0; BLOCK], &mut sums);
            let total = (SCALAR.exp_p)(&mut same, 0.0, &mut [0.0; BLOCK], &mut expected);
            assert_eq!(
                sum.to_bits(),
                total.to_bits(),
                "{:?}, case {case}",
                table.name
            );
            assert_eq!(sums, expected, "{:?}, case {case}", table.name);
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
        for table in supported() {
            let (mut a, mut b) = (data.clone(), data.clone());
            (table.divide_p_double)(&mut a, by);
            (SCALAR.divide_p_double)(&mut b, by);
            for (a, b) in a.iter().zip(&b) {
                assert!(same(a.p, b.p), "{:?}, by {by}: {} {}", table.name, a.p, b.p);
            }
        }
    }
}

#[test]
fn sums() {
    for_all(|table, logits| {
        let terms: Vec<f32> = logits.iter().map(|x| x.abs()).collect();
        for start in [0.0, 1e-20, 0.75, 1.0, 16_777_215.0] {
            let (a, b) = ((table.sum)(start, &terms), (SCALAR.sum)(start, &terms));
            assert!(same(a, b), "{:?} {a} {b}", table.name);
        }
        let data = array(logits);
        let (a, b) = ((table.signed_sum)(&data), (SCALAR.signed_sum)(&data));
        assert!(same(a.0, b.0) && a.1 == b.1, "{:?} {a:?} {b:?}", table.name);
        for mean in [0.0, -1.5, 1e-9, 100.0] {
            let (mut ours, mut reference) = (data.clone(), data.clone());
            let a = (table.squares_masking)(&mut ours, mean, mean + 1.0);
            let b = (SCALAR.squares_masking)(&mut reference, mean, mean + 1.0);
            assert!(same(a, b), "{:?} {a} {b}", table.name);
            assert_eq!(bits_of(&ours), bits_of(&reference), "{:?}", table.name);
        }
    });
}

#[test]
fn columns() {
    for_all(|table, logits| {
        for first in [0, 1] {
            let mut data = array(logits);
            // Ids that are no indices, all of them or the last.
            data.iter_mut().for_each(|c| c.id += first);
            let (mut a, mut b) = (vec![0.0; data.len()], vec![0.0; data.len()]);
            let columns = (
                (table.column)(&data, &mut a),
                (SCALAR.column)(&data, &mut b),
            );
            assert_eq!(columns.0, columns.1, "{:?}", table.name);
            assert_eq!(bits(&a), bits(&b));
            let Some(last) = data.last_mut() else { return };
            last.id = -1;
            assert!(!(table.column)(&data, &mut a).plain);
        }
    });
}

#[test]
fn steps_below_the_largest() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        let column = (SCALAR.column)(&array(logits), &mut xs);
        for factor in [1000.0 / (column.max - column.min), 1e30, 0.0] {
            let (mut a, mut b) = (vec![0; xs.len()], vec![0; xs.len()]);
            (table.steps)(&xs, column.max, factor, 1000.0, &mut a);
            (SCALAR.steps)(&xs, column.max, factor, 1000.0, &mut b);
            assert_eq!(a, b, "{:?}", table.name);
        }
    });
}

#[test]
fn fetching_keeps_pairs_together() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        (SCALAR.logits)(&array(logits), &mut xs);
        let mut indices: Vec<u32> = (0..xs.len() as u32).rev().collect();
        let mut to = vec![0.0; xs.len()];
        (table.fetch)(&xs, &mut indices, &mut to);
        assert!(
            indices
                .iter()
                .zip(&to)
                .all(|(&i, x)| xs[i as usize].to_bits() == x.to_bits())
        );
        // What is equal stays in the order in which it was.
        let in_order = |pair: &[(u32, f32)]| pair[0].1 != pair[1].1 || pair[0].0 > pair[1].0;
        let pairs: Vec<_> = indices.iter().copied().zip(to).collect();
        assert!(pairs.windows(2).all(in_order), "{:?}", table.name);
        indices.sort_unstable();
        assert!(indices.iter().zip(0..).all(|(&i, n)| i == n));
    });
}

#[test]
#[should_panic]
fn fetching_from_outside_is_refused() {
    let last = supported().pop().expect("scalar is always there");
    let mut indices = vec![3; 64];
    indices[40] = 64;
    (last.fetch)(&[0.0; 64], &mut indices, &mut [0.0; 64]);
}

#[test]
fn rises() {
    for_all(|table, logits| {
        let mut xs = vec![0.0; logits.len()];
        (SCALAR.logits)(&array(logits), &mut xs);
        for start in [1, 2, 5, 17, 100].into_iter().filter(|&i| i <= xs.len()) {
            assert_eq!(
                (table.next_rise)(&xs, start),
                (SCALAR.next_rise)(&xs, start)
            );
        }
        xs.sort_by(|a, b| b.total_cmp(a));
        let start = xs.len().min(1);
        assert_eq!((table.next_rise)(&xs, start), xs.len());
        if let Some(last) = xs.last_mut().filter(|x| x.is_finite()) {
            *last = f32::INFINITY;
            assert_eq!(
                (table.next_rise)(&xs, start),
                (SCALAR.next_rise)(&xs, start)
            );
        }
    });
}

#[test]
fn logarithms_and_entropies() {
    for_all(|table, logits| {
        let mut ps: Vec<f32> = logits.iter().map(|x| x.abs().min(40.0)).collect();
        ps.iter_mut().for_each(|x| *x = math::exp(-*x));
        for xs in [&ps[..], logits] {
            let (mut a, mut b) = (vec![0.0; xs.len()], vec![0.0; xs.len()]);
            (table.lns)(xs, &mut a);
            (SCALAR.lns)(xs, &mut b);
            assert_eq!(bits(&a), bits(&b), "{:?}", table.name);
            let smallest = (
                (table.entropies)(xs, &mut a),
                (SCALAR.entropies)(xs, &mut b),
            );
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
    for table in supported() {
        assert!(ln_agrees(table), "{:?}", table.name);
        let mut all = (0..=f32::INFINITY.to_bits()).step_by(step).peekable();
        while all.peek().is_some() {
            let xs: Vec<f32> = all.by_ref().take(4096).map(f32::from_bits).collect();
            let mut ours = vec![0.0; xs.len()];
            (table.lns)(&xs, &mut ours);
            for (x, ours) in xs.iter().zip(&ours) {
                assert_eq!(
                    ours.to_bits(),
                    math::ln(*x).to_bits(),
                    "{:?}: ln({x})",
                    table.name
                );
            }
        }
    }
}

#[test]
fn tails() {
    for_all(|table, logits| {
        let xs: Vec<f32> = logits.iter().map(|x| x.abs()).collect();
        let terms: Vec<f32> = xs.iter().map(|x| x * 0.75).collect();
        for (above, below, c) in [(0.0, 2.0, 1e6), (0.5, 1.5, 1e5), (0.0, 1e-3, 64.0)] {
            let c = f32::from_bits(f32::to_bits(c) & 0x7f80_0000);
            let (mut a, mut b) = (vec![], vec![]);
            let sums = (
                (table.tail)(&xs, &terms, above, below, c, Some(&mut a)),
                (SCALAR.tail)(&xs, &terms, above, below, c, Some(&mut b)),
            );
            assert!(same(sums.0, sums.1) || sums.1 >= 2.0 * c, "{sums:?}");
            assert_eq!(a, b, "{:?}", table.name);
        }
    });
}

#[test]
fn rewriting() {
    for_all(|table, logits| {
        let both = |f: &dyn Fn(&Table, &mut [TokenData])| {
            let (mut a, mut b) = (array(logits), array(logits));
            f(table, &mut a);
            f(&SCALAR, &mut b);
            assert_eq!(bits_of(&a), bits_of(&b), "{:?}", table.name);
        };
        both(&|t, data| (t.set_p)(data, logits));
        both(&|t, data| (t.set_quotients)(data, logits, 3.0));
        let ids: Vec<u32> = (7..).take(logits.len()).collect();
        both(&|t, data| (t.write_divided)(data, &ids, logits, logits, 0.3));
        both(&|t, data| (t.write_quotients)(data, &ids, logits, logits, 3.0));
        both(&|t, data| (t.divide_logits)(data, 0.8));
        both(&|t, data| (t.mask_below)(data, 0.5));
        both(&|t, data| (t.mask_below)(data, f32::NAN));
        let (mut a, mut b) = (logits.to_vec(), logits.to_vec());
        (table.divide)(&mut a, 0.7);
        (SCALAR.divide)(&mut b, 0.7);
        assert_eq!(bits(&a), bits(&b));
    });
}

#[test]
fn bending() {
    for_all(|table, logits| {
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
            let ours = (table.bend)(&mut a, 0.7, &mut ps_a, curve);
            let theirs = (SCALAR.bend)(&mut b, 0.7, &mut ps_b, curve);
            assert_eq!(ours.1, theirs.1, "{:?}", table.name);
            // With a NaN about nobody asks for the largest.
            assert!(ours.0 == theirs.0 || !ours.1);
            assert_eq!(bits_of(&a), bits_of(&b));
            assert_eq!(bits(&ps_a), bits(&ps_b));
        }
    });
}

#[test]
fn thresholds() {
    for_all(|table, logits| {
        for threshold in [-1.0, 3.0, f32::NEG_INFINITY, f32::NAN, f32::INFINITY] {
            let data = array(logits);
            let (mut a, mut b) = (vec![7], vec![7]);
            (table.at_least)(&data, 5, threshold, &mut a);
            (SCALAR.at_least)(&data, 5, threshold, &mut b);
            assert_eq!(a, b, "{:?}", table.name);
            let (mut picked_a, mut picked_b) = (vec![1.0], vec![1.0]);
            (table.select)(logits, threshold, &mut a, &mut picked_a);
            (SCALAR.select)(logits, threshold, &mut b, &mut picked_b);
            assert_eq!(a, b, "{:?}", table.name);
            assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", table.name);
            let others: Vec<f32> = (0..logits.len()).map(|i| i as f32).collect();
            for high in [f32::INFINITY, 0.5, f32::NAN] {
                (table.pick)(logits, &others, threshold, high, &mut picked_a);
                (SCALAR.pick)(logits, &others, threshold, high, &mut picked_b);
                assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", table.name);
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
                let exact = xs.iter().fold(0.0, |sum, x| sum + math::exp(x - max));
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
    for table in supported() {
        assert!(exp_agrees(table), "{:?}", table.name);
        for (from, to) in ranges {
            let mut previous = f32::INFINITY;
            let mut all = (from.to_bits()..to.to_bits()).step_by(step).peekable();
            while all.peek().is_some() {
                let xs: Vec<f32> = all.by_ref().take(4096).map(f32::from_bits).collect();
                let mut ours = xs.clone();
                (table.exp_sum)(0.0, &mut ours, 0.0);
                for (x, e) in xs.iter().zip(&ours) {
                    let host = math::exp(*x);
                    assert_eq!(e.to_bits(), host.to_bits(), "{:?}: exp({x})", table.name);
                    // What a descending sum relies on: never up where x goes down.
                    assert!(*e <= previous || from > 0.0, "exp({x})");
                    previous = *e;
                }
            }
        }
    }
}

/// A draw exactly on the border of two candidates is decided by the operations of the built-in, one
/// inside a candidate is not.
#[test]
fn a_draw_on_a_border_gives_way() {
    let mut work = Workspace::default();
    work.take_logits(&array(&[1.0, 1.0]));
    let sum = work.sum_double();
    let before = Fallback::Draw.count();
    assert_eq!(work.choose(sum, 0.5, |_| 7), 7);
    assert!(Fallback::Draw.count() > before);
    assert_eq!(work.choose(sum, 0.25, |_| 7), 0);
    assert_eq!(work.choose(sum, 0.75, |_| 7), 1);
}
