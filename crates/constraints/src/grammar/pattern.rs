//! Turns regular expressions into the elements of rules.
//!
//! The crate `regex-syntax` parses a pattern. Its character classes and counted repetitions become
//! those of the rules. Only the set of matched texts matters, so lazy repetitions are treated like
//! greedy ones, and groups are ignored.
//!
//! ```text
//! elements(hir, before, after):       before, after: what may precede and follow `hir`
//!   no anchor in it, text goes on     "anything" elements(hir) "anything"
//!   an anchor at its own end          nothing: the text begins, or ends, there
//!   an anchor elsewhere               refused
//!   parts                             before goes to the first, after to the last; past parts that
//!                                     are always empty, on to the next
//! ```
//!
//! A part that matches no text, such as `[a&&b]`, is removed together with everything that requires
//! it, so that no text leads to a dead state.

use std::fmt;

use regex_syntax::ast::{self, Ast};
use regex_syntax::hir::{Class, Hir, HirKind, Look, translate::TranslatorBuilder};

use crate::grammar::builder::{Builder, TooLarge};
use crate::grammar::elements::{Element, Rules};
use crate::grammar::limits::{MAX_PATTERN_CLASSES, MAX_PATTERN_DEPTH, MAX_PATTERN_TEXT};
use crate::quoted::quoted;

/// The reason why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<TooLarge> for Refused {
    fn from(error: TooLarge) -> Self {
        Self(error.to_string())
    }
}

fn refused<T>(what: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(what.into()))
}

/// The extent of a pattern's match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The pattern matches the whole text.
    Whole,
    /// The pattern matches somewhere in the text, where its anchors allow it.
    Anywhere,
}

/// Makes the elements for the characters of a pattern.
pub trait Letters {
    /// Returns the elements that match one character of these ranges of code points. There is at
    /// least one range; they ascend, and contain neither NUL nor surrogates.
    fn one_of(
        &mut self,
        builder: &mut Builder,
        ranges: Vec<(u32, u32)>,
    ) -> Result<Vec<Element>, TooLarge>;
}

/// Characters written as they are, without escapes.
#[derive(Clone, Copy, Debug)]
pub struct Plain;

impl Letters for Plain {
    fn one_of(
        &mut self,
        builder: &mut Builder,
        ranges: Vec<(u32, u32)>,
    ) -> Result<Vec<Element>, TooLarge> {
        Ok(vec![builder.class(ranges)?])
    }
}

/// Returns the rules of a pattern that matches the whole text.
pub fn rules(pattern: &str) -> Result<Rules, Refused> {
    let mut builder = Builder::default();
    let hir = parse(pattern)?;
    match elements(&mut builder, &mut Plain, &hir, Extent::Whole)? {
        Some(whole) => Ok(builder.rules(whole)?),
        None => refused("there is no text that it matches, but perhaps with NUL in it"),
    }
}

/// Reads a pattern in the syntax of the crate `regex`.
pub fn parse(pattern: &str) -> Result<Hir, Refused> {
    parse_within(pattern, &mut { MAX_PATTERN_CLASSES })
}

/// Reads one of several patterns that together may name `classes_left` classes. Subtracts the
/// number that this pattern names.
pub fn parse_within(pattern: &str, classes_left: &mut usize) -> Result<Hir, Refused> {
    parse_with(pattern, classes_left, false)
}

/// Reads one of several patterns as [`parse_within`] does. With `ignores_case`, the pattern is read
/// as if it began with `(?i)`.
pub fn parse_with(
    pattern: &str,
    classes_left: &mut usize,
    ignores_case: bool,
) -> Result<Hir, Refused> {
    if pattern.len() > MAX_PATTERN_TEXT {
        return refused(format!(
            "it has {} bytes, more than {MAX_PATTERN_TEXT} (LLAMA_SIEVE_PATTERN_MAX_TEXT)",
            pattern.len()
        ));
    }
    let mut parser = ast::parse::ParserBuilder::new();
    let parsed = parser.nest_limit(MAX_PATTERN_DEPTH).build().parse(pattern);
    let ast = parsed.map_err(|error| match error.kind() {
        ast::ErrorKind::NestLimitExceeded(_) => too_deep(),
        kind => at(pattern, error.span(), kind),
    })?;
    let classes = ast::visit(&ast, Classes::default())?;
    let Some(left) = classes_left.checked_sub(classes.0) else {
        let named = MAX_PATTERN_CLASSES - *classes_left + classes.0;
        return refused(format!(
            "{named} classes of characters are named, more than {MAX_PATTERN_CLASSES} \
             (LLAMA_SIEVE_PATTERN_MAX_CLASSES)"
        ));
    };
    *classes_left = left;
    let mut translator = TranslatorBuilder::new();
    translator.case_insensitive(ignores_case);
    let translated = translator.build().translate(pattern, &ast);
    translated.map_err(|error| at(pattern, error.span(), error.kind()))
}

