//! Selections on raw logits: the largest, the k largest, all above a threshold, and the head of a
//! ranking by mass.
//!
//! A first pass keeps the largest logit of each block of 64. The k-th largest of such maxima is at
//! or below the k-th largest logit, so it is a threshold that all of the k largest reach and little
//! else does; only the blocks whose maximum reaches it are looked into again.
//!
//! A threshold that rises as the k largest so far do takes one pass, but looks into every block
//! that reaches what is known by then, and lost.

use crate::algorithms::host_order::{Item, item, place};
use crate::algorithms::kth_largest::nearly_kth_largest;
use crate::kernels::collect::ROOM;
use crate::kernels::layout::{CHUNK, GROUP};
use crate::kernels::logits::Logits;
use crate::kernels::packed::Packed;
use crate::kernels::rank;
use crate::kernels::sort_key::logit_of;
use crate::memory::reserve;
use crate::samplers::running::Enough;
use crate::sieve::sampled::sampled_threshold;
use crate::sieve::source::{Source, Touched, split_before};
use crate::simd::libm::exp;
use crate::token::{Token, TokenData, comparable};

/// A candidate by its token as an [`Item`]: a larger logit comes first, of equals the lower token.
#[inline]
fn key_of(candidate: &TokenData) -> Item {
    item(candidate.logit, candidate.id as usize)
}

/// That candidate; a zero has lost its sign.
#[inline]
fn candidate_of(key: Item) -> TokenData {
    TokenData {
        id: place(key) as Token,
        logit: logit_of((key >> 32) as u32),
        p: 0.0,
    }
}

/// Makes room for the maxima of the blocks of `n` logits. What is in it is overwritten.
pub(super) fn room_for_maxima(n: usize, maxima: &mut Vec<f32>) {
    let blocks = n.div_ceil(GROUP);
    reserve(maxima, blocks);
    maxima.resize(blocks, 0.0);
}

/// The maxima of the blocks of a run of logits from `start` on, of those behind `maxima`.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: a run of the logits behind `maxima`"
)]
pub(super) fn of_run<'m>(maxima: &'m mut [f32], start: usize, run: &Logits<'_>) -> &'m mut [f32] {
    &mut maxima[start / GROUP..][..run.len().div_ceil(GROUP)]
}

/// The largest logit of each block, and of all: minus infinity if every one is masked. One pass,
/// and the blocks with changed logits again.
pub(super) fn scan(source: &Source<'_>, maxima: &mut Vec<f32>) -> f32 {
    room_for_maxima(source.len(), maxima);
    if source.divisor != 1.0 {
        source.for_each_run(CHUNK, everything, |start, run| {
            run.block_maxima(of_run(maxima, start, &run));
        });
    } else {
        let max = source.logits.block_maxima(maxima);
        if source.touched.is_empty() {
            return max;
        }
        scan_changed(source, maxima);
    }
    Logits::F32(maxima).max()
}

/// The maxima of the blocks with changed logits. Only a block that loses its largest is read again.
#[expect(
    clippy::indexing_slicing,
    reason = "touched are tokens of the vocabulary, each block of which has a maximum; from `start` to `end` is at most a block"
)]
fn scan_changed(source: &Source<'_>, maxima: &mut [f32]) {
    let mut touched = source.touched;
    let mut copy = [0.0f32; GROUP];
    while let Some(first) = touched.first() {
        let block = first.index() / GROUP;
        let start = block * GROUP;
        let end = source.len().min(start + GROUP);
        let (here, later) = split_before(touched, end);
        touched = later;
        let max = maxima[block];
        let largest = here.iter().fold(f32::NEG_INFINITY, |largest, t| {
            let logit = comparable(t.logit);
            if logit > largest { logit } else { largest }
        });
        maxima[block] = if largest >= max {
            largest
        } else if here.iter().any(|t| t.raw == max) {
            let copy = &mut copy[..end - start];
            source.copy(start, here, copy);
            Logits::F32(copy).max()
        } else {
            max
        };
    }
}

