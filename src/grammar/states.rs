//! The states of a grammar: sets of stacks, each numbered once.
//!
//! A stack says what is still to come, its top first. All stacks of a state are kept together as
//! a tree that begins at the tops: an *edge* is a sequence and the number of the state that holds
//! the stacks below it. Equal sets thereby have equal numbers, whatever led to them; a grammar that
//! reads one text in a thousand ways has one state for it, not a thousand stacks.
//!
//! A state is *open* where a top is a reference to a rule, and *closed* where all tops are
//! characters or tokens. Texts are matched in closed states; what lies below a top is open.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of states are positions in tables that only grow"
)]

mod facts;
mod whole;

use std::sync::Arc;

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{EMPTY, Element};
use crate::grammar::hash::{Map, Set};
use crate::grammar::limits::{MAX_CALL_BYTES, MAX_STEP, MAX_WORK};
use crate::grammar::nodes::{CharSet, Summary};
use crate::token::Token;

/// The number of a state.
pub type StateId = u32;

/// No stack at all: nothing is allowed any more.
pub const NONE: StateId = 0;

/// One stack, which is empty: the text may end here, and not go on.
const DONE: StateId = 1;

/// The grammar asks for more work than one token may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMuch;

/// A sequence on top, and the stacks below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// What comes first.
    pub sequence: u32,
    /// What comes then.
    pub below: StateId,
}

/// A set of stacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    /// Whether the empty stack is among them.
    may_end: bool,
    /// The others, by their tops, ascending.
    edges: Arc<[Edge]>,
}

/// What is remembered of a state beside its stacks.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Where its row of the transitions begins.
    row: u32,
    /// The characters of its classes.
    cover: CharSet,
    /// Whether a top is a token.
    has_tokens: bool,
    /// Kinds of characters that all lead to one state, and that state; `None` as long as nobody
    /// has asked.
    uniform: Option<(Summary, StateId)>,
}

const NO_ROW: u32 = u32::MAX;
const UNKNOWN: u32 = u32::MAX;
/// Of more groups a row would stay unknown mostly.
const MOST_IN_ROW: usize = 1 << 10;
/// More edges are sorted by the groups that they begin with.
const FEW_EDGES: usize = 32;
/// What begins with several groups stands behind them all.
const SEVERAL: u32 = u32::MAX;

/// All states that a grammar was found in.
#[derive(Debug)]
pub struct States {
    all: Vec<State>,
    facts: Vec<Option<Facts>>,
    numbers: Map<State, StateId>,
    unions: Map<(StateId, StateId), StateId>,
    /// Rows of a state per group of characters; none where there are too many groups.
    transitions: Vec<u32>,
    /// Then by state and group.
    single: Map<(StateId, u32), StateId>,
    /// The edges of states that have many, by their groups.
    sorted: Map<StateId, Vec<(u32, Edge)>>,
    /// Approximate.
    bytes: usize,
    /// What may not be exceeded in this call.
    most_bytes: usize,
    /// Steps that this call may still take.
    work_left: usize,
    walk: Walk,
}

/// Scratch of one closure.
#[derive(Debug, Default)]
struct Walk {
    to_do: Vec<Edge>,
    seen: Set<Edge>,
    found: Vec<Edge>,
    may_end: bool,
    /// Edges that were met.
    n_edges: usize,
}

impl Walk {
    fn begin(&mut self) {
        self.to_do.clear();
        self.seen.clear();
        self.found.clear();
        self.may_end = false;
        self.n_edges = 0;
    }
}

impl Default for States {
    fn default() -> Self {
        let mut states = Self {
            all: Vec::new(),
            facts: Vec::new(),
            numbers: Map::default(),
            unions: Map::default(),
            transitions: Vec::new(),
            single: Map::default(),
            sorted: Map::default(),
            bytes: 0,
            most_bytes: usize::MAX,
            work_left: MAX_WORK,
            walk: Walk::default(),
        };
        for may_end in [false, true] {
            states.numbered(may_end, &[]);
        }
        states
    }
}

