use super::*;
#[cfg(target_arch = "x86_64")]
use crate::denormals::with_flushed_denormals;
use crate::lcg::Lcg;
use crate::pool::{Buffers, Pool};
use crate::token::array_of;

/// If more candidates are to be kept than are within the distance of the sample, all are sorted.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_reach_that_is_too_short_gives_way() {
    const KEPT: usize = 19_000;
    let logit = |i| (i * 7919 % 20_000) as f32 / 2000.0;
    let mut data = array_of(&(0..20_000).map(logit).collect::<Vec<_>>());
    let mut candidates = Candidates::new(&mut data, false);
    let mut typical = Typical::new(0.3, KEPT).expect("0.3 cuts something");
    assert!(!typical.keep_by_sums(&mut candidates));
    typical.apply(&mut candidates);
    assert_eq!(candidates.len(), KEPT);
}

/// Returns the tokens that are kept of these logits, nearest first, computed by the definition in
/// `double`.
fn expected(logits: &[f32], p: f64) -> Vec<Token> {
    let es: Vec<f64> = logits.iter().map(|&l| f64::from(l).exp()).collect();
    let sum: f64 = es.iter().sum();
    let entropy: f64 = es.iter().map(|e| -(e / sum) * (e / sum).ln()).sum();
    let distance = |i: &usize| ((es[*i] / sum).ln() + entropy).abs();
    let mut places: Vec<usize> = (0..logits.len()).collect();
    places.sort_by(|a, b| distance(a).total_cmp(&distance(b)));
    let mut mass = 0.0;
    let ends = |&place: &usize| {
        mass += es[place] / sum;
        mass > p
    };
    let end = places.iter().position(ends).expect("all are enough");
    places[..=end].iter().map(|&place| place as Token).collect()
}

/// Returns `n` logits that are distinct, except that the two logits of each of the first `pairs`
/// pairs are equal. The largest logits are nearest to the entropy, so a cut is among the others.
fn with_pairs(n: usize, pairs: usize) -> Vec<f32> {
    let mut lcg = Lcg(n as u32);
    let step = |i: usize| (i as f32 + 0.5 * lcg.unit()) / n as f32;
    let mut logits: Vec<f32> = (0..n).map(step).map(|x| -3.0 * x * x).collect();
    for pair in 0..pairs {
        logits[2 * pair + 1] = logits[2 * pair];
    }
    logits
}

fn keep_of_whole(typical: &mut Typical, logits: &[f32]) -> bool {
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(logits, &mut buffers);
    typical.narrow_whole(pool.whole().expect("a new pool"))
}

/// If the last array had ties, the next one is expected to have some.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn what_came_before_says_which_way_is_taken() {
    for (pairs, tied, could) in [(10, false, false), (0, false, true), (0, true, false)] {
        let logits = with_pairs(520, pairs);
        let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
        typical.tied = tied;
        let kept = keep_of_whole(&mut typical, &logits);
        assert_eq!(kept, could, "{pairs} pairs, {tied}");
    }
    // After an array without ties, none are expected.
    let mut data = array_of(&with_pairs(520, 0));
    let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
    typical.tied = true;
    typical.apply(&mut Candidates::new(&mut data, false));
    assert!(!typical.tied);
}

/// Returns logits, the first of which is as likely as two thirds of all others together, and
/// further from the entropy than most of the others.
fn with_a_far_first() -> Vec<f32> {
    let mut logits: Vec<f32> = (0..5000).map(|i| i as f32 * -6e-4).collect();
    let others: f32 = logits.iter().map(|logit| logit.exp()).sum();
    logits[0] = (others * 2.0 / 3.0).ln();
    logits
}

/// Selects enough of `logits`, the first of which is the largest. Returns the sum of all
/// exponentials, the entropy, and the distance within which the selected ones are enough.
fn reach(typical: &mut Typical, logits: &[f32]) -> (f32, f32, f32) {
    let beside = typical.beside();
    let sum = typical.descending.sum_of_logits(logits, logits[0], beside);
    let sum = sum.expect("ordinary logits");
    let entropy = typical.descending.entropy(sum).expect("ordinary logits");
    let reach = typical.take_enough(logits.len(), sum, entropy, beside);
    (sum, entropy, reach)
}

/// Candidates that were not selected at first may be nearer to the entropy than those that were.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn more_is_taken_until_it_is_enough() {
    let logits = with_a_far_first();
    for p in [0.45, 0.5, 0.55, 0.9] {
        let mut data = array_of(&logits);
        let mut candidates = Candidates::new(&mut data, false);
        let mut typical = Typical::new(p, 1).expect("it cuts something");
        // The first array is sorted at once, since it looks ordered.
        assert!(!typical.keep_by_sums(&mut candidates));
        assert!(typical.keep_by_sums(&mut candidates));
        let mut kept: Vec<Token> = candidates.as_slice().iter().map(|c| c.id).collect();
        let mut expected = expected(&logits, p.into());
        kept.sort_unstable();
        expected.sort_unstable();
        assert_eq!(kept, expected, "{p}");
    }
}

/// No candidate within the returned distance was left out.
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

/// If denormal numbers are flushed to zero, as with `-ffast-math`, more of the built-in's
/// probabilities are 0, and its entropy is NaN.
#[test]
#[cfg(target_arch = "x86_64")]
#[cfg_attr(miri, ignore = "no control register")]
fn where_denormals_are_flushed_the_built_ins_steps_are_taken() {
    let logits = with_pairs(600, 0);
    let mut typical = Typical::new(0.9, 1).expect("0.9 cuts something");
    let mut data = array_of(&logits);
    let mut could = || {
        let of_array = typical.keep_by_sums(&mut Candidates::new(&mut data, false));
        let of_whole = keep_of_whole(&mut typical, &logits);
        (flushes_to_zero(), of_array, of_whole)
    };
    assert_eq!(with_flushed_denormals(&mut could), (true, false, false));
    assert_eq!(could(), (false, true, true));
}