/// The same, and how many logits are not masked.
pub(super) fn scan_and_count(source: &Source<'_>, maxima: &mut Vec<f32>) -> (f32, usize) {
    room_for_maxima(source.len(), maxima);
    if source.divisor != 1.0 {
        let mut unmasked = 0;
        source.for_each_run(CHUNK, everything, |start, run| {
            unmasked += run.block_maxima_and_count(of_run(maxima, start, &run)).1;
        });
        return (Logits::F32(maxima).max(), unmasked);
    }
    let (max, mut unmasked) = source.logits.block_maxima_and_count(maxima);
    if source.touched.is_empty() {
        return (max, unmasked);
    }
    for touched in source.touched {
        let masked = |x: f32| usize::from(comparable(x) == f32::NEG_INFINITY);
        unmasked = unmasked + masked(touched.raw) - masked(touched.logit);
    }
    scan_changed(source, maxima);
    (Logits::F32(maxima).max(), unmasked)
}

/// For passes that leave no run out.
pub(super) fn everything(_start: usize, _end: usize) -> bool {
    true
}

/// The first token whose logit is `max`, the largest, which is not minus infinity.
pub(super) fn first_of(max: f32, source: &Source<'_>, maxima: &[f32]) -> TokenData {
    let block = maxima.iter().position(|&m| m == max).unwrap_or(0);
    let (start, end) = (block * GROUP, source.len().min((block + 1) * GROUP));
    let place = (start..end).find(|&i| source.at(i) == max);
    TokenData {
        id: place.unwrap_or(start) as Token,
        logit: max,
        p: 1.0,
    }
}

/// The token with the largest logit, the first of equals, without a buffer; `None` if every one is
/// masked. One pass.
pub(super) fn largest(logits: Logits<'_>) -> Option<Token> {
    let (mut best, mut max) = (0, f32::NEG_INFINITY);
    for start in (0..logits.len()).step_by(CHUNK) {
        let of_chunk = logits.part(start, logits.len().min(start + CHUNK)).max();
        if of_chunk > max {
            (best, max) = (start, of_chunk);
        }
    }
    if max == f32::NEG_INFINITY {
        return None;
    }
    let place = (best..logits.len()).find(|&i| logits.at(i) == max);
    place.map(|place| place as Token)
}

/// A threshold that at least `k` of the logits behind `maxima` reach, and few more; `None` if there
/// are too few blocks for that.
///
/// Maxima of a few hundred groups of blocks give nearly the threshold that the maxima of all blocks
/// give: of `groups` groups the k-th largest leaves about k (1 + k / 2 `groups`).
pub(super) fn threshold_of(k: usize, maxima: &[f32], sample: &mut Vec<f32>) -> Option<f32> {
    let groups = (4 * k).next_power_of_two().max(128).min(maxima.len());
    if k > groups {
        return None;
    }
    let (first, others) = maxima.split_at(groups);
    sample.clear();
    reserve(sample, groups);
    sample.extend_from_slice(first);
    for some in others.chunks(groups) {
        for (max, &other) in sample.iter_mut().zip(some) {
            *max = if other > *max { other } else { *max };
        }
    }
    Some(nearly_kth_largest(sample, k).unwrap_or(f32::MIN))
}

/// All candidates of `source` whose logits are at least `threshold`, which is above minus infinity,
/// in order of their tokens. Reads the blocks that have one.
#[expect(
    clippy::indexing_slicing,
    reason = "ranges and runs are of the vocabulary, each block of which has a maximum"
)]
pub(super) fn collect(
    source: &Source<'_>,
    maxima: &mut [f32],
    threshold: f32,
    candidates: &mut Vec<TokenData>,
) {
    candidates.clear();
    if source.divisor == 1.0 {
        // As they are, in one run; then what has changed.
        source.logits.collect(maxima, 0, threshold, candidates);
        correct(source.touched, threshold, candidates);
        return;
    }
    let passes = |start: usize, end: usize| {
        let blocks = &maxima[start / GROUP..end.div_ceil(GROUP)];
        blocks.iter().any(|&max| max >= threshold)
    };
    source.for_each_run(GROUP, passes, |start, run| {
        let blocks = &maxima[start / GROUP..][..run.len().div_ceil(GROUP)];
        run.collect(blocks, start as u32, threshold, candidates);
    });
}

