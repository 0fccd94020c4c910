use super::*;
use crate::algorithms::top_k::TopK;
use crate::lcg::Lcg;
use crate::token::array_of;

/// Counts of the branches that the tests have taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Sums that ended with one pass over the rest.
    pub finishes: usize,
    /// Crossings after the head, in all sums; then the most in one sum.
    pub crossings: usize,
    pub most_crossings: usize,
    /// Half-way terms in these last passes.
    pub halfway: usize,
    /// Brackets that began after the crossing.
    pub misses: usize,
}

impl Seen {
    pub(super) fn finish(&mut self, crossings: usize, halfway: usize) {
        self.finishes += 1;
        self.crossings += crossings;
        self.most_crossings = self.most_crossings.max(crossings);
        self.halfway += halfway;
    }
}

fn array(logits: impl IntoIterator<Item = f32>) -> Vec<TokenData> {
    array_of(&logits.into_iter().collect::<Vec<f32>>())
}

fn sorted(data: &[TokenData]) -> Vec<TokenData> {
    TopK::default().top(data, data.len()).to_vec()
}

/// Returns the sum and the entropy of a sorted array, adding term by term.
fn one_by_one(sorted: &[TokenData]) -> (f32, f32) {
    let max = sorted[0].logit;
    let es: Vec<f32> = sorted.iter().map(|c| libm::exp(c.logit - max)).collect();
    let sum = es.iter().fold(0.0f32, |sum, e| sum + e);
    let entropy = es.iter().fold(0.0f32, |entropy, e| {
        let p = e / sum;
        entropy + -p * libm::ln(p)
    });
    (sum, entropy)
}

/// Compares the results with those of the sorted array. Returns, for the sum and for the entropy,
/// true if it was found.
fn check(descending: &mut DescendingSum, data: &[TokenData], beside: f32) -> [bool; 2] {
    let sorted = sorted(data);
    let (sum, entropy) = one_by_one(&sorted);
    let Some(found) = descending.sum(data, beside) else {
        return [false; 2];
    };
    assert_eq!(found.to_bits(), sum.to_bits(), "{found} {sum}");
    for n in [1, 100, data.len() / 9] {
        if let Some(ps) = descending.probabilities(sum, n) {
            assert!(ps.len() >= n);
            let expected = sorted
                .iter()
                .map(|c| libm::exp(c.logit - sorted[0].logit) / sum);
            assert!(
                ps.iter()
                    .zip(expected)
                    .all(|(a, b)| a.to_bits() == b.to_bits())
            );
        }
        descending.rank_top(n);
        let (_, places, _) = descending.first_places(n);
        let top = places.iter().map(|&i| data[i as usize]);
        assert!(top.eq(sorted[..n].iter().copied()), "the first {n}");
    }
    let found = descending.entropy(sum);
    if let Some(found) = found {
        assert_eq!(found.to_bits(), entropy.to_bits(), "{found} {entropy}");
    }
    [true, found.is_some()]
}

