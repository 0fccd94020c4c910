//! Infill, for code completion between a prefix and a suffix: prefers to end, and merges tokens
//! with a common prefix (llama.cpp pull request 9896).
//!
//! 1. If the total probability of all end-of-generation candidates, multiplied by 3 and by the
//!    number of candidates, is above that of the others, only the end-of-generation candidates
//!    stay.
//! 2. Otherwise each candidate whose text is a prefix of another's is merged with that one, into
//!    the more probable of the two. Then candidates of probability below 0.2 are removed and, after
//!    normalisation, those below 1 / (n + 1), where n is the number of kept candidates that are not
//!    end-of-generation ones. End-of-generation candidates are not removed. If only these are left,
//!    the token that ends a turn, or otherwise a text, replaces them.
//!
//! Infill is meant to follow a sampler that leaves few candidates, since the merge compares every
//! pair. Texts are read once per candidate.

use std::ffi::CStr;
use std::ops::Range;
use std::sync::Arc;

use crate::algorithms::host_order::HostOrder;
use crate::algorithms::scratch::room;
use crate::algorithms::{Scratch, Workspace};
use crate::candidates::Candidates;
use crate::log;
use crate::per_thread::lent_per_thread;
use crate::sampler::{Sampler, scratch};
use crate::token::{Token, TokenData};
use crate::vocabulary::Vocabulary;

/// A filter for infilling.
#[derive(Clone, Debug)]
pub struct Infill {
    vocabulary: Arc<dyn Vocabulary>,
    end: Option<Token>,
    order: Scratch<HostOrder>,
    work: Scratch<Workspace>,
    texts: Scratch<Texts>,
}

/// The minimum probability of a candidate that is kept before the normalisation.
const FIRST_THRESHOLD: f32 = 0.2;

impl Infill {
    /// Returns a sampler for this vocabulary. If the vocabulary has no token that ends a turn or a
    /// text, one warning is logged, and candidates pass through in cases in which the built-in
    /// would abort.
    pub fn new(vocabulary: Arc<dyn Vocabulary>) -> Self {
        let end = vocabulary.end_token();
        if end.is_none() {
            log::warn(
                "infill: the vocabulary has neither an end-of-turn nor an end-of-sequence token to end with",
            );
        }
        Self {
            vocabulary,
            end,
            order: Scratch::default(),
            work: Scratch::default(),
            texts: Scratch::default(),
        }
    }

    fn is_eog(&self, token: Token) -> bool {
        self.vocabulary.is_eog(token)
    }

    fn ends_outweigh(&self, data: &[TokenData]) -> bool {
        let mut text = 0.0f32;
        let mut end = 0.0f32;
        for candidate in data {
            let sum = if self.is_eog(candidate.id) {
                &mut end
            } else {
                &mut text
            };
            *sum += candidate.p;
        }
        3.0 * end * data.len() as f32 > text
    }

    /// Keeps the candidates for which `keep` returns true, and divides their probabilities by their
    /// sum.
    fn keep_and_normalise(
        candidates: &mut Candidates<'_>,
        mut keep: impl FnMut(&TokenData) -> bool,
    ) {
        let mut sum = 0.0f32;
        candidates.retain(|c| {
            let kept = keep(c);
            if kept {
                sum += c.p;
            }
            kept
        });
        for candidate in candidates.as_mut_slice() {
            candidate.p /= sum;
        }
    }

    /// Replaces all candidates with the token that ends a turn or a text. It gets the probability
    /// of the first candidate that was kept, or of the first one of all if none was kept. Does
    /// nothing if the vocabulary has no such token.
    fn end(&self, candidates: &mut Candidates<'_>, first_kept: Option<TokenData>) {
        let first = first_kept.or(candidates.as_slice().first().copied());
        let (Some(end), Some(first)) = (self.end, first) else {
            return;
        };
        candidates.replace(&[TokenData {
            id: end,
            logit: 1.0,
            p: first.p,
        }]);
    }
}

impl Sampler for Infill {
    fn name(&self) -> &'static CStr {
        c"infill"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if candidates.is_empty() {
            return;
        }
        candidates.sort(&mut self.order);
        candidates.softmax(&mut self.work);
        if self.ends_outweigh(candidates.as_slice()) {
            return Self::keep_and_normalise(candidates, |c| self.is_eog(c.id));
        }
        self.texts.fetch(&*self.vocabulary, candidates.as_slice());
        self.texts.merge(candidates.as_mut_slice());

        let is_kept = |c: &TokenData, threshold| {
            // The comparison is the built-in's, so NaN stays.
            let below = c.p < threshold;
            !below || self.is_eog(c.id)
        };
        let kept = || {
            let data = candidates.as_slice().iter();
            data.filter(|c| is_kept(c, FIRST_THRESHOLD))
        };
        let texts = kept().filter(|c| !self.is_eog(c.id)).count();
        if texts == 0 {
            let first_kept = kept().next().copied();
            return self.end(candidates, first_kept);
        }
        Self::keep_and_normalise(candidates, |c| is_kept(c, FIRST_THRESHOLD));
        let threshold = (1.0 / (texts + 1) as f64) as f32;
        Self::keep_and_normalise(candidates, |c| is_kept(c, threshold));
    }

    scratch!(order, work, texts);
}

/// The texts of all candidates, in one buffer.
#[derive(Debug, Default)]
struct Texts {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
    piece: Vec<u8>,
}

lent_per_thread!(Texts);
room!(Texts: bytes, ranges, piece);

impl Texts {
    fn fetch(&mut self, vocabulary: &dyn Vocabulary, data: &[TokenData]) {
        self.bytes.clear();
        self.ranges.clear();
        for candidate in data {
            vocabulary.piece(candidate.id, &mut self.piece);
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&self.piece);
            self.ranges.push(start..self.bytes.len());
        }
    }

    // In bounds: `fetch` left a range of `bytes` for each candidate.
    fn text(&self, i: usize) -> &[u8] {
        &self.bytes[self.ranges[i].clone()]
    }

    fn is_prefix(&self, i: usize, of: usize) -> bool {
        let prefix = self.text(i);
        !prefix.is_empty() && self.text(of).starts_with(prefix)
    }

    /// Merges each pair of candidates in which one text is a prefix of the other: adds the smaller
    /// probability to the larger one, and masks the less probable candidate.
    // In bounds: `i` and `j` run below the length of `data`.
    fn merge(&self, data: &mut [TokenData]) {
        let masked = |c: &TokenData| c.logit == f32::NEG_INFINITY;
        for i in 0..data.len() {
            for j in 0..data.len() {
                if masked(&data[i]) {
                    break;
                }
                if i == j || masked(&data[j]) || !self.is_prefix(i, j) {
                    continue;
                }
                let (to, from) = if data[j].p > data[i].p {
                    (j, i)
                } else {
                    (i, j)
                };
                data[to].p += data[from].p;
                data[from].logit = f32::NEG_INFINITY;
                data[from].p = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests;
