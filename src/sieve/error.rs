//! The errors of a sieve: why it cannot be made, changed, sampled or restored.

use std::collections::TryReserveError;
use std::fmt;

use crate::last_error::Code;

/// The reason why a call on a sieve failed. Its text names the parameter or size, its value, and
/// what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A parameter is not a number, or out of its range.
    Parameter(String),
    /// There are no logits.
    EmptyVocabulary,
    /// There are more logits than token numbers: more than 2^31 - 1.
    TooManyTokens(usize),
    /// Every logit, or that of the one that was drawn, is minus infinity or NaN.
    NoCandidate,
    /// Saved bytes that cannot be restored.
    State(String),
    /// There is no memory for what the parameters ask for.
    NoMemory,
}

impl Error {
    /// The kind of error.
    pub fn code(&self) -> Code {
        match self {
            Error::Parameter(_) => Code::Params,
            Error::EmptyVocabulary | Error::TooManyTokens(_) => Code::Size,
            Error::NoCandidate => Code::NoCandidate,
            Error::State(_) => Code::State,
            Error::NoMemory => Code::Internal,
        }
    }
}

impl From<TryReserveError> for Error {
    fn from(_: TryReserveError) -> Self {
        Error::NoMemory
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parameter(text) | Error::State(text) => f.write_str(text),
            Error::EmptyVocabulary => f.write_str("there are no logits"),
            Error::TooManyTokens(n) => {
                write!(f, "{n} logits are more than there are token numbers")
            }
            Error::NoMemory => f.write_str("not enough memory"),
            Error::NoCandidate => {
                f.write_str("every logit, or that of the one that was drawn, is minus infinity or NaN, so there is \
                     no token to choose")
            }
        }
    }
}

impl std::error::Error for Error {}
