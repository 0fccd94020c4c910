//! Computes logarithms of probabilities, bit for bit as the process's `logf` does, and the terms of
//! their entropy.

use super::layout::{SUM_BLOCK, binade};
use super::sequential_sum::{PART, SMALLEST};
use crate::simd::libm::{fma, ln};
use crate::simd::{Vector, dispatched};

dispatched! {
    /// Writes the natural logarithms. Reads and writes 4 bytes per element.
    pub fn lns(xs: &[f32], to: &mut [f32]) => lns_on with Ln;
    /// Writes the entropy term of each probability: -p ln p, and 0 for 0. Returns the smallest
    /// probability, at most 1. Reads and writes 4 bytes per element.
    pub fn entropies(ps: &[f32], to: &mut [f32]) -> f32 => entropies_on with Ln;
    /// Returns `start` plus the entropy terms of probabilities, at most 1 each, as if added one by
    /// one by a host whose compiler fuses product and addition. Probabilities that are not above 0
    /// add nothing. Reads 4 bytes per element.
    pub fn fused_entropy(start: f32, ps: &[f32]) -> f32 => fused_entropy_on with Ln;
    /// Writes the probabilities, which are exponentials divided by their sum, the logarithms of the
    /// probabilities, and the entropy terms. Returns the sum of the terms in `double`, whose last
    /// bits depend on the instruction set. Reads 4 bytes per element and writes 12.
    pub fn surprisals(
        es: &[f32], sum: f32, ps: &mut [f32], lns: &mut [f32], terms: &mut [f32],
    ) -> f64 => surprisals_on with Ln;
    /// Writes the negated distance of each surprisal from the entropy. `lns` are the negated
    /// surprisals. Reads and writes 4 bytes per element.
    pub fn nearness(lns: &[f32], entropy: f32, to: &mut [f32]) => nearness_on;
}

/// Returns a word with a bit for each lane, set if it is not a positive normal number.
#[inline(always)]
fn not_normal<V: Vector>(v: V, x: V::F) -> u32 {
    let normal = v.ge(x, v.splat(f32::MIN_POSITIVE)) & v.lt(x, v.splat(f32::INFINITY));
    !normal & ((1u64 << V::LANES) - 1) as u32
}

#[inline(always)]
fn lns_on<V: Vector>(v: V, xs: &[f32], to: &mut [f32]) {
    assert_eq!(xs.len(), to.len());
    let mut chunks = xs.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let x = v.load(chunk);
        if not_normal(v, x) == 0 {
            v.store(to, v.ln(x));
        } else {
            lns_by_host(chunk, to);
        }
    }
    lns_by_host(chunks.remainder(), rest.into_remainder());
}

/// Writes the logarithms by calls to the C library's `logf`. Out of line, so that the loop keeps
/// its registers.
#[cold]
#[inline(never)]
fn lns_by_host(xs: &[f32], to: &mut [f32]) {
    for (&x, to) in xs.iter().zip(to) {
        *to = ln(x);
    }
}

#[inline(always)]
fn entropies_on<V: Vector>(v: V, ps: &[f32], to: &mut [f32]) -> f32 {
    assert_eq!(ps.len(), to.len());
    let (zero, one) = (v.splat(0.0), v.splat(1.0));
    let mut smallest = one;
    let mut chunks = ps.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let p = v.load(chunk);
        smallest = v.select_lt(p, smallest, p, smallest);
        // A probability that is not above 0 adds 0: it is multiplied by the logarithm of 1.
        let x = v.select_lt(zero, p, p, one);
        if not_normal(v, x) == 0 {
            let p = v.select_lt(zero, p, p, zero);
            // Minus p, not minus the product: the sign of a term of 0 does not matter.
            v.store(to, v.mul(v.sub(zero, p), v.ln(x)));
        } else {
            entropies_by_host(chunk, to);
        }
    }
    let smallest = -v.reduce_max(v.sub(zero, smallest));
    let of_rest = entropies_by_host(chunks.remainder(), rest.into_remainder());
    if of_rest < smallest {
        of_rest
    } else {
        smallest
    }
}

/// Implements `entropies` by the C library's `logf`. Returns the smallest probability, or 1 if
/// there is none.
#[cold]
#[inline(never)]
fn entropies_by_host(ps: &[f32], to: &mut [f32]) -> f32 {
    let mut smallest = 1.0;
    for (&p, to) in ps.iter().zip(to) {
        *to = if p > 0.0 { -p * ln(p) } else { 0.0 };
        smallest = if p < smallest { p } else { smallest };
    }
    smallest
}

