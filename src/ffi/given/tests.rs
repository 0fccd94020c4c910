use super::*;
use crate::errors::LLAMA_SIEVE_ERROR_STATE;

const ARGUMENT: Argument = argument!("words", "n_words", LLAMA_SIEVE_MAX_BATCH);

/// Returns the error for an array of `n` elements at an address; "" if it is accepted.
fn said(address: usize, n: usize) -> String {
    let pointer = std::ptr::without_provenance::<u32>(address);
    match ARGUMENT.check(pointer, n) {
        Ok(()) => String::new(),
        Err(failure) => format!("{} {}", failure.code(), failure.text()),
    }
}

#[test]
fn numbers_up_to_the_limit_may_lie_at_aligned_addresses() {
    for (address, n) in [
        (64, 1),
        (64, LLAMA_SIEVE_MAX_BATCH),
        (0, 0),
        (65, 0),
        (usize::MAX, 0),
    ] {
        assert_eq!(said(address, n), "", "{n} at {address}");
    }
    // The last word of memory is accepted, but not a second one after it.
    assert_eq!(said(usize::MAX - 7, 1), "");
}

#[test]
fn whatever_else_is_named_with_argument_and_limit() {
    let limit = "words may have 1048576 at most (LLAMA_SIEVE_MAX_BATCH)";
    for n in [
        LLAMA_SIEVE_MAX_BATCH + 1,
        1 << 40,
        1 << 62,
        isize::MAX as usize,
        usize::MAX,
    ] {
        let text = format!("-6 n_words is {n}; {limit}");
        for address in [64, 65, 0] {
            assert_eq!(said(address, n), text);
        }
    }
    assert_eq!(said(0, 1), "-1 words is NULL");
    assert_eq!(said(65, 1), "-1 words is not aligned for its type");
    let beyond = "-6 n_words is 3; memory has no room for so many at words";
    assert_eq!(said(usize::MAX - 7, 3), beyond);
}

#[test]
fn an_argument_may_have_a_number_of_its_own() {
    let argument = ARGUMENT.answered_with(LLAMA_SIEVE_ERROR_STATE);
    let failure = argument
        .check(std::ptr::dangling::<u8>(), usize::MAX)
        .unwrap_err();
    assert_eq!(failure.code(), LLAMA_SIEVE_ERROR_STATE);
    let failure = argument.check(std::ptr::null::<u8>(), 1).unwrap_err();
    assert_eq!(failure.code(), LLAMA_SIEVE_ERROR_NULL);
}

#[test]
fn only_so_many_bytes_of_a_string_are_read() {
    // The text has no NUL, and the bytes after its last one are not part of the array.
    let text = b"abc".map(|byte| byte as c_char);
    // SAFETY: no byte after the third is read.
    assert_eq!(unsafe { c_bytes_within(text.as_ptr(), 3) }, b"abc");
    // SAFETY: C strings.
    unsafe {
        assert_eq!(c_bytes_within(c"abc".as_ptr(), 9), b"abc");
        assert_eq!(c_bytes_within(c"abc".as_ptr(), 2), b"ab");
        assert_eq!(c_bytes_within(c"".as_ptr(), 2), b"");
    }
}
