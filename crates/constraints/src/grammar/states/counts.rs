//! Numbers sequences that begin with a repetition in progress, by the rounds that it has left, or
//! with an unordered list in progress, by the position in it. Positions have numbers, too.
//!
//! A repetition in progress is a sequence of the grammar with two counts: the rounds that must
//! still follow, and those that may. Each such combination gets a number, after the numbers of the
//! grammar's sequences. For a text of n characters, more than n rounds are as good as unbounded,
//! since a round that matches no character can be left out. So tables for texts of at most n
//! characters store no larger count, and states that differ only in counts above n are merged.

// In bounds: numbers of counted sequences are positions in a table that only grows.

use super::{Edge, States};
use crate::grammar::compiled::Compiled;
use crate::grammar::elements::{ENDLESS, Element, Position, Sequence};
use crate::grammar::hash::{Identity, Map};

/// A sequence of the grammar that begins with a repetition, with the rounds that must still follow
/// and those that may; or one that begins with an unordered list, with the number of the position
/// in it, and zero.
type Counts = (u32, u32, u32);

/// The sequences with repetitions or unordered lists in progress.
#[derive(Debug, Default)]
pub(super) struct Counted {
    all: Vec<Counts>,
    numbers: Map<Counts, u32>,
    /// The positions in unordered lists, after their beginning, which has the number 0.
    positions: Vec<(Position, Identity)>,
    position_numbers: Map<Position, u32>,
}

impl States {
    /// Returns the number of a sequence whose repetition has at least `min` and at most `max`
    /// rounds left, or whose unordered list is at the position with the number `min`.
    pub(super) fn counted(&mut self, grammar: &Compiled, sequence: u32, min: u32, max: u32) -> u32 {
        let (min, max) = match is_repetition(grammar, sequence) {
            true => self.limited(min, max),
            false => (min, max),
        };
        let first = grammar.rules.sequences.len() as u32;
        let counts = (sequence, min, max);
        if let Some(&number) = self.counted.numbers.get(&counts) {
            self.budget.would_keep(2 * size_of::<Counts>() + 8);
            return first + number;
        }
        let number = self.counted.all.len() as u32;
        self.counted.all.push(counts);
        self.counted.numbers.insert(counts, number);
        self.grow(2 * size_of::<Counts>() + 8);
        first + number
    }

    fn limited(&self, min: u32, max: u32) -> (u32, u32) {
        let most = self.most_rounds;
        let max = if max >= most { ENDLESS } else { max };
        (min.min(most), max)
    }

    /// Returns the position in an unordered list with this number.
    pub(super) fn position(&self, number: u32) -> &Position {
        static BEGINNING: Position = Position::beginning();
        match number.checked_sub(1) {
            Some(at) => &self.counted.positions[at as usize].0,
            None => &BEGINNING,
        }
    }

    /// Returns the number of a position in an unordered list.
    pub(super) fn position_number(&mut self, position: &Position) -> u32 {
        if *position == Position::beginning() {
            return 0;
        }
        let bytes = 2 * (size_of::<(Position, Identity)>() + size_of_val(position.words()));
        if let Some(&number) = self.counted.position_numbers.get(position) {
            self.budget.would_keep(bytes);
            return number;
        }
        let counted = &mut self.counted;
        let identity = identity_of(position);
        counted.positions.push((position.clone(), identity));
        let number = counted.positions.len() as u32;
        counted.position_numbers.insert(position.clone(), number);
        self.grow(bytes);
        number
    }

    /// Returns an edge as a member of a set of stacks, for the identity of the set.
    pub(super) fn member(&self, grammar: &Compiled, edge: Edge) -> (u32, (u32, u32), Identity) {
        let (sequence, min, max) = self.counts_of(grammar, edge.sequence);
        let below = self.identities[edge.below as usize];
        if let Some(at) = min.checked_sub(1)
            && is_list(grammar, sequence)
        {
            // Numbers of positions differ between tables.
            let position = self.counted.positions[at as usize].1;
            let both = [(0, (0, 0), below), (1, (0, 0), position)];
            return (sequence, (0, 0), Identity::of(false, both.into_iter()));
        }
        (sequence, (min, max), below)
    }

    /// Returns the number in these tables for a counted sequence of other tables.
    pub(super) fn counted_from(&mut self, grammar: &Compiled, other: &Self, sequence: u32) -> u32 {
        let (sequence, mut min, max) = other.counts_of(grammar, sequence);
        if is_list(grammar, sequence) {
            min = self.position_number(other.position(min));
        }
        self.counted(grammar, sequence, min, max)
    }

