//! Writes a grammar as text in GBNF, llama.cpp's notation.

use std::fmt::{self, Write};

use crate::grammar::elements::{Class, ENDLESS, Element, Repeat, Written};
use crate::grammar::limits::MAX_TEXT;

/// Returns a grammar in GBNF, one line per rule, with the root named `root`; `None` if the text
/// would exceed [`MAX_TEXT`] or the grammar has an unordered list.
pub fn gbnf(written: &Written) -> Option<String> {
    let mut text = Bounded(String::new());
    Gbnf(written).write(&mut text).ok()?;
    Some(text.0)
}

/// A string of at most [`MAX_TEXT`] bytes.
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_TEXT {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}

struct Gbnf<'a>(&'a Written);

impl Gbnf<'_> {
    fn write(&self, f: &mut Bounded) -> fmt::Result {
        let rules = (0..).zip(self.0.rules.iter());
        let (root, others): (Vec<_>, Vec<_>) = rules.partition(|(rule, _)| *rule == self.0.root);
        for (rule, elements) in root.into_iter().chain(others) {
            self.name(f, rule)?;
            f.write_str(" ::= ")?;
            for (i, alternative) in elements.split(is_end).enumerate() {
                f.write_str(if i > 0 { " | " } else { "" })?;
                self.sequence(f, alternative)?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }

    fn name(&self, f: &mut Bounded, rule: u32) -> fmt::Result {
        match rule == self.0.root {
            true => f.write_str("root"),
            false => write!(f, "r{rule}"),
        }
    }

    fn class(&self, number: u32) -> Option<&Class> {
        self.0.classes.get(number as usize)
    }

    /// Returns the character of an element that matches exactly one character.
    fn character(&self, element: Element) -> Option<u32> {
        let Element::Class(number) = element else {
            return None;
        };
        match self.class(number) {
            Some(Class {
                negated: false,
                any: false,
                ranges,
            }) if let [(one, same)] = **ranges => (one == same).then_some(one),
            _ => None,
        }
    }

    /// Writes elements in order, adjacent characters as one string.
    fn sequence(&self, f: &mut Bounded, elements: &[Element]) -> fmt::Result {
        if elements.is_empty() {
            return f.write_str("\"\"");
        }
        let together =
            |a: &Element, b: &Element| self.character(*a).is_some() == self.character(*b).is_some();
        for (i, run) in elements.chunk_by(together).enumerate() {
            f.write_str(if i > 0 { " " } else { "" })?;
            let text: Option<Vec<u32>> = run.iter().map(|&one| self.character(one)).collect();
            match text {
                Some(text) => {
                    f.write_char('"')?;
                    text.iter().try_for_each(|&one| escaped(f, one, true))?;
                    f.write_char('"')?;
                }
                None => {
                    for (i, &element) in run.iter().enumerate() {
                        f.write_str(if i > 0 { " " } else { "" })?;
                        self.element(f, element)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn element(&self, f: &mut Bounded, element: Element) -> fmt::Result {
        match element {
            Element::Class(number) => match self.class(number) {
                Some(class) if !class.any => set(f, class),
                _ => f.write_char('.'),
            },
            Element::Token(token) => write!(f, "<[{token}]>"),
            Element::TokenNot(token) => write!(f, "!<[{token}]>"),
            Element::Rule(rule) => self.name(f, rule),
            Element::Repeat(number) => match self.0.repeats.get(number as usize) {
                Some(repeat) => self.repeat(f, repeat),
                None => Ok(()),
            },
            // Schemas that are written as text have none.
            Element::Unordered(_) | Element::Occurred(_) => Err(fmt::Error),
            Element::Alternative => Ok(()),
        }
    }

    fn repeat(&self, f: &mut Bounded, repeat: &Repeat<Vec<Element>>) -> fmt::Result {
        f.write_char('(')?;
        self.sequence(f, &repeat.item)?;
        match repeat.max {
            ENDLESS => write!(f, "){{{},}}", repeat.min),
            max if max == repeat.min => write!(f, "){{{max}}}"),
            max => write!(f, "){{{},{max}}}", repeat.min),
        }
    }
}

fn is_end(element: &Element) -> bool {
    *element == Element::Alternative
}

/// Writes a class in brackets.
fn set(f: &mut Bounded, class: &Class) -> fmt::Result {
    f.write_str(if class.negated { "[^" } else { "[" })?;
    for &(first, last) in &class.ranges {
        escaped(f, first, false)?;
        if first < last {
            f.write_char('-')?;
            escaped(f, last, false)?;
        }
    }
    f.write_char(']')
}

/// Writes a character, unescaped only if every build of llama.cpp then reads it in the same way.
fn escaped(f: &mut Bounded, code_point: u32, in_text: bool) -> fmt::Result {
    match u8::try_from(code_point) {
        Ok(byte) if byte.is_ascii_alphanumeric() => f.write_char(byte.into()),
        Ok(byte @ (b'"' | b'\\')) if in_text => write!(f, "\\{}", char::from(byte)),
        Ok(byte) if in_text && matches!(byte, b' '..=b'~') && !matches!(byte, b'[' | b']') => {
            f.write_char(byte.into())
        }
        Ok(byte) => write!(f, "\\x{byte:02X}"),
        Err(_) if code_point <= 0xFFFF => write!(f, "\\u{code_point:04X}"),
        Err(_) => write!(f, "\\U{code_point:08X}"),
    }
}
