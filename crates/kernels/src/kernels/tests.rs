//! Compares every instruction set that this processor has with the naive passes, on the same
//! arrays.

use super::bitmap::{count_bits, mask_tokens};
use super::column::{column_selecting, copy_column, copy_logits};
use super::compact::{at_least, near_max, pick, pick_at_least, select};
use super::naive;
use super::naive_logits;
use super::quotient::{divide_p_double, set_quotients, write_quotients};
use super::rewrite::{
    self, Cubic, Curve, bend, bend_logits, cube_logits, divide, divide_logits, mask_below,
    mask_logits_below, set_p, write_divided,
};
use super::scan::{
    any_between, argmax, claimed_max, count_at_least, has_between, max, max_logit, next_rise,
    position_of, sum_from,
};
use super::sort_key::{descending_key, fetch, logit_of, steps};
use crate::simd::{Isa, MAX_LANES};
use crate::token::{TokenData, comparable};

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

/// The sizes of arrays under Miri, which would take minutes with all sizes.
#[cfg(miri)]
pub(super) const SIZES: [usize; 3] = [0, 1, 17];

/// The step from one tried input to the next: under Miri most are skipped.
pub(super) const STEP: usize = if cfg!(miri) { 4 } else { 1 };

/// Returns `n` logits of every kind that a pass may meet.
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

pub(super) fn array(logits: &[f32]) -> Vec<TokenData> {
    let candidates = logits.iter().enumerate().map(|(i, &logit)| TokenData {
        id: i as i32,
        logit,
        p: i as f32,
    });
    candidates.collect()
}

/// Returns the bits of a number; the same bits for every NaN.
fn bits_of_number(x: f32) -> u32 {
    (if x.is_nan() { f32::NAN } else { x }).to_bits()
}

pub(super) fn bits(xs: &[f32]) -> Vec<u32> {
    xs.iter().copied().map(bits_of_number).collect()
}

pub(super) fn bits_of(data: &[TokenData]) -> Vec<(i32, u32, u32)> {
    let of = |c: &TokenData| (c.id, bits_of_number(c.logit), bits_of_number(c.p));
    data.iter().map(of).collect()
}

pub(super) fn same(a: f32, b: f32) -> bool {
    bits_of_number(a) == bits_of_number(b)
}

/// Calls `check` on every instruction set, with every input.
pub(super) fn for_all(mut check: impl FnMut(Isa, &[f32])) {
    for isa in Isa::supported() {
        for n in SIZES {
            for logits in inputs(n).into_iter().step_by(STEP) {
                let _forced = isa.force();
                check(isa, &logits);
            }
        }
    }
}

/// In an array that rises from the first candidate on, few superfluous candidates are kept.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn little_is_kept_of_a_rising_array() {
    let logits: Vec<f32> = (0..100_000).map(|i| i as f32 / 1000.0).collect();
    let mut kept = Vec::new();
    assert_eq!(near_max(&array(&logits), -3.0, &mut kept), logits[99_999]);
    assert!((3000..3010).contains(&kept.len()), "{}", kept.len());
    assert!(kept.capacity() < 8192, "{}", kept.capacity());
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
            // The superfluous candidates depend on the instruction set.
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

/// In an array that is marked as sorted, the first logit counts as the largest, even if it is not.
#[test]
fn claimed_maxima() {
    let unsorted = array(&[1.0, 3.0, 2.0]);
    for (sorted, expected) in [(false, 3.0), (true, 1.0)] {
        assert_eq!(max_logit(&unsorted, sorted), expected);
        assert_eq!(claimed_max(&unsorted, sorted, 3.0), expected);
    }
    let masked = array(&[f32::NAN, 3.0]);
    assert_eq!(max_logit(&masked, true), f32::NEG_INFINITY);
    assert_eq!(claimed_max(&masked, true, 3.0), f32::NEG_INFINITY);
    assert_eq!(max_logit(&[], true), f32::NEG_INFINITY);
    assert_eq!(claimed_max(&[], true, 3.0), 3.0);
}

