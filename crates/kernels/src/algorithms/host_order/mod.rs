//! Computes the order in which the built-in samplers leave candidates, including those with equal
//! logits.
//!
//! The built-ins sort with the C++ library's `std::sort` and `std::partial_sort`, which are not
//! stable: the final order of equal elements follows from every swap of the algorithms. The
//! exactness contract includes that order. Logits that come from half precision have many ties, and
//! the text depends on which of two tied tokens is kept or comes first.
//!
//! Candidates with different logits have only one order, which a radix sort finds much faster. So
//! this module ranks first and looks for ties. Only for a tie among the wanted candidates, or at
//! the cut, does it replay the steps of the host's algorithms on the ranges that hold the tie. If a
//! sample shows many ties, everything is replayed at once. The `k <= 128` largest are found by the
//! host's own algorithm, a heap, if ties are met or expected among them, if the array looks sorted,
//! or if ranking would be slow. The heap then changes so rarely that one pass, which compares the
//! candidates with its root, is as quick as any other method.
//!
//! - `replay`: the host's partial sort, as far as it is needed;
//! - `introsort` and `heap`: the algorithms of libstdc++, on items of 8 bytes;
//! - `libcxx` and `msvc`: the algorithms of libc++ and of Microsoft's library, where they differ;
//! - `killer`: arrays on which Microsoft's sort reaches its depth limit;
//! - `buckets`: the bucket sort with which the built-ins begin for a `k` above 128;
//! - `ties`: the positions of ties.
//!
//! NaN counts as minus infinity. The host profile says which C++ library the host uses (see
//! [`Sort`]). If that library's order of equal elements is not known, equal elements keep input
//! order.

mod buckets;
mod heap;
mod introsort;
mod item;
pub mod killer;
mod libcxx;
mod msvc;
mod replay;
pub mod sort;
// Compares with the C++ library of the compiler that builds llama.cpp.
#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests;
mod ties;
mod wanted;

use crate::algorithms::argsort::Ranking;
use crate::algorithms::scratch::{Room, room};
use crate::algorithms::top_k::TopK;
use crate::host_profile::{HostProfile, Sort};
use crate::kernels::sort_key::descending_key;
use crate::kernels::{self, Column};
use crate::per_thread::lent_per_thread;
use crate::token::{Token, TokenData, comparable};
pub use buckets::overflows;
use item::key;
pub use item::{Item, item, items_of, place, write_items};
use replay::Replay;
use ties::Ties;

/// The largest `k` for which the host finds the `k` largest candidates with one heap over the whole
/// array.
pub const HEAP: usize = 128;
/// The length below which the host's sort of an array is replayed at once, without ranking.
const RANKED: usize = 256;
/// The number of candidates above which a sample is searched for ties before any are ranked.
const MANY: usize = 8192;
/// The number of adjacent candidates in each group that is inspected for ties or for order.
const GROUP: usize = 8;
/// The divisor of the length that gives the smallest `k` for which the whole array is ranked.
const LARGE_PART: usize = 8;
/// The number of logits that are searched at once for the largest of a bucket.
const CHUNK: usize = 1024;
/// The number of leading candidates that are checked for descending order. If so many are in order,
/// that is no coincidence. At most `LOOKED_AT * LOOKED_AT` of the other candidates are compared
/// with the last of them.
const LOOKED_AT: usize = 16;

/// Returns true if ties keep input order.
fn is_stable() -> bool {
    HostProfile::current().sort == Sort::Stable
}

/// Buffers for finding the order.
#[derive(Clone, Debug, Default)]
pub struct HostOrder {
    order: TopK,
    logits: Vec<f32>,
    replay: Replay,
    ties: Ties,
    indices: Vec<u32>,
    top: Vec<TokenData>,
    /// True if ties are expected among the few largest candidates: because the last array had some,
    /// or because the caller expects them. Affects only the speed.
    tied: bool,
    /// True after the first call of [`top`](Self::top) for a `k` of at most [`HEAP`].
    began: bool,
}