impl States {
    /// Bytes that the tables occupy, about.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// To be called before the work for one token, one array or one mask: it may add
    /// [`MAX_CALL_BYTES`] and take [`MAX_WORK`] steps.
    pub fn begin_call(&mut self) {
        self.most_bytes = self.bytes.saturating_add(MAX_CALL_BYTES);
        self.work_left = MAX_WORK;
    }

    /// Counts `n` steps of work.
    #[inline]
    pub fn spend(&mut self, n: usize) -> Result<(), TooMuch> {
        self.work_left = self.work_left.checked_sub(n).ok_or(TooMuch)?;
        Ok(())
    }

    fn check(&self) -> Result<(), TooMuch> {
        if self.bytes > self.most_bytes {
            return Err(TooMuch);
        }
        Ok(())
    }

    /// The number of a set of stacks.
    fn numbered(&mut self, may_end: bool, edges: &[Edge]) -> StateId {
        let state = State {
            may_end,
            edges: edges.into(),
        };
        if let Some(&number) = self.numbers.get(&state) {
            return number;
        }
        let number = self.all.len() as StateId;
        self.bytes += 2 * size_of::<State>() + size_of::<Facts>() + 64 + size_of_val(edges);
        self.all.push(state.clone());
        self.facts.push(None);
        self.numbers.insert(state, number);
        number
    }

    /// Whether the text may end in a state.
    pub fn may_end(&self, state: StateId) -> bool {
        self.all[state as usize].may_end
    }

    /// The tops of a state.
    pub fn edges(&self, state: StateId) -> &[Edge] {
        &self.all[state as usize].edges
    }

    /// The state at the beginning of a text.
    pub fn initial(&mut self, grammar: &Compiled) -> Result<StateId, TooMuch> {
        self.walk.begin();
        for &alternative in grammar.alternatives(grammar.rules.root) {
            self.enter(alternative, DONE)?;
        }
        self.close(grammar)
    }

    /// Goes on with a sequence and what is below it.
    fn enter(&mut self, sequence: u32, below: StateId) -> Result<(), TooMuch> {
        let n = match sequence {
            EMPTY => self.edges(below).len(),
            _ => 1,
        };
        // Counted before they take room.
        self.walk.n_edges += n;
        if self.walk.n_edges > MAX_STEP {
            return Err(TooMuch);
        }
        self.spend(n + 1)?;
        if sequence != EMPTY {
            self.walk.to_do.push(Edge { sequence, below });
            return Ok(());
        }
        let state = &self.all[below as usize];
        self.walk.may_end |= state.may_end;
        self.walk.to_do.extend_from_slice(&state.edges);
        Ok(())
    }

    /// Follows references until all tops are characters or tokens.
    fn close(&mut self, grammar: &Compiled) -> Result<StateId, TooMuch> {
        while let Some(edge) = self.walk.to_do.pop() {
            let Some(first) = grammar.first(edge.sequence) else {
                continue;
            };
            let Element::Rule(rule) = first.item else {
                self.walk.found.push(edge);
                continue;
            };
            if !self.walk.seen.insert(edge) {
                continue;
            }
            let below = match first.rest {
                EMPTY => edge.below,
                sequence => self.numbered(
                    false,
                    &[Edge {
                        sequence,
                        below: edge.below,
                    }],
                ),
            };
            self.check()?;
            for &alternative in grammar.alternatives(rule) {
                self.enter(alternative, below)?;
            }
        }
        self.gathered()
    }

    /// The state of all tops that were found.
    fn gathered(&mut self) -> Result<StateId, TooMuch> {
        let mut found = std::mem::take(&mut self.walk.found);
        found.sort_unstable();
        found.dedup();
        let mut tops = Vec::new();
        for same in found.chunk_by(|a, b| a.sequence == b.sequence) {
            let below = self.union_of(same)?;
            tops.push(Edge { below, ..same[0] });
        }
        let state = self.numbered(self.walk.may_end, &tops);
        self.walk.found = found;
        self.check()?;
        Ok(state)
    }

