use super::*;
use crate::lcg::Lcg;
use crate::sieve::plain;
use crate::sieve::sampled::Sample;
use crate::sieve::source::Logits;

#[test]
fn keys_keep_the_logit_and_fall() {
    let logits = [f32::INFINITY, 3.0, 1e-40, 0.0, -0.0, -1e-40, -2.5, f32::MIN];
    let keys: Vec<Item> = (0..).zip(logits).map(|(i, l)| item(l, i)).collect();
    assert!(keys.is_sorted());
    for (&key, logit) in keys.iter().zip(logits) {
        assert_eq!(candidate_of(key).logit, logit);
    }
}

/// Bias and penalties take out and put in, at and around the threshold, at the ends, and masked
/// ones.
#[test]
fn what_changes_is_collected_as_if_it_had_always_been_so() {
    let mut lcg = Lcg(5);
    let mut next = || lcg.bits() >> 8;
    for round in 0..if cfg!(miri) { 2 } else { 400 } {
        let n = 1 + next() as usize % if cfg!(miri) { 30 } else { 700 };
        let mut logit = || match next() % 20 {
            0 => f32::NEG_INFINITY,
            1 => f32::NAN,
            other => (other as f32 - 10.0) / 4.0,
        };
        let logits: Vec<f32> = (0..n).map(|_| logit()).collect();
        let changed: Vec<f32> = (0..n).map(|_| logit()).collect();
        let share = 1 + next() % 9;
        let touched: Vec<Touched> = (0..n)
            .filter(|_| next() % 10 < share)
            .map(|i| Touched {
                token: i as u32,
                raw: logits[i],
                logit: changed[i],
            })
            .collect();
        let mut as_if = logits.clone();
        for t in &touched {
            as_if[t.index()] = t.logit;
        }
        for divisor in [1.0, 2.0] {
            let source = Source {
                logits: Logits::F32(&logits),
                touched: &touched,
                divisor,
            };
            let (mut maxima, mut candidates) = (Vec::new(), Vec::new());
            let max = scan(&source, &mut maxima);
            for (maximum, block) in maxima.iter().zip(as_if.chunks(GROUP)) {
                let largest = block.iter().map(|&x| comparable(x / divisor));
                assert_eq!(*maximum, largest.fold(f32::NEG_INFINITY, f32::max));
            }
            let unmasked = as_if.iter().filter(|&&x| x > f32::NEG_INFINITY).count();
            assert_eq!(scan_and_count(&source, &mut maxima), (max, unmasked));
            for threshold in [f32::MIN, -1.0, 0.25, max.max(f32::MIN)] {
                collect(&source, &mut maxima, threshold, &mut candidates);
                let found: Vec<_> = candidates.iter().map(|c| (c.id, c.logit)).collect();
                let reaches = |&(_, x): &(i32, f32)| x >= threshold;
                let logits = as_if.iter().map(|x| x / divisor);
                let expected: Vec<_> = (0..).zip(logits).filter(reaches).collect();
                assert_eq!(found, expected, "round {round}, threshold {threshold}");
            }
        }
    }
}

#[test]
fn the_k_largest_are_the_head_of_a_stable_sort() {
    let mut lcg = Lcg(3);
    // Coarse, so that ties are common.
    let mut next = || ((lcg.bits() >> 24) as f32 - 128.0) / 16.0;
    let sizes = [17usize, 1, 2, 15, 16, 1024, 1025, 5000, 20_000];
    // Miri takes minutes for all of them.
    for &n in &sizes[..if cfg!(miri) { 1 } else { 9 }] {
        for shape in 0..4 {
            let mut logits: Vec<f32> = (0..n).map(|_| next()).collect();
            if shape == 1 {
                logits.sort_by(f32::total_cmp);
            }
            if shape == 2 {
                logits[n / 2] = f32::NAN;
                logits[n - 1] = f32::NEG_INFINITY;
            }
            if shape == 3 {
                // Each block has one of the largest: many blocks, and few of each.
                logits.iter_mut().step_by(GROUP).for_each(|x| *x = 10.0);
            }
            let mut expected: Vec<(f32, usize)> = logits.iter().copied().zip(0..).collect();
            expected.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
            expected.sort_by(|a, b| b.0.total_cmp(&a.0));
            let ks = [2, n + 1, 1, 40, 300, n];
            for &k in &ks[..if cfg!(miri) { 2 } else { 6 }] {
                let (mut keys, mut candidates) = (Vec::new(), Vec::new());
                let (mut maxima, mut sample) = (Vec::new(), Vec::new());
                let source = plain(Logits::F32(&logits)).expect("some logits");
                scan(&source, &mut maxima);
                top_k(
                    k,
                    &source,
                    &mut maxima,
                    &mut sample,
                    &mut candidates,
                    &mut keys,
                );
                let ids: Vec<usize> = candidates.iter().map(|c| c.id as usize).collect();
                let head: Vec<usize> = expected.iter().take(k).map(|e| e.1).collect();
                assert_eq!(ids, head, "n {n}, k {k}, shape {shape}");
            }
        }
    }
}