lent_per_thread!(HostOrder);
room!(HostOrder: order, replay, ties, indices, top; logits);

impl HostOrder {
    /// Returns the `k` largest of `data`, or all if there are fewer, in the order of the host's
    /// partial sort.
    // In bounds: `argmax` returns an index of `data`.
    pub fn top(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        let k = k.min(data.len());
        if is_stable() && k < data.len() {
            return self.order.top(data, k);
        }
        if k <= HEAP && !is_stable() {
            self.replay.items.clear();
            self.top.clear();
            // Reserves memory for every method that a later array of this size may need. Not in the
            // first call, in which the system would have to provide all that memory.
            if std::mem::replace(&mut self.began, true) {
                self.order.warm_up_for(data.len().max(HEAP), HEAP + 1);
                self.replay.items.reserve(HEAP);
                self.top.reserve(HEAP);
            }
            if k == 1 {
                let first = kernels::argmax(data).map(|i| data[i]);
                self.top.extend(first);
                return &self.top;
            }
            let by_heap = self.tied || leads(data);
            if !by_heap && matches!(self.rank_some(data, k), Ranked::Distinct) {
                return self.order.first_ranked(data, k);
            }
            self.select_by_heap(data, k);
            self.tied = any_equal(&self.replay.items);
        } else if k == data.len() {
            self.warm_up(k);
            if !is_replayed(data) {
                self.rank_settled(data);
                return self.take_ranked(data);
            }
            self.replay_top(data, k);
        } else {
            self.warm_up(data.len());
            match self.rank_some(data, k) {
                Ranked::Distinct => return self.order.first_ranked(data, k),
                Ranked::Tied(least) => self.replay.of_candidates(data, k, least),
                Ranked::No => {
                    self.replay_top(data, k);
                }
            }
        }
        self.take_items(data, k)
    }

    /// Returns the candidates of the first `k` items.
    fn take_items(&mut self, data: &[TokenData], k: usize) -> &[TokenData] {
        self.top.clear();
        let items = self.replay.items.iter().take(k);
        self.top.extend(items.map(|&item| data[place(item)]));
        &self.top
    }

    /// Sets whether ties are expected among the few largest candidates, as is likely with half
    /// precision. Affects only the speed.
    #[inline]
    pub fn expect_ties(&mut self, tied: bool) {
        self.tied = tied;
    }

    /// Returns true if ties are expected among the few largest candidates: because the last array
    /// had some, or because [`expect_ties`](Self::expect_ties) was called with true.
    #[inline]
    pub fn found_ties(&self) -> bool {
        self.tied
    }

    /// Sorts `data` in place, into the order of the host's sort.
    pub fn sort(&mut self, data: &mut [TokenData]) {
        self.sort_top(data, data.len());
    }

    /// Moves the `k` largest of `data` to its beginning, in the order of the host's partial sort.
    /// The rest of `data` is then unspecified.
    // In bounds: `top` returns at most as many candidates as `data` has.
    pub fn sort_top(&mut self, data: &mut [TokenData], k: usize) {
        let k = k.min(data.len());
        if k > HEAP && k >= data.len() / LARGE_PART {
            if is_replayed(data) {
                return self.replay_in_place(data, k, have_no_p(data));
            }
            if self.rank_top(data, k) {
                return;
            }
        }
        let sorted = self.top(data, k);
        data[..sorted.len()].copy_from_slice(sorted);
    }

