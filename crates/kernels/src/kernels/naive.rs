//! The naive twins of all passes over candidates and columns: plain Rust, with the operations and
//! the order of the built-ins. They are the oracle of the tests.

use super::column::Column;
use super::layout::{SUM_BLOCK, TWO_23};
use super::rewrite::{Cubic, Curve};
use super::rounding_test::Rounded;
use super::sums_f64::SumsF64;
use crate::simd::libm::{exp, exp_f64, fma, ln};
use crate::token::{TokenData, comparable};

/// Returns the largest logit; minus infinity when empty.
pub fn max(data: &[TokenData]) -> f32 {
    let logits = data.iter().map(|c| comparable(c.logit));
    logits.fold(f32::NEG_INFINITY, |max, x| if max < x { x } else { max })
}

/// Returns the index of the largest logit, the first of equals; 0 when empty.
pub fn argmax(data: &[TokenData]) -> usize {
    let mut best = 0;
    let mut max = f32::NEG_INFINITY;
    for (i, candidate) in data.iter().enumerate() {
        if candidate.logit > max {
            best = i;
            max = candidate.logit;
        }
    }
    best
}

/// Returns the largest logit above minus infinity; [`f32::MIN`] if there is none. Appends to `to`,
/// in order, all candidates whose logits are at or above the largest plus `below`, which is not
/// positive. Also appends some that only reach the largest logit before them plus `below`.
pub fn near_max(data: &[TokenData], below: f32, to: &mut Vec<TokenData>) -> f32 {
    let mut max = f32::MIN;
    for candidate in data {
        let x = candidate.logit;
        if x > max {
            max = x;
        }
        if x >= max + below {
            to.push(*candidate);
        }
    }
    max
}

/// Copies the logits, NaN as minus infinity, and returns the largest.
pub fn logits(data: &[TokenData], to: &mut [f32]) -> f32 {
    assert_eq!(data.len(), to.len());
    let mut max = f32::NEG_INFINITY;
    for (candidate, to) in data.iter().zip(to) {
        *to = comparable(candidate.logit);
        if max < *to {
            max = *to;
        }
    }
    max
}

/// Replaces every x by e^(x - max), and returns `start` plus all of them. No x is
/// [`HIGHEST`](crate::simd::exp::HIGHEST) or more above `max`.
pub fn exp_sum(start: f32, xs: &mut [f32], max: f32) -> f32 {
    let mut sum = start;
    for x in xs {
        *x = exp(*x - max);
        sum += *x;
    }
    sum
}

/// Replaces every x by e^(x - max), and returns their sum in `double`, as if added one by one.
/// `sums` receives the sum up to the end of each block of [`SUM_BLOCK`].
pub fn exp_sum_double(xs: &mut [f32], max: f32, sums: &mut [f64]) -> f64 {
    let mut sum = 0.0f64;
    for (block, to) in xs.chunks_mut(SUM_BLOCK).zip(sums) {
        for x in block {
            *x = exp(*x - max);
            sum += f64::from(*x);
        }
        *to = sum;
    }
    sum
}

/// Replaces every x by e^(x - max), with the difference in `double`, and returns the sum as if
/// added one by one to `start`. Uses the host's `exp` and the operations of the built-in.
pub fn exp_double(start: f64, xs: &mut [f32], max: f32) -> f64 {
    let mut sum = start;
    for x in xs {
        let e = exp_f64(f64::from(*x) - f64::from(max));
        *x = e as f32;
        sum += e;
    }
    sum
}

/// Returns `start` plus all terms, which are not negative, in order.
pub fn sum(start: f32, xs: &[f32]) -> f32 {
    xs.iter().fold(start, |sum, x| sum + x)
}

/// Returns true if a logit is at or above `low` and below `high`.
pub fn any_between(data: &[TokenData], low: f32, high: f32) -> bool {
    data.iter().any(|c| c.logit >= low && c.logit < high)
}

/// Returns the sum of all logits except minus infinity, in order, and their number. NaN counts as
/// minus infinity.
pub fn signed_sum(data: &[TokenData]) -> (f32, usize) {
    let mut sum = 0.0f32;
    let mut count = 0;
    for x in data.iter().map(|c| comparable(c.logit)) {
        if x != f32::NEG_INFINITY {
            sum += x;
            count += 1;
        }
    }
    (sum, count)
}

