use super::*;
#[cfg(target_arch = "x86_64")]
use crate::denormals::with_flushed_denormals;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Part};
use crate::token::array_of;

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
    let mut candidates = Candidates::new(&mut data, false);
    let mut typical = Typical::new(0.3, KEPT).expect("0.3 cuts something");
    assert!(!typical.keep_by_sums(&mut candidates));
    typical.apply(&mut candidates);
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

/// The candidates that are kept of some logits without their order, by the definition, in `double`.
struct Expected {
    /// The tokens that are kept at most, nearest first, those that are equally near by token.
    kept: Vec<Token>,
    /// The number of these that are kept whatever the order.
    sure: usize,
    /// The number of these that are tied.
    tied: usize,
}

fn expected(logits: &[f32], p: f64, min_keep: usize) -> Expected {
    let es: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp()).collect();
    let sum: f64 = es.iter().sum();
    let entropy: f64 = es.iter().map(|e| -(e / sum) * (e / sum).ln()).sum();
    let distance = |i: &usize| ((es[*i] / sum).ln() + entropy).abs();
    let mut places: Vec<usize> = (0..logits.len()).collect();
    places.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut all = Expected {
        kept: Vec::new(),
        sure: 0,
        tied: 0,
    };
    let mut mass = 0.0;
    for group in places.chunk_by(|&a, &b| logits[a] == logits[b]) {
        let (before, one) = (all.kept.len(), es[group[0]] / sum);
        mass += one * group.len() as f64;
        all.kept.extend(group.iter().map(|&i| i as Token));
        all.sure = all.kept.len();
        all.tied += if group.len() > 1 { group.len() } else { 0 };
        if mass > p && all.kept.len() >= min_keep {
            let one_less_is_enough = mass - one > p && all.kept.len() > min_keep;
            if group.len() > 1 && one_less_is_enough {
                all.sure = before;
            }
            return all;
        }
    }
    all
}

/// Distinct logits, but for the first pairs, which are equal. The largest are nearest to the
/// entropy, so that a cut falls among the others.
fn with_pairs(n: usize, pairs: usize) -> Vec<f32> {
    let mut lcg = Lcg(n as u32);
    let step = |i: usize| (i as f32 + 0.5 * lcg.unit()) / n as f32;
    let mut logits: Vec<f32> = (0..n).map(step).map(|x| -3.0 * x * x).collect();
    for pair in 0..pairs {
        logits[2 * pair + 1] = logits[2 * pair];
    }
    logits
}

/// Compares what is kept loosely with what is expected; says whether it was.
fn is_kept_loosely(logits: &[f32], p: f32, min_keep: usize) -> bool {
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(logits, &mut buffers);
    let mut typical = Typical::new(p, min_keep).expect("it cuts something");
    typical.narrow(&mut pool);
    let Some(Part::Nearest { sure, .. }) = pool.order().map(|order| order.part) else {
        return false;
    };
    let mut expected = expected(logits, p.into(), min_keep);
    // The complements of those that are tied.
    let (mut loose, mut tied) = (Vec::new(), 0);
    for candidate in pool.loose() {
        let complement = candidate.id < 0;
        loose.push(if complement {
            !candidate.id
        } else {
            candidate.id
        });
        tied += usize::from(complement);
    }
    assert_eq!((loose.len(), sure), (expected.kept.len(), expected.sure));
    assert_eq!(tied, expected.tied);
    loose.sort_unstable();
    expected.kept.sort_unstable();
    assert_eq!(loose, expected.kept);
    true
}

/// Few ties are left open, of many each draw would soon fall on one.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn as_many_ties_are_left_open_as_pay() {
    let (mut open, mut strict) = (0, 0);
    for pairs in 1..60 {
        let logits = with_pairs(520, pairs);
        let tied = expected(&logits, 0.9, 1).tied;
        let loosely = is_kept_loosely(&logits, 0.9, 1);
        let few = (1..=FEW_TIED).contains(&tied);
        assert_eq!(loosely, few, "{pairs} pairs, {tied} tied");
        *(if loosely { &mut open } else { &mut strict }) += 1;
    }
    assert!(open > 30 && strict > 10);
}

