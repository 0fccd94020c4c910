//! Orders all candidates, or the top k, by descending logits.
//!
//! Each candidate becomes one 64-bit key: the logit, mapped to an integer that falls as the logit
//! rises, in the upper half, and the index in the lower half. Sorting the keys as integers gives
//! descending logits, with equal logits (and -0 and +0) in input order and NaN as minus infinity,
//! without a comparison of floats. Keys and results are in reused buffers.
//!
//! For the top k, a sample gives a threshold that at least k candidates are likely to reach. One
//! pass of 12 bytes per candidate collects these, and they are sorted. The full order, or that of
//! many candidates, is found by the radix sort of [`argsort`](super::argsort), which needs no keys.
//! Only small numbers of candidates, and those that a rising threshold selects, are sorted by keys.

use super::argsort::{FEW, Ranking};
use super::kth_largest::nearly_kth_largest;
use super::scratch::{Room, room};
use crate::kernels::column::copy_logits;
use crate::kernels::compact::at_least;
use crate::kernels::sort_key::{descending_key, logit_of};
use crate::simd::MAX_LANES;
use crate::token::TokenData;

/// Buffers for ordering.
#[derive(Clone, Debug, Default)]
pub struct TopK {
    keys: Vec<u64>,
    ranked: Vec<TokenData>,
    indices: Vec<u32>,
    picked: Vec<f32>,
    /// Keys without indices.
    sample: Vec<u32>,
    ranking: Ranking,
    /// True after the first call. The first call reserves only the memory that it needs, since the
    /// system has to provide each page. The second call reserves what later ones may need.
    began: bool,
}

room!(TopK: keys, ranked, indices, picked, sample, ranking);

#[inline]
fn key(index: usize, candidate: &TokenData) -> u64 {
    u64::from(descending_key(candidate.logit)) << 32 | index as u64
}

impl TopK {
    /// Returns the `k` largest of `data` in descending order; all of them if there are at most `k`.
    ///
    /// `data` must have at most 2^32 elements, since indices have 32 bits in the keys. Every
    /// candidate array does, since token ids have 31 bits.
    pub fn top(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        if !self.rank(data, k) {
            self.collect_top(data, k);
        }
        self.first_ranked(data, k)
    }

    /// Returns the `k` largest of `data` in descending order, if that is quick: if a threshold
    /// excludes most other candidates, or if `k` is an eighth of the array or more.
    pub fn top_quickly(&mut self, data: &[TokenData], k: usize) -> Option<&[TokenData]> {
        self.rank(data, k).then(|| self.first_ranked(data, k))
    }

    /// Returns the first `k` candidates of the last ranking, which must be that of `data`.
    // In bounds: keys have the indices of the ranked data.
    pub fn first_ranked(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        self.ranked.clear();
        let picked = self.keys.iter().take(k);
        self.ranked
            .extend(picked.map(|&key| data[key as u32 as usize]));
        &self.ranked
    }

    /// Returns the buffers for a full order.
    #[inline]
    pub fn ranking(&mut self) -> &mut Ranking {
        &mut self.ranking
    }

    /// Reserves memory for the candidates that may pass a threshold for the `k` largest of `n`,
    /// since their number differs between arrays. Also reserves memory for finding the threshold:
    /// for all logits if these are bisected, otherwise for a sample.
    pub(super) fn warm_up_for(&mut self, n: usize, k: usize) {
        let room = if n <= HALVED {
            n
        } else {
            n.min(ROOM.max(4 * k))
        };
        self.clear();
        self.keys.reserve(room);
        self.ranked.reserve(k);
        self.indices.reserve(room + MAX_LANES);
        self.picked.reserve(room);
        self.ranking.warm_up(room);
        if n >= HALVED {
            self.sample.reserve(2 * SAMPLE);
        }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.ranked.clear();
        self.indices.clear();
        self.picked.clear();
        self.sample.clear();
    }

    /// Puts the `k` largest into `self.keys`, in order, and returns true, if that is fast. The
    /// lower halves are their indices; the upper halves may be 0.
    fn rank(&mut self, data: &[TokenData], k: usize) -> bool {
        self.clear();
        if std::mem::replace(&mut self.began, true) {
            self.warm_up_for(data.len(), k);
        }
        if k == 0 || self.rank_above_sample(data, k) || self.rank_above_kth(data, k) {
            return true;
        }
        // A threshold for a large part of the array excludes little.
        if k < data.len() / 8 {
            return false;
        }
        if data.len() >= FEW {
            self.ranking.rank_logits(data);
            let ranked = self.ranking.indices().iter().take(k);
            self.keys.extend(ranked.map(|&i| u64::from(i)));
            return true;
        }
        let keys = data.iter().enumerate().map(|(i, c)| key(i, c));
        self.keys.extend(keys);
        self.sort_keys(k);
        true
    }

    /// Sorts the keys, and keeps the first `k`.
    fn sort_keys(&mut self, k: usize) {
        if k < self.keys.len() {
            self.keys.select_nth_unstable(k - 1);
            self.keys.truncate(k);
        }
        // Keys are distinct, so an unstable sort has only one result.
        self.keys.sort_unstable();
    }

