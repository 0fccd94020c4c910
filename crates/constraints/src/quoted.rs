//! Escapes a caller's texts in messages, which may be shown on a terminal or in a log.

use std::fmt::{self, Write};

/// The maximum number of characters of a text in a message.
const MOST: usize = 60;

/// The maximum number of names in a message.
const MOST_NAMES: usize = 8;

/// A caller's text. When displayed, characters that are not printable and bytes that are not UTF-8
/// are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a> {
    text: &'a [u8],
    most: usize,
}

/// Returns a text for display in a message, without quotation marks. Long texts are truncated.
pub fn quoted<T: AsRef<[u8]> + ?Sized>(text: &T) -> Escaped<'_> {
    Escaped {
        most: MOST,
        ..escaped(text)
    }
}

/// Returns a text for display in a message, without quotation marks and in full.
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
                    // Quotation marks are harmless.
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

/// A list of names for display in a message.
#[derive(Clone, Debug)]
pub struct Listed<I>(I);

/// Returns a list of names for display in a message, each [quoted] and in quotation marks. If there
/// are many, only the first ones are displayed, followed by the number of the others.
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
