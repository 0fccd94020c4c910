//! The items of an alternative: strings, character classes, tokens.

use super::{Frame, Parsed, Parser, fault};
use crate::grammar::elements::{Class, Element};
use crate::grammar::limits::MAX_TOKEN_TEXT;
use crate::quoted::quoted;

impl Parser<'_> {
    pub(super) fn literal(&mut self, frame: &mut Frame) -> Parsed<()> {
        let start = self.at;
        self.at += 1;
        frame.begin_item();
        while self.peek() != Some(b'"') {
            if self.peek().is_none() {
                return fault(start, "this string does not end: expected '\"'");
            }
            let code_point = self.character()?;
            let class = self.number_of_one(code_point)?;
            self.push(frame, Element::Class(class))?;
        }
        self.at += 1;
        Ok(())
    }

    pub(super) fn class(&mut self, frame: &mut Frame) -> Parsed<()> {
        let start = self.at;
        self.at += 1;
        let negated = self.peek() == Some(b'^');
        self.at += usize::from(negated);
        frame.begin_item();
        let mut ranges = Vec::new();
        while self.peek() != Some(b']') {
            if self.peek().is_none() {
                return fault(start, "this character class does not end: expected ']'");
            }
            let first = self.character()?;
            let mut last = first;
            if self.peek() == Some(b'-') && self.peek_behind(1) != Some(b']') {
                if self.peek_behind(1).is_none() {
                    return fault(start, "this character class does not end: expected ']'");
                }
                self.at += 1;
                last = self.character()?;
            }
            self.grown(1)?;
            ranges.push((first, last));
        }
        self.at += 1;
        // An empty class matches the empty text, even if it is negated.
        if !ranges.is_empty() {
            let class = self.number(Class::of(negated, ranges))?;
            frame.elements.push(Element::Class(class));
        }
        Ok(())
    }

    pub(super) fn character(&mut self) -> Parsed<u32> {
        let at = self.at;
        let Some(first) = self.peek() else {
            return fault(at, "expected a character before the end of the text");
        };
        if first != b'\\' {
            return Ok(self.plain_character(first));
        }
        let escaped = self.peek_behind(1);
        self.at += 2;
        match escaped {
            Some(b'x') => self.hex(at, 2),
            Some(b'u') => self.hex(at, 4),
            Some(b'U') => self.hex(at, 8),
            Some(b't') => Ok(9),
            Some(b'r') => Ok(13),
            Some(b'n') => Ok(10),
            Some(byte @ (b'\\' | b'"' | b'[' | b']' | b'-')) => {
                self.about.escapes_dash |= byte == b'-';
                Ok(u32::from(byte))
            }
            _ => fault(
                at,
                "unknown escape: expected one of \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\-",
            ),
        }
    }

    /// Reads an unescaped character. The first byte determines how many bytes follow, whatever they
    /// are. A byte that cannot begin a character is read as the code point of its value minus 128.
    fn plain_character(&mut self, first: u8) -> u32 {
        let (mask, n_more) = match first {
            0xF0.. => (0x0F, 3),
            0xE0.. => (0x1F, 2),
            0xC0.. => (0x3F, 1),
            _ => (0x7F, 0),
        };
        let character = self.text.get(self.at..).unwrap_or_default();
        let character = character.get(..=n_more).unwrap_or(character);
        if self.garbled.is_none() && std::str::from_utf8(character).is_err() {
            self.garbled = Some(self.at);
        }
        let mut value = u32::from(first & mask);
        self.at += 1;
        for _ in 0..n_more {
            let Some(byte) = self.peek() else {
                break;
            };
            value = (value << 6) + u32::from(byte & 0x3F);
            self.at += 1;
        }
        value
    }

    fn hex(&mut self, escape: usize, n_digits: usize) -> Parsed<u32> {
        let mut value: u32 = 0;
        for _ in 0..n_digits {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return fault(escape, format!("expected {n_digits} hexadecimal digits"));
            };
            value = (value << 4) | digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// Reads a decimal number; `None` if it exceeds 64 bits.
    pub(super) fn integer(&mut self) -> Parsed<Option<u64>> {
        let start = self.at;
        let mut value: Option<u64> = Some(0);
        while let Some(byte @ b'0'..=b'9') = self.peek() {
            value = value
                .and_then(|value| value.checked_mul(10))
                .and_then(|value| value.checked_add(u64::from(byte - b'0')));
            self.at += 1;
        }
        if self.at == start {
            return self.expected("a number");
        }
        Ok(value)
    }

    pub(super) fn token_element(&mut self, frame: &mut Frame) -> Parsed<()> {
        let negated = self.peek() == Some(b'!');
        self.at += usize::from(negated);
        let start = self.at;
        if self.peek() != Some(b'<') {
            return self.expected("'<' behind '!'");
        }
        self.at += 1;
        let token = if self.peek() == Some(b'[') {
            self.at += 1;
            let at = self.at;
            let token = self.integer()?.and_then(|token| u32::try_from(token).ok());
            let Some(token) = token else {
                return fault(at, "the number of the token is too large");
            };
            for expected in [b']', b'>'] {
                if self.peek() != Some(expected) {
                    let expected = char::from(expected);
                    return self.expected(&format!("'{expected}' behind the token"));
                }
                self.at += 1;
            }
            token
        } else {
            while !matches!(self.peek(), None | Some(b'>')) {
                self.at += 1;
            }
            if self.peek().is_none() {
                return fault(start, "expected '>' behind the token's text");
            }
            self.at += 1;
            let text = self.text.get(start..self.at).unwrap_or_default();
            if text.len() > MAX_TOKEN_TEXT {
                return fault(
                    start,
                    format!("a token's text of more than {MAX_TOKEN_TEXT} bytes"),
                );
            }
            let Some(token) = (self.token)(text) else {
                let text = quoted(text);
                return fault(start, format!("'{text}' is not exactly one token"));
            };
            token as u32
        };
        frame.begin_item();
        self.about.names_tokens = true;
        let element = match negated {
            true => Element::TokenNot(token),
            false => Element::Token(token),
        };
        self.push(frame, element)
    }
}