/// Returns the error for a fault at a position of a pattern.
fn at(pattern: &str, span: &ast::Span, what: &dyn fmt::Display) -> Refused {
    let (start, end) = (span.start.offset, span.end.offset);
    let part = pattern.get(start..end).unwrap_or_default();
    Refused(format!(
        "byte {start}, \"{}\": {what}",
        quoted(part.as_bytes())
    ))
}

fn too_deep() -> Refused {
    Refused(format!(
        "it is nested deeper than {MAX_PATTERN_DEPTH} (LLAMA_SIEVE_PATTERN_MAX_DEPTH)"
    ))
}

/// Counts the classes such as `\w`, the ranges, and the nested brackets in a pattern. They are
/// limited in number because a class with a short name may have many ranges.
#[derive(Default)]
struct Classes(usize);

impl ast::Visitor for Classes {
    type Output = Self;
    type Err = Refused;

    fn finish(self) -> Result<Self, Refused> {
        Ok(self)
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Refused> {
        self.0 += usize::from(matches!(ast, Ast::ClassUnicode(_) | Ast::ClassPerl(_)));
        Ok(())
    }

    fn visit_class_set_item_pre(&mut self, item: &ast::ClassSetItem) -> Result<(), Refused> {
        use ast::ClassSetItem::{Bracketed, Perl, Range, Unicode};
        self.0 += usize::from(matches!(
            item,
            Bracketed(_) | Perl(_) | Range(_) | Unicode(_)
        ));
        Ok(())
    }
}

/// Returns the elements that match a pattern; `None` if no text does. Texts do not contain NUL,
/// since tokens do not.
pub fn elements(
    builder: &mut Builder,
    letters: &mut dyn Letters,
    hir: &Hir,
    extent: Extent,
) -> Result<Option<Vec<Element>>, Refused> {
    let end = match extent {
        Extent::Whole => End::Here,
        Extent::Anywhere => End::Open,
    };
    let mut lowering = Lowering { builder, letters };
    lowering.elements(hir, (end, end), 0)
}

/// The text that may precede or follow a part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing: the whole text begins or ends there.
    Here,
    /// Any text up to the end of the whole text. The part itself adds the elements for it, unless
    /// one of its anchors forbids that.
    Open,
    /// Other parts, perhaps empty.
    Inside,
}

struct Lowering<'a> {
    builder: &'a mut Builder,
    letters: &'a mut dyn Letters,
}

type Lowered = Result<Option<Vec<Element>>, Refused>;

/// All code points that a text can contain.
const ALL: [(u32, u32); 2] = [(1, 0xD7FF), (0xE000, 0x10_FFFF)];

