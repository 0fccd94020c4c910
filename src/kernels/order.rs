//! Descending order by logit, of all candidates or of the top k.
//!
//! Each candidate becomes one 64-bit key: the logit mapped to an integer that falls as the logit rises, above the index.
//! Sorting the keys as integers gives descending logits, with equal logits (and -0 and +0) in input order and NaN beside
//! minus infinity, without a comparison of floats. Keys and results live in buffers that are reused.
//!
//! Cost: one pass of 12 bytes per candidate to make keys; for the top k one comparison per candidate against a threshold
//! that rises as better ones are found, plus a sort of k; for the full order an integer sort of 8 bytes per candidate.

use crate::token::{TokenData, comparable};

/// Buffers for ordering, owned by the sampler that orders.
#[derive(Clone, Debug, Default)]
pub struct Order {
    keys: Vec<u64>,
    ranked: Vec<TokenData>,
}

/// Falls as `logit` rises; equal for -0 and +0, and for NaN and minus infinity.
#[inline]
fn descending_key(logit: f32) -> u32 {
    let bits = (comparable(logit) + 0.0).to_bits();
    // Negative floats already fall as their bits rise; the positive ones come before them, reversed.
    if bits >> 31 == 1 {
        bits
    } else {
        !(bits | 1 << 31)
    }
}

#[inline]
fn key(index: usize, candidate: &TokenData) -> u64 {
    u64::from(descending_key(candidate.logit)) << 32 | index as u64
}

impl Order {
    /// The `k` largest of `data`, descending; all of them if `k` is more than there are.
    ///
    /// `data` has at most 2^32 elements, which `u32` indices in the keys need; every candidate array does, since token
    /// numbers are 31 bits.
    pub fn top(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        self.rank(data, k);
        self.ranked.clear();
        let picked = self.keys.iter().map(|&key| data[key as u32 as usize]);
        self.ranked.extend(picked);
        &self.ranked
    }

    /// What [`top`](Self::top) gave last.
    pub fn ranked(&self) -> &[TokenData] {
        &self.ranked
    }

    /// Sorts `data` descending, in place.
    pub fn sort(&mut self, data: &mut [TokenData]) {
        self.top(data, data.len());
        data.copy_from_slice(&self.ranked);
    }

    /// Leaves the keys of the `k` largest in `self.keys`, in order.
    fn rank(&mut self, data: &[TokenData], k: usize) {
        self.keys.clear();
        if k == 0 {
            return;
        }
        // With a large share wanted, the threshold stays low and only costs.
        if k < data.len() / 8 {
            self.collect_top(data, k);
        } else {
            let keys = data.iter().enumerate().map(|(i, c)| key(i, c));
            self.keys.extend(keys);
        }
        if k < self.keys.len() {
            self.keys.select_nth_unstable(k - 1);
            self.keys.truncate(k);
        }
        // Keys are distinct, so an unstable sort leaves no choice.
        self.keys.sort_unstable();
    }

    /// Collects a superset of the keys of the `k` largest, at most `2 k` at any time.
    fn collect_top(&mut self, data: &[TokenData], k: usize) {
        let capacity = 2 * k;
        self.keys.reserve(capacity);
        let mut threshold = u64::MAX;
        for (i, candidate) in data.iter().enumerate() {
            let key = key(i, candidate);
            if key >= threshold {
                continue;
            }
            self.keys.push(key);
            if self.keys.len() == capacity {
                let (_, &mut kth, _) = self.keys.select_nth_unstable(k - 1);
                threshold = kth;
                self.keys.truncate(k);
            }
        }
    }
}

/// The order in which libstdc++'s `std::sort` leaves `items` when no comparison ever says "less".
///
/// That happens in the built-in locally typical sampler when a candidate has probability 0: the entropy becomes NaN, and with it
/// every score. The introsort then does this at each level of more than 16 items: the median of three brings the
/// middle item to the front, the partition meets in the middle after exchanging the rest end for end, and both halves
/// are treated likewise; runs of 16 or fewer stay as they are.
///
/// O(n log n) exchanges, no memory. Checked against `std::sort` itself in the tests.
pub fn order_of_equals<T>(items: &mut [T]) {
    const LEFT_ALONE: usize = 16;
    let mut items = items;
    while items.len() > LEFT_ALONE {
        items.swap(0, items.len() / 2);
        let rest = &mut items[1..];
        rest.reverse();
        let cut = 1 + rest.len() / 2;
        let (front, back) = items.split_at_mut(cut);
        order_of_equals(back);
        items = front;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(logits: &[f32]) -> Vec<TokenData> {
        let candidates = logits.iter().enumerate().map(|(i, &logit)| TokenData {
            id: i as i32,
            logit,
            p: 0.0,
        });
        candidates.collect()
    }

    fn ids(data: &[TokenData]) -> Vec<i32> {
        data.iter().map(|c| c.id).collect()
    }

    #[test]
    fn special_values_and_ties_keep_input_order() {
        let inf = f32::INFINITY;
        let logits = [
            -inf,
            0.0,
            f32::NAN,
            -0.0,
            1.0,
            inf,
            1.0,
            -inf,
            -1.0,
            -f32::NAN,
        ];
        let mut data = array(&logits);
        let mut order = Order::default();
        assert_eq!(ids(order.top(&data, 5)), [5, 4, 6, 1, 3]);
        order.sort(&mut data);
        assert_eq!(ids(&data), [5, 4, 6, 1, 3, 8, 0, 2, 7, 9]);
    }

    #[test]
    fn top_k_is_the_head_of_a_stable_sort() {
        let mut state = 7u32;
        for n in [0, 1, 2, 17, 100, 1000, 5000] {
            // Coarse values, so that ties are common.
            let logits: Vec<f32> = (0..n)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((state >> 20) as f32 - 2048.0) / 64.0
                })
                .collect();
            let data = array(&logits);
            let mut expected = data.clone();
            expected.sort_by(|a, b| b.logit.total_cmp(&a.logit));
            let mut order = Order::default();
            for k in [0, 1, 2, 16, 40, 99, n / 2, n, n + 1] {
                let k_kept = k.min(n);
                assert_eq!(
                    ids(order.top(&data, k)),
                    ids(&expected[..k_kept]),
                    "n {n}, k {k}"
                );
            }
        }
    }

    #[test]
    fn equals_end_where_std_sort_leaves_them() {
        for n in (0..200).chain([1000, 4097, 32_000, 128_256, 200_000]) {
            let mut ours: Vec<u32> = (0..n).collect();
            order_of_equals(&mut ours);
            let theirs = vendor_llama_cpp::reference::std_sort_equal_order(n as usize);
            assert!(ours == theirs, "n {n}");
        }
    }
}