    /// Sorts as [`sort_top`](Self::sort_top) does, by ranking all of `data`, for a large `k`.
    /// Returns false, with `data` unchanged, if ties keep input order or the largest logit
    /// [`overflows`].
    // In bounds: all of `data` was ranked, and it has at least `k` candidates.
    fn rank_top(&mut self, data: &mut [TokenData], k: usize) -> bool {
        if is_stable() {
            return false;
        }
        self.warm_up(data.len());
        let column = self.order.ranking().rank_logits(data);
        if overflows(column.max) {
            return false;
        }
        let (indices, sorted) = self.order.ranking().parts_mut();
        let least = sorted[k - 1];
        let cut = sorted.get(k).is_some_and(|&next| next == least);
        let (indices, sorted) = (&mut indices[..k], &mut sorted[..k]);
        if self.ties.find(sorted, cut) {
            kernels::column(data, &mut self.logits);
            self.replay.tied(&self.logits, k, least, &self.ties);
            self.replay
                .exchange(&self.ties, &self.logits, indices, sorted);
        }
        if column.plain && have_no_p(data) {
            // Ids are indices and probabilities are 0, so the candidates need not be copied first.
            for ((candidate, &i), &logit) in data.iter_mut().zip(&*indices).zip(&*sorted) {
                *candidate = TokenData::new(i as Token, logit);
            }
        } else {
            self.top.clear();
            self.top.extend(indices.iter().map(|&i| data[i as usize]));
            data[..k].copy_from_slice(&self.top);
        }
        true
    }

    /// Sorts `data` as [`sort`](Self::sort) does, by replaying the host's sort at once.
    /// [`is_replayed`] must return true for `data`. May set the probabilities to 0.
    pub fn replay(&mut self, data: &mut [TokenData]) {
        self.replay_in_place(data, data.len(), true);
    }

    /// Moves the `k` largest of `data` to its beginning by replaying the host's sort. If `loses_p`
    /// is true, may set their probabilities to 0, so that plain data (see [`Column`]) need not be
    /// copied first.
    fn replay_in_place(&mut self, data: &mut [TokenData], k: usize, loses_p: bool) {
        self.warm_up(data.len());
        if self.replay_top(data, k).plain && loses_p {
            return self.write_replayed(&mut data[..k]);
        }
        let sorted = self.take_items(data, k);
        data[..k].copy_from_slice(sorted);
    }

    /// Writes the candidates of plain data in the order of the items, with probabilities of 0. They
    /// need not be copied first, since their ids are indices.
    // In bounds: the items are indices of the logits.
    fn write_replayed(&self, data: &mut [TokenData]) {
        for (candidate, &item) in data.iter_mut().zip(&self.replay.items) {
            *candidate = TokenData::new(place(item) as Token, self.logits[place(item)]);
        }
    }

    /// Ranks all of `data` without changing it. Then [`ranking`](Self::ranking) holds the order and
    /// the logits. Returns false if there are few candidates, if an id is not the candidate's
    /// index, if a logit is NaN, or if the largest logit [`overflows`], since the order then does
    /// not begin with it.
    pub fn rank_plain(&mut self, data: &[TokenData]) -> bool {
        let last_id = |last: &TokenData| usize::try_from(last.id) == Ok(data.len() - 1);
        // An array that an earlier sampler has cut is not worth checking.
        if data.len() < RANKED || !data.last().is_some_and(last_id) {
            return false;
        }
        let column = self.rank(data);
        column.plain && !overflows(column.max)
    }

    /// Ranks all of `data` as [`rank`](Self::rank) does, but with ties in any order.
    /// [`settle_ranks`](Self::settle_ranks) then puts the ties among the ranks that are read into
    /// the host's order. Returns `None` if the largest logit [`overflows`], or if there are few
    /// candidates.
    pub fn rank_loosely(&mut self, data: &[TokenData]) -> Option<Column> {
        if data.len() < RANKED {
            return None;
        }
        self.warm_up(data.len());
        let column = self.order.ranking().rank_logits(data);
        kernels::column(data, &mut self.logits);
        (!overflows(column.max)).then_some(column)
    }

    /// Puts each group of tied candidates that includes one of `ranks` into the host's order, after
    /// [`rank_loosely`](Self::rank_loosely).
    // In bounds: `ranks` are ranks of the last ranking, and `equals` counts logits of it from
    // `last` on.
    pub fn settle_ranks(&mut self, ranks: &[u32]) {
        let Some(last) = ranks.iter().max().map(|&last| last as usize) else {
            return;
        };
        let sorted = self.order.ranking().sorted();
        let least = sorted[last];
        // The ranks after the last one's run of equal logits do not matter.
        let equals = sorted[last..].iter().take_while(|&&x| x == least);
        let sorted = &sorted[..last + equals.count()];
        if is_stable() || !self.ties.find(sorted, false) {
            return;
        }
        self.ties.keep_runs_of(ranks);
        self.settle_found(least);
    }

