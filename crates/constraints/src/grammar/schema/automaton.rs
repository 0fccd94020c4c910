//! Deterministic finite automata over characters, for patterns, lengths, names, and the digits of
//! numbers.
//!
//! [`explore`] builds an automaton from its start state and a function that returns the edges of a
//! state. It also builds intersections, unions and differences, as product automata over pairs of
//! states.

// In bounds: numbers of states are positions in a list that only grows.

use std::hash::Hash;
use std::sync::Arc;

use crate::grammar::hash::Map;
use crate::grammar::limits::MAX_AUTOMATON_STATES;
use crate::grammar::lists::Lists;
use crate::grammar::schema::work::{TooLarge, Work};

/// The first and last code point of a range.
pub type Span = (u32, u32);

/// Every character that a string can contain.
pub const ALL: [Span; 2] = [(0, 0xD7FF), (0xE000, 0x10_FFFF)];

/// A transition, called an edge: the first and last of its characters, and the state that they lead
/// to.
pub type Edge = (u32, u32, u32);

/// A state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// True if a text may end in this state.
    pub accepts: bool,
    /// The edges, ascending and disjoint. No accepted text continues with any other character.
    pub edges: Vec<Edge>,
}

/// Appends an edge. It is joined with the last edge if their ranges are adjacent and they lead to
/// the same state.
fn push_joined(edges: &mut Vec<Edge>, (first, last, to): Edge) {
    match edges.last_mut() {
        Some(edge) if edge.2 == to && edge.1 + 1 == first => edge.1 = last,
        _ => edges.push((first, last, to)),
    }
}

impl State {
    /// Returns the edges with their targets mapped by `target`. Adjacent edges with the same target
    /// are joined.
    fn edges_to(&self, target: impl Fn(u32) -> u32) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::with_capacity(self.edges.len());
        for &(first, last, to) in &self.edges {
            push_joined(&mut edges, (first, last, target(to)));
        }
        edges
    }

    fn next(&self, code_point: u32) -> Option<u32> {
        let at = self.edges.partition_point(|edge| edge.1 < code_point);
        let &(first, _, next) = self.edges.get(at)?;
        (first <= code_point).then_some(next)
    }
}

/// An automaton. Its first state is the start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dfa {
    /// The states.
    pub states: Vec<State>,
}

/// Builds the automaton of all states that are reachable from `start`. `edges` appends the edges of
/// a state to an empty list, ascending.
pub fn explore<S: Clone + Eq + Hash>(
    work: &Work,
    start: S,
    mut accepts: impl FnMut(&S) -> bool,
    mut edges: impl FnMut(&S, &mut Vec<(u32, u32, S)>),
) -> Result<Dfa, TooLarge> {
    let mut numbers: Map<S, u32> = Map::default();
    let mut found = vec![start.clone()];
    numbers.insert(start, 0);
    let mut states: Vec<State> = Vec::new();
    let mut n_edges = 0;
    let (mut next, mut merged) = (Vec::new(), Vec::new());
    while let Some(state) = found.get(states.len()).cloned() {
        edges(&state, &mut next);
        work.spend(8 * (1 + next.len()))?;
        merged.clear();
        for (first, last, target) in next.drain(..) {
            let number = match numbers.get(&target) {
                Some(&number) => number,
                None => {
                    let number = found.len() as u32;
                    if found.len() >= MAX_AUTOMATON_STATES {
                        return Err(TooLarge);
                    }
                    found.push(target.clone());
                    numbers.insert(target, number);
                    number
                }
            };
            push_joined(&mut merged, (first, last, number));
        }
        n_edges += merged.len();
        if n_edges > 16 * MAX_AUTOMATON_STATES {
            return Err(TooLarge);
        }
        let accepts = accepts(&state);
        states.push(State {
            accepts,
            edges: merged.clone(),
        });
    }
    Ok(Dfa { states })
}

/// Marks, in a pair of states, the dead state of an automaton.
const NOWHERE: u32 = u32::MAX;
/// The dead state, which accepts no text.
static NO_STATE: State = State {
    accepts: false,
    edges: Vec::new(),
};

