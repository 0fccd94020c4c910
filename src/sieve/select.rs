//! Selections on raw logits: the largest, the k largest, all above a threshold, and the head of a ranking by mass.
//!
//! Each looks at blocks in groups of 16 logits: one comparison of the group against a threshold, and only a group that has something is looked into. That
//! is the shape of a vector kernel; what is left over per vocabulary is a few hundred pushes.

use crate::sieve::source::Source;
use crate::sieve::workspace::reserve;
use crate::token::{Token, TokenData};

/// Logits that are compared at a time.
const GROUP: usize = 16;

/// Falls as `logit` rises (not NaN), above the index, so that equal logits stay in order. -0 and +0 are equal.
#[inline]
fn key(logit: f32, index: u32) -> u64 {
    let bits = (logit + 0.0).to_bits();
    let falling = if bits >> 31 == 1 {
        bits
    } else {
        !(bits | 1 << 31)
    };
    u64::from(falling) << 32 | u64::from(index)
}

#[inline]
fn index_of(key: u64) -> usize {
    key as u32 as usize
}

#[inline]
fn candidate_of(key: u64) -> TokenData {
    let falling = (key >> 32) as u32;
    let bits = if falling >> 31 == 1 {
        falling
    } else {
        !falling & !(1 << 31)
    };
    TokenData {
        id: key as u32 as Token,
        logit: f32::from_bits(bits),
        p: 0.0,
    }
}

/// The largest logit of a stream of blocks, the first of equals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Largest {
    best: Option<TokenData>,
    max: f32,
}

impl Default for Largest {
    fn default() -> Self {
        Self {
            best: None,
            max: f32::NEG_INFINITY,
        }
    }
}

impl Largest {
    pub fn scan(&mut self, start: usize, block: &[f32]) {
        for (i, group) in block.chunks(GROUP).enumerate() {
            if !any(group, |x| x > self.max) {
                continue;
            }
            for (j, &logit) in group.iter().enumerate() {
                if logit > self.max {
                    self.max = logit;
                    let id = (start + i * GROUP + j) as Token;
                    self.best = Some(TokenData { id, logit, p: 0.0 });
                }
            }
        }
    }

    /// `None` if every logit is masked.
    pub fn best(&self) -> Option<TokenData> {
        self.best
    }
}

/// Whether `test` holds for one of them, without leaving early: the loop then needs no branch per logit.
#[inline]
fn any(group: &[f32], test: impl Fn(f32) -> bool) -> bool {
    group.iter().fold(false, |any, &x| any | test(x))
}

/// The k largest of a stream of blocks.
pub(super) struct TopK<'a> {
    keys: &'a mut Vec<u64>,
    k: usize,
    /// The k-th largest logit so far: only larger ones can still belong to the k largest.
    threshold: f32,
    room: usize,
}

impl<'a> TopK<'a> {
    /// `keys` lends the memory; `k` is at least 1.
    pub fn new(k: usize, keys: &'a mut Vec<u64>) -> Self {
        let room = 2 * k + 4 * GROUP;
        keys.clear();
        reserve(keys, room);
        Self {
            keys,
            k,
            threshold: f32::NEG_INFINITY,
            room,
        }
    }

    /// Masked logits (minus infinity, NaN) are never taken.
    pub fn scan(&mut self, start: usize, block: &[f32]) {
        for (i, group) in block.chunks(GROUP).enumerate() {
            if any(group, |x| x > self.threshold) {
                self.take(start + i * GROUP, group);
            }
        }
    }

    fn take(&mut self, start: usize, group: &[f32]) {
        for (i, &logit) in group.iter().enumerate() {
            if logit > self.threshold {
                self.keys.push(key(logit, (start + i) as u32));
            }
        }
        if self.keys.len() + GROUP > self.room {
            self.raise();
        }
    }

    /// Drops all but the k largest.
    fn raise(&mut self) {
        if self.keys.len() < self.k {
            return;
        }
        let (_, &mut kth, _) = self.keys.select_nth_unstable(self.k - 1);
        self.keys.truncate(self.k);
        self.threshold = candidate_of(kth).logit;
    }

    /// The k largest in descending order, fewer if fewer are unmasked.
    pub fn finish(mut self, candidates: &mut Vec<TokenData>) {
        self.raise();
        self.keys.sort_unstable();
        candidates.clear();
        reserve(candidates, self.keys.len());
        candidates.extend(self.keys.iter().map(|&key| candidate_of(key)));
    }
}

/// Appends the candidates whose logits are at least `threshold`, which is above minus infinity, in order.
pub(super) fn collect(
    start: usize,
    block: &[f32],
    threshold: f32,
    candidates: &mut Vec<TokenData>,
) {
    reserve(candidates, candidates.len() + block.len());
    for (i, group) in block.chunks(GROUP).enumerate() {
        if !any(group, |x| x >= threshold) {
            continue;
        }
        for (j, &logit) in group.iter().enumerate() {
            if logit >= threshold {
                let id = (start + i * GROUP + j) as Token;
                candidates.push(TokenData { id, logit, p: 0.0 });
            }
        }
    }
}

