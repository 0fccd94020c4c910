use super::*;

/// More are to be kept than lie as near as the sample says: then all are sorted.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_reach_that_is_too_short_gives_way() {
    const KEPT: usize = 19_000;
    let mut data: Vec<TokenData> = (0..20_000)
        .map(|i| TokenData {
            id: i,
            logit: (i * 7919 % 20_000) as f32 / 2000.0,
            p: 0.0,
        })
        .collect();
    let before = Fallback::Typical.count();
    let mut candidates = Candidates::new(&mut data, false);
    let mut typical = Typical::new(0.3, KEPT).expect("0.3 cuts something");
    typical.apply(&mut candidates);
    assert!(Fallback::Typical.count() > before);
    assert_eq!(candidates.len(), KEPT);
}
