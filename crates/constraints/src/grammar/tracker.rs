//! Tracks one text in a grammar: keeps its position, and finds the tokens that may come next.
//!
//! The tables belong to one text at a time, so that no text waits for another. Afterwards the next
//! text of the grammar reuses them. Masks are shared by all texts, and kept in the
//! [engine](Engine).

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Class, Element};
use crate::grammar::engine::Engine;
use crate::grammar::limits::{MAX_KEPT_BYTES, MAX_ROLLBACK};
use crate::grammar::mask::Mask;
use crate::grammar::masks::{MaskKey, Masks};
use crate::grammar::states::{NONE, States, TooMuch};
use crate::grammar::tables::{Place, Tables, Text};
use crate::grammar::utf8::Partial;
use crate::grammar::vocabulary_tree::Kind;
use crate::token::Token;

/// A text's position in a grammar.
#[derive(Debug)]
pub struct Tracker {
    engine: Arc<Engine>,
    /// `None` only while the tracker is dropped.
    tables: Option<Tables>,
    place: Place,
    /// Places for rollback, the oldest first.
    kept: VecDeque<Place>,
}

impl Drop for Tracker {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.take()
            && !tables.is_changing
        {
            self.engine.leave(tables);
        }
    }
}

impl Clone for Tracker {
    /// Returns a tracker at the same place of the same text, without places for rollback.
    fn clone(&self) -> Self {
        let grammar = self.engine.compiled();
        let mut tables = self.engine.tables();
        let mut place = self.place;
        match &self.tables {
            Some(own) if !own.is_changing => {
                tables.states.forget_imports();
                tables.states.begin_with(self.engine.budget().fresh());
                match tables.states.import(grammar, &own.states, place.state) {
                    Ok(state) => place.state = state,
                    Err(TooMuch) => tables.is_changing = true,
                }
            }
            _ => tables.is_changing = true,
        }
        Self {
            engine: Arc::clone(&self.engine),
            tables: Some(tables),
            place,
            kept: VecDeque::new(),
        }
    }
}

impl Tracker {
    /// Returns a tracker at the beginning of a text; `None` if the grammar matches no text.
    pub fn new(engine: Arc<Engine>) -> Result<Option<Self>, TooMuch> {
        let tables = Some(engine.tables());
        let place = Place {
            state: NONE,
            partial: Partial::default(),
        };
        let mut tracker = Self {
            engine,
            tables,
            place,
            kept: VecDeque::new(),
        };
        tracker.reset()?;
        Ok((tracker.place.state != NONE).then_some(tracker))
    }

    /// Returns the grammar's engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Returns the size of the tracker's tables in bytes.
    #[cfg(test)]
    pub fn bytes(&self) -> usize {
        self.tables.as_ref().map_or(0, Tables::bytes)
    }

    /// Runs a call on the tables, within a limit that does not depend on what they contain.
    pub(super) fn call<T>(
        &mut self,
        body: impl Fn(&mut Tables, &Compiled, Place, Option<&Masks>) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        let tables = self.tables.as_mut().filter(|tables| !tables.is_changing);
        let tables = tables.ok_or(TooMuch)?;
        let grammar = self.engine.compiled();
        tables.is_changing = true;
        tables.states.begin_with(self.engine.budget());
        let mut result = body(tables, grammar, self.place, Some(self.engine.masks()));
        let is_undecided = result.is_err() && tables.states.budget.may_be_enough();
        tables.is_changing = false;
        let mut moved = None;
        if is_undecided {
            // With empty tables the budget may suffice, and then that result counts.
            let mut fresh = Tables::new(grammar);
            fresh.states.begin_with(self.engine.budget().fresh());
            let state = fresh
                .states
                .import(grammar, &tables.states, self.place.state);
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
            let mut fresh = fresh;
            take_over(&mut self.kept, &mut fresh, tables, &self.engine);
            (*tables, self.place) = (fresh, place);
        } else if result.is_err() {
            // Frees the memory that the failed call has added.
            self.begin_anew();
        }
        result
    }

    /// Switches to new tables that contain only the current place and the places for rollback.
    fn begin_anew(&mut self) {
        let Some(tables) = &mut self.tables else {
            return;
        };
        let grammar = self.engine.compiled();
        let mut fresh = Tables::new(grammar);
        fresh.states.begin_with(self.engine.budget().fresh());
        if let Ok(state) = fresh
            .states
            .import(grammar, &tables.states, self.place.state)
        {
            take_over(&mut self.kept, &mut fresh, tables, &self.engine);
            fresh.has_place_alone();
            *tables = fresh;
            self.place.state = state;
        }
    }

