use super::Repetitions::AsLlamaCpp;
use super::parse;
use crate::grammar::triggers::Triggers;

fn told(text: &[u8]) -> String {
    parse(text, b"root", AsLlamaCpp, |_| None)
        .expect_err("no grammar")
        .to_string()
}

/// Messages are escaped, since they may be shown in a log or on a terminal.
#[test]
fn messages_hold_no_control_characters_of_the_text() {
    for (text, root) in [
        (&b"root ::= <\x1b]0;title\x07>"[..], &b"root"[..]),
        (b"root ::= <a\nb\x9b>", b"root"),
        (b"root ::= \"a\"", b"ro\x1b[2Jot\r\n"),
        (b"root ::= \"a\" \x1b[31m", b"root"),
        (b"root ::= \"a\" \xc2\x9b31m", b"root"),
        (b"\x1b ::= \"a\"", b"root"),
        (b"root \x07::= \"a\"", b"root"),
        (b"root ::= \"a\"{\x1b}", b"root"),
        (b"root ::= (\"a\" \x1b", b"root"),
        (b"root ::= <[1\x1b", b"root"),
        (b"root ::= !\x1b", b"root"),
        (b"root ::= \"\\\x1b\"", b"root"),
    ] {
        let error = parse(text, root, AsLlamaCpp, |_| None).expect_err("no grammar");
        let error = error.to_string();
        assert!(!error.chars().any(char::is_control), "{error:?}");
    }
    let error = Triggers::new(&[b"(\x1b[31m\r\n"]).expect_err("no pattern");
    assert!(!error.chars().any(char::is_control), "{error:?}");
    assert!(error.contains("(\\u{1b}[31m\\r\\n"), "{error}");
    assert!(told(b"root ::= <\x1b>").contains("'<\\u{1b}>' is not exactly one token"));
    assert!(told(b"root ::= <\xe9>").contains("'<\\xE9>' is not exactly one token"));
}

#[test]
fn what_looks_like_a_grammar_elsewhere_is_named() {
    let name = "the name of a rule has letters (a-z, A-Z), digits and '-' alone";
    let quotes = "a string stands between double quotes (\")";
    for (text, places) in [
        (
            "\u{feff}root ::= \"a\"",
            vec!["line 1, column 1: expected the name of a rule; found a byte order mark (U+FEFF)"],
        ),
        (
            "root ::= \"a\"\n\u{feff}b ::= \"b\"",
            vec!["line 2, column 1: ", "found a byte order mark"],
        ),
        (
            "my_rule ::= \"a\"",
            vec!["line 1, column 3: expected '::='", "found \"_\": ", name],
        ),
        (
            "_root ::= \"a\"",
            vec!["line 1, column 1: expected the name", "found \"_\": ", name],
        ),
        (
            "root ::= a_b\na ::= \"x\"",
            vec!["line 1, column 11: ", "found \"_\": ", name],
        ),
        (
            "root ::= (a_b)",
            vec![
                "line 1, column 12: ",
                "found \"_\": ",
                name,
                "the '(' is in line 1, column 10",
            ],
        ),
        (
            "größe ::= \"a\"",
            vec![
                "line 1, column 3: expected '::='",
                "found \"ö\" (U+00F6): ",
                name,
            ],
        ),
        (
            "root ::= 'a'",
            vec![
                "line 1, column 10: expected an element",
                "found \"'\": ",
                quotes,
            ],
        ),
        (
            "root ::= \"a\" | ('b')",
            vec!["line 1, column 17: ", "found \"'\": ", quotes],
        ),
        (
            "root ::= \u{201c}a\u{201d}",
            vec!["found \"\u{201c}\" (U+201C): ", quotes],
        ),
        (
            "root ::=\u{a0}\"a\"",
            vec!["line 1, column 9: ", "found \"\\u{a0}\" (U+00A0)"],
        ),
    ] {
        let error = told(text.as_bytes());
        for place in places {
            assert!(
                error.contains(place),
                "{text:?}: {error:?} without {place:?}"
            );
        }
    }
    for (text, places) in [
        (
            &b"gr\xf6\xdfe ::= \"a\""[..],
            [
                "line 1, column 3: expected '::='",
                "found the byte 0xF6, which is no UTF-8: is this Latin-1?",
            ],
        ),
        (
            b"root ::= \xe9",
            ["line 1, column 10: ", "found the byte 0xE9, which"],
        ),
        (
            b"root ::= \xc3",
            ["line 1, column 10: ", "found the byte 0xC3, which"],
        ),
        // The quotation mark is read as part of the character.
        (
            b"root ::= \"caf\xe9\"",
            [
                "line 1, column 10: this string does not end",
                "the byte 0xE9 in line 1, column 14 is no UTF-8: is this Latin-1?",
            ],
        ),
        (
            b"root ::= [\xe9]\n",
            [
                "line 1, column 10: this character class",
                "the byte 0xE9 in line 1, column 11 is no UTF-8",
            ],
        ),
        (
            b"# \xe9\nroot ::= \"caf\xe9\" \"x\"\n",
            [
                "line 2, column 19: this string does not end",
                "the byte 0xE9 in line 2, column 14 is no UTF-8",
            ],
        ),
    ] {
        let error = told(text);
        for place in places {
            assert!(error.contains(place), "{error:?} without {place:?}");
        }
    }
    // No note is added for valid bytes, or for a character whose appearance explains the fault.
    for text in [&b"# \xe9\nroot ::= \"\xc3\xa9\" ]"[..], b"root ::= \"a\" ]"] {
        let error = told(text);
        assert!(error.ends_with("or the end of the line"), "{error}");
    }
}

/// Like llama.cpp, the parser accepts any bytes in strings.
#[test]
fn bytes_that_are_no_utf_8_are_no_fault_in_strings() {
    for text in [
        &b"root ::= \"caf\xe9ab\""[..],
        b"root ::= [\xff\x80\x80\x80]",
        b"root ::= \"\x80\"",
    ] {
        assert!(parse(text, b"root", AsLlamaCpp, |_| None).is_ok());
    }
}
