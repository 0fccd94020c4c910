//! Replays the host's partial sort, as far as its result is needed.

use std::ops::Range;

use crate::algorithms::host_order::buckets::{self, Buckets};
use crate::algorithms::host_order::item::{Item, above, item, items_of, key, place};
use crate::algorithms::host_order::sort::{All, Wanted, sort};
use crate::algorithms::host_order::ties::{Tied, Ties};
use crate::algorithms::host_order::{CHUNK, HEAP, heap};
use crate::algorithms::scratch::room;
use crate::host_profile::HostProfile;
use crate::kernels;
use crate::token::{TokenData, comparable};

/// The divisor of an array's length that gives the size up to which a bucket is always dealt.
/// Reading the array again to search for the largest of the bucket would take longer.
const FEW_OF: usize = 8;

/// The divisor of a bucket's size that gives the maximum number of its largest logits that are
/// searched for. If more are needed, all of the bucket is dealt.
const LARGEST_OF: usize = 4;

/// The host's partial sort, replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Replay {
    buckets: Buckets,
    pub(super) items: Vec<Item>,
    /// The logits of the needed buckets, and their indices.
    picked: Vec<f32>,
    indices: Vec<u32>,
}

room!(Replay: buckets, picked, indices; items);

impl Replay {
    /// Puts the first `need` of the `k` largest of `logits` into the items, in the host's order.
    pub(super) fn all(&mut self, logits: &[f32], k: usize, need: usize) {
        let (k, need) = (k.min(logits.len()), need.min(logits.len()));
        if k <= HEAP {
            return self.by_heap(logits, k);
        }
        self.buckets.count(logits);
        let last = self.buckets.holding(need);
        let (above, of_last) = (self.buckets.above(last), self.buckets.len(last));
        let of_last_needed = k.saturating_sub(above);
        // The lowest bucket also contains NaN.
        let streams = last > 0
            && (1..=of_last / LARGEST_OF).contains(&of_last_needed)
            && of_last > logits.len() / FEW_OF;
        let lowest = if streams { last + 1 } else { last };
        self.buckets.deal(logits, lowest, |i| i, &mut self.items);
        self.sort_buckets(lowest, k, None);
        if streams {
            match HostProfile::current().sort.left_child_first() {
                false => self.append_largest_of::<false>(logits, last, of_last_needed),
                true => self.append_largest_of::<true>(logits, last, of_last_needed),
            }
        }
    }

