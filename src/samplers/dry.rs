//! DRY, "don't repeat yourself": penalises the token that would continue a repetition,
//! exponentially in its length (p-e-w, text-generation-webui pull request 5677).
//!
//! If the last n tokens occurred before and token t followed them, then t loses `multiplier *
//! base^(n - allowed_length)`, n the longest such. Sequence breakers (a newline, say) are not
//! repeated across: the length is bounded by the distance to the last one.
//!
//! How far the end of the text reaches back at each earlier place is the Z-function of the reversed
//! text (Gusfield 1997), computed in O(window). Only the few tokens that would continue a
//! repetition are touched, in their places while nobody has reordered the array.
//!
//! Breakers are strings, tokens are not: a breaker may begin inside one token and end inside
//! another. [`Breakers::new`] finds for each breaker every token whose text contains it, or ends
//! with a beginning of it; what is left of the breaker is then tokenised. One `detokenize` per
//! token of the vocabulary for all breakers together, and one `tokenize` per byte of breaker.

use std::collections::{HashSet, TryReserveError, VecDeque};
use std::ffi::CStr;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::history::TokenMap;
use crate::memory::{claim, exhausted, table_bytes};
use crate::pool::Pool;
use crate::sampler::Sampler;
use crate::simd::libm::{ln, pow_f64};
use crate::token::{Token, TokenData};
use crate::vocabulary::Vocabulary;

/// The parameters that must all be set for anything to happen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DryParams {
    /// Factor of every penalty; 0 disables.
    pub multiplier: f32,
    /// Base of the exponential; below 1 disables.
    pub base: f32,
    /// Repetitions up to this length cost nothing.
    pub allowed_length: i32,
    /// How many tokens to look back on; 0 or less disables.
    pub last_n: i32,
}

impl DryParams {
    pub(crate) fn are_disabled(&self) -> bool {
        self.multiplier == 0.0 || self.base < 1.0 || self.last_n <= 0
    }
}

/// Penalises the continuation of repetitions.
#[derive(Clone, Debug)]
pub struct Dry {
    params: DryParams,
    breakers: Arc<Breakers>,
    window: VecDeque<Token>,
    /// Scratch: the window, newest first.
    reversed: Vec<Token>,
    /// Scratch: the Z-function of `reversed`.
    reach: Vec<usize>,
    /// Scratch: the longest repetition that each token would continue.
    longest: TokenMap<i32>,
}

/// What is reserved at once, so that common windows never allocate later.
const RESERVED: usize = 1024;

/// Breakers are cut to this many bytes, and what is tokenised of them to as many tokens.
const MAX_BREAKER_BYTES: usize = 40;
const MAX_TAIL_TOKENS: usize = 20;

/// The logarithm of the largest float: `base` to a higher power than this allows would be infinite.
const MAX_LOG: f32 = 88.722_84;

impl Dry {
    /// Without breakers. `None` if the parameters disable it.
    pub fn new(params: DryParams) -> Option<Self> {
        if params.are_disabled() {
            return None;
        }
        Some(Self::try_new(params).unwrap_or_else(exhausted))
    }

    /// The same of parameters that do not disable it, or for later, where they do.
    pub(crate) fn try_new(params: DryParams) -> Result<Self, TryReserveError> {
        let reserved = usize::try_from(params.last_n).map_or(0, |n| n.min(RESERVED));
        let mut dry = Self {
            params,
            breakers: Arc::default(),
            window: VecDeque::new(),
            reversed: Vec::new(),
            reach: Vec::new(),
            longest: TokenMap::default(),
        };
        dry.try_reserve(reserved)?;
        Ok(dry)
    }

    fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        let columns = n * (2 * size_of::<Token>() + size_of::<usize>());
        claim(columns + table_bytes::<(Token, i32)>(2 * n))?;
        self.window.try_reserve_exact(n)?;
        self.reversed.try_reserve_exact(n)?;
        self.reach.try_reserve_exact(n)?;
        self.longest.try_reserve(2 * n)
    }

    /// Bounds repetitions by `breakers` from now on.
    pub fn set_breakers(&mut self, breakers: Breakers) {
        self.share_breakers(Arc::new(breakers));
    }

    /// The same of breakers that others have, too.
    pub(crate) fn share_breakers(&mut self, breakers: Arc<Breakers>) {
        self.breakers = breakers;
    }

    /// Other parameters; what was accepted stays as far as they look back.
    pub(crate) fn set(&mut self, params: DryParams) {
        self.params = params;
        let surplus = self.window.len().saturating_sub(self.window_size());
        self.window.drain(..surplus);
    }

    /// How many tokens it looks back on.
    pub(crate) fn window_size(&self) -> usize {
        usize::try_from(self.params.last_n).unwrap_or(0)
    }

    /// The accepted tokens that it looks back on, the oldest first.
    pub(crate) fn window(&self) -> impl ExactSizeIterator<Item = Token> {
        self.window.iter().copied()
    }

    /// Fills `longest`.
    #[expect(
        clippy::indexing_slicing,
        reason = "`reach` is as long as `reversed`, and `k` runs from 1 to below that"
    )]
    fn find_repetitions(&mut self, limit: usize) {
        self.longest.clear();
        reach_of_end(&self.reversed, &mut self.reach);
        for k in 1..self.reversed.len() {
            let length = self.reach[k].min(limit) as i32;
            if length < self.params.allowed_length {
                continue;
            }
            let continuation = self.reversed[k - 1];
            let longest = self.longest.entry(continuation).or_insert(length);
            *longest = length.max(*longest);
        }
    }

    fn penalty(&self, length: i32) -> f32 {
        let mut exponent = length.saturating_sub(self.params.allowed_length);
        if let Some(max) = self.max_exponent() {
            exponent = exponent.min(max);
        }
        let power = pow_f64(f64::from(self.params.base), f64::from(exponent));
        (f64::from(self.params.multiplier) * power) as f32
    }

    fn max_exponent(&self) -> Option<i32> {
        if self.params.base <= 1.000_001 {
            return None;
        }
        let max = (MAX_LOG / ln(self.params.base)) as i32;
        (max > 0).then_some(max)
    }

    fn penalise(&self, candidate: &mut TokenData) {
        let Some(&length) = self.longest.get(&candidate.id) else {
            return;
        };
        if !self.breakers.is_whole_breaker(candidate.id) {
            candidate.logit -= self.penalty(length);
        }
    }

    /// Looks for what repeats itself, and says whether the window is long enough for anything to.
    fn finds(&mut self) -> bool {
        let allowed = self.params.allowed_length;
        if self.window.len() as i32 <= allowed {
            return false;
        }
        self.reversed.clear();
        self.reversed.extend(self.window.iter().rev());
        let limit = self.breakers.distance(&self.reversed);
        if (limit as i32) < allowed {
            return false;
        }
        self.find_repetitions(limit);
        true
    }

    /// Penalises the tokens in their places, if every one is there.
    #[expect(
        clippy::indexing_slicing,
        reason = "each token was found in its place above"
    )]
    fn penalise_in_place(&self, candidates: &mut Candidates<'_>) -> bool {
        let mut tokens = self.longest.keys();
        if !tokens.all(|&token| candidates.index_in_place(token).is_some()) {
            return false;
        }
        for &token in self.longest.keys() {
            self.penalise(&mut candidates.as_mut_slice()[token as usize]);
        }
        true
    }
}

impl Sampler for Dry {
    const ACCEPTS: bool = true;
    const RESETS: bool = true;

    fn name(&self) -> &'static CStr {
        c"dry"
    }

    fn apply(&mut self, candidates: &mut Candidates<'_>) {
        if !self.finds() {
            return;
        }
        if !self.penalise_in_place(candidates) {
            for candidate in candidates.as_mut_slice() {
                self.penalise(candidate);
            }
        }
        candidates.set_sorted(false);
    }

    fn narrow(&mut self, pool: &mut Pool<'_>) {
        if !pool.is_whole() {
            return pool.apply(|candidates| self.apply(candidates));
        }
        if !self.finds() {
            return;
        }
        for (&token, &length) in &self.longest {
            if !self.breakers.is_whole_breaker(token) {
                let penalty = self.penalty(length);
                pool.edit(token, |logit| logit - penalty);
            }
        }
    }

    fn accept(&mut self, token: Token) {
        if self.window.len() == self.params.last_n as usize {
            self.window.pop_front();
        }
        self.window.push_back(token);
    }

    fn reset(&mut self) {
        self.window.clear();
    }
}

/// For each `k`, how many tokens from `k` on equal those from 0 on; 0 for `k` 0. O(length).
#[expect(
    clippy::indexing_slicing,
    reason = "`reach` and `tokens` have length `n`; `start <= k < n`, and `length <= end - k` until it is compared with `n - k`"
)]
fn reach_of_end(tokens: &[Token], reach: &mut Vec<usize>) {
    let n = tokens.len();
    reach.clear();
    reach.resize(n, 0);
    // The known match that ends furthest: tokens[start..end] equals the beginning.
    let (mut start, mut end) = (0, 0);
    for k in 1..n {
        let mut length = 0;
        if k < end {
            length = reach[k - start].min(end - k);
        }
        while k + length < n && tokens[k + length] == tokens[length] {
            length += 1;
        }
        reach[k] = length;
        if k + length > end {
            (start, end) = (k, k + length);
        }
    }
}

