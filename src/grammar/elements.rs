//! What a grammar is made of: character classes, token elements, references to rules.
//!
//! The parser gives each rule as a list of [`Element`]s. [`Rules::link`] turns these lists into
//! *sequences*: an item and the number of the sequence behind it, each pair numbered once. Equal
//! rests of alternatives thereby are one, however often a repetition has written them down.

use crate::grammar::hash::{Map, Set};
use crate::grammar::limits::{MAX_CLASSES, MAX_SEQUENCES};

/// A set of code points: one of the listed ranges, or none of them.
///
/// Ranges that end before they begin match no character, but take part in the question whether a
/// character that is not complete can match. Both questions are "does a range begin no later than
/// here and end no earlier than there?", for which of all ranges so far only the last end counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// Whether the characters are those outside the ranges.
    pub negated: bool,
    /// Whether every character is in it (`.`).
    pub any: bool,
    /// First and last code point of the ranges, both ascending: one that ends no later than an
    /// earlier one is left out.
    pub ranges: Box<[(u32, u32)]>,
}

impl Class {
    /// Exactly one code point.
    pub fn one(code_point: u32) -> Self {
        Self {
            negated: false,
            any: false,
            ranges: Box::new([(code_point, code_point)]),
        }
    }

    /// Every code point.
    pub fn any() -> Self {
        Self {
            negated: false,
            any: true,
            ranges: Box::new([]),
        }
    }

    /// One of these ranges, or, negated, none of them.
    pub fn of(negated: bool, mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut reached = None;
        ranges.retain(|&(_, last)| {
            let is_further = reached.is_none_or(|reached| last > reached);
            reached = reached.max(Some(last));
            is_further
        });
        Self {
            negated,
            any: false,
            ranges: ranges.into_boxed_slice(),
        }
    }

    /// Whether a character is in the class.
    pub fn has(&self, code_point: u32) -> bool {
        self.any || self.reaches(code_point, code_point) != self.negated
    }

    /// Whether a range begins at `high` or before and ends at `low` or behind.
    fn reaches(&self, low: u32, high: u32) -> bool {
        let n = self.ranges.partition_point(|&(first, _)| first <= high);
        let last = self.ranges.get(..n).and_then(<[_]>::last);
        last.is_some_and(|&(_, last)| low <= last)
    }

    /// Whether a character of which `missing` bytes are still to come could be in the class;
    /// `value` is what its bytes say so far.
    ///
    /// A negated class refuses where any character that is listed could still come of it.
    pub fn may_have(&self, value: u32, missing: u8) -> bool {
        // Two bytes for what fits in one.
        if missing == 1 && value < 2 {
            return false;
        }
        if self.any {
            return true;
        }
        let bits = 6 * u32::from(missing.min(3));
        let low = value << bits;
        let high = low | ((1 << bits) - 1);
        // Shorter encodings than this are not expected.
        let low = match (low, missing) {
            (0, 2) => 1 << 11,
            (0, 3) => 1 << 16,
            _ => low,
        };
        self.reaches(low, high) != self.negated
    }
}

/// One element of a rule as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Element {
    /// A character of the class with this number.
    Class(u32),
    /// The token with this number.
    Token(u32),
    /// Any token but this.
    TokenNot(u32),
    /// What the rule with this number says.
    Rule(u32),
    /// The end of an alternative; another one follows.
    Alternative,
}

/// The number of the empty sequence.
pub const EMPTY: u32 = 0;

/// A sequence: an element and the number of the sequence behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sequence {
    /// What comes first. Never [`Element::Alternative`].
    pub item: Element,
    /// The number of what follows.
    pub rest: u32,
}

/// A grammar that was read, with the text's rules as sequences.
#[derive(Debug, Default)]
pub struct Rules {
    /// By number.
    pub classes: Vec<Class>,
    /// By number; the first is the empty one, whose content means nothing.
    pub sequences: Vec<Sequence>,
    /// The alternatives of each rule: numbers of sequences.
    pub alternatives: Vec<Box<[u32]>>,
    /// The rule that a text must follow.
    pub root: u32,
}