    /// Appends the first `m` items of a partial sort of a bucket: its `m` largest logits. The
    /// bucket is not dealt for this. It must have at least `m` logits, and must not be the lowest
    /// one.
    // In bounds: the heap begins at `start`; it is not empty when it is full.
    fn append_largest_of<const LEFT: bool>(&mut self, logits: &[f32], bucket: usize, m: usize) {
        let start = self.items.len();
        let mut threshold = buckets::least(bucket);
        let is_in_bucket = buckets::is_in(bucket as u8);
        for (chunk, first) in logits.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            self.indices.clear();
            self.picked.clear();
            kernels::select(chunk, threshold, &mut self.indices, &mut self.picked);
            for (&i, &logit) in self.indices.iter().zip(&self.picked) {
                if !is_in_bucket(logit) {
                    continue;
                }
                let item = item(logit, first + i as usize);
                if self.items.len() < start + m {
                    self.items.push(item);
                    if self.items.len() == start + m {
                        heap::make_heap::<LEFT>(&mut self.items[start..]);
                    }
                } else {
                    heap::offer::<LEFT>(&mut self.items[start..], item);
                }
            }
            if self.items.len() == start + m {
                threshold = above(key(self.items[start]));
            }
        }
        heap::sort_heap::<LEFT>(&mut self.items[start..]);
    }

    /// Puts the `k` largest candidates into the items, in the host's order. The k-th largest has
    /// the logit `least`.
    // In bounds: `at_least` returns indices of `data`.
    pub(super) fn of_candidates(&mut self, data: &[TokenData], k: usize, least: f32) {
        let last = usize::from(buckets::number(least));
        self.indices.clear();
        kernels::at_least(data, 0, buckets::least(last), &mut self.indices);
        self.picked.clear();
        let logits = self.indices.iter().map(|&i| data[i as usize].logit);
        self.picked.extend(logits);
        if last == 0 && self.picked.len() < data.len() {
            // The lowest bucket also contains NaN.
            self.indices.clear();
            self.indices.extend(0..data.len() as u32);
            self.picked.clear();
            self.picked.extend(data.iter().map(|c| comparable(c.logit)));
        }
        self.sort_picked(last, k, None);
    }

    /// Puts the `k` largest of `logits` into the items, at least down to the bucket of `least`. Of
    /// those at or above `least`, at least the ones in `ties` are in the host's order.
    pub(super) fn tied(&mut self, logits: &[f32], k: usize, least: f32, ties: &Ties) {
        if k <= HEAP {
            return self.by_heap(logits, k);
        }
        let last = usize::from(buckets::number(least));
        if last == 0 {
            self.buckets.count(logits);
            self.buckets.deal_all(logits, &mut self.items);
            return self.sort_buckets(last, k, Some(ties));
        }
        self.indices.clear();
        self.picked.clear();
        let threshold = buckets::least(last);
        kernels::select(logits, threshold, &mut self.indices, &mut self.picked);
        self.sort_picked(last, k, Some(ties));
    }

    /// Deals the picked logits, and sorts them.
    // In bounds: an index for each logit that is picked.
    fn sort_picked(&mut self, last: usize, k: usize, ties: Option<&Ties>) {
        self.buckets.count(&self.picked);
        let place = |i: usize| self.indices[i] as usize;
        self.buckets
            .deal(&self.picked, last, place, &mut self.items);
        self.sort_buckets(last, k, ties);
    }

    /// Implements `HostOrder::place_of`. Sorts only the bucket of `logit`, and, unless that is the
    /// last one, only the part of it that contains the wanted index.
    pub(super) fn place_of(&mut self, logits: &[f32], logit: f32, nth: usize) -> Option<usize> {
        let bucket = buckets::number(logit);
        self.indices.clear();
        self.picked.clear();
        let least = buckets::least(usize::from(bucket));
        kernels::select(logits, least, &mut self.indices, &mut self.picked);
        // The last bucket that is not empty is sorted as in a partial sort.
        let is_last = self.picked.len() == logits.len();
        let selected = self.picked.iter().zip(&self.indices);
        let is_in_bucket = buckets::is_in(bucket);
        let of_bucket = selected.filter(|&(&x, _)| is_in_bucket(x));
        self.items.clear();
        self.items
            .extend(of_bucket.map(|(&x, &i)| item(x, i as usize)));
        let wanted = key(item(logit, 0));
        let before = self
            .items
            .iter()
            .filter(|&&item| key(item) < wanted)
            .count();
        let place_among = before + nth;
        if is_last {
            let n = self.items.len();
            heap::partial_sort(&mut self.items, n);
        } else {
            sort(&mut self.items, &mut OnePlace(place_among));
        }
        self.items.get(place_among).map(|&item| place(item))
    }

    fn by_heap(&mut self, logits: &[f32], k: usize) {
        items_of(logits, &mut self.items);
        heap::partial_sort(&mut self.items, k);
    }

    /// Sorts the buckets from `last` up, which hold the needed part of the `k` largest: only the
    /// parts with `ties`, or everything if `ties` is `None`. The bucket that contains the k-th is
    /// partially sorted.
    // In bounds: the items are those of the buckets from `last` up.
    fn sort_buckets(&mut self, last: usize, k: usize, ties: Option<&Ties>) {
        let mut start = 0;
        for bucket in (last..buckets::COUNT).rev() {
            let end = start + self.buckets.len(bucket);
            let items = &mut self.items[start..end];
            if end >= k {
                // Also needed if the last item may be tied with one that is not read.
                if end > k || ties.is_none_or(|ties| ties.any_from(start..end)) {
                    heap::partial_sort(items, k - start);
                }
                return;
            }
            match ties {
                Some(ties) => sort(items, &mut Tied { ties, first: start }),
                None => sort(items, &mut All),
            }
            start = end;
        }
    }

    /// Writes the indices of tied items into `ranked`, in the host's order. For zeros, also writes
    /// their logits into `sorted`, since zeros of both signs are equal.
    // In bounds: runs lie within the ranks, and there are at least as many items as ranks.
    pub(super) fn exchange(
        &self,
        ties: &Ties,
        logits: &[f32],
        ranked: &mut [u32],
        sorted: &mut [f32],
    ) {
        let mut start = 0;
        while let Some(run) = ties.next_run(start) {
            start = run.end;
            let zeros = sorted[run.start] == 0.0;
            for rank in run {
                ranked[rank] = self.items[rank] as u32;
                if zeros {
                    sorted[rank] = logits[place(self.items[rank])];
                }
            }
        }
    }
}

/// The wanted part of an order that consists of the item at one index.
struct OnePlace(usize);

impl Wanted for OnePlace {
    fn wants(&mut self, _: &mut [Item], places: Range<usize>) -> bool {
        places.contains(&self.0)
    }

    fn take(&mut self, _: &[Item], places: Range<usize>) -> bool {
        !places.contains(&self.0)
    }
}
