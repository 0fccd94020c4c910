//! A bias for tokens that continue banned texts, in place of a ban: the longer the matched part of
//! a text, the larger the bias.
//!
//! A token continues a banned text if a match of the text's beginning starts before the token and
//! extends to the token's end. If m of the L units of the text then match, `bias * m / L` is added
//! to the token's logit. A unit is a byte or, if texts are folded, a character. If a token
//! continues several texts, the largest share m / L counts. A token that completes a text, or
//! contains a whole one, gets the whole bias.
//!
//! The tokens that contain a whole text are found at construction. The tokens that continue a text
//! are found when a growing text first reaches a state, by a simultaneous walk through the trie of
//! banned texts and the sorted tokens. They are then kept, up to a limit in bytes.

// In bounds: states are positions in arrays that never change.

use std::ops::Range;
use std::sync::Arc;

use super::Bans;
use super::automaton::State;
use super::kept::Kept;
use super::order::Order;
use super::place::Place;
use crate::kernels::bitmap::has;
use crate::memory::{exhausted, push, with_room};
use crate::token::Token;

/// A token and the number that is added to its logit.
pub type Addend = (Token, f32);

/// Biases for a vocabulary.
#[derive(Debug)]
pub struct Biases {
    bans: Bans,
    bias: f32,
    /// For each state, the bias of a token that leads to the state; 0 if the state is within a
    /// character.
    addends: Vec<f32>,
    kept: Kept<Addend>,
}

impl Biases {
    /// Returns the biases of `texts`, which are read as [`Bans::new`] reads them. `bias` must be
    /// finite.
    pub fn new(texts: &[&[u8]], bias: f32, order: &Arc<Order>) -> Self {
        let bans = Bans::new(texts, order);
        let automaton = bans.automaton();
        let mut addends = with_room(automaton.n_states()).unwrap_or_else(exhausted);
        addends.extend((0..).zip(automaton.shortest()).map(|(state, shortest)| {
            let share = automaton.units(state) as f64 / f64::from(shortest);
            match automaton.is_within_character(state) {
                true => 0.0,
                false => (f64::from(bias) * share) as f32,
            }
        }));
        let kept = Kept::new(automaton.n_states());
        Self {
            bans,
            bias,
            addends,
            kept,
        }
    }

    /// Returns the texts, as bans.
    pub fn bans(&self) -> &Bans {
        &self.bans
    }

    /// Returns the bias of a token that completes a text.
    pub fn bias(&self) -> f32 {
        self.bias
    }

    /// Returns the tokens that contain a whole text, ascending. They always get the whole bias.
    pub fn whole(&self) -> &[Token] {
        self.bans.whole()
    }

    /// Returns the tokens that continue or complete a text after `place`, ascending, each with the
    /// number that is added to its logit. Tokens that contain a whole text are left out. `buffer`
    /// holds the result if it is not kept.
    pub fn after<'a>(&'a self, place: Place, buffer: &'a mut Vec<Addend>) -> &'a [Addend] {
        if !place.pending.is_empty() {
            buffer.clear();
            self.find_within_character(place, buffer);
            return buffer;
        }
        if let Some(known) = self.kept.get(place.state) {
            return known;
        }
        match self.kept.keep(place.state, self.find(place.state)) {
            Ok(kept) => kept,
            Err(found) => {
                *buffer = found;
                buffer
            }
        }
    }

    /// Finds the tokens that continue or complete a text after `state`.
    fn find(&self, state: State) -> Vec<Addend> {
        let mut found = Vec::new();
        for begun in self.bans.automaton().suffixes(state) {
            self.walk(begun, &mut found);
        }
        found.retain(|&(token, _)| has(self.bans.others(), token));
        found.sort_unstable_by(|(a, by_a), (b, by_b)| {
            a.cmp(b).then(by_b.abs().total_cmp(&by_a.abs()))
        });
        found.dedup_by_key(|&mut (token, _)| token);
        found
    }

    /// Appends the tokens that continue or complete the banned texts of which `begun` is a prefix.
    fn walk(&self, begun: State, found: &mut Vec<Addend>) {
        let (automaton, order) = (self.bans.automaton(), self.bans.order());
        let mut open: Vec<(State, Range<u32>, usize)> = Vec::new();
        push(&mut open, (begun, 0..order.n_ranks(), 0));
        while let Some((state, ranks, n)) = open.pop() {
            for (byte, child) in automaton.children(state) {
                let ranks = order.narrowed(ranks.clone(), n, byte);
                let tokens = order.tokens(ranks.clone());
                if automaton.is_end(child) {
                    // All these tokens complete the text.
                    tokens
                        .iter()
                        .for_each(|&token| push(found, (token, self.bias)));
                    continue;
                }
                // The tokens whose keys end after this byte come first.
                let ends = |&&token: &&Token| order.key(token).len() == n + 1;
                let addend = self.addends[child as usize];
                let ending = tokens.iter().take_while(ends).filter(|_| addend != 0.0);
                ending.for_each(|&token| push(found, (token, addend)));
                if !ranks.is_empty() {
                    push(&mut open, (child, ranks, n + 1));
                }
            }
        }
    }

    /// Appends the tokens that complete an unfinished character and continue or complete a text.
    fn find_within_character(&self, place: Place, found: &mut Vec<Addend>) {
        for &token in self.bans.order().continues() {
            let addend = self.addend_within_character(place, token);
            if addend != 0.0 && has(self.bans.others(), token) {
                push(found, (token, addend));
            }
        }
    }

    /// Returns the number that is added to the logit of `token` after an unfinished character.
    fn addend_within_character(&self, place: Place, token: Token) -> f32 {
        let automaton = self.bans.automaton();
        let (mut state, mut pending) = (place.state, place.pending);
        let (mut units, mut completes) = (0, false);
        self.bans.order().feed(token, &mut pending, |unit| {
            state = automaton.run(state, unit);
            completes |= automaton.is_match(state);
            units += 1;
        });
        if completes {
            return self.bias;
        }
        if !pending.is_empty() {
            return 0.0;
        }
        // The first unit began before the token, and so did each match that contains it.
        let began_before = |&state: &State| automaton.units(state) >= units;
        let continued = automaton.suffixes(state).take_while(began_before);
        let addends = continued.map(|state| self.addends[state as usize]);
        addends.fold(0.0, |largest: f32, addend| {
            if addend.abs() > largest.abs() {
                addend
            } else {
                largest
            }
        })
    }
}

#[cfg(test)]
mod tests;
