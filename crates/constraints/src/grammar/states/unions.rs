//! Makes the union of states: the state with the stacks of all of them.

// In bounds: numbers of states are positions in tables that only grow.

use super::budget::BYTES_OF_A_STEP;
use super::{Edge, Found, NONE, StateId, States, TooMuch};
use crate::grammar::compiled::Compiled;

/// The maximum number of levels that are searched to find out whether one state can become another
/// without accepting a character.
const MOST_LEVELS: usize = 16;

impl States {
    /// Returns the state with the stacks below all these edges. States are united in pairs, then
    /// the results in pairs. If they were united one after the other, each stack would be copied
    /// for every later edge.
    pub(super) fn union_of(
        &mut self,
        grammar: &Compiled,
        edges: &[Edge],
    ) -> Result<StateId, TooMuch> {
        if let [only] = edges {
            return Ok(only.below);
        }
        let mut states: Vec<StateId> = edges.iter().map(|edge| edge.below).collect();
        if states.len() > 2 {
            // Sorted by identity, since the pairing may affect the amount of work, and the ids of
            // states depend on earlier queries.
            states.sort_unstable_by_key(|&state| self.identity(state));
        }
        while states.len() > 1 {
            let n_pairs = states.len().div_ceil(2);
            for i in 0..n_pairs {
                states[i] = match states.get(2 * i + 1) {
                    Some(&other) => self.union(grammar, states[2 * i], other)?,
                    None => states[2 * i],
                };
            }
            states.truncate(n_pairs);
        }
        Ok(states.first().copied().unwrap_or(NONE))
    }

    /// Returns the state with the stacks of both states. Not recursive, since stacks may be deep.
    pub(super) fn union(
        &mut self,
        grammar: &Compiled,
        a: StateId,
        b: StateId,
    ) -> Result<StateId, TooMuch> {
        if let Some(found) = self.known_union(a, b) {
            self.budget.charge(found.cost);
            return Ok(found.state);
        }
        // Pairs to unite, each with true if the unions that it waits for have begun.
        let mut pending = vec![(a, b, false)];
        while let Some(&(a, b, has_waited)) = pending.last() {
            if self.known_union(a, b).is_some() {
                pending.pop();
                continue;
            }
            let bound = self.budget.bound();
            if let Some(wider) = self.wider_of(grammar, a, b)? {
                self.keep_union(a, b, wider, self.budget.bound() - bound)?;
                pending.pop();
                continue;
            }
            let n_pending = pending.len();
            let (left, right) = (self.all[a as usize].clone(), self.all[b as usize].clone());
            let n_edges = left.edges.len() + right.edges.len();
            self.spend(n_edges + 1)?;
            let cost_of_a_look = self.budget.bound() - bound;
            let mut merged = Vec::with_capacity(n_edges);
            let mut cost_of_known = 0;
            let (mut i, mut j) = (0, 0);
            while let (Some(&x), Some(&y)) = (left.edges.get(i), right.edges.get(j)) {
                i += usize::from(x.sequence <= y.sequence);
                j += usize::from(y.sequence <= x.sequence);
                if x.sequence != y.sequence {
                    merged.push(x.min(y));
                    continue;
                }
                match self.known_union(x.below, y.below) {
                    Some(found) => {
                        cost_of_known += found.cost;
                        let below = found.state;
                        merged.push(Edge { below, ..x });
                    }
                    None => pending.push((x.below, y.below, false)),
                }
            }
            if !has_waited {
                // After waiting, the known unions have been charged already.
                self.budget.charge(cost_of_known);
            }
            if pending.len() > n_pending {
                pending[n_pending - 1].2 = true;
                continue;
            }
            merged.extend_from_slice(&left.edges[i..]);
            merged.extend_from_slice(&right.edges[j..]);
            let bound = self.budget.bound();
            self.merge_counts(grammar, &mut merged);
            let state = self.numbered(grammar, left.may_end || right.may_end, &merged);
            // A pair that waits is looked at twice.
            let own = self.budget.bound() - bound + 2 * cost_of_a_look;
            self.keep_union(a, b, state, own.saturating_add(cost_of_known))?;
            pending.pop();
        }
        self.known_union(a, b)
            .map(|found| found.state)
            .ok_or(TooMuch)
    }

    /// Stores a union with its cost, to which the memory of the entry is added.
    fn keep_union(
        &mut self,
        a: StateId,
        b: StateId,
        state: StateId,
        cost: u64,
    ) -> Result<(), TooMuch> {
        let bytes = size_of::<((StateId, StateId), Found)>() + 8;
        self.grow(bytes);
        let cost = cost.saturating_add((bytes / BYTES_OF_A_STEP) as u64);
        self.unions
            .insert((a.min(b), a.max(b)), Found { state, cost });
        self.budget.check()
    }

    fn known_union(&self, a: StateId, b: StateId) -> Option<Found> {
        let known = |state| Found { state, cost: 0 };
        if a == b || b == NONE {
            return Some(known(a));
        }
        if a == NONE {
            return Some(known(b));
        }
        self.unions.get(&(a.min(b), a.max(b))).copied()
    }

    /// If one of two states can become the other without accepting a character, returns the former.
    /// Its stacks suffice for the union. Without this, a text that opens a thousand optional ends
    /// would have a thousand stacks, one for each number of omitted ends.
    fn wider_of(
        &mut self,
        grammar: &Compiled,
        a: StateId,
        b: StateId,
    ) -> Result<Option<StateId>, TooMuch> {
        if self.turns_into(grammar, a, b)? {
            return Ok(Some(a));
        }
        Ok(self.turns_into(grammar, b, a)?.then_some(b))
    }

    fn turns_into(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        other: StateId,
    ) -> Result<bool, TooMuch> {
        for _ in 0..MOST_LEVELS {
            self.budget.spend(self.edges(state).len() as u64)?;
            let mut only = None;
            for edge in self.edges(state) {
                if !self.may_be_empty(grammar, edge.sequence) {
                    continue;
                }
                if edge.below == other {
                    return Ok(true);
                }
                if only.replace(edge.below).is_some() {
                    return Ok(false);
                }
            }
            let Some(next) = only else {
                return Ok(false);
            };
            state = next;
        }
        Ok(false)
    }
}
