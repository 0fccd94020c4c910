//! Whole-array arithmetic on candidates, with the results of the built-ins bit for bit.
//!
//! - [`math`]: the host's `expf` and `logf`.
//! - [`order`]: descending order, full or of the top k only.
//! - [`floats`]: passes over raw logits, for the sieve and the metrics, in arithmetic of their own.
//! - this file: maxima, softmax sums and rewriting, as one table of functions that is chosen once.
//!   [`instruction_set`] tells which; the environment's LLAMA_SIEVE_SIMD (scalar, avx2, avx512,
//!   neon) names another.
//!
//! `scalar` is the reference, in the operations of the built-ins; `portable` has the same passes
//! over a small vector trait, `vector`; `avx2`, `avx512` and `neon` instantiate them. What needs
//! more than one pass streams the 12-byte array once into 4 bytes per candidate of the sampler's
//! own [`Workspace`], which stays in the second-level cache: working in the array itself lost,
//! since every pass then moves three times the bytes.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_buckets;
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "only AVX-512 has registers enough")
)]
mod buckets;
pub mod descending;
pub mod deviation;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod exp;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod exp_double;
pub mod fallbacks;
pub mod few;
pub mod floats;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod ln;
pub mod math;
pub mod near;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod order;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable_floats;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable_near;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable_sums;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable_survivors;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod portable_wide;
pub mod ranking;
mod scalar;
mod scalar_floats;
pub mod survivors;
mod table;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_floats;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vector;

use std::ffi::CStr;

use crate::token::{TokenData, comparable};
use fallbacks::Fallback;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use table::instantiate;
use table::{SCALAR, Table, current};

/// How many elements are added at once where the order of additions allows it; of so many the sums
/// are kept.
const BLOCK: usize = 512;

/// Of so many candidates the largest logit is kept, where a later pass looks for those above a
/// threshold; a divisor of [`BLOCK`].
const GROUP: usize = 64;

/// How many elements go through several passes before the next ones are looked at, so that they
/// stay in the first-level cache.
pub const IN_CACHE: usize = 1024;

/// What is less than this of a `float` sum does not change it, nor does anything smaller after it:
/// a quarter of a unit.
const NOTHING: f32 = f32::EPSILON / 8.0;

/// A sum of squared deviations in the arithmetic of the built-in: squares in `double`, the sum
/// rounded to `float` every time.
struct Squares {
    mean: f32,
    sum: f32,
}

/// `peak - sharpness * d^2 / (1 + d)`, with d the distance from `target` times `per_width`.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    /// Where the curve is highest.
    pub target: f32,
    /// What distances are multiplied by.
    pub per_width: f32,
    /// The height there.
    pub peak: f32,
    /// How steeply it falls.
    pub sharpness: f32,
}

/// What is known of an array of candidates after its logits were copied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Column {
    /// The largest logit, minus infinity if there is none.
    pub max: f32,
    /// The smallest logit but minus infinity, `f32::MAX` if there is none.
    pub min: f32,
    /// Whether ids are indices, and no logit is NaN.
    pub plain: bool,
}

impl Squares {
    #[inline]
    fn add(&mut self, x: f32) {
        if x != f32::NEG_INFINITY {
            let deviation = f64::from(x - self.mean);
            self.sum = (f64::from(self.sum) + deviation * deviation) as f32;
        }
    }
}

/// Asks for the cache line of an element, if there is one, before it is needed. A hint: any number
/// will do.
#[inline(always)]
fn prefetch<T>(of: &[T], at: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: reads nothing and cannot fail; every processor of this architecture has it.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(of.as_ptr().wrapping_add(at).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (of, at);
}

/// The table, or the reference where a few terms are added sooner than all the conditions for
/// adding them at once are looked at.
fn table_for(n: usize) -> &'static Table {
    if n < BLOCK { &SCALAR } else { current() }
}

/// The instruction set that the kernels use.
pub fn instruction_set() -> &'static CStr {
    current().name
}

/// The largest logit; that of the first candidate if the array is `sorted`. Minus infinity when
/// empty.
///
/// Reads 12 bytes per candidate.
pub fn max_logit(data: &[TokenData], sorted: bool) -> f32 {
    match data.first() {
        Some(first) if sorted => comparable(first.logit),
        _ => (current().max)(data),
    }
}

/// Index of the largest logit, the first of equals; `None` when empty.
///
/// Reads 12 bytes per candidate.
pub fn argmax(data: &[TokenData]) -> Option<usize> {
    (!data.is_empty()).then(|| (current().argmax)(data))
}

