//! The window of the last `n` accepted tokens, and the number of times that each token occurs in
//! it.
//!
//! Cost: `accept` is O(1); walking the distinct tokens is O(window), not O(vocabulary). Memory for
//! at most 1024 tokens is reserved at creation. Beyond that it grows with the number of accepted
//! tokens, up to `n`, so a huge `n` costs little until it is used.
//!
//! If a window continues from a window with a different `n`, its counts are the built-in's. A count
//! may then differ from the number of occurrences in the window: see [`History::go_on_from`].

use std::collections::{HashMap, TryReserveError, VecDeque};
use std::hash::{BuildHasher, Hasher};

use crate::memory::exhausted;
use crate::rng::process_key;
use crate::token::Token;

/// A sliding window over the accepted tokens, with the count of each token.
#[derive(Clone, Debug)]
pub struct History {
    /// The maximum number of tokens in `window`.
    capacity: usize,
    /// The window length at or above which each `accept` discounts the oldest token. It equals
    /// `capacity`, unless that was copied from another window.
    full: usize,
    window: VecDeque<Token>,
    /// The distinct tokens of the window with their counts, in no particular order.
    counts: Vec<(Token, u32)>,
    /// The index of each token in `counts`.
    index: TokenMap<usize>,
    /// The token that was discounted at least as often as it was accepted.
    owing: Option<Owing>,
}

/// A token and its count, which is 0 or less.
pub type Owing = (Token, i32);

/// A hash map with tokens as keys.
pub type TokenMap<V> = HashMap<Token, V, TokenHashes>;

/// Makes [`TokenHasher`]s with the key of this process. Without a key the sender of a request, who
/// chooses its tokens, could make them collide.
#[derive(Clone, Copy, Debug)]
pub struct TokenHashes(u64);

impl Default for TokenHashes {
    fn default() -> Self {
        Self(process_key())
    }
}

impl BuildHasher for TokenHashes {
    type Hasher = TokenHasher;

    fn build_hasher(&self) -> TokenHasher {
        TokenHasher(self.0)
    }
}

/// A hasher that uses one wide multiplication and a fold. The keyed hash of the standard library
/// takes longer than all other work on a candidate that is not in the window.
#[derive(Clone, Copy, Debug)]
pub struct TokenHasher(u64);

impl Hasher for TokenHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_i32(&mut self, token: i32) {
        self.write_u64(u64::from(token as u32));
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio. Each half of the product depends on all bits of the
        // value and of the key.
        let product = u128::from(value ^ self.0) * 0x9E37_79B9_7F4A_7C15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// The maximum number of tokens for which memory is reserved at creation, so that windows of common
/// sizes never allocate later.
const RESERVED: usize = 1024;

impl History {
    /// Returns a window of the last `capacity` tokens. With a capacity of 0 no token is kept.
    pub fn new(capacity: usize) -> Self {
        let mut history = Self {
            capacity,
            full: capacity,
            window: VecDeque::new(),
            counts: Vec::new(),
            index: HashMap::default(),
            owing: None,
        };
        history.try_reserve(capacity).unwrap_or_else(exhausted);
        history
    }

    /// Reserves memory for a window of `capacity` tokens, or of the first 1024 of them. On failure
    /// the window does not change.
    pub fn try_reserve(&mut self, capacity: usize) -> Result<(), TryReserveError> {
        let reserved = capacity.min(RESERVED);
        let entries = 2 * reserved;
        self.window
            .try_reserve(reserved - reserved.min(self.window.len()))?;
        // There is room for one more count, since a token is counted before the oldest one is
        // discounted.
        self.counts
            .try_reserve(1 + reserved - reserved.min(self.counts.len()))?;
        // Room for twice as many tokens, so that the table does not have to grow because of removed
        // entries.
        self.index
            .try_reserve(entries - entries.min(self.index.len()))
    }

    /// Appends `token`. If the window is full, the oldest token leaves it.
    pub fn accept(&mut self, token: Token) {
        if self.capacity == 0 {
            return;
        }
        self.increment(token);
        if self.window.len() >= self.full
            && let Some(&oldest) = self.window.front()
        {
            self.decrement(oldest);
        }
        if self.window.len() == self.capacity {
            self.window.pop_front();
        }
        self.window.push_back(token);
    }

