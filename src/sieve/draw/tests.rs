use super::*;
use crate::kernels::layout::GROUP;
use crate::kernels::logits::Logits;

/// As many survivors with a logit of 1, without the first and the last.
fn equal(n: usize) -> Packed {
    let logits = vec![1.0f32; n];
    let mut survivors = Packed::default();
    survivors.clear(n, 1.0);
    let maxima = vec![1.0; n.div_ceil(GROUP)];
    Logits::from(&logits).collect_packed(&maxima, 0, f32::MIN, &mut survivors);
    survivors.leave_out(0);
    survivors.leave_out(n - 1);
    assert_eq!(survivors.cut(0.5), n - 2);
    survivors
}

fn draw(survivors: &mut Packed, uniform: f64) -> usize {
    cdf_of_survivors(
        survivors,
        uniform,
        &mut Vec::new(),
        &mut Workspace::default(),
    )
}

#[test]
fn a_draw_on_a_border_is_the_exact_one() {
    // Miri takes seconds for each exponential in double precision.
    const N: usize = if cfg!(miri) { 20 } else { 2050 };
    let kept = N - 2;
    let around_blocks = [1, 2, 511, 512, 513, 1025];
    let chosen = around_blocks.into_iter().filter(|&chosen| chosen < kept);
    let chosen: Vec<usize> = chosen.chain([kept]).collect();
    for divisor in [1.0, 0.7] {
        // Every sum is a whole number, so each of these is nearly on a border.
        for &chosen in &chosen {
            let mut survivors = equal(N);
            survivors.divide(divisor);
            let uniform = chosen as f64 / kept as f64 - 5e-8;
            assert_eq!(draw(&mut survivors, uniform), chosen);
            // What says that the exact way was taken.
            assert_eq!(survivors.max(), 1.0 / divisor);
            assert_eq!(survivors.logits()[0], f32::NEG_INFINITY);
            assert_eq!(survivors.logits()[1], 1.0 / divisor);
        }
    }
}

#[test]
fn nothing_that_is_left_out_is_drawn() {
    for uniform in [0.0, f64::MIN_POSITIVE, 0.5, 1.0 - f64::EPSILON] {
        for n in if cfg!(miri) {
            [3, 4, 17]
        } else {
            [3, 64, 1000]
        } {
            let chosen = draw(&mut equal(n), uniform);
            assert!(chosen > 0 && chosen < n - 1, "{chosen} of {n}");
        }
    }
}

#[test]
fn a_quotient_beyond_all_numbers_takes_the_last() {
    let mut survivors = equal(5);
    survivors.divide(f32::MIN_POSITIVE / 16.0);
    assert_eq!(draw(&mut survivors, 0.5), 3);
}

/// Mean and variance of Gumbel's distribution, and no noise twice.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn noise_is_that_of_gumbel() {
    const N: Token = 100_000;
    let noise: Vec<f64> = (0..N).map(|token| gumbel_noise(7, token)).collect();
    let n = f64::from(N);
    let mean = noise.iter().sum::<f64>() / n;
    let variance = noise.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    // Euler's constant, and a sixth of the square of pi; five standard errors of each.
    assert!((mean - 0.577_215_664_9).abs() < 0.021, "{mean}");
    assert!((variance - 1.644_934_066_8).abs() < 0.055, "{variance}");
    let mut distinct = noise;
    distinct.sort_by(f64::total_cmp);
    assert!(distinct.windows(2).all(|pair| pair[0] < pair[1]));
}

/// The place that a running sum in `double` reaches first.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_sum_is_reached_within_its_block() {
    const N: usize = 2050;
    let survivors = equal(N);
    let mut sums = Vec::new();
    survivors.masses(&mut sums);
    // Each counts as 1, and the first is left out.
    for place in 1..N - 1 {
        let target = place as f64 - 0.5;
        assert_eq!(reach(&survivors, &sums, target), Some(place), "{target}");
    }
    assert_eq!(reach(&survivors, &sums, N as f64), None);
}

/// Elsewhere the sums of blocks are enough, and the survivors stay as they are.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_draw_off_the_borders_takes_no_exact_sums() {
    const N: usize = 2050;
    for place in [1, 2, 511, 512, 513, 1025, N - 2] {
        let mut survivors = equal(N);
        survivors.divide(0.7);
        let uniform = (place as f64 - 0.5) / (N - 2) as f64;
        assert_eq!(draw(&mut survivors, uniform), place);
        assert_eq!(survivors.logits()[1], 1.0, "{place}");
    }
}
