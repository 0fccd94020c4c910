//! Builds rules directly, not from GBNF, for patterns, choices and tags.
//!
//! A part of a rule is a list of elements. Alternatives and repetitions become a rule or a counted
//! repetition, which is one element of that list. Sizes have the same limits as in a grammar's
//! text.

use std::fmt;

use crate::grammar::elements::{
    Class, Classes, ENDLESS, Element, Repeat, Rules, TooManySequences, Unordered, Written,
    WrittenRules,
};
use crate::grammar::limits::{MAX_CLASSES, MAX_ELEMENTS, MAX_REPETITIONS, MAX_RULES};

/// The limit that was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooLarge {
    /// More than [`MAX_ELEMENTS`] elements or different sequences.
    Elements,
    /// More than [`MAX_RULES`] rules or counted repetitions.
    Rules,
    /// More than [`MAX_CLASSES`] classes.
    Classes,
    /// A repetition of more than [`MAX_REPETITIONS`] rounds.
    Repetitions,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (most, what, name) = match self {
            Self::Elements => (MAX_ELEMENTS, "elements", "ELEMENTS"),
            Self::Rules => (MAX_RULES, "rules", "RULES"),
            Self::Classes => (MAX_CLASSES, "different classes of characters", "RULES"),
            Self::Repetitions => (MAX_REPETITIONS as usize, "repetitions", "REPETITIONS"),
        };
        write!(
            f,
            "it has more than {most} {what} (LLAMA_SIEVE_GRAMMAR_MAX_{name})"
        )
    }
}

impl From<TooManySequences> for TooLarge {
    fn from(_: TooManySequences) -> Self {
        Self::Elements
    }
}

/// Rules that are being built.
#[derive(Debug, Default)]
pub struct Builder {
    classes: Classes,
    rules: WrittenRules,
    repeats: Vec<Repeat<Vec<Element>>>,
    unordered: Vec<Unordered<Vec<Element>>>,
    n_elements: usize,
}

impl Builder {
    /// Returns an element that matches one character of these ranges of code points, each given by
    /// its first and last code point.
    pub fn class(&mut self, ranges: Vec<(u32, u32)>) -> Result<Element, TooLarge> {
        let number = match *ranges {
            [(first, last)] if first == last => self.classes.number_of_one(first),
            _ => self.classes.number(Class::of(false, ranges)),
        };
        number.map(Element::Class).ok_or(TooLarge::Classes)
    }

    /// Returns the elements that match a text.
    pub fn text(&mut self, text: &str) -> Result<Vec<Element>, TooLarge> {
        let mut elements = Vec::new();
        for character in text.chars() {
            let number = self.classes.number_of_one(character.into());
            elements.push(Element::Class(number.ok_or(TooLarge::Classes)?));
        }
        Ok(elements)
    }

    /// Declares a rule, so that other rules may refer to it before it is defined. Returns its
    /// number.
    pub fn declare(&mut self) -> Result<u32, TooLarge> {
        if self.rules.len() >= MAX_RULES {
            return Err(TooLarge::Rules);
        }
        Ok(self.rules.declare())
    }

    /// Defines a rule that was declared.
    pub fn define(&mut self, rule: u32, elements: Vec<Element>) -> Result<(), TooLarge> {
        self.grow(elements.len())?;
        self.rules.define(rule, &elements);
        Ok(())
    }

    /// Returns the elements that match any one of `alternatives`, of which there must be at least
    /// one. Common prefixes are factored out, so thousands of alternatives form a trie.
    pub fn alternatives(
        &mut self,
        mut alternatives: Vec<Vec<Element>>,
    ) -> Result<Vec<Element>, TooLarge> {
        alternatives.sort_unstable();
        alternatives.dedup();
        // Declared rules, each with its alternatives and the length of their common prefix.
        let mut pending = Vec::new();
        let whole = self.factored(&alternatives, 0, &mut pending)?;
        while let Some((rule, alternatives, depth)) = pending.pop() {
            let mut elements = Vec::new();
            let same = |a: &Vec<Element>, b: &Vec<Element>| a.get(depth) == b.get(depth);
            for (i, group) in alternatives.chunk_by(same).enumerate() {
                if i > 0 {
                    elements.push(Element::Alternative);
                }
                elements.extend(self.factored(group, depth, &mut pending)?);
            }
            self.define(rule, elements)?;
        }
        Ok(whole)
    }

    /// Returns the longest common prefix of the sorted `alternatives`, without their first `depth`
    /// elements. If there are several alternatives, appends a reference to a new rule for their
    /// suffixes, and adds that rule to `pending`, to be defined later.
    fn factored<'a>(
        &mut self,
        alternatives: &'a [Vec<Element>],
        depth: usize,
        pending: &mut Vec<(u32, &'a [Vec<Element>], usize)>,
    ) -> Result<Vec<Element>, TooLarge> {
        let (Some(first), Some(last)) = (alternatives.first(), alternatives.last()) else {
            return Ok(Vec::new());
        };
        let (first, last) = (first.get(depth..), last.get(depth..));
        let (first, last) = (first.unwrap_or_default(), last.unwrap_or_default());
        let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let mut elements = first.get(..common).unwrap_or_default().to_vec();
        if alternatives.len() > 1 {
            let rule = self.declare()?;
            pending.push((rule, alternatives, depth + common));
            elements.push(Element::Rule(rule));
        }
        Ok(elements)
    }

