//! The parts of a grammar: character classes, tokens, and references to rules.
//!
//! The parser gives each rule as a list of [`Element`]s. [`Rules::link`] turns these lists into
//! *sequences*. A sequence is an item and the number of the sequence that follows it. Equal pairs
//! are interned under one number, so alternatives with a common suffix share it, however often a
//! repetition has produced it.

use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;

use crate::grammar::hash::{Keys, Map, Set};
use crate::grammar::limits::{MAX_CLASSES, MAX_SEQUENCES};
use crate::grammar::lists::Lists;
use crate::token::Token;

/// A set of code points: those of the listed ranges, or, if negated, all others.
///
/// A range that ends before it begins matches no character, but can match an incomplete one.
/// [`has`](Self::has) and [`may_have`](Self::may_have) search for a range that begins at or before
/// one code point and ends at or after another. So a range matters only if it ends after all ranges
/// that begin before it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Class {
    /// True if the class has the characters outside the ranges.
    pub negated: bool,
    /// True if the class has every character (`.`).
    pub any: bool,
    /// The first and last code point of each range, both ascending. A range that ends no later than
    /// an earlier one is left out.
    pub ranges: Box<[(u32, u32)]>,
}

impl Class {
    /// Returns the class of exactly one code point.
    pub fn one(code_point: u32) -> Self {
        Self {
            negated: false,
            any: false,
            ranges: Box::new([(code_point, code_point)]),
        }
    }

    /// Returns the class of every code point.
    pub fn any() -> Self {
        Self {
            negated: false,
            any: true,
            ranges: Box::new([]),
        }
    }

    /// Returns the class of the characters in these ranges, or, if negated, outside them.
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

    /// True if a character is in the class.
    pub fn has(&self, code_point: u32) -> bool {
        self.any || self.reaches(code_point, code_point) != self.negated
    }

    /// Returns the only code point from `low` to `high` that is in the class; `Some(None)` if none
    /// is, and `None` if several are.
    pub fn only(&self, (low, high): (u32, u32)) -> Option<Option<u32>> {
        let mut only = None;
        let mut is_one = true;
        let mut add = |first: u32, last: u32| {
            let (first, last) = (first.max(low), last.min(high));
            if first <= last {
                is_one &= first == last && only.is_none_or(|only| only == first);
                only = Some(first);
            }
        };
        if self.any {
            add(low, high);
        } else if !self.negated {
            self.ranges
                .iter()
                .for_each(|&(first, last)| add(first, last));
        } else {
            let mut from = 0;
            for &(first, last) in self.ranges.iter().filter(|(first, last)| first <= last) {
                if from < first {
                    add(from, first - 1);
                }
                from = from.max(last.saturating_add(1));
            }
            add(from, u32::MAX);
        }
        is_one.then_some(only)
    }

    /// True if a range begins at or before `high` and ends at or after `low`.
    fn reaches(&self, low: u32, high: u32) -> bool {
        let n = self.ranges.partition_point(|&(first, _)| first <= high);
        let last = self.ranges.get(..n).and_then(<[_]>::last);
        last.is_some_and(|&(_, last)| low <= last)
    }

    /// True if an unfinished character could still be in the class. `value` has the bits of its
    /// first bytes, and `missing` is the number of bytes to come.
    ///
    /// For a negated class, false if the character could still become one of the listed code
    /// points.
    pub fn may_have(&self, value: u32, missing: u8) -> bool {
        // An overlong form: two bytes for a character that fits in one.
        if missing == 1 && value < 2 {
            return false;
        }
        if self.any {
            return true;
        }
        let bits = 6 * u32::from(missing.min(3));
        let low = value << bits;
        let high = low | ((1 << bits) - 1);
        // Code points below these would be overlong forms.
        let low = match (low, missing) {
            (0, 2) => 1 << 11,
            (0, 3) => 1 << 16,
            _ => low,
        };
        self.reaches(low, high) != self.negated
    }
}

