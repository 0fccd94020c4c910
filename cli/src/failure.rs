//! Why a command could not do what it was asked, and the exit code for that.

use std::io::Write;

use crate::output;

/// The exit code where arguments are wrong, or where what they name cannot be looked at.
pub const USAGE: u8 = 2;

/// A message for stderr, and the program's exit code.
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

    /// Says it on stderr. A stderr that is closed changes nothing.
    pub fn tell(&self) {
        let line = format!("llama-sieve: {}\n", output::printable(&self.text));
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

/// As what the library refuses: nothing more to say than its words.
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(USAGE, text)
    }
}
