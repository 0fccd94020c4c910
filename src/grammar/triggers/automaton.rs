//! All patterns at once over a text that grows: in which of them there can be a match by now.
//!
//! It is a deterministic automaton over bytes, made state by state as texts ask for it and shared
//! by all samplers with the same patterns. A sampler keeps its state between tokens, so that a
//! token costs its bytes. What is kept is bounded: beyond it all states are dropped, and each
//! sampler brings its own back in.
//!
//! It is exact but for look-aheads, which it takes for fulfilled, and back references, which it
//! takes for any text: there it says *maybe*.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of states and addresses are positions in the tables that gave them"
)]

use std::collections::HashMap;
use std::sync::Arc;

use crate::grammar::limits::MAX_TRIGGER_TABLES;
use crate::grammar::triggers::byte_set::is_word;
use crate::grammar::triggers::program::{Address, Inst, Program};

/// A transition that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// What stands before a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Left {
    /// Nothing.
    Begin,
    /// Part of a word.
    Word,
    /// Something else, or it does not matter.
    Other,
}

/// What stands behind a place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// That is not known yet.
    Unknown,
    /// Nothing.
    End,
    /// Part of a word.
    Word,
    /// Something else.
    Other,
}

/// A state.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Shape {
    left: Left,
    /// Whether some of `items` wait for what follows.
    waits: bool,
    /// Instructions that take a byte, and those that wait; ascending.
    items: Box<[Address]>,
    /// Patterns that match up to here, or did up to the byte before; ascending.
    hits: Box<[u32]>,
}

/// Where a text stands.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    shape: Option<Arc<Shape>>,
    state: u32,
    generation: u64,
}

/// The states so far.
#[derive(Debug)]
pub struct Automaton {
    /// The class of each byte, and one byte of each class.
    class_of: [u8; 256],
    one_of: Vec<u8>,
    /// Whether some pattern asks for the borders of words.
    has_words: bool,
    states: HashMap<Arc<Shape>, u32>,
    shapes: Vec<Arc<Shape>>,
    /// A row of classes per state.
    transitions: Vec<u32>,
    /// Per state: what would match if the text ended, once it was asked.
    at_end: Vec<Option<Arc<[u32]>>>,
    bytes: usize,
    /// How often the states were dropped.
    generation: u64,
    scratch: Scratch,
}

#[derive(Debug, Default)]
struct Scratch {
    /// By address: the number of the closure that has seen it.
    seen: Vec<u32>,
    number: u32,
    open: Vec<Address>,
    items: Vec<Address>,
    hits: Vec<u32>,
}

impl Automaton {
    /// Without states.
    pub fn new(program: &Program) -> Self {
        let has_words = program
            .code
            .iter()
            .any(|inst| matches!(inst, Inst::Word { .. }));
        let (class_of, one_of) = classes(program, has_words);
        Self {
            class_of,
            one_of,
            has_words,
            states: HashMap::new(),
            shapes: Vec::new(),
            transitions: Vec::new(),
            at_end: Vec::new(),
            bytes: 0,
            generation: 0,
            scratch: Scratch::default(),
        }
    }

    /// Bytes that it occupies.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes on with `text`. Adds to `hits` which patterns can have matched somewhere, and gives
    /// those that can match where the text ends now.
    pub fn read(
        &mut self,
        program: &Program,
        cursor: &mut Cursor,
        text: &[u8],
        hits: &mut Vec<u32>,
    ) -> Arc<[u32]> {
        let mut state = self.state_of(program, cursor);
        hits.extend(&self.shapes[state as usize].hits);
        for &byte in text {
            let class = self.class_of[usize::from(byte)];
            let place = state as usize * self.one_of.len() + usize::from(class);
            state = match self.transitions[place] {
                UNKNOWN => self.transition(program, state, class),
                known => known,
            };
            let found = &self.shapes[state as usize].hits;
            if !found.is_empty() {
                hits.extend(found);
            }
        }
        let at_end = self.hits_at_end(program, state);
        if cursor.state != state || cursor.generation != self.generation {
            *cursor = Cursor {
                shape: Some(Arc::clone(&self.shapes[state as usize])),
                state,
                generation: self.generation,
            };
        }
        at_end
    }