/// One element of a rule, as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Element {
    /// A character of the class with this number.
    Class(u32),
    /// The token with this id.
    Token(u32),
    /// Any token except the one with this id.
    TokenNot(u32),
    /// A reference to the rule with this number.
    Rule(u32),
    /// The counted repetition with this number.
    Repeat(u32),
    /// The unordered list with this number.
    Unordered(u32),
    /// Marks, after an item of an unordered list, that the item with this index has occurred. Only
    /// linked rules have such marks.
    Occurred(u32),
    /// The end of an alternative that is not the last.
    Alternative,
}

/// The number of the empty sequence.
pub const EMPTY: u32 = 0;

/// A sequence: an element and the number of the sequence after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The first element, never [`Element::Alternative`].
    pub item: Element,
    /// The number of the sequence after it.
    pub rest: u32,
}

/// Hashes both fields as one word, for speed: a grammar has almost as many sequences as elements.
impl Hash for Sequence {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let (kind, number) = match self.item {
            Element::Class(number) => (0, number),
            Element::Token(number) => (1, number),
            Element::TokenNot(number) => (2, number),
            Element::Rule(number) => (3, number),
            Element::Repeat(number) => (4, number),
            Element::Unordered(number) => (5, number),
            Element::Occurred(number) => (6, number),
            Element::Alternative => (7, 0),
        };
        let place = u64::from(number) << 32 | u64::from(self.rest);
        state.write_u64(place ^ kind << 29);
    }
}

impl Written {
    /// Replaces each reference to a rule that consists of one element with that element.
    fn replace_names(&mut self) {
        let content = |rule: &[Element]| match *rule {
            [Element::Alternative] => None,
            [element] => Some(element),
            _ => None,
        };
        let mut contents: Vec<Option<Element>> = self.rules.iter().map(content).collect();
        let mut chain = Vec::new();
        // A chain of references ends, since no rule begins with itself. All rules of the chain are
        // set to its end, so that no chain is followed twice.
        let mut replaced = |mut element| {
            while let Element::Rule(rule) = element
                && let Some(content) = contents.get(rule as usize).copied().flatten()
            {
                chain.push(rule);
                element = content;
            }
            for rule in chain.drain(..) {
                if let Some(content) = contents.get_mut(rule as usize) {
                    *content = Some(element);
                }
            }
            element
        };
        let lists = self.unordered.iter_mut();
        let lists = lists.flat_map(|list| list.items.iter_mut().chain([&mut list.separator]));
        let items = self.repeats.iter_mut().map(|repeat| &mut repeat.item);
        let items = items.chain(lists).flatten();
        let is_reference = |element: &&mut Element| matches!(element, Element::Rule(_));
        let elements = self.rules.elements.iter_mut().chain(items);
        elements
            .filter(is_reference)
            .for_each(|element| *element = replaced(*element));
    }
}

/// A repeated item, and how often it may occur. The item is stored once, however large the numbers
/// are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat<Item> {
    /// The item that is repeated.
    pub item: Item,
    /// The minimum number of rounds.
    pub min: u32,
    /// The maximum number of rounds; [`ENDLESS`] if unbounded.
    pub max: u32,
}

/// A list of items in any order, with a separator between them. No item, and not the separator,
/// matches the empty text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unordered<Item> {
    /// The items: those that must occur, once; then those that may occur once; then those that may
    /// occur any number of times.
    pub items: Vec<Item>,
    /// The separator.
    pub separator: Item,
    /// The number of items that must occur.
    pub n_required: usize,
    /// The number of items that occur at most once.
    pub n_once: usize,
}

impl<Item> Unordered<Item> {
    /// Returns the items that must occur.
    pub fn required(&self) -> &[Item] {
        self.items.get(..self.n_required).unwrap_or_default()
    }

    /// True if the list may end at a position.
    pub fn may_end(&self, position: &Position) -> bool {
        let has_all = (0..self.n_required).all(|item| position.has(item));
        has_all && !position.is_separated
    }

