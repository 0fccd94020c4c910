//! Sums logits and their squares: approximately, for bounds, or in the order and the arithmetic of
//! the built-in.

use super::column::copy_logits_on;
use super::layout::{GROUP, SUM_BLOCK, binade};
use super::registers::{FAR, prefetch_candidates};
use super::sequential_sum::{PART, QUARTER, SMALLEST};
use super::signed_sum::{add_signed_block, stays};
use crate::simd::{Vector, dispatched};
use crate::token::{TokenData, comparable};

dispatched! {
    /// Returns the largest logit and, if `in_order` and it is cheap, the sum of all as if added one
    /// by one. `sums` receives the sums of the logits and of their squares up to the end of each
    /// block of [`SUM_BLOCK`], whose last bits depend on the instruction set. `maxima` receives the
    /// largest of each group of [`GROUP`]. If a logit is not finite, the sums are not those of the
    /// other logits. Reads 12 bytes per candidate.
    pub fn moments(
        data: &[TokenData], sums: &mut [[f64; 2]], maxima: &mut [f32], in_order: bool,
    ) -> (f32, Option<f32>) => moments_on;
    /// Returns the sum of squared deviations from `mean` of all logits except minus infinity, as if
    /// added in order. Then sets every logit below `threshold` to minus infinity. Reads 12 bytes
    /// per candidate.
    pub fn squares_masking(data: &mut [TokenData], mean: f32, threshold: f32) -> f32
        => squares_masking_on;
    /// Writes the `sums` of [`moments`] for a column of logits. Reads 4 bytes per logit.
    pub fn moments_of_logits(logits: &[f32], sums: &mut [[f64; 2]]) => moments_of_logits_on;
    /// Returns the sum that [`squares_masking`] returns, for a column of logits without NaN. Reads
    /// 4 bytes per logit.
    pub fn squares_of_logits(logits: &[f32], mean: f32) -> f32 => squares_of_logits_on;
}

