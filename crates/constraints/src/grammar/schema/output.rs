//! Builds the elements of the grammar for texts, repetitions, automata, and characters in all their
//! JSON spellings.

// In bounds: numbers of rules are positions in a list that only grows.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::grammar::elements::{Class, Classes, ENDLESS, Element, Repeat, Unordered, Written};
use crate::grammar::hash::Map;
use crate::grammar::limits::MAX_SCHEMA_ELEMENTS;
use crate::grammar::schema::automaton::{ALL, Dfa, Shared, Span};
use crate::grammar::schema::ecma::{common, common_in};
use crate::grammar::schema::refusal::{Answer, Refusal};

/// A sequence of elements.
pub type Sequence = Vec<Element>;

/// A grammar being written.
#[derive(Debug, Default)]
pub struct Output {
    /// The rules, counted repetitions and unordered lists written so far.
    pub written: Written,
    classes: Classes,
    n_elements: usize,
    /// A scratch buffer for the elements of one rule.
    elements: Sequence,
    /// A scratch buffer for the characters of one class.
    spans: Vec<Span>,
    /// The spellings of each ASCII character alone; empty spellings if they have not been built
    /// yet.
    ascii: Vec<Spellings>,
    /// For each set of escape letters, with a bit for each, the element that matches one of them.
    letters: Map<u8, Element>,
    /// For each set of hexadecimal digits, with a bit for each, the element that matches one of
    /// them.
    digits: Map<u16, Element>,
    /// For each number of hexadecimal digits and each set of values, the elements that match them.
    hexadecimal: Map<(u32, Vec<Span>), Sequence>,
    /// For each set of characters at or above [`HIGH`], the element that matches the rest of their
    /// escapes after `\u`.
    high: Map<Vec<Span>, Element>,
    /// The element that matches the rest of the escape, after `\u`, of any character at or above
    /// [`HIGH`].
    all_high: Option<Element>,
    spellings: Map<Vec<Span>, Spellings>,
    characters: Map<Vec<Span>, Element>,
    /// For each sequence, the rule of its unbounded repetition.
    loops: Map<Sequence, Element>,
    /// The rules of automata, by the address of the automaton, and true for the content of a
    /// string. The automata are kept alive, so that no other automaton gets the same address.
    automata: Map<(usize, bool), (Element, Shared)>,
}

/// The ways to write one of some characters in a string.
#[derive(Clone, Copy, Debug, Default)]
pub struct Spellings {
    /// The unescaped spelling.
    pub raw: Option<Element>,
    /// The escaped spelling: a backslash, and the rest of the escape.
    pub escaped: Option<[Element; 2]>,
}

impl Spellings {
    /// Returns the spellings of a character that is only written unescaped.
    pub fn unescaped(class: Element) -> Self {
        Self {
            raw: Some(class),
            escaped: None,
        }
    }

    /// Appends an alternative for each spelling, followed by `rest`.
    pub fn add_alternatives(&self, rest: &[Element], elements: &mut Sequence) {
        for spelling in self.all() {
            begin_alternative(elements);
            elements.extend_from_slice(spelling);
            elements.extend_from_slice(rest);
        }
    }

    fn all(&self) -> impl Iterator<Item = &[Element]> {
        let escaped = self.escaped.as_ref().map(<[_; 2]>::as_slice);
        self.raw
            .as_slice()
            .iter()
            .map(std::slice::from_ref)
            .chain(escaped)
    }
}

/// The characters that a string may contain unescaped: all except those that JSON requires to be
/// escaped.
pub const RAW: [Span; 4] = [
    (0x20, 0x21),
    (0x23, 0x5B),
    (0x5D, 0xD7FF),
    (0xE000, 0x10_FFFF),
];
/// The first character whose four hexadecimal digits do not begin with two zeros.
const HIGH: u32 = 0x100;
/// The escapes of one letter, ascending, and the characters that they represent.
const LETTERS: [(char, u32); 8] = [
    ('"', 0x22),
    ('/', 0x2F),
    ('\\', 0x5C),
    ('b', 8),
    ('f', 12),
    ('n', 10),
    ('r', 13),
    ('t', 9),
];
/// Ranges of hexadecimal digits, ascending: the first digit, its value, and the number of digits.
const DIGITS: [(char, u32, u32); 3] = [('0', 0, 10), ('A', 10, 6), ('a', 10, 6)];

