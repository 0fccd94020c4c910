//! Runs all patterns at the same time over a growing text, to find those that may have matched.
//!
//! The patterns form a lazy DFA over bytes, which all samplers with the same patterns share. Its
//! states are made when a text needs them. A sampler keeps its state between tokens, so a token
//! costs one step per byte. The tables are bounded: when they are full, all states are dropped, and
//! each sampler adds its current state again.
//!
//! A state is made without holding a lock, so that other threads can go on with known states. Each
//! transition counts as many steps as making it took, even if it is known, so that earlier queries
//! do not matter.
//!
//! The automaton assumes that every look-ahead succeeds, and that a back reference matches any
//! text. For patterns with look-aheads or back references, it may report a match that does not
//! exist. For all other patterns its result is exact.

// In bounds: numbers of states and addresses are positions in the tables that gave them.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use llama_sieve_kernels::random::{HashMap, ProcessState};
use llama_sieve_kernels::sync::Mutex;

use crate::grammar::limits::{MAX_TRIGGER_TABLES, MIN_TRIGGER_TABLES, TRIGGER_TABLES_PER_STATE};
use crate::grammar::triggers::budget::{Budget, Endless};
use crate::grammar::triggers::byte_set::is_word;
use crate::grammar::triggers::program::{Address, Inst, Program};

/// Marks an unknown transition.
const UNKNOWN: u32 = u32::MAX;
/// The maximum number of bytes of a text that are read before the lock is released for other
/// threads.
const AT_ONCE: usize = 1 << 12;
/// The number of instructions that count as one step.
const PER_STEP: usize = 2;
/// The assumed overhead of an allocation in bytes.
const ALLOCATION: usize = 16;

/// The kind of the byte before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Left {
    /// There is no byte.
    Begin,
    /// A byte that is part of a word.
    Word,
    /// Another byte, or any byte if no pattern tests word boundaries. Also stored for a state that
    /// does not depend on the next byte, so that such states are equal.
    Other,
}

/// The kind of the byte after a position.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Right {
    /// The byte is not known yet.
    Unknown,
    /// There is no byte.
    End,
    /// A byte that is part of a word.
    Word,
    /// Another byte.
    Other,
}

/// The content of a state. Equal contents are interned as one state.
#[derive(Debug, PartialEq, Eq)]
struct Shape {
    /// The hash of the other fields.
    hash: u64,
    left: Left,
    /// True if some of `items` depend on the next byte.
    waits: bool,
    /// The instructions that match a byte, and those that depend on the next byte, ascending.
    items: Box<[Address]>,
    /// The patterns that match up to this position, or matched up to the previous byte, ascending.
    hits: Box<[u32]>,
}

