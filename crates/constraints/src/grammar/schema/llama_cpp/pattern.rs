//! Reads regular expressions as llama.cpp's converter does: between `^` and `$`, with alternatives,
//! groups, counts, classes and dots. They describe the content of a string without escapes.
//!
//! If a pattern contains an unknown construct, llama.cpp's converter accepts any string in place of
//! the pattern. It copies any other pattern into its grammar piece by piece. A repetition in the
//! grammar may therefore not apply to the same item as in the pattern, but to all characters up to
//! an escape, or, after `{0}`, to the item before that. The pieces are therefore read first, and
//! then combined as a parser of the grammar would combine them.

// In bounds: offsets in the pattern are at most its length.

use super::names::Name;
use super::writer::Writer;
use crate::grammar::elements::{Class, Element};
use crate::grammar::limits::MAX_SCHEMA_GROUPS;
use crate::grammar::parser::{character_of, class_of};
use crate::grammar::schema::output::Sequence;
use crate::grammar::schema::refusal::{Answer, Refusal};
use crate::quoted::quoted;

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    /// Characters.
    Text(Vec<u32>),
    /// Any character except line breaks.
    Dot,
    /// A character of a class; the empty text for an empty class.
    Set(Option<Class>),
    /// Pieces in parentheses, and the depth of the nesting in them.
    Group(Vec<Piece>, usize),
    /// Counted pieces, and the depth of the nesting in them.
    Counted(Vec<Piece>, usize),
    /// Pieces counted zero times, which become a rule that nothing refers to.
    Unused(Vec<Piece>, usize),
    /// The end of an alternative.
    Bar,
    /// Repeats the preceding item at least and at most this many times.
    Times(u32, Option<u32>),
}

/// Returns the depth of an item that contains these pieces.
fn depth_around(pieces: &[Piece]) -> usize {
    let depth = |piece: &Piece| match piece {
        Piece::Group(_, depth) | Piece::Counted(_, depth) | Piece::Unused(_, depth) => depth + 1,
        _ => 0,
    };
    pieces.iter().map(depth).max().unwrap_or(0)
}

/// One item of a pattern: the pieces that a following repetition applies to.
type Item = Vec<Piece>;

/// The reason why a pattern cannot be read.
enum Unread {
    /// Any string is accepted in place of the pattern.
    Unknown(String),
    /// The schema is refused.
    Wrong(String),
}

fn unknown<T>(why: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Unknown(why.into()))
}

fn wrong<T>(why: impl Into<String>) -> Result<T, Unread> {
    Err(Unread::Wrong(why.into()))
}

/// Characters with a special meaning.
const SPECIAL: &str = "|.()[]{}*+?^$";
/// The characters that a backslash makes literal.
const ESCAPABLE: &str = "^$.[]()|{}*+?";

/// The maximum nesting depth of groups that llama.cpp's converter reads.
const MOST_GROUPS: usize = 100;

