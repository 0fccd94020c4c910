//! The filters by the quickest way: raw logits are reduced to few candidates first, and those go
//! through the exact samplers, or their arithmetic where at most 128 are left.
//!
//! Which stage reduces depends on the parameters; nothing is cut off that a stage would have kept:
//!
//! | first active stage | how | reads of V logits |
//! | --- | --- | --- |
//! | top-k | maxima of blocks; the k-th largest of groups of them is a threshold | 1, and the blocks that reach it |
//! | typical | all candidates; a histogram of their distances from the entropy | 2 |
//! | top-p | maxima of blocks with the sum of exponentials; the 128 largest, if they have the mass; else a sample brackets the cut | 1 and few blocks; 2 where flat |
//! | min-p | maxima of blocks; all above the largest + ln p | 1, and the blocks that reach it |
//! | none | all candidates | 2 |
//!
//! The cut and the temperature of a flat nucleus are remembered, not applied: candidates are made
//! of it only if someone asks, or a stage follows.
//!
//! Sums over more than 8192 tokens are `double`s here and sequential `float`s in llama.cpp: at a
//! threshold the two can differ by what that rounds away. Masked tokens (minus infinity, NaN) drop
//! out at once. With them the built-in typical computes with NaN; here they have no part in the
//! entropy.

use crate::algorithms::host_order::overflows;
use crate::kernels;
use crate::kernels::layout::CHUNK;
use crate::kernels::packed::Packed;
use crate::memory::reserve;
use crate::metrics::Summary;
use crate::pool::division_keeps_order;
use crate::samplers::min_p::least_kept;
use crate::samplers::running::Enough;
use crate::samplers::temp::divide_few;
use crate::samplers::{top_p, typical};
use crate::sieve::Error;
use crate::sieve::cut::{Bracket, Cut, Divided, SORTED, cut_nucleus};
use crate::sieve::few;
use crate::sieve::nearest::{Buffers, Nearest};
use crate::sieve::params::{Order, Params};
use crate::sieve::select::{
    collect, collect_packed, cut_few, everything, first_of, keep_largest, of_run, room_for_maxima,
    scan, scan_and_count, sort, threshold_of, top_k,
};
use crate::sieve::source::Source;
use crate::sieve::stages::{Stages, apply};
use crate::sieve::stats::Stats;
use crate::sieve::workspace::Workspace;
use crate::token::TokenData;

/// The stage whose work is done already.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Done {
    TopK,
    TopP,
    MinP,
}

/// What [`reduce`] leaves.
enum Reduced {
    /// Candidates, after a stage; whether they are sorted.
    To(Done, bool),
    /// A large nucleus in `survivors`, not sorted.
    Apart,
}

/// What [`filter`] leaves.
pub(super) enum Kept {
    /// Candidates; whether they are sorted.
    Together(bool),
    /// Many, in `survivors`, not sorted.
    Apart,
}

/// The most probable token alone.
pub(super) fn greedy(
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
) -> Result<(), Error> {
    let max = scan(source, &mut workspace.maxima);
    if max == f32::NEG_INFINITY {
        return Err(Error::NoCandidate);
    }
    let best = first_of(max, source, &workspace.maxima);
    workspace.candidates.clear();
    workspace.candidates.push(best);
    stats.set_all(1);
    Ok(())
}

