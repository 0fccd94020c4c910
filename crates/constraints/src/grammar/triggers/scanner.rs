//! Scans the tokens of a pattern, in the ECMAScript syntax as `std::regex` reads it.

use crate::grammar::triggers::byte_set::{self, ByteSet};

/// The reason why a pattern is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The offset of the fault in bytes.
    pub at: usize,
    /// A description of the fault.
    pub what: &'static str,
}

/// A token of the pattern outside of a bracket expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// Matches any one byte of the set.
    Set(ByteSet),
    /// `\1` and the like, with the number.
    Backreference(i32),
    /// `^`.
    Begin,
    /// `$`.
    End,
    /// `\b` or `\B`.
    Word {
        /// True for `\B`.
        negated: bool,
    },
    /// `(`.
    Group,
    /// `(?:`.
    Plain,
    /// `(?=` or `(?!`.
    Look {
        /// True for `(?!`.
        negated: bool,
    },
    /// `)`.
    Close,
    /// `|`.
    Or,
    /// `*`.
    Star,
    /// `+`.
    Plus,
    /// `?`.
    Question,
    /// `{m}`, `{m,}` and `{m,n}`.
    Interval {
        /// The minimum number of repetitions.
        min: i32,
        /// The number of further repetitions; `None` for any number.
        more: Option<i64>,
    },
    /// The end of the pattern.
    Over,
}

/// The meaning of an escape.
enum Escape {
    Byte(u8),
    Class(ByteSet),
    Backreference(i32),
    Word { negated: bool },
}

/// A scanner for one pattern.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Scanner<'a> {
    /// Returns a scanner at the beginning of `text`.
    pub fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// Returns a refusal at the current offset.
    pub fn refuse<T>(&self, what: &'static str) -> Result<T, Refusal> {
        Err(Refusal { at: self.at, what })
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn eat(&mut self, byte: u8) -> bool {
        let is = self.peek() == Some(byte);
        self.at += usize::from(is);
        is
    }

    /// Skips a question mark. Returns false if none follows.
    pub fn question(&mut self) -> bool {
        self.eat(b'?')
    }

    /// Scans the next token.
    pub fn sign(&mut self) -> Result<Sign, Refusal> {
        let Some(byte) = self.next() else {
            return Ok(Sign::Over);
        };
        Ok(match byte {
            b'^' => Sign::Begin,
            b'$' => Sign::End,
            b'.' => Sign::Set(ByteSet::of(|byte| !matches!(byte, b'\n' | b'\r'))),
            b'*' => Sign::Star,
            b'+' => Sign::Plus,
            b'?' => Sign::Question,
            b'|' => Sign::Or,
            b')' => Sign::Close,
            b'(' => return self.opening(),
            b'[' => Sign::Set(self.bracket()?),
            b'{' => return self.interval(),
            b'\\' => match self.escape(false)? {
                Escape::Byte(byte) => Sign::Set(ByteSet::one(byte)),
                Escape::Class(set) => Sign::Set(set),
                Escape::Backreference(number) => Sign::Backreference(number),
                Escape::Word { negated } => Sign::Word { negated },
            },
            byte => Sign::Set(ByteSet::one(byte)),
        })
    }

    fn opening(&mut self) -> Result<Sign, Refusal> {
        if !self.eat(b'?') {
            return Ok(Sign::Group);
        }
        match self.next() {
            Some(b':') => Ok(Sign::Plain),
            Some(b'=') => Ok(Sign::Look { negated: false }),
            Some(b'!') => Ok(Sign::Look { negated: true }),
            _ => self.refuse("expected ':', '=' or '!' behind '(?'"),
        }
    }

    fn interval(&mut self) -> Result<Sign, Refusal> {
        let Some(min) = self.number() else {
            return self.refuse("expected a number behind '{'");
        };
        let more = match self.eat(b',') {
            false => Some(0_i64),
            true => self.number().map(|max| i64::from(max) - i64::from(min)),
        };
        if !self.eat(b'}') {
            return self.refuse("expected '}'");
        }
        if more.is_some_and(|more| more < 0) {
            return self.refuse("the second number is less than the first");
        }
        Ok(Sign::Interval { min, more })
    }

    /// Reads digits as a number, which overflows as in `std::regex`.
    fn number(&mut self) -> Option<i32> {
        let first = self.at;
        let mut number = 0_i64;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            number = number
                .wrapping_mul(10)
                .wrapping_add(i64::from(digit - b'0'));
            self.at += 1;
        }
        (self.at > first).then_some(number as i32)
    }

    fn escape(&mut self, in_bracket: bool) -> Result<Escape, Refusal> {
        let Some(byte) = self.next() else {
            return self.refuse("a backslash at the end");
        };
        Ok(match byte {
            b'0' => Escape::Byte(0),
            b'b' if in_bracket => Escape::Byte(8),
            b'f' => Escape::Byte(12),
            b'n' => Escape::Byte(b'\n'),
            b'r' => Escape::Byte(b'\r'),
            b't' => Escape::Byte(b'\t'),
            b'v' => Escape::Byte(11),
            b'b' => Escape::Word { negated: false },
            b'B' => Escape::Word { negated: true },
            b'd' | b's' | b'w' => Escape::Class(byte_set::class(&[byte]).unwrap_or_default()),
            b'D' | b'S' | b'W' => {
                Escape::Class(byte_set::class(&[byte]).unwrap_or_default().complement())
            }
            b'c' => match self.next() {
                Some(byte) => Escape::Byte(byte),
                None => return self.refuse("expected a character behind '\\c'"),
            },
            b'x' => Escape::Byte(self.hexadecimal(2)?),
            b'u' => Escape::Byte(self.hexadecimal(4)?),
            b'1'..=b'9' => {
                self.at -= 1;
                Escape::Backreference(self.number().unwrap_or(0))
            }
            byte => Escape::Byte(byte),
        })
    }

    /// Reads `n` hexadecimal digits. Returns the lowest byte of the number.
    fn hexadecimal(&mut self, n: usize) -> Result<u8, Refusal> {
        let mut value = 0_u32;
        for _ in 0..n {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return self.refuse("expected a hexadecimal digit");
            };
            value = value << 4 | digit;
            self.at += 1;
        }
        Ok(value as u8)
    }
}

