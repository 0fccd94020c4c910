//! Checks of the result of every call: only documented numbers, and an error text for each failure.

use std::ffi::{CStr, c_int};

use llama_sieve::ffi::library::*;

pub(crate) const OF_LOGITS: [c_int; 4] = [
    LLAMA_SIEVE_ERROR_NULL,
    LLAMA_SIEVE_ERROR_SIZE,
    LLAMA_SIEVE_ERROR_NO_CANDIDATE,
    LLAMA_SIEVE_ERROR_BUSY,
];

pub(crate) fn last_error() -> String {
    // SAFETY: never NULL, valid until the next call.
    let text = unsafe { CStr::from_ptr(llama_sieve_last_error()) };
    text.to_str().expect("UTF-8").to_owned()
}

/// Checks that `answer` is the code of the last error.
fn assert_code(answer: c_int) {
    assert_eq!(llama_sieve_last_error_code(), answer, "{}", last_error());
}

/// Checks that a failure has an error text, and that it is not an internal error.
pub(crate) fn assert_reason() {
    let text = last_error();
    assert!(!text.is_empty(), "no reason");
    assert!(
        !text.contains("internal error") && !text.contains("panicked"),
        "{text}"
    );
}

/// Checks that the result is 0 or one of `errors`, and that success clears older errors. Returns
/// true for 0.
pub(crate) fn assert_answer(answer: c_int, errors: &[c_int]) -> bool {
    assert_code(answer);
    if answer == LLAMA_SIEVE_OK {
        assert_eq!(last_error(), "");
        return true;
    }
    assert!(errors.contains(&answer), "{answer}: {}", last_error());
    assert_reason();
    false
}

/// Checks that the result is a count or one of `errors`.
pub(crate) fn assert_count(answer: c_int, errors: &[c_int]) {
    if answer < 0 {
        assert_code(answer);
        assert!(errors.contains(&answer), "{answer}: {}", last_error());
        assert_reason();
    }
}