impl Lowering<'_> {
    fn elements(&mut self, hir: &Hir, (before, after): (End, End), depth: u32) -> Lowered {
        if depth > 2 * MAX_PATTERN_DEPTH {
            return Err(too_deep());
        }
        let looks = hir.properties().look_set();
        let is_led = before == End::Open && !looks.contains(Look::Start);
        let is_followed = after == End::Open && !looks.contains(Look::End);
        let inner = (
            if is_led { End::Inside } else { before },
            if is_followed { End::Inside } else { after },
        );
        if !is_led && !is_followed {
            return self.kind(hir, inner, depth);
        }
        let mut elements = Vec::new();
        if is_led {
            elements = self.anything()?;
        }
        let Some(part) = self.kind(hir, inner, depth)? else {
            return Ok(None);
        };
        // One "any text" is enough if the part between two of them is empty.
        let is_empty = part.is_empty();
        elements.extend(part);
        if is_followed && !(is_led && is_empty) {
            elements.extend(self.anything()?);
        }
        Ok(Some(elements))
    }

    fn anything(&mut self) -> Result<Vec<Element>, TooLarge> {
        let item = self.letters.one_of(self.builder, ALL.to_vec())?;
        self.builder.repeat(item, false, (0, None))
    }

    fn kind(&mut self, hir: &Hir, ends: (End, End), depth: u32) -> Lowered {
        match hir.kind() {
            HirKind::Empty => Ok(Some(Vec::new())),
            HirKind::Literal(literal) => {
                let Ok(text) = std::str::from_utf8(&literal.0) else {
                    return refused(NOT_UTF8);
                };
                let mut elements = Vec::new();
                for character in text.chars() {
                    let code_point = character.into();
                    let Some(one) = self.class(vec![(code_point, code_point)])? else {
                        return Ok(None);
                    };
                    elements.extend(one);
                }
                Ok(Some(elements))
            }
            HirKind::Class(class) => {
                let ranges = ranges(class)?;
                self.class(ranges)
            }
            HirKind::Look(look) => anchor(*look, ends),
            HirKind::Capture(capture) => self.elements(&capture.sub, ends, depth + 1),
            HirKind::Repetition(repetition) => {
                let bounds = (repetition.min, repetition.max);
                self.repetition(&repetition.sub, bounds, ends, depth + 1)
            }
            HirKind::Concat(parts) => self.concat(parts, ends, depth + 1),
            HirKind::Alternation(parts) => {
                let mut alternatives = Vec::new();
                for part in parts {
                    alternatives.extend(self.elements(part, ends, depth + 1)?);
                }
                if alternatives.is_empty() {
                    return Ok(None);
                }
                Ok(Some(self.builder.alternatives(alternatives)?))
            }
        }
    }

    fn class(&mut self, ranges: Vec<(u32, u32)>) -> Lowered {
        let mut within = Vec::new();
        for (first, last) in ranges {
            for (low, high) in ALL {
                let (first, last) = (first.max(low), last.min(high));
                if first <= last {
                    within.push((first, last));
                }
            }
        }
        if within.is_empty() {
            return Ok(None);
        }
        Ok(Some(self.letters.one_of(self.builder, within)?))
    }

    fn repetition(
        &mut self,
        sub: &Hir,
        (min, max): (u32, Option<u32>),
        ends: (End, End),
        depth: u32,
    ) -> Lowered {
        let (mut min, mut max) = (min, max);
        let properties = sub.properties();
        if properties.maximum_len() == Some(0) {
            // The item matches only the empty text, so once is as good as any number of times.
            (min, max) = (min.min(1), Some(max.map_or(1, |max| max.min(1))));
        }
        if max == Some(0) {
            return self.nothing(ends);
        }
        if max == Some(1) {
            let once = self.elements(sub, ends, depth)?;
            if min == 1 {
                return Ok(once);
            }
            let mut alternatives = vec![self.nothing(ends)?.unwrap_or_default()];
            alternatives.extend(once);
            return Ok(Some(self.builder.alternatives(alternatives)?));
        }
        // A round of a repetition is next to other rounds.
        let item = self.elements(sub, (End::Inside, End::Inside), depth)?;
        let Some(item) = item else {
            return if min == 0 {
                self.nothing(ends)
            } else {
                Ok(None)
            };
        };
        // An anchor in the item would have been refused, so nothing forbids text before or after
        // it.
        let (before, after) = ends;
        let mut elements = Vec::new();
        if before == End::Open {
            elements = self.anything()?;
        }
        let bounds = (min.into(), max.map(Into::into));
        let may_be_empty = properties.minimum_len() == Some(0);
        elements.extend(self.builder.repeat(item, may_be_empty, bounds)?);
        if after == End::Open {
            elements.extend(self.anything()?);
        }
        Ok(Some(elements))
    }

    /// Returns the elements for a part that is always empty, with any text where an end is open.
    fn nothing(&mut self, (before, after): (End, End)) -> Lowered {
        if before != End::Open && after != End::Open {
            return Ok(Some(Vec::new()));
        }
        Ok(Some(self.anything()?))
    }

    fn concat(&mut self, parts: &[Hir], (before, after): (End, End), depth: u32) -> Lowered {
        let (befores, is_led) = ends_of(parts.iter(), before, Look::Start);
        let (mut afters, is_followed) = ends_of(parts.iter().rev(), after, Look::End);
        afters.reverse();
        if is_led || is_followed {
            // Every part is always empty.
            return self.nothing((before, after));
        }
        let mut elements = Vec::new();
        for ((part, before), after) in parts.iter().zip(befores).zip(afters) {
            let Some(part) = self.elements(part, (before, after), depth)? else {
                return Ok(None);
            };
            elements.extend(part);
        }
        Ok(Some(elements))
    }
}