/// Leaves what is drawn from in `workspace.candidates`, or, where `may_stay_apart`, in
/// `workspace.survivors`.
pub(super) fn filter(
    params: &Params,
    stages: &mut Stages,
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
    may_stay_apart: bool,
) -> Result<Kept, Error> {
    let (done, mut sorted) = match reduce(params, workspace, stats, source)? {
        Reduced::To(done, sorted) => (done, sorted),
        Reduced::Apart if may_stay_apart && only_divides(params, stages, &workspace.survivors) => {
            finish_apart(params, &mut workspace.survivors, stats);
            return Ok(Kept::Apart);
        }
        Reduced::Apart => {
            let candidates = &mut workspace.candidates;
            candidates.clear();
            reserve(candidates, stats.after_top_p);
            workspace.survivors.write_to(candidates);
            (Done::TopP, false)
        }
    };
    let candidates = &mut workspace.candidates;
    if done < Done::TopP {
        let max = kernels::max_logit(candidates, sorted);
        if max == f32::INFINITY && keep_infinite(candidates, sorted) {
            stats.set_all(candidates.len());
            return Ok(Kept::Together(true));
        }
        if !sorted && overflows(max) {
            // The host's sort, which the samplers replay, would put the largest last.
            sort(candidates, &mut workspace.keys);
            sorted = true;
        }
    }
    if done == Done::TopK && sorted && few::fits(stages, candidates) {
        stats.after_top_k = candidates.len();
        few::filter(params, candidates, stats);
        return Ok(Kept::Together(true));
    }
    // Typical leaves them unsorted, and more are not given to the exact top-p.
    stages.warm_up(params.top_k_of(source.len()).unwrap_or(source.len()), FEW);
    if done < Done::TopP {
        cut_by_mass(params, stages, workspace, stats, &mut sorted);
    }
    let candidates = &mut workspace.candidates;
    if done < Done::MinP {
        stats.after_top_p = candidates.len();
        apply(stages.min_p(), candidates, &mut sorted);
    }
    stats.after_min_p = candidates.len();
    let masks = stages.top_n_sigma().is_some();
    apply(stages.top_n_sigma(), candidates, &mut sorted);
    // What reduces to many candidates has left out masked ones; an early temperature can have
    // divided few of them down to minus infinity.
    if masks || candidates.len() <= FEW {
        candidates.retain(|c| c.logit > f32::NEG_INFINITY);
    }
    stats.after_top_n_sigma = candidates.len();
    if params.order == Order::TempLast {
        apply(stages.temp(), candidates, &mut sorted);
    }
    Ok(Kept::Together(sorted))
}

/// Whether nothing but a temperature follows a nucleus, and its division leaves numbers.
fn only_divides(params: &Params, stages: &Stages, survivors: &Packed) -> bool {
    stages.only_divide_after_top_p() && division_keeps_order(survivors.max(), params.temperature)
}

/// What follows a nucleus of which that holds.
fn finish_apart(params: &Params, survivors: &mut Packed, stats: &mut Stats) {
    stats.after_min_p = stats.after_top_p;
    stats.after_top_n_sigma = stats.after_top_p;
    if params.order == Order::TempLast && params.temperature != 1.0 {
        survivors.divide(params.temperature);
    }
}

/// Typical and top-p on what [`reduce`] has left of a top-k, or of all.
fn cut_by_mass(
    params: &Params,
    stages: &mut Stages,
    workspace: &mut Workspace,
    stats: &mut Stats,
    sorted: &mut bool,
) {
    let Workspace {
        candidates,
        keys,
        spare,
        exponentials,
        nearest,
        ..
    } = workspace;
    stats.after_top_k = candidates.len();
    if !*sorted && params.top_p < 1.0 && candidates.len() <= FEW {
        // A top-k that keeps all still sorts, and the order of the sum decides where top-p cuts.
        apply(stages.top_k(), candidates, sorted);
    }
    let mut buffers = Buffers {
        keys,
        spare,
        exponentials,
    };
    if stages.typical().is_some() {
        buffers.exponentials.warm_up(candidates.len());
    }
    match stages.typical() {
        Some(typical) if fits_exact(candidates) => apply(Some(typical), candidates, sorted),
        Some(_) => keep_typical(params, candidates, nearest, &mut buffers),
        None => {}
    }
    stats.after_typical = candidates.len();
    match stages.top_p() {
        Some(_) if !*sorted && candidates.len() > FEW => {
            keep_probable(params, candidates, nearest, &mut buffers);
        }
        top_p => apply(top_p, candidates, sorted),
    }
}