/// The largest logit that is not minus infinity, [`f32::MIN`] if there is none. Appends to `to`, in
/// order, all candidates whose logits are at or above the largest plus `below`, which is not
/// positive, and some that are not. Reads 12 bytes per candidate.
pub fn near_max(data: &[TokenData], below: f32, to: &mut Vec<TokenData>) -> f32 {
    (current().near_max)(data, below, to)
}

/// Divides every logit by `by`. Reads and writes 12 bytes per candidate.
pub fn divide_logits(data: &mut [TokenData], by: f32) {
    (current().divide_logits)(data, by);
}

/// Makes every logit below `threshold` minus infinity. Reads 12 bytes per candidate, and writes
/// where something changes.
pub fn mask_below(data: &mut [TokenData], threshold: f32) {
    (current().mask_below)(data, threshold);
}

/// The sum of all logits but minus infinity, as if added in order, and how many those are. Reads 12
/// bytes per candidate.
pub fn signed_sum(data: &[TokenData]) -> (f32, usize) {
    (table_for(data.len()).signed_sum)(data)
}

/// The sum of squared deviations from `mean` of all logits but minus infinity, as if added in
/// order; then makes every logit below `threshold` minus infinity. Reads 12 bytes per candidate,
/// and writes where something changes.
pub fn squares_masking(data: &mut [TokenData], mean: f32, threshold: f32) -> f32 {
    (table_for(data.len()).squares_masking)(data, mean, threshold)
}

/// Appends the indices, counted from `first`, of all logits at or above `threshold`. Reads 12 bytes
/// per candidate.
pub fn at_least(data: &[TokenData], first: usize, threshold: f32, to: &mut Vec<u32>) {
    (current().at_least)(data, first as u32, threshold, to);
}

