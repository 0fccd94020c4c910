//! The bucket sort with which the built-ins begin if they sort the `k` largest candidates for a `k`
//! above 128: all candidates are distributed over 128 buckets by their logits, in array order, and
//! only the buckets of the largest are sorted.

use super::item::{Item, item};
use crate::algorithms::scratch::room;
use crate::host_profile::{Fused, fuses};
use crate::simd::libm::fma;
use crate::simd::{Vector, dispatched};

/// The number of buckets.
pub(super) const COUNT: usize = 128;
/// The number of buckets per unit of the logit: they divide the range from -10 to 10.
const SCALE: f32 = COUNT as f32 / 20.0;
const ZERO: f32 = 10.0 * SCALE;
/// The number of logits whose buckets are compared at once.
const LOOK: usize = 32;
/// The least float that does not fit the host's `int`.
const INT_LIMIT: f32 = 2_147_483_648.0;

/// Returns true if a logit is so large that the number of its bucket does not fit an `int`.
///
/// On x86-64 the conversion then gives the smallest `int`, and the logit gets into the lowest
/// bucket. An infinite logit, by which another sampler forces a token, is then sorted last.
#[inline]
pub fn overflows(logit: f32) -> bool {
    cfg!(target_arch = "x86_64") && scaled(logit, fuses(Fused::Bucket)) >= INT_LIMIT
}

/// Returns a logit in units of buckets, counted from the lowest.
#[inline(always)]
fn scaled(logit: f32, fused: bool) -> f32 {
    match fused {
        true => fma(logit, SCALE, ZERO),
        false => SCALE * logit + ZERO,
    }
}

/// Returns the bucket of a logit, the lowest for NaN.
pub(super) fn number(logit: f32) -> u8 {
    number_by(logit, fuses(Fused::Bucket))
}

/// Returns a predicate that is true for the logits of a bucket.
pub(super) fn is_in(bucket: u8) -> impl Fn(f32) -> bool {
    let fused = fuses(Fused::Bucket);
    move |logit| number_by(logit, fused) == bucket
}

/// Returns the bucket of a logit, as a host computes it with or without a fused expression.
#[inline(always)]
fn number_by(logit: f32, fused: bool) -> u8 {
    let exact = scaled(logit, fused);
    let fits = exact < INT_LIMIT || !cfg!(target_arch = "x86_64");
    // This form turns NaN into 0.
    let number = if fits && exact > 0.0 { exact } else { 0.0 };
    const LAST: f32 = (COUNT - 1) as f32;
    let number = if number < LAST { number } else { LAST };
    // SAFETY: `number` is between 0 and `LAST`. A checked conversion would take the lanes of a
    // vector register one by one.
    unsafe { number.to_int_unchecked::<i32>() as u8 }
}

dispatched! {
    /// Writes the number of each logit's bucket into `to`.
    fn write_numbers(logits: &[f32], to: &mut [u8], fused: bool) => write_numbers_on;
}

#[inline(always)]
fn write_numbers_on<V: Vector>(_: V, logits: &[f32], to: &mut [u8], fused: bool) {
    let all = to.iter_mut().zip(logits);
    match fused {
        true => all.for_each(|(to, &logit)| *to = number_by(logit, true)),
        false => all.for_each(|(to, &logit)| *to = number_by(logit, false)),
    }
}

/// Returns the least logit that is in this bucket or a higher one.
pub(super) fn least(bucket: usize) -> f32 {
    if bucket == 0 {
        return f32::NEG_INFINITY;
    }
    // Even with rounding, the bucket's number never falls as the logit rises, so bisection finds
    // the least logit.
    let fused = fuses(Fused::Bucket);
    let (mut below, mut from) = (-16.0f32, 16.0f32);
    while below.next_up() < from {
        let middle = below + (from - below) / 2.0;
        let middle = middle.clamp(below.next_up(), from.next_down());
        if usize::from(number_by(middle, fused)) < bucket {
            below = middle;
        } else {
            from = middle;
        }
    }
    from
}

/// The buckets of an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Buckets {
    numbers: Vec<u8>,
    /// The number of logits in each bucket.
    counts: Vec<u32>,
}

room!(Buckets: counts; numbers);