    /// Returns elements that match `item` or nothing.
    pub fn optional(&mut self, mut item: Vec<Element>) -> Result<Vec<Element>, TooLarge> {
        if item.is_empty() {
            return Ok(item);
        }
        let rule = self.declare()?;
        item.push(Element::Alternative);
        self.define(rule, item)?;
        Ok(vec![Element::Rule(rule)])
    }

    /// Returns elements that match `item` repeated `min` to `max` times, or at least `min` times if
    /// `max` is `None`. `may_be_empty` is true if `item` matches the empty text.
    pub fn repeat(
        &mut self,
        item: Vec<Element>,
        may_be_empty: bool,
        (min, max): (u64, Option<u64>),
    ) -> Result<Vec<Element>, TooLarge> {
        if max.unwrap_or(min).max(min) > MAX_REPETITIONS {
            return Err(TooLarge::Repetitions);
        }
        if item.is_empty() {
            return Ok(item);
        }
        match (min, max) {
            (_, Some(0)) => Ok(Vec::new()),
            (0, Some(1)) => self.optional(item),
            (1, Some(1)) => Ok(item),
            (0 | 1, None) if !may_be_empty => {
                let rule = self.declare()?;
                let mut rounds = item.clone();
                rounds.extend([Element::Rule(rule), Element::Alternative]);
                self.define(rule, rounds)?;
                let mut elements = if min == 1 { item } else { Vec::new() };
                elements.push(Element::Rule(rule));
                Ok(elements)
            }
            _ => {
                self.grow(item.len())?;
                let number = self.repeats.len();
                if number >= MAX_RULES {
                    return Err(TooLarge::Rules);
                }
                let bounded = |rounds: u64| rounds as u32;
                self.repeats.push(Repeat {
                    item,
                    min: bounded(min),
                    max: max.map_or(ENDLESS, bounded),
                });
                Ok(vec![Element::Repeat(number as u32)])
            }
        }
    }

    /// Adds the rules of another grammar. Returns the elements that match its root.
    pub fn embed(&mut self, written: Written) -> Result<Vec<Element>, TooLarge> {
        let mut classes = Vec::new();
        for class in written.classes {
            classes.push(self.classes.number(class).ok_or(TooLarge::Classes)?);
        }
        let first_rule = self.rules.len() as u32;
        let first_repeat = self.repeats.len() as u32;
        let first_list = self.unordered.len() as u32;
        let moved = |element: Element| match element {
            Element::Class(class) => {
                let class = classes.get(class as usize).copied();
                Element::Class(class.unwrap_or_default())
            }
            Element::Rule(rule) => Element::Rule(first_rule + rule),
            Element::Repeat(repeat) => Element::Repeat(first_repeat + repeat),
            Element::Unordered(list) => Element::Unordered(first_list + list),
            Element::Token(_)
            | Element::TokenNot(_)
            | Element::Occurred(_)
            | Element::Alternative => element,
        };
        let all = |elements: &[Element]| elements.iter().copied().map(moved).collect();
        for elements in written.rules.iter() {
            let rule = self.declare()?;
            self.define(rule, all(elements))?;
        }
        for Repeat { item, min, max } in written.repeats {
            self.grow(item.len())?;
            if self.repeats.len() >= MAX_RULES {
                return Err(TooLarge::Rules);
            }
            let item = all(&item);
            self.repeats.push(Repeat { item, min, max });
        }
        for list in written.unordered {
            let items = list.items.iter().map(Vec::len);
            self.grow(items.sum::<usize>() + list.separator.len())?;
            self.unordered.push(Unordered {
                items: list.items.iter().map(|item| all(item)).collect(),
                separator: all(&list.separator),
                ..list
            });
        }
        Ok(vec![Element::Rule(first_rule + written.root)])
    }

    /// Counts a list of `n` elements, and its end as one more element. Fails if there are too many.
    fn grow(&mut self, n: usize) -> Result<(), TooLarge> {
        self.n_elements += n + 1;
        if self.n_elements > MAX_ELEMENTS {
            return Err(TooLarge::Elements);
        }
        Ok(())
    }

    /// Returns the rules of a grammar that matches the same texts as `whole`, in UTF-8. Every
    /// declared rule must have been defined, and none may begin with itself.
    pub fn rules(mut self, whole: Vec<Element>) -> Result<Rules, TooLarge> {
        let root = self.declare()?;
        self.define(root, whole)?;
        let mut rules = Rules::link(Written {
            classes: self.classes.all,
            rules: self.rules,
            repeats: self.repeats,
            unordered: self.unordered,
            root,
        })?;
        rules.is_strict = true;
        Ok(rules)
    }
}

#[cfg(test)]
mod tests;
