//! The refusal of a schema, and the options for compiling a schema.

use std::fmt;

use crate::quoted::quoted;

/// The reason why a schema is refused, and the location of its cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// A JSON pointer to the schema that has the keyword; empty for the whole schema.
    pub pointer: String,
    /// The keyword that is the cause; empty if none is.
    pub keyword: String,
    /// A description of the fault and of the remedy.
    pub why: String,
}

impl Refusal {
    /// Returns a refusal of a schema as a whole.
    pub fn whole(why: impl Into<String>) -> Self {
        Self {
            pointer: String::new(),
            keyword: String::new(),
            why: why.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.keyword.is_empty() {
            return write!(f, "the schema: {}", self.why);
        }
        write!(
            f,
            "the schema at \"{}\", keyword \"{}\": {}",
            quoted(&format!("#{}", self.pointer)),
            quoted(&self.keyword),
            self.why
        )
    }
}

/// The result of functions that may refuse a schema.
pub type Answer<T> = Result<T, Refusal>;

/// The options for compiling a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// True to allow no white space.
    pub compact: bool,
    /// True if objects that name properties may have no other properties, unless the schema
    /// mentions additional properties.
    pub closed: bool,
    /// True if properties may come in any order.
    pub any_order: bool,
    /// True if keywords that cannot be enforced are ignored.
    pub lenient: bool,
    /// True to convert as llama.cpp's own converter does. This option excludes all others.
    pub llama_cpp: bool,
}

impl Options {
    /// Returns the options as a number, for the key in a cache.
    pub fn bits(self) -> u32 {
        let all = [
            self.compact,
            self.closed,
            self.any_order,
            self.lenient,
            self.llama_cpp,
        ];
        let bits = (0..).zip(all).map(|(bit, is_set)| u32::from(is_set) << bit);
        bits.sum()
    }

    /// Returns a message if `llama_cpp` is set together with another option.
    pub fn conflict(self) -> Option<String> {
        let mut all = [
            (self.compact, "COMPACT"),
            (self.closed, "CLOSED"),
            (self.any_order, "ANY_ORDER"),
            (self.lenient, "LENIENT"),
        ]
        .into_iter();
        let (_, other) = all.find(|(is_set, _)| *is_set && self.llama_cpp)?;
        Some(format!(
            "LLAMA_SIEVE_JSON_LLAMA_CPP does not go with LLAMA_SIEVE_JSON_{other}"
        ))
    }
}