/// The index found is that of the first of several equal logits, in whatever group they are.
#[test]
fn places() {
    for n in [0, 1, 63, 64, 65, 200] {
        let xs: Vec<f32> = (0..n).map(|i| (i % 150) as f32).collect();
        for x in [-1.0, 0.0, 1.0, 62.0, 63.0, 64.0, 149.0, 199.0] {
            let expected = xs.iter().position(|&other| other == x);
            assert_eq!(position_of(&xs, x), expected, "{x} of {n}");
        }
    }
}

#[test]
fn quotients_that_are_near_to_a_border() {
    let mut data: Vec<TokenData> = array(&vec![0.0; 4096]);
    // Multiples of an odd divisor, plus half a unit: quotients that lie between two floats.
    for (candidate, i) in data.iter_mut().zip(0u32..) {
        candidate.p = match i % 5 {
            0 => 1.0,
            _ => f32::from_bits(0x3f00_0000 + i * 2049),
        };
    }
    // Divisors by which the quotient of 1 lies between two floats.
    let between = |i: u32| f64::from(f32::from_bits(0x3f00_0000 + i * 41_943)) + 2f64.powi(-25);
    let inverses = (0..if cfg!(miri) { 2 } else { 100 }).map(|i| 1.0 / between(i));
    let others = [
        1.0 + 2f64.powi(-24),
        3.0,
        2f64.powi(126) * 1.1,
        f64::NAN,
        0.0,
        f64::INFINITY,
    ];
    for by in inverses.chain(others) {
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
fn columns() {
    for_all(|isa, logits| {
        for first in [0, 1] {
            let mut data = array(logits);
            // Ids that are not indices: all of them, or only the last.
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
            // The value that all logits of one input have.
            3.0,
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
            let expected = naive_logits::has_between(logits, low, high);
            let ours = has_between(logits, low, high);
            assert_eq!(ours, expected, "{isa:?} {low} {high}");
        }
    });
}

#[test]
fn keys_descend() {
    let descending = [
        f32::INFINITY,
        f32::MAX,
        3.0,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        0.0,
        -f32::from_bits(1),
        -3.0,
        f32::MIN,
        f32::NEG_INFINITY,
    ];
    let keys = descending.map(descending_key);
    assert!(keys.is_sorted_by(|a, b| a < b));
    assert_eq!(bits(&keys.map(logit_of)), bits(&descending));
    assert_eq!(descending_key(-0.0), descending_key(0.0));
    for nan in [f32::NAN, -f32::NAN] {
        assert_eq!(descending_key(nan), descending_key(f32::NEG_INFINITY));
    }
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
        // Equal elements keep their order.
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
        for (square, cube) in [(0.2, 0.0), (0.15, 0.05), (0.0, 0.1), (-0.3, 0.5)] {
            // From the larger `max` the distance of the smallest number overflows.
            for max in [3.25, f32::MAX] {
                let curve = Cubic { max, square, cube };
                same!(cube_logits(curve));
                let (mut a, mut b) = (logits.to_vec(), array(logits));
                rewrite::cube(&mut a, curve);
                naive::cube_logits(&mut b, curve);
                let b: Vec<f32> = b.iter().map(|b| b.logit).collect();
                assert_eq!(bits(&a), bits(&b), "{:?}", isa);
            }
        }
        // With the last of these thresholds an element after the last whole register is at the
        // threshold.
        for threshold in [0.5, f32::NAN, logits.last().copied().unwrap_or(0.0)] {
            same!(mask_below(threshold));
            let (mut a, mut b) = (logits.to_vec(), array(logits));
            mask_logits_below(&mut a, threshold);
            naive::mask_below(&mut b, threshold);
            let b: Vec<f32> = b.iter().map(|b| b.logit).collect();
            assert_eq!(bits(&a), bits(&b), "{:?}", isa);
        }
        let (mut a, mut b) = (logits.to_vec(), logits.to_vec());
        divide(&mut a, 0.7);
        naive::divide(&mut b, 0.7);
        assert_eq!(bits(&a), bits(&b));
    });
}

