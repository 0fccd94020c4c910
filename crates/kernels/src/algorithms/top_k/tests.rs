use super::*;
use crate::lcg::Lcg;
use crate::token::array_of;

fn ids(data: &[TokenData]) -> Vec<i32> {
    data.iter().map(|c| c.id).collect()
}

#[test]
fn special_values_and_ties_keep_input_order() {
    let inf = f32::INFINITY;
    let logits = [
        -inf,
        0.0,
        f32::NAN,
        -0.0,
        1.0,
        inf,
        1.0,
        -inf,
        -1.0,
        -f32::NAN,
    ];
    let data = array_of(&logits);
    let mut order = TopK::default();
    assert_eq!(ids(order.top(&data, 5)), [5, 4, 6, 1, 3]);
    let n = data.len();
    assert_eq!(ids(order.top(&data, n)), [5, 4, 6, 1, 3, 8, 0, 2, 7, 9]);
}

#[test]
fn top_k_is_the_head_of_a_stable_sort() {
    let mut lcg = Lcg(7);
    let sizes = [0, 1, 2, 17, 100, 1000, 5000];
    // With all of them Miri would take minutes.
    for &n in &sizes[..if cfg!(miri) { 5 } else { 7 }] {
        // Coarse values, so that ties are common.
        let logits: Vec<f32> = (0..n)
            .map(|_| ((lcg.bits() >> 20) as f32 - 2048.0) / 64.0)
            .collect();
        let data = array_of(&logits);
        let mut expected = data.clone();
        expected.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        let mut order = TopK::default();
        for k in [0, 1, 2, 16, 40, 99, n / 2, n, n + 1] {
            let k_kept = k.min(n);
            assert_eq!(
                ids(order.top(&data, k)),
                ids(&expected[..k_kept]),
                "n {n}, k {k}"
            );
        }
    }
}

#[test]
fn keys_of_every_kind_are_sorted() {
    let mut lcg = Lcg(3);
    let mut next = || lcg.unit();
    let inf = f32::INFINITY;
    let outliers = [inf, -inf, f32::NAN, 1e30, -1e30, f32::MAX, f32::MIN];
    // With all of them Miri would take minutes.
    for round in 0..if cfg!(miri) { 2 } else { 60 } {
        let n = 3000 + 100 * round;
        let mut logits: Vec<f32> = (0..n).map(|_| next() * 20.0 - 12.0).collect();
        // One far outlier makes all others share a step.
        for i in 0..round % 8 {
            logits[i * 7] = outliers[(round + i) % outliers.len()];
        }
        if round == 0 {
            logits.fill(1.5);
        }
        let mut keys: Vec<u64> = (0..)
            .zip(array_of(&logits))
            .map(|(i, c)| key(i, &c))
            .collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        Ranking::default().sort(&mut keys);
        assert!(keys == expected, "round {round}");
    }
}

/// Checks an array whose sample has none of the large logits. That may happen to a sawtooth whose
/// teeth are as far apart as the groups of the sample.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_sample_that_lets_too_many_pass() {
    const N: usize = 200_000;
    let mut logits: Vec<f32> = (0..N).map(|i| (i * 7919 % N) as f32).collect();
    for start in sampled(N, SAMPLE / SAMPLE_GROUP) {
        logits[start..start + SAMPLE_GROUP].fill(-1.0);
    }
    let data = array_of(&logits);
    let mut expected = data.clone();
    expected.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    for k in [1, 40, 128] {
        let mut order = TopK::default();
        assert_eq!(ids(order.top(&data, k)), ids(&expected[..k]), "{k}");
        assert!(
            order.indices.len() <= k + k / 16 + 1,
            "{k}: {}",
            order.indices.len()
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_sample_that_misleads_gives_way() {
    const N: usize = 10_000;
    let mut logits: Vec<f32> = (0..N).map(|i| -(i as f32)).collect();
    // Large logits only where the sample looks.
    for (start, group) in sampled(N, SAMPLE / SAMPLE_GROUP).zip(0..30) {
        logits[start] = 1.0 + group as f32;
    }
    let data = array_of(&logits);
    let mut order = TopK::default();
    assert!(!order.rank_above_sample(&data, 40));
    let top = ids(order.top(&data, 40));
    let mut expected = data.clone();
    expected.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    assert_eq!(top, ids(&expected[..40]));
}
