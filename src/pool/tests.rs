//! Compares pools with copies of their logits that are changed one logit at a time.

use half::bf16;

use super::buffers::MOST_EDITS;
use super::*;
use crate::algorithms::host_order::HostOrder;
use crate::token::array_of;

struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005) | 1;
        self.0 ^= self.0 >> 29;
        self.0 >> 8
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Returns `n` random logits. If they are coarse, many are equal.
    fn logits(&mut self, n: usize, coarse: f32) -> Vec<f32> {
        let mut unit = || self.next() as f32 / (1u64 << 56) as f32;
        let normal = |_| 6.0 * (unit() + unit() + unit() + unit() - 2.0);
        let round = |x: f32| (x * coarse).round() / coarse;
        (0..n).map(normal).map(round).collect()
    }
}

fn bits(data: &[TokenData]) -> Vec<(Token, u32, u32)> {
    let bits = data
        .iter()
        .map(|c| (c.id, c.logit.to_bits(), c.p.to_bits()));
    bits.collect()
}

fn whole<'p, 'a>(pool: &'p mut Pool<'a>) -> Whole<'p, 'a> {
    pool.whole().expect("nothing but logits has changed")
}

/// Masks some tokens of a pool, and of a copy of its logits. Some words of the mask have all bits
/// set, and some have none. The mask may be one word longer than the vocabulary needs.
fn mask(pool: &mut Pool<'_>, copy: &mut [f32], numbers: &mut Numbers) {
    let n_words = copy.len().div_ceil(64) + 1 - numbers.below(3).min(1);
    let words = (0..n_words).map(|_| match numbers.below(4) {
        0 => 0,
        1 => u64::MAX,
        _ => numbers.next() << 20 | numbers.next() >> 20,
    });
    mask_both(pool, copy, &words.collect::<Vec<u64>>());
}

/// Masks so many tokens that fewer are left than a top-k may keep.
fn mask_most(pool: &mut Pool<'_>, copy: &mut [f32], numbers: &mut Numbers) {
    let mut words = vec![0_u64; copy.len().div_ceil(64)];
    for _ in 0..1 + numbers.below(60) {
        let token = numbers.below(copy.len());
        words[token / 64] |= 1 << (token % 64);
    }
    mask_both(pool, copy, &words);
}

fn mask_both(pool: &mut Pool<'_>, copy: &mut [f32], words: &[u64]) {
    whole(pool).mask(words);
    for (i, x) in copy.iter_mut().enumerate() {
        let word = words.get(i / 64).copied().unwrap_or(0);
        if word >> (i % 64) & 1 == 0 {
            *x = f32::NEG_INFINITY;
        }
    }
}

