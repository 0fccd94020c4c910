//! The order in which the built-in samplers leave candidates, equal logits included.
//!
//! The built-ins sort with libstdc++'s `std::sort` and `std::partial_sort`, which are not stable:
//! where equal elements end follows from each exchange that the algorithms make. The exactness
//! contract includes it. With logits that come from half precision ties are everywhere, and which
//! of two tied tokens is kept, or stands first, decides the text.
//!
//! Candidates with different logits have but one order, which a radix sort finds much sooner. So
//! this ranks first and looks for ties; only where one stands among what is wanted, or at the cut,
//! it replays what the host's algorithms do to the ranges that hold such a tie. A sample tells
//! where ties are so many that everything is replayed at once. The `k <= 128` largest are found by
//! the host's own algorithm from the start: its heap changes so rarely that one pass against the
//! heap's root is as quick as any other way.
//!
//! - `introsort` and `heap`: the algorithms, on items of 8 bytes;
//! - `buckets`: the step that the built-ins put before them;
//! - `ties`: where ties are.
//!
//! NaN counts as minus infinity. Where the host is built with another C++ library, see
//! [`set_stable`].

mod buckets;
mod heap;
pub mod introsort;
mod item;
#[cfg(test)]
mod tests;
mod ties;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::algorithms::argsort::Ranking;
use crate::algorithms::fallbacks::Fallback;
use crate::algorithms::scratch::room_to_write_over;
use crate::algorithms::top_k::TopK;
use crate::kernels::sort_key::{descending_key, logit_of};
use crate::kernels::{self, Column};
use crate::token::{TokenData, comparable};
use buckets::Buckets;
pub use buckets::overflows;
use introsort::{All, Wanted};
use item::key;
pub use item::{Item, item, place};
use ties::{Tied, Ties};

/// Up to so many largest candidates the host finds with one heap over the whole array.
pub const HEAP: usize = 128;
/// Shorter arrays are replayed rather than ranked.
const RANKED: usize = 256;
/// More than so many are looked at for ties before they are ranked.
const MANY: usize = 8192;
/// What selecting by vector registers may write beyond what it selects.
const PADDING: usize = 64;
/// For so many times the heap's size candidates are compared with the root one by one.
const EAGER: usize = 8;
/// A bucket that has no more than this part of an array is dealt: reading the array again, to look
/// for its largest, takes longer.
const FEW_OF: usize = 8;
/// How many candidates the heap's root is compared with at once.
const CHUNK: usize = 1024;

/// Whether ties keep input order, since the host's C++ library is not libstdc++.
static STABLE: AtomicBool = AtomicBool::new(false);

/// Says whether the host's C++ library is another one than libstdc++, whose order of equal elements
/// is not known here. Ties then keep input order. For the whole process.
pub fn set_stable(stable: bool) {
    STABLE.store(stable, Ordering::Relaxed);
}

fn is_stable() -> bool {
    STABLE.load(Ordering::Relaxed)
}

/// Buffers for finding the order, owned by the sampler that sorts.
#[derive(Clone, Debug, Default)]
pub struct HostOrder {
    order: TopK,
    logits: Vec<f32>,
    replay: Replay,
    ties: Ties,
    indices: Vec<u32>,
    top: Vec<TokenData>,
    /// Whether there were ties among the few largest candidates, as there then will be again:
    /// half precision makes them. Only a guess, for speed.
    tied: bool,
}

impl HostOrder {
    /// The `k` largest of `data`, or all if there are fewer, as the host's partial sort leaves
    /// them.
    pub fn top(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        let k = k.min(data.len());
        if is_stable() && k < data.len() {
            return self.order.top(data, k);
        }
        if k <= HEAP && !is_stable() {
            // With ties or without, and however often the heap's root is beaten in a chunk.
            self.replay.items.clear();
            self.replay.items.reserve(HEAP);
            self.indices.clear();
            self.indices.reserve(CHUNK + PADDING);
            self.top.clear();
            self.top.reserve(HEAP);
            if !self.tied && matches!(self.rank_some(data, k), Ranked::Distinct) {
                return self.order.first_ranked(data, k);
            }
            self.select_by_heap(data, k);
            self.tied = any_equal(&self.replay.items);
        } else if k == data.len() {
            self.rank(data);
            return self.take_ranked(data);
        } else {
            self.reserve(data.len());
            match self.rank_some(data, k) {
                Ranked::Distinct => return self.order.first_ranked(data, k),
                Ranked::Tied(least) => self.replay.of_candidates(data, k, least),
                Ranked::No => {
                    kernels::column(data, &mut self.logits);
                    self.replay.all(&self.logits, k, k);
                }
            }
        }
        self.top.clear();
        let items = self.replay.items.iter().take(k);
        self.top
            .extend(items.filter_map(|&item| data.get(place(item))));
        &self.top
    }

