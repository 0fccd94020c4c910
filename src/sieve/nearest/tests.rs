use super::*;
use crate::lcg::Lcg;
use crate::samplers::typical::enough_double;
use crate::token::array_of;

/// By a sort of all.
fn naive(centre: f64, least: usize, p: f64, logits: &[f32]) -> Vec<i32> {
    let max = logits.iter().fold(f32::MIN, |max, &x| max.max(x));
    let weight = |x: f32| f64::from((x - max).exp());
    let total: f64 = logits.iter().map(|&x| weight(x)).sum();
    let mut places: Vec<usize> = (0..logits.len()).collect();
    places.sort_by(|&a, &b| {
        let away = |i: usize| (centre - f64::from(logits[i])).abs() as f32;
        away(a).total_cmp(&away(b))
    });
    let mut sum = 0.0;
    let n = places.iter().position(|&i| {
        sum += weight(logits[i]);
        sum / total > p
    });
    let n = n.map_or(places.len(), |n| (n + 1).max(least).min(places.len()));
    let mut kept: Vec<i32> = places[..n].iter().map(|&i| i as i32).collect();
    kept.sort_unstable();
    kept
}

#[test]
fn the_nearest_are_those_of_a_sort() {
    let mut lcg = Lcg(9);
    let mut next = || lcg.unit();
    let (mut keys, mut spare) = (Vec::new(), Vec::new());
    let mut exponentials = crate::algorithms::Workspace::default();
    let mut nearest = Nearest::default();
    let sizes = [2usize, 17, 1, 300, 9000];
    // Miri takes minutes for all of them.
    for &n in &sizes[..if cfg!(miri) { 2 } else { 5 }] {
        for kind in 0..4 {
            let logits: Vec<f32> = (0..n)
                .map(|i| match kind {
                    0 => 6.0 * next() - 3.0,
                    1 => 1.0,
                    2 => (i % 3) as f32,
                    _ => -900.0 * next() * next(),
                })
                .collect();
            for (centre, p, least) in [(3.0, 0.9, 1), (0.4, 0.3, 5), (1.0, 0.5, 40)] {
                let mut candidates = array_of(&logits);
                let enough = enough_double(p, least);
                let mut buffers = Buffers {
                    keys: &mut keys,
                    spare: &mut spare,
                    exponentials: &mut exponentials,
                };
                nearest.keep(centre, enough, &mut candidates, &mut buffers);
                let ids: Vec<i32> = candidates.iter().map(|c| c.id).collect();
                let expected = naive(centre, least, p.into(), &logits);
                // The sums differ in the last places.
                let off = ids.len().abs_diff(expected.len());
                assert!(off <= 1, "{n}, kind {kind}, {p}: {off}");
                if off == 0 {
                    assert_eq!(ids, expected, "{n}, kind {kind}, {p}");
                }
            }
        }
    }
}
