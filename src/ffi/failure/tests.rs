use super::*;

#[test]
fn what_returns_an_error_number_or_an_object_clears_the_last_error() {
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    assert_eq!(answer("the call", || Ok(3)), 3);
    assert_eq!(last_error::get(), "");
    assert_eq!(answer("the call", || Ok(())), LLAMA_SIEVE_OK);
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    assert!(made::<u8>("the call", || Ok(null_mut())).is_null());
    assert_eq!(last_error::get(), "");
}

#[test]
fn what_returns_a_value_leaves_the_last_error_unless_it_fails() {
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    assert_eq!(value("the call", 0, || Ok::<_, String>(3)), 3);
    assert_eq!(last_error::get(), "an earlier one");
    assert_eq!(value("the call", 0, || Err("no".to_owned())), 0);
    assert_eq!(last_error::get(), "the call: no");
}

#[test]
fn a_warning_of_a_call_that_succeeds_stays() {
    last_error::set(LLAMA_SIEVE_ERROR_INVALID, "an earlier one");
    let warned = || {
        last_error::set(LLAMA_SIEVE_ERROR_INVALID, "a warning");
        Ok(0)
    };
    assert_eq!(answer("the call", warned), 0);
    assert_eq!(last_error::get(), "a warning");
}

#[test]
fn a_failure_names_the_call_and_a_caught_panic_keeps_its_own_text() {
    let failed = || Err::<(), _>(Failure::null("the thing").of("number 7"));
    assert_eq!(answer("the call", failed), LLAMA_SIEVE_ERROR_NULL);
    assert_eq!(last_error::get(), "the call: number 7: the thing is NULL");
    let caught = || {
        last_error::set(LLAMA_SIEVE_ERROR_INVALID, "the call: internal error");
        Err::<(), _>(Failure::caught().of("number 7"))
    };
    assert_eq!(answer("the call", caught), LLAMA_SIEVE_ERROR_INTERNAL);
    assert_eq!(last_error::get(), "the call: internal error");
    let panics = || -> Result<c_int, Failure> { panic!("the fault") };
    assert_eq!(answer("the call", panics), LLAMA_SIEVE_ERROR_INTERNAL);
    assert!(last_error::get().ends_with("the fault"));
}