/// Appends the values at or above `threshold`, and their indices. Reads 4 bytes per element.
pub fn select(xs: &[f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>) {
    (current().select)(xs, threshold, indices, picked);
}

/// Replaces every x by `e^(x - max)`; gives `start` plus all of them, as if added one by one. No x
/// is far above `max`: [`Workspace::exponentiate_values`] is for those that may be. Reads and
/// writes 4 bytes per element.
pub fn exp_sum(start: f32, xs: &mut [f32], max: f32) -> f32 {
    (current().exp_sum)(start, xs, max)
}

/// Copies the logits, NaN as minus infinity, and tells about them and the ids. Reads 12 bytes per
/// candidate and writes 4.
pub fn column(data: &[TokenData], to: &mut Vec<f32>) -> Column {
    to.resize(data.len(), 0.0);
    (current().column)(data, to)
}

/// The same; appends the indices and values of the logits at or above `threshold`, too.
pub fn column_selecting(
    data: &[TokenData],
    to: &mut Vec<f32>,
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) -> Column {
    to.resize(data.len(), 0.0);
    (current().column_selecting)(data, to, threshold, indices, picked)
}

/// The sum of `exp(logit - max)`, a `float`, as if added in order; no logit is NaN or above `max`.
/// Reads 4 bytes per element.
pub fn softmax_sum(logits: &[f32], max: f32) -> f32 {
    if !max.is_finite() && !logits.is_empty() {
        // A difference of infinities is among them.
        return f32::NAN;
    }
    (current().softmax_sum)(logits, max)
}

/// `start` plus all terms, which are not negative, as if added one by one. Reads 4 bytes per
/// element.
pub fn sum(start: f32, xs: &[f32]) -> f32 {
    (current().sum)(start, xs)
}

/// About the sum of the probabilities whose keys are above `above`, right within 1e-4. Reads 8
/// bytes per element.
pub fn sum_above(keys: &[f32], ps: &[f32], above: f32) -> f32 {
    // Rounded to units so small that nothing is.
    const FINE: f32 = f32::from_bits(27 << 23);
    (current().tail)(keys, ps, above, f32::INFINITY, FINE, None)
}

/// Writes whole candidates, with each of `ps` divided by `by`. Reads 12 bytes per candidate and
/// writes 12.
pub fn write_divided(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f32) {
    (current().write_divided)(data, ids, logits, ps, by);
}

/// Writes whole candidates, with each of `ps` divided by `by` in `double`. Reads 12 bytes per
/// candidate and writes 12.
pub fn write_quotients(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f64) {
    (current().write_quotients)(data, ids, logits, ps, by);
}

/// Divides every `p` by `by`, into `original`, and puts `curve` of it in place of the logit, but
/// for candidates that are masked. Gives the largest, and whether all are numbers, NaN that came in
/// not counted. Reads and writes 12 bytes per candidate, and writes 4.
pub fn bend(data: &mut [TokenData], by: f32, original: &mut [f32], curve: Curve) -> (f32, bool) {
    (current().bend)(data, by, original, curve)
}

/// The natural logarithms. Reads and writes 4 bytes per element.
pub fn lns(xs: &[f32], to: &mut [f32]) {
    (current().lns)(xs, to);
}

/// What each probability adds to the entropy: -p ln p, and 0 for 0. Gives the smallest probability.
/// Reads and writes 4 bytes per element.
pub fn entropies(ps: &[f32], to: &mut [f32]) -> f32 {
    (current().entropies)(ps, to)
}

/// How far each surprisal, of which `lns` are the negatives, is from the entropy, negative. Reads
/// and writes 4 bytes per element.
pub fn nearness(lns: &[f32], entropy: f32, to: &mut [f32]) {
    (current().nearness)(lns, entropy, to);
}

/// Divides all. Reads and writes 4 bytes per element.
pub fn divide(xs: &mut [f32], by: f32) {
    (current().divide)(xs, by);
}

/// Writes the probabilities. Reads 4 bytes per candidate, and reads and writes its 12.
pub fn set_p(data: &mut [TokenData], ps: &[f32]) {
    (current().set_p)(data, ps);
}

/// Writes `exp(logit - max)` into every `p`; gives their sum in `double`, added in array order. For
/// the few candidates that are left at the end: in the array itself, one by one.
pub fn exponentiate(data: &mut [TokenData], max: f32) -> f64 {
    let mut sum = 0.0f64;
    for candidate in data {
        candidate.p = math::exp(comparable(candidate.logit) - max);
        sum += f64::from(candidate.p);
    }
    sum
}

/// What counts as the largest of logits, of which `largest` is: the first, if they are said to be
/// sorted.
fn claimed_max(data: &[TokenData], sorted: bool, largest: f32) -> f32 {
    match data.first() {
        Some(first) if sorted => comparable(first.logit),
        _ => largest,
    }
}

/// The table for `exp(x - max)` of values of which `largest` is the largest: only in an array that
/// is wrongly said to be sorted it lies so far above `max` that the vector instructions cannot do
/// it. Asked once, since a comparison for each register costs 7 in 100 of the pass.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn exp_table(largest: f32, max: f32) -> &'static Table {
    if largest - max >= exp::HIGHEST {
        return &SCALAR;
    }
    current()
}

/// Without vector instructions there is one table, for all values.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn exp_table(_largest: f32, _max: f32) -> &'static Table {
    &SCALAR
}

/// Where the running sum of `terms` reaches a draw times their sum, which both are in `drawn`;
/// `sums` are those up to the end of each block, of which there may be more.
///
/// `exactly` says it in the operations of the built-in. It is asked only where rounding could
/// decide: each of the built-in's two sums of n terms is off by less than n * 2^-53 of itself, a
/// quotient per term by one such unit more, and ours by less than n / 4 of them. All together that
/// is little more than half of the margin here.
///
/// A binary search among the sums of blocks, and one block of terms, twice.
fn choose<T>(
    terms: &[T],
    term: impl Fn(&T) -> f32 + Copy,
    sums: &[f64],
    drawn: (f64, f64),
    exactly: impl FnOnce(&[T]) -> usize,
) -> usize {
    let (sum, draw) = drawn;
    let margin = sum * (terms.len() + 16) as f64 * (2.0 * f64::EPSILON);
    let target = sum * draw;
    let earliest = reach(terms, term, sums, target - margin);
    let latest = reach(terms, term, sums, target + margin);
    match earliest {
        Some(chosen) if earliest == latest => chosen,
        _ => {
            Fallback::Draw.note();
            exactly(terms)
        }
    }
}

/// The first index at which the sum of the terms up to it reaches `target`.
#[expect(
    clippy::indexing_slicing,
    reason = "documented: there is a sum for each block of terms"
)]
fn reach<T>(terms: &[T], term: impl Fn(&T) -> f32, sums: &[f64], target: f64) -> Option<usize> {
    let sums = &sums[..terms.len().div_ceil(BLOCK)];
    let block = sums.partition_point(|&sum| sum < target);
    let mut sum = if block == 0 { 0.0 } else { sums[block - 1] };
    let start = block * BLOCK;
    for (i, x) in terms.iter().enumerate().skip(start).take(BLOCK) {
        sum += f64::from(term(x));
        if sum >= target {
            return Some(i);
        }
    }
    None
}

