use super::*;
use crate::lcg::Lcg;

#[test]
fn floats_of_every_kind_are_ranked() {
    let mut lcg = Lcg(3);
    let mut next = || lcg.unit();
    let inf = f32::INFINITY;
    let outliers = [inf, -inf, 0.0, -0.0, 1e30, -1e30, f32::MAX, f32::MIN];
    let mut ranking = Ranking::default();
    // Miri interprets only a few rounds, since the unsafe writes are the same for any number of
    // elements.
    let rounds = (0..60).filter(|round| !cfg!(miri) || [2, 9].contains(round));
    for round in rounds {
        let n = if cfg!(miri) && round == 2 {
            FEW + 8
        } else if round % 10 == 9 {
            round
        } else {
            3000 + 100 * round
        };
        let mut xs: Vec<f32> = (0..n).map(|_| next() * 20.0 - 12.0).collect();
        // One far outlier makes all others share a step.
        for i in 0..round % 9 {
            xs[i * 7] = outliers[(round + i) % outliers.len()];
        }
        if round == 0 {
            xs.fill(1.5);
        }
        ranking.rank(&xs);
        let mut expected: Vec<u32> = (0..n as u32).collect();
        expected.sort_by(|&a, &b| xs[b as usize].partial_cmp(&xs[a as usize]).expect("no NaN"));
        assert!(ranking.indices() == expected, "round {round}");
        let sorted = expected.iter().map(|&i| xs[i as usize].to_bits());
        assert!(ranking.sorted().iter().map(|x| x.to_bits()).eq(sorted));
    }
}

/// Ranks floats of many distributions. The sizes include some at which the algorithm changes.
#[test]
#[cfg_attr(miri, ignore = "minutes")]
fn floats_spread_in_any_way_are_ranked() {
    let mut lcg = Lcg(11);
    let mut next = || lcg.unit();
    let spreads: [fn(usize, f32) -> f32; 12] = [
        |_, u| u * 20.0 - 12.0,
        |_, u| 4.0 * (u / (1.000_001 - u)).ln(),
        |_, u| (u - 0.5) / (u * 1e-6 + 1e-30),
        |_, u| (u * 8.0).floor(),
        |i, _| -(i as f32),
        |i, _| i as f32,
        |_, u| f32::from_bits((u * 2_139_095_039.0) as u32),
        |_, u| -f32::from_bits((u * 2_139_095_039.0) as u32 | 1),
        |i, u| if i % 3 == 0 { u } else { f32::NEG_INFINITY },
        |i, u| if i % 4001 == 5 { u * 1e30 } else { u * 1e-30 },
        // Floats with the precision of bf16, including zeros of both signs. In the second case the
        // last float has more bits.
        |i, u| f32::from_bits((u * 24.0 - 12.0).to_bits() & 0xffff_0000) * (i % 9).min(1) as f32,
        |i, u| f32::from_bits((u * 24.0 - 12.0).to_bits() & 0xffff_0000 | u32::from(i == 4000)),
    ];
    let mut ranking = Ranking::default();
    for n in [
        2047, 2048, 2049, 2175, 2176, 2177, 4096, 30_000, 32_768, 131_073,
    ] {
        for (number, spread) in spreads.iter().enumerate() {
            let xs: Vec<f32> = (0..n).map(|i| spread(i, next())).collect();
            ranking.rank(&xs);
            let mut expected: Vec<u32> = (0..n as u32).collect();
            let key = |&i: &u32| descending_key(xs[i as usize]);
            expected.sort_by_key(key);
            assert!(ranking.indices() == expected, "{n} of spread {number}");
            let sorted = expected.iter().map(|&i| xs[i as usize].to_bits());
            assert!(ranking.sorted().iter().map(|x| x.to_bits()).eq(sorted));
            // Every third element, beginning with the second.
            let named: Vec<u32> = (1..n as u32).step_by(3).collect();
            let picked: Vec<f32> = named.iter().map(|&i| xs[i as usize]).collect();
            ranking.rank_selected(&xs, &named, &picked);
            expected.retain(|i| i % 3 == 1);
            assert!(ranking.indices() == expected, "{n} of spread {number}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn plain_arrays_are_told() {
    let plain = |i: i32| TokenData::new(i, (i * 7919 % 10_000) as f32);
    let mut data: Vec<TokenData> = (0..10_000).map(plain).collect();
    let mut ranking = Ranking::default();
    assert!(ranking.rank_logits(&data).plain);
    assert!(ranking.sorted().windows(2).all(|pair| pair[0] > pair[1]));
    data[9_999].logit = f32::NAN;
    assert!(!ranking.rank_logits(&data).plain);
    data[9_999].logit = 0.5;
    data.swap(3, 4);
    assert!(!ranking.rank_logits(&data).plain);
}