    /// Returns the items that may still occur, if not directly after another item.
    pub fn next(&self, position: &Position) -> impl Iterator<Item = &Item> {
        let all = self.items.iter().enumerate();
        all.filter_map(|(at, item)| (!position.has(at)).then_some(item))
    }
}

/// A position in an unordered list.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Position {
    /// True if an item has occurred.
    pub has_begun: bool,
    /// True directly after the separator.
    pub is_separated: bool,
    /// The items that have occurred, of those that occur at most once: a bit for each, up to the
    /// last word that is not zero.
    occurred: Vec<u64>,
}

impl Position {
    /// Returns the position at the beginning of a list.
    pub const fn beginning() -> Self {
        Self {
            has_begun: false,
            is_separated: false,
            occurred: Vec::new(),
        }
    }

    /// True if this item has occurred, and occurs at most once.
    pub fn has(&self, item: usize) -> bool {
        let word = self.occurred.get(item / 64);
        word.is_some_and(|word| word >> (item % 64) & 1 == 1)
    }

    /// Marks that an item has occurred that occurs at most once.
    pub fn add(&mut self, item: usize) {
        let n = self.occurred.len().max(item / 64 + 1);
        self.occurred.resize(n, 0);
        if let Some(word) = self.occurred.get_mut(item / 64) {
            *word |= 1 << (item % 64);
        }
    }

    /// Returns the items that have occurred, as words of 64 bits.
    pub fn words(&self) -> &[u64] {
        &self.occurred
    }
}

/// An unbounded number of rounds.
pub const ENDLESS: u32 = u32::MAX;

/// The elements of all rules in one array, since a grammar has hundreds of short rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WrittenRules {
    elements: Vec<Element>,
    /// The range of each rule's elements.
    places: Vec<(usize, usize)>,
}

impl WrittenRules {
    /// Reserves memory for `n_rules` rules with `n_elements` elements in total.
    pub fn reserve(&mut self, n_rules: usize, n_elements: usize) {
        self.places.reserve(n_rules);
        self.elements.reserve(n_elements);
    }

    /// Adds a rule, still without elements. Returns its number.
    pub fn declare(&mut self) -> u32 {
        self.places.push((0, 0));
        self.places.len() as u32 - 1
    }