/// Keys are thrown away as they come, so that they take no room for all.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn keys_are_collected_in_the_room_of_few() {
    const N: usize = 40 * CHUNK;
    const K: usize = 40;
    // No token's logit is another's: 7919 is a prime that does not divide `N`.
    let logits: Vec<f32> = (0..N).map(|i| (i * 7919 % N) as f32).collect();
    let source = plain(Logits::F32(&logits)).expect("some logits");
    let (mut maxima, mut candidates, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    scan(&source, &mut maxima);
    collect_keys(K, &source, &maxima, f32::MIN, &mut candidates, &mut keys);
    keep_least(K, &mut keys);
    let mut found: Vec<f32> = keys.iter().map(|&key| candidate_of(key).logit).collect();
    found.sort_by(f32::total_cmp);
    let largest: Vec<f32> = (N - K..N).map(|i| i as f32).collect();
    assert_eq!(found, largest);
    assert!(keys.capacity() <= 2 * CHUNK, "{}", keys.capacity());
}

/// The largest are those that a sample sees, so that it takes them for the rule.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_sample_that_misleads_gives_way() {
    const N: usize = 20_000;
    const K: usize = 3000;
    let mut probe = vec![0.0; N];
    let mut logits: Vec<f32> = (0..N).map(|i| (i * 7919 % N) as f32 / N as f32).collect();
    let expected = |logits: &[f32]| {
        let mut ranking: Vec<usize> = (0..N).collect();
        ranking.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        ranking.truncate(K);
        ranking
    };
    for i in 0..N {
        probe[i] = 1.0;
        let source = plain(Logits::F32(&probe)).expect("some logits");
        if Sample::take(&source, 1.0).bins[0] > 0 {
            logits[i] += 2.0;
        }
        probe[i] = 0.0;
    }
    let source = plain(Logits::F32(&logits)).expect("some logits");
    let (mut maxima, mut sample) = (Vec::new(), Vec::new());
    let (mut candidates, mut keys) = (Vec::new(), Vec::new());
    let max = scan(&source, &mut maxima);
    let threshold = sampled_threshold(K, max, &source);
    assert!(logits.iter().filter(|&&x| x >= threshold).count() < K);
    let (maxima, candidates) = (&mut maxima[..], &mut candidates);
    top_k(K, &source, maxima, &mut sample, candidates, &mut keys);
    let ids: Vec<usize> = candidates.iter().map(|c| c.id as usize).collect();
    assert_eq!(ids, expected(&logits));
}

/// As many blocks as are asked for are enough: each has one that reaches the least maximum.
#[test]
fn as_many_blocks_as_are_asked_for_give_a_threshold() {
    let maxima: Vec<f32> = (0..5).map(|i| i as f32).collect();
    let of = |k| threshold_of(k, &maxima, &mut Vec::new());
    assert!(of(5).is_some_and(|threshold| threshold <= 0.0));
    assert_eq!(of(6), None);
}

