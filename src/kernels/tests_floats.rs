//! The passes over raw logits of every instruction set that this processor has, in every precision,
//! against the scalar reference.

use half::{bf16, f16};

use super::floats::{BLOCK, CHUNK, Logits, Passes, Sums};
use super::survivors::{SUMMED, Survivors, THRESHOLDS};
use super::table::{SCALAR, supported};
use super::tests::{SIZES, STEP, inputs};
use crate::token::TokenData;

/// Calls `check` with every table on every input in every precision.
fn for_all(mut check: impl FnMut(&Passes, Logits<'_>)) {
    let more = [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + BLOCK, 63, 64, 65];
    for table in supported() {
        // Miri takes minutes for all of them.
        let more = &more[if cfg!(miri) { more.len() - 1 } else { 0 }..];
        for n in SIZES.iter().chain(more).copied() {
            for logits in inputs(n).into_iter().chain(unusual(n)).step_by(STEP) {
                let halves: Vec<f16> = logits.iter().map(|&x| f16::from_f32(x)).collect();
                let brains: Vec<bf16> = logits.iter().map(|&x| bf16::from_f32(x)).collect();
                check(&table.floats, Logits::from(&logits));
                check(&table.floats, Logits::from(&halves[..]));
                check(&table.floats, Logits::from(&brains[..]));
            }
        }
    }
}

/// Logits far from 0, almost certain, and as masks make them.
fn unusual(n: usize) -> Vec<Vec<f32>> {
    let base = inputs(n).swap_remove(1);
    let mut certain = vec![0.0; n];
    let mut masked = vec![f32::MIN; n];
    let mut alone = vec![f32::NEG_INFINITY; n];
    if n > 0 {
        certain[n / 2] = 75.0;
        masked[n / 3] = 2.0;
        alone[n / 3] = -7.0;
    }
    let mut some_masked = base.clone();
    for x in some_masked.iter_mut().skip(5).step_by(7) {
        *x = f32::NEG_INFINITY;
    }
    let moved = |by: f32| base.iter().map(|x| x + by).collect();
    let steep = (0..n).map(|i| i as f32 * 0.01).collect();
    vec![
        moved(1e4),
        moved(-1e4),
        moved(1e6),
        moved(-3e30),
        certain,
        masked,
        alone,
        some_masked,
        steep,
    ]
}

fn bits(data: &[TokenData]) -> Vec<(i32, f32, f32)> {
    data.iter().map(|c| (c.id, c.logit, c.p)).collect()
}

#[test]
fn maxima() {
    for_all(|passes, xs| {
        let blocks = xs.len().div_ceil(BLOCK);
        let [mut a, mut b, mut c] = [(); 3].map(|()| vec![7.0; blocks]);
        let max = (SCALAR.floats.block_maxima)(xs, &mut a);
        assert_eq!((passes.block_maxima)(xs, &mut b), max);
        assert_eq!(a, b);
        assert_eq!((passes.max)(xs), max);
        let counted = (SCALAR.floats.block_maxima_and_count)(xs, &mut a);
        assert_eq!((passes.block_maxima_and_count)(xs, &mut c), counted);
        assert_eq!(a, c);
    });
}

#[test]
fn candidates() {
    for_all(|passes, xs| {
        let mut maxima = vec![0.0; xs.len().div_ceil(BLOCK)];
        let max = (SCALAR.floats.block_maxima)(xs, &mut maxima);
        for threshold in [f32::MIN, -3.0, 2.5, max, f32::INFINITY] {
            if threshold == f32::NEG_INFINITY {
                continue;
            }
            let before = TokenData {
                id: 9,
                logit: 1.0,
                p: 2.0,
            };
            let [mut a, mut b] = [(); 2].map(|()| vec![before]);
            let first = 3 * BLOCK as u32;
            (SCALAR.floats.collect)(xs, &maxima, first, threshold, &mut a);
            (passes.collect)(xs, &maxima, first, threshold, &mut b);
            assert_eq!(bits(&a), bits(&b), "threshold {threshold}");
            assert_eq!(bits(&b)[0], bits(&[before])[0]);
            let mut survivors = Survivors::default();
            survivors.clear(xs.len() + first as usize, max);
            (passes.collect_survivors)(xs, &maxima, first, threshold, &mut survivors);
            let mut written = vec![before];
            survivors.write_to(&mut written);
            assert_eq!(bits(&written), bits(&a), "survivors, threshold {threshold}");
            assert_eq!(survivors.len(), a.len() - 1);
            for (place, candidate) in a[1..].iter().enumerate().step_by(7) {
                assert_eq!(survivors.token(place), candidate.id);
            }
        }
    });
}

#[test]
fn numbers_between() {
    for_all(|passes, xs| {
        let Logits::F32(xs) = xs else {
            return;
        };
        let ends = [f32::NEG_INFINITY, -2.0, 1.0, f32::INFINITY, f32::NAN];
        for range in ends.into_iter().flat_map(|a| ends.map(|b| (a, b))) {
            let [mut a, mut b] = [(); 2].map(|()| Vec::new());
            (SCALAR.floats.between)(xs, range, &mut a);
            (passes.between)(xs, range, &mut b);
            assert_eq!(bits(&a), bits(&b), "{range:?}");
        }
    });
}

/// The finite logits of `xs` as survivors.
fn survivors_of(xs: Logits<'_>) -> Survivors {
    let mut maxima = vec![0.0; xs.len().div_ceil(BLOCK)];
    let max = (SCALAR.floats.block_maxima)(xs, &mut maxima);
    let mut all = Survivors::default();
    all.clear(xs.len(), max);
    (SCALAR.floats.collect_survivors)(xs, &maxima, 0, f32::MIN, &mut all);
    all
}

#[test]
fn survivors_after_a_cut() {
    for_all(|passes, xs| {
        let max = (SCALAR.floats.max)(xs);
        if !max.is_finite() {
            return;
        }
        for (threshold, divisor) in [(f32::MIN, 1.0), (-3.0, 0.8), (max, 0.01), (max - 3.0, 1.7)] {
            let mut survivors = survivors_of(xs);
            for place in (1..survivors.len()).step_by(5) {
                if survivors.logits()[place] < max {
                    survivors.leave_out(place);
                }
            }
            let kept = survivors.cut(threshold);
            assert_eq!((passes.count_from)(survivors.logits(), threshold), kept);
            survivors.divide(divisor);
            if !survivors.max().is_finite() {
                continue;
            }
            let blocks = survivors.len().div_ceil(SUMMED);
            let [mut ours, mut expected] = [(); 2].map(|()| vec![0.0; blocks]);
            (passes.kept_masses)(&survivors, &mut ours);
            (SCALAR.floats.kept_masses)(&survivors, &mut expected);
            for (a, b) in ours.iter().zip(&expected) {
                assert!((a - b).abs() <= 5e-7 * b.max(1e-40), "{a}, not {b}");
            }
            let [mut before, mut after] = [(); 2].map(|()| Vec::new());
            survivors.write_to(&mut before);
            assert_eq!(before.len(), kept);
            let divided = survivors.max();
            survivors.settle();
            survivors.write_to(&mut after);
            assert_eq!(bits(&before), bits(&after));
            assert_eq!(survivors.max(), divided);
        }
    });
}

#[test]
fn masses() {
    for_all(|passes, xs| {
        let Logits::F32(xs) = xs else {
            return;
        };
        let max = (SCALAR.floats.max)(Logits::F32(xs));
        let finite: Vec<f32> = xs.iter().copied().filter(|x| x.is_finite()).collect();
        if !max.is_finite() {
            return;
        }
        let mut thresholds = [max; THRESHOLDS];
        thresholds[..3].copy_from_slice(&[f32::MIN, max - 2.0, f32::INFINITY]);
        let expected = (SCALAR.floats.masses_above)(&finite, max, &thresholds);
        let masses = (passes.masses_above)(&finite, max, &thresholds);
        for (mass, expected) in masses.into_iter().zip(expected) {
            assert!(
                (mass - expected).abs() <= 5e-7 * expected,
                "{mass}, not {expected}"
            );
        }
    });
}

/// 5e-7 is what the module promises.
#[test]
fn sums() {
    let mut worst = 0.0f64;
    for_all(|passes, xs| {
        let blocks = xs.len().div_ceil(BLOCK);
        let [mut a, mut b] = [(); 2].map(|()| vec![7.0; blocks]);
        let [mut ours, mut expected, mut again] = [Sums::default(); 3];
        (SCALAR.floats.add)(&mut expected, xs, &mut a);
        (passes.add)(&mut ours, xs, &mut b);
        assert_eq!(a, b);
        (passes.add)(&mut again, xs, &mut []);
        assert_eq!(again, ours);
        assert_eq!((ours.max, ours.unmasked), (expected.max, expected.unmasked));
        if ours.max == f32::INFINITY {
            return;
        }
        let mut mass = Sums::default();
        (passes.add_mass)(&mut mass, xs, &mut []);
        assert_eq!((mass.rest, mass.max), (ours.rest, ours.max));
        assert_eq!(mass.unmasked, ours.unmasked);
        for (a, b) in [(ours.rest, expected.rest), (ours.spread, expected.spread)] {
            // What the reference leaves out is below 1e-50.
            let error = (a - b).abs() / b.max(1e-40);
            assert!(error < 5e-7, "{ours:?} {expected:?}");
            worst = worst.max(error);
        }
    });
    eprintln!("largest relative error: {worst:.1e}");
}

/// Whatever number is among plain ones, it is in the sums, or known to be masked or infinite.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn sums_with_any_number() {
    const N: usize = 3 * CHUNK;
    let mut logits = inputs(N).swap_remove(0);
    let steps = (0..=u32::MAX).step_by(9_437_189);
    for x in steps.chain(0xFF80_0000..=0xFF80_0001).map(f32::from_bits) {
        for place in [7, N - 100] {
            let plain = std::mem::replace(&mut logits[place], x);
            let mut expected = Sums::default();
            (SCALAR.floats.add)(&mut expected, Logits::from(&logits), &mut []);
            for table in supported() {
                let mut ours = Sums::default();
                (table.floats.add)(&mut ours, Logits::from(&logits), &mut []);
                assert_eq!((ours.max, ours.unmasked), (expected.max, expected.unmasked));
                let [of_rest, of_spread] =
                    [(ours.rest, expected.rest), (ours.spread, expected.spread)]
                        .map(|(a, b)| (a - b).abs() / b.max(1e-40));
                assert!(
                    of_rest < 5e-7 && of_spread < 5e-7,
                    "{x:e}: {ours:?} {expected:?}"
                );
            }
            logits[place] = plain;
        }
    }
}

