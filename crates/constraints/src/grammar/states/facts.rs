//! Computes and caches facts about a state: the characters that it accepts, whether it has token
//! elements, and the texts that it accepts because all their characters are of certain kinds.

// In bounds: numbers of states are positions in tables that only grow.

use std::sync::Arc;

use super::{Edge, NONE, StateId, States, TooMuch};
use crate::grammar::compiled::{Compiled, MOST_BEYOND};
use crate::grammar::elements::{EMPTY, Element, Sequence};
use crate::grammar::nodes::{CONTROLS, CharSet, Kinds, Summary};

/// The minimum number of characters that a state must accept for `uniform` to be searched for.
/// Fewer are not worth the search.
const FEWEST_UNIFORM: u32 = 8;
/// Marks a state without a row.
pub(super) const NO_ROW: u32 = u32::MAX;

/// Cached facts about a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The offset of the state's row of transitions.
    pub(super) row: u32,
    /// The last walk that was charged for the facts.
    walk: u32,
    /// The characters that the classes on top accept.
    cover: CharSet,
    /// Kinds whose characters all lead to one state, and that state; `None` before the first query.
    uniform: Option<(Kinds, StateId)>,
    /// The last walk that was charged for `uniform`.
    uniform_walk: u32,
    /// The known steps by characters of `uniform`'s kinds.
    pub(super) run: Run,
    /// The repetition in progress that one of the tops belongs to, if there is one.
    rounds: Option<Rounds>,
    /// True if a top is a token.
    has_tokens: bool,
    /// True if `cover` and `has_tokens` are known.
    is_known: bool,
    /// An upper bound on the steps of finding all stored facts, including transitions.
    cost: u64,
}

/// A counted repetition that is in progress in a state. Its item is a class, or has a class among
/// its alternatives.
#[derive(Clone, Copy, Debug)]
struct Rounds {
    /// The sequence that begins with the class.
    class: u32,
    /// The grammar's sequence that begins with the repetition, and the stacks below it.
    repetition: Edge,
    /// The kinds of characters that the class contains entirely.
    kinds: Kinds,
    /// The number of rounds left, including the current one; `u32::MAX` if unbounded.
    left: u32,
    /// True if no round is required, the item does not match the empty text, and no other top
    /// accepts any of the class's characters.
    is_alone: bool,
}

/// A number of steps by characters of the same kinds, and the state that they lead to. It is stored
/// for each state along the way. Without it, long texts would take time quadratic in their length.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Run {
    pub(super) steps: u32,
    end: StateId,
    /// The walk that was charged for all states along the way. Only that walk may use the run.
    walk: u32,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            row: NO_ROW,
            walk: 0,
            cover: 0,
            uniform: None,
            uniform_walk: 0,
            run: Run::default(),
            rounds: None,
            has_tokens: false,
            is_known: false,
            cost: 0,
        }
    }
}

impl States {
    /// Charges for the stored facts of a state, once per walk, and finds the facts if they are not
    /// known. Must be called before the facts are used.
    #[inline]
    pub(super) fn touch(&mut self, grammar: &Compiled, state: StateId) -> Result<(), TooMuch> {
        let facts = &mut self.facts[state as usize];
        if facts.walk == self.walk {
            return Ok(());
        }
        facts.walk = self.walk;
        let (cost, is_known) = (facts.cost, facts.is_known);
        self.budget.charge(cost);
        if !is_known {
            self.on_account(state, |states| states.find_facts(grammar, state))?;
        }
        self.budget.check()
    }

    /// Runs `body`, and adds its cost to that of the state's facts.
    pub(super) fn on_account<T>(
        &mut self,
        state: StateId,
        body: impl FnOnce(&mut Self) -> Result<T, TooMuch>,
    ) -> Result<T, TooMuch> {
        let bound = self.budget.bound();
        let result = body(self);
        let cost = self.budget.bound() - bound;
        let facts = &mut self.facts[state as usize];
        facts.cost = facts.cost.saturating_add(cost);
        result
    }

    #[cold]
    fn find_facts(&mut self, grammar: &Compiled, state: StateId) -> Result<(), TooMuch> {
        let (mut cover, mut has_tokens) = (0, false);
        let (mut is_shared, mut rounds) = (0, None::<(Rounds, CharSet)>);
        self.spend(self.edges(state).len())?;
        for &edge in self.all[state as usize].edges.iter() {
            if let Some(first) = grammar.first(edge.sequence) {
                let own = grammar.cover(first.item);
                is_shared |= cover & own;
                cover |= own;
                has_tokens |= matches!(first.item, Element::Token(_) | Element::TokenNot(_));
                rounds = rounds.or_else(|| Some((self.rounds_of(grammar, edge)?, own)));
            }
        }
        let facts = &mut self.facts[state as usize];
        (facts.cover, facts.has_tokens, facts.is_known) = (cover, has_tokens, true);
        facts.rounds = rounds.map(|(rounds, own)| Rounds {
            is_alone: rounds.is_alone && own & is_shared == 0,
            ..rounds
        });
        Ok(())
    }

