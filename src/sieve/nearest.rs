//! The candidates nearest to some logit, until together they are probable enough: typical and top-p
//! on many candidates, in time that does not depend on how their logits lie.
//!
//! A histogram of the distances, with sums of exponentials, gives the bin that the cut falls into.
//! Of that alone the keys are halved until the last one kept is found. What lost: sorting keys of
//! all, in growing portions; computing distances again in each pass instead of keeping them.

use crate::kernels;
use crate::memory::reserve;
use crate::samplers::running::Enough;
use crate::token::TokenData;

/// Sixteen bins for each doubling of the distance, from 2^-20 on.
const BINS: usize = 512;
const SHIFT: u32 = 19;
const FIRST: u32 = (127 - 20) << (23 - SHIFT);

/// The candidates of a bin.
#[derive(Clone, Copy, Default)]
struct Bin {
    sum: f64,
    n: usize,
}

/// What a pass may write behind the last that it selects.
const PADDING: usize = 64;

/// Buffers, to be used again.
#[derive(Clone, Debug, Default)]
pub(super) struct Nearest {
    /// How near each logit is: its distance, negative.
    nearness: Vec<f32>,
    /// Which are as near as the last one kept or about so, and how near.
    places: Vec<u32>,
    picked: Vec<f32>,
}

/// Buffers that other stages use, too.
pub(super) struct Buffers<'a> {
    pub keys: &'a mut Vec<u64>,
    pub spare: &'a mut Vec<TokenData>,
    pub exponentials: &'a mut crate::algorithms::Workspace,
}

impl Nearest {
    /// Makes room for `n` candidates.
    pub(super) fn reserve(&mut self, n: usize) {
        reserve(&mut self.nearness, n);
        // The passes write whole registers behind the last.
        reserve(&mut self.places, n + PADDING);
        reserve(&mut self.picked, n + PADDING);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let floats = self.nearness.capacity() + self.picked.capacity();
        (floats + self.places.capacity()) * size_of::<f32>()
    }

    /// Leaves the candidates whose logits are nearest to `centre`, in their order; of equally near
    /// ones the first. As few as together have a share of the probability that is `enough`, which
    /// asks for at least one; all if no share is. No logit is masked or infinite.
    #[expect(
        clippy::indexing_slicing,
        reason = "there are a weight and a nearness for each candidate, whose places the others are"
    )]
    pub(super) fn keep(
        &mut self,
        centre: f64,
        enough: Enough<f64>,
        candidates: &mut Vec<TokenData>,
        buffers: &mut Buffers<'_>,
    ) {
        let Buffers {
            keys,
            spare,
            exponentials,
        } = buffers;
        let n = candidates.len();
        let total = exponentials.exponentiate_double(candidates, false);
        let weights = exponentials.values();
        let is_enough = |sum: f64, n: usize| enough.at(sum / total, n);
        self.measure(centre, candidates);
        let Some((cut, before)) = cut(&histogram(&self.nearness, weights), is_enough) else {
            return;
        };
        self.pick_from(cut);
        keys.clear();
        reserve(keys, n);
        let picked = self.places.iter().zip(&self.picked);
        let of_cut = picked.clone().filter(|&(_, &near)| bin_of(near) == cut);
        keys.extend(of_cut.map(|(&place, &near)| key(place, near)));
        let weight = |&key: &u64| f64::from(weights[key as u32 as usize]);
        let last = last_kept(keys, weight, before, is_enough);
        spare.clear();
        reserve(spare, n);
        let kept = picked.filter(|&(&place, &near)| key(place, near) <= last);
        spare.extend(kept.map(|(&place, _)| candidates[place as usize]));
        std::mem::swap(candidates, spare);
    }

    fn measure(&mut self, centre: f64, candidates: &[TokenData]) {
        self.nearness.clear();
        reserve(&mut self.nearness, candidates.len());
        let near = |c: &TokenData| -((centre - f64::from(c.logit)).abs() as f32);
        self.nearness.extend(candidates.iter().map(near));
    }

    /// Takes what is in the bins up to this one.
    fn pick_from(&mut self, bin: usize) {
        self.places.clear();
        self.picked.clear();
        self.reserve(self.nearness.len());
        let furthest = furthest_of(bin);
        kernels::select(
            &self.nearness,
            -furthest,
            &mut self.places,
            &mut self.picked,
        );
    }
}

