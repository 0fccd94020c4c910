use super::*;
use crate::last_error;

#[test]
fn a_panic_becomes_the_documented_answer_and_a_text() {
    let answer = guard("the call", || -1, || panic!("number {}", 7));
    assert_eq!(answer, -1);
    assert_eq!(
        last_error::get(),
        "the call: internal error (please report it): number 7"
    );
}

#[test]
fn a_payload_of_any_type_is_survived() {
    let answer = guard("the call", || 0, || std::panic::panic_any(7u8));
    assert_eq!(answer, 0);
    assert!(last_error::get().ends_with("no text"));
}

#[test]
fn without_a_panic_nothing_is_reported() {
    last_error::clear();
    assert_eq!(guard("the call", || 0, || 5), 5);
    assert_eq!(last_error::get(), "");
}
