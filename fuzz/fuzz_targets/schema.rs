//! JSON Schemas: a byte for the options, and a text, which is compiled or rejected.
#![no_main]

use libfuzzer_sys::fuzz_target;
use llama_sieve::grammar::schema::{Options, compile};

fuzz_target!(init: llama_sieve_fuzz::silence(), |data: &[u8]| {
    let Some((&bits, text)) = data.split_first() else {
        return;
    };
    let options = Options {
        compact: bits & 1 != 0,
        closed: bits & 2 != 0,
        any_order: bits & 4 != 0,
        lenient: bits & 8 != 0,
        llama_cpp: bits & 16 != 0,
    };
    match compile(text, options) {
        Ok((_, left_out)) => {
            assert!(options.lenient || options.llama_cpp || left_out.is_empty());
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
});
