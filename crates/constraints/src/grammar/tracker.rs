//! Follows one text through a grammar: its position, and what may come next.
//!
//! The tables that this takes belong to one text at a time, so that nobody waits for another one;
//! when it is done, the next text of the grammar goes on with them. Masks are kept in the
//! [engine](Engine), for all.

use std::sync::Arc;

use crate::grammar::bench::{Bench, Place, Text};
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Class, Element};
use crate::grammar::engine::Engine;
use crate::grammar::mask::{self, Mask};
use crate::grammar::masks::{MaskKey, Masks};
use crate::grammar::states::{NONE, TooMuch};
use crate::grammar::utf8::Partial;
use crate::token::Token;

/// A text's position in a grammar.
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
    /// Returns a tracker at the same place of the same text.
    fn clone(&self) -> Self {
        let grammar = self.engine.compiled();
        let mut bench = self.engine.bench();
        let mut place = self.place;
        match &self.bench {
            Some(own) if !own.is_changing => {
                bench.states.forget_imports();
                bench.states.begin_with(self.engine.budget().fresh());
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
    /// Makes a tracker at the beginning of a text. `None` where no text can follow the grammar.
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
        body: impl Fn(&mut Bench, &Compiled, Place, Option<&Masks>) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        let bench = self.bench.as_mut().filter(|bench| !bench.is_changing);
        let bench = bench.ok_or(TooMuch)?;
        let grammar = self.engine.compiled();
        bench.is_changing = true;
        bench.states.begin_with(self.engine.budget());
        let mut result = body(bench, grammar, self.place, Some(self.engine.masks()));
        let is_undecided = result.is_err() && bench.states.budget.may_be_enough();
        bench.is_changing = false;
        let mut moved = None;
        if is_undecided {
            // With empty tables it may be enough, and what they say counts.
            let mut fresh = Bench::new(grammar);
            fresh.states.begin_with(self.engine.budget().fresh());
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
        fresh.states.begin_with(self.engine.budget().fresh());
        if let Ok(state) = fresh
            .states
            .import(grammar, &bench.states, self.place.state)
        {
            fresh.has_place_alone();
            *bench = fresh;
            self.place.state = state;
        }
    }

    fn stay_small(&mut self) {
        if self.bench.as_ref().is_some_and(Bench::is_large) {
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

    /// Goes on with tokens in one call: however many they are, it may do what it may do for one.
    /// Gives the first that the grammar does not allow, if there is one; then the place is that
    /// before it.
    pub fn accept<'t>(
        &mut self,
        tokens: impl Iterator<Item = Text<'t>> + Clone,
    ) -> Result<Option<Text<'t>>, TooMuch> {
        let (place, refused) =
            self.call(|bench, grammar, place, _| bench.accept(grammar, place, tokens.clone()))?;
        self.place = place;
        self.stay_small();
        Ok(refused)
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

    /// Returns the tokens that are allowed here, if they are known already.
    pub fn known_mask(&mut self) -> Option<Arc<Mask>> {
        let key = self.key().ok()?;
        self.engine.masks().whole(key)?.ok()
    }

    fn key(&mut self) -> Result<MaskKey, TooMuch> {
        self.call(|bench, grammar, place, _| bench.key(grammar, place))
    }

    /// The tokens that are allowed here.
    pub fn mask(&mut self) -> Result<Arc<Mask>, TooMuch> {
        let key = self.key()?;
        if let Some(known) = self.engine.masks().whole(key) {
            return known;
        }
        let made = self.call(|bench, grammar, place, known| bench.mask(grammar, place, known));
        let mask = made.map(Arc::new);
        self.engine.masks().keep(key, &mask);
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
