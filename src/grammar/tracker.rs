//! Follows one text through a grammar: where it stands, and what may come next.
//!
//! The tables that this takes belong to one text at a time, so that nobody waits for another one;
//! when it is done, the next text of the grammar goes on with them. Masks are kept in the
//! [engine](Engine), for all.

#![expect(
    clippy::indexing_slicing,
    reason = "there are tables for each band, or none"
)]

use std::sync::Arc;

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Class, Element};
use crate::grammar::engine::{Engine, MaskKey, Part};
use crate::grammar::limits::MAX_STATE_BYTES;
use crate::grammar::mask::{self, Mask, MaskWriter};
use crate::grammar::states::budget::Budget;
use crate::grammar::states::{NONE, StateId, States, TooMuch};
use crate::grammar::utf8::{Partial, decode};
use crate::token::Token;

/// Where a text stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The state behind the characters that are complete. It belongs to one bench.
    state: StateId,
    /// What the last token left of a character.
    partial: Partial,
}

/// Tables that grow while texts are followed.
#[derive(Debug)]
pub struct Bench {
    states: States,
    /// Of a grammar with counted repetitions, the tables that masks are made with: one for each
    /// band of the vocabulary.
    by_band: Vec<States>,
    chars: Vec<u32>,
    /// The state at the beginning of a text.
    initial: Option<StateId>,
    /// Set while the tables change. Found set, a change was cut short, and they are not to be
    /// believed.
    is_changing: bool,
}

impl Bench {
    /// Empty tables.
    pub fn new(grammar: &Compiled) -> Self {
        let mut by_band = Vec::new();
        if grammar.has_counts() {
            let bands = grammar.tree.bands();
            let ends = bands.iter().map(|band| band.most_chars as u32);
            by_band.extend(ends.map(States::new));
            // Also for tokens that are in no band.
            by_band.pop();
            by_band.push(States::new(grammar.tree.most_chars() as u32));
        }
        Self {
            states: States::default(),
            by_band,
            chars: Vec::new(),
            initial: None,
            is_changing: false,
        }
    }

    /// Bytes that the tables occupy, about.
    pub fn bytes(&self) -> usize {
        let by_band = self.by_band.iter().map(States::bytes);
        self.states.bytes() + by_band.sum::<usize>()
    }

