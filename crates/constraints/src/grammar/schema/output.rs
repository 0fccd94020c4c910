//! Puts together the grammar's elements: characters with all their spellings in JSON, texts,
//! repetitions, automata.

// In bounds: numbers of rules are positions in a list that only grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::grammar::elements::{Class, Classes, ENDLESS, Element, Repeat, Written};
use crate::grammar::hash::Map;
use crate::grammar::limits::MAX_SCHEMA_ELEMENTS;
use crate::grammar::schema::automaton::{ALL, Dfa, Shared, Span};
use crate::grammar::schema::ecma::{common, others, tidied};
use crate::grammar::schema::refusal::{Answer, Refusal};

/// Elements one after the other.
pub type Sequence = Vec<Element>;

/// A grammar that is being written.
#[derive(Debug, Default)]
pub struct Output {
    /// The rules and repetitions.
    pub written: Written,
    classes: Classes,
    n_elements: usize,
    /// Hexadecimal digits, by their number and the values.
    hexadecimal: Map<(u32, Vec<Span>), Element>,
    /// The elements behind a backslash, by the characters.
    escapes: Map<Vec<Span>, Element>,
    characters: Map<Vec<Span>, Element>,
    /// Automata that were written, of strings (true) and of numbers, kept so that no other is at
    /// their address.
    automata: Map<(usize, bool), (Element, Shared)>,
}

/// Characters that a string has only as escapes: controls, and what JSON gives a meaning.
const ESCAPED: [Span; 3] = [(0, 0x1F), (0x22, 0x22), (0x5C, 0x5C)];
/// Escapes of one letter, and what they stand for.
const LETTERS: [(char, u32); 8] = [
    ('"', 0x22),
    ('\\', 0x5C),
    ('/', 0x2F),
    ('b', 8),
    ('f', 12),
    ('n', 10),
    ('r', 13),
    ('t', 9),
];

fn only(character: char) -> Vec<Span> {
    vec![(u32::from(character), u32::from(character))]
}

fn is_in(spans: &[Span], code_point: u32) -> bool {
    spans
        .iter()
        .any(|span| (span.0..=span.1).contains(&code_point))
}

impl Output {
    fn count(&mut self, n: usize) -> Answer<()> {
        self.room_for(n)?;
        self.n_elements += n;
        Ok(())
    }

    /// Refuses where so many elements more would be too many.
    pub fn room_for(&self, n: usize) -> Answer<()> {
        match self.n_elements + n > MAX_SCHEMA_ELEMENTS {
            false => Ok(()),
            true => Err(Refusal::whole(format!(
                "its grammar has more elements than LLAMA_SIEVE_JSON_MAX_ELEMENTS, \
                 {MAX_SCHEMA_ELEMENTS}; use fewer alternatives, shorter patterns or smaller counts"
            ))),
        }
    }

    /// The classes, when all is written.
    pub fn take_classes(&mut self) -> Vec<Class> {
        std::mem::take(&mut self.classes.all)
    }

    /// A character of these, as it is.
    pub fn class(&mut self, spans: Vec<Span>) -> Answer<Element> {
        let number = match *spans {
            [(one, same)] if one == same => self.classes.number_of_one(one),
            _ => self.classes.number(Class::of(false, spans)),
        };
        numbered(number)
    }

    /// A character of a class, as it is.
    pub fn set(&mut self, class: Class) -> Answer<Element> {
        numbered(self.classes.number(class))
    }

    /// An element that no text has.
    pub fn nothing(&mut self) -> Answer<Element> {
        self.class(Vec::new())
    }

    /// A rule whose alternatives follow.
    pub fn reserve(&mut self) -> u32 {
        self.written.rules.push(Vec::new());
        self.written.rules.len() as u32 - 1
    }

    /// Gives a rule its alternatives.
    pub fn define(&mut self, rule: u32, alternatives: Vec<Sequence>) -> Answer<()> {
        let mut elements = Vec::new();
        if alternatives.is_empty() {
            elements.push(self.nothing()?);
        }
        for (i, alternative) in alternatives.into_iter().enumerate() {
            if i > 0 {
                elements.push(Element::Alternative);
            }
            elements.extend(alternative);
        }
        self.count(elements.len() + 1)?;
        self.written.rules[rule as usize] = elements;
        Ok(())
    }

    /// A rule of alternatives.
    pub fn rule(&mut self, alternatives: Vec<Sequence>) -> Answer<Element> {
        let rule = self.reserve();
        self.define(rule, alternatives)?;
        Ok(Element::Rule(rule))
    }