/// Sequence breakers as tokens: a head, and what must follow it.
#[derive(Debug, Default)]
pub struct Breakers {
    tails: TokenMap<Vec<Vec<Token>>>,
}

impl Breakers {
    /// Prepares breakers, each cut to 40 bytes, for a vocabulary. Empty ones break nothing.
    pub fn new(vocabulary: &dyn Vocabulary, breakers: &[&[u8]]) -> Self {
        let breakers: Vec<Breaker<'_>> = breakers
            .iter()
            .filter(|breaker| !breaker.is_empty())
            .map(|breaker| Breaker::new(vocabulary, breaker))
            .collect();
        let mut found = Self::default();
        if breakers.is_empty() {
            return found;
        }
        let mut text = Vec::new();
        for token in 0..vocabulary.n_tokens() as Token {
            vocabulary.detokenize(token, &mut text);
            let mut tails = HashSet::new();
            for breaker in &breakers {
                breaker.tails_after(&text, &mut tails);
            }
            if !tails.is_empty() {
                let bytes =
                    tails.len() * (size_of::<Vec<Token>>() + MAX_TAIL_TOKENS * size_of::<Token>());
                claim(bytes).unwrap_or_else(exhausted);
                let tails = tails.into_iter().map(<[Token]>::to_vec).collect();
                found.insert(token, tails);
            }
        }
        found
    }

    fn insert(&mut self, token: Token, tails: Vec<Vec<Token>>) {
        if self.tails.len() == self.tails.capacity() {
            let grown = (2 * self.tails.len()).max(4);
            claim(table_bytes::<(Token, Vec<Vec<Token>>)>(grown))
                .and_then(|()| self.tails.try_reserve(1))
                .unwrap_or_else(exhausted);
        }
        self.tails.insert(token, tails);
    }

    /// Whether `token` alone contains a breaker, or is one.
    fn is_whole_breaker(&self, token: Token) -> bool {
        self.tails
            .get(&token)
            .is_some_and(|tails| tails.iter().any(Vec::is_empty))
    }

    /// How many tokens there are behind the last breaker; all if there is none. `reversed` has the
    /// newest first.
    #[expect(
        clippy::indexing_slicing,
        reason = "`i` counts the elements of `reversed`"
    )]
    fn distance(&self, reversed: &[Token]) -> usize {
        for (i, head) in reversed.iter().enumerate() {
            let Some(tails) = self.tails.get(head) else {
                continue;
            };
            let matches = |tail: &&Vec<Token>| {
                tail.len() <= i
                    && tail
                        .iter()
                        .zip(reversed[..i].iter().rev())
                        .all(|(a, b)| a == b)
            };
            if let Some(longest) = tails.iter().filter(matches).map(Vec::len).max() {
                return i - longest;
            }
        }
        reversed.len()
    }
}

/// A breaker, and the tokens of what is left of it behind each of its bytes.
struct Breaker<'a> {
    text: &'a [u8],
    /// `tails[i]`: the tokens of `text[i..]`, from 1 on.
    tails: Vec<Vec<Token>>,
}

impl<'a> Breaker<'a> {
    #[expect(
        clippy::indexing_slicing,
        reason = "cut to at most its own length, and `i` runs below that"
    )]
    fn new(vocabulary: &dyn Vocabulary, text: &'a [u8]) -> Self {
        let text = &text[..text.len().min(MAX_BREAKER_BYTES)];
        let tail = |i: usize| {
            let mut tokens = vocabulary.tokenize(&text[i..]);
            tokens.truncate(MAX_TAIL_TOKENS);
            tokens
        };
        let tails = std::iter::once(Vec::new()).chain((1..text.len()).map(tail));
        Self {
            text,
            tails: tails.collect(),
        }
    }

    /// Adds what must follow `word` to complete the breaker: nothing, if `word` contains it.
    #[expect(
        clippy::indexing_slicing,
        reason = "`begun` is below `n`, the length of `text` and of `tails`"
    )]
    fn tails_after<'s>(&'s self, word: &[u8], found: &mut HashSet<&'s [Token]>) {
        let n = self.text.len();
        if word.windows(n).any(|part| part == self.text) {
            found.insert(&[]);
            return;
        }
        for begun in 1..n.min(word.len() + 1) {
            if word.ends_with(&self.text[..begun]) {
                found.insert(&self.tails[begun]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