    /// Returns the grammar's sequence for a number, and the minimum and maximum number of remaining
    /// rounds of the repetition that it begins with; or the number of the position in the unordered
    /// list that it begins with, and zero; zeros if it begins with neither.
    pub(super) fn counts_of(&self, grammar: &Compiled, sequence: u32) -> Counts {
        let n = grammar.rules.sequences.len();
        if let Some(number) = (sequence as usize).checked_sub(n) {
            return self.counted.all[number];
        }
        match item(grammar, sequence) {
            Some(Element::Repeat(repeat)) => {
                let repeat = grammar.rules.repeats.get(repeat as usize);
                let (min, max) = repeat.map_or((0, 0), |repeat| (repeat.min, repeat.max));
                let (min, max) = self.limited(min, max);
                (sequence, min, max)
            }
            _ => (sequence, 0, 0),
        }
    }

    /// Returns the first item of a sequence, and the rest; `None` for the empty sequence.
    pub(super) fn first(&self, grammar: &Compiled, sequence: u32) -> Option<Sequence> {
        let n = grammar.rules.sequences.len();
        match (sequence as usize).checked_sub(n) {
            Some(number) => grammar.first(self.counted.all[number].0),
            None => grammar.first(sequence),
        }
    }

    /// True if a sequence matches the empty text. False for an unordered list in progress, whose
    /// items mark themselves in the list on top of their stacks: it must stay there.
    pub(super) fn may_be_empty(&self, grammar: &Compiled, sequence: u32) -> bool {
        let n = grammar.rules.sequences.len();
        let Some(number) = (sequence as usize).checked_sub(n) else {
            return grammar.rules.may_be_empty(sequence);
        };
        let (sequence, min, _) = self.counted.all[number];
        let Some(first) = grammar.first(sequence) else {
            return false;
        };
        let may_end = match first.item {
            Element::Repeat(repeat) => {
                let repeat = grammar.rules.repeats.get(repeat as usize);
                min == 0 || repeat.is_some_and(|repeat| grammar.rules.may_be_empty(repeat.item))
            }
            _ => false,
        };
        may_end && grammar.rules.may_be_empty(first.rest)
    }

    /// Merges edges that differ only in their remaining rounds, if the ranges of these overlap or
    /// are adjacent.
    pub(super) fn merge_counts(&mut self, grammar: &Compiled, edges: &mut Vec<Edge>) {
        let n = grammar.rules.sequences.len() as u32;
        let is_counted = |edge: &Edge| edge.sequence >= n;
        if edges.iter().filter(|edge| is_counted(edge)).count() < 2 {
            return;
        }
        let split = edges.partition_point(|edge| !is_counted(edge));
        let mut counted: Vec<_> = edges
            .drain(split..)
            .map(|edge| {
                let (sequence, min, max) = self.counts_of(grammar, edge.sequence);
                (sequence, edge.below, min, max)
            })
            .collect();
        counted.sort_unstable();
        counted.dedup_by(|next, last| {
            let touches = (next.0, next.1) == (last.0, last.1)
                && next.2 <= last.3.saturating_add(1)
                && is_repetition(grammar, next.0);
            if touches {
                last.3 = last.3.max(next.3);
            }
            touches
        });
        edges.extend(counted.into_iter().map(|(sequence, below, min, max)| Edge {
            sequence: self.counted(grammar, sequence, min, max),
            below,
        }));
        edges[split..].sort_unstable();
        edges.dedup();
    }
}

fn item(grammar: &Compiled, sequence: u32) -> Option<Element> {
    grammar.first(sequence).map(|first| first.item)
}

fn is_repetition(grammar: &Compiled, sequence: u32) -> bool {
    matches!(item(grammar, sequence), Some(Element::Repeat(_)))
}

fn is_list(grammar: &Compiled, sequence: u32) -> bool {
    matches!(item(grammar, sequence), Some(Element::Unordered(_)))
}

/// Returns the identity of a position, which is the same in all tables.
fn identity_of(position: &Position) -> Identity {
    let flags = [position.has_begun, position.is_separated].map(u32::from);
    let words = (0..).zip(position.words());
    let members = words.map(|(at, &word)| {
        let halves = (word as u32, (word >> 32) as u32);
        (at, halves, Identity::of_end(false))
    });
    let flags = (u32::MAX, flags.into(), Identity::of_end(false));
    Identity::of(false, members.chain([flags]))
}
