//! Failures of calls from C: an error number with a text, reported in the same way by every export.
//!
//! There are three forms, each of which includes the guard. [`answer`] is for functions that return
//! an error number and [`made`] for those that return an object. Both begin by clearing the last
//! error, so that any last error after the call belongs to that call (a call that succeeds may
//! leave a warning). [`value`] is for functions that return other values, and leaves the last error
//! unchanged unless something goes wrong. Calls that run host code outside the guard use [`begin`]
//! and [`part`].

use std::borrow::Cow;
use std::collections::TryReserveError;
use std::ffi::c_int;
use std::fmt::Display;
use std::ptr::null_mut;

use crate::chain::ChainError;
use crate::errors::{
    LLAMA_SIEVE_ERROR_INTERNAL, LLAMA_SIEVE_ERROR_INVALID, LLAMA_SIEVE_ERROR_NO_CANDIDATE,
    LLAMA_SIEVE_ERROR_NO_HOST, LLAMA_SIEVE_ERROR_NULL, LLAMA_SIEVE_ERROR_PARAMS,
    LLAMA_SIEVE_ERROR_SIZE, LLAMA_SIEVE_OK,
};
use crate::ffi::guard::guard;
use crate::last_error;
use crate::sieve::Error;

/// The reason why a call gives no result.
#[derive(Debug)]
pub struct Failure {
    code: c_int,
    text: Text,
}

/// The text of a failure.
#[derive(Debug)]
enum Text {
    Of(String),
    /// There was too little memory, which is described by a constant text.
    NoMemory,
    /// The text is already the last error.
    Told,
}

impl Failure {
    /// Returns a failure with an error number and an error message.
    pub fn new(code: c_int, text: impl Into<String>) -> Self {
        Self {
            code,
            text: Text::Of(text.into()),
        }
    }

    /// Returns the failure for an argument `what` that is NULL.
    pub fn null(what: &str) -> Self {
        Self::new(LLAMA_SIEVE_ERROR_NULL, format!("{what} is NULL"))
    }

    /// Returns the failure for a missing host, or for one that lacks functions.
    pub fn no_host(why: String) -> Self {
        Self::new(LLAMA_SIEVE_ERROR_NO_HOST, why)
    }

    /// Returns the failure for a panic that a guard has caught and reported.
    pub fn caught() -> Self {
        Self {
            code: LLAMA_SIEVE_ERROR_INTERNAL,
            text: Text::Told,
        }
    }

    /// Returns a failure whose text is already the last error.
    pub fn told_already() -> Self {
        Self {
            code: last_error::code(),
            text: Text::Told,
        }
    }

    /// Returns the failure for too little memory, which may not even suffice for the text of an
    /// error.
    pub fn no_memory() -> Self {
        Self {
            code: LLAMA_SIEVE_ERROR_INTERNAL,
            text: Text::NoMemory,
        }
    }

    /// Returns the error number.
    pub fn code(&self) -> c_int {
        self.code
    }

    /// Returns the text; "internal error" if the text is already the last error.
    pub fn text(&self) -> &str {
        match &self.text {
            Text::Of(text) => text,
            Text::NoMemory => "not enough memory",
            Text::Told => "internal error",
        }
    }

    /// Returns the text of the failure, even if it is already the last error. Must be called before
    /// another failure on this thread.
    pub fn told(&self) -> Cow<'_, str> {
        match &self.text {
            Text::Told => Cow::Owned(last_error::get()),
            _ => Cow::Borrowed(self.text()),
        }
    }

    /// Prefixes the text with the name of a part of the caller's input. A constant text, and one
    /// that is already the last error, are not changed.
    pub fn of(mut self, part: &str) -> Self {
        if let Text::Of(text) = &mut self.text {
            *text = format!("{part}: {text}");
        }
        self
    }

    /// Makes the text available to `llama_sieve_last_error`.
    fn keep(&self, call: &dyn Display) {
        match &self.text {
            Text::Of(text) => last_error::set(self.code, &format!("{call}: {text}")),
            Text::NoMemory => last_error::set_no_memory(),
            Text::Told => {}
        }
    }
}

/// Makes the failure of an argument whose value is not allowed.
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(LLAMA_SIEVE_ERROR_INVALID, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::NoMemory => Self::no_memory(),
            error => Self::new(error.code(), error.to_string()),
        }
    }
}