/// The last item so far of a bracket expression.
#[derive(Clone, Copy)]
enum Last {
    Nothing,
    /// A byte that may begin a range.
    Byte(u8),
    /// A class, which cannot begin a range.
    Class,
}

/// A token within brackets.
enum Inside {
    Byte(u8),
    Dash,
    Class(ByteSet),
    /// A character given by its name.
    Named(u8),
    Over,
}

/// The methods for bracket expressions.
impl Scanner<'_> {
    fn bracket(&mut self) -> Result<ByteSet, Refusal> {
        let negated = self.eat(b'^');
        let mut set = ByteSet::default();
        let mut last = Last::Nothing;
        let mut is_first = true;
        loop {
            match self.inside()? {
                Inside::Over => break,
                Inside::Byte(byte) => push(&mut set, &mut last, byte),
                Inside::Named(byte) => {
                    set.add(byte);
                    push(&mut set, &mut last, byte);
                }
                Inside::Class(class) => {
                    if let Last::Byte(byte) = last {
                        set.add(byte);
                    }
                    last = Last::Class;
                    set.add_all(&class);
                }
                Inside::Dash if is_first => last = Last::Byte(b'-'),
                Inside::Dash => {
                    if self.eat(b']') {
                        push(&mut set, &mut last, b'-');
                        break;
                    }
                    self.dash(&mut set, &mut last)?;
                }
            }
            is_first = false;
        }
        if let Last::Byte(byte) = last {
            set.add(byte);
        }
        Ok(if negated { set.complement() } else { set })
    }

    /// Reads a dash that is neither first nor last in the brackets.
    fn dash(&mut self, set: &mut ByteSet, last: &mut Last) -> Result<(), Refusal> {
        let first = match *last {
            Last::Class => return self.refuse("a range cannot begin with a class"),
            Last::Nothing => {
                *last = Last::Byte(b'-');
                return Ok(());
            }
            Last::Byte(first) => first,
        };
        let end = match self.inside()? {
            Inside::Byte(byte) => byte,
            Inside::Dash => b'-',
            Inside::Class(_) | Inside::Named(_) | Inside::Over => {
                return self.refuse("a range ends with a character");
            }
        };
        let Some(range) = byte_set::range(first, end) else {
            return self.refuse("the characters of a range are in the wrong order");
        };
        set.add_all(&range);
        *last = Last::Nothing;
        Ok(())
    }

    fn inside(&mut self) -> Result<Inside, Refusal> {
        let Some(byte) = self.next() else {
            return self.refuse("this bracket does not end");
        };
        match (byte, self.peek()) {
            (b'-', _) => Ok(Inside::Dash),
            (b']', _) => Ok(Inside::Over),
            (b'[', None) => self.refuse("this bracket does not end"),
            (b'[', Some(kind @ (b'.' | b':' | b'='))) => self.named(kind),
            (b'\\', _) => match self.escape(true)? {
                Escape::Byte(byte) => Ok(Inside::Byte(byte)),
                Escape::Class(set) => Ok(Inside::Class(set)),
                Escape::Backreference(_) | Escape::Word { .. } => {
                    self.refuse("this escape has no meaning in a bracket")
                }
            },
            (byte, _) => Ok(Inside::Byte(byte)),
        }
    }

    /// Reads `[:name:]`, `[.name.]` or `[=name=]`, from the character before the name, which is
    /// `kind`.
    fn named(&mut self, kind: u8) -> Result<Inside, Refusal> {
        self.at += 1;
        let rest = self.text.get(self.at..).unwrap_or_default();
        let name = rest.split(|&byte| byte == kind).next().unwrap_or_default();
        self.at += name.len();
        if !(self.eat(kind) && self.eat(b']')) {
            return self.refuse("this name in a bracket does not end");
        }
        if kind == b':' {
            return match byte_set::class(name) {
                Some(class) => Ok(Inside::Class(class)),
                None => self.refuse("there is no class of this name"),
            };
        }
        let Some(byte) = byte_set::named(name) else {
            return self.refuse("there is no character of this name");
        };
        if kind == b'.' {
            return Ok(Inside::Named(byte));
        }
        let is_alike = |other: u8| other.eq_ignore_ascii_case(&byte);
        Ok(Inside::Class(ByteSet::of(is_alike)))
    }
}

/// Adds the last item to the set, and makes `byte` the last item.
fn push(set: &mut ByteSet, last: &mut Last, byte: u8) {
    if let Last::Byte(before) = *last {
        set.add(before);
    }
    *last = Last::Byte(byte);
}
