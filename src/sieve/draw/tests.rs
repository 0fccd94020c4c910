use super::*;

/// The noise has the mean and variance of Gumbel's distribution, and no value occurs twice.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn noise_is_that_of_gumbel() {
    const N: Token = 100_000;
    let noise: Vec<f64> = (0..N).map(|token| gumbel_noise(7, token)).collect();
    let n = f64::from(N);
    let mean = noise.iter().sum::<f64>() / n;
    let variance = noise.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    // The expected values are Euler's constant and a sixth of the square of pi. The tolerances are
    // five standard errors.
    assert!((mean - 0.577_215_664_9).abs() < 0.021, "{mean}");
    assert!((variance - 1.644_934_066_8).abs() < 0.055, "{variance}");
    let mut distinct = noise;
    distinct.sort_by(f64::total_cmp);
    assert!(distinct.windows(2).all(|pair| pair[0] < pair[1]));
}