    /// Sets the elements of a declared rule.
    pub fn define(&mut self, rule: u32, elements: &[Element]) {
        let Some(place) = self.places.get_mut(rule as usize) else {
            return;
        };
        let first = self.elements.len();
        self.elements.extend_from_slice(elements);
        *place = (first, self.elements.len());
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// True if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the elements of a rule; `None` if there is no such rule.
    #[inline]
    pub fn get(&self, rule: usize) -> Option<&[Element]> {
        let &(first, end) = self.places.get(rule)?;
        self.elements.get(first..end)
    }

    /// Returns the elements of each rule, in order.
    pub fn iter(&self) -> impl Iterator<Item = &[Element]> {
        (0..self.len()).map(|rule| self.get(rule).unwrap_or_default())
    }
}

impl<E: AsRef<[Element]>> FromIterator<E> for WrittenRules {
    fn from_iter<I: IntoIterator<Item = E>>(rules: I) -> Self {
        let mut all = Self::default();
        for elements in rules {
            let rule = all.declare();
            all.define(rule, elements.as_ref());
        }
        all
    }
}

/// Rules as they were written, not yet linked. Each group is a separate rule.
#[derive(Clone, Debug, Default)]
pub struct Written {
    /// The character classes, by number.
    pub classes: Vec<Class>,
    /// The elements of each rule.
    pub rules: WrittenRules,
    /// The counted repetitions.
    pub repeats: Vec<Repeat<Vec<Element>>>,
    /// The unordered lists.
    pub unordered: Vec<Unordered<Vec<Element>>>,
    /// The start rule.
    pub root: u32,
}

/// A grammar whose rules are sequences.
#[derive(Debug, Default)]
pub struct Rules {
    /// The character classes, by number.
    pub classes: Vec<Class>,
    /// The sequences, by number; the first is the empty sequence, whose content is unused.
    pub sequences: Vec<Sequence>,
    /// The alternatives of each rule, as numbers of sequences.
    pub alternatives: Lists,
    /// The counted repetitions, whose items are sequences.
    pub repeats: Vec<Repeat<u32>>,
    /// The unordered lists, whose items are sequences.
    pub unordered: Vec<Unordered<u32>>,
    /// For each sequence, true if it matches the empty text.
    may_be_empty: Vec<bool>,
    /// For each rule, true if it is nothing but an unbounded repetition: `rule ::= item rule |`.
    is_loop: Vec<bool>,
    /// The start rule.
    pub root: u32,
    /// True if the grammar accepts only UTF-8. Otherwise bytes are read as in llama.cpp.
    pub is_strict: bool,
    /// The tokens that are matched only by id, never as characters, ascending.
    pub by_number: Box<[Token]>,
    /// Properties of the grammar's source.
    pub about: About,
}

/// Properties of a grammar's source that builds of llama.cpp treat differently.
#[derive(Clone, Copy, Debug, Default)]
pub struct About {
    /// True if llama.cpp's own constructor is certain to return, in any build.
    pub host_comes_back: bool,
    /// The largest number in a repetition.
    pub most_repetitions: u64,
    /// True if the source contains elements such as `<text>` or `<[7]>`.
    pub names_tokens: bool,
    /// True if the source contains the escape `\-`.
    pub escapes_dash: bool,
    /// True if the root is a rule that was generated for a group or a repetition.
    pub root_is_made: bool,
}

/// Interns character classes: assigns one number to equal classes.
#[derive(Debug, Default)]
pub struct Classes {
    /// The classes, by number.
    pub all: Vec<Class>,
    /// The number of each class, by its hash. Of two classes with the same hash, only the first has
    /// an entry.
    numbers: Map<u64, u32>,
    hash: Keys,
    /// For each ASCII character, the number of the class that has only this character.
    ascii: Vec<Option<u32>>,
}

impl Classes {
    /// Reserves memory for `n` more classes.
    pub fn reserve(&mut self, n: usize) {
        self.all.reserve(n);
        self.numbers.reserve(n);
    }

    /// Returns the number of `class`, and assigns one if it has none; `None` if there are too many
    /// classes.
    pub fn number(&mut self, class: Class) -> Option<u32> {
        let Class {
            negated,
            any,
            ref ranges,
        } = class;
        match self.known((negated, any, &ranges[..])) {
            Ok(number) => Some(number),
            Err(hash) => self.add(hash, class),
        }
    }

    /// Returns the number of the class with these ranges, which ascend and do not overlap; `None`
    /// if there are too many classes.
    pub fn number_of(&mut self, ranges: &[(u32, u32)]) -> Option<u32> {
        match self.known((false, false, ranges)) {
            Ok(number) => Some(number),
            Err(hash) => {
                let class = Class {
                    negated: false,
                    any: false,
                    ranges: ranges.into(),
                };
                self.add(hash, class)
            }
        }
    }

    /// Returns the number of the class with the fields `(negated, any, ranges)`. If it has none
    /// yet, the error is the hash of the fields.
    fn known(&self, class: (bool, bool, &[(u32, u32)])) -> Result<u32, u64> {
        let hash = self.hash.hash_one(class);
        let is_same = |other: &Class| (other.negated, other.any, &*other.ranges) == class;
        let number = *self.numbers.get(&hash).ok_or(hash)?;
        if self.all.get(number as usize).is_some_and(is_same) {
            return Ok(number);
        }
        // Another class has the same hash. The probability of that is 2^-64 for two classes.
        let same = self.all.iter().position(is_same);
        same.map(|number| number as u32).ok_or(hash)
    }

    fn add(&mut self, hash: u64, class: Class) -> Option<u32> {
        if self.all.len() >= MAX_CLASSES {
            return None;
        }
        let number = self.all.len() as u32;
        self.numbers.entry(hash).or_insert(number);
        self.all.push(class);
        Some(number)
    }

