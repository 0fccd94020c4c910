use super::*;

/// More are to be kept than the sample's threshold lets pass: then all are ranked.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_threshold_that_is_too_high_gives_way() {
    const KEPT: usize = 9000;
    let mut data: Vec<TokenData> = (0..10_000)
        .map(|i| TokenData {
            id: i,
            logit: (i * 7919 % 10_000) as f32 / 1000.0,
            p: 0.0,
        })
        .collect();
    let before = Fallback::Nucleus.count();
    let mut candidates = Candidates::new(&mut data, false);
    let mut top_p = TopP::new(0.5, KEPT).expect("0.5 cuts something");
    top_p.apply(&mut candidates);
    assert!(Fallback::Nucleus.count() > before);
    assert_eq!(candidates.len(), KEPT);
    let descends = |pair: &[TokenData]| pair[0].logit > pair[1].logit;
    assert!(candidates.as_slice().windows(2).all(descends));
}
