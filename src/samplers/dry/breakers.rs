//! Sequence breakers in the texts of a vocabulary.
//!
//! One pass over the texts finds the tokens that contain a breaker and those that end with a prefix
//! (a beginning) of one, for any number of breakers. The tokens that must follow a beginning (its
//! tails) are kept once per beginning, not for each token that ends with it. They are sorted, so
//! that finding the longest match does not search all of them. Memory is linear in the number of
//! tokens and in the bytes of the breakers, each of which may be followed by 20 tokens.

use std::collections::TryReserveError;
use std::ops::Range;

use super::prefixes::{Prefixes, ROOT};
use crate::history::TokenMap;
use crate::memory::{copied, exhausted, grow_map, push, with_room};
use crate::random::HashMap;
use crate::token::Token;
use crate::vocabulary::Vocabulary;

/// The number of bytes to which breakers are cut. The rest of a breaker is also cut to
/// `MAX_TAIL_TOKENS` tokens.
pub(crate) const MAX_BREAKER_BYTES: usize = 40;
pub(super) const MAX_TAIL_TOKENS: usize = 20;
/// The number of tokens reserved per byte. A tokenizer makes fewer: normalization turns 3 bytes
/// into at most 18 characters.
const ROOM_PER_BYTE: usize = 8;

/// The number in `FoundBreakers::numbers` that means "no rest".
const UNUSED: u32 = u32::MAX;

/// Sequence breakers as tokens: a head, and the tokens that must follow it.
#[derive(Debug, Default)]
pub struct Breakers {
    heads: TokenMap<Head>,
    /// The beginnings of breakers. Index 0 means no beginning.
    beginnings: Vec<Beginning>,
    tails: Vec<Tail>,
    /// The tokens of the tails.
    tokens: Vec<Token>,
    /// The numbers of breakers to which [`Head::contained`] refers.
    contained: Vec<u32>,
}

/// A token whose text contains a breaker, or ends with the beginning of one.
#[derive(Clone, Copy, Debug)]
struct Head {
    is_breaker: bool,
    /// The index of the longest beginning that is a suffix of the text; 0 if there is none.
    beginning: u32,
    /// The range in `contained`, in ascending order, of the breakers that the text contains and
    /// that also have a beginning at its end. Such breakers need no further token.
    contained: (u32, u32),
}

/// A beginning of breakers.
#[derive(Clone, Copy, Debug, Default)]
struct Beginning {
    /// The index of the longest other beginning that is a suffix of this one; 0 if there is none.
    shorter: u32,
    /// The range in `tails` of the tails that may follow, sorted by their tokens.
    tails: (u32, u32),
}

/// The rest of a breaker after one of its beginnings.
#[derive(Clone, Copy, Debug)]
struct Tail {
    breaker: u32,
    /// The range of the tail's tokens in `tokens`.
    tokens: (u32, u32),
}

impl Breakers {
    /// Returns the breakers for a vocabulary, each cut to 40 bytes. Empty ones have no effect.
    pub fn new(vocabulary: &dyn Vocabulary, breakers: &[&[u8]]) -> Self {
        let mut found = FoundBreakers::new(vocabulary, breakers);
        found.for_each_tail(|text, tokens| *tokens = vocabulary.tokenize(text));
        found.into_breakers()
    }

    /// Returns at most `most` of the tokens that are breakers or begin one, in ascending order and
    /// evenly spread.
    #[cfg(all(any(target_os = "linux", windows), not(miri)))]
    pub(super) fn beginnings(&self, most: usize) -> Vec<Token> {
        let mut heads: Vec<Token> = self.heads.keys().copied().collect();
        heads.sort_unstable();
        let step = heads.len().div_ceil(most.max(1)).max(1);
        heads.into_iter().step_by(step).collect()
    }

    /// True if `token` alone contains a breaker, or is one.
    pub(super) fn is_whole_breaker(&self, token: Token) -> bool {
        let head = self.heads.get(&token);
        head.is_some_and(|head| self.longest_tail(head, &[]).is_some())
    }

    /// Returns the first index in `places` at which a breaker begins, and the number of further
    /// tokens in that breaker. `reversed` has the newest token first.
    // In bounds: callers pass indices of `reversed`, one of which is `i`.
    pub(super) fn newest(
        &self,
        reversed: &[Token],
        places: Range<usize>,
    ) -> Option<(usize, usize)> {
        for i in places {
            #[cfg(test)]
            tests::LOOKED_AT.set(tests::LOOKED_AT.get() + 1);
            if let Some(head) = self.heads.get(&reversed[i])
                && let Some(longest) = self.longest_tail(head, &reversed[..i])
            {
                return Some((i, longest));
            }
        }
        None
    }

    /// Returns the number of tokens that follow the head in the longest breaker that begins with
    /// it. `following` has the newest token first. `None` if no breaker begins with the head.
    // In bounds: heads and beginnings contain only positions that were found.
    fn longest_tail(&self, head: &Head, following: &[Token]) -> Option<usize> {
        let mut longest = head.is_breaker.then_some(0);
        let (from, to) = head.contained;
        let contained = &self.contained[from as usize..to as usize];
        let mut at = head.beginning;
        while at != 0 {
            let beginning = self.beginnings[at as usize];
            let (from, to) = beginning.tails;
            let tails = &self.tails[from as usize..to as usize];
            longest = longest.max(self.longest_of(tails, contained, following));
            at = beginning.shorter;
        }
        longest
    }