/// From all logits to candidates.
fn reduce(
    params: &Params,
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
) -> Result<Reduced, Error> {
    let divisor = params.early_divisor();
    if let Some(k) = params.top_k_of(source.len()) {
        let Workspace {
            maxima,
            sample,
            candidates,
            keys,
            ..
        } = workspace;
        if scan(source, maxima) == f32::NEG_INFINITY {
            return Err(Error::NoCandidate);
        }
        top_k(k, source, maxima, sample, candidates, keys);
        if divisor != 1.0 {
            divide_few(candidates, divisor);
        }
        // Even the largest, divided, may be minus infinity.
        if candidates
            .first()
            .is_none_or(|c| c.logit == f32::NEG_INFINITY)
        {
            return Err(Error::NoCandidate);
        }
        return Ok(Reduced::To(Done::TopK, true));
    }
    let source = Source { divisor, ..*source };
    let (typical, top_p) = (params.typical_p < 1.0, params.top_p < 1.0);
    if !typical && top_p && source.len() > FEW {
        return nucleus(params, workspace, stats, &source);
    }
    if !typical && !top_p && params.min_p > 0.0 {
        let sorted = above_min_p(params, workspace, stats, &source)?;
        return Ok(Reduced::To(Done::MinP, sorted));
    }
    if scan(&source, &mut workspace.maxima) == f32::NEG_INFINITY {
        return Err(Error::NoCandidate);
    }
    let candidates = &mut workspace.candidates;
    collect(&source, &mut workspace.maxima, f32::MIN, candidates);
    Ok(Reduced::To(Done::TopK, false))
}

/// Of infinite logits the first wins. Says whether there was one.
pub(super) fn keep_infinite(candidates: &mut Vec<TokenData>, sorted: bool) -> bool {
    if kernels::max_logit(candidates, sorted) < f32::INFINITY {
        return false;
    }
    let infinite = |c: &&TokenData| c.logit == f32::INFINITY;
    let Some(&first) = candidates.iter().find(infinite) else {
        return false;
    };
    candidates.clear();
    candidates.push(first);
    true
}

/// A nucleus is looked for among about as many of the most probable first.
const FIRST: usize = 128;

/// Top-p on all of the vocabulary.
fn nucleus(
    params: &Params,
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
) -> Result<Reduced, Error> {
    let Workspace {
        candidates,
        keys,
        maxima,
        sample,
        ..
    } = workspace;
    let mut all = Summary::default();
    room_for_maxima(source.len(), maxima);
    source.for_each_run(CHUNK, everything, |start, run| {
        all.add_mass(run, of_run(maxima, start, &run));
    });
    if !all.is_defined() {
        return Err(Error::NoCandidate);
    }
    stats.after_top_k = all.unmasked();
    stats.after_typical = all.unmasked();
    let max = all.max();
    if max == f32::INFINITY {
        collect(source, maxima, f32::INFINITY, candidates);
        candidates.truncate(1);
        stats.after_top_p = 1;
        return Ok(Reduced::To(Done::TopP, true));
    }
    let share: Enough<f64> = top_p::enough(params.top_p, params.min_keep.max(1));
    let mass = share.sum * all.mass();
    let enough = Enough { sum: mass, ..share };
    let first = threshold_of(FIRST, maxima, sample).unwrap_or(f32::MIN);
    collect(source, maxima, first, candidates);
    if candidates.len() <= SORTED && cut_few(enough, max, candidates, keys) {
        stats.after_top_p = candidates.len();
        return Ok(Reduced::To(Done::TopP, true));
    }
    let bracket = Bracket::guess(all.mass() - mass, max, source);
    let kept = cut_at_bracket(enough, max, bracket, source, workspace);
    stats.after_top_p = kept;
    if kept > SORTED {
        return Ok(Reduced::Apart);
    }
    let Workspace {
        candidates,
        keys,
        survivors,
        ..
    } = workspace;
    candidates.clear();
    reserve(candidates, kept);
    survivors.write_to(candidates);
    sort(candidates, keys);
    Ok(Reduced::To(Done::TopP, true))
}