    /// Returns the number of the class that has only this character; `None` if there are too many
    /// classes.
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

/// The maximum number of sequences for which memory is reserved before their number is known.
const MOST_RESERVED: usize = 1 << 12;
/// The maximum number of elements of a rule whose alternatives are searched one by one.
const FEW_ELEMENTS: usize = 64;

/// The error of a grammar with more sequences than [`MAX_SEQUENCES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManySequences;

/// A hash table with linear probing that holds the numbers of sequences. The sequences themselves
/// are stored elsewhere.
struct Numbers {
    keys: Keys,
    /// [`EMPTY`] marks a free slot; at least half are free.
    places: Vec<u32>,
}

impl Numbers {
    /// Returns a table for at most `n` sequences.
    fn with_room(n: usize) -> Self {
        Self {
            keys: Keys::default(),
            places: vec![EMPTY; 2 * n.next_power_of_two()],
        }
    }

    /// Returns the slot that holds the number of a sequence, or, if it has none yet, the slot for
    /// it, which holds [`EMPTY`].
    fn place_of(&mut self, sequence: Sequence, sequences: &[Sequence]) -> Option<&mut u32> {
        let last = self.places.len() - 1;
        let mut place = self.keys.hash_one(sequence) as usize & last;
        loop {
            let number = *self.places.get(place)?;
            if number == EMPTY || sequences.get(number as usize) == Some(&sequence) {
                return self.places.get_mut(place);
            }
            place = (place + 1) & last;
        }
    }
}

impl Rules {
    /// Links the rules. All references must exist, and no rule may begin with itself.
    pub fn link(written: Written) -> Result<Self, TooManySequences> {
        let mut written = written;
        written.replace_names();
        let (rules, repeats) = (&written.rules, &written.repeats);
        let nothing = Sequence {
            item: Element::Alternative,
            rest: EMPTY,
        };
        let n_elements = rules.elements.len();
        let mut linked = Self {
            sequences: Vec::with_capacity(1 + n_elements.min(MOST_RESERVED)),
            alternatives: Lists::with_room(rules.len(), 2 * rules.len()),
            is_loop: Vec::with_capacity(rules.len()),
            root: written.root,
            ..Self::default()
        };
        linked.sequences.push(nothing);
        let in_repeats = repeats.iter().map(|repeat| repeat.item.len());
        let lists = written.unordered.iter();
        let in_lists =
            lists.flat_map(|list| list.items.iter().chain([&list.separator]).map(Vec::len));
        let n_elements = n_elements + in_repeats.chain(in_lists).sum::<usize>();
        let mut numbers = Numbers::with_room(n_elements);
        let mut seen = Set::default();
        for (number, rule) in (0..).zip(rules.iter()) {
            seen.clear();
            for alternative in rule.split(is_end) {
                let head = linked.sequence(alternative, &mut numbers)?;
                let is_new = match rule.len() <= FEW_ELEMENTS {
                    true => !linked.alternatives.open().contains(&head),
                    false => seen.insert(head),
                };
                if is_new {
                    linked.alternatives.add(head);
                }
            }
            linked.is_loop.push(match *linked.alternatives.open() {
                [_, EMPTY] | [EMPTY, _] => {
                    let mut last = rule.iter().rev().filter(|element| !is_end(element));
                    last.next() == Some(&Element::Rule(number))
                }
                _ => false,
            });
            linked.alternatives.end();
        }
        for repeat in repeats {
            let item = linked.sequence(&repeat.item, &mut numbers)?;
            let (min, max) = (repeat.min, repeat.max);
            linked.repeats.push(Repeat { item, min, max });
        }
        for list in &written.unordered {
            let mut items = Vec::with_capacity(list.items.len());
            let mut marked = Vec::new();
            for (at, item) in list.items.iter().enumerate() {
                marked.clone_from(item);
                if at < list.n_once {
                    marked.push(Element::Occurred(at as u32));
                }
                items.push(linked.sequence(&marked, &mut numbers)?);
            }
            let separator = linked.sequence(&list.separator, &mut numbers)?;
            let &Unordered {
                n_required, n_once, ..
            } = list;
            linked.unordered.push(Unordered {
                items,
                separator,
                n_required,
                n_once,
            });
        }
        linked.classes = written.classes;
        linked.find_empty();
        Ok(linked)
    }

