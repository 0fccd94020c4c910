//! Turns an open state into a closed one by an epsilon closure: follows references until all tops
//! are characters or tokens.
//!
//! ```text
//! close(edges):                       found = {}
//!   for each edge (sequence, below):
//!     a character or token first      found += edge
//!     a rule first                    for each alternative of it:
//!                                       close (alternative, below with the rest on top)
//!     nothing left                    found += closed(below)      # a *pop*
//! ```
//!
//! The result of a pop depends only on the state below, so it is computed once, by a separate
//! closure. A character that closes a thousand levels thus takes one step, if the closed form of
//! the state below the last level is known. The exception is a state that the current closure
//! itself has pushed. It was reached by an empty text, possibly in a cycle, so the current closure
//! follows its edges.

// In bounds: numbers of states are positions in tables that only grow.

use super::{Edge, Found, State, StateId, States, TooMuch};
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{EMPTY, ENDLESS, Element};
use crate::grammar::hash::Set;
use crate::grammar::limits::MAX_STEP;

/// Marks, in the set of visited edges, a state that this closure has pushed.
const PUSHED: u32 = u32::MAX;
/// Marks, in the set of visited edges, a state to which an empty round adds nothing.
const NEXT_ROUND: u32 = u32::MAX - 1;
/// Marks, in the set of visited edges, a state whose closure the current closure has waited for.
const WAITED_FOR: u32 = u32::MAX - 2;
/// The steps of a pop, in addition to those of the closure that it waits for.
const POP: u64 = 4;
/// The maximum number of closures whose buffers are kept.
const MOST_KEPT: usize = 32;

/// A stack of closures, each of which waits for the next, up to the innermost at `top`. Reusable
/// buffers follow.
#[derive(Debug, Default)]
pub(super) struct Closures {
    all: Vec<Closure>,
    /// The index of the innermost closure.
    top: usize,
}

#[derive(Debug, Default)]
struct Closure {
    /// The open state that is being closed.
    of: StateId,
    /// The bound of the budget when the closure began.
    bound: u64,
    to_do: Vec<Edge>,
    seen: Set<Edge>,
    found: Vec<Edge>,
    may_end: bool,
    /// The number of edges so far.
    n_edges: usize,
}

impl Closures {
    fn begin(&mut self, of: StateId, bound: u64) {
        if self.all.len() <= self.top {
            self.all.resize_with(self.top + 1, Closure::default);
        }
        let closure = &mut self.all[self.top];
        closure.of = of;
        closure.bound = bound;
        closure.to_do.clear();
        closure.seen.clear();
        closure.found.clear();
        closure.may_end = false;
        closure.n_edges = 0;
    }

    fn innermost(&mut self) -> &mut Closure {
        &mut self.all[self.top]
    }
}

impl States {
    /// Begins a closure. Edges are then added by [`enter`](Self::enter).
    pub(super) fn begin_closure(&mut self) {
        self.closures.top = 0;
        self.closures.all.truncate(MOST_KEPT);
        self.closures.begin(super::NONE, 0);
    }

    /// Adds an edge to the closure: a sequence with the stacks below it.
    pub(super) fn enter(&mut self, sequence: u32, below: StateId) -> Result<(), TooMuch> {
        self.count_edges(1)?;
        let closure = self.closures.innermost();
        closure.to_do.push(Edge { sequence, below });
        Ok(())
    }

    /// Counts edges before they are stored.
    fn count_edges(&mut self, n: usize) -> Result<(), TooMuch> {
        let closure = self.closures.innermost();
        closure.n_edges += n;
        if closure.n_edges > MAX_STEP {
            return Err(TooMuch);
        }
        self.spend(n + 1)
    }

