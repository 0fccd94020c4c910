//! DRY, "don't repeat yourself": penalises the token that would continue a repetition,
//! exponentially in its length (p-e-w, text-generation-webui pull request 5677).
//!
//! If the last n tokens, `allowed_length` or more, occurred before and token t followed them, then
//! t loses `multiplier * base^(n - allowed_length)`, for the largest such n. A repetition ends at a
//! sequence breaker, such as a newline: its length is bounded by the distance to the last breaker.
//! A token that contains a whole breaker loses nothing.
//!
//! The length of the match at each earlier position is the Z-function of the reversed text
//! (Gusfield 1997), computed in O(window). Only the few tokens that would continue a repetition are
//! changed, by index while the array has not been reordered.
//!
//! Breakers are strings, and may begin inside one token and end inside another. [`FoundBreakers`]
//! finds the tokens whose text contains a breaker, or ends with a prefix of one. The rest of each
//! breaker is then tokenized in a separate step, since a host's tokenizer may throw.

use std::collections::{TryReserveError, VecDeque};
use std::ffi::CStr;
use std::sync::Arc;

use crate::candidates::Candidates;
use crate::history::TokenMap;
use crate::memory::exhausted;
use crate::pool::Whole;
use crate::sampler::{About, Sampler, Tell};
use crate::simd::libm::{ln, pow_f64};
use crate::token::{Token, TokenData};

mod breakers;
mod last_breaker;
mod prefixes;

pub use breakers::Breakers;
pub(crate) use breakers::{FoundBreakers, MAX_BREAKER_BYTES};
use last_breaker::LastBreaker;

/// The parameters of DRY; some values disable the sampler.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DryParams {
    /// The factor of every penalty; 0 disables.
    pub multiplier: f32,
    /// The base of the exponential; below 1 disables.
    pub base: f32,
    /// The minimum number of repeated tokens whose continuation is penalised.
    pub allowed_length: i32,
    /// The number of most recent tokens that are searched; 0 or less disables.
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
    last_breaker: LastBreaker,
    window: VecDeque<Token>,
    /// A buffer for the window, newest token first.
    reversed: Vec<Token>,
    /// A buffer for the Z-function of `reversed`.
    reach: Vec<usize>,
    /// A buffer for the longest repetition that each token would continue.
    longest: TokenMap<i32>,
}

impl Clone for Dry {
    fn clone(&self) -> Self {
        Self {
            params: self.params,
            breakers: Arc::clone(&self.breakers),
            last_breaker: self.last_breaker,
            window: self.window.clone(),
            reversed: Vec::new(),
            reach: Vec::new(),
            longest: TokenMap::default(),
        }
    }

    /// Copies into the existing buffers.
    fn clone_from(&mut self, source: &Self) {
        self.params = source.params;
        self.breakers.clone_from(&source.breakers);
        self.last_breaker = source.last_breaker;
        self.window.clone_from(&source.window);
    }
}

/// The maximum number of tokens for which memory is reserved at creation, so that windows of common
/// sizes never allocate later.
const RESERVED: usize = 1024;

/// The logarithm of the largest `float`: a power of `base` with a larger logarithm would be
/// infinite.
const MAX_LOG: f32 = 88.722_84;

impl Dry {
    /// Returns a sampler without breakers. `None` if the parameters disable it.
    pub fn new(params: DryParams) -> Option<Self> {
        if params.are_disabled() {
            return None;
        }
        Some(Self::try_new(params).unwrap_or_else(exhausted))
    }

    /// Returns a sampler without breakers, even if the parameters disable it: [`set`](Self::set)
    /// may change them later.
    pub(crate) fn try_new(params: DryParams) -> Result<Self, TryReserveError> {
        let reserved = usize::try_from(params.last_n).map_or(0, |n| n.min(RESERVED));
        let mut dry = Self {
            params,
            breakers: Arc::default(),
            last_breaker: LastBreaker::default(),
            window: VecDeque::new(),
            reversed: Vec::new(),
            reach: Vec::new(),
            longest: TokenMap::default(),
        };
        dry.try_reserve(reserved)?;
        Ok(dry)
    }

