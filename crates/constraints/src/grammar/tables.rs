//! The tables for tracking the position of one text in a grammar and for computing its masks.

// In bounds: either every band has tables, or none has.

use std::sync::Arc;

use crate::grammar::compiled::Compiled;
use crate::grammar::limits::{MAX_STACK, MAX_STATE_BYTES};
use crate::grammar::mask::{self, Mask, MaskWriter};
use crate::grammar::masks::{MaskKey, Masks, Part, PartKey};
use crate::grammar::states::{NONE, StateId, States, TooMuch};
use crate::grammar::utf8::Partial;
use crate::token::Token;

/// A token, and its bytes or a suffix of them.
pub type Text<'t> = (Token, &'t [u8]);

/// The position of a text in a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The state after the complete characters, valid only with the tables that returned it.
    pub state: StateId,
    /// The state of the UTF-8 decoder after the last token.
    pub partial: Partial,
}

/// Tables that grow while texts are tracked.
#[derive(Debug)]
pub struct Tables {
    /// The states for tracking texts.
    pub states: States,
    /// For a grammar with counted repetitions, the tables for masks: one for each band of the
    /// vocabulary.
    by_band: Vec<States>,
    /// A scratch buffer for code points.
    pub chars: Vec<u32>,
    /// The state at the beginning of a text.
    initial: Option<StateId>,
    /// The size of `states` in bytes when it held only the place of a text.
    bytes_of_place: usize,
    /// True while the tables change. If it is true when a call begins, a change was interrupted,
    /// and the tables are invalid.
    pub is_changing: bool,
}

impl Tables {
    /// Returns empty tables.
    pub fn new(grammar: &Compiled) -> Self {
        let mut by_band = Vec::new();
        if grammar.has_counts() {
            let bands = grammar.tree.bands();
            let ends = bands.iter().map(|band| band.most_chars as u32);
            by_band.extend(ends.map(States::new));
            // The last tables also serve the tokens that are in no band.
            by_band.pop();
            by_band.push(States::new(grammar.tree.most_chars() as u32));
        }
        Self {
            states: States::default(),
            by_band,
            chars: Vec::new(),
            initial: None,
            bytes_of_place: 0,
            is_changing: false,
        }
    }

