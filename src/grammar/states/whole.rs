//! What takes a look at all stacks of a state, not only at their tops.

#![expect(
    clippy::indexing_slicing,
    reason = "numbers of states are positions in tables that only grow"
)]

use super::{Edge, State, StateId, States};
use crate::grammar::hash::Map;

impl States {
    /// The most stacks that a state has of those that texts have led to.
    pub fn most_stacks(&self) -> u64 {
        let mut counts: Vec<u64> = Vec::with_capacity(self.all.len());
        let mut most = 0;
        // What lies below a state was numbered before it.
        for (state, facts) in self.all.iter().zip(&self.facts) {
            let below = state.edges.iter().map(|edge| counts[edge.below as usize]);
            let count = below.fold(u64::from(state.may_end), u64::saturating_add);
            counts.push(count);
            if facts.is_some() {
                most = count.max(most);
            }
        }
        most
    }

    /// The state of these tables that has the same stacks as `state` of `other`.
    pub fn import(&mut self, other: &Self, state: StateId) -> StateId {
        let mut numbers: Map<StateId, StateId> = Map::default();
        let mut pending = vec![state];
        while let Some(&from) = pending.last() {
            if numbers.contains_key(&from) {
                pending.pop();
                continue;
            }
            let State { may_end, edges } = &other.all[from as usize];
            let n_pending = pending.len();
            pending.extend(
                edges
                    .iter()
                    .map(|edge| edge.below)
                    .filter(|to| !numbers.contains_key(to)),
            );
            if pending.len() > n_pending {
                continue;
            }
            let edges: Vec<Edge> = edges
                .iter()
                .map(|edge| Edge {
                    below: numbers[&edge.below],
                    ..*edge
                })
                .collect();
            numbers.insert(from, self.numbered(*may_end, &edges));
            pending.pop();
        }
        numbers[&state]
    }
}
