//! Functions that need no sieve: the token with the largest logit, and the most probable tokens.

use crate::kernels::layout::CHUNK;
use crate::kernels::logits::Logits;
use crate::metrics::Summary;
use crate::sieve::Error;
use crate::token::{Token, TokenData};

/// Fails if the number of tokens, `n`, is 0 or above `Token::MAX`.
pub(super) fn check(n: usize) -> Result<(), Error> {
    match n {
        0 => Err(Error::EmptyVocabulary),
        n if n > Token::MAX as usize => Err(Error::TooManyTokens(n)),
        _ => Ok(()),
    }
}

/// Returns the token with the largest logit, the first one if several are equal, without bias or
/// penalties. Takes one pass. Fails as [`Sieve::sample`](crate::sieve::Sieve::sample) does.
pub fn greedy<'l>(logits: impl Into<Logits<'l>>) -> Result<Token, Error> {
    let logits = logits.into();
    check(logits.len())?;
    let (mut best, mut max) = (0, f32::NEG_INFINITY);
    for start in (0..logits.len()).step_by(CHUNK) {
        let of_chunk = logits.part(start, logits.len().min(start + CHUNK)).max();
        if of_chunk > max {
            (best, max) = (start, of_chunk);
        }
    }
    let mut from_best = best..logits.len();
    let place = from_best.find(|&i| max > f32::NEG_INFINITY && logits.at(i) == max);
    place.map(|place| place as Token).ok_or(Error::NoCandidate)
}

/// Writes the `n` most probable tokens into `top` in descending order, with their probabilities
/// over the whole vocabulary. Among equal logits the lower token comes first. Takes one pass and a
/// sort of `n` tokens.
///
/// Writes fewer if fewer have a probability above 0. Fails as
/// [`Sieve::sample`](crate::sieve::Sieve::sample) does. If a logit is plus infinity, the first such
/// token has probability 1 and all others 0.
pub fn top_candidates<'l>(
    logits: impl Into<Logits<'l>>,
    n: usize,
    top: &mut Vec<TokenData>,
) -> Result<(), Error> {
    let logits = logits.into();
    check(logits.len())?;
    let all = Summary::with_most_probable(logits, n, false, top);
    if !all.is_defined() {
        return Err(Error::NoCandidate);
    }
    for (i, candidate) in top.iter_mut().enumerate() {
        candidate.p = match all.max() == f32::INFINITY {
            true => f32::from(u8::from(i == 0)),
            false => all.surprisal(candidate.logit).map_or(0.0, |s| (-s).exp()) as f32,
        };
    }
    Ok(())
}