    fn stay_small(&mut self) {
        if self.tables.as_ref().is_some_and(Tables::is_large) {
            self.begin_anew();
        }
    }

    /// Returns to the beginning of a text.
    pub fn reset(&mut self) -> Result<(), TooMuch> {
        if self.tables.as_ref().is_none_or(|tables| tables.is_changing) {
            self.tables = Some(Tables::new(self.engine.compiled()));
            self.place.state = NONE;
        }
        self.kept.clear();
        self.place = self.call(|tables, grammar, _, _| tables.initial(grammar))?;
        Ok(())
    }

    /// Accepts tokens in one call, within the limit for one token. If a token is not allowed,
    /// returns it and stays at the place before it.
    pub fn accept<'t>(
        &mut self,
        tokens: impl Iterator<Item = Text<'t>> + Clone,
    ) -> Result<Option<Text<'t>>, TooMuch> {
        let (place, refused) =
            self.call(|tables, grammar, place, _| tables.accept(grammar, place, tokens.clone()))?;
        self.place = place;
        self.stay_small();
        Ok(refused)
    }

    /// Keeps the current place for rollback. Returns false if the oldest kept place was dropped to
    /// make room.
    pub fn keep(&mut self) -> bool {
        let is_full = self.kept.len() >= MAX_ROLLBACK;
        if is_full {
            self.kept.pop_front();
        } else if self.kept.is_empty() {
            self.kept.reserve_exact(MAX_ROLLBACK + 1);
        }
        self.kept.push_back(self.place);
        !is_full
    }

    /// Returns the number of places that are kept.
    pub fn n_kept(&self) -> usize {
        self.kept.len()
    }

    /// Returns to the `n`th last kept place, and drops it and the places after it. Does nothing if
    /// fewer than `n` places are kept.
    pub fn back(&mut self, n: usize) {
        let Some(at) = self.kept.len().checked_sub(n) else {
            return;
        };
        if let Some(&place) = self.kept.get(at) {
            self.place = place;
        }
        self.kept.truncate(at);
    }

    /// True if a token may follow the text.
    pub fn allows(&mut self, token: Token) -> Result<bool, TooMuch> {
        self.call(|tables, grammar, place, _| tables.allows(grammar, place, token))
    }

    /// Returns the result of `look`, and restores the place.
    pub fn ahead<T>(&mut self, look: impl FnOnce(&mut Self) -> T) -> T {
        // The current place is added to the kept ones, which stay valid when the tables change.
        self.kept.push_back(self.place);
        let found = look(self);
        self.back(1);
        found
    }

    /// Returns the length of the longest prefix of a draft that is allowed, within the limit of one
    /// call. The current place does not change.
    pub fn accepted(&mut self, tokens: &[Token]) -> usize {
        let n = Cell::new(0);
        // A token that needs too much work ends the draft.
        let _ = self.call(|tables, grammar, mut place, _| {
            n.set(0);
            for &token in tokens {
                match grammar.tree.kind(token) {
                    Some(Kind::EndOfGeneration) if tables.states.may_end(place.state) => {}
                    None | Some(Kind::EndOfGeneration) => break,
                    Some(_) if !tables.allows(grammar, place, token)? => break,
                    Some(_) => {
                        let text = std::iter::once((token, grammar.tree.text(token)));
                        let (next, refused) = tables.accept(grammar, place, text)?;
                        if refused.is_some() {
                            break;
                        }
                        place = next;
                    }
                }
                n.set(n.get() + 1);
            }
            Ok(())
        });
        self.stay_small();
        n.get()
    }

    /// Returns the bytes that must follow, whichever tokens spell them: whole characters up to the
    /// next choice, within the limit of one call. No character begins after the first `most` bytes.
    pub fn forced(&mut self, most: usize) -> Vec<u8> {
        let all = RefCell::new(Vec::new());
        let _ = self.call(|tables, grammar, mut place, _| {
            let mut found = all.borrow_mut();
            found.clear();
            while found.len() < most
                && let Some(character) = only_character(&tables.states, grammar, place)
            {
                let mut room = [0; 4];
                let written = character.encode_utf8(&mut room).as_bytes();
                let missing = usize::try_from(place.partial.missing).unwrap_or(0);
                let begun = match missing {
                    0 => 0,
                    missing => written.len().saturating_sub(missing),
                };
                found.extend(written.iter().skip(begun));
                let group = grammar.group(character.into());
                place = Place {
                    state: tables.states.step(grammar, place.state, group)?,
                    partial: Partial::default(),
                };
            }
            Ok(())
        });
        all.into_inner()
    }

    /// True if the text may end at the current place.
    pub fn may_end(&self) -> bool {
        let tables = self.tables.as_ref().filter(|tables| !tables.is_changing);
        tables.is_some_and(|tables| tables.states.may_end(self.place.state))
    }

    /// Returns, for each token, true if it is allowed at the current place.
    pub fn test(
        &mut self,
        tokens: impl Iterator<Item = Token> + Clone,
    ) -> Result<Vec<bool>, TooMuch> {
        self.call(|tables, grammar, place, _| {
            let tokens = tokens.clone();
            tokens
                .map(|token| tables.allows(grammar, place, token))
                .collect()
        })
    }

    /// Returns the mask of the current place, if it is already known.
    pub fn known_mask(&mut self) -> Option<Arc<Mask>> {
        let key = self.key().ok()?;
        self.engine.masks().whole(key)?.ok()
    }

    fn key(&mut self) -> Result<MaskKey, TooMuch> {
        self.call(|tables, grammar, place, _| tables.key(grammar, place))
    }

    /// Returns the mask of the tokens that are allowed at the current place.
    pub fn mask(&mut self) -> Result<Arc<Mask>, TooMuch> {
        let key = self.key()?;
        if let Some(known) = self.engine.masks().whole(key) {
            return known;
        }
        let made = self.call(|tables, grammar, place, known| tables.mask(grammar, place, known));
        let mask = made.map(Arc::new);
        self.engine.masks().keep(key, &mask);
        self.stay_small();
        mask
    }

    /// Returns a description of what may come next.
    pub fn expected(&self) -> String {
        let Some(tables) = self.tables.as_ref().filter(|tables| !tables.is_changing) else {
            return String::new();
        };
        let grammar = self.engine.compiled();
        let state = self.place.state;
        let mut words: Vec<String> = Vec::new();
        for edge in tables.states.edges(state) {
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
        if tables.states.may_end(state) {
            words.push("the end".into());
        }
        words.join(", ")
    }
}