/// All candidates of `source` whose logits are at least `threshold`, in order.
pub(super) fn collect_all(source: &Source<'_>, threshold: f32, candidates: &mut Vec<TokenData>) {
    candidates.clear();
    source.for_each_block(None, |start, block| {
        collect(start, block, threshold, candidates);
    });
}

/// Up to here sorting is cheaper than selecting.
const SORTED: usize = 4096;

/// Leaves in `candidates` the most probable ones whose `p` reach `mass`, at least `min_keep` and at least one. Says whether they are sorted.
///
/// Instead of a sort of everything the half that the cut falls into is selected again and again: O(n).
pub(super) fn keep_mass(
    mass: f64,
    min_keep: usize,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<u64>,
    spare: &mut Vec<TokenData>,
) -> bool {
    keys.clear();
    reserve(keys, candidates.len());
    let ranks = candidates.iter().enumerate();
    keys.extend(ranks.map(|(i, c)| key(c.logit, i as u32)));
    let p = |key: u64| f64::from(candidates[index_of(key)].p);

    let (mut low, mut high, mut sum) = (0, keys.len(), 0.0);
    while high - low > SORTED {
        let half = (high - low) / 2;
        keys[low..high].select_nth_unstable(half);
        let upper: f64 = keys[low..low + half].iter().map(|&key| p(key)).sum();
        if sum + upper >= mass && low + half >= min_keep {
            high = low + half;
        } else {
            sum += upper;
            low += half;
        }
    }
    keys[low..high].sort_unstable();
    let mut kept = high;
    for (i, &key) in keys.iter().enumerate().take(high).skip(low) {
        sum += p(key);
        if sum >= mass && i + 1 >= min_keep {
            kept = i + 1;
            break;
        }
    }
    spare.clear();
    reserve(spare, candidates.len());
    spare.extend(keys[..kept].iter().map(|&key| candidates[index_of(key)]));
    std::mem::swap(candidates, spare);
    low == 0
}

/// Keeps the `n` largest of `candidates`, sorted.
pub(super) fn keep_largest(
    n: usize,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<u64>,
    spare: &mut Vec<TokenData>,
) {
    keys.clear();
    reserve(keys, candidates.len());
    let ranks = candidates.iter().enumerate();
    keys.extend(ranks.map(|(i, c)| key(c.logit, i as u32)));
    if n < keys.len() {
        keys.select_nth_unstable(n);
        keys.truncate(n);
    }
    keys.sort_unstable();
    spare.clear();
    reserve(spare, candidates.len());
    spare.extend(keys.iter().map(|&key| candidates[index_of(key)]));
    std::mem::swap(candidates, spare);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sieve::source::Logits;

    #[test]
    fn keys_keep_the_logit_and_fall() {
        let logits = [f32::INFINITY, 3.0, 1e-40, 0.0, -0.0, -1e-40, -2.5, f32::MIN];
        let keys: Vec<u64> = (0..).zip(logits).map(|(i, l)| key(l, i)).collect();
        assert!(keys.is_sorted());
        for (&key, logit) in keys.iter().zip(logits) {
            assert_eq!(candidate_of(key).logit, logit);
        }
    }

    #[test]
    fn the_k_largest_are_the_head_of_a_stable_sort() {
        let mut state = 3u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            // Coarse, so that ties are common.
            ((state >> 24) as f32 - 128.0) / 16.0
        };
        for n in [1usize, 2, 15, 16, 17, 1024, 1025, 5000] {
            for shape in 0..3 {
                let mut logits: Vec<f32> = (0..n).map(|_| next()).collect();
                if shape == 1 {
                    logits.sort_by(f32::total_cmp);
                }
                if shape == 2 {
                    logits[n / 2] = f32::NAN;
                    logits[n - 1] = f32::NEG_INFINITY;
                }
                let mut expected: Vec<(f32, usize)> = logits.iter().copied().zip(0..).collect();
                expected.retain(|(logit, _)| *logit > f32::NEG_INFINITY);
                expected.sort_by(|a, b| b.0.total_cmp(&a.0));
                for k in [1, 2, 40, 300, n, n + 1] {
                    let (mut keys, mut candidates) = (Vec::new(), Vec::new());
                    let mut top = TopK::new(k, &mut keys);
                    let source = Source {
                        logits: Logits::F32(&logits),
                        touched: &[],
                        divisor: 1.0,
                    };
                    source.for_each_block(None, |start, block| top.scan(start, block));
                    top.finish(&mut candidates);
                    let ids: Vec<usize> = candidates.iter().map(|c| c.id as usize).collect();
                    let head: Vec<usize> = expected.iter().take(k).map(|e| e.1).collect();
                    assert_eq!(ids, head, "n {n}, k {k}, shape {shape}");
                }
            }
        }
    }
}
