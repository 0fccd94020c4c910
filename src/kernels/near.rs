//! Exact sums from terms that are known only nearly.
//!
//! While a `float` sum stays in one binade, a term counts as the nearest multiple of that binade's
//! unit (see `portable`). To know which multiple that is takes no exact term, unless it lies near
//! the middle between two: an exponential in single precision, right within [`ERROR`], takes a
//! quarter of the time of one that has the built-in's last bit, and tells it for all terms but a
//! few. For a sum of S in units of u, of whatever number of terms, about 2 S / u times the error
//! lie too near, and S / u is below 2^24: some dozens of an array, which are computed exactly.
//!
//! Beside that the half-way terms themselves, one or two of an array, cost nothing: they are among
//! those few.

use super::BLOCK;
use super::math::{exp, ln};

/// How far an exponential in single precision may be off, relative to itself, and the exact one
/// from it: for `exp_near` down to e^-30, 1.7e-7 and a rounded logarithm of 2 (2.7e-9 of the
/// exponent), half a unit of a float for the exact one, and some. Three units of 1.
pub const ERROR: f32 = 3.0 * f32::EPSILON;
/// The same of what a probability adds to the entropy, where that is below 0.3: the exponential,
/// the sum's reciprocal, its logarithm, the logarithm as a difference, and two products here, there
/// a quotient, a logarithm and a product, half a unit each. Ten units of 1.
pub const ERROR_OF_ENTROPY: f32 = 10.0 * f32::EPSILON;
/// Logits that are further below the largest count as being so far below. Their exponentials are
/// nothing beside every sum that is looked at.
pub const FURTHEST: f32 = -30.0;
/// Smaller sums are not added up this way: 2^-10.
pub const SMALLEST: f32 = 1.0 / 1024.0;

/// Logits whose terms are added up, rounded, and how.
#[derive(Clone, Copy, Debug)]
pub struct Rounded {
    /// The largest of all logits.
    pub max: f32,
    /// Only logits above it count.
    pub above: f32,
    /// Only logits below it count.
    pub below: f32,
    /// Terms of lower logits are known to round to nothing.
    pub lowest: f32,
    /// The power of two from which on the floats have the unit, which is [`SMALLEST`] at least.
    pub c: f32,
    /// Of the sum of the exponentials, where the entropy is added up; its terms are below 0.3 of
    /// it.
    pub sum: Option<f32>,
}

impl Rounded {
    /// What a logit adds, in the arithmetic of the built-ins.
    pub fn term(&self, x: f32) -> f32 {
        let e = exp(x - self.max);
        let Some(sum) = self.sum else {
            return e;
        };
        let p = e / sum;
        if p > 0.0 { -p * ln(p) } else { 0.0 }
    }

    /// A term rounded to the unit; `None` if it is half-way between two multiples.
    pub fn round(&self, term: f32) -> Option<f32> {
        let rounded = (term + self.c) - self.c;
        let halfway = (term - rounded).abs() == self.c * (f32::EPSILON / 2.0);
        (!halfway).then_some(rounded)
    }
}

