//! Arrays that distinguish C++ libraries by the order in which these leave equal logits.
//!
//! For more than 128 largest the built-ins deal candidates into buckets by their logits, and sort
//! each with `std::sort`; the one that contains the last is sorted with `std::partial_sort`. So one
//! array has a range for each size and kind at which some library sorts differently, each in its
//! own bucket.

use crate::algorithms::host_order::killer;
use crate::lcg::Lcg;
use crate::token::{Token, TokenData};

/// The number of largest candidates that are requested: all except some of the last range.
pub(super) const LARGEST: i32 = 6226;

/// The ranges in random order: on both sides of each size at which some library changes its method,
/// and larger ones, whose parts have many sizes.
const SIZES: [u32; 16] = [
    16, 17, 23, 24, 30, 31, 32, 33, 41, 42, 128, 129, 300, 700, 999, 1000,
];
/// The size of the ranges in other orders.
const OTHERS: u32 = 200;
/// The size of the last range.
const LAST: u32 = 400;
/// The largest number of values in a range.
const VALUES: u32 = 128;

/// The size of a range on which a sort runs out of levels.
const KILLER: usize = 64;
/// The size of such a range for Microsoft's sort, whose levels split off more items.
const KILLER_OF_MSVC: usize = 128;
const LEVELS: usize = 12;

/// Returns numbers from which a library's sort splits off the two least at each level, since the
/// second least is the median of three: of the first, the middle and the last. The numbers left for
/// the heap are tied.
///
/// `front` is the index of the first number at the front; the first number of the middle is at the
/// end, if `from_end`.
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

/// Returns numbers from which the sort of Microsoft's library splits off the four least at each
/// level. The numbers left for the heap are tied.
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

/// Returns rising numbers, each of which occurs three times, some of them exchanged with a nearby
/// one.
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

/// Returns rising numbers, each of which occurs four times, so that a partition exchanges none. In
/// the left half the given number of items have to move by one position, and one more by four, in
/// the middle of that half: a partition would exchange it with an equal one.
// In bounds: no more than ten are to be moved.
fn to_be_moved(n: usize) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..OTHERS).map(|i| i / 4).collect();
    (1..=n).for_each(|i| numbers.swap(4 * i + 3, 4 * i + 4));
    let middle = numbers.len() / 4;
    numbers.swap(middle - 3, middle + 1);
    numbers
}

/// Returns all ranges, each with the least number first.
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

/// Returns the arrays for top-k: all ranges, each in a bucket, and one that only a heap sorts.
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

/// Returns the arrays for typical, which are wrongly marked as sorted. One candidate is likely, so
/// that the sort orders the others by their logits.
pub(super) fn of_typical(random: &mut Lcg) -> Vec<Vec<TokenData>> {
    let logit = |number| match number {
        0 => 12.0,
        _ => -(number as f32) / 64.0,
    };
    let array = |_| candidates(killer_of_libcxx_17(random).into_iter().map(logit));
    (0..8).map(array).collect()
}

fn candidates(logits: impl IntoIterator<Item = f32>) -> Vec<TokenData> {
    let candidate = |(id, logit): (Token, f32)| TokenData { id, logit, p: 0.0 };
    (0..).zip(logits).map(candidate).collect()
}
