//! The failure of a command: the reason, and the exit code.

use std::io::Write;

use crate::output;

/// The exit code if arguments are wrong, if the file or process that they name cannot be examined,
/// if the library cannot be used, or if the output cannot be written.
pub const USAGE: u8 = 2;

/// A failure: a message for stderr, and the program's exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    text: String,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { code, text }
    }

    pub fn usage(text: &str) -> Self {
        Self::new(USAGE, text)
    }

    /// Prints the message on stderr. A closed stderr is ignored.
    pub fn tell(&self) {
        let line = format!("llama-sieve: {}\n", output::printable(&self.text));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// Makes a failure from an error text of the library, with the exit code [`USAGE`].
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(USAGE, text)
    }
}
