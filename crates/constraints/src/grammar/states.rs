//! The states of a grammar. A state is a set of stacks. Equal sets are interned as one state.
//!
//! A stack holds the elements still to come, its top first. All stacks of a state are stored
//! together, as a graph-structured stack: an *edge* is a sequence, and the id of the state with the
//! stacks below it. Equal sets of stacks thus have one id, whatever text led to them. If a grammar
//! derives a text in a thousand ways, it has one state for it, not a thousand stacks.
//!
//! A state is *closed* if all tops are characters or tokens, and *open* otherwise. Texts are
//! matched in closed states. The states below a top may be open.
//!
//! - `closure`: turns an open state into a closed one.
//! - `unions`: makes the state with the stacks of two others.
//! - `counts`: numbers repetitions by their remaining rounds, and positions in unordered lists.
//! - `facts`: cached facts about a state besides its stacks.
//! - `import`: copies a state from other tables.
//! - `budget`: limits the work of a call, whatever is cached.

// In bounds: numbers of states are positions in tables that only grow.

pub mod budget;
mod closure;
mod counts;
mod facts;
mod import;
mod unions;

use std::sync::Arc;

use budget::Budget;
use closure::Closures;
use counts::Counted;
use facts::{Facts, NO_ROW};

use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{ENDLESS, Element};
use crate::grammar::hash::{Identity, Keys, Map, Set};
use crate::token::Token;

pub use budget::TooMuch;

/// The id of a state.
pub type StateId = u32;

/// The dead state, which has no stacks: nothing more is allowed.
pub const NONE: StateId = 0;

/// The state with only the empty stack: the text can only end.
const DONE: StateId = 1;

/// A sequence on top, and the stacks below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Edge {
    /// The number of the sequence on top. Numbers after the grammar's own are sequences that begin
    /// with a repetition or an unordered list in progress.
    pub sequence: u32,
    /// The state with the stacks below the sequence.
    pub below: StateId,
}

/// A set of stacks.
#[derive(Clone, Debug)]
struct State {
    /// True if the empty stack is in the set.
    may_end: bool,
    /// The other stacks, by their tops, ascending.
    edges: Arc<[Edge]>,
}

/// A computed state and its cost.
#[derive(Clone, Copy, Debug)]
struct Found {
    state: StateId,
    /// An upper bound on the steps to find the state with empty tables.
    cost: u64,
}

const UNKNOWN: u32 = u32::MAX;
/// The maximum number of groups of characters for which rows are used: most of a longer row would
/// stay unknown.
const MOST_IN_ROW: usize = 1 << 10;
/// The maximum number of edges that are searched one by one. More are sorted by the groups that
/// they begin with.
const FEW_EDGES: usize = 32;
/// The number of states for which new tables have memory. Most first masks need no more.
const FEW_STATES: usize = 14;
/// Marks sequences that begin with characters of several groups. Sorts after all groups.
const SEVERAL: u32 = u32::MAX;

/// The states of a grammar found so far.
#[derive(Debug)]
pub struct States {
    all: Vec<State>,
    /// The identity of each state, which is the same in all tables.
    identities: Vec<Identity>,
    /// The number of edges of all states.
    n_edges: usize,
    facts: Vec<Facts>,
    numbers: Map<Identity, StateId>,
    counted: Counted,
    /// The maximum number of rounds that are counted. For the texts of these tables, more rounds
    /// are as good as unbounded.
    most_rounds: u32,
    unions: Map<(StateId, StateId), Found>,
    /// The closed state of each open state.
    closed: Map<StateId, Found>,
    /// The states that were imported from other tables, by their ids in those tables.
    imported: Map<StateId, Found>,
    /// For each state a row of next states, by group of characters. Empty if there are too many
    /// groups.
    transitions: Vec<u32>,
    /// The next states by state and group, used if there are no rows.
    single: Map<(StateId, u32), StateId>,
    /// The edges of states that have many edges, sorted by their groups.
    sorted: Map<StateId, Vec<(u32, Edge)>>,
    /// The approximate size of the tables in bytes.
    bytes: usize,
    /// The work of the current call.
    pub budget: Budget,
    /// The number of the current walk. In each walk a query to a state is charged once.
    walk: u32,
    closures: Closures,
}