/// The sum of the rounded terms, exactly, but for those of which it is in doubt how they round:
/// their indices are appended to `doubtful`. Which these are depends on the instruction set; those
/// half-way are among them.
pub fn rounded_sum(xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64 {
    let mut sum = 0.0;
    for (i, &x) in xs.iter().enumerate() {
        if !(x > of.above && x < of.below && x >= of.lowest) {
            continue;
        }
        match of.round(of.term(x)) {
            Some(rounded) => sum += f64::from(rounded),
            None => doubtful.push(i as u32),
        }
    }
    sum
}

/// The sum of e^(x - max), a `float`, as if added in order. None is NaN, `max` is finite and the
/// largest.
///
/// What is less than half a unit of the sum so far changes nothing, and gets no exponential: of a
/// peaked distribution nearly everything.
pub fn softmax_sum(xs: &[f32], max: f32) -> f32 {
    let mut sum = 0.0;
    for block in xs.chunks(BLOCK) {
        let lowest = noticeable(sum);
        let differences = block.iter().map(|x| x - max);
        sum = differences
            .filter(|&d| d >= lowest)
            .fold(sum, |sum, d| sum + exp(d));
    }
    sum
}

/// Below this the exponential is less than half a unit of `sum`, or of a larger one.
pub fn noticeable(sum: f32) -> f32 {
    if sum < f32::MIN_POSITIVE {
        return f32::NEG_INFINITY;
    }
    let binade = sum.to_bits() >> 23;
    // The unit is 2^-23 of the binade. Both roundings, of the exponential and of this, are far
    // smaller than the margin.
    let exponent = binade as f32 - 127.0 - 24.0;
    exponent * std::f32::consts::LN_2 - 1e-3
}

/// Of exponentials the probabilities, their logarithms, and what they add to the entropy; gives the
/// sum of that in `double`, with last bits that depend on the instruction set.
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

/// How far each surprisal is from the entropy, negative.
pub fn nearness(lns: &[f32], entropy: f32, to: &mut [f32]) {
    assert_eq!(lns.len(), to.len());
    for (ln_p, to) in lns.iter().zip(to) {
        *to = -(-ln_p - entropy).abs();
    }
}

#[cfg(test)]
mod tests {
    use super::super::math::binade;
    use super::super::table::{Table, supported};
    use super::super::tests::{SIZES, inputs};
    use super::*;

    /// Every input without NaN, as it is, its largest, and wider and narrower.
    fn for_all(mut check: impl FnMut(&[f32], f32)) {
        for n in SIZES {
            for logits in inputs(n) {
                for (factor, offset) in [(1.0, 0.0), (3.0, -5.0), (0.3, 1e4), (20.0, -1e6)] {
                    let scaled = logits.iter().map(|x| x * factor + offset);
                    let xs: Vec<f32> = scaled.filter(|x| !x.is_nan()).collect();
                    let max = xs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    if max.is_finite() {
                        check(&xs, max);
                    }
                }
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn sums_of_exponentials_are_those_one_by_one() {
        for_all(|xs, max| {
            let exact = xs.iter().fold(0.0, |sum, x| sum + exp(x - max));
            for table in supported() {
                let ours = (table.softmax_sum)(xs, max);
                assert_eq!(ours.to_bits(), exact.to_bits(), "{:?}", table.name);
            }
        });
    }

    /// The rounded sum with what was in doubt, and how many of that were half-way.
    fn resolved(table: &Table, xs: &[f32], of: Rounded) -> (f64, usize) {
        let mut doubtful = Vec::new();
        let mut sum = (table.rounded_sum)(xs, of, &mut doubtful);
        let mut halfway = 0;
        for &i in &doubtful {
            match of.round(of.term(xs[i as usize])) {
                Some(rounded) => sum += f64::from(rounded),
                None => halfway += 1,
            }
        }
        (sum, halfway)
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn rounded_sums_are_those_of_exact_terms() {
        let tables = supported();
        for_all(|xs, max| {
            for (below, above) in [(0.0, f32::NEG_INFINITY), (-1.7, -9.0), (-5.0, -60.0)] {
                let exponentials = Rounded {
                    max,
                    above: max + above,
                    below: max + below,
                    lowest: f32::MIN,
                    c: 64.0,
                    sum: None,
                };
                let entropies = Rounded {
                    below: max + below.min(-1.5),
                    c: 4.0,
                    sum: Some(70.0),
                    ..exponentials
                };
                let tiny = Rounded {
                    c: SMALLEST,
                    ..exponentials
                };
                for of in [exponentials, entropies, tiny] {
                    let exact = resolved(tables[0], xs, of);
                    // Where a lane is full it is not exact, and need not be.
                    if exact.0 > f64::from(of.c) {
                        continue;
                    }
                    for table in &tables {
                        let ours = resolved(table, xs, of);
                        assert_eq!(ours, exact, "{:?} {of:?} {}", table.name, xs.len());
                    }
                }
            }
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes")]
    fn surprisals_and_distances_are_those_of_the_host() {
        let tables = supported();
        for_all(|xs, max| {
            let es: Vec<f32> = xs.iter().map(|x| exp(x - max)).collect();
            let of = |i: usize| {
                let mut to = [
                    vec![0.0; es.len()],
                    vec![0.0; es.len()],
                    vec![0.0; es.len()],
                ];
                let [ps, lns, terms] = &mut to;
                let total = (tables[i].surprisals)(&es, 70.0, ps, lns, terms);
                let mut nearness = vec![0.0; es.len()];
                (tables[i].nearness)(lns, 4.3, &mut nearness);
                let bits = |xs: &Vec<f32>| xs.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                // The sign of a term of 0 does not matter.
                terms.iter_mut().for_each(|term| *term += 0.0);
                (to.each_ref().map(bits), bits(&nearness), total)
            };
            let expected = of(0);
            for i in 1..tables.len() {
                let ours = of(i);
                assert!(ours.0 == expected.0 && ours.1 == expected.1);
                assert!((ours.2 - expected.2).abs() <= 1e-9 * (1.0 + expected.2));
            }
        });
    }

    /// Rounds the terms of one float in so many of all from `first` to 30 below the largest, each
    /// to a unit so fine that it tells an error beyond the margin.
    fn margin_suffices(first: f32, sum: Option<f32>, fineness: f32, step: usize) {
        let bits = (first.to_bits()..30f32.to_bits()).step_by(step);
        let tables = supported();
        let mut xs = [0.0f32; 16];
        let mut bits = bits.map(|bits| -f32::from_bits(bits)).peekable();
        while bits.peek().is_some() {
            xs.iter_mut().for_each(|x| *x = bits.next().unwrap_or(*x));
            let mut of = Rounded {
                max: 0.0,
                above: f32::NEG_INFINITY,
                below: 0.0,
                lowest: f32::MIN,
                c: 1.0,
                sum,
            };
            of.c = binade(of.term(xs[0])) * fineness;
            let exact = resolved(tables[0], &xs, of).0;
            for table in &tables[1..] {
                let ours = resolved(table, &xs, of).0;
                assert_eq!(ours, exact, "{:?} {xs:?} {of:?}", table.name);
            }
        }
    }

    fn margins_suffice(step: usize) {
        margin_suffices(1e-9, None, 16.0, step);
        for sum in [1.0, 1.999_999_9, 3.7, 70.3, 1e5] {
            margin_suffices(1.3, Some(sum), 4.0, step);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "no pointers, and minutes")]
    fn the_margins_of_error_suffice() {
        margins_suffice(997);
    }

    #[test]
    #[ignore = "takes minutes; the test above takes one float in 997"]
    fn the_margins_of_error_suffice_for_every_float() {
        margins_suffice(1);
    }
}
