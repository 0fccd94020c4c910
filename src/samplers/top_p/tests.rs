use super::*;
use crate::token::array_of;

/// If more candidates are to be kept than reach the threshold of the sample, all are ranked.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_threshold_that_is_too_high_gives_way() {
    const KEPT: usize = 9000;
    let logit = |i| (i * 7919 % 10_000) as f32 / 1000.0;
    let mut data = array_of(&(0..10_000).map(logit).collect::<Vec<_>>());
    let mut candidates = Candidates::new(&mut data, false);
    let mut top_p = TopP::new(0.5, KEPT).expect("0.5 cuts something");
    top_p.apply(&mut candidates);
    assert_eq!(top_p.indices.len(), 10_000, "not all were ranked");
    assert_eq!(candidates.len(), KEPT);
    let descends = |pair: &[TokenData]| pair[0].logit > pair[1].logit;
    assert!(candidates.as_slice().windows(2).all(descends));
}

/// In a sorted array the sample consists of the largest logits, and in a masked one few logits of
/// the sample are unmasked. In neither case are all candidates ranked.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_misleads_the_sample_costs_a_second_threshold() {
    const N: usize = 64 * 1024;
    let sorted = (0..N).map(|i| match i {
        0..60 => 17.0 - i as f32 * 0.1,
        _ => -(i as f32) / 1e4,
    });
    let masked = (0..N).map(|i| match i % 128 {
        0 => (i * 7919 % N) as f32 / 1e5,
        _ => f32::NEG_INFINITY,
    });
    for (logits, most) in [
        (sorted.collect::<Vec<f32>>(), N / 16),
        (masked.collect(), N / 128),
    ] {
        let mut data = array_of(&logits);
        let mut top_p = TopP::new(0.95, 1).expect("0.95 cuts something");
        top_p.apply(&mut Candidates::new(&mut data, false));
        assert!((1..=most).contains(&top_p.picked.len()));
    }
}

/// With few logits a sample would not pay for itself, so all are ranked.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn few_logits_are_ranked_without_a_sample() {
    for (n, all) in [
        (2 * NucleusSample::SIZE, true),
        (8 * NucleusSample::SIZE - 1, true),
        (8 * NucleusSample::SIZE, false),
    ] {
        let logits: Vec<f32> = (0..n).map(|i| (i * 7919 % n) as f32 / 1000.0).collect();
        let max = (n - 1) as f32 / 1000.0;
        let of = Nucleus {
            max,
            sum: kernels::softmax_sum(&logits, max),
            plain: true,
        };
        let mut top_p = TopP::new(0.5, 1).expect("0.5 cuts something");
        top_p.find(&logits, None, of);
        assert_eq!(top_p.picked.len() == n, all, "{n}");
    }
}

/// Checks that, as in the built-in's `llama_sampler_top_p_impl`, only 256 of more than 1,024
/// candidates are sorted at first.
#[test]
fn of_many_candidates_the_host_sorts_256_at_first() {
    assert_eq!(sorted_for(1, 1024), 1024);
    assert_eq!(sorted_for(1, 1025), 256);
    assert_eq!(sorted_for(256, 1025), 256);
    assert_eq!(sorted_for(257, 1025), 1025);
}
