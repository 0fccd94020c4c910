use super::*;
use crate::lcg::Lcg;

/// Returns the threshold, computed step by step as the built-in does.
fn exact(data: &[TokenData], n: f32) -> f32 {
    let left = || {
        data.iter()
            .map(|c| c.logit)
            .filter(|&x| x > f32::NEG_INFINITY)
    };
    let count = left().count() as f32;
    let mean = left().fold(0.0, |sum, x| sum + x) / count;
    let square = |sum: f32, x: f32| (f64::from(sum) + f64::from(x - mean).powi(2)) as f32;
    let max = left().fold(f32::NEG_INFINITY, f32::max);
    max - n * (left().fold(0.0, square) / count).sqrt()
}

fn array(logits: impl Iterator<Item = f32>) -> Vec<TokenData> {
    let data = logits.map(|logit| TokenData::new(0, logit));
    data.collect()
}

/// Checks that the threshold lies between its bounds, and that these are close to each other for
/// logits as a model has them.
#[test]
fn the_threshold_lies_between_its_bounds() {
    let mut lcg = Lcg(5);
    let mut unit = || lcg.unit();
    let sizes = [2, 3, 15, 16, 17, 40, 513, 1000, 5000, 40_001, 131_072];
    let sizes = &sizes[..if cfg!(miri) { 7 } else { sizes.len() }];
    for &len in sizes {
        for shape in 0..6 {
            let (spread, centre) = [
                (4.0, -1.5),
                (1.0, 100.0),
                (1e-3, 0.0),
                (1e4, -3e4),
                (1e-19, 0.0),
                (4.0, 0.0),
            ][shape];
            let mut next = || (unit() + unit() + unit() - 1.5) * spread + centre;
            let mut data = array((0..len).map(|_| next()));
            if shape == 5 {
                // The running sum grows at once, and then shrinks.
                data.sort_by(|a, b| a.logit.abs().total_cmp(&b.logit.abs()).reverse());
            }
            for n in [0.3, 1.0, 4.0] {
                let threshold = exact(&data, n);
                let mut deviation = SigmaBounds::default();
                let Bounds { low, high, .. } = deviation.take(&data, n).expect("all are finite");
                assert!(
                    low <= threshold && threshold <= high,
                    "{len} {shape} {n}: {low} {threshold} {high}"
                );
                if shape == 0 {
                    assert!(high - low < 0.01 * n * spread, "{len}: {low} {high}");
                }
            }
        }
    }
}

/// Masks a copy of `data`. Returns true if that took the exact sums.
fn check(data: &[TokenData], n: f32) -> bool {
    let mut sigma = SigmaBounds::default();
    let bounds = sigma.take(data, n);
    let exactly = bounds.is_none_or(|of| sigma.any_between(data, of.low, of.high));
    let mut ours = data.to_vec();
    sigma.mask(&mut ours, n);
    let threshold = exact(data, n);
    for (ours, c) in ours.iter().zip(data) {
        let masked = c.logit < threshold;
        let expected = if masked { f32::NEG_INFINITY } else { c.logit };
        assert_eq!(ours.logit.to_bits(), expected.to_bits(), "{}", data.len());
    }
    exactly
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn a_logit_at_the_threshold_needs_the_exact_sums() {
    for len in [30, 200, 2000, 10_000, 40_001, 150_001] {
        let spread = |i| (i * 7919 % len) as f32 * 8.0 / len as f32 - 3.0;
        let mut data = array((0..len).map(spread));
        check(&data, 1.0);
        // Moving the logit moves the threshold, a little less each time.
        for _ in 0..9 {
            data[8].logit = exact(&data, 1.0);
        }
        for at in [f32::next_down, |x| x, f32::next_up] {
            data[8].logit = at(data[8].logit);
            assert!(check(&data, 1.0), "{len}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn a_sum_that_wanders_around_0_is_exact() {
    let wander = |i: i32| [3.0, -3.0, 2.5, -2.5][i as usize % 4] + (i % 97) as f32 / 1e4;
    let mut data = array((0..6000).map(wander));
    data.extend(array((0..6000).map(|i| -wander(i))));
    for _ in 0..30 {
        data[8].logit = exact(&data, 1.0);
    }
    assert!(check(&data, 1.0));
}

#[test]
fn what_is_masked_or_no_number_needs_the_exact_sums() {
    for odd in [f32::NEG_INFINITY, 1e30] {
        let mut data = array((0..100).map(|i| i as f32));
        data[33].logit = odd;
        assert!(check(&data, 1.0));
    }
    for odd in [f32::INFINITY, f32::NAN] {
        let mut data = array((0..100).map(|i| i as f32));
        data[33].logit = odd;
        assert!(SigmaBounds::default().take(&data, 1.0).is_none());
    }
}

#[test]
fn nothing_but_masked_logits_stay_as_they_are() {
    let data = array([f32::NEG_INFINITY; 50].into_iter());
    let mut ours = data.clone();
    SigmaBounds::default().mask(&mut ours, 1.0);
    assert!(ours.iter().all(|c| c.logit == f32::NEG_INFINITY));
}