    /// The state with the stacks below all these edges, united in pairs, and the pairs in pairs:
    /// one after the other, each stack would be copied once for every edge behind it.
    fn union_of(&mut self, edges: &[Edge]) -> Result<StateId, TooMuch> {
        let mut states: Vec<StateId> = edges.iter().map(|edge| edge.below).collect();
        while states.len() > 1 {
            let n_pairs = states.len().div_ceil(2);
            for i in 0..n_pairs {
                states[i] = match states.get(2 * i + 1) {
                    Some(&other) => self.union(states[2 * i], other)?,
                    None => states[2 * i],
                };
            }
            states.truncate(n_pairs);
        }
        Ok(states.first().copied().unwrap_or(NONE))
    }

    /// The state with the stacks of both. Not recursive: stacks may be deep.
    fn union(&mut self, a: StateId, b: StateId) -> Result<StateId, TooMuch> {
        let mut pending = vec![(a, b)];
        while let Some(&(a, b)) = pending.last() {
            if self.known_union(a, b).is_some() {
                pending.pop();
                continue;
            }
            let n_pending = pending.len();
            let (left, right) = (self.all[a as usize].clone(), self.all[b as usize].clone());
            self.spend(left.edges.len() + right.edges.len() + 1)?;
            let mut merged = Vec::with_capacity(left.edges.len() + right.edges.len());
            let (mut i, mut j) = (0, 0);
            while let (Some(&x), Some(&y)) = (left.edges.get(i), right.edges.get(j)) {
                i += usize::from(x.sequence <= y.sequence);
                j += usize::from(y.sequence <= x.sequence);
                if x.sequence != y.sequence {
                    merged.push(x.min(y));
                    continue;
                }
                match self.known_union(x.below, y.below) {
                    Some(below) => merged.push(Edge { below, ..x }),
                    None => pending.push((x.below, y.below)),
                }
            }
            if pending.len() > n_pending {
                continue;
            }
            merged.extend_from_slice(&left.edges[i..]);
            merged.extend_from_slice(&right.edges[j..]);
            let state = self.numbered(left.may_end || right.may_end, &merged);
            self.unions.insert((a.min(b), a.max(b)), state);
            self.bytes += 24;
            self.check()?;
            pending.pop();
        }
        self.known_union(a, b).ok_or(TooMuch)
    }

    fn known_union(&self, a: StateId, b: StateId) -> Option<StateId> {
        if a == b || b == NONE {
            return Some(a);
        }
        if a == NONE {
            return Some(b);
        }
        self.unions.get(&(a.min(b), a.max(b))).copied()
    }

    /// The closed state behind a character of a group.
    #[inline]
    pub fn step(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        group: u32,
    ) -> Result<StateId, TooMuch> {
        let row = self.facts(grammar, state).row;
        if row != NO_ROW
            && let Some(next) = self.known_step(row as usize, group)
        {
            return Ok(next);
        }
        self.new_step(grammar, state, group)
    }

    /// The same by the state's row, if it was asked for before.
    #[inline]
    pub fn known_step(&self, row: usize, group: u32) -> Option<StateId> {
        if self.transitions.is_empty() {
            return self.single.get(&(row as StateId, group)).copied();
        }
        let next = self.transitions[row + group as usize];
        (next != UNKNOWN).then_some(next)
    }

    /// Where the transitions of a state begin.
    pub fn row(&mut self, grammar: &Compiled, state: StateId) -> Result<usize, TooMuch> {
        let mut facts = self.facts(grammar, state);
        if facts.row == NO_ROW {
            let n = grammar.n_groups();
            facts.row = state;
            if n <= MOST_IN_ROW {
                facts.row = self.transitions.len() as u32;
                self.transitions.resize(self.transitions.len() + n, UNKNOWN);
                self.bytes += 4 * n;
            }
            self.facts[state as usize] = Some(facts);
            self.check()?;
        }
        Ok(facts.row as usize)
    }