/// Moves kept places to other tables, the newest first, as long as their states fit. The older ones
/// are dropped.
fn take_over(kept: &mut VecDeque<Place>, to: &mut Tables, from: &Tables, engine: &Engine) {
    let before = to.states.bytes();
    let mut n_moved = 0;
    for place in kept.iter_mut().rev() {
        to.states.begin_with(engine.budget().fresh());
        let moved = to
            .states
            .import(engine.compiled(), &from.states, place.state);
        let Ok(state) = moved else {
            break;
        };
        // The newest is always moved, since a look-ahead returns to it.
        if n_moved > 0 && to.states.bytes() - before > MAX_KEPT_BYTES {
            break;
        }
        place.state = state;
        n_moved += 1;
    }
    kept.drain(..kept.len() - n_moved);
}

/// Returns the character that must come next; `None` if another character, a token matched by
/// number, or the end may come next.
fn only_character(states: &States, grammar: &Compiled, place: Place) -> Option<char> {
    let Place { state, partial } = place;
    if states.may_end(state) {
        return None;
    }
    let missing = u8::try_from(partial.missing).unwrap_or(0);
    let bits = 6 * u32::from(missing.min(3));
    let within = match missing {
        // No text contains NUL.
        0 => (1, LAST),
        _ => (
            partial.bits << bits,
            partial.bits << bits | ((1 << bits) - 1),
        ),
    };
    let mut only = None;
    for edge in states.edges(state) {
        let class = grammar.class(grammar.first(edge.sequence)?.item)?;
        if missing > 0 && !class.may_have(partial.bits, missing) {
            continue;
        }
        if let Some(one) = class.only(within)? {
            if only.is_some_and(|only| only != one) {
                return None;
            }
            only = Some(one);
        }
    }
    char::from_u32(only?)
}

/// The largest number that llama.cpp decodes from four bytes.
const LAST: u32 = 0x3F_FFFF;

/// The maximum number of alternatives that a message lists.
const MOST_WORDS: usize = 6;

fn describe(grammar: &Compiled, item: Element) -> String {
    match item {
        Element::Class(_) => grammar.class(item).map(describe_class).unwrap_or_default(),
        Element::Token(token) => format!("<[{token}]>"),
        Element::TokenNot(token) => format!("!<[{token}]>"),
        Element::Rule(_)
        | Element::Repeat(_)
        | Element::Unordered(_)
        | Element::Occurred(_)
        | Element::Alternative => String::new(),
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