/// Where the last array had ties, or its order was read, the next is expected to be like it.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_came_before_says_which_way_is_taken() {
    for (pairs, tied, strictly, could) in [
        (10, false, 0, true),
        (10, true, 0, true),
        (10, false, 5, false),
        (0, false, 5, true),
        (0, true, 5, false),
    ] {
        let logits = with_pairs(520, pairs);
        let mut buffers = Buffers::default();
        let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
        (typical.tied, typical.strictly) = (tied, strictly);
        let kept = typical.keep_of_whole(&mut Pool::new(&logits, &mut buffers));
        assert_eq!(kept, could, "{pairs} pairs, {tied}, {strictly}");
    }
    // And one without ties is unlike it.
    let mut data = array_of(&with_pairs(520, 0));
    let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
    typical.tied = true;
    typical.apply(&mut Candidates::new(&mut data, false));
    assert!(!typical.tied);
}

/// The first is as likely as two thirds of all others together, and further from the entropy than
/// most of these.
fn with_a_far_first() -> Vec<f32> {
    let mut logits: Vec<f32> = (0..5000).map(|i| i as f32 * -6e-4).collect();
    let others: f32 = logits.iter().map(|logit| logit.exp()).sum();
    logits[0] = (others * 2.0 / 3.0).ln();
    logits
}

/// Takes enough of `logits`, the first of which is the largest: the sum of all exponentials, the
/// entropy, and the distance that is given.
fn reach(typical: &mut Typical, logits: &[f32]) -> (f32, f32, f32) {
    let beside = typical.beside();
    let sum = typical.descending.sum_of_logits(logits, logits[0], beside);
    let sum = sum.expect("ordinary logits");
    let entropy = typical.descending.entropy(sum).expect("ordinary logits");
    let reach = typical.take_enough(logits.len(), sum, entropy, beside);
    (sum, entropy, reach)
}

/// Candidates that were not taken at first may be nearer than those that were.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn more_is_taken_until_it_is_enough() {
    let logits = with_a_far_first();
    for p in [0.45, 0.5, 0.55, 0.9] {
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        let mut typical = Typical::new(p, 1).expect("it cuts something");
        // As the first array it is sorted at once, since it looks ordered.
        assert!(!typical.keep_by_sums(&mut candidates));
        assert!(typical.keep_by_sums(&mut candidates));
        let mut kept: Vec<Token> = candidates.as_slice().iter().map(|c| c.id).collect();
        let mut expected = expected(&logits, p.into(), 1).kept;
        kept.sort_unstable();
        expected.sort_unstable();
        assert_eq!(kept, expected, "{p}");
    }
}

/// Nothing that was not taken is within the reach that is given.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn all_within_the_reach_was_taken() {
    let logits = with_a_far_first();
    let mut ends = 0;
    for p in (500..990).map(|i| i as f32 / 1000.0) {
        let mut typical = Typical::new(p, 1).expect("it cuts something");
        let (sum, entropy, reach) = reach(&mut typical, &logits);
        let taken = typical.descending.taken().logits;
        if taken.len() == logits.len() {
            continue;
        }
        let distance = |logit: f32| (logits[0] - logit + sum.ln() - entropy).abs();
        let least = taken.iter().copied().fold(f32::INFINITY, f32::min);
        let first_left = logits.iter().copied().filter(|&logit| logit < least);
        let first_left = first_left.fold(f32::NEG_INFINITY, f32::max);
        assert!(distance(first_left) > reach, "{p}");
        ends += u32::from(distance(first_left) < reach + 0.01);
    }
    assert!(ends > 10, "{ends}");
}

/// No ties are left open behind a choice, which is a place in their order.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn no_ties_are_left_open_behind_a_choice() {
    let logits = with_pairs(520, 10);
    assert!(is_kept_loosely(&logits, 0.9, 1));
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(&logits, &mut buffers);
    pool.select(Some(7));
    let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
    typical.narrow(&mut pool);
    assert!(pool.order().is_none());
}

/// Of one group no more than that; among many that are kept an eighth.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn one_group_and_a_large_share_are_too_many() {
    for (group, loosely) in [(FEW_TIED, true), (FEW_TIED + 1, false)] {
        let mut logits = with_pairs(600, 0);
        let equal = logits[100];
        logits[100..100 + group].fill(equal);
        assert!(expected(&logits, 0.9, 1).tied == group);
        assert_eq!(is_kept_loosely(&logits, 0.9, 1), loosely, "{group}");
    }
    for (n, loosely) in [(600, false), (2000, true)] {
        let mut logits = with_pairs(n, 0);
        // Forty pairs near the end of what is kept.
        let all = expected(&logits, 0.9, 1).kept;
        for pair in all[all.len() - 140..][..80].chunks(2) {
            logits[pair[1] as usize] = logits[pair[0] as usize];
        }
        assert_eq!(expected(&logits, 0.9, 1).tied, 80);
        assert_eq!(is_kept_loosely(&logits, 0.9, 1), loosely, "{n}");
    }
}

