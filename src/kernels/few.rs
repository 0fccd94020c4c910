//! Selection among few floats, without branches that depend on them: between two tokens a model
//! runs, and what branches were taken is forgotten by then.
//!
//! | what | per call |
//! | --- | --- |
//! | [`nearly_kth_largest`] | at most 32 passes over the numbers, mostly 10 |
//! | [`ranks`] | each compared with all: 8 registers for each of 64 numbers with AVX2, 4 with AVX-512 |

use super::order::{descending_key, logit_of};
use super::table::current;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::vector::{MAX_LANES, Vector};

/// So many numbers can be ranked.
pub const MOST: usize = 64;

/// A number that at least `k` of `xs` reach, and few more than that, but for equals; `k` is at
/// least 1. Nothing is reached where fewer than `k` are above minus infinity.
///
/// By halving between the largest and the smallest `float`: a selection of the 40th of 256 takes
/// 1.5 us, this 0.4.
pub fn nearly_kth_largest(xs: &[f32], k: usize) -> Option<f32> {
    let count = |key: u32| (current().floats.count_from)(xs, logit_of(key));
    // Keys rise as numbers fall: `low` is reached by too few, `high` by enough.
    let mut low = descending_key(f32::INFINITY).wrapping_sub(1);
    let mut high = descending_key(f32::MIN);
    if count(high) < k {
        return None;
    }
    while high.wrapping_sub(low) > 1 {
        let middle = low.wrapping_add(high.wrapping_sub(low) / 2);
        let reached = count(middle);
        if reached < k {
            low = middle;
            continue;
        }
        high = middle;
        if reached <= k + k / 16 {
            break;
        }
    }
    Some(logit_of(high))
}

/// Writes for each of `xs`, [`MOST`] at most and none of them NaN or minus infinity, how many are
/// larger, or equal and before it.
pub fn ranks(xs: &[f32], to: &mut [u32]) {
    (current().floats.ranks)(xs, to);
}

/// The same with any instruction set.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "documented: at most `MOST` numbers, which is a multiple of the lanes"
)]
pub(super) fn ranks_of<V: Vector>(v: V, xs: &[f32], to: &mut [u32]) {
    let mut padded = [f32::NEG_INFINITY; MOST];
    padded[..xs.len()].copy_from_slice(xs);
    let used = &padded[..xs.len().next_multiple_of(V::LANES)];
    for (i, (&x, to)) in xs.iter().zip(to).enumerate() {
        let one = v.splat(x);
        let (mut larger, mut equal) = (0u64, 0u64);
        for (at, others) in used.chunks_exact(V::LANES).enumerate() {
            let others = v.load(others);
            larger |= u64::from(v.lt(one, others)) << (at * V::LANES);
            equal |= u64::from(v.eq(one, others)) << (at * V::LANES);
        }
        let before = (1 << i) - 1;
        *to = (larger | equal & before).count_ones();
    }
}

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const _: () = assert!(MOST == u64::BITS as usize && MOST.is_multiple_of(MAX_LANES));

/// The same in plain Rust.
pub(super) fn scalar_ranks(xs: &[f32], to: &mut [u32]) {
    for (i, (x, to)) in xs.iter().zip(to).enumerate() {
        let goes_before = |&(j, y): &(usize, &f32)| y > x || y == x && j < i;
        *to = xs.iter().enumerate().filter(goes_before).count() as u32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(n: usize, seed: u32, coarse: f32) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            ((state >> 8) as f32 / 65_536.0 - 128.0) / coarse
        };
        (0..n).map(|_| (next() * 4.0).round() / 4.0).collect()
    }

    #[test]
    fn ranks_are_the_places_of_a_stable_sort() {
        for n in (0..=MOST).step_by(if cfg!(miri) { 21 } else { 1 }) {
            let mut xs = numbers(n, n as u32, 16.0);
            if n > 3 {
                (xs[0], xs[1], xs[2]) = (0.0, -0.0, f32::INFINITY);
            }
            let mut places: Vec<u32> = (0..n as u32).collect();
            places.sort_by(|&a, &b| {
                xs[b as usize]
                    .partial_cmp(&xs[a as usize])
                    .expect("numbers")
            });
            let mut to = vec![0; n];
            ranks(&xs, &mut to);
            let at = |i: u32| places.iter().position(|&p| p == i).expect("each once") as u32;
            let expected: Vec<u32> = (0..n as u32).map(at).collect();
            assert_eq!(to, expected, "{n}");
            scalar_ranks(&xs, &mut to);
            assert_eq!(to, expected, "{n}, scalar");
        }
    }

    #[test]
    fn the_kth_largest_is_reached_by_k_and_few_more() {
        let sizes = [1usize, 2, 39, 40, 256, 1000];
        // Miri takes minutes for all of them.
        for &n in &sizes[..if cfg!(miri) { 3 } else { 6 }] {
            for (seed, coarse) in [(1, 1e-30), (2, 1.0), (3, 1e3), (4, 1e30)] {
                let xs = numbers(n, seed, coarse);
                let mut sorted = xs.clone();
                sorted.sort_by(|a, b| b.total_cmp(a));
                for k in [1, 2, 40, n / 2, n]
                    .into_iter()
                    .filter(|k| (1..=n).contains(k))
                {
                    let x = nearly_kth_largest(&xs, k).expect("there are k");
                    let reached = xs.iter().filter(|&&y| y >= x).count();
                    let equals = xs.iter().filter(|&&y| y == sorted[k - 1]).count();
                    assert!(reached >= k && reached <= k + k / 16 + equals, "{n}, {k}");
                }
                assert_eq!(nearly_kth_largest(&xs, n + 1), None);
            }
        }
    }

    #[test]
    fn masked_and_infinite_numbers_have_their_places() {
        let (low, high) = (f32::NEG_INFINITY, f32::INFINITY);
        let xs = [low, 1.0, f32::NAN, high, low, -5.0];
        for k in 1..=3 {
            let x = nearly_kth_largest(&xs, k).expect("three are above minus infinity");
            assert_eq!(xs.iter().filter(|&&y| y >= x).count(), k);
        }
        assert_eq!(nearly_kth_largest(&xs, 4), None);
        assert!(nearly_kth_largest(&[high; 40], 40).is_some());
        assert_eq!(nearly_kth_largest(&[low; 40], 1), None);
        assert_eq!(nearly_kth_largest(&[f32::MIN; 3], 3), Some(f32::MIN));
    }
}