    fn state_of(&mut self, program: &Program, cursor: &mut Cursor) -> u32 {
        match &cursor.shape {
            Some(_) if cursor.generation == self.generation => cursor.state,
            Some(shape) => self.known(Arc::clone(shape)),
            None => {
                self.begin_closure(program);
                self.close_beginnings(program, Left::Begin);
                let state = self.finish(program, Left::Begin);
                // It differs from what a new cursor says.
                cursor.generation = u64::MAX;
                state
            }
        }
    }

    fn begin_closure(&mut self, program: &Program) {
        let scratch = &mut self.scratch;
        scratch.seen.resize(program.code.len(), 0);
        scratch.items.clear();
        scratch.hits.clear();
        scratch.next_number();
    }

    fn close_beginnings(&mut self, program: &Program, left: Left) {
        for pattern in &program.patterns {
            let entry = pattern.entry;
            self.scratch.close(program, entry, left, Right::Unknown);
        }
    }

    /// The state of what a closure has found.
    fn finish(&mut self, program: &Program, left: Left) -> u32 {
        let scratch = &mut self.scratch;
        scratch.items.sort_unstable();
        scratch.hits.sort_unstable();
        scratch.hits.dedup();
        let waits = |&item: &Address| {
            let inst = program.code[item as usize];
            matches!(inst, Inst::End { .. } | Inst::Word { .. })
        };
        let waits = scratch.items.iter().any(waits);
        let shape = Shape {
            left: if waits { left } else { Left::Other },
            waits,
            items: scratch.items.as_slice().into(),
            hits: scratch.hits.as_slice().into(),
        };
        self.known(Arc::new(shape))
    }

    /// The number of a state; it gets one if it has none.
    fn known(&mut self, shape: Arc<Shape>) -> u32 {
        if let Some(&state) = self.states.get(&shape) {
            return state;
        }
        let bytes = 4 * (shape.items.len() + shape.hits.len() + self.one_of.len())
            + size_of::<Shape>()
            + 64;
        if self.bytes + bytes > MAX_TRIGGER_TABLES && !self.shapes.is_empty() {
            self.states.clear();
            self.shapes.clear();
            self.transitions.clear();
            self.at_end.clear();
            self.bytes = 0;
            self.generation += 1;
        }
        self.bytes += bytes;
        let state = self.shapes.len() as u32;
        self.shapes.push(Arc::clone(&shape));
        self.transitions
            .resize(self.transitions.len() + self.one_of.len(), UNKNOWN);
        self.at_end.push(None);
        self.states.insert(shape, state);
        state
    }

    fn transition(&mut self, program: &Program, state: u32, class: u8) -> u32 {
        let shape = Arc::clone(&self.shapes[state as usize]);
        let byte = self.one_of[usize::from(class)];
        let (right, left) = match self.has_words && is_word(byte) {
            true => (Right::Word, Left::Word),
            false => (Right::Other, Left::Other),
        };
        let items = match shape.waits {
            true => self.resolved(program, &shape, right),
            false => Vec::new(),
        };
        let hits = match shape.waits {
            true => std::mem::take(&mut self.scratch.hits),
            false => Vec::new(),
        };
        let items = if shape.waits { &items } else { &*shape.items };
        self.begin_closure(program);
        self.scratch.hits.extend(hits);
        for &item in items {
            let takes = |set: u32| program.sets[set as usize].has(byte);
            let next = match program.code[item as usize] {
                Inst::Byte { set, next } if takes(set) => next,
                Inst::Run { set, .. } if takes(set) => item,
                Inst::Backreference { .. } => item,
                _ => continue,
            };
            self.scratch.close(program, next, left, Right::Unknown);
        }
        self.close_beginnings(program, left);
        let generation = self.generation;
        let next = self.finish(program, left);
        if self.generation == generation {
            let place = state as usize * self.one_of.len() + usize::from(class);
            self.transitions[place] = next;
        }
        next
    }