    #[cold]
    fn new_step(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        group: u32,
    ) -> Result<StateId, TooMuch> {
        let code_point = grammar.one_of(group);
        self.walk.begin();
        for edge in self.edges_for(grammar, state, group)?.iter() {
            let Some(first) = grammar.first(edge.sequence) else {
                continue;
            };
            if grammar
                .class(first.item)
                .is_some_and(|class| class.has(code_point))
            {
                self.enter(first.rest, edge.below)?;
            }
        }
        let next = self.close(grammar)?;
        let row = self.row(grammar, state)?;
        if let Some(place) = self.transitions.get_mut(row + group as usize) {
            *place = next;
        } else {
            self.single.insert((state, group), next);
            self.bytes += 24;
        }
        Ok(next)
    }

    /// The edges of a state that may take a character of a group: of many these are few.
    fn edges_for(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        group: u32,
    ) -> Result<Arc<[Edge]>, TooMuch> {
        let edges = Arc::clone(&self.all[state as usize].edges);
        if edges.len() <= FEW_EDGES {
            self.spend(edges.len() + 1)?;
            return Ok(edges);
        }
        if !self.sorted.contains_key(&state) {
            self.spend(edges.len())?;
            let key = |edge: &Edge| grammar.only_group(edge.sequence).unwrap_or(SEVERAL);
            let mut keyed: Vec<_> = edges.iter().map(|edge| (key(edge), *edge)).collect();
            keyed.sort_unstable();
            self.bytes += size_of_val(&*keyed);
            self.sorted.insert(state, keyed);
            self.check()?;
        }
        let keyed = &self.sorted[&state];
        let of = |key| {
            let from = keyed.partition_point(|&(other, _)| other < key);
            keyed[from..].iter().take_while(move |keyed| keyed.0 == key)
        };
        let found = of(group).chain(of(SEVERAL)).map(|keyed| keyed.1);
        let found: Arc<[Edge]> = found.collect();
        self.spend(found.len() + 1)?;
        Ok(found)
    }

    /// The closed state behind `token`, whose characters are `chars`: tops that are tokens
    /// take the token whole, the others its characters.
    pub fn accept(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        token: Token,
        chars: &[u32],
    ) -> Result<StateId, TooMuch> {
        let facts = self.facts(grammar, state);
        if facts.has_tokens || chars.is_empty() {
            return self.accept_tokens(grammar, state, token, chars);
        }
        self.accept_characters(grammar, state, chars)
    }

    fn accept_characters(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        chars: &[u32],
    ) -> Result<StateId, TooMuch> {
        for &code_point in chars {
            state = self.step(grammar, state, grammar.group(code_point))?;
            if state == NONE {
                break;
            }
        }
        Ok(state)
    }

    fn accept_tokens(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        token: Token,
        chars: &[u32],
    ) -> Result<StateId, TooMuch> {
        let edges = Arc::clone(&self.all[state as usize].edges);
        self.spend(edges.len() + 1)?;
        let mut characters = Vec::new();
        self.walk.begin();
        for &edge in edges.iter() {
            let Some(first) = grammar.first(edge.sequence) else {
                continue;
            };
            match first.item {
                Element::Class(_) => characters.push(edge),
                item if takes(item, token) => self.enter(first.rest, edge.below)?,
                _ => {}
            }
        }
        let by_token = self.close(grammar)?;
        // A text without characters leaves those as they are.
        let by_characters = self.numbered(false, &characters);
        let by_characters = self.accept_characters(grammar, by_characters, chars)?;
        self.union(by_token, by_characters)
    }
}

/// Whether an item that is a token element takes `token`.
pub fn takes(item: Element, token: Token) -> bool {
    match item {
        Element::Token(number) => number == token as u32,
        Element::TokenNot(number) => number != token as u32,
        _ => false,
    }
}
