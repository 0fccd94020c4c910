//! The errors of calls that make, change, sample or restore a sieve.

use crate::errors::{
    LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_NO_CANDIDATE, LLAMA_SIEVE_ERROR_PARAMS,
    LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_ERROR_STATE,
};
use std::collections::TryReserveError;
use std::ffi::c_int;
use std::fmt;

/// The reason why a call on a sieve failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A parameter, a stage, or a sampler for a slot is not allowed.
    Parameter(String),
    /// There are no logits.
    EmptyVocabulary,
    /// There are this many logits, more than `Token::MAX`.
    TooManyTokens(usize),
    /// Every logit, or the logit of the drawn token, is minus infinity or NaN.
    NoCandidate,
    /// The saved bytes cannot be restored.
    State(String),
    /// There is too little memory.
    NoMemory,
}

impl Error {
    /// Returns the error number.
    pub fn code(&self) -> c_int {
        match self {
            Error::Parameter(_) => LLAMA_SIEVE_ERROR_PARAMS,
            Error::EmptyVocabulary | Error::TooManyTokens(_) => LLAMA_SIEVE_ERROR_SIZE,
            Error::NoCandidate => LLAMA_SIEVE_ERROR_NO_CANDIDATE,
            Error::State(_) => LLAMA_SIEVE_ERROR_STATE,
            Error::NoMemory => LLAMA_SIEVE_ERROR_INTERNAL,
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