    /// Returns the repetition that a top is part of, if its item, or an alternative of its item, is
    /// the class on top.
    fn rounds_of(&self, grammar: &Compiled, edge: Edge) -> Option<Rounds> {
        /// The maximum number of alternatives that are searched for the class.
        const FEW: usize = 16;
        let first = grammar.first(edge.sequence)?;
        let kinds = grammar.kinds(first.item);
        let [below] = *self.edges(edge.below) else {
            return None;
        };
        if kinds.is_empty() || first.rest != EMPTY {
            return None;
        }
        let Element::Repeat(repeat) = self.first(grammar, below.sequence)?.item else {
            return None;
        };
        let item = grammar.rules.repeats.get(repeat as usize)?.item;
        let alternatives = match grammar.first(item)? {
            Sequence {
                item: Element::Rule(rule),
                rest: EMPTY,
            } => grammar.alternatives(rule),
            _ => &[item],
        };
        let is_round = alternatives.len() <= FEW && alternatives.contains(&edge.sequence);
        let (sequence, min, max) = self.counts_of(grammar, below.sequence);
        (is_round && !self.may_end(edge.below)).then_some(Rounds {
            class: edge.sequence,
            repetition: Edge { sequence, ..below },
            kinds,
            left: max.saturating_add(1),
            is_alone: min == 0 && !grammar.rules.may_be_empty(item),
        })
    }

    /// Returns the characters that any top accepts. Bit 0 is set if a character beyond ASCII, or
    /// part of one, may be accepted.
    pub fn cover(&mut self, grammar: &Compiled, state: StateId) -> Result<CharSet, TooMuch> {
        self.touch(grammar, state)?;
        Ok(self.facts[state as usize].cover)
    }

    /// True if a top is a token element.
    pub fn has_tokens(&mut self, grammar: &Compiled, state: StateId) -> Result<bool, TooMuch> {
        self.touch(grammar, state)?;
        Ok(self.facts[state as usize].has_tokens)
    }

    /// True only if every text with the summary `texts` is accepted. May return false even then,
    /// more often if `finds_out` is not set.
    #[inline]
    pub fn takes_all(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        texts: Summary,
        finds_out: bool,
    ) -> Result<bool, TooMuch> {
        let mut taken = 0;
        // The state at the start of the current run, the steps before it, and its kinds.
        let mut began = (state, taken, None);
        let all = loop {
            self.touch(grammar, state)?;
            if let Some(Rounds { kinds, left, .. }) = self.facts[state as usize].rounds
                && texts.kinds.is_within(kinds)
                && texts.height.map_or(u32::MAX, |height| height - taken) <= left
            {
                break true;
            }
            // A result that only an earlier walk was charged for counts as unknown.
            if self.facts[state as usize].uniform_walk != self.walk && !finds_out {
                break false;
            }
            let (kinds, next) = self.uniform(grammar, state)?;
            if !texts.kinds.is_within(kinds) {
                break false;
            }
            if began.2 != Some(kinds) {
                self.remember_run(began.0, state, taken - began.1);
                began = (state, taken, Some(kinds));
            }
            let run = self.facts[state as usize].run;
            let (steps, end) = match run.walk == self.walk {
                true => (run.steps, run.end),
                false => (1, next),
            };
            taken += steps;
            if next == state || texts.height.is_some_and(|height| height <= taken) {
                state = end;
                break true;
            }
            if texts.height.is_none() {
                return Ok(false);
            }
            state = end;
        };
        self.remember_run(began.0, state, taken - began.1);
        Ok(all)
    }

    /// True only if no control character is accepted after any text with the summary `texts`. May
    /// return false even then, more often if `finds_out` is not set.
    pub fn leads_to_no_control(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        texts: Summary,
        finds_out: bool,
    ) -> Result<bool, TooMuch> {
        let mut taken = 0;
        loop {
            self.touch(grammar, state)?;
            let facts = self.facts[state as usize];
            if facts.has_tokens || facts.cover & CONTROLS != 0 {
                return Ok(false);
            }
            if let Some(next) = self.next_round(grammar, state, texts.kinds)? {
                return Ok(self.facts[next as usize].cover & CONTROLS == 0);
            }
            if facts.uniform_walk != self.walk && !finds_out {
                return Ok(false);
            }
            let (kinds, next) = self.uniform(grammar, state)?;
            if !texts.kinds.is_within(kinds) {
                return Ok(false);
            }
            if next == state || texts.height == Some(taken) {
                return Ok(true);
            }
            taken += 1;
            state = next;
        }
    }