/// Makes candidates of raw logits, in order of their tokens, those of the changed ones: takes out
/// whose logit has fallen below `threshold`, puts in whose has risen to it.
#[expect(
    clippy::indexing_slicing,
    reason = "a partition point is at most the length, and `get_mut` found one there"
)]
fn correct(touched: &[Touched], threshold: f32, candidates: &mut Vec<TokenData>) {
    let (mut place, mut fallen, mut risen) = (0, false, 0);
    for touched in touched {
        let keeps = touched.logit >= threshold;
        if !touched.was_from(threshold) {
            risen += usize::from(keeps);
            continue;
        }
        place += place_of(touched.token, &candidates[place..]);
        if let Some(candidate) = candidates.get_mut(place)
            && candidate.id == touched.token as Token
        {
            candidate.logit = touched.logit;
            fallen |= !keeps;
        }
    }
    if fallen {
        candidates.retain(|c| c.logit >= threshold);
    }
    if risen > 0 {
        let risen = |t: &&Touched| t.logit >= threshold && !t.was_from(threshold);
        insert(touched.iter().filter(risen), candidates);
    }
}

/// How many of `candidates`, in order of their tokens, are before `token`.
fn place_of(token: u32, candidates: &[TokenData]) -> usize {
    candidates.partition_point(|c| c.id < token as Token)
}

/// Puts tokens where they belong among `candidates`, from the last to the first, so that each
/// candidate moves once.
#[expect(
    clippy::indexing_slicing,
    reason = "candidates up to `end` have not moved, and as many are free behind them as tokens are left"
)]
fn insert<'t>(
    tokens: impl DoubleEndedIterator<Item = &'t Touched> + Clone,
    candidates: &mut Vec<TokenData>,
) {
    let mut end = candidates.len();
    let mut left = tokens.clone().count();
    reserve(candidates, end + left);
    candidates.resize(end + left, TokenData::default());
    for touched in tokens.rev() {
        let place = place_of(touched.token, &candidates[..end]);
        candidates.copy_within(place..end, place + left);
        left -= 1;
        candidates[place + left] = TokenData {
            id: touched.token as Token,
            logit: touched.logit,
            p: 0.0,
        };
        end = place;
    }
}

/// The same as survivors; `max` is the largest.
#[expect(
    clippy::indexing_slicing,
    reason = "ranges and runs are of the vocabulary, each block of which has a maximum"
)]
pub(super) fn collect_packed(
    source: &Source<'_>,
    maxima: &[f32],
    (max, threshold): (f32, f32),
    survivors: &mut Packed,
) {
    survivors.clear(source.len(), max);
    let passes = |start: usize, end: usize| {
        let blocks = &maxima[start / GROUP..end.div_ceil(GROUP)];
        blocks.iter().any(|&max| max >= threshold)
    };
    source.for_each_run(GROUP, passes, |start, run| {
        let blocks = &maxima[start / GROUP..][..run.len().div_ceil(GROUP)];
        run.collect_packed(blocks, start as u32, threshold, survivors);
    });
}

/// Leaves the `k` largest in `candidates`, descending; fewer if fewer are unmasked, but one is. `k`
/// is at least 1.
pub(super) fn top_k(
    k: usize,
    source: &Source<'_>,
    maxima: &mut [f32],
    sample: &mut Vec<f32>,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<Item>,
) {
    let threshold = threshold_of(k, maxima, sample).unwrap_or_else(|| {
        let max = Logits::F32(maxima).max();
        sampled_threshold(k, max, source)
    });
    if blocks_from(threshold, maxima) > 2 * k + MANY_BLOCKS {
        collect_keys(k, source, maxima, threshold, candidates, keys);
    } else {
        collect(source, maxima, threshold, candidates);
        if candidates.len() < k && threshold > f32::MIN {
            collect(source, maxima, f32::MIN, candidates);
        }
        // How many pass differs from one token to the next: there is room for twice as many.
        let usual = 2 * candidates.len();
        reserve(candidates, usual + ROOM);
        reserve(keys, usual);
        if candidates.len() <= rank::MOST {
            sort_few(candidates);
            candidates.truncate(k);
            return;
        }
        keys.clear();
        keys.extend(candidates.iter().map(key_of));
    }
    keep_least(k, keys);
    keys.sort_unstable();
    candidates.clear();
    candidates.extend(keys.iter().map(|&key| candidate_of(key)));
}

/// So many more blocks than are usual reach a threshold where many logits are equal, or where the
/// largest lie together.
const MANY_BLOCKS: usize = 64;

/// How many of `maxima` reach `threshold`.
fn blocks_from(threshold: f32, maxima: &[f32]) -> usize {
    maxima.iter().filter(|&&max| max >= threshold).count()
}

