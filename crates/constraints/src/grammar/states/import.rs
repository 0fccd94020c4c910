//! Copies a state from other tables.
//!
//! Copying is not charged, since finding the originals was. Unions during the copy are charged for
//! the whole state, however much of it was imported before.

// In bounds: numbers of states are positions in tables that only grow.

use super::{Edge, Found, State, StateId, States, TooMuch};
use crate::grammar::compiled::Compiled;
use crate::grammar::hash::Map;

impl States {
    /// Returns the state of these tables that has the stacks of the state `state` of `other`. For
    /// texts up to the maximum length of these tables, both states are equivalent. `other` must be
    /// the same tables until [`forget_imports`](Self::forget_imports) is called.
    pub fn import(
        &mut self,
        grammar: &Compiled,
        other: &Self,
        state: StateId,
    ) -> Result<StateId, TooMuch> {
        let mut pending = vec![state];
        while let Some(&from) = pending.last() {
            if self.imported.contains_key(&from) {
                pending.pop();
                continue;
            }
            let State { may_end, edges } = &other.all[from as usize];
            let n_pending = pending.len();
            let below = edges.iter().map(|edge| edge.below);
            pending.extend(below.filter(|to| !self.imported.contains_key(to)));
            if pending.len() > n_pending {
                continue;
            }
            let budget = self.budget;
            let mut cost = 0_u64;
            let mut moved = Vec::with_capacity(edges.len());
            for edge in edges.iter() {
                let Found {
                    state: below,
                    cost: of_below,
                } = self.imported[&edge.below];
                cost = cost.saturating_add(of_below);
                let mut sequence = edge.sequence;
                if sequence as usize >= grammar.rules.sequences.len() {
                    sequence = self.counted_from(grammar, other, sequence);
                }
                moved.push(Edge { sequence, below });
            }
            moved.sort_unstable();
            self.budget = budget;
            if self.most_rounds != other.most_rounds {
                // Counts that differ in the other tables may both be unbounded in these.
                let bound = self.budget.bound();
                moved = self.united(grammar, moved)?;
                cost = cost.saturating_add(self.budget.bound() - bound);
            }
            let budget = self.budget;
            let state = self.numbered(grammar, *may_end, &moved);
            self.imported.insert(from, Found { state, cost });
            self.grow(size_of::<(StateId, Found)>() + 8);
            self.budget = budget;
            pending.pop();
        }
        let Found { state, cost } = self.imported[&state];
        self.budget.charge(cost);
        self.budget.check()?;
        Ok(state)
    }

    /// Returns the edges in order, with edges of equal sequences united. They must ascend.
    pub(super) fn united(
        &mut self,
        grammar: &Compiled,
        edges: Vec<Edge>,
    ) -> Result<Vec<Edge>, TooMuch> {
        let mut united = Vec::with_capacity(edges.len());
        for same in edges.chunk_by(|a, b| a.sequence == b.sequence) {
            let below = self.union_of(grammar, same)?;
            united.push(Edge { below, ..same[0] });
        }
        self.merge_counts(grammar, &mut united);
        Ok(united)
    }

    /// Forgets the imported states. Must be called before states are imported from other tables.
    pub fn forget_imports(&mut self) {
        self.imported = Map::default();
    }
}
