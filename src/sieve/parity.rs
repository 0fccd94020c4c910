//! The filters as llama.cpp's chain has them: all of the vocabulary as candidates, through the
//! exact samplers in order.

use crate::kernels::layout::CHUNK;
use crate::sieve::Error;
use crate::sieve::params::{Order, Params};
use crate::sieve::select::{everything, scan};
use crate::sieve::source::Source;
use crate::sieve::stages::{Stages, apply, unmasked};
use crate::sieve::stats::Stats;
use crate::sieve::workspace::{Workspace, reserve};
use crate::token::{Token, TokenData};

/// Leaves in `workspace.candidates` what is drawn from; says whether it is sorted.
pub(super) fn filter(
    params: &Params,
    stages: &mut Stages,
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
) -> Result<bool, Error> {
    let max = scan(source, &mut workspace.maxima);
    if max == f32::NEG_INFINITY {
        return Err(Error::NoCandidate);
    }
    let candidates = &mut workspace.candidates;
    fill(source, candidates);
    let mut sorted = false;
    if params.order == Order::TempFirst {
        apply(stages.temp(), candidates, &mut sorted);
    }
    apply(stages.top_k(), candidates, &mut sorted);
    stats.after_top_k = unmasked(candidates);
    stages.warm_up(candidates.len(), usize::MAX);
    apply(stages.typical(), candidates, &mut sorted);
    stats.after_typical = unmasked(candidates);
    apply(stages.top_p(), candidates, &mut sorted);
    stats.after_top_p = unmasked(candidates);
    apply(stages.min_p(), candidates, &mut sorted);
    stats.after_min_p = unmasked(candidates);
    apply(stages.top_n_sigma(), candidates, &mut sorted);
    stats.after_top_n_sigma = unmasked(candidates);
    if params.order == Order::TempLast {
        apply(stages.temp(), candidates, &mut sorted);
    }
    Ok(sorted)
}

/// All tokens in order, as a host passes them to a chain.
#[expect(clippy::indexing_slicing, reason = "bounded by `CHUNK`")]
fn fill(source: &Source<'_>, candidates: &mut Vec<TokenData>) {
    candidates.clear();
    reserve(candidates, source.len());
    source.for_each_run(CHUNK, everything, |start, run| {
        let mut chunk = [0.0; CHUNK];
        for at in (0..run.len()).step_by(CHUNK) {
            let chunk = &mut chunk[..CHUNK.min(run.len() - at)];
            run.widen(at, chunk);
            let ids = (start + at) as Token..;
            candidates.extend(
                ids.zip(&*chunk)
                    .map(|(id, &logit)| TokenData { id, logit, p: 0.0 }),
            );
        }
    });
}