/// Returns the escape letters whose bits are set.
fn letters(escapes: u8) -> Vec<Span> {
    let letters = LETTERS.iter().enumerate();
    let letters = letters.filter(|(place, _)| escapes >> place & 1 == 1);
    let letters = letters.map(|(_, &(letter, _))| u32::from(letter));
    merged(letters.map(|letter| (letter, letter)).collect())
}

/// Adds the hexadecimal digits whose values have their bit set.
fn add_digits(values: u16, spans: &mut Vec<Span>) {
    for (first, value, n) in DIGITS {
        let (mut left, mut from) = (u32::from(values) >> value & ((1 << n) - 1), first.into());
        while left != 0 {
            from += left.trailing_zeros();
            left >>= left.trailing_zeros();
            let n = left.trailing_ones();
            spans.push((from, from + n - 1));
            from += n;
            left >>= n;
        }
    }
}

fn only(character: char) -> Vec<Span> {
    vec![(u32::from(character), u32::from(character))]
}

/// Separates the next alternative from those before it, if there are any.
fn begin_alternative(elements: &mut Sequence) {
    if !elements.is_empty() {
        elements.push(Element::Alternative);
    }
}

/// True if a character is in one of `spans`.
pub fn is_in(spans: &[Span], code_point: u32) -> bool {
    spans
        .iter()
        .any(|span| (span.0..=span.1).contains(&code_point))
}

impl Output {
    /// Returns an empty grammar, with memory for most schemas.
    pub fn new() -> Self {
        const MOST: usize = 112;
        let mut new = Self::default();
        new.classes.reserve(MOST);
        new.written.rules.reserve(2 * MOST, 8 * MOST);
        new.spellings.reserve(MOST / 4);
        new.digits.reserve(MOST / 4);
        new
    }

    /// Adds `n` elements to those that the limit counts.
    pub fn count(&mut self, n: usize) -> Answer<()> {
        self.room_for(n)?;
        self.n_elements += n;
        Ok(())
    }

    /// Refuses the schema if `n` more elements would be too many.
    pub fn room_for(&self, n: usize) -> Answer<()> {
        match self.n_elements + n > MAX_SCHEMA_ELEMENTS {
            false => Ok(()),
            true => Err(Refusal::whole(format!(
                "its grammar has more elements than LLAMA_SIEVE_JSON_MAX_ELEMENTS, \
                 {MAX_SCHEMA_ELEMENTS}; use fewer alternatives, shorter patterns or smaller counts"
            ))),
        }
    }

    /// Takes the classes out, after everything has been written.
    pub fn take_classes(&mut self) -> Vec<Class> {
        std::mem::take(&mut self.classes.all)
    }

    /// Returns an element that matches one of these characters, unescaped.
    pub fn class(&mut self, spans: &[Span]) -> Answer<Element> {
        let number = match *spans {
            [(one, same)] if one == same => self.classes.number_of_one(one),
            _ => self.classes.number_of(spans),
        };
        numbered(number)
    }

    /// Returns an element that matches one character of a class, unescaped.
    pub fn set(&mut self, class: Class) -> Answer<Element> {
        numbered(self.classes.number(class))
    }

    /// Returns an element that never matches.
    pub fn nothing(&mut self) -> Answer<Element> {
        self.class(&[])
    }

    /// Declares a rule that is defined later. Returns its number.
    pub fn reserve(&mut self) -> u32 {
        self.written.rules.declare()
    }