impl Hash for Shape {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The position of a text in the automaton.
#[derive(Clone, Debug, Default)]
pub struct Cursor(Option<Place>);

/// A state, with its index, which is valid while the tables have this generation.
#[derive(Clone, Debug)]
struct Place {
    shape: Arc<Shape>,
    state: u32,
    generation: u64,
}

/// The patterns that may have matched.
#[derive(Debug, Default)]
pub struct Hits {
    /// The patterns that match somewhere in the text, perhaps with duplicates.
    pub somewhere: Vec<u32>,
    /// The patterns that match up to the current end of the text.
    pub at_end: Vec<u32>,
}

/// All patterns as one automaton.
#[derive(Debug)]
pub struct Automaton {
    /// The class of each byte. `one_of` has one byte of each class.
    class_of: [u8; 256],
    one_of: Vec<u8>,
    /// True if a pattern tests word boundaries.
    has_words: bool,
    /// The state in which every text begins.
    start: Arc<Shape>,
    hasher: ProcessState,
    most_bytes: usize,
    tables: Mutex<Tables>,
}

/// The states that were made so far.
#[derive(Debug, Default)]
struct Tables {
    numbers: HashMap<Arc<Shape>, u32>,
    states: Vec<State>,
    bytes: usize,
    /// The number of times that the states were dropped.
    generation: u64,
}

#[derive(Debug)]
struct State {
    shape: Arc<Shape>,
    /// The transitions, by the class of the byte.
    edges: Box<[Edge]>,
    at_end: Option<Arc<AtEnd>>,
}

/// A transition: the next state, and the number of steps to find it.
#[derive(Clone, Copy, Debug)]
struct Edge {
    next: u32,
    steps: u32,
}

/// The patterns that match if the text ends in a state, and the number of steps to find them.
#[derive(Debug)]
struct AtEnd {
    hits: Box<[u32]>,
    steps: usize,
}

/// The tables of a past generation, to be freed after the lock is released.
type Dropped = (HashMap<Arc<Shape>, u32>, Vec<State>);

#[derive(Debug, Default)]
struct Scratch {
    /// For each address, the number of the last closure that visited it.
    seen: Vec<u32>,
    number: u32,
    open: Vec<Address>,
    items: Vec<Address>,
    hits: Vec<u32>,
    /// The number of instructions that the current closure has visited.
    n_looks: usize,
}

impl Automaton {
    /// Returns an automaton that has no states yet.
    pub fn new(program: &Program) -> Self {
        let has_words = program
            .code
            .iter()
            .any(|inst| matches!(inst, Inst::Word { .. }));
        let (class_of, one_of) = classes(program, has_words);
        let hasher = ProcessState::default();
        let mut scratch = Scratch::default();
        scratch.begin(program);
        scratch.close_beginnings(program, Left::Begin);
        let start = Arc::new(scratch.finish(program, Left::Begin, &hasher));
        Self {
            class_of,
            one_of,
            has_words,
            start,
            hasher,
            most_bytes: (MIN_TRIGGER_TABLES + TRIGGER_TABLES_PER_STATE * program.code.len())
                .min(MAX_TRIGGER_TABLES),
            tables: Mutex::new(Tables::default()),
        }
    }

    /// Returns the size of the states in bytes.
    pub fn bytes(&self) -> usize {
        self.tables.lock().bytes
    }

    /// Returns the maximum size of the states in bytes.
    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// Continues with `text`. Adds to `hits` the patterns that may have matched.
    pub fn read(
        &self,
        program: &Program,
        cursor: &mut Cursor,
        text: &[u8],
        hits: &mut Hits,
        budget: &mut Budget,
    ) -> Result<(), Endless> {
        let mut place = match cursor.0.take() {
            Some(place) => place,
            None => {
                budget.take(self.start.hits.len())?;
                hits.somewhere.extend(&self.start.hits);
                Place {
                    shape: Arc::clone(&self.start),
                    state: UNKNOWN,
                    generation: u64::MAX,
                }
            }
        };
        let mut scratch = Scratch::default();
        let mut passed = Vec::new();
        let mut rest = text;
        while let Some(&byte) = rest.first() {
            let most = &rest[..rest.len().min(AT_ONCE)];
            let n = self.follow(&mut place, most, &mut passed, budget)?;
            for shape in passed.drain(..) {
                hits.somewhere.extend(&shape.hits);
            }
            if n == 0 {
                let class = self.class_of[usize::from(byte)];
                let (shape, steps) = self.next(program, &place.shape, class, &mut scratch);
                budget.take(steps)?;
                hits.somewhere.extend(&shape.hits);
                self.link(&mut place, class, shape, steps);
            }
            rest = &rest[n.max(1)..];
        }
        self.end(program, &place, &mut scratch, hits, budget)?;
        cursor.0 = Some(place);
        Ok(())
    }

    /// Takes known transitions. Adds the states with hits to `passed`, and returns the number of
    /// bytes read.
    fn follow(
        &self,
        place: &mut Place,
        text: &[u8],
        passed: &mut Vec<Arc<Shape>>,
        budget: &mut Budget,
    ) -> Result<usize, Endless> {
        let tables = self.tables.lock();
        let Some(mut state) = tables.number(place) else {
            return Ok(0);
        };
        let mut n = 0;
        for &byte in text {
            let class = self.class_of[usize::from(byte)];
            let edge = tables.states[state as usize].edges[usize::from(class)];
            if edge.next == UNKNOWN {
                break;
            }
            budget.take(edge.steps as usize)?;
            state = edge.next;
            let shape = &tables.states[state as usize].shape;
            if !shape.hits.is_empty() {
                passed.push(Arc::clone(shape));
            }
            n += 1;
        }
        if place.state != state || place.generation != tables.generation {
            *place = tables.place(state);
        }
        Ok(n)
    }