    /// Returns the length of the longest of `tails` with which `following`, newest token first,
    /// begins. Tails of breakers in `contained` do not count.
    // In bounds: the tails in `longer` have more than `length` tokens.
    fn longest_of<'a>(
        &self,
        mut tails: &'a [Tail],
        contained: &[u32],
        following: &[Token],
    ) -> Option<usize> {
        let mut longest = None;
        let mut following = following.iter().rev();
        let mut length = 0;
        // All remaining `tails` begin with the `length` tokens that were compared.
        while !tails.is_empty() {
            let ends = tails.partition_point(|tail| tail.len() == length);
            let (whole, longer) = tails.split_at(ends);
            let counts = |tail: &Tail| contained.binary_search(&tail.breaker).is_err();
            if whole.iter().any(counts) {
                longest = Some(length);
            }
            let Some(token) = following.next() else {
                break;
            };
            let at = |tail: &Tail| tail.of(&self.tokens)[length];
            let from = longer.partition_point(|tail| at(tail) < *token);
            let longer: &'a [Tail] = &longer[from..];
            tails = &longer[..longer.partition_point(|tail| at(tail) == *token)];
            length += 1;
        }
        longest
    }
}

impl Tail {
    fn len(&self) -> usize {
        (self.tokens.1 - self.tokens.0) as usize
    }

    // In bounds: tails are ranges of `tokens`.
    fn of<'a>(&self, tokens: &'a [Token]) -> &'a [Token] {
        &tokens[self.tokens.0 as usize..self.tokens.1 as usize]
    }
}

/// The beginnings of breakers in the texts of a vocabulary, and the rests of the breakers after
/// them.
#[derive(Debug, Default)]
pub(crate) struct FoundBreakers<'a> {
    /// The breakers, with room for the tokens of their tails, which are added later.
    breakers: Breakers,
    /// The rests of breakers, each different text once.
    rests: Vec<&'a [u8]>,
    /// The range of each rest's tokens among the tokens of all rests.
    places: Vec<(u32, u32)>,
    /// For each tail, the index of its rest in `rests` and `places`; `UNUSED` if every token that
    /// ends with the beginning contains the whole breaker.
    numbers: Vec<u32>,
    /// A buffer for the tokens of one rest.
    scratch: Vec<Token>,
}