/// Returns the [`End`] of each part on one side, given the parts in order from that side. Also
/// returns true if no part adds the text for an open end. `anchor` is the anchor of that side.
fn ends_of<'a>(
    parts: impl Iterator<Item = &'a Hir>,
    mut end: End,
    anchor: Look,
) -> (Vec<End>, bool) {
    let mut ends = Vec::new();
    for part in parts {
        let properties = part.properties();
        let is_empty = properties.maximum_len() == Some(0);
        if end == End::Open && is_empty && properties.look_set().is_empty() {
            ends.push(End::Inside);
            continue;
        }
        ends.push(end);
        let must_be_here = match anchor {
            Look::Start => properties.look_set_prefix().contains(anchor),
            _ => properties.look_set_suffix().contains(anchor),
        };
        end = match end {
            End::Here if is_empty => End::Here,
            End::Open if is_empty && must_be_here => End::Here,
            _ => End::Inside,
        };
    }
    (ends, end == End::Open)
}

const NOT_UTF8: &str = "it matches bytes that are no UTF-8; texts are UTF-8: leave out (?-u) there";

/// Returns the code points of a class.
fn ranges(class: &Class) -> Result<Vec<(u32, u32)>, Refused> {
    match class {
        Class::Unicode(class) => {
            let ranges = class.ranges().iter();
            Ok(ranges
                .map(|range| (range.start().into(), range.end().into()))
                .collect())
        }
        Class::Bytes(class) if class.is_ascii() => {
            let ranges = class.ranges().iter();
            Ok(ranges
                .map(|range| (range.start().into(), range.end().into()))
                .collect())
        }
        Class::Bytes(_) => refused(NOT_UTF8),
    }
}

/// Returns no elements for an anchor at the beginning or end of the whole text; refuses any other
/// anchor.
fn anchor(look: Look, (before, after): (End, End)) -> Lowered {
    let name = match look {
        Look::Start if before != End::Inside => return Ok(Some(Vec::new())),
        Look::End if after != End::Inside => return Ok(Some(Vec::new())),
        Look::Start => "the beginning of the text (^ or \\A) behind something else",
        Look::End => "the end of the text ($ or \\z) before something else",
        look => name_of(look),
    };
    refused(format!(
        "it asks for {name}, which is not supported: say with classes what may stand there"
    ))
}

/// Returns a description of an anchor.
pub fn name_of(look: Look) -> &'static str {
    match look {
        Look::Start => "the beginning of the text (^ or \\A)",
        Look::End => "the end of the text ($ or \\z)",
        Look::StartLF | Look::StartCRLF => "the beginning of a line (^ with the flag m)",
        Look::EndLF | Look::EndCRLF => "the end of a line ($ with the flag m)",
        Look::WordAscii | Look::WordUnicode => "a word boundary (\\b)",
        Look::WordAsciiNegate | Look::WordUnicodeNegate => "no word boundary (\\B)",
        Look::WordStartAscii | Look::WordStartUnicode => "the start of a word (\\b{start})",
        Look::WordEndAscii | Look::WordEndUnicode => "the end of a word (\\b{end})",
        Look::WordStartHalfAscii | Look::WordStartHalfUnicode => {
            "half the start of a word (\\b{start-half})"
        }
        Look::WordEndHalfAscii | Look::WordEndHalfUnicode => {
            "half the end of a word (\\b{end-half})"
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests;
