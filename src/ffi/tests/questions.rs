//! Tests of the number of calls of the host's tokenizer: one for each text, and none if the result
//! is already known.

use std::ffi::{CStr, CString, c_char};

use super::mock_host;
use crate::ffi::grammar::llama_sieve_init_grammar;
use crate::ffi::samplers::llama_sieve_init_dry;
use crate::ffi::trie::{
    LLAMA_SIEVE_TRIE_MAX_STRING_BYTES, LLAMA_SIEVE_TRIE_SAMPLED, llama_sieve_init_trie_strings,
    llama_sieve_trie_forced,
};
use crate::last_error;

/// Returns the number of texts that `call` has tokenized, and its result.
fn questions<T>(call: impl FnOnce() -> T) -> (usize, T) {
    mock_host::install();
    let before = mock_host::tokenized();
    let result = call();
    (mock_host::tokenized() - before, result)
}

/// Returns true if the grammar is accepted and a sampler is made.
fn is_grammar(text: &CStr) -> bool {
    // SAFETY: C strings, and the vocabulary of the mocked host.
    unsafe {
        let (vocab, root) = (mock_host::handle(), c"root".as_ptr());
        let made = llama_sieve_init_grammar(vocab, text.as_ptr(), root);
        if made.is_null() {
            return false;
        }
        mock_host::free(made);
    }
    true
}

#[test]
fn no_token_is_asked_for_behind_one_that_refuses_the_grammar() {
    for (text, n, place) in [
        (c"root ::= <no> <a> <b>", 1, "line 1, column 10: '<no>'"),
        (c"root ::= <b> <a> <no> <c>", 3, "line 1, column 18: '<no>'"),
        (
            c"root ::= <b> x\nx ::= !<no> | <a>",
            2,
            "line 2, column 8: '<no>'",
        ),
    ] {
        assert_eq!(questions(|| is_grammar(text)), (n, false), "{text:?}");
        let told = last_error::get();
        assert!(told.contains(place), "{told}");
    }
    let many = (0..500).map(|n| format!(" <no{n}>"));
    let many = CString::new(format!("root ::={}", many.collect::<String>())).expect("no NUL");
    assert_eq!(questions(|| is_grammar(&many)), (1, false));
}

#[test]
fn each_token_of_a_grammar_is_asked_for_once() {
    let text = c"root ::= <b> !<a> (<a> | <b>)* x\nx ::= <c>{2,9} !<b>";
    assert_eq!(questions(|| is_grammar(text)), (3, true));
    // After a syntax error no further text is tokenized.
    let text = c"root ::= <b> <c> <b> ] <a>";
    assert_eq!(questions(|| is_grammar(text)), (2, false));
}

#[test]
fn each_end_of_a_breaker_is_asked_for_once() {
    // Every token is one letter, so the texts that follow a breaker's first letter are tokenized.
    let fifty = CString::new("a".repeat(50)).expect("no NUL");
    let forty = CString::new("a".repeat(40)).expect("no NUL");
    for (breakers, n) in [
        (&[c"ab", c"ab", c"cb", c"bb"][..], 1),
        (&[c"ab", c"ac", c"bac", c"a"], 3),
        // Cut to 40 bytes, the breakers are equal.
        (&[&fifty, &forty, &fifty], 1),
        (&[c"~b", c""], 0),
    ] {
        let mut texts: Vec<*const c_char> = breakers.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: as many C strings, and the vocabulary of the mocked host.
        let asked = questions(|| unsafe {
            let (texts, len) = (texts.as_mut_ptr(), texts.len());
            let vocab = mock_host::handle();
            let dry = llama_sieve_init_dry(vocab, 1.0, 1.75, 2, 64, texts, len);
            !dry.is_null() && {
                mock_host::free(dry);
                true
            }
        });
        assert_eq!(asked, (n, true), "{breakers:?}");
    }
}