    /// A sequence so many times.
    pub fn times(&mut self, item: Sequence, min: u64, max: Option<u64>) -> Answer<Sequence> {
        if max.is_some_and(|max| max < min) {
            return Ok(vec![self.nothing()?]);
        }
        if max == Some(0) {
            return Ok(Vec::new());
        }
        if (min, max) == (1, Some(1)) {
            return Ok(item);
        }
        if (min, max) == (0, None) {
            let rule = self.reserve();
            let mut round = item;
            round.push(Element::Rule(rule));
            self.define(rule, vec![round, Vec::new()])?;
            return Ok(vec![Element::Rule(rule)]);
        }
        // No text has so many characters.
        const MOST: u64 = u32::MAX as u64 - 1;
        let max = match max {
            Some(max) if max <= MOST => max as u32,
            _ => ENDLESS,
        };
        let min = min.min(MOST) as u32;
        self.count(item.len())?;
        self.written.repeats.push(Repeat { item, min, max });
        let number = self.written.repeats.len() as u32 - 1;
        Ok(vec![Element::Repeat(number)])
    }

    /// Characters as they are.
    pub fn raw(&mut self, text: &str) -> Answer<Sequence> {
        text.chars()
            .map(|character| self.class(only(character)))
            .collect()
    }

    /// The content of a string, each character in the spellings that programs write.
    pub fn content(&mut self, text: &str) -> Answer<Sequence> {
        text.chars()
            .map(|character| match character {
                '"' | '\\' | '/' => self.character(only(character)),
                ' '..='~' => self.class(only(character)),
                _ => self.character(only(character)),
            })
            .collect()
    }

    /// A string with this content, in quotation marks.
    pub fn quoted(&mut self, content: Sequence) -> Answer<Sequence> {
        let mark = self.class(only('"'))?;
        let mut quoted = vec![mark];
        quoted.extend(content);
        quoted.push(mark);
        Ok(quoted)
    }

    /// A character of these in a string, as it is or escaped.
    pub fn character(&mut self, spans: Vec<Span>) -> Answer<Element> {
        if let Some(&known) = self.characters.get(&spans) {
            return Ok(known);
        }
        let spellings = self.spellings(&spans)?;
        let element = self.rule(spellings)?;
        self.characters.insert(spans, element);
        Ok(element)
    }

    fn spellings(&mut self, spans: &[Span]) -> Answer<Vec<Sequence>> {
        let mut spellings = Vec::new();
        let raw = common(spans, &others(&ESCAPED));
        if !raw.is_empty() {
            spellings.push(vec![self.class(raw)?]);
        }
        if !spans.is_empty() {
            spellings.push(vec![self.class(only('\\'))?, self.escape(spans)?]);
        }
        Ok(spellings)
    }

    /// The element of these characters behind a backslash.
    fn escape(&mut self, spans: &[Span]) -> Answer<Element> {
        if let Some(&known) = self.escapes.get(spans) {
            return Ok(known);
        }
        let mut alternatives = Vec::new();
        let letters = LETTERS.iter().filter(|(_, is)| is_in(spans, *is));
        let letters = tidied(letters.flat_map(|&(letter, _)| only(letter)).collect());
        if !letters.is_empty() {
            alternatives.push(vec![self.class(letters)?]);
        }
        let unit = self.class(only('u'))?;
        let basic = common(spans, &[(0, 0xFFFF)]);
        if !basic.is_empty() {
            alternatives.push(vec![unit, self.hexadecimal(4, basic)?]);
        }
        for (low, high) in pairs(&common(spans, &[(0x10000, 0x10_FFFF)])) {
            let high = self.hexadecimal(4, high)?;
            let low = self.hexadecimal(4, vec![low])?;
            alternatives.push(vec![unit, high, self.class(only('\\'))?, unit, low]);
        }
        let element = self.rule(alternatives)?;
        self.escapes.insert(spans.to_vec(), element);
        Ok(element)
    }

