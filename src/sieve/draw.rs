//! The draw of a token with the sieve's own random number: by the inverse of the cumulative
//! distribution, or by Gumbel noise. Each candidate is chosen with its probability.

use std::ffi::CStr;

use crate::algorithms::Scratch;
use crate::candidates::Candidates;
use crate::kernels;
use crate::per_thread::lent_per_thread;
use crate::pool::Pool;
use crate::rng::at_position;
use crate::sampler::{About, Sampler, Step, Tell};
use crate::samplers::Dist;
use crate::sieve::generator::Random;
use crate::sieve::params::Method;
use crate::token::{Token, TokenData};

/// The sampler that draws by the inverse of the cumulative distribution. Its own stream is never
/// used.
#[derive(Debug)]
pub(super) struct Inverse(pub Dist);

lent_per_thread!(Inverse);

impl Default for Inverse {
    fn default() -> Self {
        Self(Dist::new(0))
    }
}

/// The draw of one token.
pub(super) struct Draw<'d> {
    pub method: Method,
    pub random: Random,
    pub seed: u64,
    pub inverse: &'d mut Scratch<Inverse>,
}

impl Step for Draw<'_> {
    fn name(&self) -> &'static CStr {
        match self.method {
            Method::Cdf => c"dist",
            Method::Gumbel => c"gumbel",
        }
    }

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => to("seed", self.seed as f64),
            About::Next => to("draw", self.random.uniform),
            About::Token(_) => {}
        }
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        match self.method {
            Method::Cdf => {
                self.inverse.0.narrow_by(pool, self.random.uniform);
                // First its own buffers, then the sampler itself.
                self.inverse.0.rest();
                self.inverse.rest();
            }
            Method::Gumbel => pool.apply(|candidates| draw_by_noise(candidates, self.random.bits)),
        }
    }
}

fn draw_by_noise(candidates: &mut Candidates<'_>, bits: u64) {
    let sorted = candidates.is_sorted();
    let data = candidates.as_mut_slice();
    if let [only] = data {
        only.p = 1.0;
        return candidates.select(Some(0));
    }
    let max = kernels::max_logit(data, sorted);
    let chosen = gumbel(data, max, bits);
    candidates.select(Some(chosen));
}

/// Writes the probabilities of `candidates`, and returns the index of the candidate with the
/// largest sum of logit and Gumbel noise. The noise is computed from `bits`.
fn gumbel(candidates: &mut [TokenData], max: f32, bits: u64) -> usize {
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