    /// Puts the ties that were found in the ranking of `logits`, none of them below `least`, into
    /// the order of a full sort.
    fn settle_found(&mut self, least: f32) {
        let (indices, sorted) = self.order.ranking().parts_mut();
        let n = sorted.len();
        self.replay.tied(&self.logits, n, least, &self.ties);
        self.replay
            .exchange(&self.ties, &self.logits, indices, sorted);
    }

    /// Ranks all of `data` in the host's order, whatever the ids. Then [`ranking`](Self::ranking)
    /// holds the order and the logits, with NaN as minus infinity.
    pub fn rank(&mut self, data: &[TokenData]) -> Column {
        self.warm_up(data.len());
        if is_replayed(data) {
            return self.rank_replayed(data);
        }
        self.rank_settled(data)
    }

    /// Ranks all of `data` by argsort, and settles ties if there are any.
    fn rank_settled(&mut self, data: &[TokenData]) -> Column {
        let column = self.order.ranking().rank_logits(data);
        if is_stable() {
            return column;
        }
        if overflows(column.max) {
            return self.rank_replayed(data);
        }
        if self.ties.find(self.order.ranking().sorted(), false) {
            kernels::column(data, &mut self.logits);
            self.settle_found(f32::NEG_INFINITY);
        }
        column
    }

    /// Ranks all of `data` by the host's sort from the start.
    fn rank_replayed(&mut self, data: &[TokenData]) -> Column {
        let column = self.replay_top(data, data.len());
        let indices = self.replay.items.iter().map(|&item| item as u32);
        self.order.ranking().set(&self.logits, indices);
        column
    }

    /// Puts the `k` largest into the items, by the host's sort from the start.
    fn replay_top(&mut self, data: &[TokenData], k: usize) -> Column {
        let column = kernels::column(data, &mut self.logits);
        self.replay.all(&self.logits, k, k);
        column
    }

    /// Returns the last ranking, such as [`rank`](Self::rank) leaves.
    #[inline]
    pub fn ranking(&mut self) -> &mut Ranking {
        self.order.ranking()
    }

    /// Returns the indices of the first `need` of `logits` in the order that the host's sort of the
    /// `k` largest gives, for `k` above 128.
    pub fn places(&mut self, logits: &[f32], k: usize, need: usize) -> &[u32] {
        self.replay.all(logits, k, need);
        let items = self.replay.items.iter().take(need);
        self.indices.clear();
        self.indices.extend(items.map(|&item| item as u32));
        &self.indices
    }

    /// Returns the index of the `nth` of the logits equal to `logit`, counted from 0, in the order
    /// that the host's sort of all `logits` gives. There must be more than [`HEAP`] logits; none is
    /// NaN, and none [`overflows`].
    pub fn place_of(&mut self, logits: &[f32], logit: f32, nth: usize) -> Option<usize> {
        if is_stable() {
            let mut equal = (0..logits.len()).filter(|&i| logits.get(i) == Some(&logit));
            return equal.nth(nth);
        }
        self.warm_up(logits.len());
        self.replay.place_of(logits, logit, nth)
    }

    /// Puts tied candidates among `ranked` into the order that the host's sort of the `k` largest
    /// gives.
    ///
    /// `ranked` are the indices of the first of `logits` in descending order, and `sorted` are
    /// these logits. None of the logits [`overflows`].
    pub fn settle(&mut self, logits: &[f32], k: usize, ranked: &mut [u32], sorted: &mut [f32]) {
        let cut = ranked.len() < logits.len();
        // Reserves memory for an array of this size, even if it has no ties.
        self.warm_up(logits.len());
        if is_stable() || !self.ties.find(sorted, cut) {
            return;
        }
        let least = sorted.last().copied().unwrap_or(0.0);
        self.replay.tied(logits, k, least, &self.ties);
        self.replay.exchange(&self.ties, logits, ranked, sorted);
    }