/// Falls as `near`, which is a negative distance, rises, above the place.
#[inline]
fn key(place: u32, near: f32) -> u64 {
    // Distances are not negative, so they order as their bits do.
    u64::from(near.abs().to_bits()) << 32 | u64::from(place)
}

/// Does not fall where the distance rises.
#[inline]
fn bin_of(near: f32) -> usize {
    let bin = (near.abs().to_bits() >> SHIFT).saturating_sub(FIRST) as usize;
    bin.min(BINS - 1)
}

/// The largest distance in a bin.
fn furthest_of(bin: usize) -> f32 {
    if bin == BINS - 1 {
        return f32::MAX;
    }
    f32::from_bits(((FIRST + bin as u32 + 1) << SHIFT) - 1)
}

/// Neighbours go to different copies: to add to a number takes longer than to come to the next one.
#[expect(
    clippy::indexing_slicing,
    reason = "`bin_of` gives a number below `BINS`"
)]
fn histogram(nearness: &[f32], weights: &[f32]) -> [Bin; BINS] {
    let mut copies = [[Bin::default(); BINS]; 2];
    let [even, odd] = &mut copies;
    let add = |copy: &mut [Bin; BINS], near: f32, weight: f32| {
        let bin = &mut copy[bin_of(near)];
        bin.sum += f64::from(weight);
        bin.n += 1;
    };
    let (pairs, of_pairs) = (nearness.as_chunks::<2>(), weights.as_chunks::<2>());
    for (near, weight) in pairs.0.iter().zip(of_pairs.0) {
        add(even, near[0], weight[0]);
        add(odd, near[1], weight[1]);
    }
    for (&near, &weight) in pairs.1.iter().zip(of_pairs.1) {
        add(even, near, weight);
    }
    for (bin, other) in even.iter_mut().zip(odd) {
        bin.sum += other.sum;
        bin.n += other.n;
    }
    copies[0]
}

/// The bin in which the nearest become enough, and what comes before it.
fn cut(bins: &[Bin; BINS], is_enough: impl Fn(f64, usize) -> bool) -> Option<(usize, Bin)> {
    let mut before = Bin::default();
    for (place, bin) in bins.iter().enumerate() {
        let (sum, n) = (before.sum + bin.sum, before.n + bin.n);
        if is_enough(sum, n) {
            return Some((place, before));
        }
        before = Bin { sum, n };
    }
    None
}

/// The last of the least keys that together with what comes `before` are `enough`, which all of
/// them are. Time proportional to their number.
#[expect(
    clippy::indexing_slicing,
    reason = "`start < middle < end <= keys.len()`"
)]
fn last_kept(
    keys: &mut [u64],
    weight: impl Fn(&u64) -> f64,
    before: Bin,
    enough: impl Fn(f64, usize) -> bool,
) -> u64 {
    let (mut start, mut end) = (0, keys.len());
    let mut sum = before.sum;
    if keys.is_sorted() {
        // Many equally near, say.
        let last = keys.iter().zip(before.n + 1..).find(|&(key, n)| {
            sum += weight(key);
            enough(sum, n)
        });
        return last.map_or(u64::MAX, |(&key, _)| key);
    }
    while end - start > 1 {
        let middle = start + (end - start) / 2;
        keys[start..end].select_nth_unstable(middle - start);
        let lower = sum + keys[start..middle].iter().map(&weight).sum::<f64>();
        if enough(lower, before.n + middle) {
            end = middle;
        } else {
            (start, sum) = (middle, lower);
        }
    }
    keys.get(start).copied().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
