//! Tracks how much of the banned texts the end of a growing text matches.

use std::collections::VecDeque;

use super::Bans;
use super::place::Place;
use crate::kernels::bitmap::has;
use crate::memory::exhausted;
use crate::token::Token;

/// A group of tokens: a token in which units begin, and the tokens after it in which none begins.
/// Holds the number of these units and the number of tokens in the group.
#[derive(Clone, Copy, Debug)]
struct Taken {
    units: usize,
    tokens: u32,
}

/// The prefixes of banned texts that the text so far ends with.
#[derive(Debug)]
pub struct Cursor {
    place: Place,
    /// The newest groups of tokens, as many as the longest banned text can span.
    taken: VecDeque<Taken>,
}

impl Clone for Cursor {
    fn clone(&self) -> Self {
        let mut copy = Self::with_room(self.taken.capacity());
        copy.clone_from(self);
        copy
    }

    fn clone_from(&mut self, source: &Self) {
        self.place = source.place;
        self.taken.clone_from(&source.taken);
    }
}

impl Cursor {
    /// Returns the state of an empty text.
    pub fn new(bans: &Bans) -> Self {
        Self::with_room(bans.automaton().longest() + 1)
    }

    fn with_room(room: usize) -> Self {
        let mut taken = VecDeque::new();
        taken.try_reserve_exact(room).unwrap_or_else(exhausted);
        Self {
            place: Place::default(),
            taken,
        }
    }

    /// Returns to the state of an empty text.
    pub fn reset(&mut self) {
        self.place = Place::default();
        self.taken.clear();
    }

    /// Accepts a token. A token outside the vocabulary has no text.
    pub fn accept(&mut self, bans: &Bans, token: Token) {
        let begun = self.place.accept(bans, token);
        self.take(begun, bans.automaton().longest());
    }

    /// Passes the state to `put`, in parts: a digest of the banned texts, the matched prefix, the
    /// bytes of an unfinished character, and the newest groups of tokens.
    pub fn save(&self, bans: &Bans, put: &mut dyn FnMut(&[u8])) {
        self.place.save(bans, put);
        for taken in &self.taken {
            put(&(taken.units as u32).to_le_bytes());
            put(&taken.tokens.to_le_bytes());
        }
    }

    /// Restores a state that was saved with the same texts. Returns `None` if it was saved with
    /// other texts or is invalid; the cursor's state is then unspecified.
    pub fn load(&mut self, bans: &Bans, bytes: &[u8]) -> Option<()> {
        let (place, rest) = Place::load(bans, bytes)?;
        let (taken, []) = rest.as_chunks::<8>() else {
            return None;
        };
        (taken.len() <= bans.automaton().longest() + 1).then_some(())?;
        self.place = place;
        self.taken.clear();
        self.taken
            .extend(taken.iter().map(|&[a, b, c, d, e, f, g, h]| Taken {
                units: u32::from_le_bytes([a, b, c, d]) as usize,
                tokens: u32::from_le_bytes([e, f, g, h]),
            }));
        Some(())
    }

    fn take(&mut self, units: usize, most: usize) {
        if units == 0 {
            if let Some(last) = self.taken.back_mut() {
                last.tokens = last.tokens.saturating_add(1);
            }
            return;
        }
        if self.taken.len() > most {
            self.taken.pop_front();
        }
        self.taken.push_back(Taken { units, tokens: 1 });
    }

    /// Returns the smallest number of newest tokens in which at least `units` units begin; if there
    /// are fewer units, the number of all tokens in `taken`.
    fn tokens_of(&self, units: usize) -> usize {
        let (mut left, mut tokens) = (units, 0);
        for taken in self.taken.iter().rev() {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(taken.units);
            tokens += taken.tokens as usize;
        }
        tokens
    }

    /// Returns the number of tokens since the beginning of the earliest banned text that one more
    /// token could complete; 0 if there is none.
    pub fn rewind(&self, bans: &Bans) -> usize {
        let units = match self.place.pending.is_empty() {
            true => bans
                .automaton()
                .begun(self.place.state)
                .map(|(units, _)| units)
                .next(),
            false => {
                let continues = bans.order().continues().iter();
                continues
                    .filter_map(|&token| self.before(bans, token))
                    .max()
            }
        };
        self.tokens_of(units.unwrap_or(0))
    }

    /// Returns the largest number of units that a banned text completed by `token` has before the
    /// token; `None` if the token completes none. Used for tokens that complete a character.
    fn before(&self, bans: &Bans, token: Token) -> Option<usize> {
        let (mut state, mut pending) = (self.place.state, self.place.pending);
        let (automaton, mut units) = (bans.automaton(), 0);
        let mut longest = None;
        bans.order().feed(token, &mut pending, |unit| {
            state = automaton.run(state, unit);
            if let Some(length) = automaton.ended(state) {
                // The part of the text before the token.
                longest = longest.max(Some(length.saturating_sub(units)));
            }
            units += 1;
        });
        longest
    }

    /// True if `token` would complete a banned text.
    pub fn bans(&self, bans: &Bans, token: Token) -> bool {
        let Some(rank) = bans.order().rank(token) else {
            return false;
        };
        if !has(bans.others(), token) {
            return true;
        }
        if !self.place.pending.is_empty() {
            let continues = matches!(bans.order().text(token).first(), Some(0x80..0xC0));
            return continues && self.before(bans, token).is_some();
        }
        bans.automaton().begun(self.place.state).any(|(_, ranges)| {
            let place = ranges.partition_point(|range| range.end <= rank);
            ranges.get(place).is_some_and(|range| range.contains(&rank))
        })
    }

    /// Returns an upper bound on the number of calls by [`each`](Self::each).
    pub fn count(&self, bans: &Bans) -> usize {
        if !self.place.pending.is_empty() {
            return bans.order().continues().len();
        }
        let begun = bans.automaton().begun(self.place.state);
        let ranges = begun.flat_map(|(_, ranges)| ranges);
        ranges.map(|range| range.len()).sum()
    }

    /// Calls `ban` with each token that would complete a banned text that has begun. A token may be
    /// passed more than once.
    pub fn each(&self, bans: &Bans, mut ban: impl FnMut(Token)) {
        let order = bans.order();
        if !self.place.pending.is_empty() {
            let continues = order.continues().iter().copied();
            return continues
                .filter(|&token| self.before(bans, token).is_some())
                .for_each(ban);
        }
        for (_, ranges) in bans.automaton().begun(self.place.state) {
            for range in ranges {
                order
                    .tokens(range.clone())
                    .iter()
                    .for_each(|&token| ban(token));
            }
        }
    }
}