    /// Returns the closed state of all entered edges.
    pub(super) fn close(&mut self, grammar: &Compiled) -> Result<StateId, TooMuch> {
        loop {
            let Some(edge) = self.closures.innermost().to_do.pop() else {
                let state = self.gathered(grammar)?;
                if self.closures.top == 0 {
                    return Ok(state);
                }
                self.keep_closed(state);
                continue;
            };
            if edge.sequence == EMPTY {
                self.pop(edge)?;
                continue;
            }
            let Some(first) = self.first(grammar, edge.sequence) else {
                continue;
            };
            let closure = self.closures.innermost();
            match first.item {
                Element::Rule(_)
                | Element::Repeat(_)
                | Element::Unordered(_)
                | Element::Occurred(_)
                    if !closure.seen.insert(edge) => {}
                Element::Rule(rule) => {
                    let below = self.push(grammar, first.rest, edge.below)?;
                    for &alternative in grammar.alternatives(rule) {
                        self.enter(alternative, below)?;
                    }
                }
                Element::Repeat(repeat) => self.rounds(grammar, edge, repeat, first.rest)?,
                Element::Unordered(list) => self.items(grammar, edge, list, first.rest)?,
                Element::Occurred(item) => {
                    let below = self.with_item(grammar, item, edge.below)?;
                    self.enter(first.rest, below)?;
                }
                _ => closure.found.push(edge),
            }
        }
    }

    /// Returns the state below an alternative: `rest` on top of `below`.
    fn push(&mut self, grammar: &Compiled, rest: u32, below: StateId) -> Result<StateId, TooMuch> {
        if rest == EMPTY {
            return Ok(below);
        }
        let state = self.above(grammar, rest, below);
        self.budget.check()?;
        self.see(PUSHED, state);
        Ok(state)
    }

    fn see(&mut self, sequence: u32, below: StateId) -> bool {
        let closure = self.closures.innermost();
        closure.seen.insert(Edge { sequence, below })
    }

    /// Follows both options of a counted repetition: it ends, or begins another round.
    fn rounds(
        &mut self,
        grammar: &Compiled,
        edge: Edge,
        repeat: u32,
        rest: u32,
    ) -> Result<(), TooMuch> {
        let Some(repeat) = grammar.rules.repeats.get(repeat as usize) else {
            return Ok(());
        };
        let (sequence, mut min, max) = self.counts_of(grammar, edge.sequence);
        let may_be_empty = grammar.rules.may_be_empty(repeat.item);
        if may_be_empty {
            // The required rounds can all be empty.
            min = 0;
        }
        if min == 0 {
            self.enter(rest, edge.below)?;
        }
        let left = match max {
            0 => return Ok(()),
            ENDLESS => ENDLESS,
            rounds => rounds - 1,
        };
        let next = match left {
            0 => self.push(grammar, rest, edge.below)?,
            _ => {
                let sequence = self.counted(grammar, sequence, min.saturating_sub(1), left);
                let state = self.above(grammar, sequence, edge.below);
                self.budget.check()?;
                if may_be_empty {
                    self.see(NEXT_ROUND, state);
                }
                state
            }
        };
        self.enter(repeat.item, next)
    }

    /// Follows all options of an unordered list: it ends, or goes on with a separator or an item.
    fn items(
        &mut self,
        grammar: &Compiled,
        edge: Edge,
        list: u32,
        rest: u32,
    ) -> Result<(), TooMuch> {
        let Some(list) = grammar.rules.unordered.get(list as usize) else {
            return Ok(());
        };
        let (sequence, position, _) = self.counts_of(grammar, edge.sequence);
        let mut position = self.position(position).clone();
        if list.may_end(&position) {
            self.enter(rest, edge.below)?;
        }
        // All items follow one separator, which often ends with counted white space.
        let needs_separator = position.has_begun && !position.is_separated;
        position.is_separated = needs_separator;
        position.has_begun = true;
        if needs_separator && list.next(&position).next().is_none() {
            return Ok(());
        }
        let number = self.position_number(&position);
        let next = self.counted(grammar, sequence, number, 0);
        let next = self.above(grammar, next, edge.below);
        self.budget.check()?;
        if needs_separator {
            return self.enter(list.separator, next);
        }
        list.next(&position)
            .try_for_each(|&item| self.enter(item, next))
    }

