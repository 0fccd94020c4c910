//! Prints texts. [`printable`] escapes characters that a terminal would treat as commands.

use std::io::{ErrorKind, Write};

use serde::Serialize;

use crate::failure::{Failure, USAGE};

/// Prints a text, which ends with a line break, and returns the exit code of success.
///
/// A reader that has closed its end, as `head` does, is not a failure.
pub fn print(text: &str) -> Result<u8, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::new(
            USAGE,
            format!("the output cannot be written: {error}"),
        )),
        _ => Ok(0),
    }
}

/// Prints a value as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<u8, Failure> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Failure::new(USAGE, error.to_string()))?;
    print(&(text + "\n"))
}

/// Returns the text with escapes for unprintable characters; line breaks stay.
pub fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\\' | '\'' | '"' => safe.push(character),
            other => safe.extend(other.escape_debug()),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn what_a_terminal_would_obey_is_escaped() {
        let text = "a\u{1b}[2J\u{9b}\u{202e}\r\tb\n\"é\\' 語";
        let safe = "a\\u{1b}[2J\\u{9b}\\u{202e}\\r\\tb\n\"é\\' 語";
        assert_eq!(printable(text), safe);
    }
}