/// Some that are equally near end the cut: all are needed, or all but one, for their sum or for
/// their number.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_is_needed_at_the_cut_is_kept_for_sure() {
    let mut logits = with_pairs(600, 0);
    let all = expected(&logits, 0.9, 1).kept;
    let group = &all[all.len() - 40..][..6];
    let equal = logits[group[0] as usize];
    group.iter().for_each(|&i| logits[i as usize] = equal);
    // From a `p` that the first of them reaches to one that takes all.
    let cuts = (0..10_000).map(|i| i as f32 / 10_000.0);
    let cuts = cuts.filter(|&p| {
        let kept = expected(&logits, p.into(), 1).kept;
        kept.last().is_some_and(|last| group.contains(last))
    });
    let (mut sure, mut open) = (0, 0);
    for p in cuts {
        let end = expected(&logits, p.into(), 1).kept.len();
        for min_keep in [1, end - 1, end] {
            assert!(is_kept_loosely(&logits, p, min_keep), "{p}, {min_keep}");
            let all_are = expected(&logits, p.into(), min_keep).sure == end;
            *(if all_are { &mut sure } else { &mut open }) += 1;
        }
    }
    assert!(sure > 50 && open > 50);
}

/// Those without which the others are not enough come first.
#[test]
fn what_is_needed_comes_first() {
    let are_enough = |ps: &[f32]| ps.iter().sum::<f32>() >= 5.0;
    let mut ps = [1.0, 2.0, 1.0, 2.0, 1.0];
    let mut places = [10, 11, 12, 13, 14];
    // All are 7: without a 1 there are 6, without a 2 just 5.
    assert_eq!(sure_first(&mut ps, &mut places, are_enough), 0);
    let are_enough = |ps: &[f32]| ps.iter().sum::<f32>() >= 5.5;
    assert_eq!(sure_first(&mut ps, &mut places, are_enough), 2);
    let mut sure = [(places[0], ps[0]), (places[1], ps[1])];
    sure.sort_by_key(|&(place, _)| place);
    assert_eq!(sure, [(11, 2.0), (13, 2.0)]);
    let are_enough = |ps: &[f32]| ps.len() >= 5;
    assert_eq!(sure_first(&mut ps, &mut places, are_enough), 5);
}

/// A draw among ties needs two that are kept for sure.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn one_that_is_kept_for_sure_is_too_few() {
    let mut logits = with_pairs(600, 0);
    let nearest = expected(&logits, 0.9, 1).kept;
    logits[nearest[2] as usize] = logits[nearest[1] as usize];
    let (mut sure, mut open) = (0, 0);
    for p in (1..1000).map(|i| i as f32 / 100_000.0) {
        let of = expected(&logits, p.into(), 1);
        if of.kept.len() == 3 {
            assert_eq!(is_kept_loosely(&logits, p, 1), of.sure > 1, "{p}");
            *(if of.sure > 1 { &mut sure } else { &mut open }) += 1;
        }
    }
    assert!(sure > 0 && open > 0);
}

/// Beyond the reach there may be others.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn ties_beyond_the_reach_are_not_left_open() {
    let logits = with_pairs(520, 10);
    for (share, loose) in [(1.0, true), (0.0, false)] {
        let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
        let (_, _, reach) = reach(&mut typical, &logits);
        assert!(matches!(typical.rank_nearest(reach), Nearest::Tied));
        let cut = typical.cut_loosely(reach * share);
        assert_eq!(matches!(cut, Nearest::Loose { .. }), loose);
    }
}

/// With denormals flushed, as `-ffast-math` has it, the built-in's probabilities become 0 sooner,
/// and its entropy NaN.
#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "no control register")]
fn where_denormals_are_flushed_the_built_ins_steps_are_taken() {
    let logits = with_pairs(600, 0);
    let mut buffers = Buffers::default();
    let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
    let mut data = array_of(&logits);
    let mut could = || {
        let of_array = typical.keep_by_sums(&mut Candidates::new(&mut data, false));
        let of_whole = typical.keep_of_whole(&mut Pool::new(&logits, &mut buffers));
        (flushes_to_zero(), of_array, of_whole)
    };
    assert_eq!(with_flushed_denormals(&mut could), (true, false, false));
    assert_eq!(could(), (false, true, true));
}
