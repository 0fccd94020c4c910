//! The deterministic automaton of a program, with a bounded number of states.
//!
//! A pattern may begin anywhere, so the first instructions of all patterns belong to every state.
//! They are therefore not stored in the states, which stay small however many patterns there are.

// In bounds: states, classes and addresses are positions in lists that only grow.

use super::program::{Address, Inst, Program};
use crate::bans::MAX_STATES;
use crate::grammar::hash::Map;
use crate::memory::{exhausted, grow_map, push, with_room};

/// A state.
pub(super) type State = u32;
/// The state of an empty text.
pub(super) const START: State = 0;

/// The maximum number of steps to make the states.
const MAX_STEPS: usize = 1 << 26;

/// The context before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Before {
    Nothing,
    EndOfLine,
    Other,
}

const BEFORES: [Before; 3] = [Before::Nothing, Before::EndOfLine, Before::Other];

/// The instructions of a state, without the first instructions of the patterns, which belong to
/// every state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    before: Before,
    items: Vec<Address>,
}

/// The automaton.
#[derive(Debug)]
pub(super) struct Automaton {
    class_of: [u8; 256],
    n_classes: usize,
    /// For each state and each class of bytes, the next state.
    edges: Vec<State>,
    /// For each state, true if a match ends there.
    matches: Vec<bool>,
    /// The state within a line in which no pattern has begun.
    idle: State,
}

impl Automaton {
    /// Returns the automaton of a program.
    ///
    /// # Errors
    /// Returns a message for the caller if there are too many states, or if making them takes too
    /// many steps.
    pub(super) fn new(program: &Program) -> Result<Self, String> {
        let (class_of, n_classes) = classes(program);
        let mut making = Making::new(program, class_of, n_classes)?;
        making.number(Place {
            before: Before::Nothing,
            items: Vec::new(),
        })?;
        let idle = making.number(Place {
            before: Before::Other,
            items: Vec::new(),
        })?;
        let mut edges = Vec::new();
        let mut next = 0;
        while let Some(place) = making.places.get(next).cloned() {
            making.leave(&place, &mut edges)?;
            next += 1;
        }
        let is_match = |place: &Place| {
            place
                .items
                .iter()
                .any(|&item| program.code[item as usize] == Inst::Match)
        };
        let mut matches = with_room(making.places.len()).unwrap_or_else(exhausted);
        matches.extend(making.places.iter().map(is_match));
        Ok(Self {
            class_of,
            n_classes,
            edges,
            matches,
            idle,
        })
    }

    /// Returns the number of states.
    pub(super) fn n_states(&self) -> usize {
        self.matches.len()
    }

    /// Returns the state within a line in which no pattern has begun.
    pub(super) fn idle(&self) -> State {
        self.idle
    }

    /// Returns the state after a byte.
    #[inline]
    pub(super) fn step(&self, state: State, byte: u8) -> State {
        self.edges[state as usize * self.n_classes + usize::from(self.class_of[usize::from(byte)])]
    }

    /// Returns the state after some bytes.
    pub(super) fn run(&self, state: State, bytes: &[u8]) -> State {
        bytes
            .iter()
            .fold(state, |state, &byte| self.step(state, byte))
    }

    /// True if a match ends in this state.
    #[inline]
    pub(super) fn is_match(&self, state: State) -> bool {
        self.matches[state as usize]
    }

    /// True if a match ends within these bytes after `state`.
    pub(super) fn has_match(&self, mut state: State, bytes: &[u8]) -> bool {
        bytes.iter().any(|&byte| {
            state = self.step(state, byte);
            self.is_match(state)
        })
    }
}

/// Returns the class of each byte, and the number of classes. A class is a range of bytes that no
/// instruction distinguishes.
fn classes(program: &Program) -> ([u8; 256], usize) {
    let mut begins = [false; 257];
    // The end of a line is a class of its own.
    let line = (b'\n', b'\n');
    let ranges = program.code.iter().filter_map(|inst| match inst {
        Inst::Byte { range, .. } => Some(*range),
        Inst::Begin { of_line: true, .. } => Some(line),
        _ => None,
    });
    for (first, last) in ranges {
        begins[usize::from(first)] = true;
        begins[usize::from(last) + 1] = true;
    }
    let (mut class_of, mut class) = ([0; 256], 0);
    for (byte, of) in class_of.iter_mut().enumerate() {
        class += u8::from(byte > 0 && begins[byte]);
        *of = class;
    }
    (class_of, usize::from(class) + 1)
}

/// The states under construction, and their input.
struct Making<'a> {
    program: &'a Program,
    class_of: [u8; 256],
    n_classes: usize,
    /// The class of the line feed, if a pattern has an anchor for the beginning of a line.
    line: Option<u8>,
    /// For each of [`BEFORES`], the instructions with which patterns can begin there, ascending.
    entries: [Vec<Address>; 3],
    /// For each of [`BEFORES`] and each class, the instructions that are reached from `entries` by
    /// a byte of the class.
    after_entries: [Vec<Vec<Address>>; 3],
    places: Vec<Place>,
    numbers: Map<Place, State>,
    steps: usize,
    /// For each instruction, the number of the last closure that has reached it.
    seen: Vec<u32>,
    closure: u32,
    open: Vec<Address>,
}

