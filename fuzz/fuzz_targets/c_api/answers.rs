//! Checks of the answer of every call: documented numbers, and a reason where it fails.

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

/// The last error has this number.
fn assert_code(answer: c_int) {
    assert_eq!(llama_sieve_last_error_code(), answer, "{}", last_error());
}

/// A failure has a reason, and no internal one.
pub(crate) fn assert_reason() {
    let text = last_error();
    assert!(!text.is_empty(), "no reason");
    assert!(
        !text.contains("internal error") && !text.contains("panicked"),
        "{text}"
    );
}

/// The answer is 0 or one of `errors`; a success has forgotten older errors.
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

/// The answer is a number or one of `errors`.
pub(crate) fn assert_count(answer: c_int, errors: &[c_int]) {
    if answer < 0 {
        assert_code(answer);
        assert!(errors.contains(&answer), "{answer}: {}", last_error());
        assert_reason();
    }
}