/// Returns the sum of squared deviations from `mean` of all logits except minus infinity, in order.
/// Then masks as [`mask_below`] does.
pub fn squares_masking(data: &mut [TokenData], mean: f32, threshold: f32) -> f32 {
    let mut sum = 0.0f32;
    for x in data.iter().map(|c| comparable(c.logit)) {
        if x != f32::NEG_INFINITY {
            let deviation = f64::from(x - mean);
            sum = (f64::from(sum) + deviation * deviation) as f32;
        }
    }
    mask_below(data, threshold);
    sum
}

/// Writes the probabilities.
pub fn set_p(data: &mut [TokenData], ps: &[f32]) {
    assert_eq!(data.len(), ps.len());
    for (candidate, &p) in data.iter_mut().zip(ps) {
        candidate.p = p;
    }
}

/// Writes e^(logit - max), with NaN as minus infinity, as probabilities, and returns their sum in
/// `double`, as [`exp_sum_double`] does. `sums` has exactly one element for each block. `_values`
/// is not used.
pub fn exp_p(
    data: &mut [TokenData],
    max: f32,
    _values: &mut [f32; SUM_BLOCK],
    sums: &mut [f64],
) -> f64 {
    let mut sum = 0.0f64;
    for (block, to) in data.chunks_mut(SUM_BLOCK).zip(sums) {
        for candidate in block {
            candidate.p = exp(comparable(candidate.logit) - max);
            sum += f64::from(candidate.p);
        }
        *to = sum;
    }
    sum
}

/// Divides the probabilities by `by` and returns their sum in `double`, as `sum_double` does.
/// `sums` has exactly one element for each block.
pub fn divide_p(data: &mut [TokenData], by: f32, sums: &mut [f64]) -> f64 {
    let mut sum = 0.0f64;
    for (block, to) in data.chunks_mut(SUM_BLOCK).zip(sums) {
        for candidate in block {
            candidate.p /= by;
            sum += f64::from(candidate.p);
        }
        *to = sum;
    }
    sum
}

/// Divides the probabilities by `by` in `double`.
pub fn divide_p_double(data: &mut [TokenData], by: f64) {
    for candidate in data {
        candidate.p = (f64::from(candidate.p) / by) as f32;
    }
}

/// Writes the probabilities, each divided by `by` in `double`.
pub fn set_quotients(data: &mut [TokenData], ps: &[f32], by: f64) {
    assert_eq!(data.len(), ps.len());
    for (candidate, &p) in data.iter_mut().zip(ps) {
        candidate.p = (f64::from(p) / by) as f32;
    }
}

/// Divides all numbers by `by`.
pub fn divide(xs: &mut [f32], by: f32) {
    xs.iter_mut().for_each(|x| *x /= by);
}

/// Divides all logits.
pub fn divide_logits(data: &mut [TokenData], by: f32) {
    data.iter_mut().for_each(|c| c.logit /= by);
}

/// Replaces every logit by its value on the cubic, except masked ones and NaN.
pub fn cube_logits(data: &mut [TokenData], curve: Cubic) {
    let Cubic { max, square, cube } = curve;
    for candidate in data.iter_mut().filter(|c| c.logit > f32::NEG_INFINITY) {
        let d = (candidate.logit - max).max(f32::MIN);
        let slope = fma(cube, d, -square);
        candidate.logit = fma(slope, d * d, max);
    }
}