#[test]
fn each_string_of_a_trie_is_asked_for_once_and_none_behind_one_that_is_refused() {
    let long = CString::new("a".repeat(501)).expect("no NUL");
    let thousand = CString::new("a".repeat(999)).expect("no NUL");
    let longest = CString::new("a".repeat(LLAMA_SIEVE_TRIE_MAX_STRING_BYTES)).expect("no NUL");
    for (strings, n, refused) in [
        (&[c"ab", c"c", c"ab", c"c", c"ab"][..], 2, None),
        (
            &[c"ab", &long, c"c", c"d"],
            2,
            Some("strings[1] has 501 tokens"),
        ),
        (&[c"ab", c"ab", &long], 2, Some("strings[2] has 501 tokens")),
        (
            &[c"ab", &longest],
            2,
            Some("strings[1] has more than 1000 tokens"),
        ),
        (&[c"ab", &thousand], 2, Some("strings[1] has 999 tokens")),
    ] {
        let texts: Vec<*const c_char> = strings.iter().map(|text| text.as_ptr()).collect();
        // SAFETY: as many C strings, and the vocabulary of the mocked host.
        let (asked, is_made) = questions(|| unsafe {
            let (texts, len) = (texts.as_ptr(), texts.len());
            let (vocab, mode) = (mock_host::handle(), LLAMA_SIEVE_TRIE_SAMPLED);
            let trie = llama_sieve_init_trie_strings(vocab, texts, len, mode);
            !trie.is_null() && {
                mock_host::free(trie);
                true
            }
        });
        // One more call determines the text that precedes all strings.
        assert_eq!((asked, is_made), (n + 1, refused.is_none()), "{strings:?}");
        let told = last_error::get();
        assert!(told.contains(refused.unwrap_or_default()), "{told}");
    }
}

/// Checks that a text with more bytes than a string of a trie may have is not tokenized, since that
/// would take a long time, and that no earlier text is tokenized either.
#[test]
fn no_string_of_a_trie_is_asked_for_where_one_is_too_long() {
    let longest = CString::new("a".repeat(LLAMA_SIEVE_TRIE_MAX_STRING_BYTES + 1)).expect("no NUL");
    let texts = [c"ab".as_ptr(), longest.as_ptr()];
    // SAFETY: two C strings, and the vocabulary of the mocked host.
    let (asked, made) = questions(|| unsafe {
        let (vocab, mode) = (mock_host::handle(), LLAMA_SIEVE_TRIE_SAMPLED);
        llama_sieve_init_trie_strings(vocab, texts.as_ptr(), texts.len(), mode)
    });
    assert_eq!((asked, made.is_null()), (0, true));
    let told = last_error::get();
    assert!(
        told.contains("strings[1] has 1025 bytes") && told.contains("at most 1024"),
        "{told}"
    );
}

/// Checks strings with more tokens than bytes: a vocabulary without a token for the space has three
/// tokens for it. If the buffer is too small, the host returns the number of tokens, and is called
/// once more.
#[test]
fn strings_of_a_trie_may_have_more_tokens_than_bytes() {
    let many = CString::new(" ".repeat(166)).expect("no NUL");
    let long = CString::new(" ".repeat(167)).expect("no NUL");
    // This text has so many tokens that the host is not called again.
    let far = CString::new(" ".repeat(400)).expect("no NUL");
    for (text, n, tokens) in [
        (c"a b", 1, 5),
        (c"    ", 2, 12),
        (&many, 2, 498),
        (&long, 2, 501),
        (&far, 1, 1001),
    ] {
        let texts = [text.as_ptr()];
        // SAFETY: one C string, and the vocabulary of the mocked host; room for as many tokens.
        let (asked, forced) = questions(|| unsafe {
            let (vocab, mode) = (mock_host::handle(), LLAMA_SIEVE_TRIE_SAMPLED);
            let trie = llama_sieve_init_trie_strings(vocab, texts.as_ptr(), 1, mode);
            (!trie.is_null()).then(|| {
                let mut forced = [-1; 600];
                let n = llama_sieve_trie_forced(trie, forced.as_mut_ptr(), forced.len());
                mock_host::free(trie);
                forced[..n].to_vec()
            })
        });
        assert_eq!(asked, n + 1, "{text:?}");
        match forced {
            Some(forced) => {
                assert_eq!(forced.len(), tokens, "{text:?}");
                assert!(text == c"a b" || forced.chunks(3).all(|three| three == [0, 1, 2]));
            }
            None => {
                let told = last_error::get();
                let n = match tokens {
                    1001.. => "more than 1000".to_owned(),
                    n => n.to_string(),
                };
                assert!(told.contains(&format!("has {n} tokens")), "{told}");
            }
        }
    }
}