/// Numbers classes.
#[derive(Debug, Default)]
pub struct Classes {
    /// By number.
    pub all: Vec<Class>,
    numbers: Map<Class, u32>,
    /// Those that are one character of ASCII.
    ascii: Vec<Option<u32>>,
}

impl Classes {
    /// The number of `class`; `None` if there are too many.
    pub fn number(&mut self, class: Class) -> Option<u32> {
        if let Some(&number) = self.numbers.get(&class) {
            return Some(number);
        }
        if self.all.len() >= MAX_CLASSES {
            return None;
        }
        let number = self.all.len() as u32;
        self.all.push(class.clone());
        self.numbers.insert(class, number);
        Some(number)
    }

    /// The number of the class that is this character; `None` if there are too many.
    pub fn number_of_one(&mut self, code_point: u32) -> Option<u32> {
        const N: usize = 128;
        if code_point as usize >= N {
            return self.number(Class::one(code_point));
        }
        self.ascii.resize(N, None);
        let known = self.ascii.get(code_point as usize).copied().flatten();
        let number = known.or_else(|| self.number(Class::one(code_point)));
        if let Some(known) = self.ascii.get_mut(code_point as usize) {
            *known = number;
        }
        number
    }
}

/// Room for no more sequences is made before it is known how many there are.
const MOST_RESERVED: usize = 1 << 12;

/// Why rules could not be linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unlinked {
    /// The rule with this number begins with itself.
    LeftRecursion(u32),
    /// There are too many sequences.
    TooMany,
}

impl Rules {
    /// Links `rules`, of which each element refers to one that is there.
    pub fn link(classes: Vec<Class>, rules: &[Vec<Element>], root: u32) -> Result<Self, Unlinked> {
        if let Some(rule) = left_recursive(rules) {
            return Err(Unlinked::LeftRecursion(rule));
        }
        let nothing = Sequence {
            item: Element::Alternative,
            rest: EMPTY,
        };
        let mut linked = Self {
            classes,
            sequences: vec![nothing],
            alternatives: Vec::with_capacity(rules.len()),
            root,
        };
        let n_elements: usize = rules.iter().map(Vec::len).sum();
        let mut numbers = Map::default();
        numbers.reserve(n_elements.min(MOST_RESERVED));
        linked.sequences.reserve(n_elements.min(MOST_RESERVED));
        for rule in rules {
            let (mut heads, mut seen) = (Vec::new(), Set::default());
            for alternative in rule.split(is_end) {
                let head = linked.sequence(alternative, &mut numbers)?;
                if seen.insert(head) {
                    heads.push(head);
                }
            }
            linked.alternatives.push(heads.into_boxed_slice());
        }
        Ok(linked)
    }

    fn sequence(
        &mut self,
        elements: &[Element],
        numbers: &mut Map<Sequence, u32>,
    ) -> Result<u32, Unlinked> {
        let mut rest = EMPTY;
        for &item in elements.iter().rev() {
            let sequence = Sequence { item, rest };
            let next = self.sequences.len();
            rest = *numbers.entry(sequence).or_insert(next as u32);
            if rest as usize == next {
                if next >= MAX_SEQUENCES {
                    return Err(Unlinked::TooMany);
                }
                self.sequences.push(sequence);
            }
        }
        Ok(rest)
    }

    /// What stands first in a sequence, and what follows; `None` of the empty one.
    pub fn first(&self, sequence: u32) -> Option<Sequence> {
        if sequence == EMPTY {
            return None;
        }
        self.sequences.get(sequence as usize).copied()
    }

    /// Bytes that the rules occupy, about.
    pub fn bytes(&self) -> usize {
        let ranges: usize = self.classes.iter().map(|class| class.ranges.len()).sum();
        let heads: usize = self.alternatives.iter().map(|heads| heads.len()).sum();
        self.sequences.len() * size_of::<Sequence>()
            + self.classes.len() * size_of::<Class>()
            + self.alternatives.len() * size_of::<Box<[u32]>>()
            + ranges * size_of::<(u32, u32)>()
            + heads * size_of::<u32>()
    }
}

