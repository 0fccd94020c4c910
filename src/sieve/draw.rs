//! The draw: one of the candidates, each with its probability.

use crate::kernels::floats::{Logits, Sums};
use crate::kernels::math::exp;
use crate::kernels::{self, Workspace};
use crate::rng::at_position;
use crate::sieve::workspace::reserve;
use crate::token::{Token, TokenData};

/// Writes the probabilities of `candidates`, and gives the index of the first at which their running sum reaches the share `uniform` of the whole.
///
/// The sums are `double`s in array order, as those of llama.cpp's dist, and so is the answer where the sum is not a number: the last.
pub(super) fn cdf(candidates: &mut [TokenData], max: f32, uniform: f64) -> usize {
    let sum = kernels::exponentiate(candidates, max);
    let target = sum * uniform;
    let mut running = 0.0f64;
    let mut chosen = None;
    for (i, candidate) in candidates.iter_mut().enumerate() {
        if chosen.is_none() {
            running += f64::from(candidate.p);
            if running >= target {
                chosen = Some(i);
            }
        }
        candidate.p = (f64::from(candidate.p) / sum) as f32;
    }
    if candidates.len() == 1 {
        candidates[0].p = 1.0;
    }
    chosen.unwrap_or(candidates.len() - 1)
}

/// From here on it pays to compute the exponentials as vectors.
pub(super) const MANY: usize = 128;

/// The same choice, of many candidates: their sums are added in any order, and only a draw that falls on a border asks for the order of [`cdf`]. Probabilities can differ in the last bit.
pub(super) fn cdf_of_many(
    candidates: &mut [TokenData],
    uniform: f64,
    exponentials: &mut Workspace,
) -> usize {
    let sum = exponentials.exponentiate_double(candidates, false);
    let chosen = exponentials.choose(sum, uniform, |ps| in_order(ps, uniform));
    exponentials.write_p_scaled(candidates, 1.0 / sum);
    chosen
}

/// Of how many logits a sum is kept.
const SUMMED: usize = 512;
/// By how much two of their sums are off at most, together, as a share of all.
const MARGIN: f64 = 1e-6;

/// The same choice by logits alone, without keeping an exponential: sums of blocks, one of which is then looked into. Where their rounding could decide, it is made of
/// exact exponentials (6 of 100 draws from 30,000).
pub(super) fn cdf_apart(
    logits: &[f32],
    uniform: f64,
    sums: &mut Vec<f64>,
    exponentials: &mut Workspace,
) -> usize {
    let max = Logits::F32(logits).max();
    sums.clear();
    reserve(sums, logits.len().div_ceil(SUMMED));
    let mut all = Sums {
        max,
        ..Sums::default()
    };
    for block in logits.chunks(SUMMED) {
        all.add_mass(Logits::F32(block), &mut []);
        sums.push(all.rest);
    }
    let margin = all.rest * MARGIN;
    let target = all.rest * uniform;
    let earliest = reach(logits, max, sums, target - margin);
    if let Some(chosen) = earliest
        && earliest == reach(logits, max, sums, target + margin)
    {
        return chosen;
    }
    let sum = exponentials.exponentiate_logits(logits, max);
    exponentials.choose(sum, uniform, |ps| in_order(ps, uniform))
}

/// The first index at which the running sum of exponentials reaches `target`.
fn reach(logits: &[f32], max: f32, sums: &[f64], target: f64) -> Option<usize> {
    let block = sums.partition_point(|&sum| sum < target);
    let mut sum = if block == 0 { 0.0 } else { sums[block - 1] };
    let start = block * SUMMED;
    let mut block = logits.iter().enumerate().skip(start).take(SUMMED);
    let found = block.find(|&(_, &logit)| {
        sum += f64::from(exp(logit - max));
        sum >= target
    });
    found.map(|(i, _)| i)
}

/// The first of `ps` at which their running sum reaches the share `uniform` of the whole, the sums added in order.
fn in_order(ps: &[f32], uniform: f64) -> usize {
    let running = |sum: &mut f64, &p: &f32| {
        *sum += f64::from(p);
        Some(*sum)
    };
    let sum = ps.iter().scan(0.0, running).last().unwrap_or(0.0);
    let mut sums = ps.iter().scan(0.0, running);
    let chosen = sums.position(|s| s >= sum * uniform);
    chosen.unwrap_or(ps.len().saturating_sub(1))
}

/// Writes the probabilities of `candidates`, and gives the index of the largest logit + Gumbel noise.
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