/// A sum of squared deviations in the arithmetic of the built-in: squares in `double`, and a sum
/// that is rounded to `float` after each addition.
struct Squares {
    mean: f32,
    sum: f32,
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

#[inline(always)]
fn moments_on<V: Vector>(
    v: V,
    data: &[TokenData],
    sums: &mut [[f64; 2]],
    maxima: &mut [f32],
    in_order: bool,
) -> (f32, Option<f32>) {
    let sum = match in_order {
        true => moments_and_sum::<V, true>(v, data, sums, maxima),
        false => moments_and_sum::<V, false>(v, data, sums, maxima),
    };
    let mut total = [0.0; 2];
    for sums in sums {
        total = [total[0] + sums[0], total[1] + sums[1]];
        *sums = total;
    }
    (
        maxima.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        sum,
    )
}

/// Writes the moments of each block into `sums` and the largest of each group into `maxima`, and
/// returns the sum of all logits as if added one by one, if `IN_ORDER` and it is cheap.
#[inline(always)]
fn moments_and_sum<V: Vector, const IN_ORDER: bool>(
    v: V,
    data: &[TokenData],
    sums: &mut [[f64; 2]],
    maxima: &mut [f32],
) -> Option<f32> {
    let mut sum = 0.0;
    let mut refused = 0;
    // If more blocks need sequential additions, as for a sum that stays near 0, the sum is
    // abandoned.
    let most = 16 + data.len().div_ceil(SUM_BLOCK) / 8;
    let largest = maxima.chunks_mut(SUM_BLOCK / GROUP);
    for ((block, sums), maxima) in data.chunks(SUM_BLOCK).zip(sums).zip(largest) {
        let (moments, after) = block_moments::<V, IN_ORDER>(v, block, maxima, sum);
        *sums = moments;
        if !IN_ORDER {
            continue;
        }
        sum = match after {
            Some(after) => after,
            None if refused <= most => {
                refused += 1;
                in_order(v, sum, block)
            }
            None => sum,
        };
    }
    (IN_ORDER && refused <= most).then_some(sum)
}

/// Returns `sum` plus the logits of a block, as if added one by one. Called for blocks that cannot
/// be added at once.
#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` candidates.
fn in_order<V: Vector>(v: V, sum: f32, block: &[TokenData]) -> f32 {
    let mut values = [0.0; SUM_BLOCK];
    let values = &mut values[..block.len()];
    copy_logits_on(v, block, values);
    add_signed_block(v, (sum, 0), values).0
}

/// The least magnitude of a sum that is computed together with the moments. Terms whose squares are
/// denormal are negligible beside such a sum.
const NOT_TINY: f32 = 1e-12;

/// Returns the sum of the logits of one block and that of their squares, and writes the largest of
/// each group. With `IN_ORDER` also returns `sum` plus the logits as if added one by one, if they
/// can be added at once; see `signed_sum::try_signed_block`.
#[inline(always)]
// In bounds: four groups are chunks of a quarter of their length; a pair has twice the lanes.
fn block_moments<V: Vector, const IN_ORDER: bool>(
    v: V,
    block: &[TokenData],
    maxima: &mut [f32],
    sum: f32,
) -> ([f64; 2], Option<f32>) {
    let (lowest, zero) = (v.splat(f32::NEG_INFINITY), v.splat(0.0));
    let fit = (NOT_TINY..f32::INFINITY).contains(&sum.abs());
    let c = binade(if fit { sum.abs() } else { 1.0 });
    let middle = v.splat(1.5 * c);
    let (mut a, mut b) = ([zero; 4], [zero; 4]);
    let mut fours = block.chunks_exact(4 * GROUP);
    let (of_fours, of_rest) = maxima.split_at_mut(4 * fours.len());
    for (four, to) in (&mut fours).zip(of_fours.chunks_exact_mut(4)) {
        let mut largest = [lowest; 4];
        for (group, largest) in four.chunks_exact(GROUP).zip(&mut largest) {
            for pair in group.chunks_exact(2 * V::LANES) {
                prefetch_candidates(v, pair.as_ptr().wrapping_add(FAR));
                prefetch_candidates(v, pair.as_ptr().wrapping_add(FAR + V::LANES));
                let x = v.load_logits(pair);
                let y = v.load_logits(&pair[V::LANES..]);
                *largest = v.max(y, v.max(x, *largest));
                a = add_moments::<V, IN_ORDER>(v, a, x, middle);
                b = add_moments::<V, IN_ORDER>(v, b, y, middle);
            }
        }
        to.copy_from_slice(&v.reduce_max_each(largest));
    }
    let mut rest = [0.0; 2];
    for (group, to) in fours.remainder().chunks(GROUP).zip(of_rest) {
        let mut largest = lowest;
        let mut chunks = group.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let x = v.load_logits(chunk);
            largest = v.max(x, largest);
            a = add_moments::<V, false>(v, a, x, middle);
        }
        *to = v.reduce_max(largest);
        for candidate in chunks.remainder() {
            let x = f64::from(candidate.logit);
            rest = [rest[0] + x, rest[1] + x * x];
            *to = to.max(comparable(candidate.logit));
        }
    }
    let squares = v.reduce_add(v.add(a[1], b[1]));
    let moments = [
        rest[0] + f64::from(v.reduce_add(v.add(a[0], b[0]))),
        rest[1] + f64::from(squares),
    ];
    if !IN_ORDER || !fit || !fours.remainder().is_empty() {
        return (moments, None);
    }
    let added = v.reduce_add(v.add(a[2], b[2]));
    // At least the sum of the absolute values, by the Cauchy-Schwarz inequality.
    let absolute = (squares * SUM_BLOCK as f32).sqrt();
    let decided = v.reduce_max(v.max_abs(a[3], b[3])) < c * (f32::EPSILON / 2.0)
        && stays(sum, c, absolute, added);
    (moments, decided.then_some(sum + added))
}

/// Returns `sums` after adding x: the first two are the sums of x and of x^2. With `IN_ORDER` the
/// last two are the sum of x rounded to the unit of the floats near `middle`, and the largest
/// rounding error.
#[inline(always)]
fn add_moments<V: Vector, const IN_ORDER: bool>(
    v: V,
    sums: [V::F; 4],
    x: V::F,
    middle: V::F,
) -> [V::F; 4] {
    let moments = [v.add(sums[0], x), v.fma(x, x, sums[1])];
    if !IN_ORDER {
        return [moments[0], moments[1], sums[2], sums[3]];
    }
    let rounded = v.sub(v.add(x, middle), middle);
    let off = v.max_abs(v.sub(x, rounded), sums[3]);
    [moments[0], moments[1], v.add(sums[2], rounded), off]
}

