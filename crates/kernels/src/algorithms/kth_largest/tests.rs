use super::*;
use crate::lcg::Lcg;

#[test]
fn the_kth_largest_is_reached_by_k_and_few_more() {
    let sizes = [1usize, 2, 39, 40, 256, 1000];
    // With all of them Miri would take minutes.
    for &n in &sizes[..if cfg!(miri) { 3 } else { 6 }] {
        for (seed, coarse) in [(1, 1e-30), (2, 1.0), (3, 1e3), (4, 1e30)] {
            let xs = Lcg(seed).quarters(n, coarse);
            let mut sorted = xs.clone();
            sorted.sort_by(|a, b| b.total_cmp(a));
            for k in [1, 2, 40, n / 2, n]
                .into_iter()
                .filter(|k| (1..=n).contains(k))
            {
                let x = nearly_kth_largest(&xs, k).expect("there are k");
                let reached = xs.iter().filter(|&&y| y >= x).count();
                let equals = xs.iter().filter(|&&y| y == sorted[k - 1]).count();
                assert!(reached >= k && reached <= k + k / 16 + equals, "{n}, {k}");
            }
            assert_eq!(nearly_kth_largest(&xs, n + 1), None);
        }
    }
}

#[test]
fn masked_and_infinite_numbers_have_their_places() {
    let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
    let xs = [low, 1.0, f32::NAN, high, low, -5.0];
    for k in 1..=3 {
        let x = nearly_kth_largest(&xs, k).expect("three are above minus infinity");
        assert_eq!(xs.iter().filter(|&&y| y >= x).count(), k);
    }
    assert_eq!(nearly_kth_largest(&xs, 4), None);
    assert!(nearly_kth_largest(&[high; 40], 40).is_some());
    assert_eq!(nearly_kth_largest(&[low; 40], 1), None);
    assert_eq!(nearly_kth_largest(&[f32::MIN; 3], 3), Some(f32::MIN));
}
