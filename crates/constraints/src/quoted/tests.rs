use super::{escaped, listed, quoted};

#[test]
fn nothing_of_a_text_reaches_a_terminal_as_a_command() {
    for (text, shown) in [
        (&b"plain 'text' \"here\""[..], "plain 'text' \"here\""),
        (b"\x1b[31mred\x07", "\\u{1b}[31mred\\u{7}"),
        (b"a\nb\tc\\", "a\\nb\\tc\\\\"),
        ("größe “x” 漢".as_bytes(), "größe “x” 漢"),
        // A byte order mark, a character that changes the direction of text, and a C1 control
        // character.
        (
            "\u{feff}\u{202e}\u{9b}".as_bytes(),
            "\\u{feff}\\u{202e}\\u{9b}",
        ),
        (b"caf\xe9 \xc3", "caf\\xE9 \\xC3"),
        (b"", ""),
    ] {
        assert_eq!(quoted(text).to_string(), shown);
    }
    assert_eq!(quoted(&[b'a'; 60]).to_string(), "a".repeat(60));
    assert_eq!(quoted(&[b'a'; 61]).to_string(), "a".repeat(60) + "...");
    assert_eq!(escaped(&[b'a'; 61]).to_string(), "a".repeat(61));
    assert_eq!(quoted(&[0xFF; 61]).to_string(), "\\xFF".repeat(60) + "...");
    // No character is displayed as a control character.
    for character in (0..=0x10_FFFF).filter_map(char::from_u32) {
        let shown = quoted(character.encode_utf8(&mut [0; 4])).to_string();
        assert!(!shown.chars().any(char::is_control), "{character:?}");
    }
}

#[test]
fn of_many_names_a_message_has_a_few() {
    let names: Vec<String> = (0..10).map(|n| format!("n\n{n}")).collect();
    let shown = |n: usize| listed(names[..n].iter()).to_string();
    assert_eq!(shown(0), "");
    assert_eq!(shown(2), r#""n\n0", "n\n1""#);
    assert!(shown(8).ends_with(r#", "n\n7""#), "{}", shown(8));
    assert_eq!(shown(10), shown(8) + " and 2 more");
    let long = ["a".repeat(100)];
    let cut = format!("\"{}...\"", "a".repeat(60));
    assert_eq!(listed(long.iter()).to_string(), cut);
}
