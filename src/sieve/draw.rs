//! The draw: one of the candidates, each with its probability.

use crate::algorithms::Workspace;
use crate::algorithms::categorical::{choose_in_order, first_reaching};
use crate::kernels;
use crate::kernels::layout::SUM_BLOCK;
use crate::kernels::packed::Packed;
use crate::rng::at_position;
use crate::simd::libm::exp;
use crate::token::{Token, TokenData};

/// Writes the probabilities of `candidates`, and gives the index of the first at which their
/// running sum reaches the share `uniform` of the whole.
///
/// The sums are `double`s in array order, as those of llama.cpp's dist, and so is the answer where
/// the sum is not a number: the last.
pub(super) fn cdf(candidates: &mut [TokenData], max: f32, uniform: f64) -> usize {
    let sum = kernels::exponentiate(candidates, max);
    let terms = candidates.iter().map(|candidate| f64::from(candidate.p));
    let chosen = first_reaching(terms, sum * uniform);
    for candidate in &mut *candidates {
        candidate.p = (f64::from(candidate.p) / sum) as f32;
    }
    if let [only] = candidates {
        only.p = 1.0;
    }
    chosen.unwrap_or(candidates.len().saturating_sub(1))
}

/// From here on it pays to compute the exponentials as vectors.
pub(super) const MANY: usize = 128;

/// The same choice, of many candidates: their sums are added in any order, and only a draw that
/// falls on a border asks for the order of [`cdf`]. Probabilities can differ in the last bit.
pub(super) fn cdf_of_many(
    candidates: &mut [TokenData],
    uniform: f64,
    exponentials: &mut Workspace,
) -> usize {
    let sum = exponentials.exponentiate_double(candidates, false);
    let chosen = exponentials.choose(sum, uniform, |ps| choose_in_order(ps, |&p| p, uniform));
    exponentials.write_p_divided(candidates, sum);
    chosen
}

/// By how much two sums of blocks are off at most, together, as a share of all.
const MARGIN: f64 = 1e-6;

/// The same choice of survivors, as a place among them, without keeping an exponential: sums of
/// blocks, one of which is then looked into. Where their rounding could decide, it is made of exact
/// exponentials (6 of 100 draws from 30,000).
pub(super) fn cdf_of_survivors(
    survivors: &mut Packed,
    uniform: f64,
    sums: &mut Vec<f64>,
    exponentials: &mut Workspace,
) -> usize {
    if survivors.max().is_finite() {
        survivors.masses(sums);
        let all = sums.last().copied().unwrap_or(0.0);
        let (margin, target) = (all * MARGIN, all * uniform);
        let earliest = reach(survivors, sums, target - margin);
        if let Some(chosen) = earliest
            && earliest == reach(survivors, sums, target + margin)
        {
            return chosen;
        }
    }
    let max = survivors.max();
    let sum = exponentials.exponentiate_logits(survivors.settle(), max);
    let chosen = exponentials.choose(sum, uniform, |ps| choose_in_order(ps, |&p| p, uniform));
    // Before the first the sum is 0, which a number of 0 is content with; and the last takes what
    // is no number.
    let mut kept = (chosen..survivors.len()).chain((0..chosen).rev());
    let kept = kept.find(|&place| survivors.at(place).is_some());
    kept.unwrap_or(chosen)
}

/// The first place at which the running sum of exponentials reaches `target`.
#[expect(
    clippy::indexing_slicing,
    reason = "a partition point is at most the length, and was found not to be 0"
)]
fn reach(survivors: &Packed, sums: &[f64], target: f64) -> Option<usize> {
    let block = sums.partition_point(|&sum| sum < target);
    let mut sum = if block == 0 { 0.0 } else { sums[block - 1] };
    let start = block * SUM_BLOCK;
    let end = survivors.len().min(start + SUM_BLOCK);
    let max = survivors.max();
    (start..end).find(|&place| {
        let Some(logit) = survivors.at(place) else {
            return false;
        };
        sum += f64::from(exp(logit - max));
        sum >= target
    })
}

/// Writes the probabilities of `candidates`, and gives the index of the largest logit + Gumbel
/// noise.
pub(super) fn gumbel(candidates: &mut [TokenData], max: f32, bits: u64) -> usize {
    let sum = kernels::exponentiate(candidates, max);
    let mut best = 0;
    let mut largest = f64::NEG_INFINITY;
    for (i, candidate) in candidates.iter_mut().enumerate() {
        candidate.p = (f64::from(candidate.p) / sum) as f32;
        let noisy = f64::from(candidate.logit) + gumbel_noise(bits, candidate.id);
        if noisy > largest {
            largest = noisy;
            best = i;
        }
    }
    best
}

/// -ln(-ln u) of a uniform u that hashes the random number and the token (Gumbel 1954).
fn gumbel_noise(bits: u64, token: Token) -> f64 {
    let hash = at_position(bits, u64::from(token as u32));
    // The middle of one of 2^52 intervals, so that u is neither 0 nor 1.
    let u = ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -(-u.ln()).ln()
}

#[cfg(test)]
mod tests;
