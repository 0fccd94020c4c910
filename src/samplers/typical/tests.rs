use super::*;
use crate::lcg::Lcg;

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

/// Calls `take` with each order of `terms`.
fn orders(terms: &mut [f32], done: usize, take: &mut impl FnMut(&[f32])) {
    if done == terms.len() {
        return take(terms);
    }
    for i in done..terms.len() {
        terms.swap(done, i);
        orders(terms, done + 1, take);
        terms.swap(done, i);
    }
}

/// Near the ends of binades, with terms half-way between two floats and without.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn no_order_of_equally_near_ones_has_another_sum() {
    let mut lcg = Lcg(1);
    let mut below = |n: u32| lcg.unit() * n as f32;
    let (mut depend, mut narrow) = (0, 0);
    for round in 0..20_000_u32 {
        let c = 0.5f32.powi(round as i32 % 12);
        let unit = c * f32::EPSILON;
        let mut terms: Vec<f32> = (0..2 + round % 4)
            .map(|_| match below(4) as u32 {
                0 => unit * (below(9).floor() + 0.5),
                1 => unit * below(9).floor() / 4.0,
                2 => c * below(1) / 1000.0,
                _ => unit * below(20),
            })
            .collect();
        let steps = below(12) as u32;
        let low = match round % 3 {
            0 => c * (1.0 + below(1) / 2.0),
            _ => (0..steps).fold(2.0 * c, |sum, _| sum.next_down()),
        };
        let high = (0..below(3) as u32).fold(low, |sum, _| sum.next_up());
        let (from, to) = add_in_any_order((low, high), &terms);
        let (mut least, mut most) = (f32::INFINITY, 0.0f32);
        orders(&mut terms, 0, &mut |terms| {
            let [a, b] = [low, high].map(|sum| terms.iter().fold(sum, |sum, x| sum + x));
            (least, most) = (least.min(a), most.max(b));
        });
        assert!(from <= least && most <= to, "{round}: {low} {terms:?}");
        depend += u32::from(low == high && least < most);
        narrow += u32::from((from, to) == (least, most));
    }
    assert!(depend > 1000 && narrow > 2000, "{depend}, {narrow}");
}
