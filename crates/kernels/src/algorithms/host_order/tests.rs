//! Compares the replayed sorts with `std::sort` and `std::partial_sort`.

use std::ops::Range;

use vendor_llama_cpp::reference;

use super::sort::{All, Wanted};
use super::*;

mod libraries;
use crate::kernels::sort_key::logit_of;
use crate::simd::Isa;
use crate::token::array_of as candidates;

/// A small generator of test inputs.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Returns an approximately normally distributed number.
    fn normal(&mut self) -> f32 {
        let units = (0..6).map(|_| self.below(1 << 24) as f32 / 16_777_216.0);
        2.0 * (units.sum::<f32>() - 3.0)
    }
}

/// Returns logits with ties of many kinds.
fn logits(n: usize, random: &mut Random) -> Vec<f32> {
    let spread = 1.0 + random.below(5) as f32;
    let centre = random.below(30) as f32 - 15.0;
    let most = random.pick(&[2, 5, 100, 100_000]);
    let values = 1 + random.below(most);
    let shape = random.below(12);
    let masked = random.below(4) == 0;
    let mut logits: Vec<f32> = (0..n)
        .map(|i| match shape {
            0 => centre + spread * random.normal(),
            1 => f32::from_bits((centre + spread * random.normal()).to_bits() & 0xFFFF_0000),
            2 => half::f16::from_f32(centre + spread * random.normal()).to_f32(),
            3 => ((centre + spread * random.normal()) * 4.0).round() / 4.0,
            4 => random.below(values) as f32 / 8.0 - 9.0,
            5 => centre,
            6 => (i % 2) as f32,
            7 => i as f32 / 64.0,
            8 => -(i as f32) / 64.0,
            9 => (i / 7) as f32 / 64.0 - 5.0,
            10 => random.pick(&[0.0, -0.0, 1e-40, -1e-40]),
            _ => random.pick(&[f32::NEG_INFINITY, -12.0, 3.0, 12.0]),
        })
        .collect();
    if masked {
        let spared = random.pick(&[2, 50, 1000]);
        for logit in &mut logits {
            if random.below(spared) != 0 {
                *logit = f32::NEG_INFINITY;
            }
        }
    }
    arrange(&mut logits, random);
    logits
}

/// Puts logits into an order that sorts find easy, or leaves them as they are.
fn arrange(logits: &mut [f32], random: &mut Random) {
    let n = logits.len();
    let length = match random.below(3) {
        _ if n == 0 => return,
        0 => 1 + random.below(40),
        1 => 1 + random.below(2000),
        _ => n,
    };
    let order = random.below(8);
    for run in logits.chunks_mut(length) {
        match order {
            0 => run.sort_by(f32::total_cmp),
            1 => run.sort_by(|a, b| b.total_cmp(a)),
            2 => {
                // The first half ascending, the second descending.
                run.sort_by(f32::total_cmp);
                let half = run.len() / 2;
                run[half..].reverse();
            }
            _ => {}
        }
    }
    if random.below(4) == 0 {
        logits.rotate_left(random.below(n));
    }
    if random.below(4) == 0 {
        for _ in 0..1 + random.below(1 + n / 50) {
            logits.swap(random.below(n), random.below(n));
        }
    }
}

fn items(keys: &[f32]) -> Vec<Item> {
    keys.iter().enumerate().map(|(i, &x)| item(x, i)).collect()
}

fn places(items: &[Item]) -> Vec<u32> {
    items.iter().map(|&item| item as u32).collect()
}

fn sizes(random: &mut Random) -> usize {
    let most = random.pick(&[20, 200, 2000, 20_000]);
    random.below(most)
}

