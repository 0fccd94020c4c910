use super::*;
use crate::simd::libm;
use crate::token::array_of;

fn bits(xs: &[f32]) -> Vec<u32> {
    xs.iter().map(|x| x.to_bits()).collect()
}

/// In an array that is wrongly marked as sorted, the exponentials are the host's, however far a
/// logit is above the first one.
#[test]
fn a_false_promise_of_order_costs_speed_alone() {
    let mut work = Workspace::default();
    for above in [1.0, 88.5, 89.0, 127.0, 128.0, 700.0, 1e30, f32::INFINITY] {
        let mut logits = vec![-3.0; 1000];
        logits[0] = -20.0;
        logits[777] = above - 20.0;
        let data = array_of(&logits);
        let expected: Vec<f32> = logits.iter().map(|x| libm::exp(x + 20.0)).collect();
        let sum = work.exponentiate(&data, true);
        assert_eq!(bits(work.values()), bits(&expected), "{above}");
        assert_eq!(sum, expected.iter().fold(0.0, |sum, e| sum + e));
        let sum = work.exponentiate_double(&data, true);
        assert_eq!(bits(work.values()), bits(&expected), "{above}");
        let total: f64 = expected.iter().map(|&e| f64::from(e)).sum();
        assert!(sum == total || (sum - total).abs() < total * 1e-12);
    }
}

/// Checks that a draw exactly on the border between two candidates is decided by the operations of
/// the built-in, and that a draw well within a candidate's share is not.
#[test]
fn a_draw_on_a_border_gives_way() {
    let mut work = Workspace::default();
    work.take_logits(&array_of(&[1.0, 1.0]));
    let sum = work.sum_double();
    assert_eq!(work.choose(sum, 0.5, |_| 7), 7);
    assert_eq!(work.choose(sum, 0.25, |_| 7), 0);
    assert_eq!(work.choose(sum, 0.75, |_| 7), 1);
}