    /// Returns the greatest length up to which all texts with the summary `texts` are accepted, if
    /// no longer texts are accepted. Returns `None` if there is no such length, or if finding it
    /// would take too long.
    pub fn longest_taken(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        texts: Summary,
    ) -> Result<Option<usize>, TooMuch> {
        self.touch(grammar, state)?;
        let facts = &self.facts[state as usize];
        let is_endless = facts.rounds.is_none_or(|rounds| rounds.left == u32::MAX);
        if is_endless || facts.has_tokens {
            return Ok(None);
        }
        let Some(next) = self.next_round(grammar, state, texts.kinds)? else {
            return Ok(None);
        };
        let (n, end) = self.go_on(grammar, next, usize::MAX)?;
        self.touch(grammar, end)?;
        let facts = &self.facts[end as usize];
        let is_end = !facts.has_tokens && facts.cover & texts.kinds.characters() == 0;
        Ok(is_end.then_some(1 + n))
    }

    /// Returns the number of consecutive characters of the kinds `kind` that are accepted, at most
    /// `most`, and the state after them. If the number is less than `most`, that state is not known
    /// to accept all characters of these kinds, or has token elements.
    pub fn run(
        &mut self,
        grammar: &Compiled,
        mut state: StateId,
        kind: Kinds,
        most: usize,
    ) -> Result<(usize, StateId), TooMuch> {
        let mut n = 0;
        while n < most {
            self.touch(grammar, state)?;
            if self.facts[state as usize].has_tokens {
                break;
            }
            if let Some(next) = self.next_round(grammar, state, kind)? {
                let (rounds, end) = self.go_on(grammar, next, most - n - 1)?;
                (n, state) = (n + 1 + rounds, end);
                continue;
            }
            let (kinds, next) = self.uniform(grammar, state)?;
            if !kind.is_within(kinds) {
                break;
            }
            (n, state) = (n + 1, next);
        }
        Ok((n, state))
    }

    /// Returns the state that every character of these kinds leads to, if such characters only
    /// begin another round of one repetition, now and in each later round. The tops then stay the
    /// same from round to round, until no further round is left.
    fn next_round(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        kinds: Kinds,
    ) -> Result<Option<StateId>, TooMuch> {
        let of = |facts: Facts| facts.rounds.filter(|rounds| rounds.is_alone);
        let Some(rounds) = of(self.facts[state as usize]) else {
            return Ok(None);
        };
        let class = grammar.first(rounds.class).map(|first| first.item);
        if !kinds.is_within(rounds.kinds) || class.is_none() {
            return Ok(None);
        }
        let cover = class.map_or(0, |class| grammar.cover(class)) & !1;
        let next = self.step(grammar, state, grammar.group(cover.trailing_zeros()))?;
        self.touch(grammar, next)?;
        let facts = self.facts[next as usize];
        let goes_on = of(facts)
            .is_some_and(|next| (next.class, next.repetition) == (rounds.class, rounds.repetition));
        Ok((goes_on && !facts.has_tokens).then_some(next))
    }

    /// Makes at most `most` rounds from a state that [`next_round`](Self::next_round) returned.
    /// Returns their number, and the state after them.
    fn go_on(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        most: usize,
    ) -> Result<(usize, StateId), TooMuch> {
        let Some(Rounds {
            left, repetition, ..
        }) = self.facts[state as usize].rounds
        else {
            return Ok((0, state));
        };
        let n = u32::try_from(most).map_or(left, |most| most.min(left));
        if n == 0 || left == u32::MAX {
            return Ok((n as usize, state));
        }
        let sequence = self.counted(grammar, repetition.sequence, 0, left - n);
        self.begin_closure();
        self.enter(sequence, repetition.below)?;
        Ok((n as usize, self.close(grammar)?))
    }

