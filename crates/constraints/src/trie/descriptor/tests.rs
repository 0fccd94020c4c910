use super::*;

fn error(json: &str) -> String {
    Payload::parse(json.as_bytes(), Some(50)).expect_err("the payload is bad")
}

#[test]
fn errors_say_where() {
    let cases = [
        ("", "line 1 column 0"),
        (
            r#"{"descriptors": 3}"#,
            "expected a sequence at line 1 column 17",
        ),
        (r#"{"modelId": 3}"#, "expected a string at line 1"),
        (
            r#"{"descriptors":[{"path":"a","leaves":[{"name":"x","tokens":[1,2.5]}]}]}"#,
            "floating point `2.5`",
        ),
        (
            r#"{"descriptors":[{"path":"a","leaves":[{"name":"x","tokens":[1,50]}]}]}"#,
            "descriptors[0].leaves[0].tokens[1]: token 50 is outside the vocabulary of 50",
        ),
        (
            r#"{"descriptors":[{"path":"a","leaves":[{"name":"x","tokens":[-7]}]}]}"#,
            "descriptors[0].leaves[0].tokens[0]: token -7 is negative",
        ),
        (r#"{"modelId":"t","descriptors":[]}"#, "no leaf with tokens"),
        (
            r#"{"descriptors":[{"path":"a","terminators":[1,-5],"leaves":[]}]}"#,
            "descriptors[0].terminators[1]: token -5 is negative",
        ),
        (
            r#"{"descriptors":[{"path":"a","terminators":[1],"leaves":[]}]}"#,
            "no leaf with tokens",
        ),
        (r#"{"descriptors":[{"leaves":[]}]}"#, "missing field `path`"),
        (r#"["Moses"]"#, SMALL),
        (
            r#"{"descriptors":[{"path":"a","leaves":[["n",[1]]]}]}"#,
            "invalid type: sequence, expected an object at line 1 column",
        ),
    ];
    for (json, part) in cases {
        let text = error(json);
        assert!(text.contains(part), "{json}: {text}");
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let json = br#"{"x":[{}],"descriptors":[{"path":"a","y":1,"leaves":[{"name":"n","tokens":[1],"z":null}]}]}"#;
    let payload = Payload::parse(json, None).expect("the payload is good");
    assert_eq!(payload.descriptors[0].leaves[0].tokens, [1]);
}

/// A text from a client may be as long as a payload.
#[test]
fn errors_quote_the_beginning_of_a_text() {
    let long = "\u{7f}".repeat(10_000);
    let cut = format!("\"{}...\"", r"\u{7f}".repeat(60));
    for (place, wanted) in [
        (
            r#"{"descriptors":[{"path":"p","leaves":[{"name":"#,
            ",\"tokens\":[\"a\"]}]}]}",
        ),
        (
            r#"{"descriptors":[{"path":"p","leaves":[{"name":"n","tokens":["#,
            "]}]}]}",
        ),
        (
            r#"{"descriptors":[{"path":"p","leaves":[{"name":"n","tokens":"#,
            "}]}]}",
        ),
        (r#"{"descriptors":[{"path":"p","leaves":["#, "]}]}"),
        (r#"{"descriptors":["#, "]}"),
        (r#"{"descriptors":"#, "}"),
        ("", ""),
    ] {
        let json = format!("{place}\"{long}\"{wanted}");
        let text = error(&json);
        assert!(text.len() < 1000, "{place}: {} bytes", text.len());
        if !wanted.contains('a') {
            assert!(
                text.contains(&format!("invalid type: string {cut}")),
                "{text}"
            );
        }
    }
    let name = format!(
        r#"{{"descriptors":[{{"path":"p","leaves":[{{"name":"\u0000{long}","tokens":[1]}}]}}]}}"#
    );
    let text = error(&name);
    assert!(text.contains("holds NUL") && text.len() < 1000, "{text}");
    for (key, value) in [(long.as_str(), "1"), ("path", "[1]")] {
        let json = format!(r#"{{"descriptors":[{{"{key}":{value}}}]}}"#);
        assert!(error(&json).len() < 1000);
    }
}