impl<'a> Making<'a> {
    fn new(program: &'a Program, class_of: [u8; 256], n_classes: usize) -> Result<Self, String> {
        let asks = |inst: &Inst| matches!(inst, Inst::Begin { of_line: true, .. });
        let line = program.code.iter().any(asks);
        let mut seen = with_room(program.code.len()).unwrap_or_else(exhausted);
        seen.resize(program.code.len(), 0);
        let mut making = Self {
            program,
            class_of,
            n_classes,
            line: line.then_some(class_of[usize::from(b'\n')]),
            entries: Default::default(),
            after_entries: Default::default(),
            places: Vec::new(),
            numbers: Map::default(),
            steps: 0,
            seen,
            closure: 0,
            open: Vec::new(),
        };
        for (i, before) in BEFORES.into_iter().enumerate() {
            let mut found = Vec::new();
            making.closure += 1;
            for &entry in &program.entries {
                making.close(entry, before, &mut found)?;
            }
            found.sort_unstable();
            making.entries[i] = found;
        }
        for i in 0..BEFORES.len() {
            let entries = std::mem::take(&mut making.entries[i]);
            let by_class = making.targets(&entries);
            making.entries[i] = entries;
            let mut after = with_room(n_classes).unwrap_or_else(exhausted);
            for (class, targets) in (0..).zip(by_class?) {
                making.closure += 1;
                let mut found = Vec::new();
                for target in targets {
                    making.close(target, making.before(class), &mut found)?;
                }
                after.push(found);
            }
            making.after_entries[i] = after;
        }
        Ok(making)
    }

    /// Returns the context of the position after a byte of `class`.
    fn before(&self, class: u8) -> Before {
        match self.line == Some(class) {
            true => Before::EndOfLine,
            false => Before::Other,
        }
    }

    fn take(&mut self, steps: usize) -> Result<(), String> {
        self.steps += steps;
        match self.steps > MAX_STEPS {
            true => Err(TOO_LARGE.into()),
            false => Ok(()),
        }
    }

    /// Returns, for each class, the successors of the `items` that match its bytes.
    fn targets(&mut self, items: &[Address]) -> Result<Vec<Vec<Address>>, String> {
        let mut by_class = with_room(self.n_classes).unwrap_or_else(exhausted);
        by_class.resize_with(self.n_classes, Vec::new);
        for &item in items {
            if let Inst::Byte {
                range: (first, last),
                next,
            } = self.program.code[item as usize]
            {
                let classes = self.class_of[usize::from(first)]..=self.class_of[usize::from(last)];
                self.take(classes.len())?;
                for class in classes {
                    push(&mut by_class[usize::from(class)], next);
                }
            }
        }
        Ok(by_class)
    }

    /// Adds the epsilon closure of `from` to `found`, except the instructions that the current
    /// closure has already reached.
    fn close(
        &mut self,
        from: Address,
        before: Before,
        found: &mut Vec<Address>,
    ) -> Result<(), String> {
        push(&mut self.open, from);
        while let Some(address) = self.open.pop() {
            self.take(1)?;
            let seen = &mut self.seen[address as usize];
            if std::mem::replace(seen, self.closure) == self.closure {
                continue;
            }
            match self.program.code[address as usize] {
                Inst::Byte { .. } | Inst::Match => push(found, address),
                Inst::Split { first, second } => {
                    push(&mut self.open, first);
                    push(&mut self.open, second);
                }
                Inst::Begin { of_line, next } => {
                    let begins = match before {
                        Before::Nothing => true,
                        Before::EndOfLine => of_line,
                        Before::Other => false,
                    };
                    if begins {
                        push(&mut self.open, next);
                    }
                }
                Inst::Fail => {}
            }
        }
        Ok(())
    }

    /// Adds the transitions of a place, one for each class.
    fn leave(&mut self, place: &Place, edges: &mut Vec<State>) -> Result<(), String> {
        let by_class = self.targets(&place.items)?;
        let n = BEFORES.iter().position(|&before| before == place.before);
        for (class, targets) in (0..).zip(by_class) {
            let before = self.before(class);
            self.closure += 1;
            let mut items =
                crate::memory::copied(&self.after_entries[n.unwrap_or(0)][usize::from(class)]);
            self.take(1 + items.len())?;
            for &item in &items {
                self.seen[item as usize] = self.closure;
            }
            for target in targets {
                self.close(target, before, &mut items)?;
            }
            let others = &self.entries[BEFORES.len() - 1];
            items.retain(|item| others.binary_search(item).is_err());
            items.sort_unstable();
            let next = self.number(Place { before, items })?;
            push(edges, next);
        }
        Ok(())
    }

    /// Interns a place and returns its state.
    fn number(&mut self, place: Place) -> Result<State, String> {
        if let Some(&known) = self.numbers.get(&place) {
            return Ok(known);
        }
        if self.places.len() >= MAX_STATES {
            return Err(TOO_LARGE.into());
        }
        self.take(place.items.len())?;
        let number = self.places.len() as State;
        push(&mut self.places, place.clone());
        grow_map(&mut self.numbers);
        self.numbers.insert(place, number);
        Ok(number)
    }
}

/// The error for patterns with too many states.
const TOO_LARGE: &str = "the patterns together need more than 16384 states \
    (LLAMA_SIEVE_BAN_MAX_STATES), or too many steps to find them: a count such as .{20} in front of \
    other text doubles them with each repetition";
const _: () = assert!(MAX_STATES == 16_384);
