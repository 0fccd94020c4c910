use super::*;
use crate::lcg::Lcg;

/// Draws as the built-in does: sorts, adds up, and searches for the draw. Also returns the share of
/// the sum at which the next candidate would be drawn.
fn in_order(from: Descending<'_>, draw: f64) -> (f32, usize, f64) {
    let mut sorted = from.logits.to_vec();
    sorted.sort_by(|a, b| b.total_cmp(a));
    let max = from.first / from.divisor;
    let e = |&x: &f32| f64::from(crate::simd::libm::exp(x / from.divisor - max));
    let kept = &sorted[from.dropped..];
    let sum = kept.iter().map(e).sum::<f64>();
    let target = sum * draw;
    let mut running = 0.0;
    let place = kept.iter().position(|x| {
        running += e(x);
        running >= target
    });
    let place = from.dropped + place.expect("the sum is reached");
    let start = sorted.partition_point(|&x| x > sorted[place]);
    (sorted[place], place - start, running / sum)
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn it_is_the_one_of_the_sorted_array() {
    const N: usize = 30_000;
    let mut lcg = Lcg(7);
    let mut next = || f64::from(lcg.unit());
    let mut draw = DescendingDraw::default();
    for case in 0..240 {
        let (scale, grid) = ([1.0, 6.0, 20.0, 0.0][case % 4], [0.0, 0.125][case / 4 % 2]);
        let mut logits: Vec<f32> = (0..N)
            .map(|_| {
                let x = scale * (next() + next() + next() - 1.5);
                (if grid > 0.0 {
                    (x / grid).round() * grid
                } else {
                    x
                }) as f32
            })
            .collect();
        if case % 3 == 0 {
            logits[77] = f32::NEG_INFINITY;
        }
        let mut sorted = logits.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        let dropped = [0, 1, 5, 40][case / 8 % 4];
        let from = Descending {
            logits: &logits,
            dropped,
            behind: 0,
            first: sorted[dropped],
            divisor: [1.0, 0.7, 1.9][case % 3],
        };
        let tokens = logits.iter().zip(0..);
        let candidates = tokens.map(|(&logit, id)| TokenData::new(id, logit));
        let larger: Vec<_> = candidates
            .clone()
            .filter(|c| c.logit > from.first)
            .collect();
        let least = sorted[[0, 300][case % 2]];
        let head: Vec<_> = candidates.filter(|c| c.logit >= least).collect();
        let mut shares = vec![0.0, next() * 0.01, next(), next(), 0.999_13, 1.0 - 1e-9];
        // So near a border that the errors of approximate exponentials could decide.
        for share in [next(), 0.999 * next()] {
            let (_, _, border) = in_order(from, share);
            shares.extend([border - 1e-9, border + 1e-9]);
        }
        for share in shares
            .into_iter()
            .filter(|share| (0.0..1.0).contains(share))
        {
            let drawn = draw.find(from, &larger, &head, share);
            let (logit, nth, _) = in_order(from, share);
            match drawn {
                Some(drawn) => {
                    assert_eq!((drawn.logit, drawn.nth), (logit, nth), "{case}, {share}")
                }
                // The draw is on a border, or so near the end that rounding could decide.
                None => assert!(share == 0.0 || share > 0.999_999, "{case}, {share}"),
            }
        }
    }
}