/// Registers that cross no line begin at any place in one.
#[test]
fn maxima_wherever_numbers_lie() {
    let mut logits = inputs(3 * CHUNK + BLOCK + 33).swap_remove(0);
    // Miri takes minutes for all of them.
    let (starts, ends) = if cfg!(miri) { (7, 2) } else { (1, 3) };
    for x in logits.iter_mut().step_by(37) {
        *x = f32::NAN;
    }
    for table in supported() {
        for start in (0..=16).step_by(starts) {
            let all = [start + 79, start + BLOCK * 5 + 16, logits.len()];
            for end in all.into_iter().take(ends) {
                let xs = Logits::from(&logits[start..end]);
                let [mut a, mut b] = [(); 2].map(|()| vec![7.0; xs.len().div_ceil(BLOCK)]);
                let max = (SCALAR.floats.block_maxima)(xs, &mut a);
                assert_eq!((table.floats.block_maxima)(xs, &mut b), max);
                assert_eq!((table.floats.max)(xs), max);
                assert_eq!(a, b, "from {start} to {end}");
            }
        }
    }
}

/// A stream may be cut at every chunk; and sums of parts merge to those of the whole.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn sums_of_parts() {
    let logits = inputs(5000).swap_remove(1);
    let mut expected = Sums::default();
    (SCALAR.floats.add)(&mut expected, Logits::from(&logits), &mut []);
    for table in supported() {
        let passes = &table.floats;
        let mut whole = Sums::default();
        (passes.add)(&mut whole, Logits::from(&logits), &mut []);
        let mut parts = Sums::default();
        let mut merged = Sums::default();
        for part in logits.chunks(2 * CHUNK) {
            (passes.add)(&mut parts, Logits::from(part), &mut []);
            let mut own = Sums::default();
            (passes.add)(&mut own, Logits::from(part), &mut []);
            merged.merge(&own);
        }
        assert_eq!(parts, whole);
        assert_eq!((merged.max, merged.unmasked), (whole.max, whole.unmasked));
        assert!((merged.rest - expected.rest).abs() < 5e-7 * expected.rest);
        assert!((merged.spread - expected.spread).abs() < 5e-7 * expected.spread);
    }
}
