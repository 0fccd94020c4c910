//! Finds a few candidates on which the host's partial sort gives the same k largest as on all.
//!
//! `std::partial_sort` makes a heap of the first k candidates, and each later candidate that beats
//! the root enters it. An array of only the candidates that ever enter gives exactly the same
//! result as the whole array, equal logits included (see `host_order`). No candidate below the root
//! enters, so most blocks can be skipped because of their maxima alone.

use super::{Buffers, Tokens};
use crate::algorithms::host_order::{self, HEAP};
use crate::algorithms::kth_largest::nearly_kth_largest;
use crate::kernels::layout::GROUP;
use crate::kernels::scan::count_at_least;
use crate::token::{TokenData, comparable};

impl Tokens<'_> {
    /// Returns a few candidates, in order of id, from which the host's partial sort selects the
    /// same first `k` as from all. `None` if they cannot be found, or would be many.
    pub fn contenders(&mut self, k: usize) -> Option<&[TokenData]> {
        let n = self.n_vocab();
        let max = self.max();
        if k == 0 || k >= n / FEW || !max.is_finite() || host_order::overflows(max) {
            return None;
        }
        let blocks = self.buffers.maxima.len();
        let Some(threshold) = self.reached_by(k + 1) else {
            // At most `k` blocks have an unmasked candidate. If that is because there are few
            // blocks, or if `k` is too large for a heap, there is no quicker method.
            if k > HEAP || blocks <= k {
                return None;
            }
            return self.contenders_for_heap(k);
        };
        let reached = count_at_least(&self.buffers.maxima, threshold);
        if k <= HEAP && reached > 4 * k + LEAST_GROUPS {
            // Many candidates are equal.
            return self.contenders_for_heap(k);
        }
        self.buffers.collected.clear();
        self.collect(0, blocks, threshold);
        if self.buffers.collected.len() > n / FEW {
            return None;
        }
        if let Some(least) = self.least_if_tied(k + 1) {
            if k <= HEAP {
                return self.contenders_for_heap(k);
            }
            let least = host_order::least_of_bucket(least)?;
            self.buffers.collected.clear();
            self.collect(0, blocks, least);
        }
        self.collected_if_few()
    }

    /// Returns a threshold that at least `k` candidates reach, and few more; `None` if fewer than
    /// `k` blocks have an unmasked candidate. The threshold is such that at least `k` block maxima
    /// reach it, and each maximum is a candidate's logit.
    ///
    /// If there are more blocks than `groups`, they are merged into `groups` groups, whose maxima
    /// give nearly the same threshold: about k (1 + k / (2 `groups`)) blocks reach the k-th largest
    /// of these.
    fn reached_by(&mut self, k: usize) -> Option<f32> {
        let Buffers { maxima, picked, .. } = &mut *self.buffers;
        let groups = (4 * k).next_power_of_two().max(LEAST_GROUPS);
        if let Some((first, others)) = maxima.split_at_checked(groups) {
            picked.clear();
            picked.extend_from_slice(first);
            for some in others.chunks(groups) {
                for (max, &other) in picked.iter_mut().zip(some) {
                    *max = if other > *max { other } else { *max };
                }
            }
            if let Some(threshold) = nearly_kth_largest(picked, k) {
                return Some(threshold);
            }
        }
        nearly_kth_largest(maxima, k)
    }

    /// Returns the `n` largest candidates and perhaps some more: all that reach a threshold. Empty
    /// if fewer than `n` blocks have an unmasked candidate, or if too many blocks reach the
    /// threshold.
    pub fn largest(&mut self, n: usize) -> &[TokenData] {
        self.max();
        self.buffers.collected.clear();
        let threshold = nearly_kth_largest(&self.buffers.maxima, n);
        let Some(threshold) = threshold else {
            return &[];
        };
        let reached = count_at_least(&self.buffers.maxima, threshold);
        if reached > 4 * n {
            return &[];
        }
        let blocks = self.buffers.maxima.len();
        self.collect(0, blocks, threshold);
        &self.buffers.collected
    }

    /// Returns the least of the `k` largest collected logits if two of these are equal.
    // In bounds: at least `k` are collected, and `k` is above 0.
    fn least_if_tied(&mut self, k: usize) -> Option<f32> {
        let picked = &mut self.buffers.picked;
        picked.clear();
        picked.extend(self.buffers.collected.iter().map(|c| c.logit));
        let (_, &mut least, _) = picked.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
        let top = &mut picked[..k];
        top.sort_unstable_by(f32::total_cmp);
        let tied = top.windows(2).any(|pair| pair[0] == pair[1]);
        tied.then_some(least)
    }

    /// Returns the first candidates, all later ones that could beat the heap's root at their turn,
    /// and some more.
    fn contenders_for_heap(&mut self, k: usize) -> Option<&[TokenData]> {
        let blocks = self.buffers.maxima.len();
        let first = (EAGER * k).div_ceil(GROUP).min(blocks);
        self.collect_all(first);
        let (mut start, mut ahead) = (first, first);
        while start < blocks {
            let picked = &mut self.buffers.picked;
            picked.clear();
            picked.extend(self.buffers.collected.iter().map(|c| comparable(c.logit)));
            // A candidate equal to the root does not enter. While the root is masked, every
            // unmasked candidate may.
            let root = nearly_kth_largest(picked, k);
            let end = blocks.min(start + ahead);
            self.collect(start, end, root.map_or(f32::MIN, f32::next_up));
            (start, ahead) = (end, 2 * ahead);
        }
        self.collected_if_few()
    }

    fn collected_if_few(&self) -> Option<&[TokenData]> {
        let collected = &self.buffers.collected[..];
        (collected.len() <= self.n_vocab() / 2).then_some(collected)
    }

    /// Collects all candidates of the first `blocks`.
    fn collect_all(&mut self, blocks: usize) {
        let mut logits = [0.0; GROUP];
        self.buffers.collected.clear();
        for number in 0..blocks {
            let block = block_with_ids(self.block(number, &mut logits), number);
            self.buffers.collected.extend(block);
        }
    }
}

/// Returns the candidates of block `number`.
fn block_with_ids(logits: &[f32], number: usize) -> impl Iterator<Item = TokenData> + '_ {
    let ids = (number * GROUP) as i32..;
    let candidate = |(id, &logit): (i32, &f32)| TokenData::new(id, logit);
    ids.zip(logits).map(candidate)
}

/// The minimum number of groups of blocks. Fewer groups would save no time.
const LEAST_GROUPS: usize = 128;

/// Contenders above a threshold count as few if they are at most one in this many candidates.
const FEW: usize = 4;

/// The first `EAGER * k` candidates are all collected, since most of them would enter the heap.
const EAGER: usize = 3;