    fn initial(&mut self, grammar: &Compiled) -> Result<Place, TooMuch> {
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

    fn accept(
        &mut self,
        grammar: &Compiled,
        place: Place,
        token: Token,
        text: &[u8],
    ) -> Result<Place, TooMuch> {
        let partial = decode(text, place.partial, &mut self.chars);
        let state = self
            .states
            .accept(grammar, place.state, token, &self.chars)?;
        Ok(Place { state, partial })
    }

    fn key(&mut self, grammar: &Compiled, place: Place) -> Result<MaskKey, TooMuch> {
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

    fn mask(
        &mut self,
        grammar: &Compiled,
        place: Place,
        known: Option<&Engine>,
    ) -> Result<Mask, TooMuch> {
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
            return Ok(writer.done());
        }
        let mut last = state;
        for band in 0..self.by_band.len() {
            let tables = &mut self.by_band[band];
            tables.begin_with(self.states.budget);
            let part = part(tables, grammar, (band, &self.states, state), partial, known);
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
        Ok(writer.done())
    }
}

/// The allowed tokens of a band, unless the text ends within a character, and the state of the
/// band's tables.
fn part(
    tables: &mut States,
    grammar: &Compiled,
    (band, states, state): (usize, &States, StateId),
    partial: Partial,
    known: Option<&Engine>,
) -> Result<(Option<Arc<Part>>, StateId), TooMuch> {
    let state = tables.import(grammar, states, state)?;
    if partial.is_pending() {
        return Ok((None, state));
    }
    let key = (band, tables.identity(state));
    if let Some(part) = known.and_then(|engine| engine.known_part(key)) {
        tables.budget.charge(part.cost);
        tables.budget.check()?;
        return Ok((Some(part), state));
    }
    let bound = tables.budget.bound();
    let ranks = mask::of_band(tables, grammar, state, band)?;
    let cost = tables.budget.bound() - bound;
    let part = Arc::new(Part { ranks, cost });
    if let Some(engine) = known {
        engine.keep_part(key, &part);
    }
    Ok((Some(part), state))
}

/// Behind bytes that are no UTF-8 a text goes on as if they were not there.
fn canonical(place: Place) -> Place {
    match place.partial.is_pending() {
        true => place,
        false => Place {
            partial: Partial::default(),
            ..place
        },
    }
}

/// A text, and where it stands in a grammar.
#[derive(Debug)]
pub struct Tracker {
    engine: Arc<Engine>,
    /// `None` only while it is dropped.
    bench: Option<Bench>,
    place: Place,
}

impl Drop for Tracker {
    fn drop(&mut self) {
        if let Some(bench) = self.bench.take()
            && !bench.is_changing
        {
            self.engine.leave(bench);
        }
    }
}

impl Clone for Tracker {
    /// At the same place of the same text.
    fn clone(&self) -> Self {
        let grammar = self.engine.compiled();
        let mut bench = self.engine.bench();
        let mut place = self.place;
        match &self.bench {
            Some(own) if !own.is_changing => {
                bench.states.forget_imports();
                bench.states.begin_with(Budget::fresh());
                match bench.states.import(grammar, &own.states, place.state) {
                    Ok(state) => place.state = state,
                    Err(TooMuch) => bench.is_changing = true,
                }
            }
            _ => bench.is_changing = true,
        }
        Self {
            engine: Arc::clone(&self.engine),
            bench: Some(bench),
            place,
        }
    }
}

impl Tracker {
    /// At the beginning of a text. `None` where no text can follow the grammar.
    pub fn new(engine: Arc<Engine>) -> Result<Option<Self>, TooMuch> {
        let bench = Some(engine.bench());
        let place = Place {
            state: NONE,
            partial: Partial::default(),
        };
        let mut tracker = Self {
            engine,
            bench,
            place,
        };
        tracker.reset()?;
        Ok((tracker.place.state != NONE).then_some(tracker))
    }

    /// The grammar, with what is known of it.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Bytes that its own tables occupy.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.bench.as_ref().map_or(0, Bench::bytes)
    }

    /// Makes a call to the tables. What it may do does not depend on what they know.
    pub(super) fn call<T>(
        &mut self,
        body: impl Fn(&mut Bench, &Compiled, Place, Option<&Engine>) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        let bench = self.bench.as_mut().filter(|bench| !bench.is_changing);
        let bench = bench.ok_or(TooMuch)?;
        let grammar = self.engine.compiled();
        bench.is_changing = true;
        bench.states.begin_call();
        let mut result = body(bench, grammar, self.place, Some(&self.engine));
        let is_undecided = result.is_err() && bench.states.budget.may_be_enough();
        bench.is_changing = false;
        let mut moved = None;
        if is_undecided {
            // With empty tables it may be enough, and what they say counts.
            let mut fresh = Bench::new(grammar);
            fresh.states.begin_with(Budget::fresh());
            let state = fresh
                .states
                .import(grammar, &bench.states, self.place.state);
            result = state.and_then(|state| {
                let place = Place {
                    state,
                    ..self.place
                };
                let done = body(&mut fresh, grammar, place, None)?;
                moved = Some((fresh, place));
                Ok(done)
            });
        }
        if let Some((fresh, place)) = moved {
            (*bench, self.place) = (fresh, place);
        } else if result.is_err() {
            // What a call that failed has added is given back.
            self.begin_anew();
        }
        result
    }

    /// Goes over to tables that have nothing but the place.
    fn begin_anew(&mut self) {
        let Some(bench) = &mut self.bench else {
            return;
        };
        let grammar = self.engine.compiled();
        let mut fresh = Bench::new(grammar);
        fresh.states.begin_with(Budget::fresh());
        if let Ok(state) = fresh
            .states
            .import(grammar, &bench.states, self.place.state)
        {
            *bench = fresh;
            self.place.state = state;
        }
    }

    fn stay_small(&mut self) {
        let bytes = self.bench.as_ref().map_or(0, Bench::bytes);
        if bytes > MAX_STATE_BYTES {
            self.begin_anew();
        }
    }

    /// Goes back to the beginning of a text.
    pub fn reset(&mut self) -> Result<(), TooMuch> {
        if self.bench.as_ref().is_none_or(|bench| bench.is_changing) {
            self.bench = Some(Bench::new(self.engine.compiled()));
            self.place.state = NONE;
        }
        self.place = self.call(|bench, grammar, _, _| bench.initial(grammar))?;
        Ok(())
    }

    /// Goes on with a token, or with the bytes `text` that are part of one. False, with no change,
    /// where the grammar does not allow it.
    pub fn accept(&mut self, token: Token, text: &[u8]) -> Result<bool, TooMuch> {
        let next =
            self.call(|bench, grammar, place, _| bench.accept(grammar, place, token, text))?;
        if next.state == NONE {
            return Ok(false);
        }
        self.place = next;
        self.stay_small();
        Ok(true)
    }

    /// True if the text may end here.
    pub fn may_end(&self) -> bool {
        let bench = self.bench.as_ref().filter(|bench| !bench.is_changing);
        bench.is_some_and(|bench| bench.states.may_end(self.place.state))
    }

    /// True if each of some tokens is allowed here.
    pub fn test(
        &mut self,
        tokens: impl Iterator<Item = Token> + Clone,
    ) -> Result<Vec<bool>, TooMuch> {
        self.call(|bench, grammar, place, _| {
            let Bench { states, chars, .. } = bench;
            let (state, partial) = (place.state, place.partial);
            let tokens = tokens.clone();
            tokens
                .map(|token| mask::allows(states, grammar, state, partial, token, chars))
                .collect()
        })
    }

    /// The tokens that are allowed here, if somebody has asked before.
    pub fn known_mask(&mut self) -> Option<Arc<Mask>> {
        let key = self.key().ok()?;
        self.engine.known_mask(key)?.ok()
    }

    fn key(&mut self) -> Result<MaskKey, TooMuch> {
        self.call(|bench, grammar, place, _| bench.key(grammar, place))
    }

    /// The tokens that are allowed here.
    pub fn mask(&mut self) -> Result<Arc<Mask>, TooMuch> {
        let key = self.key()?;
        if let Some(known) = self.engine.known_mask(key) {
            return known;
        }
        let made = self.call(|bench, grammar, place, known| bench.mask(grammar, place, known));
        let mask = made.map(Arc::new);
        self.engine.keep_mask(key, &mask);
        self.stay_small();
        mask
    }

    /// Names what may come next.
    pub fn expected(&self) -> String {
        let Some(bench) = self.bench.as_ref().filter(|bench| !bench.is_changing) else {
            return String::new();
        };
        let grammar = self.engine.compiled();
        let state = self.place.state;
        let mut words: Vec<String> = Vec::new();
        for edge in bench.states.edges(state) {
            let Some(first) = grammar.first(edge.sequence) else {
                continue;
            };
            let word = describe(grammar, first.item);
            if !words.contains(&word) {
                words.push(word);
            }
            if words.len() > MOST_WORDS {
                break;
            }
        }
        if words.len() > MOST_WORDS {
            words.truncate(MOST_WORDS);
            words.push("more".into());
        }
        if bench.states.may_end(state) {
            words.push("the end".into());
        }
        words.join(", ")
    }
}

/// The most alternatives that a message lists.
const MOST_WORDS: usize = 6;

fn describe(grammar: &Compiled, item: Element) -> String {
    match item {
        Element::Class(_) => grammar.class(item).map(describe_class).unwrap_or_default(),
        Element::Token(token) => format!("<[{token}]>"),
        Element::TokenNot(token) => format!("!<[{token}]>"),
        Element::Rule(_) | Element::Repeat(_) | Element::Alternative => String::new(),
    }
}
fn describe_class(class: &Class) -> String {
    let shown = |code_point: u32| match char::from_u32(code_point) {
        Some(character) => character.escape_debug().to_string(),
        None => format!("\\U{code_point:08X}"),
    };
    if class.any {
        return "any character".into();
    }
    if let (false, [(first, last)]) = (class.negated, &*class.ranges)
        && first == last
    {
        return format!("'{}'", shown(*first));
    }
    let mut text = String::from(if class.negated { "[^" } else { "[" });
    for &(first, last) in class.ranges.iter().take(8) {
        text += &shown(first);
        if last != first {
            text += "-";
            text += &shown(last);
        }
    }
    if class.ranges.len() > 8 {
        text += "...";
    }
    text + "]"
}
