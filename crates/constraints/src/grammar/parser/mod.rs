//! Parses GBNF, llama.cpp's notation for grammars, into rules.
//!
//! With [`Repetitions::AsLlamaCpp`], the parser accepts the same texts as llama.cpp, within the
//! [limits](crate::grammar::limits) and except those on which llama.cpp hangs or reads out of
//! bounds (see the table in `docs/grammar.md`). It numbers the rules that llama.cpp generates for
//! repetitions as llama.cpp does. Open groups are on an explicit stack, so deep nesting cannot
//! overflow the thread's stack.

mod found;
mod items;
mod repetitions;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;

use llama_sieve_kernels::random::HashMap;

use crate::grammar::elements::{
    About, Class, Classes, ENDLESS, Element, Repeat, Rules, Written, host_check_ends,
    left_recursive,
};
use crate::grammar::host_work::{DEEP, MOST_CHECKED, host_comes_back};
use crate::grammar::limits::{MAX_ELEMENTS, MAX_RULES, MAX_TEXT};
use crate::grammar::utf8::counted;
use crate::quoted::quoted;
use crate::token::Token;

/// The reason why a text is not a grammar, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, counted from 1; 0 if the error has no position.
    pub line: usize,
    /// The character in that line, counted from 1; 0 if the error has no position.
    pub column: usize,
    /// A description of the fault, or of what was expected.
    pub what: String,
    /// True if llama.cpp's own parser may hang on this text, overflow the stack, or read out of
    /// bounds.
    pub is_trap: bool,
    /// True if the reason is that there are too many repetitions.
    pub is_of_number: bool,
}

/// The limit on the repetitions of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repetitions {
    /// llama.cpp's own limit.
    AsLlamaCpp,
    /// llama.cpp's own limit, unless a text exceeds it. In such a text each repetition may have up
    /// to [`MAX_REPETITIONS`](crate::grammar::limits::MAX_REPETITIONS) rounds, whatever their
    /// product.
    Many,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 {
            return f.write_str(&self.what);
        }
        write!(
            f,
            "line {}, column {}: {}",
            self.line, self.column, self.what
        )
    }
}

impl From<ParseError> for String {
    fn from(error: ParseError) -> Self {
        error.to_string()
    }
}

/// A fault at a byte of the text.
struct Fault {
    at: Option<usize>,
    what: String,
    /// See [`ParseError::is_trap`].
    is_trap: bool,
    /// See [`ParseError::is_of_number`].
    is_of_number: bool,
}

impl Fault {
    /// Returns a fault without a position.
    fn nowhere(what: impl Into<String>) -> Self {
        Self {
            at: None,
            what: what.into(),
            is_trap: false,
            is_of_number: false,
        }
    }
}

type Parsed<T> = Result<T, Fault>;

fn fault<T>(at: usize, what: impl Into<String>) -> Parsed<T> {
    Err(Fault {
        at: Some(at),
        ..Fault::nowhere(what)
    })
}

/// Reads the rules of `text`, with the start rule `root`. `token` returns the token for the text of
/// an element such as `<text>`, given with its brackets, if exactly one token has that text.
pub fn parse(
    text: &[u8],
    root: &[u8],
    repetitions: Repetitions,
    token: impl Fn(&[u8]) -> Option<Token>,
) -> Result<Rules, ParseError> {
    read(text, repetitions, &token, |parser| parser.rules(root))
}

/// Reads the rules of `text` as [`parse`] does, but does not link them, so that they can become
/// part of another grammar.
pub fn unlinked(
    text: &[u8],
    root: &[u8],
    repetitions: Repetitions,
    token: &dyn Fn(&[u8]) -> Option<Token>,
) -> Result<Written, ParseError> {
    read(text, repetitions, token, |parser| {
        let written = parser.written(root)?;
        match left_recursive(&written) {
            Some(rule) => Err(parser.left_recursion(rule, &written)),
            None => Ok(written),
        }
    })
}