    /// Sorts `data`, in place.
    pub fn sort(&mut self, data: &mut [TokenData]) {
        let sorted = self.top(data, data.len());
        data.copy_from_slice(sorted);
    }

    /// Ranks all of `data` aside if it can, which takes ids that are places and no NaN; then
    /// [`ranking`](Self::ranking) holds the order and the logits.
    /// Not where the largest logit [`overflows`] either, since the order does not begin with it.
    pub fn rank_plain(&mut self, data: &[TokenData]) -> bool {
        if data.len() < RANKED {
            return false;
        }
        let column = self.rank(data);
        column.plain && !overflows(column.max)
    }

    /// Ranks all of `data` as [`rank`](Self::rank) does, with ties in any order:
    /// [`settle_ranks`](Self::settle_ranks) then puts those right that are looked at. Says whether
    /// it could: not where the largest logit [`overflows`], nor few candidates.
    pub fn rank_loosely(&mut self, data: &[TokenData]) -> bool {
        if data.len() < RANKED {
            return false;
        }
        self.reserve(data.len());
        let column = self.order.ranking().rank_logits(data);
        kernels::column(data, &mut self.logits);
        !overflows(column.max)
    }

    /// Brings the ties that one of these ranks belongs to into the host's order.
    pub fn settle_ranks(&mut self, ranks: &[u32]) {
        if is_stable() || !self.ties.find(self.order.ranking().sorted(), false) {
            return;
        }
        self.ties.keep_runs_of(ranks);
        self.settle_found();
    }

    /// Brings the ties that were found in the ranking of `logits` into the order of a full sort.
    fn settle_found(&mut self) {
        let (indices, sorted) = self.order.ranking().parts_mut();
        let n = sorted.len();
        self.replay
            .tied(&self.logits, n, f32::NEG_INFINITY, &self.ties);
        self.replay
            .exchange(&self.ties, &self.logits, indices, sorted);
    }

    /// Ranks all of `data`, whatever the ids; then [`ranking`](Self::ranking) holds the order and
    /// the logits, NaN as minus infinity.
    pub fn rank(&mut self, data: &[TokenData]) -> Column {
        self.reserve(data.len());
        let replays = data.len() < RANKED || looks_tied::<512>(data, 3);
        if !replays || is_stable() {
            let column = self.order.ranking().rank_logits(data);
            if is_stable() {
                return column;
            }
            if !overflows(column.max) {
                if self.ties.find(self.order.ranking().sorted(), false) {
                    kernels::column(data, &mut self.logits);
                    self.settle_found();
                }
                return column;
            }
        }
        let column = kernels::column(data, &mut self.logits);
        self.replay.all(&self.logits, data.len(), data.len());
        let indices = self.replay.items.iter().map(|&item| item as u32);
        self.order.ranking().set(&self.logits, indices);
        column
    }

    /// What [`rank`](Self::rank) left.
    pub fn ranking(&mut self) -> &mut Ranking {
        self.order.ranking()
    }

    /// The places of the `need` first of `logits` in the order in which the host leaves them when
    /// it sorts the `k` largest, as it does for more than 128.
    pub fn places(&mut self, logits: &[f32], k: usize, need: usize) -> &[u32] {
        self.replay.all(logits, k, need);
        let items = self.replay.items.iter().take(need);
        self.indices.clear();
        self.indices.extend(items.map(|&item| item as u32));
        &self.indices
    }

    /// The place of one of the logits that are `logit`: the `nth` of these as the host leaves them
    /// when it sorts all of `logits`, which are more than [`HEAP`], none of them NaN. None of them
    /// [`overflows`].
    pub fn place_of(&mut self, logits: &[f32], logit: f32, nth: usize) -> Option<usize> {
        if is_stable() {
            let mut equal = (0..logits.len()).filter(|&i| logits.get(i) == Some(&logit));
            return equal.nth(nth);
        }
        self.reserve(logits.len());
        self.replay.place_of(logits, logit, nth)
    }