impl Default for States {
    fn default() -> Self {
        Self::new(ENDLESS)
    }
}

impl States {
    /// Returns tables for texts of at most `most_rounds` characters: more rounds of repetitions
    /// count as unbounded.
    pub fn new(most_rounds: u32) -> Self {
        let mut states = Self {
            all: Vec::with_capacity(FEW_STATES),
            identities: Vec::with_capacity(FEW_STATES),
            n_edges: 0,
            facts: Vec::with_capacity(FEW_STATES),
            numbers: Map::with_capacity_and_hasher(FEW_STATES, Keys::default()),
            counted: Counted::default(),
            most_rounds,
            unions: Map::default(),
            closed: Map::default(),
            imported: Map::default(),
            transitions: Vec::new(),
            single: Map::default(),
            sorted: Map::default(),
            bytes: 0,
            budget: Budget::default(),
            walk: 1,
            closures: Closures::default(),
        };
        let mut add = |may_end| {
            let edges = Arc::default();
            let identity = Identity::of_end(may_end);
            states.add(State { may_end, edges }, identity);
        };
        add(false);
        add(true);
        states
    }

    /// Returns the approximate size of the tables in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Begins the work for one token, one array or one mask.
    pub fn begin_call(&mut self) {
        self.begin_with(Budget::default());
    }

    /// Begins work with a partly spent budget.
    pub fn begin_with(&mut self, budget: Budget) {
        self.budget = budget;
        self.begin_walk();
    }

    /// Begins a walk through a vocabulary. Its result depends only on its start, not on earlier
    /// walks.
    pub fn begin_walk(&mut self) {
        self.walk = self.walk.wrapping_add(1);
    }

    /// Counts `n` steps of work.
    #[inline]
    pub fn spend(&mut self, n: usize) -> Result<(), TooMuch> {
        self.budget.spend(n as u64)
    }

    /// Counts bytes that are added to the tables.
    fn grow(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.budget.keep(bytes);
    }

    /// Interns a set of stacks and returns its id. The edges must ascend.
    fn numbered(&mut self, grammar: &Compiled, may_end: bool, edges: &[Edge]) -> StateId {
        let members = edges.iter().map(|&edge| self.member(grammar, edge));
        let identity = Identity::of(may_end, members);
        if let Some(&number) = self.numbers.get(&identity) {
            let known = &self.all[number as usize];
            if known.may_end == may_end && *known.edges == *edges {
                self.budget.would_keep(size_of_state(edges.len()));
                return number;
            }
        }
        self.grow(size_of_state(edges.len()));
        let edges = edges.into();
        self.add(State { may_end, edges }, identity)
    }

    fn add(&mut self, state: State, identity: Identity) -> StateId {
        let number = self.all.len() as StateId;
        self.n_edges += state.edges.len();
        self.all.push(state);
        self.identities.push(identity);
        self.facts.push(Facts::default());
        self.numbers.insert(identity, number);
        number
    }

    /// Returns the state with `sequence` on top of each stack of `below`.
    fn above(&mut self, grammar: &Compiled, sequence: u32, below: StateId) -> StateId {
        if grammar.rules.is_loop(sequence)
            && let State {
                may_end: false,
                edges,
            } = &self.all[below as usize]
            && let [only] = **edges
            && only.sequence == sequence
        {
            return below;
        }
        self.numbered(grammar, false, &[Edge { sequence, below }])
    }

    /// True if the text may end in a state.
    pub fn may_end(&self, state: StateId) -> bool {
        self.all[state as usize].may_end
    }

    /// Returns the tops of a state.
    pub fn edges(&self, state: StateId) -> &[Edge] {
        &self.all[state as usize].edges
    }

