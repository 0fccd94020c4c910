//! Draws by Gumbel noise: each candidate is chosen with its probability.

use crate::kernels;
use crate::rng::at_position;
use crate::token::{Token, TokenData};

/// Writes the probabilities of `candidates`, and returns the index of the candidate with the
/// largest sum of logit and Gumbel noise. The noise is computed from `bits`.
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

/// Returns -ln(-ln u) for a uniform number u that is a hash of the random number `bits` and the
/// token (Gumbel 1954).
fn gumbel_noise(bits: u64, token: Token) -> f64 {
    let hash = at_position(bits, u64::from(token as u32));
    // The number is the middle of one of 2^52 intervals, so that it is neither 0 nor 1.
    let u = ((hash >> 12) as f64 + 0.5) / (1u64 << 52) as f64;
    -(-u.ln()).ln()
}

#[cfg(test)]
mod tests;
