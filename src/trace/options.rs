//! The options of the trace, parsed from a text.

use crate::quoted::quoted;

/// The maximum number of candidates that are followed.
pub const MOST_FOLLOWED: usize = 100;

/// The options of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of most probable candidates that are followed.
    pub n: usize,
    /// If false, texts, token ids and the lengths of repetitions are omitted.
    pub text: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { n: 10, text: true }
    }
}

impl Options {
    /// Reads options such as `n=10,text=off`; an empty text means the defaults. Fails with a
    /// description of the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        let parts = text.split(',').map(str::trim);
        for part in parts.filter(|part| !part.is_empty()) {
            match part
                .split_once('=')
                .map(|(name, value)| (name.trim(), value.trim()))
            {
                Some(("n", value)) => options.n = number(value)?,
                Some(("text", "on")) => options.text = true,
                Some(("text", "off")) => options.text = false,
                _ => {
                    return Err(format!(
                        "{} is no option of a trace; there are n=NUMBER, text=on and text=off, \
                         separated by commas",
                        quoted(part)
                    ));
                }
            }
        }
        Ok(options)
    }
}

fn number(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|&n| n <= MOST_FOLLOWED);
    n.ok_or_else(|| {
        let text = quoted(text);
        format!("n is {text}; it must be a number from 0 to {MOST_FOLLOWED}")
    })
}