    /// True if a sequence is nothing but an unbounded repetition. Such a sequence, twice in a row,
    /// matches the same texts as once.
    pub fn is_loop(&self, sequence: u32) -> bool {
        match self.first(sequence) {
            Some(Sequence {
                item: Element::Rule(rule),
                rest: EMPTY,
            }) => self.is_loop.get(rule as usize) == Some(&true),
            _ => false,
        }
    }

    /// Finds the nullable sequences, which match the empty text: first the empty sequence, then
    /// those that are nullable because of sequences and rules already found.
    fn find_empty(&mut self) {
        let n = self.sequences.len();
        let n_rules = self.alternatives.len();
        self.may_be_empty = vec![false; n];
        // Only sequences of references matter, since all others have a character, a token, or a
        // mark. The rest after the first element has a smaller number.
        let mut may_wait = vec![false; n];
        let mut references = Vec::new();
        for (number, sequence) in self.sequences.iter().enumerate() {
            let is_reference = matches!(
                sequence.item,
                Element::Rule(_) | Element::Repeat(_) | Element::Unordered(_)
            );
            let rest = may_wait.get(sequence.rest as usize).copied();
            let waits = number == EMPTY as usize || is_reference && rest == Some(true);
            if let Some(may_wait) = may_wait.get_mut(number) {
                *may_wait = waits;
            }
            if waits && is_reference {
                references.push((number as u32, *sequence));
            }
        }
        // The nodes are the sequences, followed by the rules. Each pair is a node and a second node
        // that depends on the first.
        let mut pairs = Vec::with_capacity(2 * references.len() + n_rules);
        for &(number, sequence) in &references {
            let item = match sequence.item {
                Element::Rule(rule) => Some(n as u32 + rule),
                Element::Repeat(repeat) => {
                    let repeat = self.repeats.get(repeat as usize);
                    repeat.map(|repeat| repeat.item)
                }
                _ => None,
            };
            pairs.extend(item.map(|item| (item, number)));
            pairs.push((sequence.rest, number));
        }
        for (rule, heads) in (n as u32..).zip(self.alternatives.iter()) {
            let may_wait = |head: &u32| may_wait.get(*head as usize) == Some(&true);
            pairs.extend(
                heads
                    .iter()
                    .filter(|head| may_wait(head))
                    .map(|&head| (head, rule)),
            );
        }
        let waiting = Lists::of(n + n_rules, || pairs.iter().copied());
        let mut rule_is_empty = vec![false; n_rules];
        let mut found = vec![EMPTY];
        while let Some(node) = found.pop() {
            let is_empty = match (node as usize).checked_sub(n) {
                None => self.may_be_empty.get_mut(node as usize),
                Some(rule) => rule_is_empty.get_mut(rule),
            };
            let Some(is_empty @ false) = is_empty else {
                continue;
            };
            *is_empty = true;
            for &waiting in waiting.get(node) {
                let is_empty = self.first(waiting).is_none_or(|first| {
                    self.may_be_empty(first.rest)
                        && match first.item {
                            Element::Rule(rule) => rule_is_empty.get(rule as usize) == Some(&true),
                            Element::Repeat(repeat) => self.repeat_may_be_empty(repeat),
                            Element::Unordered(list) => self.list_may_be_empty(list),
                            _ => false,
                        }
                });
                if is_empty {
                    found.push(waiting);
                }
            }
        }
    }

    fn repeat_may_be_empty(&self, repeat: u32) -> bool {
        let repeat = self.repeats.get(repeat as usize);
        repeat.is_some_and(|repeat| repeat.min == 0 || self.may_be_empty(repeat.item))
    }