impl<'a> FoundBreakers<'a> {
    /// Finds breakers, each cut to 40 bytes, in the texts of all tokens.
    pub(crate) fn new(vocabulary: &dyn Vocabulary, breakers: &[&'a [u8]]) -> Self {
        let mut found = Self::default();
        let mut distinct: Vec<&[u8]> = with_room(breakers.len()).unwrap_or_else(exhausted);
        let cut = breakers
            .iter()
            .map(|&text| text.get(..MAX_BREAKER_BYTES).unwrap_or(text));
        distinct.extend(cut.filter(|text| !text.is_empty()));
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.is_empty() {
            return found;
        }
        let prefixes = Prefixes::new(distinct);
        found.breakers.find_heads(vocabulary, &prefixes);
        found.find_tails(&prefixes);
        found.make_room().unwrap_or_else(exhausted);
        found
    }

    /// Lists the rest of each breaker after each beginning with which a token ends, and sets the
    /// beginnings of the heads.
    // In bounds: `users` and `places` have an entry per beginning.
    fn find_tails(&mut self, prefixes: &Prefixes<'a>) {
        let n = prefixes.len();
        let mut users = zeros(n as usize);
        for head in self.breakers.heads.values() {
            users[head.beginning as usize] += 1;
        }
        // Longer beginnings come first, so that each count is complete before it is added to
        // another.
        for prefix in (1..n).rev() {
            users[prefixes.shorter(prefix) as usize] += users[prefix as usize];
        }
        let mut places = zeros(n as usize);
        let mut tails = Vec::new();
        push(&mut self.breakers.beginnings, Beginning::default());
        for prefix in 1..n {
            let users = users[prefix as usize];
            let shorter = places[prefixes.shorter(prefix) as usize];
            let (from, to) = prefixes.longer_texts(prefix);
            if users == 0 || from == to {
                places[prefix as usize] = shorter;
                continue;
            }
            places[prefix as usize] = self.breakers.beginnings.len() as u32;
            let first = tails.len() as u32;
            for breaker in from..to {
                let (_, text) = prefixes.text(breaker).split_at(prefixes.length(prefix));
                push(&mut tails, (text, users));
                let tokens = (0, 0);
                push(&mut self.breakers.tails, Tail { breaker, tokens });
            }
            let tails = (first, tails.len() as u32);
            push(&mut self.breakers.beginnings, Beginning { shorter, tails });
        }
        for head in self.breakers.heads.values_mut() {
            head.beginning = places[head.beginning as usize];
        }
        self.breakers.for_each_contained(|tail| tails[tail].1 -= 1);
        let mut numbers = HashMap::default();
        for (text, users) in tails {
            let rest = match users {
                0 => UNUSED,
                _ => self.number(&mut numbers, text),
            };
            push(&mut self.numbers, rest);
        }
    }

    /// Returns the index of `text` in `rests`. Adds it if it is new.
    fn number(&mut self, numbers: &mut HashMap<&'a [u8], u32>, text: &'a [u8]) -> u32 {
        if let Some(&number) = numbers.get(text) {
            return number;
        }
        grow_map(numbers);
        let number = self.rests.len() as u32;
        push(&mut self.rests, text);
        numbers.insert(text, number);
        number
    }

    /// Reserves memory for the tokens of the rests.
    fn make_room(&mut self) -> Result<(), TryReserveError> {
        let longest = self.rests.iter().map(|text| text.len()).max();
        self.scratch = with_room(ROOM_PER_BYTE * (longest.unwrap_or(0) + 1))?;
        self.places = with_room(self.rests.len())?;
        self.breakers.tokens = with_room(MAX_TAIL_TOKENS * self.rests.len())?;
        Ok(())
    }

    /// Calls `ask` with each rest of a breaker and a buffer, into which `ask` writes the tokens of
    /// the rest. No memory is allocated for them.
    pub(crate) fn for_each_tail(&mut self, mut ask: impl FnMut(&[u8], &mut Vec<Token>)) {
        let tokens = &mut self.breakers.tokens;
        for text in &self.rests {
            ask(text, &mut self.scratch);
            let kept = self.scratch.get(..MAX_TAIL_TOKENS).unwrap_or(&self.scratch);
            let from = tokens.len() as u32;
            tokens.extend_from_slice(kept);
            self.places.push((from, tokens.len() as u32));
        }
    }

    /// Returns the breakers, after `for_each_tail`.
    // In bounds: beginnings have ranges of tails, and each rest has its tokens.
    pub(crate) fn into_breakers(self) -> Breakers {
        let mut breakers = self.breakers;
        // The copy has no spare capacity.
        breakers.tokens = copied(&breakers.tokens);
        for (tail, rest) in breakers.tails.iter_mut().zip(self.numbers) {
            if rest != UNUSED {
                tail.tokens = self.places[rest as usize];
            }
        }
        let tokens = &breakers.tokens;
        for beginning in &breakers.beginnings {
            let (from, to) = beginning.tails;
            breakers.tails[from as usize..to as usize]
                .sort_unstable_by(|a, b| a.of(tokens).cmp(b.of(tokens)));
        }
        breakers
    }
}

impl Breakers {
    /// Calls `tell` for each head with the tails that the head does not need because it contains
    /// their breakers. The tails must still be in the order of the breakers.
    // In bounds: heads and beginnings have ranges that were found; every beginning has tails.
    fn for_each_contained(&self, mut tell: impl FnMut(usize)) {
        for head in self.heads.values() {
            let (from, to) = head.contained;
            let contained = &self.contained[from as usize..to as usize];
            let mut at = head.beginning;
            while at != 0 && !contained.is_empty() {
                let beginning = self.beginnings[at as usize];
                let (from, to) = beginning.tails;
                let first = self.tails[from as usize].breaker;
                for &breaker in contained {
                    if (first..first + (to - from)).contains(&breaker) {
                        tell((from + breaker - first) as usize);
                    }
                }
                at = beginning.shorter;
            }
        }
    }

    /// Searches the texts of all tokens for heads, which refer to numbers of `prefixes`.
    fn find_heads(&mut self, vocabulary: &dyn Vocabulary, prefixes: &Prefixes<'_>) {
        let mut text = Vec::new();
        let mut contained = Vec::new();
        for token in 0..vocabulary.n_tokens() as Token {
            vocabulary.detokenize(token, &mut text);
            contained.clear();
            let mut at = ROOT;
            for &byte in &text {
                at = prefixes.step(at, byte);
                for breaker in prefixes.whole_texts(at) {
                    insert(&mut contained, breaker);
                }
            }
            let is_breaker = !contained.is_empty();
            if !is_breaker && at == ROOT {
                continue;
            }
            contained.retain(|&breaker| prefixes.ends_with_part_of(at, breaker));
            let from = self.contained.len() as u32;
            for &breaker in &contained {
                push(&mut self.contained, breaker);
            }
            let head = Head {
                is_breaker,
                beginning: at,
                contained: (from, self.contained.len() as u32),
            };
            grow_map(&mut self.heads);
            self.heads.insert(token, head);
        }
    }
}

/// Returns `n` zeros.
fn zeros(n: usize) -> Vec<u32> {
    let mut zeros = with_room(n).unwrap_or_else(exhausted);
    zeros.resize(n, 0);
    zeros
}

/// Inserts `number` into the ascending list, unless the list contains it.
fn insert(numbers: &mut Vec<u32>, number: u32) {
    if let Err(place) = numbers.binary_search(&number) {
        push(numbers, number);
        numbers[place..].rotate_right(1);
    }
}

#[cfg(test)]
mod tests;
