//! Passes the trace of tokens to a C function.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::Arc;

use crate::errors::LLAMA_SIEVE_ERROR_PARAMS;
use crate::ffi::failure::{Failure, answer};
use crate::trace::{self, Options};

/// A function that receives a line of the trace. Its arguments are `len` bytes of JSON, without a
/// line end or a NUL, which are valid during the call, and the pointer that was registered with it.
/// It is called from any thread that samples, perhaps from several at once.
#[allow(non_camel_case_types)]
pub type llama_sieve_trace_callback =
    Option<unsafe extern "C" fn(json: *const c_char, len: usize, user: *mut c_void)>;

/// Passes a line of JSON to `callback` for each token that is sampled straight from the logits, by
/// a chain or a sieve: the tokens that each stage removed or changed, and why. These lines, and
/// others that may come between them, are described in docs/trace.md and docs/trace.schema.json.
/// The tokens are the same with and without a trace. NULL ends the trace, even one that the
/// environment variable LLAMA_SIEVE_TRACE has begun. There is only one trace at a time.
///
/// `options` is NULL or a comma-separated list: `n=10`, the number of most probable candidates that
/// are followed through the stages, at most 100; `text=off`, to omit texts, token ids, and the
/// lengths of repetitions.
///
/// The callback may call the library, but not while it holds a lock that it takes itself: a batch
/// calls it from several threads. Tokens that the callback samples are not traced. The callback
/// must not throw or long-jump. In a child that it forks within a batch of several threads, it must
/// not return: the batch never ends in the child, which does not have the other threads. When this
/// function returns, no earlier callback is still running, unless one takes longer than ten
/// seconds, or this function is called by one.
///
/// Returns LLAMA_SIEVE_OK, or LLAMA_SIEVE_ERROR_PARAMS, with nothing changed, for unknown options.
///
/// # Safety
/// `callback` is NULL or a function as described, `user` is a pointer that it accepts, and
/// `options` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llama_sieve_trace(
    callback: llama_sieve_trace_callback,
    user: *mut c_void,
    options: *const c_char,
) -> c_int {
    answer("llama_sieve_trace", || {
        let options = match options.is_null() {
            true => Options::default(),
            // SAFETY: the caller guarantees the string.
            false => options_of(unsafe { CStr::from_ptr(options) })?,
        };
        let Some(callback) = callback else {
            trace::stop();
            return Ok(());
        };
        let user = User(user);
        let function = Arc::new(move |line: &[u8]| {
            let user = &user;
            let text = line.trim_ascii_end();
            // SAFETY: the caller of llama_sieve_trace guarantees the callback.
            unsafe { callback(text.as_ptr().cast(), text.len(), user.0) }
        });
        trace::to_function(function, options).map_err(unfit)
    })
}

fn options_of(text: &CStr) -> Result<Options, Failure> {
    Options::parse(&text.to_string_lossy()).map_err(unfit)
}

fn unfit(text: String) -> Failure {
    Failure::new(LLAMA_SIEVE_ERROR_PARAMS, text)
}

/// The pointer that a callback was registered with.
struct User(*mut c_void);
// SAFETY: the pointer is only passed to the callback, which is documented to be called from any
// thread.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}
