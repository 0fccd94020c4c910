//! Describes unexpected characters in messages, unless their appearance explains the fault.

use super::{Fault, ParseError, Parsed, Parser, fault, is_word, place};
use crate::quoted::quoted;

impl Parser<'_> {
    /// Returns the fault that `what` was expected at the current position.
    pub(super) fn expected<T>(&self, what: &str) -> Parsed<T> {
        let found = told(self.text, self.at);
        fault(self.at, format!("expected {what}{found}"))
    }

    /// Returns the error for a fault, with its line and column. In a string, a byte that is not
    /// UTF-8 is read as the beginning of a character, which may swallow the closing quotation mark.
    /// The message therefore mentions the first such byte.
    pub(super) fn placed(&self, fault: Fault) -> ParseError {
        let garbled = self.garbled.filter(|_| fault.at.is_some());
        let mut error = place(self.text, fault);
        if let Some(at) = garbled {
            let byte = self.text.get(at).copied().unwrap_or_default();
            let garbled = place(
                self.text,
                Fault {
                    at: Some(at),
                    ..Fault::nowhere("")
                },
            );
            error.what += &format!(
                "; the byte 0x{byte:02X} in line {}, column {} is no UTF-8: is this Latin-1?",
                garbled.line, garbled.column
            );
        }
        error
    }
}

/// Describes the character at `at`, to be added to a message; empty if its appearance explains the
/// fault.
pub(super) fn told(text: &[u8], at: usize) -> String {
    let rest = text.get(at..).unwrap_or_default();
    let Some(&byte) = rest.first() else {
        return String::new();
    };
    let chunk = rest.get(..4).unwrap_or(rest).utf8_chunks().next();
    let valid = chunk.and_then(|chunk| chunk.valid().chars().next());
    let Some(character) = valid else {
        return format!("; found the byte 0x{byte:02X}, which is no UTF-8: is this Latin-1?");
    };
    let before = at.checked_sub(1).and_then(|before| text.get(before));
    let in_name = before.copied().is_some_and(is_word);
    let why = match character {
        '\u{feff}' => {
            return "; found a byte order mark (U+FEFF), which is no part of a grammar".into();
        }
        '_' => "the name of a rule has letters (a-z, A-Z), digits and '-' alone",
        '\'' | '`' | '\u{2018}'..='\u{201f}' => "a string stands between double quotes (\")",
        ' '..='~' => return String::new(),
        _ if in_name && character.is_alphanumeric() => {
            "the name of a rule has letters (a-z, A-Z), digits and '-' alone"
        }
        _ => "",
    };
    let separator = if why.is_empty() { "" } else { ": " };
    let number = match character {
        ' '..='~' => String::new(),
        _ => format!(" (U+{:04X})", u32::from(character)),
    };
    let found = character.to_string();
    format!("; found \"{}\"{number}{separator}{why}", quoted(&found))
}