#[inline(always)]
// In bounds: a block has at most `SUM_BLOCK` elements.
fn fused_entropy_on<V: Vector>(v: V, start: f32, ps: &[f32]) -> f32 {
    let mut lns = [0.0; SUM_BLOCK];
    let mut sum = start;
    for ps in ps.chunks(SUM_BLOCK) {
        let lns = &mut lns[..ps.len()];
        lns_on(v, ps, lns);
        if let Some(after) = try_fused(v, sum, ps, lns) {
            sum = after;
            continue;
        }
        for (ps, lns) in ps.chunks(PART).zip(lns.chunks(PART)) {
            sum = try_fused(v, sum, ps, lns).unwrap_or_else(|| fused_one_by_one(sum, ps, lns));
        }
    }
    sum
}

#[inline(always)]
fn fused_one_by_one(sum: f32, ps: &[f32], lns: &[f32]) -> f32 {
    let above_0 = ps.iter().zip(lns).filter(|(p, _)| **p > 0.0);
    above_0.fold(sum, |sum, (p, ln)| fma(-p, *ln, sum))
}

/// Adds products as `sequential_sum::try_block` adds terms. A product that is added, in one
/// operation, to the power of two at or below the sum is rounded to the unit as it would be when
/// added to the sum. One more operation gives the part that was rounded off; this is rounded
/// itself, but not across half a unit.
#[inline(always)]
fn try_fused<V: Vector>(v: V, sum: f32, ps: &[f32], lns: &[f32]) -> Option<f32> {
    if !(SMALLEST..f32::INFINITY).contains(&sum) {
        return None;
    }
    let c = binade(sum);
    let (unit, zero, one) = (v.splat(c), v.splat(0.0), v.splat(1.0));
    let (mut added, mut furthest) = (zero, zero);
    let mut chunks = ps.chunks_exact(V::LANES);
    let mut of_lns = lns.chunks_exact(V::LANES);
    for (ps, lns) in (&mut chunks).zip(&mut of_lns) {
        let p = v.load(ps);
        // The logarithm of a probability that is not above 0 may be NaN or infinite, so 1 replaces
        // it.
        let ln = v.select_lt(zero, p, v.load(lns), one);
        let surprisal = v.sub(zero, ln);
        let rounded = v.sub(v.fma(p, surprisal, unit), unit);
        furthest = v.max_abs(v.fma(p, surprisal, v.sub(zero, rounded)), furthest);
        added = v.add(added, rounded);
    }
    let total = sum + v.reduce_add(added);
    let stays = total < 2.0 * c;
    if v.reduce_max(furthest) >= c * (f32::EPSILON / 2.0) || !stays {
        return None;
    }
    Some(fused_one_by_one(
        total,
        chunks.remainder(),
        of_lns.remainder(),
    ))
}

#[inline(always)]
fn surprisals_on<V: Vector>(
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
        let ln_p = v.ln(p);
        // Minus p, not minus the product: the sign of a term of 0 does not matter.
        let term = v.mul(v.sub(zero, p), ln_p);
        v.store(ps, p);
        v.store(lns, ln_p);
        v.store(terms, term);
        let [low, high] = v.widen(term);
        totals = [v.add_d(totals[0], low), v.add_d(totals[1], high)];
    }
    let rest = surprisals_by_host(
        chunks.remainder(),
        sum,
        p_chunks.into_remainder(),
        ln_chunks.into_remainder(),
        term_chunks.into_remainder(),
    );
    v.reduce_add_d(v.add_d(totals[0], totals[1])) + by_host + rest
}

/// Implements `surprisals` by the C library's `logf`. Out of line, so that the loop keeps its
/// registers.
#[cold]
#[inline(never)]
fn surprisals_by_host(
    es: &[f32],
    sum: f32,
    ps: &mut [f32],
    lns: &mut [f32],
    terms: &mut [f32],
) -> f64 {
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

#[inline(always)]
fn nearness_on<V: Vector>(v: V, lns: &[f32], entropy: f32, to: &mut [f32]) {
    assert_eq!(lns.len(), to.len());
    let (zero, entropies) = (v.splat(0.0), v.splat(entropy));
    let mut chunks = lns.chunks_exact(V::LANES);
    let mut rest = to.chunks_exact_mut(V::LANES);
    for (chunk, to) in (&mut chunks).zip(&mut rest) {
        let surprisal = v.sub(zero, v.load(chunk));
        let distance = v.abs(v.sub(surprisal, entropies));
        v.store(to, v.sub(zero, distance));
    }
    for (ln_p, to) in chunks.remainder().iter().zip(rest.into_remainder()) {
        *to = -(-ln_p - entropy).abs();
    }
}
