//! Compiles the patterns of JSON Schema, which are regular expressions of ECMA-262, to automata.
//!
//! The syntax is that of ECMA-262 with parts of its Annex B. Only the characters of `\p{...}` come
//! from `regex-syntax`, whose syntax differs. Look-around, back references and word boundaries are
//! not supported. A pattern with one of these is refused, with a message that names it.

// In bounds: numbers of nodes are positions in a list that only grows.

use std::cell::RefCell;

use crate::grammar::hash::Map;
use crate::grammar::limits::{MAX_SCHEMA_GROUPS, MAX_SCHEMA_PATTERN};
use crate::grammar::schema::automaton::{ALL, Dfa, Span, explore};
use crate::grammar::schema::work::Work;

/// A part of a pattern.
#[derive(Clone, Debug)]
enum Part {
    /// One of these characters.
    Class(Vec<Span>),
    /// The beginning of the text.
    Start,
    /// The end of the text.
    End,
    /// A sequence.
    All(Vec<Part>),
    /// Alternatives.
    Any(Vec<Part>),
    /// A part, repeated at least and at most this many times; unbounded if there is no maximum.
    Times(Box<Part>, u32, Option<u32>),
}

/// Returns the automaton of the texts that contain a match of a pattern, or the reason why the
/// automaton cannot be built.
pub fn found_in(pattern: &str, work: &Work) -> Result<Dfa, String> {
    let characters: Vec<char> = pattern.chars().collect();
    let mut reader = Reader {
        pattern: &characters,
        at: 0,
    };
    let part = reader.alternatives(0)?;
    if reader.at < characters.len() {
        return Err(reader.fault("a ')' without '('"));
    }
    let mut nodes = Nodes::default();
    let (start, search, end) = (nodes.add()?, nodes.add()?, nodes.add()?);
    for (at, to) in [(start, start), (end, end)] {
        nodes.all[at as usize].class = Some((ALL.to_vec(), to));
    }
    nodes.all[start as usize].free.push(search);
    let found = nodes.put(&part, search)?;
    nodes.all[found as usize].free.push(end);
    nodes
        .automaton(start, end, work)
        .map_err(|_| "its automaton exceeds LLAMA_SIEVE_JSON_MAX_STATES; simplify it".into())
}

struct Reader<'a> {
    pattern: &'a [char],
    at: usize,
}

/// The characters of `\s`.
const SPACES: [Span; 10] = [
    (9, 13),
    (0x20, 0x20),
    (0xA0, 0xA0),
    (0x1680, 0x1680),
    (0x2000, 0x200A),
    (0x2028, 0x2029),
    (0x202F, 0x202F),
    (0x205F, 0x205F),
    (0x3000, 0x3000),
    (0xFEFF, 0xFEFF),
];
const DIGITS: [Span; 1] = [(0x30, 0x39)];
const WORDS: [Span; 4] = [(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)];
const LINE_ENDS: [Span; 3] = [(10, 10), (13, 13), (0x2028, 0x2029)];

/// Returns the characters of `spans`, except surrogates, as ascending spans that neither overlap
/// nor are adjacent.
pub fn tidied(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable();
    let mut tidy: Vec<Span> = Vec::new();
    for (first, last) in spans {
        match tidy.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => tidy.push((first, last)),
        }
    }
    common(&tidy, &ALL)
}

/// Returns the intersection of two sets of characters.
pub fn common(a: &[Span], b: &[Span]) -> Vec<Span> {
    let mut both = Vec::with_capacity(a.len() + b.len());
    common_in(a, b, &mut both);
    both
}

/// Replaces the content of `both` with the intersection of `a` and `b`.
pub fn common_in(a: &[Span], b: &[Span], both: &mut Vec<Span>) {
    both.clear();
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (first, last) = (x.0.max(y.0), x.1.min(y.1));
        if first <= last {
            both.push((first, last));
        }
        match x.1 < y.1 {
            true => i += 1,
            false => j += 1,
        }
    }
}