    /// Brings tied candidates among `ranked` into the order in which the host leaves them when it
    /// sorts the `k` largest.
    ///
    /// `ranked` are the places of the first of `logits` in descending order of these, `sorted` the
    /// logits there. None of the logits [`overflows`].
    pub fn settle(&mut self, logits: &[f32], k: usize, ranked: &mut [u32], sorted: &mut [f32]) {
        let cut = ranked.len() < logits.len();
        // Whether there are ties or not, an array of this size has warmed up.
        self.reserve(logits.len());
        if is_stable() || !self.ties.find(sorted, cut) {
            return;
        }
        let least = sorted.last().copied().unwrap_or(0.0);
        self.replay.tied(logits, k, least, &self.ties);
        self.replay.exchange(&self.ties, logits, ranked, sorted);
    }

    /// Makes room for what sorting `n` candidates can take, ties or not.
    pub fn warm_up(&mut self, n: usize) {
        self.reserve(n);
        self.indices.clear();
        self.indices.reserve(n);
        self.order.ranking().reserve(n);
    }

    /// The same for finding only the first of them, too.
    pub fn warm_up_top(&mut self, n: usize) {
        self.warm_up(n);
        self.order.reserve(n);
    }

    fn reserve(&mut self, n: usize) {
        self.top.clear();
        self.top.reserve(n);
        room_to_write_over(&mut self.logits, n);
        self.replay.reserve(n);
        self.ties.reserve(n);
    }

    #[expect(
        clippy::indexing_slicing,
        reason = "all of `data` was ranked: an index for each"
    )]
    fn take_ranked(&mut self, data: &[TokenData]) -> &[TokenData] {
        let indices = self.order.ranking().indices().iter();
        self.top.clear();
        self.top.extend(indices.map(|&i| data[i as usize]));
        &self.top
    }

    /// Ranks the `k` largest and the one behind them, if there is a quick way.
    fn rank_some(&mut self, data: &[TokenData], k: usize) -> Ranked {
        // Ranking takes long where half of the candidates are equal.
        if data.len() > MANY && looks_tied::<64>(data, 16) {
            return Ranked::No;
        }
        let Some(ranked) = self.order.top_quickly(data, k + 1) else {
            return Ranked::No;
        };
        let logit = |candidate: &TokenData| comparable(candidate.logit);
        let is_tied = |pair: &[TokenData]| matches!(pair, [a, b] if logit(a) == logit(b));
        if ranked.first().is_some_and(|first| overflows(logit(first))) {
            return Ranked::No;
        }
        if ranked.windows(2).any(is_tied) {
            return Ranked::Tied(ranked.get(k - 1).map_or(0.0, logit));
        }
        Ranked::Distinct
    }

    /// Leaves in the items the `k` largest of `data`, at most 128, as one heap finds them.
    ///
    /// The heap changes about `k ln(n / k)` times in random order, and only for a logit above that
    /// of its root: most of the array is compared with the root in vector registers.
    #[expect(
        clippy::indexing_slicing,
        reason = "`k` is at most the length of `data`"
    )]
    fn select_by_heap(&mut self, data: &[TokenData], k: usize) {
        let heap = &mut self.replay.items;
        heap.clear();
        let first = data[..k].iter().enumerate();
        heap.extend(first.map(|(i, candidate)| item(candidate.logit, i)));
        heap::make_heap(heap);
        // At first many come before the root.
        let rest = data.len().min(k + EAGER * k);
        for (i, candidate) in data.iter().enumerate().take(rest).skip(k) {
            heap::offer(heap, item(candidate.logit, i));
        }
        for (chunk, start) in data[rest..].chunks(CHUNK).zip((rest..).step_by(CHUNK)) {
            let Some(&root) = heap.first() else {
                return;
            };
            self.indices.clear();
            kernels::at_least(chunk, start, above(key(root)), &mut self.indices);
            for &i in &self.indices {
                heap::offer(heap, item(data[i as usize].logit, i as usize));
            }
        }
        heap::sort_heap(heap);
    }
}

/// The least logit of the bucket of `logit`: what is below has no part in finding more than
/// [`HEAP`] largest of which this is the last. `None` where nothing is below.
pub fn least_of_bucket(logit: f32) -> Option<f32> {
    let bucket = usize::from(buckets::number(logit));
    (bucket > 0).then(|| buckets::least(bucket))
}

/// Whether two neighbours are equal.
pub fn any_equal(items: &[Item]) -> bool {
    let equal = |pair: &[Item]| matches!(pair, &[a, b] if key(a) == key(b));
    items.windows(2).any(equal)
}