/// The softmax of candidates in their own probabilities, with the sums of its blocks in a buffer
/// that is reused.
///
/// Three passes, each beginning where the one before it ended, at what the caches still have: the
/// largest logit, the exponentials, and the division. What lost for `Dist`: copying the logits to a
/// [`Workspace`] in the first and writing the probabilities from there in the last. That buffer,
/// half a megabyte for 128,256 candidates, is cold by the time that a model has computed the next
/// logits.
#[derive(Clone, Debug)]
pub struct Softmax {
    sums: Vec<f64>,
    /// Scratch for one block.
    values: Box<[f32; BLOCK]>,
}

impl Default for Softmax {
    fn default() -> Self {
        Self {
            sums: Vec::new(),
            values: Box::new([0.0; BLOCK]),
        }
    }
}

impl Softmax {
    /// Writes `exp(logit - max)` into every `p`; gives their sum in `double`, as if added one by
    /// one. `sorted`: the first logit counts as the largest.
    ///
    /// Reads 12 bytes per candidate twice, and writes them once.
    pub fn exponentiate(&mut self, data: &mut [TokenData], sorted: bool) -> f64 {
        self.reserve(data.len());
        let largest = (current().max)(data);
        let max = claimed_max(data, sorted, largest);
        (exp_table(largest, max).exp_p)(data, max, &mut self.values, &mut self.sums)
    }

    /// The same, but gives their sum as a `float`, as if added in order.
    pub fn exponentiate_in_order(&mut self, data: &mut [TokenData], sorted: bool) -> f32 {
        let largest = (current().max)(data);
        let max = claimed_max(data, sorted, largest);
        self.exponentiate_from(data, largest, max)
    }

    /// The same of logits of which `largest` is the largest. Reads and writes 12 bytes per
    /// candidate.
    pub fn exponentiate_from(&mut self, data: &mut [TokenData], largest: f32, max: f32) -> f32 {
        (exp_table(largest, max).exp_p_in_order)(data, max, &mut self.values)
    }

    /// Divides every `p` by `by`; gives their sum in `double`, right but for the order of
    /// additions. Reads and writes 12 bytes per candidate.
    pub fn divide(&mut self, data: &mut [TokenData], by: f32) -> f64 {
        self.reserve(data.len());
        (current().divide_p)(data, by, &mut self.sums)
    }

    fn reserve(&mut self, n: usize) {
        let blocks = n.div_ceil(BLOCK);
        if self.sums.capacity() < blocks {
            self.sums
                .reserve(blocks.next_power_of_two() - self.sums.len());
        }
        self.sums.resize(blocks, 0.0);
    }

    /// Where the running sum of the `p` reaches `draw` times `sum`, which the last call gave;
    /// `exactly` says it in the operations of the built-in where rounding could decide.
    pub fn choose(
        &self,
        data: &[TokenData],
        sum: f64,
        draw: f64,
        exactly: impl FnOnce(&[TokenData]) -> usize,
    ) -> usize {
        choose(data, |c| c.p, &self.sums, (sum, draw), exactly)
    }
}

/// Divides every `p` by `by` in `double`. Reads and writes 12 bytes per candidate.
pub fn divide_p_double(data: &mut [TokenData], by: f64) {
    (current().divide_p_double)(data, by);
}

/// One `float` per candidate, and sums of them, in buffers that are reused.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    values: Vec<f32>,
    /// How many of `values` are in use.
    len: usize,
    sums: Vec<f64>,
}

impl Workspace {
    /// Makes room for `n` values. Grows, never shrinks, and leaves what is there: zeroing would be
    /// a pass of its own.
    pub fn reserve(&mut self, n: usize) {
        self.len = n;
        if self.values.len() < n {
            self.values.resize(n.next_power_of_two(), 0.0);
        }
        let blocks = n.div_ceil(BLOCK);
        if self.sums.len() < blocks {
            self.sums.resize(blocks.next_power_of_two(), 0.0);
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.values.capacity() * size_of::<f32>() + self.sums.capacity() * size_of::<f64>()
    }

    /// What the last call left, one per candidate.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn values(&self) -> &[f32] {
        &self.values[..self.len]
    }

