//! Arrays that distinguish C++ libraries by the order in which their sorts leave equal logits.
//!
//! If more than the 128 largest candidates are requested, the built-ins distribute the candidates
//! to buckets by their logits. They sort the bucket with the last requested candidate with
//! `std::partial_sort`, and those above it with `std::sort`. So one array can have many ranges,
//! each in its own bucket: one for each size and kind at which some library sorts differently.

use crate::algorithms::host_order::killer;
use crate::lcg::Lcg;
use crate::token::{Token, TokenData};

/// The number of largest candidates that are requested: all candidates except some of the last
/// range.
pub(super) const LARGEST: i32 = 6226;

/// The sizes of the ranges in random order: on both sides of each size at which some library
/// changes its method, and larger ones, which are partitioned into parts of many sizes.
const SIZES: [u32; 16] = [
    16, 17, 23, 24, 30, 31, 32, 33, 41, 42, 128, 129, 300, 700, 999, 1000,
];
/// The size of the ranges that are not in random order.
const OTHERS: u32 = 200;
/// The size of the last range.
const LAST: u32 = 400;
/// The largest number of different values in a range.
const VALUES: u32 = 128;

/// The size of a range on which a sort exceeds its depth limit.
const KILLER: usize = 64;
/// The size of such a range for Microsoft's sort, which splits off more items at each level.
const KILLER_OF_MSVC: usize = 128;
const LEVELS: usize = 12;

/// Returns numbers from which a library's sort splits off only the two smallest at each level,
/// since the second smallest is the median of a number at the front, the middle one and the last
/// one. The numbers that are left for the heap sort are tied.
///
/// `front` is the index of the front number of the first level. If `from_end` is true, the middle
/// number of the first level is at the end.
// In bounds: the places are below `KILLER`.
fn killer(front: usize, from_end: bool, random: &mut Lcg) -> Vec<u32> {
    let tied = |_| 2 * LEVELS as u32 + below(8, random);
    let mut numbers: Vec<u32> = (0..KILLER).map(tied).collect();
    for level in 0..LEVELS {
        let in_middle = match (from_end, level) {
            (true, 0) => KILLER - 1,
            (true, _) => KILLER / 2 + level - 1,
            (false, _) => KILLER / 2 + level,
        };
        numbers[2 * level + front] = (2 * level + front) as u32;
        numbers[in_middle] = (2 * level + 1 - front) as u32;
    }
    numbers
}

fn killer_of_libstdcxx(random: &mut Lcg) -> Vec<u32> {
    killer(1, false, random)
}

fn killer_of_libcxx_14(random: &mut Lcg) -> Vec<u32> {
    killer(0, false, random)
}

fn killer_of_libcxx_17(random: &mut Lcg) -> Vec<u32> {
    killer(0, true, random)
}

/// Returns numbers from which the sort of Microsoft's library splits off only the four smallest at
/// each level. The numbers that are left for the heap sort are tied.
fn killer_of_msvc(random: &mut Lcg) -> Vec<u32> {
    let numbers = killer::of_msvc(KILLER_OF_MSVC);
    let is_last = |number: &u32| *number == KILLER_OF_MSVC as u32;
    let taken_off = numbers.iter().filter(|number| !is_last(number)).count() as u32;
    let number = |number: u32| match is_last(&number) {
        true => taken_off + below(8, random),
        false => number,
    };
    numbers.into_iter().map(number).collect()
}

fn below(n: u32, random: &mut Lcg) -> u32 {
    (random.bits() >> 16) % n
}

/// Returns `n` random numbers, each of which occurs about twice or more often.
fn random_numbers(n: u32, random: &mut Lcg) -> Vec<u32> {
    let values = (n / 2).min(VALUES);
    (0..n).map(|_| below(values, random)).collect()
}

/// Returns ascending numbers, each of which occurs three times, after `exchanged` exchanges of a
/// random number with a nearby one.
// In bounds: places are below their number.
fn mostly_rising(exchanged: u32, random: &mut Lcg) -> Vec<u32> {
    const NEAR: u32 = 8;
    let mut numbers: Vec<u32> = (0..OTHERS).map(|i| i / 3).collect();
    for _ in 0..exchanged {
        let place = below(OTHERS - NEAR, random);
        numbers.swap(place as usize, (place + below(NEAR, random)) as usize);
    }
    numbers
}

/// Returns ascending numbers, each of which occurs four times, so a partition exchanges none of
/// them. In the left half, `n` items have to move by one position, and one more by four positions,
/// in the middle of that half; a partition would exchange that one with an equal number.
// In bounds: no more than ten are to be moved.
fn to_be_moved(n: usize) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..OTHERS).map(|i| i / 4).collect();
    (1..=n).for_each(|i| numbers.swap(4 * i + 3, 4 * i + 4));
    let middle = numbers.len() / 4;
    numbers.swap(middle - 3, middle + 1);
    numbers
}

/// Returns the numbers of all ranges. In each range, a smaller number means a larger logit.
pub(super) fn ranges(random: &mut Lcg) -> Vec<Vec<u32>> {
    let mut ranges: Vec<Vec<u32>> = Vec::new();
    ranges.extend(SIZES.map(|n| random_numbers(n, random)));
    ranges.extend([0, 12, 40].map(|exchanged| mostly_rising(exchanged, random)));
    ranges.extend([6, 7, 8, 9].map(to_be_moved));
    let rising = mostly_rising(0, random);
    ranges.push(rising.iter().rev().copied().collect());
    let pipe = rising
        .iter()
        .step_by(2)
        .chain(rising.iter().rev().step_by(2));
    ranges.push(pipe.copied().collect());
    ranges.push(vec![0; OTHERS as usize]);
    ranges.push((0..OTHERS).map(|_| below(2, random)).collect());
    ranges.push(killer_of_libstdcxx(random));
    ranges.push(killer_of_libcxx_14(random));
    ranges.push(killer_of_libcxx_17(random));
    ranges.push(killer_of_msvc(random));
    ranges.push(random_numbers(LAST, random));
    ranges
}

/// Returns the arrays for top-k: one with all ranges, each in a bucket, and one that is sorted only
/// by a heap.
pub(super) fn of_top_k(random: &mut Lcg) -> Vec<Vec<TokenData>> {
    const WIDTH: f32 = 20.0 / 128.0;
    let mut logits = Vec::new();
    for (range, bucket) in ranges(random).into_iter().zip((0..40).rev()) {
        let least = WIDTH * (bucket as f32 + 0.0625);
        let logit = |number| least + (VALUES - 1 - number) as f32 / 1024.0;
        logits.extend(range.into_iter().map(logit));
    }
    let few = random_numbers(100, random);
    let few = few.into_iter().map(|number| number as f32 / 8.0);
    vec![candidates(logits), candidates(few)]
}

/// Returns the arrays for typical, which are wrongly marked as sorted. One candidate of each is
/// likely, so the sort orders the others by their logits.
pub(super) fn of_typical(random: &mut Lcg) -> Vec<Vec<TokenData>> {
    let logit = |number| match number {
        0 => 12.0,
        _ => -(number as f32) / 64.0,
    };
    let array = |_| candidates(killer_of_libcxx_17(random).into_iter().map(logit));
    (0..8).map(array).collect()
}

fn candidates(logits: impl IntoIterator<Item = f32>) -> Vec<TokenData> {
    let candidate = |(id, logit): (Token, f32)| TokenData::new(id, logit);
    (0..).zip(logits).map(candidate).collect()
}
