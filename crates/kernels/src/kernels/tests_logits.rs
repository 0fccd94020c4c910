//! Compares the passes over raw logits with the naive passes, on every instruction set that this
//! processor has and in every precision.

use half::{bf16, f16};

use super::bitmap::mask_column;
use super::layout::{CHUNK, GROUP};
use super::logits::Logits;
use super::naive_logits as naive;
use super::online_softmax::Sums;
use super::tests::{SIZES, STEP, inputs};
use crate::simd::Isa;
use crate::token::TokenData;

/// Calls `check` on every instruction set with every input in every precision.
fn for_all(mut check: impl FnMut(Logits<'_>)) {
    let more = [CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + GROUP, 63, 64, 65];
    for isa in Isa::supported() {
        let _forced = isa.force();
        // With all of them Miri would take minutes.
        let more = &more[if cfg!(miri) { more.len() - 1 } else { 0 }..];
        for n in SIZES.iter().chain(more).copied() {
            for logits in inputs(n).into_iter().chain(unusual(n)).step_by(STEP) {
                let halves: Vec<f16> = logits.iter().map(|&x| f16::from_f32(x)).collect();
                let brains: Vec<bf16> = logits.iter().map(|&x| bf16::from_f32(x)).collect();
                check(Logits::from(&logits));
                check(Logits::from(&halves[..]));
                check(Logits::from(&brains[..]));
            }
        }
    }
}

/// Returns logits that are far from 0, peaked, or masked.
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
    for_all(|xs| {
        let blocks = xs.len().div_ceil(GROUP);
        let [mut a, mut b, mut c] = [(); 3].map(|()| vec![7.0; blocks]);
        let max = naive::block_maxima(xs, &mut a);
        assert_eq!(xs.block_maxima(&mut b), max);
        assert_eq!(a, b);
        assert_eq!(xs.max(), max);
        let counted = naive::block_maxima_and_count(xs, &mut a);
        assert_eq!(xs.block_maxima_and_count(&mut c), counted);
        assert_eq!(a, c);
        // Words with all bits set, none, or some; the last words are missing.
        let n_words = blocks.saturating_sub(blocks % 3);
        let pattern = [u64::MAX, 0, 0x8421_F00D_0000_FFFE, 1, 1 << 63];
        let allowed: Vec<u64> = pattern.into_iter().cycle().take(n_words).collect();
        let mut masked: Vec<f32> = (0..xs.len()).map(|i| xs.at(i)).collect();
        let mut column = masked.clone();
        for (i, x) in masked.iter_mut().enumerate() {
            if allowed
                .get(i / 64)
                .is_none_or(|word| word >> (i % 64) & 1 == 0)
            {
                *x = f32::NEG_INFINITY;
            }
        }
        let max = naive::block_maxima(Logits::from(&masked), &mut a);
        assert_eq!(xs.masked_block_maxima(&allowed, &mut b), max);
        assert_eq!(a, b);
        mask_column(&mut column, &allowed);
        let bits = |xs: &[f32]| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&column), bits(&masked));
    });
}

#[test]
fn widened() {
    for_all(|xs| {
        for start in [0, 1, xs.len() / 2, xs.len()] {
            if start > xs.len() {
                continue;
            }
            let all: Vec<f32> = (start..xs.len()).map(|i| xs.at(i)).collect();
            let [mut as_given, mut banned] = [(); 2].map(|()| vec![7.0; all.len()]);
            xs.widen(start, &mut as_given);
            xs.widen_banning_nan(start, &mut banned);
            for ((&x, &same), &banned) in all.iter().zip(&as_given).zip(&banned) {
                assert!(same.to_bits() == x.to_bits() || same.is_nan() && x.is_nan());
                let wanted = if x.is_nan() { f32::NEG_INFINITY } else { x };
                assert_eq!(banned.to_bits(), wanted.to_bits());
            }
        }
    });
}