impl From<ChainError> for Failure {
    fn from(error: ChainError) -> Self {
        let code = match error {
            ChainError::EmptyVocabulary | ChainError::TooManyTokens(_) => LLAMA_SIEVE_ERROR_SIZE,
            ChainError::NoCandidate => LLAMA_SIEVE_ERROR_NO_CANDIDATE,
            ChainError::NoSelector => LLAMA_SIEVE_ERROR_INVALID,
        };
        Self::new(code, error.to_string())
    }
}

impl From<TryReserveError> for Failure {
    fn from(_: TryReserveError) -> Self {
        Self::no_memory()
    }
}

/// Returns an error if `pointer` is NULL or misaligned; `what` is its name in the message.
pub fn usable<T>(what: &str, pointer: *const T) -> Result<(), Failure> {
    if pointer.is_null() {
        return Err(Failure::null(what));
    }
    if !pointer.is_aligned() {
        let text = format!("{what} is not aligned for its type");
        return Err(Failure::new(LLAMA_SIEVE_ERROR_NULL, text));
    }
    Ok(())
}

/// Returns the struct_size at the beginning of the caller's struct, if it is among `known`: the
/// current and the earlier sizes of the struct `name`, the newest first. A larger size is an error,
/// since members beyond the known ones would be ignored. `what` is the name of the argument.
///
/// # Safety
/// `pointer` is NULL or begins with a readable struct_size.
pub unsafe fn struct_size<T>(
    what: &str,
    name: &str,
    pointer: *const T,
    known: &[usize],
) -> Result<usize, Failure> {
    usable(what, pointer)?;
    // SAFETY: not NULL, and the caller guarantees the first member.
    let given = unsafe { pointer.cast::<usize>().read() };
    if known.contains(&given) {
        return Ok(given);
    }
    let newest = known.first().copied().unwrap_or(0);
    let text = format!(
        "struct_size of {name} is {given}; this library knows {newest} (set it to sizeof({name}))"
    );
    Err(Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text))
}

/// The result of a call that returns an error number in case of failure.
pub trait Answer {
    /// Returns the number that the caller gets.
    fn number(self) -> c_int;
}

impl Answer for c_int {
    fn number(self) -> c_int {
        self
    }
}

impl Answer for () {
    fn number(self) -> c_int {
        LLAMA_SIEVE_OK
    }
}

/// Runs `body` inside the guard. Returns its result, LLAMA_SIEVE_OK if that is `()`, or the error
/// code of its failure.
pub fn answer<T: Answer>(call: &str, body: impl FnOnce() -> Result<T, Failure>) -> c_int {
    guard(
        call,
        || LLAMA_SIEVE_ERROR_INTERNAL,
        || {
            last_error::clear();
            body().map_or_else(
                |failure| {
                    failure.keep(&call);
                    failure.code
                },
                T::number,
            )
        },
    )
}

/// Runs `body` inside the guard, as one part of a call. Between its parts such a call runs host
/// code outside the guard, so that the host's exceptions propagate. Returns the result of `body`,
/// or the error code that the call must return. Does not clear the last error: [`begin`]
/// does so once per call.
pub fn part<T>(call: impl Display, body: impl FnOnce() -> Result<T, Failure>) -> Result<T, c_int> {
    guard(
        &call,
        || Err(LLAMA_SIEVE_ERROR_INTERNAL),
        || {
            body().map_err(|failure| {
                failure.keep(&call);
                failure.code
            })
        },
    )
}

/// Clears the last error, like [`answer`], at the beginning of a call that has several parts.
pub fn begin(call: impl Display) -> Result<(), c_int> {
    part(call, || {
        last_error::clear();
        Ok(())
    })
}

/// Runs `body` inside the guard. Returns the object that it makes, or NULL on failure.
pub fn made<T>(call: impl Display, body: impl FnOnce() -> Result<*mut T, Failure>) -> *mut T {
    guard(&call, null_mut, || {
        last_error::clear();
        body().unwrap_or_else(|failure| {
            failure.keep(&call);
            null_mut()
        })
    })
}

/// Runs `body` inside the guard. Returns its value, or `otherwise` on failure.
pub fn value<T: Copy, E: Into<Failure>>(
    call: &str,
    otherwise: T,
    body: impl FnOnce() -> Result<T, E>,
) -> T {
    guard(
        call,
        || otherwise,
        || {
            body().unwrap_or_else(|error| {
                error.into().keep(&call);
                otherwise
            })
        },
    )
}

#[cfg(test)]
mod tests;
