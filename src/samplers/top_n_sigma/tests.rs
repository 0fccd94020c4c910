use super::*;
use crate::token::array_of;

/// Returns the threshold, computed by the operations of the built-in one by one.
fn one_by_one(logits: &[f32], n: f32) -> f32 {
    let left = || logits.iter().filter(|&&x| x != f32::NEG_INFINITY);
    let count = left().count() as f32;
    let mean = left().fold(0.0, |sum, x| sum + x) / count;
    let square = |sum: f32, x: &f32| (f64::from(sum) + f64::from(x - mean).powi(2)) as f32;
    let deviation = (left().fold(0.0, square) / count).sqrt();
    left().fold(f32::NEG_INFINITY, |max, &x| max.max(x)) - n * deviation
}

/// The exact sums are needed if some logits are already masked, and if a logit is at the threshold.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn arrays_that_rounding_decides_are_masked_alike() {
    const LEN: usize = 5000;
    let spread = |i: usize| (i * 7919 % LEN) as f32 / 600.0 - 3.0;
    let mut logits: Vec<f32> = (0..LEN).map(spread).collect();
    for masked in [false, true] {
        if masked {
            logits[77] = f32::NEG_INFINITY;
        }
        // Moving this logit moves the threshold, by a smaller distance each time.
        for _ in 0..9 {
            logits[8] = one_by_one(&logits, 1.0);
        }
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        let mut sampler = TopNSigma::new(1.0).expect("1 masks something");
        sampler.apply(&mut candidates);
        let threshold = one_by_one(&logits, 1.0);
        assert!((logits[8] - threshold).abs() < 1e-5, "masked: {masked}");
        for (ours, &x) in data.iter().zip(&logits) {
            let expected = if x < threshold { f32::NEG_INFINITY } else { x };
            assert_eq!(ours.logit, expected, "masked: {masked}");
        }
    }
}