impl Dfa {
    /// Returns the automaton of every text.
    pub fn all() -> Self {
        let edges = ALL.map(|(first, last)| (first, last, 0)).to_vec();
        let accepts = true;
        Self {
            states: vec![State { accepts, edges }],
        }
    }

    /// Returns the automaton of `texts`: a trie in which all leaves are one state.
    pub fn of_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, TooLarge> {
        // Sorted by characters, so that the last edge of a state is the current one.
        let mut texts: Vec<&str> = texts.into_iter().collect();
        texts.sort_unstable();
        texts.dedup();
        let mut states = vec![State::default()];
        let mut leaf = None;
        for (i, text) in texts.iter().enumerate() {
            let is_prefix = texts.get(i + 1).is_some_and(|next| next.starts_with(text));
            let mut at = 0;
            for (place, character) in text.char_indices() {
                let code_point = u32::from(character);
                let is_last = place + character.len_utf8() == text.len();
                at = match (states[at].edges.last(), leaf) {
                    (Some(&(last, _, to)), _) if last == code_point => to as usize,
                    (_, Some(leaf)) if is_last && !is_prefix => {
                        states[at].edges.push((code_point, code_point, leaf));
                        leaf as usize
                    }
                    _ => {
                        let new = states.len();
                        states[at].edges.push((code_point, code_point, new as u32));
                        states.push(State::default());
                        if is_last && !is_prefix {
                            leaf = Some(new as u32);
                        }
                        new
                    }
                };
            }
            states[at].accepts = true;
            if states.len() > MAX_AUTOMATON_STATES {
                return Err(TooLarge);
            }
        }
        Ok(Self { states })
    }

    /// True if the automaton accepts a text.
    pub fn accepts(&self, text: &str) -> bool {
        let mut at = 0;
        for character in text.chars() {
            match self.states[at as usize].next(u32::from(character)) {
                Some(next) => at = next,
                None => return false,
            }
        }
        self.states[at as usize].accepts
    }