    /// So many hexadecimal digits of which the value is one of these.
    fn hexadecimal(&mut self, n: u32, values: Vec<Span>) -> Answer<Element> {
        let key = (n, values);
        if let Some(&known) = self.hexadecimal.get(&key) {
            return Ok(known);
        }
        let bits = 4 * (n - 1);
        // By what may follow.
        let mut digits: Vec<(Vec<Span>, Vec<Span>)> = Vec::new();
        let mut values = &*key.1;
        for digit in 0..16_u32 {
            let (first, last) = (digit << bits, (digit << bits) + ((1 << bits) - 1));
            while values.first().is_some_and(|span| span.1 < first) {
                values = &values[1..];
            }
            let within = values.iter().take_while(|span| span.0 <= last);
            let within = within.map(|&(a, b)| (a.max(first) - first, b.min(last) - first));
            let within: Vec<Span> = within.collect();
            if within.is_empty() {
                continue;
            }
            let letters = char::from_digit(digit, 16).into_iter();
            let letters = letters.flat_map(|c| [c, c.to_ascii_uppercase()]);
            let spans = letters.map(|letter| (u32::from(letter), u32::from(letter)));
            match digits.iter_mut().find(|known| known.0 == within) {
                Some((_, all)) => all.extend(spans),
                None => digits.push((within, spans.collect())),
            }
        }
        let mut alternatives = Vec::new();
        for (within, letters) in digits {
            let mut alternative = vec![self.class(tidied(letters))?];
            if n > 1 {
                alternative.push(self.hexadecimal(n - 1, within)?);
            }
            alternatives.push(alternative);
        }
        let element = self.rule(alternatives)?;
        self.hexadecimal.insert(key, element);
        Ok(element)
    }

    /// The texts of an automaton: as the content of a string, or as they are.
    pub fn automaton(&mut self, dfa: &Shared, in_string: bool) -> Answer<Element> {
        let key = (Arc::as_ptr(dfa).addr(), in_string);
        if let Some((known, _)) = self.automata.get(&key) {
            return Ok(*known);
        }
        let first = self.written.rules.len() as u32;
        for _ in &dfa.states {
            self.reserve();
        }
        for (rule, state) in (first..).zip(&dfa.states) {
            let mut alternatives = Vec::new();
            for (target, spans) in state.by_target() {
                let starts = match in_string {
                    true => self.spellings(&spans)?,
                    false => vec![vec![self.class(spans)?]],
                };
                let is_last = is_last(dfa, target);
                for mut start in starts {
                    if !is_last {
                        start.push(Element::Rule(first + target));
                    }
                    alternatives.push(start);
                }
            }
            if state.accepts {
                alternatives.push(Vec::new());
            }
            self.define(rule, alternatives)?;
        }
        let element = Element::Rule(first);
        self.automata.insert(key, (element, Arc::clone(dfa)));
        Ok(element)
    }

    /// The content of strings of any characters.
    pub fn any_content(&mut self, min: u64, max: Option<u64>) -> Answer<Sequence> {
        let character = self.character(ALL.to_vec())?;
        self.times(vec![character], min, max)
    }
}

fn numbered(number: Option<u32>) -> Answer<Element> {
    let number = number.ok_or_else(|| Refusal::whole("it has too many character classes"))?;
    Ok(Element::Class(number))
}

fn is_last(dfa: &Dfa, state: u32) -> bool {
    let state = dfa.states.get(state as usize);
    state.is_some_and(|state| state.accepts && state.edges.is_empty())
}

/// Surrogates of characters beyond the first 65,536: the low ones, and the high ones before these.
fn pairs(spans: &[Span]) -> BTreeMap<Span, Vec<Span>> {
    let mut pairs: BTreeMap<Span, Vec<Span>> = BTreeMap::new();
    let mut add = |high: Span, low: Span| {
        let low = (0xDC00 + low.0, 0xDC00 + low.1);
        let high = (0xD800 + high.0, 0xD800 + high.1);
        pairs.entry(low).or_default().push(high);
    };
    for &(first, last) in spans {
        let (first, last) = (first - 0x10000, last - 0x10000);
        let (mut from, mut to) = (first >> 10, last >> 10);
        let (low, high) = (first & 0x3FF, last & 0x3FF);
        if from == to {
            add((from, to), (low, high));
            continue;
        }
        if low > 0 {
            add((from, from), (low, 0x3FF));
            from += 1;
        }
        if high < 0x3FF {
            add((to, to), (0, high));
            to -= 1;
        }
        if from <= to {
            add((from, to), (0, 0x3FF));
        }
    }
    pairs
        .into_iter()
        .map(|(low, high)| (low, merged(high)))
        .collect()
}

/// Ascending spans that do not touch, surrogates included.
fn merged(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::new();
    for (first, last) in spans {
        match merged.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}
