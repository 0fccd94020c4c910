//! What is known of a state besides its edges: which characters it takes, whether it takes tokens,
//! and which texts it takes whatever they are.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of states are positions in tables that only grow"
)]

use super::{Facts, NO_ROW, NONE, StateId, States, TooMuch};
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::Element;
use crate::grammar::nodes::{CharSet, Summary};

/// Fewer characters that lead to one state are not worth the steps that find them.
const FEWEST_UNIFORM: u32 = 8;
/// So many characters of a long text are followed.
const MOST_UNIFORM: u32 = 32;

impl States {
    #[inline]
    pub(super) fn facts(&mut self, grammar: &Compiled, state: StateId) -> Facts {
        match self.facts[state as usize] {
            Some(facts) => facts,
            None => self.new_facts(grammar, state),
        }
    }

    #[cold]
    fn new_facts(&mut self, grammar: &Compiled, state: StateId) -> Facts {
        let mut cover = 0;
        let mut has_tokens = false;
        for edge in self.all[state as usize].edges.iter() {
            if let Some(first) = grammar.first(edge.sequence) {
                cover |= grammar.cover(first.item);
                has_tokens |= matches!(first.item, Element::Token(_) | Element::TokenNot(_));
            }
        }
        let facts = Facts {
            row: NO_ROW,
            cover,
            has_tokens,
            uniform: None,
        };
        self.facts[state as usize] = Some(facts);
        facts
    }

    /// The characters that some top takes; bit 0 where one that is not ASCII, or part of one, may
    /// be taken.
    pub fn cover(&mut self, grammar: &Compiled, state: StateId) -> CharSet {
        self.facts(grammar, state).cover
    }

    /// Whether a top is a token.
    pub fn has_tokens(&mut self, grammar: &Compiled, state: StateId) -> bool {
        self.facts(grammar, state).has_tokens
    }

    /// Whether every text is taken of which `texts` is the summary. May say no where it is yes,
    /// more often if nothing is to be found out.
    #[inline]
    pub fn takes_all(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        texts: Summary,
        finds_out: bool,
    ) -> Result<bool, TooMuch> {
        let mut taken = 0;
        loop {
            let (kinds, next) = match self.facts(grammar, state).uniform {
                Some(uniform) => uniform,
                None if finds_out => self.uniform(grammar, state)?,
                None => return Ok(false),
            };
            if !texts.is_within(kinds) {
                return Ok(false);
            }
            taken += 1;
            if next == state || texts.height().is_some_and(|height| height <= taken) {
                return Ok(true);
            }
            // The tallest are not worth the steps.
            if texts.height().is_none() && taken > MOST_UNIFORM {
                return Ok(false);
            }
            state = next;
        }
    }

    /// The largest set of characters that lead to one state, as kinds, and that state.
    #[cold]
    fn uniform(
        &mut self,
        grammar: &Compiled,
        state: StateId,
    ) -> Result<(Summary, StateId), TooMuch> {
        let cover = self.facts(grammar, state).cover;
        let mut sets: Vec<(StateId, CharSet)> = Vec::new();
        if cover.count_ones() >= FEWEST_UNIFORM {
            for (group, set) in grammar.ascii_groups() {
                if set & cover == 0 {
                    continue;
                }
                let next = self.step(grammar, state, group)?;
                match sets.iter_mut().find(|(state, _)| *state == next) {
                    Some((_, sum)) => *sum |= set,
                    None => sets.push((next, set)),
                }
            }
            sets.retain(|&(next, _)| next != NONE);
        }
        let largest = sets.into_iter().max_by_key(|(_, set)| set.count_ones());
        let best = largest.map_or((Summary::default(), NONE), |(next, set)| {
            (Summary::within(set), next)
        });
        let mut facts = self.facts(grammar, state);
        facts.uniform = Some(best);
        self.facts[state as usize] = Some(facts);
        Ok(best)
    }
}