/// Returns the number of random arrays that each test tries: LLAMA_SIEVE_TEST_SORTS, or 5000.
fn rounds() -> usize {
    let set = std::env::var("LLAMA_SIEVE_TEST_SORTS").ok();
    set.and_then(|n| n.parse().ok()).unwrap_or(5_000)
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn sorted_as_std_sort_does() {
    let mut random = Random(1);
    for round in 0..rounds() {
        let keys = logits(sizes(&mut random), &mut random);
        let theirs = reference::std_sort(&keys);
        for isa in Isa::supported() {
            let _forced = isa.force();
            let mut ours = items(&keys);
            introsort::sort(&mut ours, &mut All);
            assert!(places(&ours) == theirs, "round {round}, {isa:?}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn partially_sorted_as_std_partial_sort_does() {
    let mut random = Random(2);
    for round in 0..rounds() {
        let keys = logits(sizes(&mut random), &mut random);
        let k = random.below(keys.len() + 1);
        let mut ours = items(&keys);
        heap::partial_sort(&mut ours, k);
        let theirs = reference::std_partial_sort(&keys, k);
        assert!(places(&ours)[..k] == theirs[..k], "round {round}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn large_arrays_and_those_that_run_out_of_levels() {
    let mut random = Random(3);
    for n in [17, 100, 1000, 4097, 128_256, 200_000] {
        for _ in 0..4 {
            let keys = logits(n, &mut random);
            let mut ours = items(&keys);
            introsort::sort(&mut ours, &mut All);
            assert!(places(&ours) == reference::std_sort(&keys), "{n}");
        }
        let equal = vec![1.5; n];
        let mut killer = reference::std_sort_killer(n.min(20_000));
        // Again with ties.
        for coarse in [1.0, 2.0, 5.0] {
            killer.iter_mut().for_each(|x| *x = (*x / coarse).floor());
            for keys in [&equal, &killer] {
                let mut ours = items(keys);
                introsort::sort(&mut ours, &mut All);
                assert!(places(&ours) == reference::std_sort(keys), "{n}");
            }
        }
    }
}

/// Wants everything, and records the largest number of items that are passed on together.
struct Largest(usize);

impl Wanted for Largest {
    fn wants(&mut self, _: &mut [Item], _: Range<usize>) -> bool {
        true
    }

    fn take(&mut self, items: &[Item], _: Range<usize>) -> bool {
        self.0 = self.0.max(items.len());
        true
    }
}

/// Checks that a heap sort gets as many numbers as intended. If all numbers differ, every other
/// part that is passed on is at most as large as those left to the insertion sort.
#[test]
fn killers_of_msvc_leave_a_heap() {
    for (n, least) in [(128, 60), (200, 133), (1000, 800), (4097, 3500)] {
        let numbers = killer::of_msvc(n);
        let is_last = |x: &&u32| **x == n as u32;
        let left = numbers.iter().filter(is_last).count();
        let different = numbers.iter().enumerate().map(|(i, &x)| match x {
            x if x == n as u32 => -((n + i) as f32),
            x => -(x as f32),
        });
        let mut items = items(&different.collect::<Vec<f32>>());
        let mut largest = Largest(0);
        msvc::sort(&mut items, &mut largest);
        assert!(items.is_sorted(), "{n}");
        assert_eq!(largest.0, left, "{n}");
        assert!(left >= least, "{n}: {left}");
    }
}

/// Returns the order that the built-ins' partial sort leaves, from the standard library's own
/// functions.
fn reference_places(logits: &[f32], k: usize) -> Vec<u32> {
    places_by(logits, k, reference::std_sort, reference::std_partial_sort)
}

/// Returns the order that the built-ins' partial sort leaves if it uses `sort` and `partial_sort`.
fn places_by(
    logits: &[f32],
    k: usize,
    sort: impl Fn(&[f32]) -> Vec<u32>,
    partial_sort: impl Fn(&[f32], usize) -> Vec<u32>,
) -> Vec<u32> {
    if k <= HEAP {
        let mut order = partial_sort(logits, k);
        order.truncate(k);
        return order;
    }
    let mut dealt = vec![Vec::new(); buckets::COUNT];
    for (i, &x) in logits.iter().enumerate() {
        let exact = 6.4f32 * x + 64.0;
        let number = if (-2_147_483_648.0..2_147_483_648.0).contains(&exact) {
            exact as i32
        } else {
            i32::MIN
        };
        dealt[number.clamp(0, 127) as usize].push(i as u32);
    }
    let mut order = Vec::new();
    for bucket in dealt.iter().rev() {
        let keys: Vec<f32> = bucket.iter().map(|&i| logits[i as usize]).collect();
        let left = k - order.len();
        let sorted = if bucket.len() >= left {
            partial_sort(&keys, left)
        } else {
            sort(&keys)
        };
        order.extend(sorted.iter().take(left).map(|&i| bucket[i as usize]));
        if order.len() == k {
            break;
        }
    }
    order
}

fn bits(data: &[TokenData]) -> Vec<(i32, u32, u32)> {
    let bits = data
        .iter()
        .map(|c| (c.id, c.logit.to_bits(), c.p.to_bits()));
    bits.collect()
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn the_largest_are_those_of_the_built_ins() {
    let mut random = Random(4);
    let mut order = HostOrder::default();
    for round in 0..rounds() {
        let mut logits = logits(1 + sizes(&mut random), &mut random);
        let n = logits.len();
        if round % 8 == 0 {
            let large = random.pick(&[f32::INFINITY, 3.4e8, 3.3e8, f32::MAX]);
            logits[random.below(n)] = large;
        }
        let k = match random.below(4) {
            0 => n,
            1 => 1 + random.below(n),
            2 => n.min(random.pick(&[40, 127, 128, 129, 256])),
            _ => n.min(1 + random.below(300)),
        };
        let _forced = random.pick(&Isa::supported()).force();
        let data = candidates(&logits);
        let ours: Vec<u32> = order.top(&data, k).iter().map(|c| c.id as u32).collect();
        let mut sorted = data.clone();
        if round % 3 == 0 {
            sorted[0].p = 0.5;
        }
        let expected: Vec<TokenData> = ours.iter().map(|&id| sorted[id as usize]).collect();
        order.sort_top(&mut sorted, k);
        assert!(bits(&sorted[..k]) == bits(&expected), "round {round}");
        assert!(
            ours == reference_places(&logits, k),
            "round {round}, {k} of {n}"
        );
    }
}

#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn ties_among_what_is_ranked_are_settled() {
    let mut random = Random(5);
    let mut order = HostOrder::default();
    for round in 0..rounds() {
        let logits = logits(129 + sizes(&mut random), &mut random);
        let n = logits.len();
        let k = if n > 1024 && round % 2 == 0 { 256 } else { n };
        let need = 1 + random.below(if round % 3 == 0 { k } else { k.min(300) });
        let mut ranked: Vec<u32> = (0..n as u32).collect();
        ranked.sort_by(|&a, &b| {
            let [a, b] = [a, b].map(|i| logits[i as usize]);
            b.partial_cmp(&a).expect("no NaN")
        });
        ranked.truncate(need);
        let mut sorted: Vec<f32> = ranked.iter().map(|&i| logits[i as usize]).collect();
        order.settle(&logits, k, &mut ranked, &mut sorted);
        let expected = reference_places(&logits, k);
        assert!(
            ranked == expected[..need],
            "round {round}, {need} of {k} of {n}"
        );
        let logits = ranked.iter().map(|&i| logits[i as usize].to_bits());
        assert!(sorted.iter().map(|x| x.to_bits()).eq(logits), "{round}");
    }
}

/// Checks a cut after the last candidate of a bucket. Ranking counts that candidate as tied, since
/// the first that is not kept could be equal to it.
#[test]
#[cfg_attr(miri, ignore = "calls C++")]
fn a_cut_between_two_buckets() {
    let upper = (0..256).map(|i| i as f32 * 0.0005);
    let lower = (0..1744).map(|i| -5.0 - i as f32 * 0.001);
    let logits: Vec<f32> = upper.chain(lower).collect();
    let mut ranked: Vec<u32> = (0..256).rev().collect();
    let mut sorted: Vec<f32> = ranked.iter().map(|&i| logits[i as usize]).collect();
    HostOrder::default().settle(&logits, 256, &mut ranked, &mut sorted);
    assert!(ranked == reference_places(&logits, 256));
    assert!(ranked.iter().copied().eq((0..256).rev()));
}

#[test]
fn buckets_begin_at_their_least_logit() {
    for bucket in 1..buckets::COUNT {
        let least = buckets::least(bucket);
        assert_eq!(usize::from(buckets::number(least)), bucket);
        assert_eq!(usize::from(buckets::number(least.next_down())), bucket - 1);
    }
    assert_eq!(buckets::number(f32::NAN), 0);
    assert_eq!(buckets::number(f32::NEG_INFINITY), 0);
    assert!(!overflows(f32::NAN) && !overflows(f32::NEG_INFINITY) && !overflows(3.3e8));
    assert_eq!(overflows(f32::INFINITY), cfg!(target_arch = "x86_64"));
}

/// Checks the order of distinct logits against a stable sort, with inputs that are small enough for
/// Miri.
#[test]
fn distinct_logits_have_one_order() {
    let mut random = Random(6);
    let mut order = HostOrder::default();
    for n in [0, 1, 2, 16, 17, 40, 128, 129, 300] {
        let mut keys: Vec<f32> = (0..n).map(|i| (i * 7919 % 307) as f32 / 10.0).collect();
        if n > 3 {
            keys.swap(0, random.below(n));
        }
        let data = candidates(&keys);
        let mut expected = data.clone();
        expected.sort_by(|a, b| b.logit.total_cmp(&a.logit));
        for k in [1, 16, 40, 129, n] {
            let k = k.min(n);
            assert_eq!(order.top(&data, k), &expected[..k], "{k} of {n}");
        }
        assert!(
            expected
                .iter()
                .all(|c| logit_of(descending_key(c.logit)) == c.logit)
        );
    }
}