#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` candidates.
fn squares_masking_on<V: Vector>(v: V, data: &mut [TokenData], mean: f32, threshold: f32) -> f32 {
    let mut values = [0.0; SUM_BLOCK];
    let mut squares = Squares { mean, sum: 0.0 };
    if data.len() < SUM_BLOCK {
        for candidate in data {
            squares.add(comparable(candidate.logit));
            mask(candidate, threshold);
        }
        return squares.sum;
    }
    for block in data.chunks_mut(SUM_BLOCK) {
        let values = &mut values[..block.len()];
        match try_float_squares(v, &squares, block, threshold, values) {
            Some(sum) => squares.sum = sum,
            // All logits of the block are masked, and add nothing.
            None if values
                .iter()
                .fold(true, |all, &x| all & (x == f32::NEG_INFINITY)) => {}
            None => add_squares(v, &mut squares, values),
        }
    }
    squares.sum
}

#[inline(always)]
fn moments_of_logits_on<V: Vector>(v: V, logits: &[f32], sums: &mut [[f64; 2]]) {
    let zero = v.splat(0.0);
    let mut total = [0.0; 2];
    for (block, to) in logits.chunks(SUM_BLOCK).zip(sums) {
        let (mut a, mut b) = ([zero; 2], [zero; 2]);
        let mut pairs = block.chunks_exact(2 * V::LANES);
        for pair in &mut pairs {
            let (low, high) = pair.split_at(V::LANES);
            let (x, y) = (v.load(low), v.load(high));
            a = [v.add(a[0], x), v.fma(x, x, a[1])];
            b = [v.add(b[0], y), v.fma(y, y, b[1])];
        }
        let rest = pairs.remainder().iter().map(|&x| f64::from(x));
        let rest = rest.fold([0.0; 2], |[sum, squares], x| [sum + x, squares + x * x]);
        let sum = f64::from(v.reduce_add(v.add(a[0], b[0])));
        let squares = f64::from(v.reduce_add(v.add(a[1], b[1])));
        total = [total[0] + sum + rest[0], total[1] + squares + rest[1]];
        *to = total;
    }
}

#[inline(always)]
fn squares_of_logits_on<V: Vector>(v: V, logits: &[f32], mean: f32) -> f32 {
    let mut squares = Squares { mean, sum: 0.0 };
    for block in logits.chunks(SUM_BLOCK) {
        add_squares(v, &mut squares, block);
    }
    squares.sum
}

#[inline(always)]
fn mask(candidate: &mut TokenData, threshold: f32) {
    if candidate.logit < threshold {
        candidate.logit = f32::NEG_INFINITY;
    }
}

/// Adds the squared deviations of a block, split into smaller parts if the whole block cannot be
/// added at once without changing the result.
#[inline(always)]
fn add_squares<V: Vector>(v: V, squares: &mut Squares, block: &[f32]) {
    let mean = squares.mean;
    if let Some(sum) = try_squares(v, squares.sum, block, mean) {
        squares.sum = sum;
        return;
    }
    for quarter in block.chunks(QUARTER) {
        if let Some(sum) = try_squares(v, squares.sum, quarter, mean) {
            squares.sum = sum;
            continue;
        }
        for part in quarter.chunks(PART) {
            match try_squares(v, squares.sum, part, mean) {
                Some(sum) => squares.sum = sum,
                None => part.iter().for_each(|&x| squares.add(x)),
            }
        }
    }
}