    fn list_may_be_empty(&self, list: u32) -> bool {
        let list = self.unordered.get(list as usize);
        list.is_some_and(|list| list.n_required == 0)
    }

    /// True if the sequence matches the empty text.
    pub fn may_be_empty(&self, sequence: u32) -> bool {
        self.may_be_empty.get(sequence as usize) == Some(&true)
    }

    fn sequence(
        &mut self,
        elements: &[Element],
        numbers: &mut Numbers,
    ) -> Result<u32, TooManySequences> {
        let mut rest = EMPTY;
        for &item in elements.iter().rev() {
            let sequence = Sequence { item, rest };
            let Some(number) = numbers.place_of(sequence, &self.sequences) else {
                return Err(TooManySequences);
            };
            if *number == EMPTY {
                if self.sequences.len() >= MAX_SEQUENCES {
                    return Err(TooManySequences);
                }
                *number = self.sequences.len() as u32;
                self.sequences.push(sequence);
            }
            rest = *number;
        }
        Ok(rest)
    }

    /// Returns a sequence's first element and the sequence after it; `None` for the empty
    /// sequence.
    pub fn first(&self, sequence: u32) -> Option<Sequence> {
        if sequence == EMPTY {
            return None;
        }
        self.sequences.get(sequence as usize).copied()
    }

    /// True if a token is matched only by its id, never as characters.
    pub fn is_by_number(&self, token: Token) -> bool {
        self.by_number.binary_search(&token).is_ok()
    }

    /// Returns the approximate size of the rules in bytes.
    pub fn bytes(&self) -> usize {
        let lists = self.unordered.iter();
        let ranges: usize = self.classes.iter().map(|class| class.ranges.len()).sum();
        self.sequences.len() * size_of::<Sequence>()
            + self.classes.len() * size_of::<Class>()
            + self.alternatives.bytes()
            + ranges * size_of::<(u32, u32)>()
            + self.repeats.len() * size_of::<Repeat<u32>>()
            + lists
                .map(|list| size_of_val(list) + 4 * list.items.len())
                .sum::<usize>()
            + self.may_be_empty.len()
            + self.is_loop.len()
            + size_of_val(&*self.by_number)
    }
}

/// Returns a rule that can begin with itself according to the host's check; `None` if there is
/// none. The host looks past a rule only if one of its alternatives is *written* as empty, not if
/// it can become empty through references.
pub fn left_recursive(written: &Written) -> Option<u32> {
    let beginnings = Beginnings::of(written);
    let found = first_cycle(beginnings.len(), |node| beginnings.of_node(node))?;
    // If the node is a repetition, the first rule that its item may begin with.
    let n_rules = written.rules.len();
    match (found as usize).checked_sub(n_rules) {
        None => Some(found),
        Some(_) => beginnings.of_node(found as usize).first().copied(),
    }
}

/// True if the host's check for left recursion ends after at most `most` visits to rules. The check
/// visits a rule again on each path to it, so each rule that begins with two others doubles the
/// work.
pub fn host_check_ends(written: &Written, most: usize) -> bool {
    let beginnings = Beginnings::of(written);
    let n = beginnings.len();
    // Computed once for each node, so that every rule is read once.
    let mut known: Vec<Option<Rc<[u32]>>> = vec![None; n];
    let mut next = |node: usize| -> Rc<[u32]> {
        let find = || beginnings.of_node(node).into();
        match known.get_mut(node) {
            Some(known) => Rc::clone(known.get_or_insert_with(find)),
            None => find(),
        }
    };
    let (mut is_done, mut is_open) = (vec![false; n], vec![false; n]);
    let mark = |marks: &mut [bool], rule: usize, value| {
        if let Some(mark) = marks.get_mut(rule) {
            *mark = value;
        }
    };
    let mut looked_at = 0;
    for start in 0..n {
        if is_done.get(start) == Some(&true) {
            continue;
        }
        // The host generates a rule for each optional round.
        let rounds = beginnings.rounds_of(start);
        let mut path = vec![(start, next(start), 0)];
        mark(&mut is_open, start, true);
        while let Some((rule, to_do, n_done)) = path.last_mut() {
            looked_at += rounds;
            if looked_at > most {
                return false;
            }
            let Some(&to) = to_do.get(*n_done) else {
                mark(&mut is_open, *rule, false);
                mark(&mut is_done, *rule, true);
                path.pop();
                continue;
            };
            *n_done += 1;
            let to = to as usize;
            if is_open.get(to) == Some(&true) {
                return true;
            }
            mark(&mut is_open, to, true);
            path.push((to, next(to), 0));
        }
    }
    true
}

/// Finds the rules that a rule can begin with, as the host's check sees them. The nodes are the
/// rules, followed by the counted repetitions. The host expands a repetition to the required rounds
/// of its item and a rule for the optional ones, which has an empty alternative.
struct Beginnings<'a> {
    written: &'a Written,
    may_be_empty: Vec<bool>,
}

impl<'a> Beginnings<'a> {
    fn of(written: &'a Written) -> Self {
        let may_be_empty = written
            .rules
            .iter()
            .map(|rule| rule.split(is_end).any(<[Element]>::is_empty));
        Self {
            written,
            may_be_empty: may_be_empty.collect(),
        }
    }