    /// The same, to rewrite.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values[..self.len]
    }

    /// Takes the logits, NaN as minus infinity; gives the largest.
    ///
    /// Reads 12 bytes per candidate and writes 4.
    #[expect(clippy::indexing_slicing, reason = "just reserved")]
    pub fn take_logits(&mut self, data: &[TokenData]) -> f32 {
        self.reserve(data.len());
        (current().logits)(data, &mut self.values[..data.len()])
    }

    /// `exp(logit - max)` of every candidate; gives their sum, a `float`, as if added in order.
    /// `sorted`: the first logit counts as the largest.
    ///
    /// Reads 12 bytes per candidate once, and writes, reads and writes 4.
    pub fn exponentiate(&mut self, data: &[TokenData], sorted: bool) -> f32 {
        let largest = self.take_logits(data);
        self.exponentiate_values(largest, claimed_max(data, sorted, largest))
    }

    /// `exp(logit - max)` of descending logits, of which the first is the largest; gives their sum,
    /// a `float`, as if added in order.
    ///
    /// Reads 4 bytes per element and writes 4.
    pub fn exponentiate_sorted(&mut self, logits: &[f32]) -> f32 {
        self.reserve(logits.len());
        let max = logits.first().copied().unwrap_or(0.0);
        let mut sum = 0.0;
        let to = self.values_mut().chunks_mut(IN_CACHE);
        for (from, to) in logits.chunks(IN_CACHE).zip(to) {
            // The next ones are looked for while these are worked on.
            for line in (0..IN_CACHE).step_by(16) {
                prefetch(to, IN_CACHE + line);
                prefetch(from, IN_CACHE + line);
            }
            to.copy_from_slice(from);
            sum = (current().exp_sum)(sum, to, max);
        }
        sum
    }

    /// The entropy of the softmax of descending logits, of which the first is the largest, with the
    /// roundings of a `float` sum in their order. Probabilities of 0 add nothing.
    ///
    /// Both sums end where what follows is too small to change them. Reads 4 bytes per element and
    /// writes 4, once with an `exp` and once with a `ln`.
    #[expect(
        clippy::indexing_slicing,
        reason = "`start < done <= len` wherever values are read, and a part has at least one and at most `IN_CACHE` elements"
    )]
    pub fn entropy_of_sorted(&mut self, logits: &[f32]) -> f32 {
        self.reserve(logits.len());
        let mut sum = 0.0;
        let mut done = 0;
        while done < logits.len() && !(done > 0 && self.values[done - 1] < sum * NOTHING) {
            sum = self.exponentiate_next(sum, logits, &mut done);
        }
        let mut entropies = [0.0; IN_CACHE];
        let mut entropy = 0.0;
        let mut start = 0;
        while start < logits.len() {
            if start == done {
                self.exponentiate_next(0.0, logits, &mut done);
            }
            let end = done.min(start + IN_CACHE);
            let ps = &mut self.values[start..end];
            divide(ps, sum);
            let terms = &mut entropies[..ps.len()];
            (current().entropies)(ps, terms);
            entropy = (current().sum)(entropy, terms);
            // From 1 / e down -p ln p falls with p.
            if ps[ps.len() - 1] < 0.3 && terms[terms.len() - 1] < entropy * NOTHING {
                break;
            }
            start = end;
        }
        entropy
    }

    /// The exponentials of the next few descending logits; gives `sum` plus them.
    #[expect(
        clippy::indexing_slicing,
        reason = "`done < logits.len()`, and as many values are reserved"
    )]
    fn exponentiate_next(&mut self, sum: f32, logits: &[f32], done: &mut usize) -> f32 {
        let end = logits.len().min(*done + IN_CACHE);
        let values = &mut self.values[*done..end];
        values.copy_from_slice(&logits[*done..end]);
        *done = end;
        (current().exp_sum)(sum, values, logits[0])
    }

    /// Divides descending logits by `by`, which leaves the largest finite; then
    /// `exp(logit - largest)` and the sum in `double`, as [`exponentiate_as_double`] does.
    ///
    /// [`exponentiate_as_double`]: Self::exponentiate_as_double
    pub fn divide_and_exponentiate(&mut self, logits: &mut [f32], by: f32) -> f64 {
        self.reserve(logits.len());
        let max = logits.first().map_or(0.0, |x| x / by);
        let mut sum = 0.0;
        let to = self.values_mut().chunks_mut(IN_CACHE);
        for (from, to) in logits.chunks_mut(IN_CACHE).zip(to) {
            divide(from, by);
            to.copy_from_slice(from);
            sum = (current().exp_double)(sum, to, max);
        }
        sum
    }

    /// The same of values that are there, of which `largest` is the largest.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn exponentiate_values(&mut self, largest: f32, max: f32) -> f32 {
        (exp_table(largest, max).exp_sum)(0.0, &mut self.values[..self.len], max)
    }

    /// `exp(logit - max)` of `logits`; gives their sum in `double`, right but for the order of
    /// additions. Reads 4 bytes per element and writes 4.
    #[expect(clippy::indexing_slicing, reason = "just reserved")]
    pub fn exponentiate_beside(&mut self, logits: &[f32], max: f32) -> f64 {
        self.reserve(logits.len());
        let mut sums = [0.0; IN_CACHE / BLOCK];
        let mut sum = 0.0;
        let to = self.values[..logits.len()].chunks_mut(IN_CACHE);
        for (from, to) in logits.chunks(IN_CACHE).zip(to) {
            to.copy_from_slice(from);
            sum += (current().exp_sum_double)(to, max, &mut sums);
        }
        sum
    }

    /// As [`exponentiate`](Self::exponentiate) with a sum in `double`, as if added one by one;
    /// [`choose`](Self::choose) uses it.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn exponentiate_double(&mut self, data: &[TokenData], sorted: bool) -> f64 {
        let largest = self.take_logits(data);
        let max = claimed_max(data, sorted, largest);
        let values = &mut self.values[..self.len];
        (exp_table(largest, max).exp_sum_double)(values, max, &mut self.sums)
    }

    /// The same of logits by themselves, of which `max` is the largest.
    ///
    /// Reads 4 bytes per logit, and writes, reads and writes 4.
    #[expect(clippy::indexing_slicing, reason = "just reserved")]
    pub fn exponentiate_logits(&mut self, logits: &[f32], max: f32) -> f64 {
        self.reserve(logits.len());
        let values = &mut self.values[..logits.len()];
        values.copy_from_slice(logits);
        (current().exp_sum_double)(values, max, &mut self.sums)
    }

    /// `exp(logit - max)` with the difference in `double`, and the sum in `double`: right but for
    /// 2^-32 of each and the order of additions. `max` is finite and no logit larger.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn exponentiate_wide(&mut self, data: &[TokenData], max: f32) -> f64 {
        self.take_logits(data);
        (current().exp_wide)(&mut self.values[..self.len], max)
    }

    /// `exp(logit - max)` with difference, exponential and sum in `double`, bit for bit as the
    /// built-in has them.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn exponentiate_as_double(&mut self, data: &[TokenData], max: f32) -> f64 {
        let largest = self.take_logits(data);
        // What is above the first is in an array that is wrongly said to be sorted.
        let table = if largest > max { &SCALAR } else { current() };
        (table.exp_double)(0.0, &mut self.values[..self.len], max)
    }

    /// Probabilities of all candidates, normalised by the `float` sum, as top-p and typical have
    /// them.
    pub fn softmax(&mut self, data: &[TokenData], sorted: bool) {
        let sum = self.exponentiate(data, sorted);
        divide(self.values_mut(), sum);
    }

    /// The sum of all values in `double`, right but for the order of additions;
    /// [`choose`](Self::choose) uses it.
    ///
    /// Reads 4 bytes per candidate.
    #[expect(clippy::indexing_slicing, reason = "`reserve` made room for `len`")]
    pub fn sum_double(&mut self) -> f64 {
        (current().sum_double)(&self.values[..self.len], &mut self.sums)
    }

    /// Divides the values by `sum` and writes them as probabilities.
    pub fn normalise(&mut self, data: &mut [TokenData], sum: f32) {
        divide(self.values_mut(), sum);
        set_p(data, self.values());
    }

    /// Where the running sum of the values reaches `draw` times their sum, as the function `choose`
    /// has it. `sum` is what the last call gave.
    pub fn choose(&self, sum: f64, draw: f64, exactly: impl FnOnce(&[f32]) -> usize) -> usize {
        choose(
            self.values(),
            |&value| value,
            &self.sums,
            (sum, draw),
            exactly,
        )
    }

    /// Writes the values divided by `by` in `double` as probabilities.
    pub fn write_p_divided(&self, data: &mut [TokenData], by: f64) {
        (current().set_quotients)(data, self.values(), by);
    }
}
