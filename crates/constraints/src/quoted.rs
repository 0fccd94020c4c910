//! A caller's texts in messages, which may be shown in a terminal or a log.

use std::fmt::{self, Write};

/// The most characters of a text in a message.
const MOST: usize = 60;

/// The most names in a message.
const MOST_NAMES: usize = 8;

/// A foreign text that is displayed with escapes for characters that are not printable, and for
/// bytes that are not UTF-8.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a [u8],
    most: usize,
}

/// Returns the text for a message, without quotation marks; of a long one, the beginning.
pub fn quoted<T: AsRef<[u8]> + ?Sized>(text: &T) -> Escaped<'_> {
    Escaped {
        most: MOST,
        ..escaped(text)
    }
}

/// Returns the whole text for a message.
pub fn escaped<T: AsRef<[u8]> + ?Sized>(text: &T) -> Escaped<'_> {
    Escaped {
        text: text.as_ref(),
        most: usize::MAX,
    }
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut left = self.most;
        for chunk in self.text.utf8_chunks() {
            for character in chunk.valid().chars() {
                if left == 0 {
                    return f.write_str("...");
                }
                left -= 1;
                match character {
                    // They are harmless.
                    '"' | '\'' => f.write_char(character)?,
                    _ => write!(f, "{}", character.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                if left == 0 {
                    return f.write_str("...");
                }
                left -= 1;
                write!(f, "\\x{byte:02X}")?;
            }
        }
        Ok(())
    }
}

/// Names for a message.
#[derive(Clone, Debug)]
pub struct Listed<I>(I);

/// Returns the names for a message, each [quoted] and between quotation marks; of many the first,
/// and the number of the others.
pub fn listed<I>(names: I) -> Listed<I>
where
    I: Iterator<Item: AsRef<[u8]>> + Clone,
{
    Listed(names)
}

impl<I> fmt::Display for Listed<I>
where
    I: Iterator<Item: AsRef<[u8]>> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = self.0.clone();
        for (i, name) in names.by_ref().take(MOST_NAMES).enumerate() {
            let separator = if i == 0 { "" } else { ", " };
            write!(f, "{separator}\"{}\"", quoted(&name))?;
        }
        match names.count() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests;