    /// Stores the run to `end` for `state`, from which it is `steps` steps away, and for all states
    /// between them.
    fn remember_run(&mut self, mut state: StateId, end: StateId, mut steps: u32) {
        while steps > 1 {
            let facts = &mut self.facts[state as usize];
            let known = match (facts.run.walk == self.walk, facts.uniform) {
                (true, _) => facts.run,
                (false, Some((_, end))) => Run {
                    steps: 1,
                    end,
                    walk: 0,
                },
                (false, None) => return,
            };
            if known.steps >= steps {
                // This also ends a cycle, when the loop reaches a run that was just stored.
                return;
            }
            let walk = self.walk;
            facts.run = Run { steps, end, walk };
            steps -= known.steps;
            state = known.end;
        }
    }

    /// Returns the largest set of kinds whose characters all lead to one state, and that state.
    #[inline]
    fn uniform(&mut self, grammar: &Compiled, state: StateId) -> Result<(Kinds, StateId), TooMuch> {
        let facts = &mut self.facts[state as usize];
        if let Some(uniform) = facts.uniform {
            facts.uniform_walk = self.walk;
            return Ok(uniform);
        }
        self.on_account(state, |states| states.find_uniform(grammar, state))
    }

    /// Computes and stores the result of [`uniform`](Self::uniform).
    #[cold]
    fn find_uniform(
        &mut self,
        grammar: &Compiled,
        state: StateId,
    ) -> Result<(Kinds, StateId), TooMuch> {
        let cover = self.facts[state as usize].cover;
        let mut sets: Vec<(StateId, CharSet)> = Vec::new();
        if cover.count_ones() >= FEWEST_UNIFORM {
            self.step_all(grammar, state, &mut sets)?;
            if let Some(next) = self.beyond_ascii(grammar, state)?
                && let Some((_, set)) = sets.iter_mut().find(|(state, _)| *state == next)
            {
                *set |= 1;
            }
            sets.retain(|&(next, _)| next != NONE);
        }
        let largest = sets.into_iter().max_by_key(|(_, set)| set.count_ones());
        let best = largest.map_or((Kinds::default(), NONE), |(next, set)| {
            (Kinds::within(set), next)
        });
        let facts = &mut self.facts[state as usize];
        (facts.uniform, facts.uniform_walk) = (Some(best), self.walk);
        Ok(best)
    }

    /// Makes a step by each group of ASCII characters that may be accepted. Adds the states that
    /// they lead to, each with its characters.
    fn step_all(
        &mut self,
        grammar: &Compiled,
        state: StateId,
        sets: &mut Vec<(StateId, CharSet)>,
    ) -> Result<(), TooMuch> {
        let edges = Arc::clone(&self.all[state as usize].edges);
        let items = edges.iter().map(|edge| grammar.first(edge.sequence));
        let covers = items.map(|first| first.map_or(0, |first| grammar.cover(first.item)));
        let covers: Vec<CharSet> = covers.collect();
        // The sets of tops that accept some characters, each with the state that they lead to and
        // the cost of finding it.
        let mut known: Vec<(CharSet, StateId, u64)> = Vec::new();
        for (group, set) in grammar.ascii_groups() {
            if set & self.facts[state as usize].cover == 0 {
                continue;
            }
            let bits = covers.iter().map(|cover| cover >> set.trailing_zeros() & 1);
            let tops = (covers.len() <= CharSet::BITS as usize)
                .then(|| bits.rev().fold(0, |tops, bit| tops << 1 | bit));
            let same = known.iter().find(|known| Some(known.0) == tops);
            let next = match same {
                Some(&(_, next, cost)) if !self.transitions.is_empty() => {
                    // Charged as if it had not been known.
                    self.budget.charge(cost);
                    let row = self.row(grammar, state)?;
                    self.transitions[row + group as usize] = next;
                    next
                }
                _ => {
                    let bound = self.budget.bound();
                    let next = self.step(grammar, state, group)?;
                    known.extend(tops.map(|tops| (tops, next, self.budget.bound() - bound)));
                    next
                }
            };
            match sets.iter_mut().find(|(state, _)| *state == next) {
                Some((_, sum)) => *sum |= set,
                None => sets.push((next, set)),
            }
        }
        self.budget.check()
    }

    /// Returns the state that all characters beyond ASCII lead to; `None` if none of them is
    /// accepted, if they lead to several states, or if they are in many groups.
    fn beyond_ascii(
        &mut self,
        grammar: &Compiled,
        state: StateId,
    ) -> Result<Option<StateId>, TooMuch> {
        let groups = grammar.groups_beyond_ascii();
        if groups.len() > MOST_BEYOND || self.facts[state as usize].cover & 1 == 0 {
            return Ok(None);
        }
        let mut all = None;
        for &group in groups {
            let next = self.step(grammar, state, group)?;
            if *all.get_or_insert(next) != next {
                return Ok(None);
            }
        }
        Ok(all)
    }
}