/// A pattern being read, without its `^` and `$`.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    n_open: usize,
    /// A mistake in the grammar that llama.cpp's converter would write. It does not matter if any
    /// string is accepted in place of the pattern.
    mistake: Option<&'static str>,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, text: &str) -> bool {
        let is_there = self.rest().starts_with(text);
        self.at += if is_there { text.len() } else { 0 };
        is_there
    }

    /// Reads the pieces up to the end of a group, or of the pattern.
    fn pieces(&mut self) -> Result<Vec<Piece>, Unread> {
        let mut items: Vec<Item> = Vec::new();
        while let Some(character) = self.peek() {
            match character {
                '.' => {
                    self.at += 1;
                    items.push(vec![Piece::Dot]);
                }
                '(' => {
                    let group = self.group()?;
                    items.push(vec![group]);
                }
                ')' if self.n_open == 0 => return wrong("a ')' without '('"),
                ')' => {
                    self.at += 1;
                    self.n_open -= 1;
                    break;
                }
                '^' | '$' => return unknown("'^' or '$' within it"),
                '[' => {
                    let class = self.class()?;
                    items.push(vec![class]);
                }
                '|' => {
                    self.at += 1;
                    items.push(vec![Piece::Bar]);
                }
                '*' | '+' | '?' => {
                    self.at += 1;
                    let Some(last) = items.last_mut() else {
                        return wrong("nothing to repeat");
                    };
                    last.push(match character {
                        '*' => Piece::Times(0, None),
                        '+' => Piece::Times(1, None),
                        _ => Piece::Times(0, Some(1)),
                    });
                }
                '{' => self.count(&mut items)?,
                _ => {
                    let text = self.literal()?;
                    items.push(vec![text]);
                }
            }
        }
        Ok(put_together(items))
    }

    fn group(&mut self) -> Result<Piece, Unread> {
        self.at += 1;
        if self.rest().starts_with('?') && !self.eat("?:") {
            return unknown("a group that begins with '(?'");
        }
        self.n_open += 1;
        if self.n_open > MOST_GROUPS {
            return unknown("groups too deep within each other");
        }
        let pieces = self.pieces()?;
        let depth = depth_around(&pieces);
        Ok(Piece::Group(pieces, depth))
    }

    fn class(&mut self) -> Result<Piece, Unread> {
        let from = self.at;
        self.at += 1;
        loop {
            match self.peek() {
                None => return wrong("a '[' without ']'"),
                Some(']') => break,
                Some('\\') => match character_of(self.rest().as_bytes()) {
                    Some((_, n)) => self.at += n,
                    None => return unknown("an escape in a class"),
                },
                Some(character) => self.at += character.len_utf8(),
            }
        }
        self.at += 1;
        let text = self.text.get(from..self.at).unwrap_or_default();
        let class = class_of(text.as_bytes());
        if class.is_err() {
            self.mistake = Some("a class that is none in a grammar");
        }
        Ok(Piece::Set(class.unwrap_or_default()))
    }

    /// Reads adjacent characters as one piece. The last character before a special character
    /// becomes a separate piece, unless it is also the first, or an escape.
    fn literal(&mut self) -> Result<Piece, Unread> {
        let mut characters = Vec::new();
        let from = self.at;
        while let Some(character) = self.peek() {
            if character == '\\' {
                characters.push(self.escape()?);
                continue;
            }
            let next = self.at + character.len_utf8();
            let next = self.text.get(next..).and_then(|rest| rest.chars().next());
            let is_before_special = next.is_some_and(|next| SPECIAL.contains(next));
            // The last byte before a special character becomes a separate piece, unless it is also
            // the first byte of this piece.
            let is_left = !characters.is_empty() || !character.is_ascii();
            let is_counted = next.is_some_and(|next| "*+?{".contains(next));
            if character == '"' {
                characters.push(u32::from(character));
                self.at += 1;
            } else if SPECIAL.contains(character) {
                break;
            } else if is_before_special && is_left {
                if !characters.is_empty() {
                    break;
                }
                characters.push(u32::from(character));
                self.at += character.len_utf8();
                if is_counted {
                    self.mistake = Some(
                        "a count behind a character that is not ASCII, of which llama.cpp's \
                         converter takes the last byte alone; use a group",
                    );
                }
                break;
            } else {
                characters.push(u32::from(character));
                self.at += character.len_utf8();
            }
        }
        match self.at > from {
            true => Ok(Piece::Text(characters)),
            false => unknown("a character that means nothing here"),
        }
    }

    fn escape(&mut self) -> Result<u32, Unread> {
        let escaped = self.rest().chars().nth(1);
        match escaped {
            None => wrong("a '\\' at its end"),
            Some(escaped) if ESCAPABLE.contains(escaped) => {
                self.at += 2;
                Ok(u32::from(escaped))
            }
            Some(escaped) => match character_of(self.rest().as_bytes()) {
                Some((character, n)) => {
                    self.at += n;
                    Ok(character)
                }
                None => unknown(format!("the escape \"\\{escaped}\"")),
            },
        }
    }

    /// Reads a count in braces, and applies it to the last item.
    fn count(&mut self, items: &mut [Item]) -> Result<(), Unread> {
        let Some(n) = self.rest().find('}') else {
            return unknown("a '{' without '}'");
        };
        let counts = self.rest().get(1..n).unwrap_or_default();
        let (min, max) = match counts.split(',').collect::<Vec<_>>()[..] {
            [both] => (integer(both), integer(both).map(Some)),
            [min, max] => {
                let of = |text: &str, missing| match text.is_empty() {
                    true => Some(missing),
                    false => integer(text),
                };
                (of(min, 0), of(max, i32::MAX).map(Some))
            }
            _ => (None, None),
        };
        let (Some(min), Some(max)) = (min, max) else {
            return unknown("braces without a number");
        };
        self.at += n + 1;
        let Some(last) = items.last_mut() else {
            return wrong("nothing to repeat");
        };
        let max = max.filter(|&max| max < i32::MAX);
        let depth = depth_around(last);
        if depth > 2 * MAX_SCHEMA_GROUPS {
            return wrong("more counts behind each other than twice LLAMA_SIEVE_JSON_MAX_GROUPS");
        }
        let is_used = |piece: &&Piece| !matches!(piece, Piece::Unused(..));
        if let None | Some(Piece::Bar) = last.iter().rfind(is_used) {
            // In llama.cpp's grammar the rule would continue on the next line.
            self.mistake = Some("a count behind nothing");
        }
        let is_text = matches!(&**last, [Piece::Text(_)]);
        let item = std::mem::take(last);
        *last = match (is_text, max) {
            (true, Some(0)) => return Ok(()),
            (false, Some(0)) => {
                last.push(Piece::Unused(item, depth));
                return Ok(());
            }
            (true, _) => item,
            (false, _) => vec![Piece::Counted(item, depth)],
        };
        let is_ordered = max.is_none_or(|max| max >= min);
        match (u32::try_from(min), max.map(u32::try_from).transpose()) {
            (Ok(min), Ok(max)) if is_ordered => last.push(Piece::Times(min, max)),
            _ => self.mistake = Some("counts below zero or out of order"),
        }
        Ok(())
    }
}