/// Returns logits of one of many shapes, most of which need not be sorted.
fn logits(shape: usize, n: usize, random: &mut Lcg) -> Vec<f32> {
    let spread = 0.5 + 4.0 * random.unit();
    let mut normal = || {
        (0..n)
            .map(|_| random.normal() * spread)
            .collect::<Vec<f32>>()
    };
    match shape {
        0 => normal(),
        // On a coarse grid.
        1 => normal().iter().map(|x| (x * 16.0).round() / 16.0).collect(),
        // A few stand out.
        2 => {
            let mut xs = normal();
            for i in 0..60.min(n) {
                xs[i * 97 % n] = 10.0 + 5.0 * spread - i as f32 / 8.0;
            }
            xs
        }
        // All nearly equal.
        3 => normal().iter().map(|x| 3.0 + x * 1e-3).collect(),
        // Few distinct values.
        4 => normal()
            .iter()
            .map(|x| x.signum() * 0.7 + x.abs().round())
            .collect(),
        // Some exponentials are denormal or 0.
        5 => normal()
            .iter()
            .map(|x| {
                if x.abs() > spread {
                    *x
                } else {
                    x * 50.0 - 90.0
                }
            })
            .collect(),
        // Some are masked.
        6 => normal()
            .iter()
            .map(|x| if *x > 0.0 { *x } else { f32::NEG_INFINITY })
            .collect(),
        // In descending order.
        7 => {
            let mut xs = normal();
            xs.sort_by(|a, b| b.total_cmp(a));
            xs
        }
        // One has nearly all of the probability, so that the entropy is almost 0.
        _ => {
            let mut xs = normal();
            xs[n / 3] = 20.0 + 5.0 * spread;
            xs
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn sums_and_entropies_are_those_of_the_sorted_array() {
    const SHAPES: usize = 9;
    let mut random = Lcg(1);
    let mut descending = DescendingSum::default();
    let mut decided = [[0; 2]; SHAPES];
    let mut tried = [0; SHAPES];
    for round in 0..360 {
        let most = [1500, 6000, 40_000, 140_000][round / SHAPES % 4];
        let n = SMALLEST + (random.unit() * most as f32) as usize;
        let shape = round % SHAPES;
        let data = array(logits(shape, n, &mut random));
        let beside = [0.15, 0.035][round % 2];
        let found = check(&mut descending, &data, beside);
        tried[shape] += 1;
        for (count, found) in decided[shape].iter_mut().zip(found) {
            *count += i32::from(found);
        }
    }
    let seen = descending.binades.seen;
    assert!(
        seen.finishes > 100 && seen.crossings > 100 && seen.halfway > 30,
        "{seen:?}"
    );
    assert!(seen.most_crossings > 2 && seen.misses > 0, "{seen:?}");
    for shape in [0, 2, 3, 7, 8] {
        let [sums, entropies] = decided[shape];
        assert!(sums * 10 >= tried[shape] * 9, "{decided:?}");
        assert!(entropies * 10 >= tried[shape] * 9, "{decided:?}");
    }
}

/// Checks sums whose total is close to a power of two, on either side.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn sums_beside_a_power_of_two() {
    let mut random = Lcg(5);
    let mut descending = DescendingSum::default();
    for round in 0..40 {
        let n = 5000 + 1000 * round;
        let mut xs = logits(0, n, &mut random);
        let shift = |xs: &[f32], by: f64| -> f64 {
            let max = f64::from(xs.iter().fold(f32::MIN, |a, &b| a.max(b))) + by;
            1.0 + xs.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>()
        };
        // Adds a candidate `by` above the largest. The larger `by` is, the smaller is the sum.
        let target = shift(&xs, 0.0).log2().floor().exp2();
        let wanted = target * (1.0 + [1e-6, -1e-6, 1e-4, 1e-3][round % 4]);
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            if shift(&xs, middle) > wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        let max = xs.iter().fold(f32::MIN, |a, &b| a.max(b));
        xs[n / 2] = (f64::from(max) + low) as f32;
        let found = check(&mut descending, &array(xs), 0.15);
        assert_eq!(found, [true; 2], "round {round}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn equal_candidates() {
    let mut descending = DescendingSum::default();
    for n in [600, 5000, 16_384, 70_000, 262_144] {
        let found = check(&mut descending, &array((0..n).map(|_| 1.0)), 0.15);
        assert_eq!(found, [true; 2]);
        // The same with a total that stays a little below.
        let below = (0..n).map(|i| if i == 0 { -9.0 } else { 1.0 });
        assert_eq!(check(&mut descending, &array(below), 0.15), [true; 2]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_probability_of_0_has_no_entropy() {
    let wide = (0..20_000).map(|i| {
        if i == 7 {
            f32::NEG_INFINITY
        } else {
            (i % 100) as f32 / 20.0
        }
    });
    let mut descending = DescendingSum::default();
    let sum = descending.sum(&array(wide), 0.15);
    assert!(sum.is_some_and(|sum| descending.entropy(sum).is_none()));
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn nothing_finite_gives_way() {
    let mut descending = DescendingSum::default();
    let masked = array((0..1000).map(|_| f32::NEG_INFINITY));
    assert!(descending.sum(&masked, 0.15).is_none());
}

fn of_keys(keys: &[f32], total: f64) -> Series<'_> {
    Series {
        keys,
        values: keys,
        terms: Terms::Exponentials,
        total,
        until: f32::INFINITY,
    }
}

/// Finds the cut term by term: adds the probabilities of the logits, the largest first, until the
/// sum reaches `p`. Returns the number of these logits, and the last of them.
fn cut_one_by_one(logits: &[f32], sum: f32, p: f32) -> End {
    let mut sorted = logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let mut running = 0.0f32;
    let place = sorted.iter().position(|x| {
        running += libm::exp(x - sorted[0]) / sum;
        running >= p
    });
    place.map_or(End::Beyond, |place| End::At {
        n: place + 1,
        last: sorted[place],
    })
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_cut_is_that_of_the_sorted_array() {
    let mut random = Lcg(4);
    let mut cut = DescendingCut::default();
    let (mut found, mut beyond, mut unknown) = (0, 0, 0);
    for round in 0..360 {
        let most = [3, 3000, 30_000, 90_000][round / 9 % 4];
        let n = 1 + (random.unit() * most as f32) as usize;
        let xs = logits(round % 9, n, &mut random);
        let max = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        if !max.is_finite() {
            continue;
        }
        let all = xs.iter().fold(0.0f32, |sum, x| sum + libm::exp(x - max));
        // The logits may be only a part of those in the sum.
        let sum = all * [1.0, 1.3, 1.0][round % 3];
        let share = random.unit();
        for p in [
            -1.0, 0.0, 1e-6, share, 0.25, 0.5, 0.95, 0.999, 0.999_999, 1.1,
        ] {
            let expected = cut_one_by_one(&xs, sum, p);
            let total = f64::from(all);
            match cut.find(&xs, Cut { max, sum, p, total }) {
                End::Unknown => unknown += 1,
                end => {
                    assert_eq!(end, expected, "round {round}, {n}, {p}");
                    match end {
                        End::Beyond => beyond += 1,
                        _ => found += 1,
                    }
                }
            }
        }
    }
    assert!(found > 2000 && beyond > 300, "{found}, {beyond}");
    assert!(unknown < found / 10, "{unknown}, {found}");
    assert!(cut.by_sample > 300, "{}", cut.by_sample);
    let seen = cut.binades.seen;
    assert!(seen.crossings > 100 && seen.misses > 0, "{seen:?}");
}

/// Checks that a wrong total, which makes the sample mislead, does not change a cut.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_wrong_total_changes_no_cut() {
    let mut random = Lcg(12);
    let mut cut = DescendingCut::default();
    for round in 0..20 {
        let xs = logits(0, 20_000, &mut random);
        let max = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum = xs.iter().fold(0.0f32, |sum, x| sum + libm::exp(x - max));
        for p in [0.4, 0.95, 0.99] {
            let expected = cut_one_by_one(&xs, sum, p);
            for factor in [0.3, 0.9, 0.97, 0.99, 1.0, 1.01, 1.03, 1.1, 1.5, 3.0] {
                let total = f64::from(sum) * factor;
                let end = cut.find(&xs, Cut { max, sum, p, total });
                assert_eq!(end, expected, "round {round}, {p}, {factor}");
            }
        }
    }
}

/// Checks that a sum is given up if too many different terms are half-way between two floats.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn many_terms_half_way_give_way() {
    let half = f32::EPSILON * 256.0;
    let small = (0..3000).map(|i| (2 * i + 1) as f32 * half);
    let mut keys = vec![1.0; 600];
    keys.extend(small);
    let mut binades = Binades::default();
    binades.prepare(&keys);
    let total = keys.iter().map(|&x| f64::from(x)).sum();
    assert!(binades.sum(of_keys(&keys, total)).is_none());
    // Many equal half-way terms count once.
    for key in &mut keys[600..] {
        *key = 3.0 * half;
    }
    binades.prepare(&keys);
    let expected = keys.iter().fold(0.0f32, |sum, x| sum + x);
    let total = keys.iter().map(|&x| f64::from(x)).sum();
    assert_eq!(binades.sum(of_keys(&keys, total)), Some(expected));
}

/// Checks that a wrong total, which makes brackets miss, does not change the result.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_wrong_total_changes_nothing() {
    let mut random = Lcg(9);
    let mut keys: Vec<f32> = (0..30_000)
        .map(|_| libm::exp(random.normal() * 2.0))
        .collect();
    keys.iter_mut().for_each(|x| *x /= 512.0);
    let mut expected = keys.clone();
    expected.sort_by(|a, b| b.total_cmp(a));
    let expected = expected.iter().fold(0.0f32, |sum, x| sum + x);
    let total: f64 = keys.iter().map(|&x| f64::from(x)).sum();
    let mut binades = Binades::default();
    binades.prepare(&keys);
    for factor in [0.0, 0.3, 0.9, 0.99, 1.01, 1.1, 3.0] {
        assert_eq!(
            binades.sum(of_keys(&keys, total * factor)),
            Some(expected),
            "factor {factor}"
        );
    }
    // So wrong that no step makes progress.
    assert!(binades.sum(of_keys(&keys, total * 100.0)).is_none());
}