    /// Returns the state after a byte of a class, and the number of steps to find it.
    fn next(
        &self,
        program: &Program,
        shape: &Shape,
        class: u8,
        scratch: &mut Scratch,
    ) -> (Shape, usize) {
        let byte = self.one_of[usize::from(class)];
        let (right, left) = match self.has_words && is_word(byte) {
            true => (Right::Word, Left::Word),
            false => (Right::Other, Left::Other),
        };
        scratch.n_looks = 0;
        let (resolved, hits);
        let items = match shape.waits {
            true => {
                (resolved, hits) = scratch.resolved(program, shape, right);
                &*resolved
            }
            false => {
                hits = Vec::new();
                &*shape.items
            }
        };
        scratch.begin(program);
        scratch.hits = hits;
        scratch.n_looks += PER_STEP + items.len();
        for &item in items {
            let takes = |set: u32| program.sets[set as usize].has(byte);
            let next = match program.code[item as usize] {
                Inst::Byte { set, next } if takes(set) => next,
                Inst::Run { set, .. } if takes(set) => item,
                Inst::Backreference { .. } => item,
                _ => continue,
            };
            scratch.close(program, next, left, Right::Unknown);
        }
        scratch.close_beginnings(program, left);
        let shape = scratch.finish(program, left, &self.hasher);
        let steps = scratch.n_looks / PER_STEP + shape.hits.len();
        (shape, steps)
    }

    /// Moves the place to another state, and stores the transition to that state.
    fn link(&self, place: &mut Place, class: u8, shape: Shape, steps: usize) {
        let shape = Arc::new(shape);
        let mut dropped = Vec::new();
        let mut tables = self.tables.lock();
        let from = self.known(&mut tables, &place.shape, &mut dropped);
        let generation = tables.generation;
        let next = self.known(&mut tables, &shape, &mut dropped);
        if tables.generation == generation {
            let steps = u32::try_from(steps).unwrap_or(u32::MAX);
            tables.states[from as usize].edges[usize::from(class)] = Edge { next, steps };
        }
        *place = tables.place(next);
        // Released before the dropped tables are freed, so that other threads need not wait for
        // that.
        drop(tables);
        drop(dropped);
    }

    /// Interns a state and returns its index.
    fn known(&self, tables: &mut Tables, shape: &Arc<Shape>, dropped: &mut Vec<Dropped>) -> u32 {
        if let Some(&state) = tables.numbers.get(shape) {
            return state;
        }
        let bytes = 4 * (shape.items.len() + shape.hits.len())
            + size_of::<Edge>() * self.one_of.len()
            + size_of::<Shape>()
            // Vectors and hash tables have up to twice the capacity that they need.
            + 2 * (size_of::<State>() + size_of::<(Arc<Shape>, u32)>())
            + 5 * ALLOCATION;
        if tables.bytes + bytes > self.most_bytes && !tables.states.is_empty() {
            let states = std::mem::take(&mut tables.states);
            dropped.push((std::mem::take(&mut tables.numbers), states));
            tables.bytes = 0;
            tables.generation += 1;
        }
        tables.bytes += bytes;
        let state = tables.states.len() as u32;
        let unknown = Edge {
            next: UNKNOWN,
            steps: 0,
        };
        tables.states.push(State {
            shape: Arc::clone(shape),
            edges: vec![unknown; self.one_of.len()].into(),
            at_end: None,
        });
        tables.numbers.insert(Arc::clone(shape), state);
        state
    }