/// Sets every logit below `threshold` to minus infinity.
pub fn mask_below(data: &mut [TokenData], threshold: f32) {
    for candidate in data {
        if candidate.logit < threshold {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

/// Sets the logits of tokens that are not in a set to minus infinity.
pub fn mask_tokens(data: &mut [TokenData], allowed: &[u64]) {
    for candidate in data {
        let token = usize::try_from(candidate.id).unwrap_or(usize::MAX);
        let word = allowed.get(token / 64).unwrap_or(&0);
        if word & (1 << (token % 64)) == 0 {
            candidate.logit = f32::NEG_INFINITY;
        }
    }
}

/// Appends the indices, counted from `first`, of all logits at or above `threshold`.
pub fn at_least(data: &[TokenData], first: u32, threshold: f32, to: &mut Vec<u32>) {
    for (i, candidate) in data.iter().enumerate() {
        if candidate.logit >= threshold {
            to.push(first + i as u32);
        }
    }
}

/// Appends the values at or above `threshold`, and their indices.
pub fn select(xs: &[f32], threshold: f32, indices: &mut Vec<u32>, picked: &mut Vec<f32>) {
    for (i, &x) in xs.iter().enumerate() {
        if x >= threshold {
            indices.push(i as u32);
            picked.push(x);
        }
    }
}

/// Appends the values at or above `threshold`, in order.
pub fn pick_at_least(xs: &[f32], threshold: f32, to: &mut Vec<f32>) {
    to.extend(xs.iter().filter(|&&x| x >= threshold));
}

/// Appends those of `xs` whose keys are at or above `low` and below `high`, in order.
pub fn pick(keys: &[f32], xs: &[f32], low: f32, high: f32, to: &mut Vec<f32>) {
    assert_eq!(keys.len(), xs.len());
    for (&key, &x) in keys.iter().zip(xs) {
        if key >= low && key < high {
            to.push(x);
        }
    }
}

/// Returns the sum of all terms whose keys are above `above` and below `below`, each rounded to a
/// multiple of the unit of floats from `c`, a power of two, to 2 c. Terms half-way between two
/// multiples are excluded, and their indices appended to `halfway`. The result is exact, or at
/// least 2 c.
pub fn tail(
    keys: &[f32],
    terms: &[f32],
    above: f32,
    below: f32,
    c: f32,
    mut halfway: Option<&mut Vec<u32>>,
) -> f32 {
    assert_eq!(keys.len(), terms.len());
    let half = c * (f32::EPSILON / 2.0);
    let mut sum = 0.0;
    for (i, (&key, &x)) in keys.iter().zip(terms).enumerate() {
        let inside = key > above && key < below;
        if !inside {
            continue;
        }
        let rounded = (x + c) - c;
        if (x - rounded).abs() != half {
            sum += rounded;
        } else if let Some(halfway) = &mut halfway {
            halfway.push(i as u32);
        }
    }
    sum
}

/// Copies the logits and returns the properties of the logits and the ids.
pub fn column(data: &[TokenData], to: &mut [f32]) -> Column {
    let max = logits(data, to);
    let finite = to.iter().filter(|&&x| x != f32::NEG_INFINITY);
    let plain = data
        .iter()
        .zip(0..)
        .all(|(c, i)| c.id == i && !c.logit.is_nan());
    Column {
        max,
        min: finite.fold(f32::MAX, |min, &x| if x < min { x } else { min }),
        plain,
    }
}

/// Copies the logits as [`column`] does, and appends the indices and values of those at or above
/// `threshold`.
pub fn column_selecting(
    data: &[TokenData],
    to: &mut [f32],
    threshold: f32,
    indices: &mut Vec<u32>,
    picked: &mut Vec<f32>,
) -> Column {
    let column = column(data, to);
    select(to, threshold, indices, picked);
    column
}

/// Writes the bits of 2^23 plus the distance of each x below `max` times `factor`, limited to
/// `last`, which is below 2^23. No x is NaN. The result is a number of steps up to `last` only if
/// `max` is finite and every x is at or below it.
pub fn steps(xs: &[f32], max: f32, factor: f32, last: f32, to: &mut [u32]) {
    assert_eq!(xs.len(), to.len());
    for (x, to) in xs.iter().zip(to) {
        let step = (max - x) * factor;
        // This form turns NaN into the last step.
        let step = if step < last { step } else { last };
        *to = (step + TWO_23).to_bits();
    }
}

/// Returns the first index, from `start` on, whose element is above the previous one; the length if
/// there is none. `start` is at least 1.
pub fn next_rise(xs: &[f32], start: usize) -> usize {
    (start..xs.len())
        .find(|&i| xs[i - 1] < xs[i])
        .unwrap_or(xs.len())
}

/// Writes whole candidates, with each of `ps` divided by `by`.
pub fn write_divided(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f32) {
    write(data, ids, logits, ps, |p| p / by);
}

/// Writes whole candidates, with each of `ps` divided by `by` in `double`.
pub fn write_quotients(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], by: f64) {
    write(data, ids, logits, ps, |p| (f64::from(p) / by) as f32);
}

fn write(data: &mut [TokenData], ids: &[u32], logits: &[f32], ps: &[f32], p: impl Fn(f32) -> f32) {
    assert!(data.len() == ids.len() && data.len() == logits.len() && data.len() == ps.len());
    for (i, candidate) in data.iter_mut().enumerate() {
        *candidate = TokenData {
            id: ids[i] as i32,
            logit: logits[i],
            p: p(ps[i]),
        };
    }
}

/// Writes the natural logarithms.
pub fn lns(xs: &[f32], to: &mut [f32]) {
    assert_eq!(xs.len(), to.len());
    for (&x, to) in xs.iter().zip(to) {
        *to = ln(x);
    }
}

/// Writes the entropy term of each probability: -p ln p, and 0 for 0. Returns the smallest
/// probability, or 1 if there is none.
pub fn entropies(ps: &[f32], to: &mut [f32]) -> f32 {
    assert_eq!(ps.len(), to.len());
    let mut smallest = 1.0;
    for (&p, to) in ps.iter().zip(to) {
        *to = if p > 0.0 { -p * ln(p) } else { 0.0 };
        smallest = if p < smallest { p } else { smallest };
    }
    smallest
}

/// Returns `start` plus the entropy terms, with product and addition rounded once.
pub fn fused_entropy(start: f32, ps: &[f32]) -> f32 {
    let above_0 = ps.iter().filter(|p| **p > 0.0);
    above_0.fold(start, |sum, p| fma(-p, ln(*p), sum))
}

/// Writes the probabilities, divided by `by`, into `original`, and replaces each logit that is not
/// masked by the value of the curve at this quotient.
pub fn bend(data: &mut [TokenData], by: f32, original: &mut [f32], curve: Curve) -> (f32, bool) {
    assert_eq!(data.len(), original.len());
    let mut max = f32::NEG_INFINITY;
    let mut all_numbers = true;
    for (candidate, original) in data.iter_mut().zip(original) {
        *original = candidate.p / by;
        if comparable(candidate.logit) == f32::NEG_INFINITY {
            continue;
        }
        let d = ((*original - curve.target) * curve.per_width).abs();
        let value = curve.peak - curve.sharpness * d * d / (1.0 + d);
        candidate.logit = value;
        all_numbers &= !value.is_nan();
        max = if max < value { value } else { max };
    }
    (max, all_numbers)
}

/// Returns the exact sum of the rounded terms, except those half-way between two multiples of the
/// unit. Appends the indices of these to `doubtful`.
pub fn rounded_sum(xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64 {
    let mut sum = 0.0;
    for (i, &x) in xs.iter().enumerate() {
        if !(x > of.above && x < of.below) {
            continue;
        }
        match of.round(of.term(x)) {
            Some(rounded) => sum += f64::from(rounded),
            None => doubtful.push(i as u32),
        }
    }
    sum
}

/// Computes the probabilities, their logarithms and the terms of their entropy from exponentials.
/// Returns the sum of the terms in `double`.
pub fn surprisals(es: &[f32], sum: f32, ps: &mut [f32], lns: &mut [f32], terms: &mut [f32]) -> f64 {
    let n = es.len();
    assert!(n == ps.len() && n == lns.len() && n == terms.len());
    let mut total = 0.0;
    let to = ps.iter_mut().zip(lns).zip(terms);
    for (&e, ((p, ln_p), term)) in es.iter().zip(to) {
        *p = e / sum;
        *ln_p = ln(*p);
        *term = if *p > 0.0 { -*p * *ln_p } else { 0.0 };
        total += f64::from(*term);
    }
    total
}

/// Writes the negated distance of each surprisal from the entropy.
pub fn nearness(lns: &[f32], entropy: f32, to: &mut [f32]) {
    assert_eq!(lns.len(), to.len());
    for (ln_p, to) in lns.iter().zip(to) {
        *to = -(-ln_p - entropy).abs();
    }
}

/// Returns the sums over logits in double precision, with the host's `exp`.
pub fn sums_f64(logits: &[f32], max: f32) -> SumsF64 {
    let mut sums = SumsF64::default();
    for d in logits
        .iter()
        .map(|&x| f64::from(comparable(x)) - f64::from(max))
    {
        let e = exp_f64(d);
        sums.mass += e;
        sums.spread -= if e > 0.0 { d * e } else { 0.0 };
        sums.squares += e * e;
    }
    sums
}