    fn try_reserve(&mut self, n: usize) -> Result<(), TryReserveError> {
        self.window.try_reserve_exact(n)?;
        self.reversed.try_reserve_exact(n)?;
        self.reach.try_reserve_exact(n)?;
        self.longest.try_reserve(2 * n)
    }

    /// Sets the breakers that bound repetitions from now on.
    pub fn set_breakers(&mut self, breakers: Breakers) {
        self.share_breakers(Arc::new(breakers));
    }

    /// Returns at most `most` tokens that are breakers or begin one.
    #[cfg(all(any(target_os = "linux", windows), not(miri)))]
    pub(crate) fn begin_breakers(&self, most: usize) -> Vec<Token> {
        self.breakers.beginnings(most)
    }

    /// Sets the breakers that bound repetitions from now on, shared with other samplers.
    pub(crate) fn share_breakers(&mut self, breakers: Arc<Breakers>) {
        if !Arc::ptr_eq(&self.breakers, &breakers) {
            self.breakers = breakers;
            self.last_breaker.forget();
        }
    }

    /// Changes the parameters; the accepted tokens that fit into the window stay.
    pub(crate) fn set(&mut self, params: DryParams) {
        self.params = params;
        let surplus = self.window.len().saturating_sub(self.window_size());
        self.window.drain(..surplus);
    }

    /// Returns the maximum number of tokens in the window.
    pub(crate) fn window_size(&self) -> usize {
        usize::try_from(self.params.last_n).unwrap_or(0)
    }

    /// Returns the accepted tokens in the window, oldest first.
    pub(crate) fn window(&self) -> impl ExactSizeIterator<Item = Token> {
        self.window.iter().copied()
    }

    /// Fills `longest` with the longest repetition that each token would continue.
    // In bounds: `reach` is as long as `reversed`, and `k` runs from 1 to below that.
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

    /// Searches for repetitions. Returns false, without a search, if the window, or its part after
    /// the last breaker, is too short for one.
    fn finds(&mut self) -> bool {
        let allowed = self.params.allowed_length;
        if self.window.len() as i32 <= allowed {
            return false;
        }
        self.reversed.clear();
        self.reversed.extend(self.window.iter().rev());
        let limit = self.last_breaker.distance(&self.breakers, &self.reversed);
        if (limit as i32) < allowed {
            return false;
        }
        self.find_repetitions(limit);
        true
    }

    /// Penalises the tokens by index. Returns false, and changes nothing, unless each token is at
    /// its own index.
    // In bounds: each token was found at its index above.
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

    fn tell(&self, about: About, to: Tell<'_>) {
        match about {
            About::Parameters => {
                to("multiplier", f64::from(self.params.multiplier));
                to("base", f64::from(self.params.base));
                to("allowed_length", f64::from(self.params.allowed_length));
                to("last_n", f64::from(self.params.last_n));
            }
            About::Next => {}
            About::Token(token) => {
                if let Some(&length) = self.longest.get(&token) {
                    to("run", f64::from(length));
                }
            }
        }
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

    fn narrow_whole(&mut self, mut whole: Whole<'_, '_>) -> bool {
        if !self.finds() {
            return true;
        }
        for (&token, &length) in &self.longest {
            if !self.breakers.is_whole_breaker(token) {
                let penalty = self.penalty(length);
                whole.edit(token, |logit| logit - penalty);
            }
        }
        true
    }

    fn accept(&mut self, token: Token) {
        if self.window.len() == self.params.last_n as usize {
            self.window.pop_front();
        }
        self.window.push_back(token);
        self.last_breaker.accept();
    }

    fn reset(&mut self) {
        self.window.clear();
        self.last_breaker = LastBreaker::default();
    }
}

/// Writes the Z-function of `tokens` into `reach`: for each `k`, the length of the longest common
/// prefix of `tokens` and `tokens[k..]`, and 0 for `k` = 0. Costs O(length).
// In bounds: `reach` and `tokens` have length `n`; `start <= k < n`, and `length <= end - k` until
// it is compared with `n - k`.
fn reach_of_end(tokens: &[Token], reach: &mut Vec<usize>) {
    let n = tokens.len();
    reach.clear();
    reach.resize(n, 0);
    // The known match that ends furthest to the right: tokens[start..end] is a prefix of `tokens`.
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

#[cfg(test)]
mod tests;