/// Reads a number as C's `strtol` does: after white space, with a sign, up to the first character
/// that is not a digit.
fn integer(text: &str) -> Option<i32> {
    let is_space = |c: char| matches!(c, ' ' | '\t'..='\r');
    let text = text.trim_start_matches(is_space);
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let n_digits = unsigned.bytes().take_while(u8::is_ascii_digit).count();
    let number = text.get(..text.len() - unsigned.len() + n_digits)?;
    number.parse().ok()
}

/// Joins the pieces of items in order. Adjacent characters become one piece.
fn put_together(items: Vec<Item>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut is_text = false;
    for item in items {
        match (&*item, pieces.last_mut()) {
            ([Piece::Text(more)], Some(Piece::Text(text))) if is_text => text.extend(more),
            _ => {
                is_text = matches!(&*item, [Piece::Text(_)]);
                pieces.extend(item);
            }
        }
    }
    pieces
}

/// Reads a pattern. A mistake in llama.cpp's grammar is an error, unless any string is accepted in
/// place of the pattern.
fn read(pattern: &str) -> Result<Vec<Piece>, Unread> {
    let inner = pattern.strip_prefix('^');
    let Some(inner) = inner.and_then(|inner| inner.strip_suffix('$')) else {
        return unknown("it does not begin with '^' and end with '$'");
    };
    let mut reader = Reader {
        text: inner,
        at: 0,
        n_open: 0,
        mistake: None,
    };
    let pieces = reader.pieces()?;
    match reader.mistake {
        _ if reader.n_open > 0 => wrong("a '(' without ')'"),
        _ if inner.contains('\0') => wrong("a zero, at which llama.cpp's grammar ends"),
        Some(mistake) => wrong(mistake),
        None => Ok(pieces),
    }
}

