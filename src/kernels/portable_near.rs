//! The passes of [`near`](super::near), written once for every instruction set.

use super::math::{binade, ln};
use super::near::{ERROR, ERROR_OF_ENTROPY, FURTHEST, Rounded, SMALLEST};
use super::portable::{add_block, exponentiate, ln_of_normal, not_normal};
use super::vector::{MAX_LANES, Vector, push_lanes};
use super::{BLOCK, near};

/// e^d of one register, nearly: d = x - max.
#[inline(always)]
fn near_exp<V: Vector>(v: V, d: V::F) -> V::F {
    v.exp_near(v.max(d, v.splat(FURTHEST)))
}

/// Terms in units of the floats from c to 2 c.
///
/// Added to c a term is rounded to the unit, and the bits of the result count the units: one
/// multiplication by a little less than 1 and the addition in one operation, and an integer
/// addition. The same with a little more than 1, and where both sums of a block are equal, so is
/// what each of its terms was rounded to. Rounding first, and then looking at what was rounded off,
/// takes 7 operations instead of 4.
#[derive(Clone, Copy)]
struct Units<V: Vector> {
    c: V::F,
    less: V::F,
    more: V::F,
}

impl<V: Vector> Units<V> {
    #[inline(always)]
    fn new(v: V, c: f32, error: f32) -> Self {
        Self {
            c: v.splat(c),
            less: v.splat(1.0 - error),
            more: v.splat(1.0 + error),
        }
    }

    /// A term as far down and as far up as it may be: c more, and rounded.
    #[inline(always)]
    fn round(self, v: V, term: V::F) -> [V::F; 2] {
        [
            v.fma(term, self.less, self.c),
            v.fma(term, self.more, self.c),
        ]
    }

    /// What [`round`](Self::round) gave where both agree, and no term where they do not: the
    /// indices of those lanes, the first of which is `first`, are appended to `doubtful`.
    #[inline(always)]
    fn sure(self, v: V, [less, more]: [V::F; 2], first: u32, doubtful: &mut Vec<u32>) -> V::F {
        push_lanes(v.lt(less, more), first, doubtful);
        v.if_lt(less, more, self.c, less)
    }
}

/// How many units more than so many times those of `c` the bits of the lanes count. No lane counts
/// 2^32 and more.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a register has at most `MAX_LANES` lanes"
)]
fn count<V: Vector>(v: V, bits: V::F, added: usize, c: f32) -> u64 {
    let mut lanes = [0; MAX_LANES];
    v.store_bits(&mut lanes, bits);
    let none = c.to_bits().wrapping_mul(added as u32);
    let lanes = lanes[..V::LANES].iter();
    lanes.map(|lane| u64::from(lane.wrapping_sub(none))).sum()
}

/// Whether all bits of two registers are equal.
#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a register has at most `MAX_LANES` lanes"
)]
fn equal<V: Vector>(v: V, a: V::F, b: V::F) -> bool {
    let (mut lanes_of_a, mut lanes_of_b) = ([0; MAX_LANES], [0; MAX_LANES]);
    v.store_bits(&mut lanes_of_a, a);
    v.store_bits(&mut lanes_of_b, b);
    lanes_of_a[..V::LANES] == lanes_of_b[..V::LANES]
}

/// Reads 4 bytes per element; those of a part of a block with a term in doubt, or in which the sum
/// leaves its binade, again.
#[inline(always)]
pub fn softmax_sum<V: Vector>(v: V, xs: &[f32], max: f32) -> f32 {
    let mut sum = 0.0;
    for block in xs.chunks(BLOCK) {
        if let Some(after) = try_near(v, sum, block, max) {
            sum = after;
            continue;
        }
        for part in block.chunks(PART) {
            sum = match try_near(v, sum, part, max) {
                Some(after) => after,
                None => add_exactly(v, sum, part, max),
            };
        }
    }
    sum
}

/// What gets exact exponentials where a whole block cannot do without.
const PART: usize = 64;

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "the caller's parts have at most `PART` elements"
)]
fn add_exactly<V: Vector>(v: V, sum: f32, xs: &[f32], max: f32) -> f32 {
    let mut es = [0.0; PART];
    let es = &mut es[..xs.len()];
    es.copy_from_slice(xs);
    exponentiate(v, es, max);
    add_block(v, sum, es)
}