    fn len(&self) -> usize {
        self.written.rules.len() + self.written.repeats.len()
    }

    fn repeat(&self, node: usize) -> Option<&'a Repeat<Vec<Element>>> {
        let repeat = node.checked_sub(self.written.rules.len())?;
        self.written.repeats.get(repeat)
    }

    /// Returns the number of the host's rules that one node represents.
    fn rounds_of(&self, node: usize) -> usize {
        match self.repeat(node) {
            Some(repeat) if repeat.max != ENDLESS => (repeat.max - repeat.min).max(1) as usize,
            _ => 1,
        }
    }

    /// Returns the nodes that a node can begin with, in order and with duplicates.
    fn of_node(&self, node: usize) -> Vec<u32> {
        let mut found = Vec::new();
        if let Some(repeat) = self.repeat(node) {
            // After an item that may be empty the next round begins. An unbounded repetition is one
            // rule, so it then begins with itself.
            if self.add(&repeat.item, &mut found) && repeat.max == ENDLESS {
                found.push(node as u32);
            }
            return found;
        }
        let elements = self.written.rules.get(node).into_iter();
        for alternative in elements.flat_map(|rule| rule.split(is_end)) {
            self.add(alternative, &mut found);
        }
        found
    }

    /// Adds the rules and repetitions that `elements` can begin with. Returns true if the check
    /// looks past all elements.
    fn add(&self, elements: &[Element], found: &mut Vec<u32>) -> bool {
        // Elements still to be looked at: those of nested items, the innermost last.
        let mut pending = vec![elements];
        while let Some(elements) = pending.pop() {
            let Some((first, rest)) = elements.split_first() else {
                continue;
            };
            pending.push(rest);
            match *first {
                Element::Rule(rule) => {
                    found.push(rule);
                    if self.may_be_empty.get(rule as usize) != Some(&true) {
                        return false;
                    }
                }
                Element::Repeat(number) => {
                    let node = self.written.rules.len() + number as usize;
                    let Some(repeat) = self.written.repeats.get(number as usize) else {
                        return false;
                    };
                    // This is also true if required rounds come first, since the optional rounds
                    // begin with the same item.
                    if repeat.max > repeat.min {
                        found.push(node as u32);
                    }
                    if repeat.min > 0 {
                        pending.push(&repeat.item);
                    }
                }
                _ => return false,
            }
        }
        true
    }
}

fn is_end(element: &Element) -> bool {
    *element == Element::Alternative
}

/// Returns a node on a cycle of the graph whose edges `next` returns; `None` if there is no cycle.
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