    /// Adds the patterns that match if the text ends at `place`.
    fn end(
        &self,
        program: &Program,
        place: &Place,
        scratch: &mut Scratch,
        hits: &mut Hits,
        budget: &mut Budget,
    ) -> Result<(), Endless> {
        if !place.shape.waits {
            return Ok(());
        }
        let known = {
            let tables = self.tables.lock();
            let state = tables.number(place);
            state.and_then(|state| tables.states[state as usize].at_end.clone())
        };
        let at_end = known.unwrap_or_else(|| {
            scratch.n_looks = 0;
            let (_, mut hits) = scratch.resolved(program, &place.shape, Right::End);
            hits.sort_unstable();
            hits.dedup();
            let at_end = Arc::new(AtEnd {
                steps: 1 + scratch.n_looks / PER_STEP + hits.len(),
                hits: hits.into(),
            });
            self.keep_end(place, &at_end);
            at_end
        });
        budget.take(at_end.steps)?;
        hits.at_end.extend(&at_end.hits);
        Ok(())
    }

    /// Stores the patterns that match at the end of the text for other samplers, if the bound on
    /// the tables permits.
    fn keep_end(&self, place: &Place, at_end: &Arc<AtEnd>) {
        let bytes = size_of::<AtEnd>() + 4 * at_end.hits.len() + 2 * ALLOCATION;
        let mut tables = self.tables.lock();
        if let Some(state) = tables.number(place)
            && tables.states[state as usize].at_end.is_none()
            && tables.bytes + bytes <= self.most_bytes
        {
            tables.bytes += bytes;
            tables.states[state as usize].at_end = Some(Arc::clone(at_end));
        }
    }
}

impl Tables {
    /// Returns the index of a place's state, if the state is still in the tables.
    fn number(&self, place: &Place) -> Option<u32> {
        match place.generation == self.generation {
            true => Some(place.state),
            false => self.numbers.get(&place.shape).copied(),
        }
    }

    fn place(&self, state: u32) -> Place {
        Place {
            shape: Arc::clone(&self.states[state as usize].shape),
            state,
            generation: self.generation,
        }
    }
}

impl Scratch {
    /// Begins a closure.
    fn begin(&mut self, program: &Program) {
        self.seen.resize(program.code.len(), 0);
        self.items.clear();
        self.hits.clear();
        self.number = self.number.wrapping_add(1);
        if self.number == 0 {
            self.seen.fill(0);
            self.number = 1;
        }
    }

    fn close_beginnings(&mut self, program: &Program, left: Left) {
        for pattern in &program.patterns {
            self.close(program, pattern.entry, left, Right::Unknown);
        }
    }

    /// Resolves a state's items, now that the kind of the next byte is known. Also finds the
    /// patterns that then match.
    fn resolved(
        &mut self,
        program: &Program,
        shape: &Shape,
        right: Right,
    ) -> (Vec<Address>, Vec<u32>) {
        self.begin(program);
        for &item in &shape.items {
            self.close(program, item, shape.left, right);
        }
        let items = std::mem::take(&mut self.items);
        (items, std::mem::take(&mut self.hits))
    }

    /// Returns the state that consists of the instructions and matches of a closure.
    fn finish(&mut self, program: &Program, left: Left, hasher: &ProcessState) -> Shape {
        self.items.sort_unstable();
        self.hits.sort_unstable();
        self.hits.dedup();
        let waits = |&item: &Address| {
            let inst = program.code[item as usize];
            matches!(inst, Inst::End { .. } | Inst::Word { .. })
        };
        let waits = self.items.iter().any(waits);
        let left = if waits { left } else { Left::Other };
        let (items, hits) = (self.items.as_slice(), self.hits.as_slice());
        Shape {
            hash: hasher.hash_one((left, items, hits)),
            left,
            waits,
            items: items.into(),
            hits: hits.into(),
        }
    }

    /// Adds the epsilon closure of an instruction: all that is reachable from it without reading a
    /// byte.
    fn close(&mut self, program: &Program, from: Address, left: Left, right: Right) {
        self.open.push(from);
        while let Some(address) = self.open.pop() {
            self.n_looks += 1;
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

/// Divides the bytes into classes that no set distinguishes. Returns the class of each byte, and
/// one byte of each class.
fn classes(program: &Program, has_words: bool) -> ([u8; 256], Vec<u8>) {
    let mut class_of = [0_u8; 256];
    let mut n_classes = 1_usize;
    let mut split = |has: &dyn Fn(u8) -> bool| {
        // For each class, the class that its members in the set move to.
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