#[test]
fn candidates() {
    for_all(|xs| {
        let mut maxima = vec![0.0; xs.len().div_ceil(GROUP)];
        let max = naive::block_maxima(xs, &mut maxima);
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
            let first = 3 * GROUP as u32;
            naive::collect(xs, &maxima, first, threshold, &mut a);
            xs.collect(&maxima, first, threshold, &mut b);
            assert_eq!(bits(&a), bits(&b), "threshold {threshold}");
            assert_eq!(bits(&b)[0], bits(&[before])[0]);
        }
    });
}

/// Checks that the relative error of the sums is at most 5e-7, as the module promises.
#[test]
fn sums() {
    let mut worst = 0.0f64;
    for_all(|xs| {
        let blocks = xs.len().div_ceil(GROUP);
        let [mut a, mut b] = [(); 2].map(|()| vec![7.0; blocks]);
        let [mut ours, mut expected, mut again] = [Sums::default(); 3];
        naive::add(&mut expected, xs, &mut a);
        ours.add(xs, &mut b);
        assert_eq!(a, b);
        again.add(xs, &mut []);
        assert_eq!(again, ours);
        assert_eq!((ours.max, ours.unmasked), (expected.max, expected.unmasked));
        if ours.max == f32::INFINITY {
            return;
        }
        let mut mass = Sums::default();
        mass.add_mass(xs, &mut []);
        assert_eq!((mass.rest, mass.max), (ours.rest, ours.max));
        assert_eq!(mass.unmasked, ours.unmasked);
        for (a, b) in [(ours.rest, expected.rest), (ours.spread, expected.spread)] {
            // The terms that the reference leaves out are below 1e-50.
            let error = (a - b).abs() / b.max(1e-40);
            assert!(error < 5e-7, "{ours:?} {expected:?}");
            worst = worst.max(error);
        }
    });
    eprintln!("largest relative error: {worst:.1e}");
}

/// An unusual number among normal ones is included in the sums, or recognized as masked or
/// infinite.
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
            naive::add(&mut expected, Logits::from(&logits), &mut []);
            for isa in Isa::supported() {
                let _forced = isa.force();
                let mut ours = Sums::default();
                ours.add(Logits::from(&logits), &mut []);
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

/// The maxima do not depend on where in a cache line the array begins.
#[test]
fn maxima_wherever_numbers_lie() {
    let mut logits = inputs(3 * CHUNK + GROUP + 33).swap_remove(0);
    // With all of them Miri would take minutes.
    let (starts, ends) = if cfg!(miri) { (7, 2) } else { (1, 3) };
    for x in logits.iter_mut().step_by(37) {
        *x = f32::NAN;
    }
    for isa in Isa::supported() {
        let _forced = isa.force();
        for start in (0..=16).step_by(starts) {
            let all = [start + 79, start + GROUP * 5 + 16, logits.len()];
            for end in all.into_iter().take(ends) {
                let xs = Logits::from(&logits[start..end]);
                let [mut a, mut b] = [(); 2].map(|()| vec![7.0; xs.len().div_ceil(GROUP)]);
                let max = naive::block_maxima(xs, &mut a);
                assert_eq!(xs.block_maxima(&mut b), max);
                assert_eq!(xs.max(), max);
                assert_eq!(a, b, "from {start} to {end}");
            }
        }
    }
}

/// A stream may be divided at every chunk, and the sums of parts merge to those of the whole.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn sums_of_parts() {
    let logits = inputs(5000).swap_remove(1);
    let mut expected = Sums::default();
    naive::add(&mut expected, Logits::from(&logits), &mut []);
    for isa in Isa::supported() {
        let _forced = isa.force();
        let mut whole = Sums::default();
        whole.add(Logits::from(&logits), &mut []);
        let mut parts = Sums::default();
        let mut merged = Sums::default();
        for part in logits.chunks(2 * CHUNK) {
            parts.add(Logits::from(part), &mut []);
            let mut own = Sums::default();
            own.add(Logits::from(part), &mut []);
            merged.merge(&own);
        }
        assert_eq!(parts, whole);
        assert_eq!((merged.max, merged.unmasked), (whole.max, whole.unmasked));
        assert!((merged.rest - expected.rest).abs() < 5e-7 * expected.rest);
        assert!((merged.spread - expected.spread).abs() < 5e-7 * expected.spread);
    }
}