    /// Returns the indices of the first `n` of `logits` and these logits, in the order that the
    /// host's sort of the `k` largest gives. None of the logits is NaN, none [`overflows`], and the
    /// `n`-th is `last`.
    // In bounds: at least `n` logits are at or above `last`.
    pub fn rank_first(
        &mut self,
        logits: &[f32],
        n: usize,
        k: usize,
        last: f32,
    ) -> (&[u32], &[f32]) {
        self.warm_up(logits.len());
        self.indices.clear();
        self.logits.clear();
        kernels::select(logits, last, &mut self.indices, &mut self.logits);
        let ranking = self.order.ranking();
        ranking.rank_selected(logits, &self.indices, &self.logits);
        let (ranked, sorted) = ranking.parts_mut();
        let cut = sorted.get(n) == Some(&last);
        let (ranked, sorted) = (&mut ranked[..n], &mut sorted[..n]);
        if !is_stable() && self.ties.find(sorted, cut) {
            self.replay.tied(logits, k, last, &self.ties);
            self.replay.exchange(&self.ties, logits, ranked, sorted);
        }
        (ranked, sorted)
    }

    // In bounds: all of `data` was ranked, so there is one index of it for each candidate.
    fn take_ranked(&mut self, data: &[TokenData]) -> &[TokenData] {
        let indices = self.order.ranking().indices().iter();
        self.top.clear();
        self.top.extend(indices.map(|&i| data[i as usize]));
        &self.top
    }