    fn pairs<'a>(
        &'a self,
        other: &'a Self,
        work: &Work,
        keep: impl Fn(bool, bool) -> bool,
    ) -> Result<Self, TooLarge> {
        let state = |dfa: &'a Self, at: u32| dfa.states.get(at as usize).unwrap_or(&NO_STATE);
        let accepts = |dfa: &Self, at: u32| dfa.states.get(at as usize).is_some_and(|s| s.accepts);
        // An automaton in its dead state never accepts again.
        let (may_only_left, may_only_right) = (keep(true, false), keep(false, true));
        let mut starts: Vec<u32> = Vec::new();
        explore(
            work,
            (0, 0),
            |&(a, b)| keep(accepts(self, a), accepts(other, b)),
            |&(a, b), next| {
                let (a, b) = (state(self, a), state(other, b));
                let n = a.edges.len() + b.edges.len();
                if work.spend(4 * n).is_err() {
                    return;
                }
                starts.clear();
                for &(first, last, _) in a.edges.iter().chain(&b.edges) {
                    starts.extend([first, last + 1]);
                }
                starts.sort_unstable();
                starts.dedup();
                for pair in starts.windows(2) {
                    let to_a = a.next(pair[0]).unwrap_or(NOWHERE);
                    let to_b = b.next(pair[0]).unwrap_or(NOWHERE);
                    let leads_on = match (to_a != NOWHERE, to_b != NOWHERE) {
                        (true, true) => true,
                        (true, false) => may_only_left,
                        (false, true) => may_only_right,
                        (false, false) => false,
                    };
                    if leads_on {
                        next.push((pair[0], pair[1] - 1, (to_a, to_b)));
                    }
                }
            },
        )
        .map(Self::trimmed)
    }

    /// Returns the automaton of the texts that both accept.
    pub fn and(&self, other: &Self, work: &Work) -> Result<Self, TooLarge> {
        self.pairs(other, work, |a, b| a && b)
    }

    /// Returns the automaton of the texts that this one accepts and the other does not.
    pub fn minus(&self, other: &Self, work: &Work) -> Result<Self, TooLarge> {
        self.pairs(other, work, |a, b| a && !b)
    }

    /// Returns the automaton of the texts that at least one of the two accepts.
    pub fn or(&self, other: &Self, work: &Work) -> Result<Self, TooLarge> {
        self.pairs(other, work, |a, b| a || b)
    }

    /// Returns the automaton of the texts that this one accepts and that have `min` to `max`
    /// characters.
    pub fn of_length(&self, min: u64, max: Option<u64>, work: &Work) -> Result<Self, TooLarge> {
        let most = max.unwrap_or(min);
        explore(
            work,
            (0_u32, 0_u64),
            |&(at, n)| self.states[at as usize].accepts && n >= min,
            |&(at, n), next| {
                if max == Some(n) {
                    return;
                }
                for &(first, last, to) in &self.states[at as usize].edges {
                    next.push((first, last, (to, (n + 1).min(most))));
                }
            },
        )
        .map(Self::trimmed)
    }

    /// True if the automaton accepts no text.
    pub fn is_empty(&self) -> bool {
        self.states.iter().all(|state| !state.accepts)
    }

    /// Returns the length of the longest text in characters; `None` if unbounded.
    pub fn longest(&self) -> Option<u64> {
        // In a trimmed automaton every cycle can be repeated without bound.
        let n = self.states.len();
        let mut n_before = vec![0_usize; n];
        let edges = self.states.iter().flat_map(|state| &state.edges);
        edges.for_each(|edge| n_before[edge.2 as usize] += 1);
        let mut lengths = vec![0_u64; n];
        let mut to_do: Vec<usize> = (0..n).filter(|&at| n_before[at] == 0).collect();
        let mut n_done = 0;
        while let Some(at) = to_do.pop() {
            n_done += 1;
            for &(_, _, to) in &self.states[at].edges {
                let to = to as usize;
                lengths[to] = lengths[to].max(lengths[at] + 1);
                n_before[to] -= 1;
                if n_before[to] == 0 {
                    to_do.push(to);
                }
            }
        }
        (n_done == n).then(|| lengths.into_iter().max().unwrap_or(0))
    }

    /// Returns the length of the shortest text in characters; 0 if the automaton accepts no text.
    pub fn shortest(&self) -> u64 {
        let mut seen = vec![false; self.states.len()];
        let mut level = vec![0_usize];
        let mut n = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for at in level {
                if std::mem::replace(&mut seen[at], true) {
                    continue;
                }
                if self.states[at].accepts {
                    return n;
                }
                next.extend(self.states[at].edges.iter().map(|edge| edge.2 as usize));
            }
            level = next;
            n += 1;
        }
        0
    }

    /// Returns the automaton without its dead states, from which no text is accepted.
    pub fn trimmed(self) -> Self {
        let n = self.states.len();
        let before = Lists::of(n, || {
            let states = (0..).zip(&self.states);
            states.flat_map(|(at, state)| state.edges.iter().map(move |edge| (edge.2, at)))
        });
        let mut ends = vec![false; n];
        let mut to_do: Vec<u32> = (0..n as u32)
            .filter(|&at| self.states[at as usize].accepts)
            .collect();
        while let Some(at) = to_do.pop() {
            if !std::mem::replace(&mut ends[at as usize], true) {
                to_do.extend_from_slice(before.get(at));
            }
        }
        let mut numbers = vec![NOWHERE; n];
        let mut n_kept = 0;
        for at in 0..n {
            // The first state is kept, since there must be a start.
            if ends[at] || at == 0 {
                numbers[at] = n_kept;
                n_kept += 1;
            }
        }
        let mut states = Vec::with_capacity(n_kept as usize);
        for (at, mut state) in self.states.into_iter().enumerate() {
            if numbers[at] == NOWHERE {
                continue;
            }
            state.edges.retain(|edge| ends[edge.2 as usize]);
            state
                .edges
                .iter_mut()
                .for_each(|edge| edge.2 = numbers[edge.2 as usize]);
            states.push(state);
        }
        Self { states }
    }

    /// Returns the smallest automaton that accepts the same texts. Returns the
    /// [trimmed](Self::trimmed) automaton if finding the smallest would take too long.
    pub fn minimized(self, work: &Work) -> Self {
        const FEW: usize = 1 << 11;
        const MOST_ROUNDS: usize = 64;
        let dfa = self.trimmed();
        let n = dfa.states.len();
        if let Some(order) = dfa.ends_first() {
            return dfa.minimized_in(&order);
        }
        if n > FEW {
            return dfa;
        }
        let mut class: Vec<u32> = dfa.states.iter().map(|s| u32::from(s.accepts)).collect();
        let mut n_classes = 0;
        let n_edges: usize = dfa.states.iter().map(|state| 2 + state.edges.len()).sum();
        for _ in 0..MOST_ROUNDS.max(n.min(256)) {
            if work.spend(2 * n_edges).is_err() {
                return dfa;
            }
            let mut numbers: Map<(u32, Vec<Edge>), u32> = Map::default();
            let mut next = Vec::with_capacity(n);
            for (at, state) in dfa.states.iter().enumerate() {
                let edges = state.edges_to(|to| class[to as usize]);
                let number = numbers.len() as u32;
                next.push(*numbers.entry((class[at], edges)).or_insert(number));
            }
            class = next;
            if numbers.len() == n_classes {
                return Self::of_classes(&dfa, &class, n_classes);
            }
            n_classes = numbers.len();
        }
        dfa
    }

    /// Returns the states in reverse topological order, so each comes after all states that it
    /// leads to; `None` if there is a cycle. Edges of a state to itself do not count.
    fn ends_first(&self) -> Option<Vec<u32>> {
        let (mut order, mut is_done) = (Vec::new(), vec![false; self.states.len()]);
        let mut is_open = is_done.clone();
        let mut path = vec![(0_u32, 0)];
        while let Some((at, edge)) = path.last_mut() {
            let state = *at as usize;
            is_open[state] = true;
            let Some(&(_, _, to)) = self.states[state].edges.get(*edge) else {
                is_done[state] = true;
                order.push(*at);
                path.pop();
                continue;
            };
            *edge += 1;
            match to as usize {
                to if is_done[to] || to == state => {}
                to if is_open[to] => return None,
                _ => path.push((to, 0)),
            }
        }
        Some(order)
    }

    /// Returns the smallest automaton that accepts the same texts. `order` has the states in
    /// reverse topological order.
    fn minimized_in(&self, order: &[u32]) -> Self {
        const ITSELF: u32 = u32::MAX;
        let mut class = vec![0; self.states.len()];
        let mut numbers: Map<(bool, Vec<Edge>), u32> = Map::default();
        let mut n_classes = 0;
        for &at in order {
            let state = &self.states[at as usize];
            let edges = state.edges_to(|to| match to == at {
                true => ITSELF,
                false => class[to as usize],
            });
            let key = (state.accepts, edges);
            class[at as usize] = match numbers.get(&key) {
                Some(&known) => known,
                None => {
                    // A state that leads to this state wherever this state leads to itself is
                    // equivalent to it.
                    let itself = |(first, last, to)| match to {
                        ITSELF => (first, last, n_classes),
                        _ => (first, last, to),
                    };
                    let edges = key.1.iter().copied().map(itself).collect();
                    numbers.insert((state.accepts, edges), n_classes);
                    numbers.insert(key, n_classes);
                    n_classes += 1;
                    n_classes - 1
                }
            };
        }
        // Numbered in the order of their first occurrence.
        let mut new = vec![u32::MAX; n_classes as usize];
        let mut n = 0;
        for class in &mut class {
            let new = &mut new[*class as usize];
            if *new == u32::MAX {
                *new = n;
                n += 1;
            }
            *class = *new;
        }
        Self::of_classes(self, &class, n_classes as usize)
    }

    fn of_classes(dfa: &Self, class: &[u32], n_classes: usize) -> Self {
        let mut states: Vec<Option<State>> = vec![None; n_classes];
        for (at, state) in dfa.states.iter().enumerate() {
            let place = &mut states[class[at] as usize];
            if place.is_some() {
                continue;
            }
            *place = Some(State {
                accepts: state.accepts,
                edges: state.edges_to(|to| class[to as usize]),
            });
        }
        // The class of the first state was numbered first.
        Self {
            states: states.into_iter().flatten().collect(),
        }
    }
}

/// A shared automaton.
pub type Shared = Arc<Dfa>;