    /// True if there are more than `most` elements below the tops of a state. Shared elements count
    /// once.
    pub fn is_deeper_than(&self, most: usize, state: StateId) -> bool {
        if self.n_edges <= most {
            return false;
        }
        let mut n_edges = 0;
        let mut seen = Set::default();
        let mut pending: Vec<StateId> = vec![state];
        while let Some(state) = pending.pop() {
            for edge in self.edges(state) {
                if seen.insert(edge.below) {
                    n_edges += self.edges(edge.below).len();
                    pending.push(edge.below);
                }
            }
            if n_edges > most {
                return true;
            }
        }
        false
    }

    /// Returns the identity of a state, which is the same in all tables of its grammar.
    pub fn identity(&self, state: StateId) -> Identity {
        self.identities[state as usize]
    }

    /// Returns the state at the beginning of a text.
    pub fn initial(&mut self, grammar: &Compiled) -> Result<StateId, TooMuch> {
        self.begin_closure();
        for &alternative in grammar.alternatives(grammar.rules.root) {
            self.enter(alternative, DONE)?;
        }
        self.close(grammar)
    }

    /// Returns the closed state after a character of a group.
    #[inline]
    pub fn step(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        group: u32,
    ) -> Result<StateId, TooMuch> {
        self.touch(grammar, state)?;
        let row = self.facts[state as usize].row;
        if row != NO_ROW
            && let Some(next) = self.known_step(row as usize, group)
        {
            return Ok(next);
        }
        self.on_account(state, |states| states.new_step(grammar, state, group))
    }

    /// Returns the state that [`step`](Self::step) has returned before for `group`, given the
    /// result of [`row`](Self::row); `None` if the state is not known.
    #[inline]
    pub fn known_step(&self, row: usize, group: u32) -> Option<StateId> {
        if self.transitions.is_empty() {
            return self.single.get(&(row as StateId, group)).copied();
        }
        let next = self.transitions[row + group as usize];
        (next != UNKNOWN).then_some(next)
    }

    /// Returns the offset of a state's row, or the state itself if there are no rows.
    pub fn row(&mut self, grammar: &Compiled, state: StateId) -> Result<usize, TooMuch> {
        self.touch(grammar, state)?;
        let row = self.facts[state as usize].row;
        if row != NO_ROW {
            return Ok(row as usize);
        }
        self.on_account(state, |states| {
            let n = grammar.n_groups();
            let mut row = state as usize;
            if n <= MOST_IN_ROW {
                row = states.transitions.len();
                states.transitions.resize(row + n, UNKNOWN);
                states.grow(4 * n);
            }
            states.facts[state as usize].row = row as u32;
            states.budget.check()?;
            Ok(row)
        })
    }

    #[cold]
    fn new_step(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        group: u32,
    ) -> Result<StateId, TooMuch> {
        let code_point = grammar.one_of(group);
        self.begin_closure();
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
            self.grow(24);
        }
        Ok(next)
    }

    /// Returns the edges of a state that may accept a character of a group, often few of many.
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
            self.grow(size_of_val(&*keyed));
            self.sorted.insert(state, keyed);
            self.budget.check()?;
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

    /// Returns the closed state after `token`, whose characters are `chars`. Tops that are token
    /// elements match the token as a whole, the others its characters.
    pub fn accept(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        token: Token,
        chars: &[u32],
    ) -> Result<StateId, TooMuch> {
        if chars.is_empty() || self.has_tokens(grammar, state)? {
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
        self.begin_closure();
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
        if grammar.rules.is_by_number(token) {
            return Ok(by_token);
        }
        // A token without characters leaves these edges unchanged.
        let by_characters = self.numbered(grammar, false, &characters);
        let by_characters = self.accept_characters(grammar, by_characters, chars)?;
        self.union(grammar, by_token, by_characters)
    }
}

/// Returns the approximate size in bytes of a state with `n_edges` edges.
fn size_of_state(n_edges: usize) -> usize {
    2 * size_of::<State>()
        + size_of::<Facts>()
        + size_of::<Identity>()
        + 64
        + n_edges * size_of::<Edge>()
}

/// True if an item is a token element that matches `token`.
pub fn takes(item: Element, token: Token) -> bool {
    match item {
        Element::Token(number) => number == token as u32,
        Element::TokenNot(number) => number != token as u32,
        _ => false,
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