/// `sum` and e^(x - max) of all, as if added one by one, if that takes no exact exponential.
#[inline(always)]
fn try_near<V: Vector>(v: V, sum: f32, xs: &[f32], max: f32) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) || !xs.len().is_multiple_of(V::LANES) {
        return None;
    }
    let c = binade(sum);
    let units = Units::new(v, c, ERROR);
    let maxima = v.splat(max);
    let mut counted = [v.splat(0.0); 2];
    for chunk in xs.chunks_exact(V::LANES) {
        let e = near_exp(v, v.sub(v.load(chunk), maxima));
        let rounded = units.round(v, e);
        counted = [
            v.add_bits(counted[0], rounded[0]),
            v.add_bits(counted[1], rounded[1]),
        ];
    }
    if !equal(v, counted[0], counted[1]) {
        return None;
    }
    let units = count(v, counted[0], xs.len() / V::LANES, c);
    let total = f64::from(sum) + units as f64 * f64::from(c * f32::EPSILON);
    (total < f64::from(2.0 * c)).then_some(total as f32)
}

/// What is the same for all registers of a sum.
#[derive(Clone, Copy)]
struct Lanes<V: Vector> {
    max: V::F,
    above: V::F,
    below: V::F,
    inverse: V::F,
    ln_sum: V::F,
    units: Units<V>,
}

/// One register's terms, as [`Units::round`] has it.
#[inline(always)]
fn round<V: Vector, const BOUNDED: bool, const ENTROPIES: bool>(
    v: V,
    x: V::F,
    of: Lanes<V>,
) -> [V::F; 2] {
    let zero = v.splat(0.0);
    let d = v.max(v.sub(x, of.max), v.splat(FURTHEST));
    let e = v.exp_near(d);
    let term = if ENTROPIES {
        v.mul(v.mul(e, of.inverse), v.sub(of.ln_sum, d))
    } else {
        e
    };
    let mut term = v.if_lt(x, of.below, term, zero);
    if BOUNDED {
        term = v.if_lt(of.above, x, term, zero);
    }
    of.units.round(v, term)
}

/// Reads 4 bytes per element; those of a block with a term in doubt again.
#[inline(always)]
pub fn rounded_sum<V: Vector>(v: V, xs: &[f32], of: Rounded, doubtful: &mut Vec<u32>) -> f64 {
    match (of.above > f32::NEG_INFINITY, of.sum.is_some()) {
        (false, false) => rounded_sum_of::<V, false, false>(v, xs, of, doubtful),
        (false, true) => rounded_sum_of::<V, false, true>(v, xs, of, doubtful),
        (true, false) => rounded_sum_of::<V, true, false>(v, xs, of, doubtful),
        (true, true) => rounded_sum_of::<V, true, true>(v, xs, of, doubtful),
    }
}