    /// Ranks the `k` largest candidates and the next one, if that is quick.
    fn rank_some(&mut self, data: &[TokenData], k: usize) -> Ranked {
        // Ranking takes long if many candidates are equal.
        let replays = data.len() > MANY && looks_tied::<64>(data, 16)
            || k >= data.len() / LARGE_PART && looks_ordered(data);
        if replays {
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

    /// Puts the `k` largest of `data`, at most 128, into the items, as one heap finds them.
    // In bounds: `k` is at most the length of `data`.
    fn select_by_heap(&mut self, data: &[TokenData], k: usize) {
        let heap = &mut self.replay.items;
        heap.clear();
        let first = data[..k].iter().enumerate();
        heap.extend(first.map(|(i, candidate)| item(candidate.logit, i)));
        match HostProfile::current().sort.left_child_first() {
            false => select_by::<false>(heap, data),
            true => select_by::<true>(heap, data),
        }
    }
}

/// Replaces the items of `heap`, which are those of the first candidates, with those of the largest
/// candidates of all, in order.
fn select_by<const LEFT: bool>(heap: &mut [Item], data: &[TokenData]) {
    heap::make_heap::<LEFT>(heap);
    heap::offer_all::<LEFT>(heap, data, heap.len());
    heap::sort_heap::<LEFT>(heap);
}

/// Returns the least logit of the bucket of `logit`; `None` for the lowest bucket. If `logit` is
/// the last of more than [`HEAP`] wanted logits, no logit below that bucket affects the order of
/// the wanted ones.
pub fn least_of_bucket(logit: f32) -> Option<f32> {
    let bucket = usize::from(buckets::number(logit));
    (bucket > 0).then(|| buckets::least(bucket))
}

/// Returns true if the first [`LOOKED_AT`] candidates descend, and a sample of the others either
/// does not exceed them or descends as well, as in a sorted array. A heap of the first candidates
/// then hardly changes, while they would mislead a threshold from a sample.
// In bounds: there are more than `LOOKED_AT`.
fn leads(data: &[TokenData]) -> bool {
    if data.len() <= LOOKED_AT {
        return false;
    }
    let (first, others) = data.split_at(LOOKED_AT);
    let last = comparable(first[LOOKED_AT - 1].logit);
    let in_order = |a: &TokenData, b: &TokenData| comparable(a.logit) >= comparable(b.logit);
    let step = others.len().div_ceil(LOOKED_AT * LOOKED_AT);
    let are_behind = || {
        let mut others = others.iter().step_by(step);
        others.all(|c| comparable(c.logit) <= last)
    };
    first.is_sorted_by(in_order) && (are_behind() || ordered_groups(data).falling >= MOST_GROUPS)
}

/// Returns true if the first logits have no more significant bits than half precision, f16 or bf16.
/// Some of the largest are then usually equal.
pub fn are_coarse(data: &[TokenData]) -> bool {
    const FINE: u32 = (1 << 13) - 1;
    let mut first = data.iter().take(LOOKED_AT);
    first.all(|c| c.logit.to_bits() & FINE == 0)
}

/// Returns true if the keys of two adjacent items are equal.
pub fn any_equal(items: &[Item]) -> bool {
    let equal = |pair: &[Item]| matches!(pair, &[a, b] if key(a) == key(b));
    items.windows(2).any(equal)
}

/// The result of ranking some candidates.
enum Ranked {
    /// No two candidates are equal.
    Distinct,
    /// Some of the ranked candidates are equal. The `k`-th has this logit.
    Tied(f32),
    /// The candidates were not ranked.
    No,
}

/// Returns true if every probability is 0, as in an array that a host has just built.
fn have_no_p(data: &[TokenData]) -> bool {
    let any_bit = |block: &[TokenData]| block.iter().fold(0, |bits, c| bits | c.p.to_bits()) != 0;
    !data.chunks(CHUNK).any(any_bit)
}

/// Returns true if the host's sort of all of `data` is replayed at once, not only at ties.
pub fn is_replayed(data: &[TokenData]) -> bool {
    let is_sooner = || data.len() < RANKED || looks_tied::<512>(data, 3) || looks_ordered(data);
    !is_stable() && is_sooner()
}

/// Returns true if replaying the host's sort of `data` is the fastest method: most candidates are
/// in order, or equal to others.
pub fn is_easy(data: &[TokenData]) -> bool {
    looks_tied::<512>(data, 256) || looks_ordered(data)
}

/// Returns true if `data` looks as if it had a few dozen different logits at most.
pub fn has_few_values(data: &[TokenData]) -> bool {
    looks_tied::<512>(data, 480)
}

/// Returns true if the logits rise or fall over long stretches, as in a sorted array. The host's
/// sort is then quick, and so is its replay.
fn looks_ordered(data: &[TokenData]) -> bool {
    let groups = ordered_groups(data);
    groups.falling + groups.rising >= MOST_GROUPS
}

/// The number of groups of adjacent candidates that are checked for order.
const GROUPS: usize = 64;
/// The least number of groups in order for which an array counts as ordered.
const MOST_GROUPS: usize = GROUPS / 4 * 3;

/// The numbers of groups of adjacent candidates whose logits fall, and whose logits rise; both are
/// 0 for a short array.
#[derive(Default)]
struct Ordered {
    falling: usize,
    rising: usize,
}

// In bounds: there are more than `GROUP` candidates, and `start` is at most `data.len() - GROUP`.
fn ordered_groups(data: &[TokenData]) -> Ordered {
    let mut ordered = Ordered::default();
    if data.len() < 4 * GROUPS * GROUP {
        return ordered;
    }
    for start in (0..GROUPS).map(|i| i * (data.len() - GROUP) / GROUPS) {
        let keys = data[start..start + GROUP].iter();
        let keys = keys.map(|c| descending_key(c.logit));
        if keys.clone().is_sorted() {
            ordered.falling += 1;
        } else if keys.rev().is_sorted() {
            ordered.rising += 1;
        }
    }
    ordered
}

/// Returns true if more than `ties` logits of a sorted sample of `SIZE` candidates equal the one
/// before them. Returns false for fewer than `4 * SIZE` candidates.
// In bounds: there are more than `GROUP` candidates, and `start` is at most `data.len() - GROUP`.
fn looks_tied<const SIZE: usize>(data: &[TokenData], ties: usize) -> bool {
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