/// Copies the logits of a block to `values` and sets those below `threshold` to minus infinity.
/// Returns the sum plus the squares of their deviations, if these can be added at once in single
/// precision. A square in single precision is rounded to the same multiple of the unit as the exact
/// square, unless its distance from half-way is within its own rounding error. That is likely only
/// among the first few thousand, since the units grow with the sum.
#[inline(always)]
// In bounds: `values` is as long as the block; what is left of it is less than a register.
fn try_float_squares<V: Vector>(
    v: V,
    squares: &Squares,
    block: &mut [TokenData],
    threshold: f32,
    values: &mut [f32],
) -> Option<f32> {
    let sum = squares.sum;
    let fit = (SMALLEST..f32::INFINITY).contains(&sum);
    let c = binade(if fit { sum } else { 1.0 });
    let (unit, means) = (v.splat(c), v.splat(squares.mean));
    let (thresholds, masked) = (v.splat(threshold), v.splat(f32::NEG_INFINITY));
    let error = v.splat(f32::EPSILON);
    let mut added = v.splat(0.0);
    let mut furthest = added;
    let whole = block.len() - block.len() % V::LANES;
    let (whole, rest) = block.split_at_mut(whole);
    for (chunk, value) in whole
        .chunks_exact_mut(V::LANES)
        .zip(values.chunks_exact_mut(V::LANES))
    {
        prefetch_candidates(v, chunk.as_ptr().wrapping_add(FAR));
        let x = v.load_logits(chunk);
        if v.lt(x, thresholds) != 0 {
            // NaN is not below anything, and so stays.
            v.store_logits(chunk, v.select_lt(x, thresholds, masked, x));
        }
        // From here on NaN counts as minus infinity, whose deviation is 0.
        let x = v.max(x, masked);
        v.store(value, x);
        let deviation = v.sub(v.select_lt(x, v.splat(f32::MIN), means, x), means);
        let square = v.mul(deviation, deviation);
        let rounded = v.sub(v.add(square, unit), unit);
        let off = v.fma(square, error, v.abs(v.sub(square, rounded)));
        furthest = v.max(off, furthest);
        added = v.add(added, rounded);
    }
    for (candidate, value) in rest.iter_mut().zip(&mut values[whole.len()..]) {
        *value = comparable(candidate.logit);
        mask(candidate, threshold);
    }
    let total = sum + v.reduce_add(added);
    // The comparison is false for an infinite square and for NaN.
    let decided = v.reduce_max(furthest) < c * (f32::EPSILON / 2.0) * 0.999_99;
    if !fit || !decided || total.is_nan() || total >= 2.0 * c {
        return None;
    }
    let mut after = Squares {
        mean: squares.mean,
        sum: total,
    };
    values[whole.len()..].iter().for_each(|&x| after.add(x));
    Some(after.sum)
}

/// Adds terms as `sequential_sum::try_block` does, but each term is a square in `double`, and a sum
/// is rounded to a `double` before it is rounded to a `float`. That first rounding, to units 2^29
/// times finer, can only matter for a term that is within such a unit of half-way. The terms that
/// are refused cover a wider range.
#[inline(always)]
fn try_squares<V: Vector>(v: V, sum: f32, xs: &[f32], mean: f32) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) {
        return None;
    }
    let c = f64::from(binade(sum));
    // The doubles from here on are the multiples of the unit of the floats from c on.
    let unit = v.splat_d(c * (1u64 << 29) as f64);
    let nearly_half = c * f64::from(f32::EPSILON / 2.0) * 0.999_999;
    let means = v.splat(mean);
    let zero = v.splat_d(0.0);
    let mut added = [zero; 2];
    let mut furthest = [zero; 2];
    let mut chunks = xs.chunks_exact(V::LANES);
    for chunk in &mut chunks {
        let x = v.load(chunk);
        // The deviation of a masked logit is 0.
        let x = v.select_lt(x, v.splat(f32::MIN), means, x);
        let [a, b] = v.widen(v.sub(x, means));
        let [a, b] = [v.mul_d(a, a), v.mul_d(b, b)];
        let rounded_a = v.sub_d(v.add_d(a, unit), unit);
        let rounded_b = v.sub_d(v.add_d(b, unit), unit);
        furthest[0] = v.max_d(v.abs_d(v.sub_d(a, rounded_a)), furthest[0]);
        furthest[1] = v.max_d(v.abs_d(v.sub_d(b, rounded_b)), furthest[1]);
        added[0] = v.add_d(added[0], rounded_a);
        added[1] = v.add_d(added[1], rounded_b);
    }
    let total = f64::from(sum) + v.reduce_add_d(v.add_d(added[0], added[1]));
    let stays = total < 2.0 * c;
    if v.reduce_max_d(v.max_d(furthest[0], furthest[1])) >= nearly_half || !stays {
        return None;
    }
    let mut rest = Squares {
        mean,
        sum: total as f32,
    };
    chunks.remainder().iter().for_each(|&x| rest.add(x));
    Some(rest.sum)
}