/// What stands at one place.
struct OnePlace(usize);

impl Wanted for OnePlace {
    fn wants(&mut self, _: &mut [Item], places: Range<usize>) -> bool {
        places.contains(&self.0)
    }

    fn take(&mut self, _: &[Item], places: Range<usize>) -> bool {
        !places.contains(&self.0)
    }
}

/// What came of ranking some candidates.
enum Ranked {
    /// No two are equal.
    Distinct,
    /// Some are; the last one has this logit.
    Tied(f32),
    /// They were not ranked.
    No,
}

/// The least logit that comes before one of this key.
fn above(key: u32) -> f32 {
    logit_of(key).next_up()
}

/// The host's partial sort, replayed.
#[derive(Clone, Debug, Default)]
struct Replay {
    buckets: Buckets,
    items: Vec<Item>,
    /// The logits of the buckets that are needed, and their places.
    picked: Vec<f32>,
    indices: Vec<u32>,
}

impl Replay {
    fn reserve(&mut self, n: usize) {
        self.buckets.reserve(n);
        self.items.clear();
        self.items.reserve(n);
        self.picked.clear();
        self.picked.reserve(n + PADDING);
        self.indices.clear();
        self.indices.reserve(n + PADDING);
    }

    /// Leaves the first `need` of the `k` largest of `logits` in the items, in the host's order.
    fn all(&mut self, logits: &[f32], k: usize, need: usize) {
        let (k, need) = (k.min(logits.len()), need.min(logits.len()));
        if k <= HEAP {
            return self.by_heap(logits, k);
        }
        self.buckets.count(logits);
        let last = self.buckets.holding(need);
        let (above, of_last) = (self.buckets.above(last), self.buckets.len(last));
        // NaN is in the lowest bucket, too.
        let streams = last > 0 && above + of_last >= k && of_last > logits.len() / FEW_OF;
        let lowest = if streams { last + 1 } else { last };
        self.buckets.deal(logits, lowest, |i| i, &mut self.items);
        self.sort_buckets(lowest, k, None);
        if streams {
            self.append_largest_of(logits, last, k - above);
        }
    }

