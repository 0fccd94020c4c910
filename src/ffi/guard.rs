//! The boundary within which the code of exports and vtable entries runs, except calls of the host
//! that may throw.
//!
//! A panic must not unwind into C, so the guard catches it. The panic's text is kept for
//! `llama_sieve_last_error` and logged, and the call returns its documented result for a failure.
//! Messages logged inside are delivered when the thread leaves its outermost guard.

use std::any::Any;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::errors::LLAMA_SIEVE_ERROR_INTERNAL;
use crate::fault;
use crate::instruction_set::report_unknown_name;
use crate::log::{self, Inside};
use crate::memory::Exhausted;

/// Returns the result of `body`, or that of `fallback` after a panic.
///
/// `what` names the call in the message, and is formatted only after a panic.
#[inline]
pub fn guard<T>(what: impl Display, fallback: impl FnOnce() -> T, body: impl FnOnce() -> T) -> T {
    // Unwind safety: after a panic, the caller owns no object that `body` changed, or takes that
    // object out of use.
    let body = || {
        fault::point();
        body()
    };
    let _inside = Inside::enter();
    let answer = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            report(&what, payload);
            fallback()
        }
    };
    report_unknown_name();
    answer
}

/// The payload of a panic.
pub type Payload = Box<dyn Any + Send>;

/// Returns the result of `body`, which runs on a thread that helps with a call. After a panic the
/// calling thread must [`report`] the payload.
pub fn attempt<T>(body: impl FnOnce() -> T) -> Result<T, Payload> {
    catch_unwind(AssertUnwindSafe(body))
}

/// Logs the text of a panic, and makes it the last error.
#[cold]
pub fn report(what: &dyn Display, payload: Payload) {
    if payload.is::<Exhausted>() {
        return log::error(
            LLAMA_SIEVE_ERROR_INTERNAL,
            &format!("{what}: not enough memory"),
        );
    }
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text");
    let message = format!("{what}: internal error (please report it): {text}");
    log::error(LLAMA_SIEVE_ERROR_INTERNAL, &message);
    // A payload's own destructor may also panic.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload)));
}

#[cfg(test)]
mod tests;