#[test]
fn masking_by_token() {
    for_all(|isa, logits| {
        let mut rng = Rng(logits.len() as u64);
        let mut word = |some: u64| match some {
            0 => 0,
            1 => u64::MAX,
            _ => rng.next() << 33 ^ rng.next() << 9 ^ rng.next(),
        };
        // Bitmaps for fewer tokens than the array has, and for more.
        for n_words in [0, logits.len() / 70, logits.len() / 64 + 2] {
            let allowed: Vec<u64> = (0..n_words as u64).map(|i| word(i % 4)).collect();
            let ones = allowed.iter().map(|word| word.count_ones() as usize);
            assert_eq!(count_bits(&allowed), ones.sum::<usize>(), "{:?}", isa);
            for first in [0, 1, 64, 77, -3, i32::MAX - 5] {
                let mut a = array(logits);
                a.iter_mut().for_each(|c| c.id = c.id.wrapping_add(first));
                if first == 1 && a.len() > 90 {
                    a.swap(30, 67);
                    a[40].id = i32::MIN;
                }
                // The array begins at different places in a cache line.
                for skipped in [0, 1, 5].map(|n| a.len().min(n)) {
                    let (mut a, mut b) = (a.clone(), a.clone());
                    mask_tokens(&mut a[skipped..], &allowed);
                    naive::mask_tokens(&mut b[skipped..], &allowed);
                    assert_eq!(bits_of(&a), bits_of(&b), "{:?}", isa);
                }
            }
        }
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
            // If a logit is NaN, the largest is not used.
            assert!(ours.0 == theirs.0 || !ours.1);
            assert_eq!(bits_of(&a), bits_of(&b));
            assert_eq!(bits(&ps_a), bits(&ps_b));
            // The same with a column of logits, which has no NaN.
            let mut bent: Vec<f32> = logits.iter().map(|&x| comparable(x)).collect();
            let mut b: Vec<_> = array(&bent);
            b.iter_mut()
                .enumerate()
                .for_each(|(i, b)| b.p = 1.0 / (1.0 + i as f32));
            let es: Vec<f32> = b.iter().map(|b| b.p).collect();
            let ours = bend_logits(&mut bent, &es, 0.7, curve);
            let theirs = naive::bend(&mut b, 0.7, &mut ps_b, curve);
            assert_eq!(ours.1, theirs.1, "{:?}", isa);
            assert!(ours.0 == theirs.0 || !ours.1);
            let expected: Vec<f32> = b.iter().map(|b| b.logit).collect();
            assert_eq!(bits(&bent), bits(&expected), "{:?}", isa);
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
            pick_at_least(logits, threshold, &mut picked_a);
            naive::pick_at_least(logits, threshold, &mut picked_b);
            assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", isa);
            let others: Vec<f32> = (0..logits.len()).map(|i| i as f32).collect();
            for high in [f32::INFINITY, 0.5, 3.0, f32::NAN] {
                pick(logits, &others, threshold, high, &mut picked_a);
                naive::pick(logits, &others, threshold, high, &mut picked_b);
                assert_eq!(bits(&picked_a), bits(&picked_b), "{:?}", isa);
            }
            let mut picked = Vec::new();
            pick(logits, &others, threshold, f32::INFINITY, &mut picked);
            let room = 2 * (logits.len() + MAX_LANES);
            assert!(picked.capacity() <= room, "{}", picked.capacity());
            let count = naive_logits::count_from(logits, threshold);
            assert_eq!(count_at_least(logits, threshold), count, "{:?}", isa);
            // Integers, whose sum does not depend on the order.
            let reach = logits.iter().zip(&others).filter(|&(&x, _)| x >= threshold);
            let expected: f64 = reach.map(|(_, &x)| f64::from(x)).sum();
            let has_nan = threshold.is_nan() || logits.iter().any(|x| x.is_nan());
            assert!(
                has_nan || sum_from(logits, &others, threshold) == expected,
                "{:?}",
                isa
            );
        }
    });
}