#[inline(always)]
#[expect(
    clippy::indexing_slicing,
    reason = "a remainder has fewer elements than a register has lanes"
)]
fn rounded_sum_of<V: Vector, const BOUNDED: bool, const ENTROPIES: bool>(
    v: V,
    xs: &[f32],
    of: Rounded,
    doubtful: &mut Vec<u32>,
) -> f64 {
    let sum = of.sum.unwrap_or(1.0);
    let error = if ENTROPIES { ERROR_OF_ENTROPY } else { ERROR };
    let lanes = Lanes {
        max: v.splat(of.max),
        above: v.splat(of.above),
        below: v.splat(of.below),
        inverse: v.splat(1.0 / sum),
        ln_sum: v.splat(ln(sum)),
        units: Units::new(v, of.c, error),
    };
    let mut total = 0;
    let mut base = 0;
    for block in xs.chunks(BLOCK) {
        let mut counted = [v.splat(0.0); 2];
        let mut chunks = block.chunks_exact(V::LANES);
        for chunk in &mut chunks {
            let rounded = round::<V, BOUNDED, ENTROPIES>(v, v.load(chunk), lanes);
            counted = [
                v.add_bits(counted[0], rounded[0]),
                v.add_bits(counted[1], rounded[1]),
            ];
        }
        if !equal(v, counted[0], counted[1]) {
            // Again without those in doubt.
            counted[0] = v.splat(0.0);
            for (i, chunk) in block.chunks_exact(V::LANES).enumerate() {
                let rounded = round::<V, BOUNDED, ENTROPIES>(v, v.load(chunk), lanes);
                let first = base + (i * V::LANES) as u32;
                let sure = lanes.units.sure(v, rounded, first, doubtful);
                counted[0] = v.add_bits(counted[0], sure);
            }
        }
        total += count(v, counted[0], block.len() / V::LANES, of.c);
        let rest = chunks.remainder();
        if !rest.is_empty() {
            let mut padded = [f32::NEG_INFINITY; MAX_LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let rounded = round::<V, BOUNDED, ENTROPIES>(v, v.load(&padded), lanes);
            let first = base + (block.len() - rest.len()) as u32;
            let sure = lanes.units.sure(v, rounded, first, doubtful);
            total += count(v, sure, 1, of.c);
        }
        base += BLOCK as u32;
    }
    total as f64 * f64::from(of.c * f32::EPSILON)
}

/// Reads 4 bytes per element and writes 12.
#[inline(always)]
pub fn surprisals<V: Vector>(
    v: V,
    es: &[f32],
    sum: f32,
    ps: &mut [f32],
    lns: &mut [f32],
    terms: &mut [f32],
) -> f64 {
    let n = es.len();
    assert!(n == ps.len() && n == lns.len() && n == terms.len());
    let (zero, divisor) = (v.splat(0.0), v.splat(sum));
    let mut totals = [v.splat_d(0.0); 2];
    let mut by_host = 0.0;
    let mut chunks = es.chunks_exact(V::LANES);
    let mut p_chunks = ps.chunks_exact_mut(V::LANES);
    let mut ln_chunks = lns.chunks_exact_mut(V::LANES);
    let mut term_chunks = terms.chunks_exact_mut(V::LANES);
    let to = (&mut p_chunks).zip(&mut ln_chunks).zip(&mut term_chunks);
    for (es, ((ps, lns), terms)) in (&mut chunks).zip(to) {
        let p = v.div(v.load(es), divisor);
        if not_normal(v, p) != 0 {
            by_host += surprisals_by_host(es, sum, ps, lns, terms);
            continue;
        }
        let ln_p = ln_of_normal(v, p);
        // Minus p, not minus the product: the sign of a term of 0 does not matter.
        let term = v.mul(v.sub(zero, p), ln_p);
        v.store(ps, p);
        v.store(lns, ln_p);
        v.store(terms, term);
        let [low, high] = v.widen(term);
        totals = [v.add_d(totals[0], low), v.add_d(totals[1], high)];
    }
    let rest = near::surprisals(
        chunks.remainder(),
        sum,
        p_chunks.into_remainder(),
        ln_chunks.into_remainder(),
        term_chunks.into_remainder(),
    );
    v.total_d(v.add_d(totals[0], totals[1])) + by_host + rest
}

/// Out of line, so that the loop keeps its registers.
#[cold]
#[inline(never)]
fn surprisals_by_host(
    es: &[f32],
    sum: f32,
    ps: &mut [f32],
    lns: &mut [f32],
    terms: &mut [f32],
) -> f64 {
    near::surprisals(es, sum, ps, lns, terms)
}

/// Reads and writes 4 bytes per element.
#[inline(always)]
pub fn nearness<V: Vector>(v: V, lns: &[f32], entropy: f32, to: &mut [f32]) {
    assert_eq!(lns.len(), to.len());
    let (zero, entropies) = (v.splat(0.0), v.splat(entropy));
    let mut chunks = lns.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let surprisal = v.sub(zero, v.load(chunk));
        let distance = v.abs(v.sub(surprisal, entropies));
        v.store(to, v.sub(zero, distance));
    }
    near::nearness(chunks.remainder(), entropy, rest.into_remainder());
}