/// The keys of the `k` largest logits, and of some more, of those from `threshold` on: part by part
/// of the vocabulary, the threshold rising above the `k` largest so far. Leaves nothing in
/// `candidates`.
#[expect(
    clippy::indexing_slicing,
    reason = "each block of the vocabulary has a maximum, and at least `k` keys are kept"
)]
fn collect_keys(
    k: usize,
    source: &Source<'_>,
    maxima: &[f32],
    mut threshold: f32,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<Item>,
) {
    let room = (4 * k).max(CHUNK);
    keys.clear();
    reserve(keys, room + CHUNK);
    let mut touched = source.touched;
    for start in (0..source.len()).step_by(CHUNK) {
        let end = source.len().min(start + CHUNK);
        let (here, later) = split_before(touched, end);
        touched = later;
        let blocks = &maxima[start / GROUP..end.div_ceil(GROUP)];
        candidates.clear();
        let part = source.logits.part(start, end);
        part.collect(blocks, start as u32, threshold, candidates);
        correct(here, threshold, candidates);
        keys.extend(candidates.iter().map(key_of));
        if keys.len() >= room {
            keep_least(k, keys);
            // Of equal ones those that come later lose.
            threshold = candidate_of(keys[k - 1]).logit.next_up();
        }
    }
    candidates.clear();
}

/// Leaves the `k` least keys, the largest of them last.
fn keep_least(k: usize, keys: &mut Vec<Item>) {
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
        keys.truncate(k);
    }
}

/// Sorts candidates, as few as can be ranked and in order of their tokens, descending, equals by
/// token.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: at most `MOST` candidates, and a rank is below their number"
)]
fn sort_few(candidates: &mut [TokenData]) {
    let (mut logits, mut ranks) = ([0.0; rank::MOST], [0; rank::MOST]);
    let mut unsorted = [TokenData::default(); rank::MOST];
    let n = candidates.len();
    unsorted[..n].copy_from_slice(candidates);
    for (to, candidate) in logits.iter_mut().zip(&*candidates) {
        *to = candidate.logit;
    }
    rank::ranks(&logits[..n], &mut ranks[..n]);
    for (candidate, rank) in unsorted[..n].iter().zip(ranks) {
        candidates[rank as usize] = *candidate;
    }
}

/// Sorts candidates descending, equals by token.
pub(super) fn sort(candidates: &mut Vec<TokenData>, keys: &mut Vec<Item>) {
    keys.clear();
    reserve(keys, candidates.len());
    keys.extend(candidates.iter().map(key_of));
    keys.sort_unstable();
    candidates.clear();
    candidates.extend(keys.iter().map(|&key| candidate_of(key)));
}

/// The same as `cut_nucleus` of a few candidates that may be too few: sorts them, and says
/// whether they are `enough`. If not, nothing is cut.
#[expect(
    clippy::indexing_slicing,
    reason = "`i` runs below the number of candidates"
)]
pub(super) fn cut_few(
    enough: Enough<f64>,
    max: f32,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<Item>,
) -> bool {
    let exponentials = candidates.iter().map(|c| f64::from(exp(c.logit - max)));
    if exponentials.sum::<f64>() < enough.sum * (1.0 - 1e-9) {
        return false;
    }
    sort(candidates, keys);
    let mut sum = 0.0;
    for i in 0..candidates.len() {
        sum += f64::from(exp(candidates[i].logit - max));
        if enough.at(sum, i + 1) {
            candidates.truncate(i + 1);
            return true;
        }
    }
    false
}

/// Keeps the `n` largest of `candidates`, sorted.
#[expect(
    clippy::indexing_slicing,
    reason = "keys have the indices of the candidates"
)]
pub(super) fn keep_largest(
    n: usize,
    candidates: &mut Vec<TokenData>,
    keys: &mut Vec<Item>,
    spare: &mut Vec<TokenData>,
) {
    keys.clear();
    reserve(keys, candidates.len());
    let ranks = candidates.iter().enumerate();
    keys.extend(ranks.map(|(i, c)| item(c.logit, i)));
    if n < keys.len() {
        keys.select_nth_unstable(n);
        keys.truncate(n);
    }
    keys.sort_unstable();
    spare.clear();
    reserve(spare, candidates.len());
    spare.extend(keys.iter().map(|&key| candidates[place(key)]));
    std::mem::swap(candidates, spare);
}

#[cfg(test)]
mod tests;