    /// Returns the approximate size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        let by_band = self.by_band.iter().map(States::bytes);
        self.states.bytes() + by_band.sum::<usize>()
    }

    /// Records that the tables now hold nothing but the place of a text.
    pub fn has_place_alone(&mut self) {
        self.bytes_of_place = self.states.bytes();
    }

    /// True if the tables should be rebuilt to hold only the place. Rebuilding copies the place, so
    /// tables that hold little else are kept.
    pub fn is_large(&self) -> bool {
        let n_tables = 1 + self.by_band.len();
        self.bytes() > n_tables * MAX_STATE_BYTES.max(2 * self.bytes_of_place)
    }

    /// Returns the place at the beginning of a text.
    pub fn initial(&mut self, grammar: &Compiled) -> Result<Place, TooMuch> {
        let state = match self.initial {
            Some(state) => state,
            None => self.states.initial(grammar)?,
        };
        self.initial = Some(state);
        Ok(Place {
            state,
            partial: Partial::default(),
        })
    }

    /// Returns the place after `tokens`. If one of them is not allowed, returns that token and the
    /// place before it.
    pub fn accept<'t>(
        &mut self,
        grammar: &Compiled,
        mut place: Place,
        tokens: impl Iterator<Item = Text<'t>>,
    ) -> Result<(Place, Option<Text<'t>>), TooMuch> {
        let mut refused = None;
        for (token, text) in tokens {
            let partial = if grammar.rules.is_by_number(token) {
                self.chars.clear();
                match place.partial.is_pending() {
                    true => Partial::INVALID,
                    false => Partial::default(),
                }
            } else {
                grammar.decode(text, place.partial, &mut self.chars)
            };
            self.states.spend(self.chars.len())?;
            let state = self
                .states
                .accept(grammar, place.state, token, &self.chars)?;
            // llama.cpp checks an unfinished character only when it becomes complete.
            let is_refused = grammar.rules.is_strict
                && !mask::may_stop(&mut self.states, grammar, state, partial)?;
            if state == NONE || is_refused {
                refused = Some((token, text));
                break;
            }
            place = Place { state, partial };
        }
        match self.states.is_deeper_than(MAX_STACK, place.state) {
            true => Err(TooMuch),
            false => Ok((place, refused)),
        }
    }

    /// True if a token may follow the text.
    pub fn allows(
        &mut self,
        grammar: &Compiled,
        place: Place,
        token: Token,
    ) -> Result<bool, TooMuch> {
        let Place { state, partial } = place;
        mask::allows(
            &mut self.states,
            grammar,
            state,
            partial,
            token,
            &mut self.chars,
        )
    }

    /// Returns the key under which the mask of a place is stored.
    pub fn key(&mut self, grammar: &Compiled, place: Place) -> Result<MaskKey, TooMuch> {
        let Place { mut state, partial } = canonical(place);
        let Some(last) = self.by_band.last_mut() else {
            return Ok((self.states.identity(state), partial));
        };
        last.begin_with(self.states.budget);
        let imported = last.import(grammar, &self.states, state);
        self.states.budget = last.budget;
        state = imported?;
        Ok((last.identity(state), partial))
    }

    /// Returns the mask of a place. If `known` is given, the allowed tokens of bands are looked up
    /// in it and added to it.
    pub fn mask(
        &mut self,
        grammar: &Compiled,
        place: Place,
        known: Option<&Masks>,
    ) -> Result<Mask, TooMuch> {
        let mut writer = self.gathered(grammar, place, known)?;
        let Place { state, partial } = canonical(place);
        for &token in &grammar.rules.by_number {
            let is_allowed = mask::takes_by_number(&self.states, grammar, state, partial, token);
            writer.put(token, is_allowed);
        }
        Ok(writer.done())
    }

    /// Returns the mask of a place, before the tokens that are matched only by id are put in or
    /// taken out.
    fn gathered<'g>(
        &mut self,
        grammar: &'g Compiled,
        place: Place,
        known: Option<&Masks>,
    ) -> Result<MaskWriter<'g>, TooMuch> {
        let Place { state, partial } = canonical(place);
        let mut writer = MaskWriter::new(&grammar.tree, self.states.may_end(state));
        if self.by_band.is_empty() {
            for band in 0..grammar.tree.bands().len() {
                if !partial.is_pending() {
                    let ranks = mask::of_band(&mut self.states, grammar, state, band)?;
                    writer.add_band(band, &ranks);
                }
            }
            writer.add_others(&mut self.states, grammar, state, partial)?;
            return Ok(writer);
        }
        let mut last = state;
        let mut made = Vec::new();
        for band in 0..self.by_band.len() {
            let tables = &mut self.by_band[band];
            tables.begin_with(self.states.budget);
            let place = (band, &self.states, state);
            let part = part(tables, grammar, place, partial, known, &mut made);
            self.states.budget = tables.budget;
            let (part, imported) = part?;
            if let Some(part) = part {
                writer.add_band(band, &part.ranks);
            }
            last = imported;
        }
        if let Some(tables) = self.by_band.last_mut() {
            let added = writer.add_others(tables, grammar, last, partial);
            self.states.budget = tables.budget;
            added?;
        }
        // A call that fails stores nothing.
        if let Some(known) = known {
            made.iter()
                .for_each(|(key, part)| known.keep_part(*key, part));
        }
        Ok(writer)
    }
}

/// Returns the allowed tokens of a band, unless the text ends within a character, and the state in
/// the band's tables. New results are added to `made`.
fn part(
    tables: &mut States,
    grammar: &Compiled,
    (band, states, state): (usize, &States, StateId),
    partial: Partial,
    known: Option<&Masks>,
    made: &mut Vec<(PartKey, Arc<Part>)>,
) -> Result<(Option<Arc<Part>>, StateId), TooMuch> {
    let state = tables.import(grammar, states, state)?;
    if partial.is_pending() {
        return Ok((None, state));
    }
    let key = (band, tables.identity(state));
    if let Some(part) = known.and_then(|masks| masks.part(key)) {
        tables.budget.charge(part.cost);
        tables.budget.check()?;
        return Ok((Some(part), state));
    }
    let bound = tables.budget.bound();
    let ranks = mask::of_band(tables, grammar, state, band)?;
    let cost = tables.budget.bound() - bound;
    let part = Arc::new(Part { ranks, cost });
    made.push((key, Arc::clone(&part)));
    Ok((Some(part), state))
}

/// Returns the place without the decoder's mark for invalid UTF-8, which does not affect masks.
fn canonical(place: Place) -> Place {
    match place.partial.is_pending() {
        true => place,
        false => Place {
            partial: Partial::default(),
            ..place
        },
    }
}
