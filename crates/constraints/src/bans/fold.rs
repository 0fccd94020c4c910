//! Unicode's simple case folding: maps characters that differ only in case to one of them.
//!
//! The classes are those of CaseFolding.txt, status C and S, as `regex-syntax` has them. Each
//! character folds to one character, so "ß" does not become "ss". No language-specific rules apply.
//! A character folds to the first of its class, which only represents the class and is never
//! displayed.

use llama_sieve_kernels::sync::OnceLock;
use regex_syntax::hir::{ClassUnicode, ClassUnicodeRange};

use crate::memory::{exhausted, push, room};

/// All characters that have a case are below this code point.
const CASES_END: u32 = 0x2_0000;

/// The maximum number of bytes allocated to find the classes: the table, and one class at a time.
const FINDING: usize = 64 * 1024;

/// Finds the classes, once per process. Constructors call this, so that no token has to wait for
/// it.
pub fn make_ready() {
    others();
}

/// Returns the characters that are not the first of their class, ascending, each with the first of
/// its class.
fn others() -> &'static [(char, char)] {
    static OTHERS: OnceLock<Vec<(char, char)>> = OnceLock::new();
    OTHERS.get_or_init(find_others)
}

fn find_others() -> Vec<(char, char)> {
    // `regex-syntax` allocates infallibly.
    room(FINDING).unwrap_or_else(exhausted);
    let mut others = Vec::new();
    for character in (0..CASES_END).filter_map(char::from_u32) {
        let mut class = ClassUnicode::new([ClassUnicodeRange::new(character, character)]);
        if class.try_case_fold_simple().is_err() {
            continue;
        }
        match class.ranges().first().map(ClassUnicodeRange::start) {
            Some(first) if first != character => push(&mut others, (character, first)),
            _ => {}
        }
    }
    others
}

/// Returns the first of the characters that are equal to this one except for case.
pub fn folded(character: char) -> char {
    if character.is_ascii() {
        return character.to_ascii_uppercase();
    }
    let others = others();
    match others.binary_search_by_key(&character, |&(other, _)| other) {
        Ok(place) => others.get(place).map_or(character, |&(_, first)| first),
        Err(_) => character,
    }
}

/// The bytes at the end of a text that may still become a character.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    bytes: [u8; 4],
    length: u8,
}

impl Pending {
    /// True if no bytes are pending.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// Returns the pending bytes.
    // In bounds: at most four bytes are pending.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns `bytes` as pending bytes, or `None` if no text can leave these bytes pending. Unless
    /// `folds`, only an empty slice is valid.
    pub fn of(bytes: &[u8], folds: bool) -> Option<Self> {
        let mut pending = Self::default();
        if folds {
            pending.feed(bytes, |_| {});
        }
        (pending.bytes() == bytes).then_some(pending)
    }

    /// Continues with `text`. Calls `each` with the bytes of every complete character, folded, and
    /// with invalid bytes unchanged.
    pub fn feed(&mut self, text: &[u8], mut each: impl FnMut(&[u8])) {
        for &byte in text {
            if self.length == 0 && byte.is_ascii() {
                each(&[byte.to_ascii_uppercase()]);
            } else {
                self.push(byte, &mut each);
            }
        }
    }

    // In bounds: four bytes are a character or begin with invalid ones, so at most three are
    // pending before a push.
    fn push(&mut self, byte: u8, each: &mut impl FnMut(&[u8])) {
        self.bytes[usize::from(self.length)] = byte;
        self.length += 1;
        while self.length > 0 {
            let bytes = &self.bytes[..usize::from(self.length)];
            let taken = match std::str::from_utf8(bytes) {
                Ok(text) => {
                    for character in text.chars() {
                        each(folded(character).encode_utf8(&mut [0; 4]).as_bytes());
                    }
                    bytes.len()
                }
                Err(error) => match error.error_len() {
                    Some(n) => {
                        each(&bytes[..n]);
                        n
                    }
                    None => return,
                },
            };
            self.bytes.copy_within(taken..usize::from(self.length), 0);
            self.length -= taken as u8;
        }
    }
}

/// Appends `text` to `to`, with each character folded. An unfinished character at its end is
/// written unchanged.
pub fn fold(text: &[u8], to: &mut Vec<u8>) {
    let mut pending = Pending::default();
    pending.feed(text, |bytes| to.extend_from_slice(bytes));
    to.extend_from_slice(pending.bytes());
}

#[cfg(test)]
mod tests;
