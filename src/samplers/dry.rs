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
//! another. [`FoundBreakers`] are for each breaker the tokens whose text contains it, or ends with
//! a beginning of it; what is left of the breaker is then tokenised, apart, since a host's
//! tokenizer may throw.

use std::collections::{HashMap, TryReserveError, VecDeque};
use std::ffi::CStr;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::history::TokenMap;
use crate::memory::{claim, exhausted, push, set_with_room, table_bytes, with_room};
use crate::pool::Pool;
use crate::sampler::Sampler;
use crate::simd::libm::{ln, pow_f64};
use crate::token::{Token, TokenData};
use crate::vocabulary::Vocabulary;

/// The parameters; all must be set for anything to happen.
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
#[derive(Debug)]
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

impl Clone for Dry {
    fn clone(&self) -> Self {
        Self {
            params: self.params,
            breakers: Arc::clone(&self.breakers),
            window: self.window.clone(),
            reversed: Vec::new(),
            reach: Vec::new(),
            longest: TokenMap::default(),
        }
    }

    /// Keeps the buffers.
    fn clone_from(&mut self, source: &Self) {
        self.params = source.params;
        self.breakers.clone_from(&source.breakers);
        self.window.clone_from(&source.window);
    }
}

/// Reserved at once, so that common windows never allocate later.
const RESERVED: usize = 1024;

/// Breakers are cut to this many bytes, and what is tokenised of them to as many tokens.
pub(crate) const MAX_BREAKER_BYTES: usize = 40;
const MAX_TAIL_TOKENS: usize = 20;
/// More tokens than a tokenizer makes of a byte: of 3 bytes Unicode makes at most 18 characters.
const ROOM_PER_BYTE: usize = 8;

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
        let mut found = FoundBreakers::new(vocabulary, breakers);
        found.for_each_tail(|text, tokens| *tokens = vocabulary.tokenize(text));
        found.into_breakers()
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

/// Where breakers begin in the texts of a vocabulary, and what is left of them there.
#[derive(Debug, Default)]
pub(crate) struct FoundBreakers<'a> {
    heads: Vec<Head>,
    tails: Tails<'a>,
}

/// A token whose text ends with the beginning of a breaker.
#[derive(Debug)]
struct Head {
    token: Token,
    /// The number of the tail that must follow; `None`: its text contains all of the breaker.
    tail: Option<usize>,
}

/// Ends of breakers, each once.
#[derive(Debug, Default)]
struct Tails<'a> {
    numbers: HashMap<&'a [u8], usize>,
    /// With their tokens, or room for them.
    all: Vec<(&'a [u8], Vec<Token>)>,
}

impl<'a> FoundBreakers<'a> {
    /// Looks for breakers, each cut to 40 bytes, in all texts.
    pub(crate) fn new(vocabulary: &dyn Vocabulary, breakers: &[&'a [u8]]) -> Self {
        let mut found = Self::default();
        let mut known = set_with_room(breakers.len()).unwrap_or_else(exhausted);
        let mut distinct: Vec<&[u8]> = with_room(breakers.len()).unwrap_or_else(exhausted);
        let cut = breakers
            .iter()
            .map(|&text| text.get(..MAX_BREAKER_BYTES).unwrap_or(text));
        distinct.extend(cut.filter(|&text| !text.is_empty() && known.insert(text)));
        if distinct.is_empty() {
            return found;
        }
        let mut text = Vec::new();
        for token in 0..vocabulary.n_tokens() as Token {
            vocabulary.detokenize(token, &mut text);
            for breaker in &distinct {
                begun_by(&text, breaker, |tail| {
                    let tail = tail.map(|tail| found.tails.number(tail));
                    push(&mut found.heads, Head { token, tail });
                });
            }
        }
        found
    }

    /// Has `ask` replace the tokens of each tail that occurs, given its text. There is room for
    /// them, so that nothing need be allocated.
    pub(crate) fn for_each_tail(&mut self, mut ask: impl FnMut(&[u8], &mut Vec<Token>)) {
        for (text, tokens) in &mut self.tails.all {
            ask(text, tokens);
        }
    }

    /// Once the tails were asked for.
    pub(crate) fn into_breakers(self) -> Breakers {
        let mut tails = TokenMap::<Vec<Vec<Token>>>::default();
        for head in self.heads {
            if tails.len() == tails.capacity() {
                let grown = (2 * tails.len()).max(4);
                claim(table_bytes::<(Token, Vec<Vec<Token>>)>(grown))
                    .and_then(|()| tails.try_reserve(1))
                    .unwrap_or_else(exhausted);
            }
            let tail = head.tail.and_then(|tail| self.tails.all.get(tail));
            let tail = tail.map_or(&[][..], |(_, tokens)| tokens);
            let tail = tail.get(..MAX_TAIL_TOKENS).unwrap_or(tail);
            let of_token = tails.entry(head.token).or_default();
            if !of_token.iter().any(|known| known == tail) {
                claim(size_of::<Vec<Token>>() + size_of_val(tail)).unwrap_or_else(exhausted);
                of_token.push(tail.to_vec());
            }
        }
        Breakers { tails }
    }
}

impl<'a> Tails<'a> {
    /// The number of this one, for whose tokens room is made.
    fn number(&mut self, text: &'a [u8]) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        if self.numbers.len() == self.numbers.capacity() {
            let grown = (2 * self.numbers.len()).max(4);
            claim(table_bytes::<(&[u8], usize)>(grown))
                .and_then(|()| self.numbers.try_reserve(1))
                .unwrap_or_else(exhausted);
        }
        let number = self.all.len();
        let room = with_room(ROOM_PER_BYTE * (text.len() + 1)).unwrap_or_else(exhausted);
        push(&mut self.all, (text, room));
        self.numbers.insert(text, number);
        number
    }
}

/// Tells what is left of `breaker` behind each beginning of it that `word` ends with, or `None` if
/// `word` contains it.
fn begun_by<'a>(word: &[u8], breaker: &'a [u8], mut tell: impl FnMut(Option<&'a [u8]>)) {
    let n = breaker.len();
    if word.windows(n).any(|part| part == breaker) {
        return tell(None);
    }
    for begun in 1..n.min(word.len() + 1) {
        let (beginning, tail) = breaker.split_at(begun);
        if word.ends_with(beginning) {
            tell(Some(tail));
        }
    }
}

#[cfg(test)]
mod tests;