    /// Ranks all candidates at or above a threshold from a sample. If the `k` largest are among
    /// these, puts them into `self.keys` and returns true.
    fn rank_above_sample(&mut self, data: &[TokenData], k: usize) -> bool {
        let Some(threshold) = self.threshold(data, k) else {
            return false;
        };
        self.indices.clear();
        at_least(data, 0, threshold, &mut self.indices);
        if self.indices.len() < k {
            return false;
        }
        if self.indices.len() > ROOM.max(4 * k) {
            self.drop_collected(data, k);
        }
        self.rank_collected(data, k);
        true
    }

    /// Drops most of the collected candidates beyond the `k` largest: if an array rises and falls,
    /// a sample may contain few of its large logits.
    // In bounds: the collected indices are those of `data`.
    fn drop_collected(&mut self, data: &[TokenData], k: usize) {
        self.picked.clear();
        let logits = self.indices.iter().map(|&i| data[i as usize].logit);
        self.picked.extend(logits);
        if let Some(threshold) = nearly_kth_largest(&self.picked, k) {
            self.indices
                .retain(|&i| data[i as usize].logit >= threshold);
        }
    }

    /// Ranks the `k` largest candidates of a short array, by means of a logit near the `k`-th
    /// largest, found by bisection. For 1000 candidates that takes a third of the time that a
    /// rising threshold takes. Returns false if the array is long or `k` is too large a part of it.
    fn rank_above_kth(&mut self, data: &[TokenData], k: usize) -> bool {
        if k > data.len() / 8 || data.len() > HALVED {
            return false;
        }
        self.picked.resize(data.len(), 0.0);
        copy_logits(data, &mut self.picked);
        let Some(threshold) = nearly_kth_largest(&self.picked, k) else {
            return false;
        };
        self.indices.clear();
        at_least(data, 0, threshold, &mut self.indices);
        self.rank_collected(data, k);
        true
    }

    /// Puts the `k` largest of the candidates at `self.indices`, which ascend, into `self.keys`.
    // In bounds: `at_least` returns indices of `data`, and each was picked before it was ranked.
    fn rank_collected(&mut self, data: &[TokenData], k: usize) {
        let indices = self.indices.iter();
        if self.indices.len() < FEW {
            let keys = indices.map(|&i| key(i as usize, &data[i as usize]));
            self.keys.extend(keys);
            self.keys.sort_unstable();
            return self.keys.truncate(k);
        }
        self.picked.clear();
        let logits = indices.map(|&i| data[i as usize].logit);
        self.picked.extend(logits);
        self.ranking.rank(&self.picked);
        let ranked = self.ranking.indices().iter().take(k);
        let indices = ranked.map(|&at| u64::from(self.indices[at as usize]));
        self.keys.extend(indices);
    }

    /// Returns a logit that most likely at least `k` candidates reach, estimated from a sample. If
    /// `k` is small, many times `k` candidates may reach it. `None` if the array is too small for a
    /// sample, if `k` is too large a part of it, or if the estimate is minus infinity.
    // In bounds: `sampled` returns indices at which a whole group begins.
    fn threshold(&mut self, data: &[TokenData], k: usize) -> Option<f32> {
        // The smaller the sample, the lower the threshold must be to be safe.
        let taken = if k <= 128 || data.len() < 32 * 1024 {
            SAMPLE
        } else {
            2 * SAMPLE
        };
        if data.len() < 8 * taken || k > data.len() / 8 {
            return None;
        }
        self.sample.clear();
        let groups = taken / SAMPLE_GROUP;
        for start in sampled(data.len(), groups) {
            let group = data[start..start + SAMPLE_GROUP].iter();
            self.sample.extend(group.map(|c| descending_key(c.logit)));
        }
        // The expected number of elements of the sample above the k-th largest, and a margin for
        // chance.
        let expected = (k * taken) as f64 / data.len() as f64;
        let rank = (expected + 4.0 * expected.sqrt() + 3.0) as usize;
        let (_, &mut key, _) = self.sample.select_nth_unstable(rank);
        let threshold = logit_of(key);
        (threshold != f32::NEG_INFINITY).then_some(threshold)
    }

    /// Puts the keys of the `k` largest into `self.keys`, in order, by means of a rising threshold:
    /// at most `2 k` keys that reach it are held at any time.
    fn collect_top(&mut self, data: &[TokenData], k: usize) {
        let capacity = 2 * k;
        self.keys.clear();
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
        self.sort_keys(k);
    }
}

/// Returns the indices at which the groups of a sample of `n` candidates begin. Each group is at a
/// varying position within its part of the array, so that periodic logits do not coincide with the
/// sample.
fn sampled(n: usize, groups: usize) -> impl Iterator<Item = usize> {
    let part = (n - SAMPLE_GROUP) / groups;
    (0..groups).map(move |i| {
        let astray = (i as u32).wrapping_mul(0x9E37_79B1) >> 16;
        i * part + astray as usize % part
    })
}

/// The least number of candidates for which memory is reserved before a threshold from a sample
/// selects them: far more than pass for a small `k`.
const ROOM: usize = 4096;

/// The number of candidates in a sample; twice as many for a large k and a long array. Without a
/// sample, a threshold that rises while candidates are collected takes four times as long for the
/// 1000 largest of 32,000.
const SAMPLE: usize = 1024;

/// The least number of candidates from which a sample is taken. Shorter arrays are bisected.
const HALVED: usize = 8 * SAMPLE;

/// The number of adjacent candidates in each group of a sample. Smaller groups would touch more
/// cache lines.
const SAMPLE_GROUP: usize = 16;

#[cfg(test)]
mod tests;