    /// Appends to the items the `m` largest logits of a bucket, not the lowest, which has so many:
    /// what a partial sort of the bucket leaves first, without its being dealt.
    #[expect(
        clippy::indexing_slicing,
        reason = "the heap begins at `start`; it is not empty when it is full"
    )]
    fn append_largest_of(&mut self, logits: &[f32], bucket: usize, m: usize) {
        let start = self.items.len();
        let mut threshold = buckets::least(bucket);
        for (chunk, first) in logits.chunks(CHUNK).zip((0..).step_by(CHUNK)) {
            self.indices.clear();
            self.picked.clear();
            kernels::select(chunk, threshold, &mut self.indices, &mut self.picked);
            for (&i, &logit) in self.indices.iter().zip(&self.picked) {
                if usize::from(buckets::number(logit)) != bucket {
                    continue;
                }
                let item = item(logit, first + i as usize);
                if self.items.len() < start + m {
                    self.items.push(item);
                    if self.items.len() == start + m {
                        heap::make_heap(&mut self.items[start..]);
                    }
                } else {
                    heap::offer(&mut self.items[start..], item);
                }
            }
            if self.items.len() == start + m {
                threshold = above(key(self.items[start]));
            }
        }
        heap::sort_heap(&mut self.items[start..]);
    }

    /// The same of candidates of which the k-th largest has the logit `least`.
    #[expect(
        clippy::indexing_slicing,
        reason = "`at_least` leaves places of `data`"
    )]
    fn of_candidates(&mut self, data: &[TokenData], k: usize, least: f32) {
        let last = usize::from(buckets::number(least));
        self.indices.clear();
        kernels::at_least(data, 0, buckets::least(last), &mut self.indices);
        self.picked.clear();
        let logits = self.indices.iter().map(|&i| data[i as usize].logit);
        self.picked.extend(logits);
        if last == 0 && self.picked.len() < data.len() {
            // NaN is in the lowest bucket, too.
            self.indices.clear();
            self.indices.extend(0..data.len() as u32);
            self.picked.clear();
            self.picked.extend(data.iter().map(|c| comparable(c.logit)));
        }
        self.sort_picked(last, k, None);
    }

    /// Leaves those of the first of the `k` largest of `logits` in the items that are tied. `least`
    /// is the last of those first.
    fn tied(&mut self, logits: &[f32], k: usize, least: f32, ties: &Ties) {
        if k <= HEAP {
            return self.by_heap(logits, k);
        }
        let last = usize::from(buckets::number(least));
        if last == 0 {
            self.buckets.count(logits);
            self.buckets.deal(logits, 0, |i| i, &mut self.items);
            return self.sort_buckets(last, k, Some(ties));
        }
        self.indices.clear();
        self.picked.clear();
        let threshold = buckets::least(last);
        kernels::select(logits, threshold, &mut self.indices, &mut self.picked);
        self.sort_picked(last, k, Some(ties));
    }

    /// Deals what is picked, and sorts it.
    #[expect(
        clippy::indexing_slicing,
        reason = "an index for each logit that is picked"
    )]
    fn sort_picked(&mut self, last: usize, k: usize, ties: Option<&Ties>) {
        self.buckets.count(&self.picked);
        let place = |i: usize| self.indices[i] as usize;
        self.buckets
            .deal(&self.picked, last, place, &mut self.items);
        self.sort_buckets(last, k, ties);
    }

    /// See [`HostOrder::place_of`]. Of the bucket of `logit` alone, and of that the part where it
    /// comes to lie.
    fn place_of(&mut self, logits: &[f32], logit: f32, nth: usize) -> Option<usize> {
        Fallback::Ties.note();
        let bucket = buckets::number(logit);
        self.indices.clear();
        self.picked.clear();
        let least = buckets::least(usize::from(bucket));
        kernels::select(logits, least, &mut self.indices, &mut self.picked);
        // The last that is not empty is sorted as the rest of a partial sort is.
        let is_last = self.picked.len() == logits.len();
        let selected = self.picked.iter().zip(&self.indices);
        let of_bucket = selected.filter(|&(&x, _)| buckets::number(x) == bucket);
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
            introsort::sort(&mut self.items, &mut OnePlace(place_among));
        }
        self.items.get(place_among).map(|&item| place(item))
    }

    fn by_heap(&mut self, logits: &[f32], k: usize) {
        let items = logits.iter().enumerate();
        self.items.clear();
        self.items.extend(items.map(|(i, &logit)| item(logit, i)));
        heap::partial_sort(&mut self.items, k);
    }

    /// Sorts the buckets from `last` up, which hold what is needed of the `k` largest, as far as
    /// `ties` ask for it, or all. The bucket in which the k-th falls is partially sorted.
    #[expect(
        clippy::indexing_slicing,
        reason = "the items are those of the buckets from `last` up"
    )]
    fn sort_buckets(&mut self, last: usize, k: usize, ties: Option<&Ties>) {
        Fallback::Ties.note();
        let mut start = 0;
        for bucket in (last..buckets::COUNT).rev() {
            let end = start + self.buckets.len(bucket);
            let items = &mut self.items[start..end];
            if end >= k {
                // Also where its last may be tied with one that is not looked at: that one has to
                // be known.
                if end > k || ties.is_none_or(|ties| ties.any_from(start..end)) {
                    heap::partial_sort(items, k - start);
                }
                return;
            }
            match ties {
                Some(ties) => introsort::sort(items, &mut Tied { ties, first: start }),
                None => introsort::sort(items, &mut All),
            }
            start = end;
        }
    }

    /// Puts the places of tied items where they belong among those that are `ranked`, and the
    /// logits there: zeros of both signs are equal.
    #[expect(
        clippy::indexing_slicing,
        reason = "runs lie within what was ranked, of which there are no fewer items"
    )]
    fn exchange(&self, ties: &Ties, logits: &[f32], ranked: &mut [u32], sorted: &mut [f32]) {
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

/// Whether a sample of `SIZE` candidates has more than so many that are equal to another.
#[expect(
    clippy::indexing_slicing,
    reason = "there are more candidates than `GROUP`; `start` is at most their number less that"
)]
fn looks_tied<const SIZE: usize>(data: &[TokenData], ties: usize) -> bool {
    const GROUP: usize = 8;
    if data.len() < 4 * SIZE {
        return false;
    }
    let mut sample = [0; SIZE];
    let groups = SIZE / GROUP;
    for (i, to) in sample.chunks_mut(GROUP).enumerate() {
        let start = i * (data.len() - GROUP) / groups;
        for (to, candidate) in to.iter_mut().zip(&data[start..start + GROUP]) {
            *to = descending_key(candidate.logit);
        }
    }
    sample.sort_unstable();
    sample.windows(2).filter(|pair| pair[0] == pair[1]).count() > ties
}