/// Leaves the nucleus in the survivors, and gives how many it has: `bracket` holds the guess where
/// it ends.
fn cut_at_bracket(
    enough: Enough<f64>,
    max: f32,
    mut bracket: Bracket,
    source: &Source<'_>,
    workspace: &mut Workspace,
) -> usize {
    let Workspace {
        keys,
        spare,
        maxima,
        exponentials,
        survivors,
        ..
    } = workspace;
    collect_packed(source, maxima, (max, bracket.low), survivors);
    let mut divided = Divided::of(survivors, max, bracket);
    if !enough.at(divided.sum, survivors.len()) {
        bracket.low = f32::MIN;
        collect_packed(source, maxima, (max, bracket.low), survivors);
        divided = Divided::of(survivors, max, bracket);
    }
    let mut cut = Cut {
        keys,
        band: spare,
        exponentials,
    };
    cut_nucleus(enough, (max, bracket.low), &divided, survivors, &mut cut)
}

/// Min-p on all of the vocabulary.
fn above_min_p(
    params: &Params,
    workspace: &mut Workspace,
    stats: &mut Stats,
    source: &Source<'_>,
) -> Result<bool, Error> {
    let Workspace {
        candidates,
        keys,
        spare,
        maxima,
        ..
    } = workspace;
    let (max, unmasked) = scan_and_count(source, maxima);
    if max == f32::NEG_INFINITY {
        return Err(Error::NoCandidate);
    }
    stats.after_top_k = unmasked;
    stats.after_typical = unmasked;
    stats.after_top_p = unmasked;
    if max == f32::INFINITY {
        collect(source, maxima, max, candidates);
        candidates.truncate(1);
        return Ok(true);
    }
    let least = params.min_keep.max(1);
    collect(
        source,
        maxima,
        least_kept(max, params.min_p).max(f32::MIN),
        candidates,
    );
    if candidates.len() >= least {
        return Ok(false);
    }
    collect(source, maxima, f32::MIN, candidates);
    keep_largest(least, candidates, keys, spare);
    Ok(true)
}

/// Up to here the exact samplers cost little (tens of microseconds), and so a small vocabulary is
/// cut exactly where llama.cpp cuts it.
pub(super) const FEW: usize = 8192;
/// Probabilities this far below the largest are still above 0, so that the exact sampler's entropy
/// is a number.
const SPREAD: f32 = 80.0;

/// Whether the exact typical sampler can be asked. `candidates` is not empty.
fn fits_exact(candidates: &[TokenData]) -> bool {
    if candidates.len() > FEW {
        return false;
    }
    let max = kernels::max_logit(candidates, false);
    candidates.iter().all(|c| max - c.logit < SPREAD)
}

/// Typical on many candidates: the most typical ones until their probabilities exceed `typical_p`,
/// at least `min_keep`.
fn keep_typical(
    params: &Params,
    candidates: &mut Vec<TokenData>,
    nearest: &mut Nearest,
    buffers: &mut Buffers<'_>,
) {
    let all = Summary::of_candidates(candidates);
    // The logit of a token whose surprisal is the entropy.
    let centre = all.log_sum_exp() - all.entropy().unwrap_or(0.0);
    let enough = typical::enough_double(params.typical_p, params.min_keep.max(1));
    nearest.keep(centre, enough, candidates, buffers);
}

/// Top-p on many candidates that are not sorted, which stay so.
fn keep_probable(
    params: &Params,
    candidates: &mut Vec<TokenData>,
    nearest: &mut Nearest,
    buffers: &mut Buffers<'_>,
) {
    let centre = f64::from(kernels::max_logit(candidates, false));
    let enough = top_p::enough(params.top_p, params.min_keep.max(1));
    nearest.keep(centre, enough, candidates, buffers);
}

#[cfg(test)]
mod tests;