/// After edits and masks, each method returns the result that a changed copy of the logits gives.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn edited_logits_are_those_of_a_changed_copy() {
    let mut numbers = Numbers(3);
    let mut buffers = Buffers::default();
    for round in 0..300 {
        let n = 1 + numbers.below([63, 64, 65, 700, 5000][round % 5]);
        let coarse = [1e4, 4.0, 1.0][round % 3];
        let logits = numbers.logits(n, coarse);
        let mut copy = logits.clone();
        // These multiples of a quarter are exact in half precision.
        let halves: Vec<bf16> = logits.iter().map(|&x| bf16::from_f32(x)).collect();
        let mut pool = match coarse == 4.0 {
            true => Pool::new(&halves[..], &mut buffers),
            false => Pool::new(&logits[..], &mut buffers),
        };
        if round % 2 == 0 {
            whole(&mut pool).max();
        }
        let edits = numbers.below([3, 80, 1500][round % 3]);
        // One mask or two, before the edits, among them or after them, or none.
        let masked_before = [0, edits / 2, edits, usize::MAX][numbers.below(4)];
        let masked_again = [edits / 3, usize::MAX][numbers.below(2)];
        for i in 0..=edits {
            if i == masked_before || i == masked_again {
                mask(&mut pool, &mut copy, &mut numbers);
            }
            if i == edits {
                break;
            }
            let token = numbers.below(n + 3) as Token - 1;
            let by = [-3.0, 2.5, f32::NEG_INFINITY, -0.0][numbers.below(4)];
            whole(&mut pool).edit(token, |x| x + by);
            if let Some(x) = usize::try_from(token).ok().and_then(|i| copy.get_mut(i)) {
                *x += by;
            }
        }
        if round % 7 == 0 {
            let kept = [whole(&mut pool).argmax(), numbers.below(n)][numbers.below(2)];
            whole(&mut pool).mask_all_but(kept);
            for (_, x) in copy.iter_mut().enumerate().filter(|&(i, _)| i != kept) {
                *x = f32::NEG_INFINITY;
            }
        }
        if numbers.below(3) == 0 {
            // In one half of these cases the block maxima are known from here on.
            if numbers.below(2) == 0 {
                whole(&mut pool).max();
            }
            let divide = |xs: &mut [f32]| xs.iter_mut().for_each(|x| *x /= 0.7);
            whole(&mut pool).change_in_order(divide);
            divide(&mut copy);
        }
        let max = copy.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut unmasked = array_of(&copy);
        unmasked.retain(|c| c.logit > f32::NEG_INFINITY);
        assert_eq!(pool.unmasked(), unmasked.len(), "round {round}");
        assert_eq!(whole(&mut pool).max(), max, "round {round}");
        if let Some(few) = whole(&mut pool).few_unmasked() {
            assert_eq!(bits(few), bits(&unmasked), "round {round}");
        }
        let first = copy.iter().position(|&x| x == max && x > f32::NEG_INFINITY);
        assert_eq!(
            whole(&mut pool).argmax(),
            first.unwrap_or(0),
            "round {round}"
        );
        for threshold in [f32::MIN, -1.0, 2.0, 9.0] {
            let mut expected = array_of(&copy);
            expected.retain(|c| c.logit >= threshold);
            assert_eq!(bits(whole(&mut pool).at_least(threshold)), bits(&expected));
        }
        if round % 4 == 0 {
            assert_eq!(whole(&mut pool).contiguous(), copy);
        }
        if round % 2 == 0 {
            let (data, sorted) = pool.array();
            assert_eq!((bits(data), sorted), (bits(&array_of(&copy)), false));
            continue;
        }
        // Now without the logits, from a copy of the buffers.
        let mut left = pool.leave_alone();
        let mut others = buffers.of_left(Some(left));
        assert_eq!(
            bits(others.settle(&mut left.clone())),
            bits(&array_of(&copy))
        );
        for _ in 0..2 {
            assert_eq!(bits(buffers.settle(&mut left)), bits(&array_of(&copy)));
        }
    }
}

/// The host's partial sort leaves the same candidates of the contenders as of all, ties included.
#[test]
#[cfg_attr(miri, ignore = "no pointers, and minutes")]
fn contenders_are_enough_for_a_top_k() {
    let mut numbers = Numbers(5);
    let mut buffers = Buffers::default();
    let mut found = 0;
    for round in 0..800 {
        let n = match round % 10 {
            0 => 1 + numbers.below(3000),
            _ => 3000 + numbers.below(60_000),
        };
        // With the last value nearly all logits are equal.
        let coarse = [1e5, 100.0, 8.0, 1.0, 0.06][round % 5];
        let logits = numbers.logits(n, coarse);
        let k = [1, 2, 40, 100, 128, 129, 300, 900][numbers.below(8)];
        let mut pool = Pool::new(&logits[..], &mut buffers);
        let mut copy = logits.clone();
        for _ in 0..numbers.below(70) {
            let token = numbers.below(n);
            whole(&mut pool).edit(token as Token, |x| x - 1.0);
            copy[token] -= 1.0;
        }
        match round % 3 {
            0 => mask(&mut pool, &mut copy, &mut numbers),
            1 => mask_most(&mut pool, &mut copy, &mut numbers),
            _ => {}
        }
        let mut tokens = whole(&mut pool);
        let Some(contenders) = tokens.contenders(k) else {
            continue;
        };
        found += 1;
        // Fresh buffers, so that an estimate from one call cannot affect the other.
        let top = bits(HostOrder::default().top(contenders, k));
        let all = array_of(&copy);
        let expected = bits(HostOrder::default().top(&all, k));
        assert_eq!(top, expected, "round {round}, {k} of {n}, 1 / {coarse}");
    }
    assert!(found > 400, "only {found} of 800");
}