    /// Copies the tokens, the counts and the capacity of `source`, as the built-in's
    /// `llama_sampler_copy` does. The window length at which `accept` begins to discount the oldest
    /// token stays this window's own.
    ///
    /// If the two windows differ in length, the counts no longer match the tokens in the window.
    /// With a shorter source, a token that leaves is not discounted. With a longer source, the
    /// oldest token is discounted at each `accept` even while it stays, so its count may become
    /// negative (see [`owing`](Self::owing)). That can happen to one token only: each later one is
    /// the oldest for a single `accept`.
    pub fn go_on_from(&mut self, source: &Self) {
        self.capacity = source.capacity;
        self.window.clone_from(&source.window);
        self.counts.clone_from(&source.counts);
        self.index.clone_from(&source.index);
        self.owing = source.owing;
        self.try_reserve(self.capacity).unwrap_or_else(exhausted);
    }

    /// Removes all tokens.
    pub fn clear(&mut self) {
        self.window.clear();
        self.counts.clear();
        self.index.clear();
        self.owing = None;
    }

    /// Changes the capacity. A smaller window keeps the newest tokens. Enlarging it later does not
    /// restore the others.
    pub fn resize(&mut self, capacity: usize) {
        (self.capacity, self.full) = (capacity, capacity);
        while self.window.len() > capacity {
            if let Some(oldest) = self.window.pop_front() {
                self.decrement(oldest);
            }
        }
        self.try_reserve(capacity).unwrap_or_else(exhausted);
    }

    /// Returns the largest number of tokens that the window holds.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of tokens for which the window was made or to which it was resized. It is
    /// the capacity, unless the window [went on from another](Self::go_on_from).
    pub fn nominal(&self) -> usize {
        self.full
    }

    /// The tokens of the window, oldest first.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = Token> {
        self.window.iter().copied()
    }

    /// True if `token` occurs in the window.
    pub fn contains(&self, token: Token) -> bool {
        self.index.contains_key(&token)
    }

    /// The number of tokens in the window.
    pub fn len(&self) -> usize {
        self.window.len()
    }

    /// True if there is no token in the window.
    pub fn is_empty(&self) -> bool {
        self.window.is_empty()
    }

    /// Returns the number of times that `token` occurs in the window.
    // In bounds: `index` contains only positions in `counts`.
    pub fn count(&self, token: Token) -> u32 {
        self.index.get(&token).map_or(0, |&i| self.counts[i].1)
    }

    /// The distinct tokens of the window with their counts, each at least 1, in no particular
    /// order.
    pub fn distinct(&self) -> &[(Token, u32)] {
        &self.counts
    }

    /// Returns the token that was discounted at least as often as it was accepted, with its count,
    /// if there is one. Only a window that [went on from another](Self::go_on_from) can have one.
    pub fn owing(&self) -> Option<Owing> {
        self.owing
    }

    // In bounds: `index` contains only positions in `counts`.
    fn increment(&mut self, token: Token) {
        if let Some(&i) = self.index.get(&token) {
            self.counts[i].1 = self.counts[i].1.saturating_add(1);
            return;
        }
        if let Some((_, count @ ..0)) = self.owing.as_mut().filter(|owing| owing.0 == token) {
            *count += 1;
            return;
        }
        self.owing = self.owing.filter(|owing| owing.0 != token);
        self.index.insert(token, self.counts.len());
        self.counts.push((token, 1));
    }

    // In bounds: `index` contains only positions in `counts`.
    fn decrement(&mut self, token: Token) {
        let Some(&i) = self.index.get(&token) else {
            debug_assert!(self.owing.is_none_or(|owing| owing.0 == token));
            let owed = self.owing.map_or(0, |(_, count)| count);
            self.owing = Some((token, owed - 1));
            return;
        };
        self.counts[i].1 -= 1;
        if self.counts[i].1 > 0 {
            return;
        }
        self.index.remove(&token);
        self.counts.swap_remove(i);
        if let Some(&(moved, _)) = self.counts.get(i) {
            self.index.insert(moved, i);
        }
    }
}

#[cfg(test)]
mod tests;