#[test]
fn the_largest_of_the_least_keys_is_the_last() {
    const N: usize = 1000;
    const K: usize = 100;
    let mut keys: Vec<Item> = (0..N).map(|i| item(0.0, i * 7919 % N)).collect();
    keep_least(K, &mut keys);
    assert_eq!(keys.len(), K);
    assert_eq!(keys[K - 1], item(0.0, K - 1));
}

/// Between the k largest maxima and little more than as many.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn a_threshold_is_reached_by_few_more_blocks_than_are_asked_for() {
    const N: usize = 8000;
    let maxima: Vec<f32> = (0..N).map(|i| (i * 7919 % N) as f32).collect();
    for k in [1, 40, 200] {
        let threshold = threshold_of(k, &maxima, &mut Vec::new()).expect("enough blocks");
        let reach = blocks_from(threshold, &maxima);
        assert!((k..2 * k + 20).contains(&reach), "{k}: {reach}");
    }
}

/// Those that are touched divide the vocabulary into runs, each of which has maxima of its own.
#[test]
fn what_is_collected_of_runs_is_what_reaches() {
    const N: usize = 1000;
    let mut lcg = Lcg(9);
    let logits: Vec<f32> = (0..N).map(|_| lcg.unit()).collect();
    let touched = [100, 101, 612].map(|token: u32| Touched {
        token,
        raw: logits[token as usize],
        logit: 2.0,
    });
    let source = Source {
        logits: Logits::F32(&logits),
        touched: &touched,
        divisor: 1.0,
    };
    let mut maxima = Vec::new();
    let max = scan(&source, &mut maxima);
    let mut survivors = Packed::default();
    collect_packed(&source, &maxima, (max, 0.99), &mut survivors);
    let mut found = Vec::new();
    survivors.write_to(&mut found);
    let found: Vec<Token> = found.iter().map(|c| c.id).collect();
    let reaches = |&token: &Token| source.at(token as usize) >= 0.99;
    let expected: Vec<Token> = (0..N as Token).filter(reaches).collect();
    assert_eq!(found, expected);
}

/// Also where they are far from each other.
#[test]
fn of_equally_large_logits_the_first_is_the_largest() {
    let mut logits = vec![0.0; 3 * CHUNK];
    assert_eq!(largest(Logits::F32(&logits)), Some(0));
    for place in [3 * CHUNK - 1, CHUNK, 7] {
        logits[place] = 1.0;
        assert_eq!(largest(Logits::F32(&logits)), Some(place as Token));
    }
    logits.fill(f32::NEG_INFINITY);
    assert_eq!(largest(Logits::F32(&logits)), None);
}

#[test]
fn what_is_put_in_takes_no_more_room_than_there_is_then() {
    let candidate = |id| TokenData {
        id,
        logit: 1.0,
        p: 0.0,
    };
    let mut candidates: Vec<TokenData> = (0..100).map(|i| candidate(2 * i)).collect();
    let touched = |i: u32| Touched {
        token: 2 * i + 1,
        raw: 0.0,
        logit: 1.0,
    };
    let touched: Vec<Touched> = (0..50).map(touched).collect();
    insert(touched.iter(), &mut candidates);
    assert!(candidates.is_sorted_by_key(|c| c.id));
    assert_eq!(candidates.len(), 150);
    assert!(candidates.capacity() <= 256, "{}", candidates.capacity());
}

/// Of a nucleus among a few candidates it is known that it is.
#[test]
#[cfg_attr(miri, ignore = "seconds for each exponential in double precision")]
fn a_nucleus_among_few_is_found_there() {
    let enough = |sum| Enough { sum, n: 1 };
    for (sum, found) in [(0.5, Some(1)), (1.3, Some(2)), (1.4, None)] {
        let of = |(id, logit): (i32, f32)| TokenData { id, logit, p: 0.0 };
        // 1 and e^-1, 1.368 together.
        let mut candidates: Vec<TokenData> = [(0, 1.0), (1, 2.0)].map(of).into();
        let is_there = cut_few(enough(sum), 2.0, &mut candidates, &mut Vec::new());
        assert_eq!(is_there.then_some(candidates.len()), found, "{sum}");
        // Not even sorted where it is not.
        assert_eq!(candidates[0].id, i32::from(found.is_some()));
    }
}
