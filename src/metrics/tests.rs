use super::Summary;

/// Returns a generator of pseudo-random numbers from 0 to 1.
fn numbers() -> impl FnMut() -> f64 {
    let mut state = 88_172_645_463_325_252u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Returns the logarithm of the sum of exponentials, and the entropy, computed in `double`.
fn naive(logits: &[f32]) -> (f64, f64) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let terms = logits.iter().filter(|&&x| x > f32::NEG_INFINITY);
    let below = terms.map(|&x| f64::from(max) - f64::from(x));
    let (mass, spread) = below.fold((0.0, 0.0), |(mass, spread), d| {
        let term = (-d).exp();
        (mass + term, spread + d * term)
    });
    let ln = f64::ln(mass);
    (f64::from(max) + ln, ln + spread / mass)
}

/// The removed logits may include the largest one, and masked ones.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_summary_without_some_logits_is_that_of_the_others() {
    let mut random = numbers();
    let (mut told, mut without_max, mut left_open) = (0, 0, 0);
    for round in 0..4000 {
        let n = 2 + (random() * 300.0) as usize;
        let scale = [0.5, 3.0, 12.0][round % 3];
        let logits: Vec<f32> = (0..n)
            .map(|_| match random() < 0.1 {
                true => f32::NEG_INFINITY,
                // Coarse values, so that some are equal.
                false => {
                    (scale * (random() + random() + random() - 1.5) * 8.0).round() as f32 / 8.0
                }
            })
            .collect();
        let summary = Summary::of(&logits[..]);
        let by_size = |a: &f32, b: &f32| a.total_cmp(b);
        let mut order = logits.clone();
        order.sort_by(|a, b| by_size(b, a));
        // Large logits are removed more often.
        let goes: Vec<bool> = (0..n).map(|i| random() < 1.0 / (1 + i) as f64).collect();
        let part = |wanted: bool| -> Vec<f32> {
            let some = order.iter().zip(&goes).filter(|(_, goes)| **goes == wanted);
            some.map(|(&logit, _)| logit).collect()
        };
        let (gone, stays) = (part(true), part(false));
        let Some(&largest) = stays.first().filter(|&&x| x > f32::NEG_INFINITY) else {
            continue;
        };
        let Some(left) = summary.without(gone.iter().copied(), largest) else {
            left_open += 1;
            continue;
        };
        told += 1;
        without_max += usize::from(largest < summary.max());
        let (log_sum_exp, entropy) = naive(&stays);
        let unmasked = stays.iter().filter(|&&x| x > f32::NEG_INFINITY).count();
        assert_eq!((left.max(), left.unmasked()), (largest, unmasked));
        let found = (left.log_sum_exp(), left.entropy().expect("it is defined"));
        assert!(
            (found.0 - log_sum_exp).abs() < 1e-5,
            "round {round}: {found:?}, {log_sum_exp}"
        );
        assert!(
            (found.1 - entropy).abs() < 5e-5,
            "round {round}: {found:?}, {entropy}"
        );
    }
    assert!(
        told > 3000 && without_max > 1000,
        "{told}, {without_max}, {left_open} left open"
    );
}

#[test]
fn what_the_sums_cannot_tell_is_left_open() {
    let summary = Summary::of(&[0.0, 1.0, 50.0][..]);
    assert_eq!(summary.without([50.0], 1.0), None);
    let infinite = Summary::of(&[0.0, f32::INFINITY][..]);
    assert_eq!(infinite.without([0.0], f32::INFINITY), None);
    assert_eq!(Summary::default().without([], f32::NEG_INFINITY), None);
}
