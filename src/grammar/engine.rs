//! A compiled grammar with all that was found out about it so far, shared by its samplers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{Class, Element};
use crate::grammar::hash::Map;
use crate::grammar::limits::MAX_ENGINE_BYTES;
use crate::grammar::mask::{self, Mask};
use crate::grammar::states::{NONE, StateId, States, TooMuch};
use crate::grammar::utf8::{Partial, decode};
use crate::sync::Mutex;
use crate::token::Token;

/// Where a text stands in a grammar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The state behind the characters that are complete. It belongs to one engine.
    pub state: StateId,
    /// What the last token left of a character.
    pub partial: Partial,
}

/// What grows while texts are written.
#[derive(Debug, Default)]
struct Tables {
    states: States,
    masks: Map<Place, Arc<Mask>>,
    initial: Option<StateId>,
    chars: Vec<u32>,
    /// Set while the tables change. Found set, a change was cut short, and they are not to be
    /// believed.
    is_changing: bool,
}

/// A compiled grammar with its tables.
#[derive(Debug)]
pub struct Engine {
    compiled: Arc<Compiled>,
    tables: Mutex<Tables>,
    /// Bytes of `compiled`.
    fixed_bytes: usize,
    /// Bytes of the tables.
    bytes: AtomicUsize,
    /// Bytes that the tables had from the beginning.
    initial_bytes: usize,
}

impl Engine {
    /// Without tables.
    pub fn new(compiled: Arc<Compiled>) -> Self {
        Self::with_tables(compiled, Tables::default())
    }

    fn with_tables(compiled: Arc<Compiled>, tables: Tables) -> Self {
        let initial_bytes = tables.states.bytes();
        Self {
            fixed_bytes: compiled.bytes(),
            compiled,
            tables: Mutex::new(tables),
            bytes: AtomicUsize::new(initial_bytes),
            initial_bytes,
        }
    }

    /// Whether its tables can be believed: false once an internal error has cut a change short.
    pub fn is_sound(&self) -> bool {
        !self.tables.lock().is_changing
    }

    /// The grammar.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Bytes that it occupies, the vocabulary not counted.
    pub fn bytes(&self) -> usize {
        self.fixed_bytes + self.bytes.load(Ordering::Relaxed)
    }

    /// Whether it has grown so much that another one should take its place. What it began with does
    /// not count: another one would have it, too.
    pub fn is_full(&self) -> bool {
        let bytes = self.bytes.load(Ordering::Relaxed);
        bytes > self.initial_bytes + MAX_ENGINE_BYTES
    }

    fn with<T>(
        &self,
        body: impl FnOnce(&mut Tables, &Compiled) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        let mut tables = self.tables.lock();
        if tables.is_changing {
            return Err(TooMuch);
        }
        tables.is_changing = true;
        tables.states.begin_call();
        let result = body(&mut tables, &self.compiled);
        // A step that was given up leaves nothing half done.
        tables.is_changing = false;
        let masks: usize = tables.masks.len() * self.compiled.tree.n_tokens().div_ceil(8);
        let bytes = tables.states.bytes() + masks;
        self.bytes.store(bytes, Ordering::Relaxed);
        result
    }

    /// Where a text begins.
    pub fn initial(&self) -> Result<Place, TooMuch> {
        self.with(|tables, grammar| {
            let state = match tables.initial {
                Some(state) => state,
                None => tables.states.initial(grammar)?,
            };
            tables.initial = Some(state);
            Ok(Place {
                state,
                partial: Partial::default(),
            })
        })
    }

    /// Where a text stands behind a token, or behind the bytes `text` that are part of one.
    pub fn accept(&self, place: Place, token: Token, text: &[u8]) -> Result<Place, TooMuch> {
        self.with(|tables, grammar| {
            let mut chars = std::mem::take(&mut tables.chars);
            let partial = decode(text, place.partial, &mut chars);
            let state = tables.states.accept(grammar, place.state, token, &chars);
            tables.chars = chars;
            Ok(Place {
                state: state?,
                partial,
            })
        })
    }

    /// Whether a text may end here.
    pub fn may_end(&self, place: Place) -> bool {
        self.with(|tables, _| Ok(tables.states.may_end(place.state))) == Ok(true)
    }

    /// Calls `each` with a test that says of a token whether it is allowed here.
    pub fn test<T>(
        &self,
        place: Place,
        each: impl FnOnce(&mut dyn FnMut(Token) -> Result<bool, TooMuch>) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        self.with(|tables, grammar| {
            let mut chars = std::mem::take(&mut tables.chars);
            let states = &mut tables.states;
            let (state, partial) = (place.state, place.partial);
            let result =
                each(&mut |token| mask::allows(states, grammar, state, partial, token, &mut chars));
            tables.chars = chars;
            result
        })
    }

    /// The mask of a place, if it is known.
    pub fn known_mask(&self, place: Place) -> Option<Arc<Mask>> {
        let found = self.with(|tables, _| Ok(tables.masks.get(&canonical(place)).cloned()));
        found.ok().flatten()
    }

    /// The tokens that are allowed here.
    pub fn mask(&self, place: Place) -> Result<Arc<Mask>, TooMuch> {
        let place = canonical(place);
        self.with(|tables, grammar| {
            if let Some(mask) = tables.masks.get(&place) {
                return Ok(Arc::clone(mask));
            }
            let mask = mask::mask(&mut tables.states, grammar, place.state, place.partial)?;
            let mask = Arc::new(mask);
            tables.masks.insert(place, Arc::clone(&mask));
            Ok(mask)
        })
    }

    /// An engine of the same grammar that knows only where `place` is, and where that is in it.
    pub fn renewed(&self, place: Place) -> (Self, Place) {
        let mut fresh = Tables::default();
        let moved = self.with(|tables, _| Ok(fresh.states.import(&tables.states, place.state)));
        let state = moved.unwrap_or(NONE);
        let engine = Self::with_tables(Arc::clone(&self.compiled), fresh);
        (engine, Place { state, ..place })
    }

    /// The most stacks that any text, whole or a token's part, has left so far.
    pub fn most_stacks(&self) -> u64 {
        let count = self.with(|tables, _| Ok(tables.states.most_stacks()));
        count.unwrap_or(u64::MAX)
    }

    /// What may come next, in words.
    pub fn expected(&self, place: Place) -> String {
        let words = self.with(|tables, grammar| {
            let edges = tables.states.edges(place.state).iter();
            let firsts = edges.filter_map(|edge| grammar.first(edge.sequence));
            let mut words: Vec<String> = Vec::new();
            for first in firsts {
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
            if tables.states.may_end(place.state) {
                words.push("the end".into());
            }
            Ok(words)
        });
        words.unwrap_or_default().join(", ")
    }
}

/// The most alternatives that a message lists.
const MOST_WORDS: usize = 6;

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

fn describe(grammar: &Compiled, item: Element) -> String {
    match item {
        Element::Class(_) => grammar.class(item).map(describe_class).unwrap_or_default(),
        Element::Token(token) => format!("<[{token}]>"),
        Element::TokenNot(token) => format!("!<[{token}]>"),
        Element::Rule(_) | Element::Alternative => String::new(),
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