/// A rule that may begin with itself, as far as the host's check sees it: it looks behind rules
/// with an alternative that is *written* empty, but not behind those that are empty by what they
/// refer to.
fn left_recursive(rules: &[Vec<Element>]) -> Option<u32> {
    let beginnings = Beginnings::of(rules);
    first_cycle(rules.len(), |rule| beginnings.of_rule(rule))
}

/// Whether the host's check for left recursion ends before it has looked at so many rules. It looks
/// at a rule anew whenever it comes to it, so that rules which begin with two others each double
/// what there is to do.
pub fn host_check_ends(rules: &[Vec<Element>], most: usize) -> bool {
    let beginnings = Beginnings::of(rules);
    // In the order in which they are looked at, the next one last.
    let next = |rule: usize| {
        let mut next = beginnings.of_rule(rule);
        next.reverse();
        next
    };
    let (mut is_done, mut is_open) = (vec![false; rules.len()], vec![false; rules.len()]);
    let mark = |marks: &mut [bool], rule: usize, value| {
        if let Some(mark) = marks.get_mut(rule) {
            *mark = value;
        }
    };
    let mut looked_at = 0;
    for start in 0..rules.len() {
        if is_done.get(start) == Some(&true) {
            continue;
        }
        let mut path = vec![(start, next(start))];
        mark(&mut is_open, start, true);
        while let Some((rule, to_do)) = path.last_mut() {
            looked_at += 1;
            if looked_at > most {
                return false;
            }
            let Some(to) = to_do.pop() else {
                mark(&mut is_open, *rule, false);
                mark(&mut is_done, *rule, true);
                path.pop();
                continue;
            };
            let to = to as usize;
            if is_open.get(to) == Some(&true) {
                return true;
            }
            mark(&mut is_open, to, true);
            path.push((to, next(to)));
        }
    }
    true
}

/// What rules can begin with, as far as the host's check sees it.
struct Beginnings<'a> {
    rules: &'a [Vec<Element>],
    may_be_empty: Vec<bool>,
}

impl<'a> Beginnings<'a> {
    fn of(rules: &'a [Vec<Element>]) -> Self {
        let may_be_empty = rules
            .iter()
            .map(|rule| rule.split(is_end).any(<[Element]>::is_empty));
        Self {
            rules,
            may_be_empty: may_be_empty.collect(),
        }
    }

    /// The rules that this one can begin with, in order, one as often as it is found.
    fn of_rule(&self, rule: usize) -> Vec<u32> {
        let mut found = Vec::new();
        let elements = self.rules.get(rule).into_iter();
        for alternative in elements.flat_map(|rule| rule.split(is_end)) {
            for element in alternative {
                let Element::Rule(number) = *element else {
                    break;
                };
                found.push(number);
                if self.may_be_empty.get(number as usize) != Some(&true) {
                    break;
                }
            }
        }
        found
    }
}

fn is_end(element: &Element) -> bool {
    *element == Element::Alternative
}

/// A node on a cycle of the graph in which `next` gives a node's successors, if there is one.
fn first_cycle(n_nodes: usize, next: impl Fn(usize) -> Vec<u32>) -> Option<u32> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut marks = vec![Mark::New; n_nodes];
    let mut path: Vec<(usize, Vec<u32>)> = Vec::new();
    for start in 0..n_nodes {
        let mut entered = (marks.get(start) == Some(&Mark::New)).then_some(start);
        loop {
            if let Some(node) = entered.take() {
                if let Some(mark) = marks.get_mut(node) {
                    *mark = Mark::Open;
                }
                path.push((node, next(node)));
            }
            let Some((node, successors)) = path.last_mut() else {
                break;
            };
            let Some(successor) = successors.pop() else {
                if let Some(mark) = marks.get_mut(*node) {
                    *mark = Mark::Done;
                }
                path.pop();
                continue;
            };
            match marks.get(successor as usize) {
                Some(Mark::Open) => return Some(successor),
                Some(Mark::New) => entered = Some(successor as usize),
                Some(Mark::Done) | None => {}
            }
        }
    }
    None
}

#[cfg(test)]
mod tests;