/// Returns the complement of `spans`, without surrogates.
pub fn others(spans: &[Span]) -> Vec<Span> {
    let mut others = Vec::new();
    let mut next = 0;
    for &(first, last) in spans {
        if first > next {
            others.push((next, first - 1));
        }
        next = last + 1;
    }
    others.push((next, 0x10_FFFF));
    others.retain(|&(first, last)| first <= last);
    common(&others, &ALL)
}

impl Reader<'_> {
    fn fault(&self, what: &str) -> String {
        format!("{what}, at character {}", self.at + 1)
    }

    fn peek(&self) -> Option<char> {
        self.pattern.get(self.at).copied()
    }

    fn eat(&mut self, text: &str) -> bool {
        let n = text.chars().count();
        let rest = self.pattern.get(self.at..).unwrap_or_default();
        let is_there = rest.len() >= n && rest.iter().zip(text.chars()).all(|(a, b)| *a == b);
        if is_there {
            self.at += n;
        }
        is_there
    }

    fn alternatives(&mut self, depth: usize) -> Result<Part, String> {
        if depth > MAX_SCHEMA_GROUPS {
            return Err(self.fault("groups are nested deeper than LLAMA_SIEVE_JSON_MAX_GROUPS"));
        }
        let mut alternatives = vec![self.sequence(depth)?];
        while self.eat("|") {
            alternatives.push(self.sequence(depth)?);
        }
        Ok(match alternatives.len() {
            1 => alternatives.remove(0),
            _ => Part::Any(alternatives),
        })
    }

    fn sequence(&mut self, depth: usize) -> Result<Part, String> {
        let mut parts = Vec::new();
        while let Some(character) = self.peek() {
            if matches!(character, '|' | ')') {
                break;
            }
            let is_assertion = matches!(character, '^' | '$');
            let part = self.atom(depth)?;
            parts.push(match self.times()? {
                None => part,
                Some(_) if is_assertion => return Err(self.fault("an assertion is repeated")),
                Some((min, max)) => Part::Times(Box::new(part), min, max),
            });
        }
        Ok(Part::All(parts))
    }

    fn times(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let times = match self.peek() {
            Some('*') => (0, None),
            Some('+') => (1, None),
            Some('?') => (0, Some(1)),
            Some('{') => match self.counts()? {
                Some(counts) => {
                    self.at -= 1;
                    counts
                }
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.at += 1;
        // Laziness does not change the language.
        self.eat("?");
        if let Some('*' | '+' | '?') = self.peek() {
            return Err(self.fault("nothing to repeat"));
        }
        Ok(Some(times))
    }

    /// Reads the numbers of a repetition in braces; `None` if the braces are ordinary characters.
    fn counts(&mut self) -> Result<Option<(u32, Option<u32>)>, String> {
        let from = self.at;
        self.at += 1;
        let min = self.number()?;
        let max = match self.eat(",") {
            false => min,
            true => self.number()?,
        };
        let has_comma = self.pattern.get(self.at.wrapping_sub(1)) == Some(&',');
        let (Some(min), true) = (min, self.eat("}")) else {
            self.at = from;
            return Ok(None);
        };
        let max = if has_comma { None } else { max };
        if max.is_some_and(|max| max < min) {
            return Err(self.fault("numbers out of order"));
        }
        Ok(Some((min, max)))
    }

    fn number(&mut self) -> Result<Option<u32>, String> {
        let mut value = None;
        while let Some(digit) = self.peek().and_then(|digit| digit.to_digit(10)) {
            let next = value.unwrap_or(0_u32).checked_mul(10);
            value = next.and_then(|next| next.checked_add(digit));
            if value.is_none() {
                return Err(self.fault("a number is too large"));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn atom(&mut self, depth: usize) -> Result<Part, String> {
        let Some(character) = self.peek() else {
            return Ok(Part::All(Vec::new()));
        };
        self.at += 1;
        Ok(match character {
            '^' => Part::Start,
            '$' => Part::End,
            '.' => Part::Class(others(&LINE_ENDS)),
            '(' => self.group(depth)?,
            '[' => Part::Class(self.class()?),
            '\\' => Part::Class(self.escape(false)?),
            '*' | '+' | '?' => return Err(self.fault("nothing to repeat")),
            '{' => {
                self.at -= 1;
                if self.counts()?.is_some() {
                    return Err(self.fault("nothing to repeat"));
                }
                self.at += 1;
                one('{')
            }
            other => one(other),
        })
    }

    fn group(&mut self, depth: usize) -> Result<Part, String> {
        if self.eat("?") {
            if self.eat("=") || self.eat("!") {
                return Err(self.fault("look-ahead is not supported"));
            }
            if self.eat("<=") || self.eat("<!") {
                return Err(self.fault("look-behind is not supported"));
            }
            if self.eat("<") {
                while let Some(character) = self.peek() {
                    self.at += 1;
                    if character == '>' {
                        break;
                    }
                    if !(character.is_alphanumeric() || matches!(character, '_' | '$')) {
                        return Err(self.fault("no name of a group"));
                    }
                }
            } else if !self.eat(":") {
                return Err(self.fault("flags are not supported"));
            }
        }
        let part = self.alternatives(depth + 1)?;
        match self.eat(")") {
            true => Ok(part),
            false => Err(self.fault("a '(' without ')'")),
        }
    }

    fn class(&mut self) -> Result<Vec<Span>, String> {
        let negated = self.eat("^");
        let mut spans = Vec::new();
        loop {
            if self.eat("]") {
                let spans = tidied(spans);
                return Ok(if negated { others(&spans) } else { spans });
            }
            let from = self.member()?;
            let is_range = self.peek() == Some('-')
                && self
                    .pattern
                    .get(self.at + 1)
                    .is_some_and(|&next| next != ']');
            if !is_range {
                spans.extend(from);
                continue;
            }
            self.at += 1;
            let to = self.member()?;
            match (&*from, &*to) {
                (&[(first, same)], &[(last, other)]) if first == same && last == other => {
                    if first > last {
                        return Err(self.fault("a range out of order"));
                    }
                    spans.push((first, last));
                }
                _ => {
                    spans.extend(from);
                    spans.extend(to);
                    spans.push((0x2D, 0x2D));
                }
            }
        }
    }

    fn member(&mut self) -> Result<Vec<Span>, String> {
        let Some(character) = self.peek() else {
            return Err(self.fault("a '[' without ']'"));
        };
        self.at += 1;
        match character {
            '\\' => self.escape(true),
            other => Ok(vec![(u32::from(other), u32::from(other))]),
        }
    }

    fn escape(&mut self, in_class: bool) -> Result<Vec<Span>, String> {
        let Some(character) = self.peek() else {
            return Err(self.fault("a '\\' at the end"));
        };
        self.at += 1;
        let code_point = match character {
            'd' => return Ok(DIGITS.to_vec()),
            'D' => return Ok(others(&DIGITS)),
            'w' => return Ok(WORDS.to_vec()),
            'W' => return Ok(others(&WORDS)),
            's' => return Ok(SPACES.to_vec()),
            'S' => return Ok(others(&SPACES)),
            'p' | 'P' => return self.property(character),
            'b' if in_class => 8,
            'b' | 'B' => return Err(self.fault("word boundaries are not supported")),
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'v' => 11,
            '0' if !self.peek().is_some_and(|next| next.is_ascii_digit()) => 0,
            '0'..='9' => return Err(self.fault("back references are not supported")),
            'k' => return Err(self.fault("back references are not supported")),
            'c' => match self.peek() {
                Some(letter) if letter.is_ascii_alphabetic() => {
                    self.at += 1;
                    u32::from(letter) % 32
                }
                _ => return Err(self.fault("no control letter")),
            },
            'x' => self.hexadecimal(2)?,
            'u' => self.unicode()?,
            letter if letter.is_ascii_alphanumeric() => {
                return Err(self.fault(&format!("no escape of ECMA-262: '\\{letter}'")));
            }
            other => u32::from(other),
        };
        Ok(vec![(code_point, code_point)])
    }

    fn hexadecimal(&mut self, n: usize) -> Result<u32, String> {
        let digits = self.pattern.get(self.at..self.at + n).unwrap_or_default();
        let value = digits
            .iter()
            .try_fold(0, |value, digit| Some(value * 16 + digit.to_digit(16)?));
        match value.filter(|_| digits.len() == n) {
            Some(value) => {
                self.at += n;
                Ok(value)
            }
            None => Err(self.fault("expected hexadecimal digits")),
        }
    }

    fn unicode(&mut self) -> Result<u32, String> {
        let code_point = if self.eat("{") {
            let n = self.pattern[self.at..]
                .iter()
                .take_while(|c| **c != '}')
                .count();
            if n == 0 || n > 8 {
                return Err(self.fault("expected a code point"));
            }
            let value = self.hexadecimal(n)?;
            self.eat("}");
            value
        } else {
            let high = self.hexadecimal(4)?;
            if (0xD800..0xDC00).contains(&high) && self.eat("\\u") {
                let low = self.hexadecimal(4)?;
                match (0xDC00..0xE000).contains(&low) {
                    true => 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00),
                    false => high,
                }
            } else {
                high
            }
        };
        match char::from_u32(code_point) {
            Some(_) => Ok(code_point),
            None => Err(self.fault("no code point")),
        }
    }

    fn property(&mut self, letter: char) -> Result<Vec<Span>, String> {
        let rest = self.pattern.get(self.at..).unwrap_or_default();
        let n = rest.iter().position(|&character| character == '}');
        let (Some('{'), Some(n)) = (self.peek(), n) else {
            return Err(self.fault("expected '{' and the name of a property"));
        };
        let name: String = rest.iter().take(n + 1).collect();
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '{' | '}' | '_' | '=');
        self.at += n + 1;
        let hir = match name.chars().all(is_name) {
            true => regex_syntax::parse(&format!("\\{letter}{name}")).ok(),
            false => None,
        };
        match hir.as_ref().map(regex_syntax::hir::Hir::kind) {
            Some(regex_syntax::hir::HirKind::Class(regex_syntax::hir::Class::Unicode(class))) => {
                let span = |range: &regex_syntax::hir::ClassUnicodeRange| {
                    (u32::from(range.start()), u32::from(range.end()))
                };
                Ok(tidied(class.ranges().iter().map(span).collect()))
            }
            _ => Err(self.fault(&format!("the property {name} is not known"))),
        }
    }
}

fn one(character: char) -> Part {
    Part::Class(vec![(u32::from(character), u32::from(character))])
}

/// A node of the nondeterministic automaton.
#[derive(Debug, Default)]
struct Node {
    /// The nodes that epsilon transitions lead to.
    free: Vec<u32>,
    /// The targets of the epsilon transitions that are taken only at the beginning of the text.
    at_start: Vec<u32>,
    /// The targets of the epsilon transitions that are taken only at the end of the text.
    at_end: Vec<u32>,
    /// A set of characters, and the target of the transition on each of them.
    class: Option<(Vec<Span>, u32)>,
}

#[derive(Debug, Default)]
struct Nodes {
    all: Vec<Node>,
    /// Scratch memory: one mark per node, all false between calls.
    seen: RefCell<Vec<bool>>,
}

impl Nodes {
    fn add(&mut self) -> Result<u32, String> {
        if self.all.len() >= MAX_SCHEMA_PATTERN {
            return Err(
                "it is longer than LLAMA_SIEVE_JSON_MAX_PATTERN, repetitions written out; \
                        simplify it"
                    .into(),
            );
        }
        self.all.push(Node::default());
        Ok(self.all.len() as u32 - 1)
    }

    /// Adds a part after the node `from`. Returns the node at the end of the part.
    fn put(&mut self, part: &Part, from: u32) -> Result<u32, String> {
        match part {
            Part::Class(spans) => {
                let (at, to) = (self.add()?, self.add()?);
                self.all[from as usize].free.push(at);
                self.all[at as usize].class = Some((spans.clone(), to));
                Ok(to)
            }
            Part::Start => {
                let to = self.add()?;
                self.all[from as usize].at_start.push(to);
                Ok(to)
            }
            Part::End => {
                let to = self.add()?;
                self.all[from as usize].at_end.push(to);
                Ok(to)
            }
            Part::All(parts) => parts
                .iter()
                .try_fold(from, |from, part| self.put(part, from)),
            Part::Any(parts) => {
                let to = self.add()?;
                for part in parts {
                    let at = self.add()?;
                    self.all[from as usize].free.push(at);
                    let end = self.put(part, at)?;
                    self.all[end as usize].free.push(to);
                }
                Ok(to)
            }
            Part::Times(part, min, max) => {
                let mut at = from;
                for _ in 0..*min {
                    at = self.put(part, at)?;
                }
                let Some(max) = max else {
                    let again = self.add()?;
                    self.all[at as usize].free.push(again);
                    let end = self.put(part, again)?;
                    self.all[end as usize].free.push(again);
                    return Ok(again);
                };
                let to = self.add()?;
                self.all[at as usize].free.push(to);
                for _ in *min..*max {
                    let begin = self.add()?;
                    self.all[at as usize].free.push(begin);
                    at = self.put(part, begin)?;
                    self.all[at as usize].free.push(to);
                }
                Ok(to)
            }
        }
    }

    /// Returns the epsilon closure of the nodes `from`, ascending.
    fn reached(&self, from: &[u32], at_start: bool, at_end: bool) -> Vec<u32> {
        let mut seen = self.seen.take();
        seen.resize(self.all.len(), false);
        let mut to_do = from.to_vec();
        let mut reached = Vec::new();
        while let Some(at) = to_do.pop() {
            if std::mem::replace(&mut seen[at as usize], true) {
                continue;
            }
            reached.push(at);
            let node = &self.all[at as usize];
            to_do.extend(&node.free);
            if at_start {
                to_do.extend(&node.at_start);
            }
            if at_end {
                to_do.extend(&node.at_end);
            }
        }
        for &at in &reached {
            seen[at as usize] = false;
        }
        self.seen.replace(seen);
        reached.sort_unstable();
        reached
    }

    fn automaton(&self, start: u32, end: u32, work: &Work) -> Result<Dfa, ()> {
        // Only two kinds of nodes matter: those with a class or a transition at the end of the
        // text, and the node `end`, which accepts any rest.
        let settled = |from: &[u32], at_start: bool| {
            let mut reached = self.reached(from, at_start, false);
            if reached.contains(&end) {
                return vec![end];
            }
            reached.retain(|&at| {
                let node = &self.all[at as usize];
                node.class.is_some() || !node.at_end.is_empty()
            });
            reached
        };
        let dfa = explore(
            work,
            (true, settled(&[start], true)),
            |(at_start, nodes)| self.reached(nodes, *at_start, true).contains(&end),
            |(_, nodes), next| {
                let classes: Vec<&(Vec<Span>, u32)> = nodes
                    .iter()
                    .filter_map(|&at| self.all[at as usize].class.as_ref())
                    .collect();
                let spans = classes.iter().flat_map(|(spans, _)| spans);
                let mut starts: Vec<u32> = spans.flat_map(|&(a, b)| [a, b + 1]).collect();
                starts.sort_unstable();
                starts.dedup();
                let n = nodes.len() + starts.len() * (2 + classes.len());
                if work.spend(4 * n).is_err() {
                    return;
                }
                // Many characters lead to the same nodes.
                let mut known: Map<Vec<u32>, Vec<u32>> = Map::default();
                for pair in starts.windows(2) {
                    let has = |spans: &[Span]| {
                        let at = spans.partition_point(|span| span.1 < pair[0]);
                        spans.get(at).is_some_and(|span| span.0 <= pair[0])
                    };
                    let mut targets: Vec<u32> = classes
                        .iter()
                        .filter(|(spans, _)| has(spans))
                        .map(|&&(_, to)| to)
                        .collect();
                    targets.sort_unstable();
                    targets.dedup();
                    if targets.is_empty() {
                        continue;
                    }
                    let settled = match known.get(&targets) {
                        Some(known) => known.clone(),
                        None => {
                            let settled = settled(&targets, false);
                            known.insert(targets, settled.clone());
                            settled
                        }
                    };
                    next.push((pair[0], pair[1] - 1, (false, settled)));
                }
            },
        );
        dfa.map(|dfa| dfa.minimized(work)).map_err(|_| ())
    }
}