    /// The items of a state once it is known what follows; what matches thereby is in the scratch.
    fn resolved(&mut self, program: &Program, shape: &Shape, right: Right) -> Vec<Address> {
        self.begin_closure(program);
        for &item in &shape.items {
            self.scratch.close(program, item, shape.left, right);
        }
        std::mem::take(&mut self.scratch.items)
    }

    fn hits_at_end(&mut self, program: &Program, state: u32) -> Arc<[u32]> {
        if let Some(known) = &self.at_end[state as usize] {
            return Arc::clone(known);
        }
        let shape = Arc::clone(&self.shapes[state as usize]);
        self.scratch.hits.clear();
        if shape.waits {
            self.resolved(program, &shape, Right::End);
        }
        let hits = &mut self.scratch.hits;
        hits.sort_unstable();
        hits.dedup();
        let hits: Arc<[u32]> = hits.as_slice().into();
        self.at_end[state as usize] = Some(Arc::clone(&hits));
        hits
    }
}

impl Scratch {
    fn next_number(&mut self) {
        self.number = self.number.wrapping_add(1);
        if self.number == 0 {
            self.seen.fill(0);
            self.number = 1;
        }
    }

    /// Adds what can be reached from an instruction without a byte.
    fn close(&mut self, program: &Program, from: Address, left: Left, right: Right) {
        self.open.push(from);
        while let Some(address) = self.open.pop() {
            if std::mem::replace(&mut self.seen[address as usize], self.number) == self.number {
                continue;
            }
            match program.code[address as usize] {
                Inst::Byte { .. } => self.items.push(address),
                Inst::Run { exit: next, .. } | Inst::Backreference { next, .. } => {
                    self.items.push(address);
                    self.open.push(next);
                }
                Inst::Split { first, second } => self.open.extend([first, second]),
                Inst::Repeat { body, exit, .. } => self.open.extend([body, exit]),
                Inst::Open { next, .. } | Inst::Close { next, .. } | Inst::Look { next, .. } => {
                    self.open.push(next);
                }
                Inst::Begin { next } if left == Left::Begin => self.open.push(next),
                Inst::Begin { .. } => {}
                Inst::End { .. } | Inst::Word { .. } if right == Right::Unknown => {
                    self.items.push(address);
                }
                Inst::End { next } if right == Right::End => self.open.push(next),
                Inst::End { .. } => {}
                Inst::Word { negated, next } => {
                    let is_border = (left == Left::Word) != (right == Right::Word);
                    if is_border != negated {
                        self.open.push(next);
                    }
                }
                Inst::Accept { pattern } => self.hits.push(pattern),
            }
        }
    }
}

/// Bytes that no set tells apart are in one class.
fn classes(program: &Program, has_words: bool) -> ([u8; 256], Vec<u8>) {
    let mut class_of = [0_u8; 256];
    let mut n_classes = 1_usize;
    let mut split = |has: &dyn Fn(u8) -> bool| {
        // The class that the members of each class go to.
        let mut to = [None; 256];
        let mut stays = [false; 256];
        for byte in 0..=u8::MAX {
            stays[usize::from(class_of[usize::from(byte)])] |= !has(byte);
        }
        for byte in (0..=u8::MAX).filter(|&byte| has(byte)) {
            let class = usize::from(class_of[usize::from(byte)]);
            if !stays[class] {
                continue;
            }
            let new = to[class].unwrap_or_else(|| {
                n_classes += 1;
                (n_classes - 1) as u8
            });
            to[class] = Some(new);
            class_of[usize::from(byte)] = new;
        }
        n_classes < 256
    };
    let sets = program.sets.iter();
    if (!has_words || split(&is_word)) && !program.sets.is_empty() {
        for set in sets {
            if !split(&|byte| set.has(byte)) {
                break;
            }
        }
    }
    let mut one_of = vec![0; n_classes];
    for byte in 0..=u8::MAX {
        one_of[usize::from(class_of[usize::from(byte)])] = byte;
    }
    (class_of, one_of)
}
