//! Sets of bytes, and the character classes of the C locale.

use std::ffi::c_char;

/// A set of bytes, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    /// Returns the bytes for which `has` returns true.
    pub fn of(has: impl Fn(u8) -> bool) -> Self {
        let mut set = Self::default();
        for byte in 0..=u8::MAX {
            if has(byte) {
                set.add(byte);
            }
        }
        set
    }

    /// Returns the set of one byte.
    pub fn one(byte: u8) -> Self {
        let mut set = Self::default();
        set.add(byte);
        set
    }

    /// Adds a byte.
    pub fn add(&mut self, byte: u8) {
        if let Some(word) = self.0.get_mut(usize::from(byte / 64)) {
            *word |= 1 << (byte % 64);
        }
    }

    /// Adds all bytes of another set.
    pub fn add_all(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(other.0) {
            *word |= more;
        }
    }

    /// Returns the bytes that are not in the set.
    pub fn complement(self) -> Self {
        Self(self.0.map(|word| !word))
    }

    /// True if the set contains the byte.
    #[inline]
    pub fn has(&self, byte: u8) -> bool {
        let word = self.0.get(usize::from(byte / 64));
        word.is_some_and(|word| word >> (byte % 64) & 1 != 0)
    }
}

/// True if a byte is a letter, a digit or an underscore.
pub fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// True for the bytes that `isspace` accepts in the C locale, which unlike in Rust include the
/// vertical tab.
fn is_space(byte: u8) -> bool {
    matches!(byte, 9..=13 | b' ')
}

/// Returns the class named `name`, which may be in upper or lower case.
pub fn class(name: &[u8]) -> Option<ByteSet> {
    let has: fn(u8) -> bool = match &*name.to_ascii_lowercase() {
        b"d" | b"digit" => |byte| byte.is_ascii_digit(),
        b"w" => is_word,
        b"s" | b"space" => is_space,
        b"alnum" => |byte| byte.is_ascii_alphanumeric(),
        b"alpha" => |byte| byte.is_ascii_alphabetic(),
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => |byte| byte.is_ascii_control(),
        b"graph" => |byte| byte.is_ascii_graphic(),
        b"lower" => |byte| byte.is_ascii_lowercase(),
        b"print" => |byte| byte.is_ascii_graphic() || byte == b' ',
        b"punct" => |byte| byte.is_ascii_punctuation(),
        b"upper" => |byte| byte.is_ascii_uppercase(),
        b"xdigit" => |byte| byte.is_ascii_hexdigit(),
        _ => return None,
    };
    Some(ByteSet::of(has))
}

/// Returns the bytes from `first` to `last` in the order of C's `char`, which is signed on some
/// machines; `None` if `last` comes before `first`.
pub fn range(first: u8, last: u8) -> Option<ByteSet> {
    let (first, last) = (first as c_char, last as c_char);
    (first <= last).then(|| ByteSet::of(|byte| (first..=last).contains(&(byte as c_char))))
}

/// POSIX's names of the characters that are not letters, in the order of their codes.
const NAMES: [(u8, &[&str]); 5] = [
    (
        0,
        &[
            "NUL",
            "SOH",
            "STX",
            "ETX",
            "EOT",
            "ENQ",
            "ACK",
            "alert",
            "backspace",
            "tab",
            "newline",
            "vertical-tab",
            "form-feed",
            "carriage-return",
            "SO",
            "SI",
            "DLE",
            "DC1",
            "DC2",
            "DC3",
            "DC4",
            "NAK",
            "SYN",
            "ETB",
            "CAN",
            "EM",
            "SUB",
            "ESC",
            "IS4",
            "IS3",
            "IS2",
            "IS1",
        ],
    ),
    (
        b' ',
        &[
            "space",
            "exclamation-mark",
            "quotation-mark",
            "number-sign",
            "dollar-sign",
            "percent-sign",
            "ampersand",
            "apostrophe",
            "left-parenthesis",
            "right-parenthesis",
            "asterisk",
            "plus-sign",
            "comma",
            "hyphen",
            "period",
            "slash",
        ],
    ),
    (
        b'0',
        &[
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "colon",
            "semicolon",
            "less-than-sign",
            "equals-sign",
            "greater-than-sign",
            "question-mark",
            "commercial-at",
        ],
    ),
    (
        b'[',
        &[
            "left-square-bracket",
            "backslash",
            "right-square-bracket",
            "circumflex",
            "underscore",
            "grave-accent",
        ],
    ),
    (
        b'{',
        &[
            "left-curly-bracket",
            "vertical-line",
            "right-curly-bracket",
            "tilde",
            "DEL",
        ],
    ),
];

/// Returns the character that `[.name.]` names.
pub fn named(name: &[u8]) -> Option<u8> {
    if let [letter] = name
        && letter.is_ascii_alphabetic()
    {
        return Some(*letter);
    }
    NAMES.iter().find_map(|(first, names)| {
        let place = names.iter().position(|other| other.as_bytes() == name)?;
        Some(first + u8::try_from(place).ok()?)
    })
}

#[cfg(test)]
mod tests;