    /// Sets the alternatives of a rule.
    pub fn define(&mut self, rule: u32, alternatives: Vec<Sequence>) -> Answer<()> {
        let mut elements = std::mem::take(&mut self.elements);
        elements.clear();
        for (i, alternative) in alternatives.iter().enumerate() {
            if i > 0 {
                elements.push(Element::Alternative);
            }
            elements.extend_from_slice(alternative);
        }
        if alternatives.is_empty() {
            elements.push(self.nothing()?);
        }
        self.define_as(rule, &elements)?;
        self.elements = elements;
        Ok(())
    }

    /// Sets the alternatives of a rule from their elements, with separators.
    pub fn define_as(&mut self, rule: u32, elements: &[Element]) -> Answer<()> {
        self.count(elements.len() + 1)?;
        self.written.rules.define(rule, elements);
        Ok(())
    }

    /// Returns a reference to a new rule with these alternatives.
    pub fn rule(&mut self, alternatives: Vec<Sequence>) -> Answer<Element> {
        let rule = self.reserve();
        self.define(rule, alternatives)?;
        Ok(Element::Rule(rule))
    }

    /// Returns `item` repeated `min` to `max` times, or at least `min` times if `max` is `None`.
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
            if let Some(&known) = self.loops.get(&item) {
                return Ok(vec![known]);
            }
            let rule = self.reserve();
            let mut rounds = std::mem::take(&mut self.elements);
            rounds.clear();
            rounds.extend_from_slice(&item);
            rounds.extend([Element::Rule(rule), Element::Alternative]);
            self.define_as(rule, &rounds)?;
            self.elements = rounds;
            self.loops.insert(item, Element::Rule(rule));
            return Ok(vec![Element::Rule(rule)]);
        }
        // No text has more characters.
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

    /// Returns an unordered list.
    pub fn unordered(&mut self, list: Unordered<Sequence>) -> Answer<Sequence> {
        let items = list.items.iter().map(Vec::len);
        self.count(items.sum::<usize>() + list.separator.len())?;
        self.written.unordered.push(list);
        let number = self.written.unordered.len() as u32 - 1;
        Ok(vec![Element::Unordered(number)])
    }

    /// Returns the element for a character, unescaped.
    pub fn one(&mut self, character: char) -> Answer<Element> {
        numbered(self.classes.number_of_one(u32::from(character)))
    }

    /// Returns the elements for a text, unescaped.
    pub fn raw(&mut self, text: &str) -> Answer<Sequence> {
        let mut raw = Vec::with_capacity(text.len());
        for character in text.chars() {
            raw.push(self.one(character)?);
        }
        Ok(raw)
    }

    /// Returns the elements for a text within a string, with each character in its common
    /// spellings.
    pub fn content(&mut self, text: &str) -> Answer<Sequence> {
        let mut content = Vec::with_capacity(text.len());
        for character in text.chars() {
            content.push(match character {
                '"' | '\\' | '/' => self.character(only(character)),
                ' '..='~' => self.one(character),
                _ => self.character(only(character)),
            }?);
        }
        Ok(content)
    }

    /// Returns the elements for a string with this content, including the quotation marks.
    pub fn quoted(&mut self, content: Sequence) -> Answer<Sequence> {
        let mark = self.one('"')?;
        let mut quoted = Vec::with_capacity(content.len() + 2);
        quoted.push(mark);
        quoted.extend(content);
        quoted.push(mark);
        Ok(quoted)
    }

    /// Returns an element that matches one of these characters in a string, unescaped or escaped.
    pub fn character(&mut self, spans: Vec<Span>) -> Answer<Element> {
        if let Some(&known) = self.characters.get(&spans) {
            return Ok(known);
        }
        let spellings = self.spellings(&spans)?;
        let element = self.rule(spellings.all().map(<[_]>::to_vec).collect())?;
        self.characters.insert(spans, element);
        Ok(element)
    }

    /// Returns the spellings of these characters.
    pub fn spellings(&mut self, spans: &[Span]) -> Answer<Spellings> {
        const N: usize = 128;
        let one = match *spans {
            [(one, same)] if one == same && one < N as u32 => Some(one as usize),
            _ => None,
        };
        let known = match one {
            Some(one) => self.ascii.get(one).filter(|known| known.escaped.is_some()),
            None => self.spellings.get(spans),
        };
        if let Some(&known) = known {
            return Ok(known);
        }
        let mut spellings = Spellings::default();
        let mut raw = std::mem::take(&mut self.spans);
        common_in(spans, &RAW, &mut raw);
        if !raw.is_empty() {
            spellings.raw = Some(self.class(&raw)?);
        }
        self.spans = raw;
        if !spans.is_empty() {
            spellings.escaped = Some([self.one('\\')?, self.escape(spans)?]);
        }
        match one {
            Some(one) => {
                self.ascii.resize(N, Spellings::default());
                self.ascii[one] = spellings;
            }
            None => {
                self.spellings.insert(spans.to_vec(), spellings);
            }
        }
        Ok(spellings)
    }

    /// Returns the element that, after a backslash, matches the rest of an escape of one of these
    /// characters.
    fn escape(&mut self, spans: &[Span]) -> Answer<Element> {
        let unit = self.one('u')?;
        let zero = self.one('0')?;
        let low = self.low(spans)?;
        let mut elements = std::mem::take(&mut self.elements);
        elements.clear();
        let mut letters = 0;
        for (i, &(_, code_point)) in LETTERS.iter().enumerate() {
            letters |= u8::from(is_in(spans, code_point)) << i;
        }
        if letters != 0 {
            elements.push(self.letter(letters)?);
        }
        if low[0].is_some() {
            begin_alternative(&mut elements);
            elements.extend([unit, zero, zero]);
            elements.extend(low.into_iter().flatten());
        }
        if spans.last().is_some_and(|last| last.1 >= HIGH) {
            let high = match *spans {
                [.., (0..=HIGH, 0xD7FF), (0xE000, 0x10_FFFF)] => self.all_high()?,
                _ => self.high(common(spans, &[(HIGH, 0x10_FFFF)]))?,
            };
            begin_alternative(&mut elements);
            elements.extend([unit, high]);
        }
        if elements.is_empty() {
            elements.push(self.nothing()?);
        }
        let rule = self.reserve();
        self.define_as(rule, &elements)?;
        self.elements = elements;
        Ok(Element::Rule(rule))
    }

    /// Returns at most two elements for the last two hexadecimal digits of the characters of
    /// `spans` below [`HIGH`]; none if there are no such characters.
    fn low(&mut self, spans: &[Span]) -> Answer<[Option<Element>; 2]> {
        // For each second-to-last digit, the set of last digits.
        let mut last = [0_u16; 16];
        for &(from, to) in spans.iter().take_while(|span| span.0 < HIGH) {
            let to = to.min(HIGH - 1);
            for row in from / 16..=to / 16 {
                let (from, to) = (from.max(16 * row), to.min(16 * row + 15));
                last[row as usize] |= u16::MAX >> (15 - (to - from)) << (from % 16);
            }
        }
        // Digits that allow the same last digits become one alternative.
        let mut elements = std::mem::take(&mut self.elements);
        elements.clear();
        let mut done = 0_u16;
        for (at, &last_digits) in last.iter().enumerate() {
            if last_digits == 0 || done >> at & 1 == 1 {
                continue;
            }
            let same = last.iter().rev();
            let first = same.fold(0, |bits, &other| {
                bits << 1 | u16::from(other == last_digits)
            });
            done |= first;
            begin_alternative(&mut elements);
            elements.extend([self.digit(first)?, self.digit(last_digits)?]);
        }
        let mut low = [elements.first().copied(), elements.get(1).copied()];
        if elements.len() > 2 {
            let rule = self.reserve();
            self.define_as(rule, &elements)?;
            low = [Some(Element::Rule(rule)), None];
        }
        self.elements = elements;
        Ok(low)
    }

    /// Returns the element after `\u` for characters from [`HIGH`] on.
    fn high(&mut self, spans: Vec<Span>) -> Answer<Element> {
        if let Some(&known) = self.high.get(&spans) {
            return Ok(known);
        }
        let mut alternatives = Vec::new();
        let basic = common(&spans, &[(0, 0xFFFF)]);
        if !basic.is_empty() {
            alternatives.push(self.hexadecimal(4, basic)?);
        }
        for (low, high) in pairs(&common(&spans, &[(0x10000, 0x10_FFFF)])) {
            let high = self.hexadecimal(4, high)?;
            let low = self.hexadecimal(4, vec![low])?;
            let between = [self.one('\\')?, self.one('u')?];
            alternatives.push([&*high, &between, &*low].concat());
        }
        let element = self.rule(alternatives)?;
        self.high.insert(spans, element);
        Ok(element)
    }

    /// Returns the element after `\u` for all characters from [`HIGH`] on, as
    /// [`high`](Self::high) would: almost every schema needs these.
    fn all_high(&mut self) -> Answer<Element> {
        if let Some(known) = self.all_high {
            return Ok(known);
        }
        let any = self.digit(u16::MAX)?;
        // The digit D begins the surrogates, from D800 to DFFF.
        let (zero, d) = (self.digit(1)?, self.digit(1 << 0xD)?);
        let others = self.digit(!(1 | 1 << 0xD))?;
        let (not_zero, to_seven) = (self.digit(!1)?, self.digit(0x00FF)?);
        let (high, low) = (self.digit(0x0F00)?, self.digit(0xF000)?);
        let between = [self.one('\\')?, self.one('u')?];
        let element = self.rule(vec![
            vec![zero, not_zero, any, any],
            vec![others, any, any, any],
            vec![d, to_seven, any, any],
            [&[d, high, any, any], &between[..], &[d, low, any, any]].concat(),
        ])?;
        self.all_high = Some(element);
        Ok(element)
    }

    /// Returns an element that matches one of the escape letters whose bits are set.
    fn letter(&mut self, escapes: u8) -> Answer<Element> {
        if let Some(&known) = self.letters.get(&escapes) {
            return Ok(known);
        }
        let element = self.class(&letters(escapes))?;
        self.letters.insert(escapes, element);
        Ok(element)
    }

    /// Returns an element that matches a hexadecimal digit whose value has its bit set.
    fn digit(&mut self, values: u16) -> Answer<Element> {
        if let Some(&known) = self.digits.get(&values) {
            return Ok(known);
        }
        let mut spans = std::mem::take(&mut self.spans);
        spans.clear();
        add_digits(values, &mut spans);
        let element = self.class(&spans)?;
        self.spans = spans;
        self.digits.insert(values, element);
        Ok(element)
    }

    /// Returns the elements for `n` hexadecimal digits with one of these values.
    fn hexadecimal(&mut self, n: u32, values: Vec<Span>) -> Answer<Sequence> {
        if *values == [(0, (1 << (4 * n)) - 1)] {
            return Ok(vec![self.digit(u16::MAX)?; n as usize]);
        }
        let key = (n, values);
        if let Some(known) = self.hexadecimal.get(&key) {
            return Ok(known.clone());
        }
        let bits = 4 * (n - 1);
        // The sets of first digits, by the values that may follow them.
        let mut digits: Vec<(Vec<Span>, u16)> = Vec::new();
        let mut values = &*key.1;
        for digit in 0..16_u32 {
            let (first, last) = (digit << bits, (digit << bits) + ((1 << bits) - 1));
            while values.first().is_some_and(|span| span.1 < first) {
                values = &values[1..];
            }
            let within = values.iter().take_while(|span| span.0 <= last);
            let within = within.map(|&(a, b)| (a.max(first) - first, b.min(last) - first));
            if within.clone().next().is_none() {
                continue;
            }
            let mut known = digits.iter_mut();
            match known.find(|known| known.0.iter().copied().eq(within.clone())) {
                Some((_, all)) => *all |= 1 << digit,
                None => digits.push((within.collect(), 1 << digit)),
            }
        }
        let mut alternatives = Vec::with_capacity(digits.len());
        for (within, digits) in digits {
            let mut alternative = vec![self.digit(digits)?];
            if n > 1 {
                alternative.extend(self.hexadecimal(n - 1, within)?);
            }
            alternatives.push(alternative);
        }
        let sequence = self.either(alternatives)?;
        self.hexadecimal.insert(key, sequence.clone());
        Ok(sequence)
    }

    /// Returns the elements for one of these alternatives; none if there are no alternatives.
    fn either(&mut self, mut alternatives: Vec<Sequence>) -> Answer<Sequence> {
        Ok(match alternatives.len() {
            0 | 1 => alternatives.pop().unwrap_or_default(),
            _ => vec![self.rule(alternatives)?],
        })
    }

    /// Returns the element for the texts of an automaton, as the content of a string or unescaped.
    pub fn automaton(&mut self, dfa: &Shared, in_string: bool) -> Answer<Element> {
        let key = (Arc::as_ptr(dfa).addr(), in_string);
        if let Some((known, _)) = self.automata.get(&key) {
            return Ok(*known);
        }
        let first = self.written.rules.len() as u32;
        for _ in &dfa.states {
            self.reserve();
        }
        let (mut edges, mut spans, mut elements) = (Vec::new(), Vec::new(), Vec::new());
        for (rule, state) in (first..).zip(&dfa.states) {
            edges.clear();
            edges.extend_from_slice(&state.edges);
            edges.sort_by_key(|edge| edge.2);
            elements.clear();
            for same in edges.chunk_by(|a, b| a.2 == b.2) {
                let target = same[0].2;
                spans.clear();
                spans.extend(same.iter().map(|&(first, last, _)| (first, last)));
                let spellings = match in_string {
                    true => self.spellings(&spans)?,
                    false => Spellings::unescaped(self.class(&spans)?),
                };
                let behind = (!is_last(dfa, target)).then_some(Element::Rule(first + target));
                spellings.add_alternatives(behind.as_slice(), &mut elements);
            }
            match (elements.is_empty(), state.accepts) {
                (true, false) => elements.push(self.nothing()?),
                (false, true) => elements.push(Element::Alternative),
                _ => {}
            }
            self.define_as(rule, &elements)?;
        }
        let element = Element::Rule(first);
        self.automata.insert(key, (element, Arc::clone(dfa)));
        Ok(element)
    }

    /// Returns the elements for the content of any string with `min` to `max` characters.
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

/// Returns the surrogate pairs of the characters from U+10000 on: for each range of low surrogates,
/// the high surrogates that may precede them.
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

/// Returns the characters of `spans`, including surrogates, as ascending spans that neither overlap
/// nor are adjacent.
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

#[cfg(test)]
mod tests {
    use super::add_digits;

    #[test]
    fn hexadecimal_digits_are_those_of_the_standard_library() {
        for values in 0..=u16::MAX {
            let mut digits = Vec::new();
            add_digits(values, &mut digits);
            let is_ascending = digits.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0);
            assert!(is_ascending, "{values:#x}: {digits:?}");
            for character in '\0'..='\x7F' {
                let value = character.to_digit(16);
                let is_wanted = value.is_some_and(|value| values >> value & 1 == 1);
                let code_point = u32::from(character);
                let is_there = digits
                    .iter()
                    .any(|span| (span.0..=span.1).contains(&code_point));
                assert_eq!(is_there, is_wanted, "{values:#x}: {character:?}");
            }
        }
    }
}