/// Reads a text by calling `what`, first with llama.cpp's limit on repetitions. If that limit
/// refuses the text and `repetitions` allows more, reads the text again with the larger limit.
fn read<T>(
    text: &[u8],
    repetitions: Repetitions,
    token: &dyn Fn(&[u8]) -> Option<Token>,
    what: impl Fn(&mut Parser<'_>) -> Parsed<T>,
) -> Result<T, ParseError> {
    // A C string ends at the first NUL.
    let text = counted(text);
    let read = |repetitions| {
        let mut parser = Parser {
            repetitions,
            ..Parser::new(text, token)
        };
        what(&mut parser).map_err(|fault| parser.placed(fault))
    };
    match read(Repetitions::AsLlamaCpp) {
        Err(error) if error.is_of_number && repetitions == Repetitions::Many => read(repetitions),
        read => read,
    }
}

/// Returns the first character of a text, read as in a string or class of a grammar, and its length
/// in bytes; `None` if it is not valid there.
pub fn character_of(text: &[u8]) -> Option<(u32, usize)> {
    let mut parser = Parser::new(text, &|_| None);
    let character = parser.character().ok()?;
    Some((character, parser.at))
}

/// Returns the class that a text in brackets describes; `None` for an empty class, which matches
/// the empty text.
pub fn class_of(text: &[u8]) -> Result<Option<Class>, ParseError> {
    let mut parser = Parser::new(text, &|_| None);
    let mut frame = Frame::new(0, false, 0, 0);
    parser
        .class(&mut frame)
        .map_err(|fault| parser.placed(fault))?;
    Ok(parser.classes.all.pop())
}

/// Returns the rules of `text` before they are linked and checked for left recursion, for tests
/// that predict the work of llama.cpp's own parser.
#[doc(hidden)]
pub fn written(
    text: &[u8],
    root: &[u8],
    token: impl Fn(&[u8]) -> Option<Token>,
) -> Result<Written, ParseError> {
    let text = counted(text);
    let mut parser = Parser::new(text, &token);
    parser.written(root).map_err(|fault| parser.placed(fault))
}

/// Returns the texts, with their brackets, of the elements `<text>` that [`parse`] will look up:
/// each once, in the order of the first look-up, up to the first syntax error. [`parse`] itself
/// stops at the first text that is not a token.
pub fn token_texts(text: &[u8], root: &[u8], repetitions: Repetitions) -> Vec<Vec<u8>> {
    if !text.contains(&b'<') {
        return Vec::new();
    }
    let texts = RefCell::new(HashMap::default());
    // Errors are reported later, when the text is parsed.
    let _ = parse(text, root, repetitions, |text| {
        let mut texts = texts.borrow_mut();
        let n = texts.len();
        texts.entry(text.to_vec()).or_insert(n);
        Some(0)
    });
    let mut texts: Vec<_> = texts.into_inner().into_iter().collect();
    texts.sort_unstable_by_key(|&(_, n)| n);
    texts.into_iter().map(|(text, _)| text).collect()
}

fn place(text: &[u8], fault: Fault) -> ParseError {
    let Some(at) = fault.at else {
        return ParseError {
            line: 0,
            column: 0,
            what: fault.what,
            is_trap: fault.is_trap,
            is_of_number: fault.is_of_number,
        };
    };
    let before = text.get(..at).unwrap_or(text);
    let line_start = before
        .iter()
        .rposition(|&byte| byte == b'\n')
        .map_or(0, |i| i + 1);
    let in_line = before.get(line_start..).unwrap_or_default();
    ParseError {
        line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
        column: in_line.iter().filter(|&&byte| byte & 0xC0 != 0x80).count() + 1,
        what: fault.what,
        is_trap: fault.is_trap,
        is_of_number: fault.is_of_number,
    }
}

/// The alternatives of a rule or a group while they are read.
struct Frame {
    /// The rule that the alternatives belong to.
    rule: u32,
    /// True for a group, within which line breaks are allowed.
    is_group: bool,
    elements: Vec<Element>,
    /// The index of the item that a repetition would apply to.
    item_start: usize,
    /// The number of rules that llama.cpp counts for the item (its `n_prev_rules`), at least 1. It
    /// serves only the limit on repetitions.
    item_rules: u64,
    /// The value of `n_numbers` when the group was opened.
    numbers_before: u64,
    /// The offset at which the group was opened.
    opened_at: usize,
}

/// The name of a rule.
struct Symbol {
    /// The rule of that name; for a rule generated for a group or a repetition, the named rule that
    /// contains it.
    named: u32,
    /// The number that llama.cpp gives to the rule, which is part of the names of generated rules.
    number: u64,
    /// The offset at which the name first occurs.
    at: usize,
}

/// The numbers of the rules that llama.cpp generates for a counted repetition: one for each
/// optional round, each containing the previous rule, or a single rule if the rounds are unbounded.
struct Skipped {
    numbers: Range<u64>,
    repeat: u32,
    /// The named rule that contains the repetition.
    named: u32,
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    token: &'a dyn Fn(&[u8]) -> Option<Token>,
    repetitions: Repetitions,
    classes: Classes,
    /// The rules that the text names.
    names: HashMap<&'a [u8], u32>,
    symbols: Vec<Symbol>,
    /// The number of rules that llama.cpp would have numbered so far.
    n_numbers: u64,
    /// One more than the largest number of a rule that llama.cpp would have defined so far. A rule
    /// with a smaller number that remains undefined is an error.
    defined_before: u64,
    /// The numbers of the rules that llama.cpp generates for counted repetitions.
    skipped: Vec<Skipped>,
    /// The elements of each rule; `None` until it is defined.
    rules: Vec<Option<Vec<Element>>>,
    repeats: Vec<Repeat<Vec<Element>>>,
    n_elements: usize,
    /// The maximum nesting depth of parentheses so far.
    nested: usize,
    about: About,
    /// The offset of the first byte in a string or class that is not UTF-8.
    garbled: Option<usize>,
}

impl<'a> Parser<'a> {
    fn new(text: &'a [u8], token: &'a dyn Fn(&[u8]) -> Option<Token>) -> Self {
        Self {
            text,
            at: 0,
            token,
            repetitions: Repetitions::AsLlamaCpp,
            classes: Classes::default(),
            names: HashMap::default(),
            symbols: Vec::new(),
            n_numbers: 0,
            defined_before: 0,
            skipped: Vec::new(),
            rules: Vec::new(),
            repeats: Vec::new(),
            n_elements: 0,
            nested: 0,
            about: About::default(),
            garbled: None,
        }
    }

    fn rules(&mut self, root: &[u8]) -> Parsed<Rules> {
        let written = self.written(root)?;
        if let Some(rule) = left_recursive(&written) {
            return Err(self.left_recursion(rule, &written));
        }
        // llama.cpp never sees a text that it would refuse because of its repetitions.
        let is_shown = self.repetitions == Repetitions::AsLlamaCpp;
        self.about.host_comes_back = is_shown && host_comes_back(&written, self.nested);
        let mut rules = Rules::link(written)
            .map_err(|_| Fault::nowhere("the grammar has too many different sequences"))?;
        rules.about = self.about;
        Ok(rules)
    }

    fn written(&mut self, root: &[u8]) -> Parsed<Written> {
        if self.text.len() > MAX_TEXT {
            return Err(Fault::nowhere(format!(
                "the text has {} bytes, and at most {MAX_TEXT} are read",
                self.text.len()
            )));
        }
        self.space(true);
        while self.peek().is_some() {
            self.rule()?;
        }
        self.all_defined()?;
        let root = self.root(root)?;
        Ok(Written {
            root,
            rules: self.rules.drain(..).flatten().collect(),
            repeats: std::mem::take(&mut self.repeats),
            unordered: Vec::new(),
            classes: std::mem::take(&mut self.classes.all),
        })
    }

    /// Checks that all rules are defined.
    fn all_defined(&self) -> Parsed<()> {
        if self.rules.is_empty() {
            return Err(Fault::nowhere("there is no rule"));
        }
        let is_defined = |rule: usize| matches!(self.rules.get(rule), Some(Some(_)));
        let defined = self.rules.iter().map(Option::is_some);
        let defined = defined.chain(std::iter::repeat(false));
        let mut symbols = self.symbols.iter().zip(defined);
        if let Some(rule) = symbols
            .position(|(symbol, is_defined)| !is_defined && symbol.number < self.defined_before)
        {
            return self.undefined(rule);
        }
        let in_rules = self.rules.iter().flatten().flatten();
        let in_repeats = self.repeats.iter().flat_map(|repeat| &repeat.item);
        for element in in_rules.chain(in_repeats) {
            if let Element::Rule(to) = *element
                && !is_defined(to as usize)
            {
                return self.undefined(to as usize);
            }
        }
        Ok(())
    }

    fn undefined<T>(&self, rule: usize) -> Parsed<T> {
        let at = self.symbols.get(rule).map_or(0, |symbol| symbol.at);
        fault(at, format!("rule '{}' is not defined", self.name_of(rule)))
    }

    fn left_recursion(&self, rule: u32, written: &Written) -> Fault {
        let name = self.name_of(rule as usize);
        Fault {
            at: self.symbols.get(rule as usize).map(|symbol| symbol.at),
            what: format!("rule '{name}' may begin with itself (left recursion)"),
            // llama.cpp searches for left recursion recursively, and visits a rule again on every
            // path to it.
            is_trap: self.n_numbers > DEEP as u64 || !host_check_ends(written, MOST_CHECKED),
            is_of_number: false,
        }
    }

    fn name_of(&self, rule: usize) -> String {
        let symbol = self.symbols.get(rule);
        let (named, made) = symbol.map_or((0, 0), |symbol| (symbol.named, symbol.number));
        let name = self.names.iter().find(|&(_, &number)| number == named);
        let name = name.map_or_else(String::new, |(name, _)| quoted(*name).to_string());
        match named as usize == rule {
            true => name,
            false => format!("{name}_{made}"),
        }
    }

    /// Returns the rule named `root`. Rules generated for groups and repetitions have names, too:
    /// the name of the containing rule, an underscore, and a number.
    fn root(&mut self, root: &[u8]) -> Parsed<u32> {
        let found = match self.names.get(root) {
            Some(&rule) => Some(rule),
            None => {
                self.about.root_is_made = true;
                self.root_that_was_made(root)
            }
        };
        let defined = found.filter(|&rule| matches!(self.rules.get(rule as usize), Some(Some(_))));
        defined.ok_or_else(|| Fault {
            // llama.cpp uses the rule as soon as its name is mentioned, even if it is undefined.
            is_trap: found.is_some(),
            ..Fault::nowhere(format!("there is no rule '{}'", quoted(root)))
        })
    }

    fn root_that_was_made(&mut self, root: &[u8]) -> Option<u32> {
        let underline = root.iter().rposition(|&byte| byte == b'_')?;
        let (name, digits) = (root.get(..underline)?, root.get(underline + 1..)?);
        let digits = std::str::from_utf8(digits).ok()?;
        let number: u64 = digits.parse().ok()?;
        let named = *self.names.get(name)?;
        if number.to_string() != digits {
            return None;
        }
        let is_it = |(rule, symbol): &(u32, &Symbol)| {
            symbol.number == number && symbol.named == named && *rule != named
        };
        if let Some((rule, _)) = (0..).zip(&self.symbols).find(is_it) {
            return Some(rule);
        }
        let mut skipped = self.skipped.iter();
        let skipped = skipped.find(|skipped| skipped.numbers.contains(&number))?;
        let repeat = self.repeats.get(skipped.repeat as usize)?;
        let rounds = match repeat.max {
            ENDLESS => ENDLESS,
            _ => (number - skipped.numbers.start + 1) as u32,
        };
        if skipped.named != named {
            return None;
        }
        let item = repeat.item.clone();
        let number = self.repeats.len() as u32;
        self.repeats.push(Repeat {
            item,
            min: 0,
            max: rounds,
        });
        let rule = self.rules.len().max(self.symbols.len()) as u32;
        self.define(rule, vec![Element::Repeat(number)]);
        Some(rule)
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn peek_behind(&self, n: usize) -> Option<u8> {
        self.text.get(self.at + n).copied()
    }

    /// Skips blanks and comments, and, if `lines`, line breaks.
    fn space(&mut self, lines: bool) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' => self.at += 1,
                b'\r' | b'\n' if lines => self.at += 1,
                b'#' => {
                    while !matches!(self.peek(), None | Some(b'\r' | b'\n')) {
                        self.at += 1;
                    }
                }
                _ => break,
            }
        }
    }

    fn name(&mut self) -> Parsed<&'a [u8]> {
        let start = self.at;
        while self.peek().is_some_and(is_word) {
            self.at += 1;
        }
        if self.at == start {
            return self.expected("the name of a rule");
        }
        Ok(self.text.get(start..self.at).unwrap_or_default())
    }

    fn symbol(&mut self, name: &'a [u8], at: usize) -> Parsed<u32> {
        if let Some(&number) = self.names.get(name) {
            return Ok(number);
        }
        let number = self.new_symbol(None, at)?;
        self.names.insert(name, number);
        Ok(number)
    }

    /// Returns a new rule, which either has a name or is generated within another rule.
    fn new_symbol(&mut self, within: Option<u32>, at: usize) -> Parsed<u32> {
        if self.symbols.len() >= MAX_RULES {
            return fault(at, format!("the grammar has more than {MAX_RULES} rules"));
        }
        let rule = self.symbols.len() as u32;
        self.symbols.push(Symbol {
            named: within.map_or(rule, |rule| self.named(rule)),
            number: self.n_numbers,
            at,
        });
        self.n_numbers += 1;
        Ok(rule)
    }

    /// Returns the named rule that contains a rule: the rule itself, unless it was generated.
    fn named(&self, rule: u32) -> u32 {
        let symbol = self.symbols.get(rule as usize);
        symbol.map_or(rule, |symbol| symbol.named)
    }

    /// Skips `n` numbers, for the rules that llama.cpp generates for a repetition in `rule`.
    fn skip(&mut self, rule: u32, repeat: u32, n: u64) {
        let numbers = self.n_numbers..self.n_numbers + n;
        self.n_numbers = numbers.end;
        if n > 0 {
            self.defined_before = self.defined_before.max(numbers.end);
        }
        self.skipped.push(Skipped {
            numbers,
            repeat,
            named: self.named(rule),
        });
    }

    fn define(&mut self, rule: u32, elements: Vec<Element>) {
        let rule = rule as usize;
        if let Some(symbol) = self.symbols.get(rule) {
            self.defined_before = self.defined_before.max(symbol.number + 1);
        }
        if self.rules.len() <= rule {
            self.rules.resize_with(rule + 1, || None);
        }
        if let Some(place) = self.rules.get_mut(rule) {
            *place = Some(elements);
        }
    }

    fn grown(&mut self, by: usize) -> Parsed<()> {
        self.n_elements = self.n_elements.saturating_add(by);
        if self.n_elements > MAX_ELEMENTS {
            return fault(
                self.at,
                format!("the grammar has more than {MAX_ELEMENTS} elements"),
            );
        }
        Ok(())
    }

    fn rule(&mut self) -> Parsed<()> {
        let start = self.at;
        let name = self.name()?;
        self.space(false);
        let rule = self.symbol(name, start)?;
        if !self
            .text
            .get(self.at..)
            .unwrap_or_default()
            .starts_with(b"::=")
        {
            return self.expected("'::=' behind the name of the rule");
        }
        self.at += 3;
        self.space(true);
        self.alternatives(rule)?;
        match self.peek() {
            Some(b'\r') => {
                self.at += if self.peek_behind(1) == Some(b'\n') {
                    2
                } else {
                    1
                }
            }
            Some(b'\n') => self.at += 1,
            Some(_) => {
                return self.expected("an element, a repetition, '|', or the end of the line");
            }
            None => {}
        }
        self.space(true);
        Ok(())
    }

    /// Reads all alternatives of a rule, including its groups.
    fn alternatives(&mut self, rule: u32) -> Parsed<()> {
        let mut frames = Vec::new();
        let mut frame = Frame::new(rule, false, 0, self.at);
        loop {
            if self.peek() == Some(b'(') {
                let inner = self.open_group(&frame, rule)?;
                frames.push(frame);
                self.nested = self.nested.max(frames.len());
                frame = inner;
                continue;
            }
            if self.item(&mut frame, rule)? {
                continue;
            }
            if self.peek() == Some(b'|') {
                self.grown(1)?;
                frame.elements.push(Element::Alternative);
                frame.begin_item();
                self.at += 1;
                self.space(true);
                continue;
            }
            let done = frame;
            self.define(done.rule, done.elements);
            let Some(outer) = frames.pop() else {
                return Ok(());
            };
            frame = outer;
            if self.peek() != Some(b')') {
                let text = match self.peek() {
                    None => "expected ')' before the end of the text",
                    Some(_) => "expected an element, a repetition, '|' or ')'",
                };
                let found = found::told(self.text, self.at);
                let line = place(
                    self.text,
                    Fault {
                        at: Some(done.opened_at),
                        ..Fault::nowhere("")
                    },
                );
                return fault(
                    self.at,
                    format!(
                        "{text}{found}; the '(' is in line {}, column {}",
                        line.line, line.column
                    ),
                );
            }
            self.at += 1;
            self.space(frame.is_group);
            let made = self.n_numbers - done.numbers_before;
            frame.begin_item();
            frame.item_rules = made.max(1);
            self.push(&mut frame, Element::Rule(done.rule))?;
        }
    }

    fn open_group(&mut self, outer: &Frame, rule: u32) -> Parsed<Frame> {
        debug_assert!(outer.item_start <= outer.elements.len());
        let opened_at = self.at;
        self.at += 1;
        self.space(true);
        let before = self.n_numbers;
        let number = self.new_symbol(Some(rule), opened_at)?;
        Ok(Frame::new(number, true, before, opened_at))
    }

    fn push(&mut self, frame: &mut Frame, element: Element) -> Parsed<()> {
        self.grown(1)?;
        frame.elements.push(element);
        Ok(())
    }

    /// Reads one item or repetition. Returns false if none follows.
    fn item(&mut self, frame: &mut Frame, rule: u32) -> Parsed<bool> {
        let Some(byte) = self.peek() else {
            return Ok(false);
        };
        match byte {
            b'"' => self.literal(frame)?,
            b'[' => self.class(frame)?,
            b'<' | b'!' => self.token_element(frame)?,
            b'.' => {
                self.at += 1;
                frame.begin_item();
                let class = self.number(Class::any())?;
                self.push(frame, Element::Class(class))?;
            }
            b'*' | b'+' | b'?' => {
                let at = self.at;
                self.at += 1;
                self.space(frame.is_group);
                let (min, max) = match byte {
                    b'*' => (0, None),
                    b'+' => (1, None),
                    _ => (0, Some(1)),
                };
                self.repeat(frame, rule, at, min, max)?;
                return Ok(true);
            }
            b'{' => {
                let at = self.at;
                let (min, max) = self.bounds(frame.is_group)?;
                self.repeat(frame, rule, at, min, max)?;
                return Ok(true);
            }
            _ if is_word(byte) => {
                let at = self.at;
                let name = self.name()?;
                let to = self.symbol(name, at)?;
                frame.begin_item();
                self.push(frame, Element::Rule(to))?;
            }
            _ => return Ok(false),
        }
        self.space(frame.is_group);
        Ok(true)
    }

    fn number(&mut self, class: Class) -> Parsed<u32> {
        let number = self.classes.number(class);
        number.ok_or_else(|| self.too_many_classes())
    }

    fn number_of_one(&mut self, code_point: u32) -> Parsed<u32> {
        let number = self.classes.number_of_one(code_point);
        number.ok_or_else(|| self.too_many_classes())
    }

    fn too_many_classes(&self) -> Fault {
        Fault {
            at: Some(self.at),
            ..Fault::nowhere("the grammar has too many different character classes")
        }
    }
}

impl Frame {
    fn new(rule: u32, is_group: bool, numbers_before: u64, opened_at: usize) -> Self {
        Self {
            rule,
            is_group,
            elements: Vec::new(),
            item_start: 0,
            item_rules: 1,
            numbers_before,
            opened_at,
        }
    }

    fn begin_item(&mut self) {
        self.item_start = self.elements.len();
        self.item_rules = 1;
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}