impl Writer<'_> {
    /// Writes the rule of the strings that a pattern describes.
    pub(super) fn pattern(&mut self, pattern: &str, rule: &Name) -> Answer<Name> {
        // The steps to charge for each byte of the pattern.
        const COST: usize = 8;
        super::spend(&self.work, COST * pattern.len())?;
        let pieces = match read(pattern) {
            Ok(pieces) => pieces,
            Err(Unread::Wrong(why)) => {
                return self.refused("pattern", format!("\"{}\": {why}", quoted(pattern)));
            }
            Err(Unread::Unknown(why)) => {
                let pointer = self.document.pointer(self.place);
                super::keep(&self.work, pointer.len())?;
                self.left_out.push(Refusal {
                    pointer,
                    keyword: "pattern".into(),
                    why: format!("llama.cpp's converter does not follow it: {why}; any string"),
                });
                let string = self.primitive("string")?;
                return self.alias(rule, &string);
            }
        };
        let mut known = Vec::new();
        let alternatives = self.alternatives(&pieces, rule, &mut known)?;
        let content = self.group(alternatives)?;
        let string = self.output.quoted(vec![content])?;
        self.named(rule, vec![string])
    }

    /// Returns the alternatives that pieces form when they are read as the text of a grammar.
    /// `known` maps the counted pieces so far to the names of their rules.
    fn alternatives(
        &mut self,
        pieces: &[Piece],
        rule: &Name,
        known: &mut Vec<(Vec<Piece>, Name)>,
    ) -> Answer<Vec<Sequence>> {
        let mut alternatives = Vec::new();
        let mut so_far: Sequence = Vec::new();
        // The start of the last item.
        let mut from = 0;
        for piece in pieces {
            super::spend(&self.work, 1)?;
            let mut next = match piece {
                Piece::Bar => {
                    alternatives.push(std::mem::take(&mut so_far));
                    from = 0;
                    continue;
                }
                Piece::Times(..) if from == so_far.len() => {
                    return self.refused("pattern", "nothing to repeat");
                }
                Piece::Times(min, max) => {
                    let item = so_far.split_off(from);
                    so_far.extend(self.times(item, *min, *max)?);
                    continue;
                }
                Piece::Text(characters) => self.text_of_codes(characters)?,
                Piece::Dot => self.dot()?,
                Piece::Set(None) => Vec::new(),
                Piece::Set(Some(class)) => vec![self.output.set(class.clone())?],
                Piece::Group(pieces, _) => {
                    let alternatives = self.alternatives(pieces, rule, known)?;
                    vec![self.group(alternatives)?]
                }
                Piece::Counted(pieces, _) => vec![self.counted_rule(pieces, rule, known)?],
                Piece::Unused(pieces, _) => {
                    self.counted_rule(pieces, rule, known)?;
                    continue;
                }
            };
            from = so_far.len();
            so_far.append(&mut next);
        }
        alternatives.push(so_far);
        Ok(alternatives)
    }

    /// Returns a reference to the rule of counted pieces.
    fn counted_rule(
        &mut self,
        pieces: &[Piece],
        rule: &Name,
        known: &mut Vec<(Vec<Piece>, Name)>,
    ) -> Answer<Element> {
        super::spend(&self.work, known.len())?;
        if let Some((_, name)) = known.iter().find(|(other, _)| other == pieces) {
            let name = Name::clone(name);
            return Ok(self.rule(&name));
        }
        let alternatives = self.alternatives(pieces, rule, known)?;
        let name = format!("{rule}-{}", known.len() + 1);
        let name = self.named(&name, alternatives)?;
        known.push((pieces.to_vec(), Name::clone(&name)));
        Ok(self.rule(&name))
    }

    fn text_of_codes(&mut self, characters: &[u32]) -> Answer<Sequence> {
        let classes = characters
            .iter()
            .map(|&one| self.output.class(&[(one, one)]));
        classes.collect()
    }

    fn dot(&mut self) -> Answer<Sequence> {
        let class = self.bracketed(r"[^\x0A\x0D]")?;
        let name = self.named("dot", vec![class])?;
        Ok(vec![self.rule(&name)])
    }
}