    /// Returns the state after the item at the index `item` of an unordered list, which occurs at
    /// most once: `state`, with the item marked in the position of each list on top.
    fn with_item(
        &mut self,
        grammar: &Compiled,
        item: u32,
        state: StateId,
    ) -> Result<StateId, TooMuch> {
        let mut edges = self.edges(state).to_vec();
        self.spend(edges.len())?;
        for edge in &mut edges {
            let (sequence, position, _) = self.counts_of(grammar, edge.sequence);
            let mut position = self.position(position).clone();
            position.add(item as usize);
            let number = self.position_number(&position);
            edge.sequence = self.counted(grammar, sequence, number, 0);
        }
        edges.sort_unstable();
        let edges = self.united(grammar, edges)?;
        let state = self.numbered(grammar, false, &edges);
        self.budget.check()?;
        Ok(state)
    }

    /// Adds the edges of the closed form of the state below.
    fn pop(&mut self, edge: Edge) -> Result<(), TooMuch> {
        let below = edge.below;
        if !self.see(edge.sequence, below) {
            return Ok(());
        }
        let State { may_end, edges } = self.all[below as usize].clone();
        let closure = self.closures.innermost();
        let was_seen = |sequence| closure.seen.contains(&Edge { sequence, below });
        if was_seen(NEXT_ROUND) {
            // The previous round has all options of this round.
            return Ok(());
        }
        if edges.is_empty() || was_seen(PUSHED) {
            closure.may_end |= may_end;
            self.count_edges(edges.len())?;
            self.closures.innermost().to_do.extend_from_slice(&edges);
            return Ok(());
        }
        if let Some(&Found { state, cost }) = self.closed.get(&below) {
            if !was_seen(WAITED_FOR) {
                self.budget.charge(cost);
            }
            let State { may_end, edges } = self.all[state as usize].clone();
            self.count_edges(edges.len())?;
            let closure = self.closures.innermost();
            closure.may_end |= may_end;
            closure.found.extend_from_slice(&edges);
            return Ok(());
        }
        // Closes the state below first, and then tries this edge again.
        closure.seen.remove(&edge);
        closure.to_do.push(edge);
        self.see(WAITED_FOR, below);
        self.closures.top += 1;
        let bound = self.budget.bound();
        self.closures.begin(below, bound);
        self.closures.innermost().may_end = may_end;
        self.count_edges(edges.len())?;
        self.closures.innermost().to_do.extend_from_slice(&edges);
        Ok(())
    }

    /// Stores the result of the innermost closure, and continues the closure that waits for it.
    fn keep_closed(&mut self, state: StateId) {
        let closure = self.closures.innermost();
        let (of, bound) = (closure.of, closure.bound);
        self.closures.top -= 1;
        self.grow(size_of::<(StateId, Found)>() + 8);
        let cost = self.budget.bound() - bound + POP;
        self.closed.insert(of, Found { state, cost });
    }

    /// Returns the state with all tops that the closure has found.
    fn gathered(&mut self, grammar: &Compiled) -> Result<StateId, TooMuch> {
        let closure = self.closures.innermost();
        let may_end = closure.may_end;
        let mut found = std::mem::take(&mut closure.found);
        found.sort_unstable();
        found.dedup();
        let mut tops = Vec::with_capacity(found.len());
        for same in found.chunk_by(|a, b| a.sequence == b.sequence) {
            let below = self.union_of(grammar, same)?;
            tops.push(Edge { below, ..same[0] });
        }
        let state = self.numbered(grammar, may_end, &tops);
        self.closures.innermost().found = found;
        self.budget.check()?;
        Ok(state)
    }
}
