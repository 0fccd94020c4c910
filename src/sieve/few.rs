//! Few sorted candidates through top-p, min-p and the temperature, by the rules of the samplers of
//! these names without their passes: some hundred instructions, and two `exp` for each candidate.

use crate::samplers::min_p::kept_of_sorted;
use crate::samplers::temp::divide_few;
use crate::samplers::top_p::nucleus_of_few;
use crate::sieve::params::{Order, Params};
use crate::sieve::stages::Stages;
use crate::sieve::stats::Stats;
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
        let kept = nucleus_of_few(candidates, params.top_p, params.min_keep);
        candidates.truncate(kept);
    }
    stats.after_top_p = candidates.len();
    if params.min_p > 0.0 {
        candidates.truncate(kept_of_sorted(candidates, params.min_p, params.min_keep));
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
        divide_few(candidates, params.temperature);
    }
}

#[cfg(test)]
mod tests;
