//! Few sorted candidates through top-p, min-p and the temperature, with the arithmetic of the
//! samplers of these names.
//!
//! The samplers are made for arrays of any size and order, and are slow where their code has left
//! the cache, as after every forward pass. This is some hundred instructions, and two `exp` for
//! each candidate.

use crate::sieve::params::{Order, Params};
use crate::sieve::stages::Stages;
use crate::sieve::stats::Stats;
use crate::simd::libm::{exp, ln};
use crate::token::TokenData;

/// More than that are the samplers' to cut.
const MOST: usize = 128;

/// Whether these stages can take the place of the samplers.
pub(super) fn fits(stages: &Stages, candidates: &[TokenData]) -> bool {
    candidates.len() <= MOST && stages.only_cuts_by_probability()
}

/// What the stages behind top-k leave of `candidates`, which descend, have none that is infinite or
/// NaN, and a first one.
pub(super) fn filter(params: &Params, candidates: &mut Vec<TokenData>, stats: &mut Stats) {
    stats.after_typical = candidates.len();
    if params.top_p < 1.0 {
        cut_nucleus(params, candidates);
    }
    stats.after_top_p = candidates.len();
    if params.min_p > 0.0 {
        cut_below_min_p(params, candidates);
    }
    stats.after_min_p = candidates.len();
    // An early temperature can have divided the last ones down to it.
    while candidates
        .last()
        .is_some_and(|c| c.logit == f32::NEG_INFINITY)
    {
        candidates.pop();
    }
    stats.after_top_n_sigma = candidates.len();
    if params.order == Order::TempLast && params.temperature != 1.0 {
        for candidate in candidates {
            candidate.logit /= params.temperature;
        }
    }
}

/// Probabilities, their sum and its running value are `float`s.
fn cut_nucleus(params: &Params, candidates: &mut Vec<TokenData>) {
    let max = candidates.first().map_or(0.0, |c| c.logit);
    let mut sum = 0.0f32;
    for candidate in &mut *candidates {
        candidate.p = exp(candidate.logit - max);
        sum += candidate.p;
    }
    let mut running = 0.0f32;
    let reaches = |(i, candidate): (usize, &TokenData)| {
        running += candidate.p / sum;
        running >= params.top_p && i + 1 >= params.min_keep
    };
    if let Some(last) = candidates.iter().enumerate().position(reaches) {
        candidates.truncate(last + 1);
    }
}

/// The first stays.
fn cut_below_min_p(params: &Params, candidates: &mut Vec<TokenData>) {
    let max = candidates.first().map_or(0.0, |c| c.logit);
    let threshold = max + ln(params.min_p);
    let mut others = candidates.iter().enumerate().skip(1);
    let cut = others.find(|&(i, c)| c.logit < threshold && i >= params.min_keep);
    if let Some((cut, _)) = cut {
        candidates.truncate(cut);
    }
}