impl Buckets {
    /// Finds the bucket of each logit, and counts the logits of each bucket.
    pub(super) fn count(&mut self, logits: &[f32]) {
        self.numbers.resize(logits.len(), 0);
        write_numbers(logits, &mut self.numbers, fuses(Fused::Bucket));
        // Four tables, since adjacent logits often share a bucket, and reading a count that was
        // just written is slow.
        let mut counts = [[0u32; COUNT]; 4];
        let fours = self.numbers.chunks_exact(4);
        for &n in fours.remainder() {
            counts[0][usize::from(n) % COUNT] += 1;
        }
        for four in fours {
            for (counts, &n) in counts.iter_mut().zip(four) {
                counts[usize::from(n) % COUNT] += 1;
            }
        }
        self.counts.clear();
        let sums = (0..COUNT).map(|i| counts.iter().map(|counts| counts[i]).sum::<u32>());
        self.counts.extend(sums);
    }

    /// Returns the number of logits in a bucket.
    pub(super) fn len(&self, bucket: usize) -> usize {
        self.counts.get(bucket).map_or(0, |&count| count as usize)
    }

    /// Returns the number of logits in the buckets above this one.
    pub(super) fn above(&self, bucket: usize) -> usize {
        (bucket + 1..COUNT).map(|above| self.len(above)).sum()
    }

    /// Returns the highest bucket that, together with the buckets above it, has at least `k`
    /// logits; the lowest if there are fewer.
    pub(super) fn holding(&self, k: usize) -> usize {
        let mut have = 0;
        let enough = |&bucket: &usize| {
            have += self.len(bucket);
            have >= k
        };
        (0..COUNT).rev().find(enough).unwrap_or(0)
    }

    /// Writes the logits of the bucket `lowest` and of all above it into `items`, the highest
    /// bucket first, each in array order. `place` returns the index of the i-th logit.
    pub(super) fn deal(
        &self,
        logits: &[f32],
        lowest: usize,
        place: impl Fn(usize) -> usize,
        items: &mut Vec<Item>,
    ) {
        self.deal_from(logits, lowest, place, items);
    }

    /// Writes the logits of all buckets into `items`, the highest bucket first, each in array
    /// order.
    pub(super) fn deal_all(&self, logits: &[f32], items: &mut Vec<Item>) {
        self.deal_from(logits, 0, |i| i, items);
    }

    /// Implements `deal`. Inlined, so that dealing all buckets needs no comparison.
    #[inline(always)]
    // In bounds: bucket numbers are below `COUNT`; places are below the sum of the counts.
    fn deal_from(
        &self,
        logits: &[f32],
        lowest: usize,
        place: impl Fn(usize) -> usize,
        items: &mut Vec<Item>,
    ) {
        let mut places = [0; COUNT];
        let mut n = 0;
        for bucket in (lowest..COUNT).rev() {
            places[bucket] = n;
            n += self.len(bucket);
        }
        // Every item is overwritten. If all buckets are dealt, clearing the items first brings them
        // into the cache.
        if lowest == 0 {
            items.clear();
        }
        items.resize(n, 0);
        let numbers = self.numbers.chunks(LOOK).zip((0..).step_by(LOOK));
        for (numbers, start) in numbers {
            // Usually no logit of the chunk is wanted. The search for the largest number is
            // vectorized, while a search for the first wanted number would not be.
            let highest = numbers.iter().fold(0, |highest: u8, &n| highest.max(n));
            if usize::from(highest) < lowest {
                continue;
            }
            let least = numbers.iter().fold(u8::MAX, |least: u8, &n| least.min(n));
            if least == highest {
                // All in one bucket, as in a sorted array.
                let first = places[usize::from(least)];
                places[usize::from(least)] += numbers.len();
                let to = items[first..first + numbers.len()].iter_mut();
                to.zip(start..)
                    .for_each(|(to, i)| *to = item(logits[i], place(i)));
                continue;
            }
            for (i, &bucket) in (start..).zip(numbers) {
                let bucket = usize::from(bucket);
                if bucket >= lowest {
                    items[places[bucket]] = item(logits[i], place(i));
                    places[bucket] += 1;
                }
            }
        }
    }
}