#[test]
fn a_choice_that_is_cut_away_is_no_token() {
    let logits = [1.0f32, 3.0, 2.0];
    let mut buffers = Buffers::default();
    let mut pool = Pool::new(&logits[..], &mut buffers);
    assert_eq!(
        (pool.token(), pool.len(), pool.is_empty()),
        (None, 3, false)
    );
    pool.select(Some(2));
    assert_eq!(pool.token(), Some(2));
    pool.apply(|candidates| candidates.truncate(2));
    assert_eq!((pool.token(), pool.len()), (None, 2));
    assert!(pool.whole().is_none());
    pool.select(Some(1));
    pool.apply(|candidates| candidates.drop_front(1));
    assert_eq!((pool.token(), pool.len()), (None, 1));
    pool.select(Some(0));
    assert_eq!(pool.token(), Some(1));
    pool.set_array(5, 5, true);
    assert!(pool.is_empty());
}

/// A few biases become edits, and many are added in a column.
#[test]
fn biases_are_added_in_their_order_few_or_many() {
    let logits: Vec<f32> = (0..3000).map(|i| (i % 97) as f32 * 0.37).collect();
    for n in [3, MOST_EDITS, MOST_EDITS + 1, 4000] {
        // Some tokens occur twice, and some are not in the vocabulary.
        let biases = (0..n as Token).map(|i| (i * 7 % 3100 - 20, 0.1 + i as f32 * 0.013));
        let mut expected = logits.clone();
        for (token, bias) in biases.clone() {
            let place = usize::try_from(token).ok();
            if let Some(logit) = place.and_then(|place| expected.get_mut(place)) {
                *logit += bias;
            }
        }
        let mut buffers = Buffers::default();
        let mut pool = Pool::new(&logits[..], &mut buffers);
        whole(&mut pool).add(biases);
        assert_eq!(whole(&mut pool).contiguous(), expected, "{n}");
    }
}

/// The number of unmasked candidates is known before they are sorted.
#[test]
fn the_first_in_order_are_those_of_the_sorted_array() {
    let mut logits = vec![f32::NEG_INFINITY; 300];
    for (i, x) in logits.iter_mut().step_by(7).enumerate() {
        *x = (i * 31 % 43) as f32 / 8.0;
    }
    let sum = 3.5;
    let mut sorted = array_of(&logits);
    sorted.sort_by(|a, b| b.logit.total_cmp(&a.logit));
    for c in &mut sorted {
        c.p = crate::simd::libm::exp(c.logit - 42.0 / 8.0) / sum;
    }
    let unmasked = logits.iter().filter(|&&x| x > f32::NEG_INFINITY).count();
    let mut buffers = Buffers::default();
    for n in [1, 7, unmasked, unmasked + 1, 200] {
        let mut pool = Pool::new(&logits, &mut buffers);
        let last = sorted[n - 1].logit;
        let first = First {
            n,
            last,
            sum,
            sorted: 300,
        };
        let mut some = logits.clone();
        some.retain(|&x| x >= last);
        whole(&mut pool).keep_first(first, 42.0 / 8.0, &mut some);
        assert!(matches!(pool.form(), Form::InOrder(_)));
        assert_eq!((pool.len(), pool.unmasked()), (n, n.min(unmasked)));
        let (data, is_sorted) = pool.array();
        // The order of masked candidates depends on the host's sort.
        let known = n.min(unmasked);
        assert_eq!(bits(&data[..known]), bits(&sorted[..known]));
        assert_eq!((data.len(), is_sorted), (n, true));
        assert_eq!(pool.unmasked(), known);
    }
}
