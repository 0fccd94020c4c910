use super::{escaped, quoted};

#[test]
fn nothing_of_a_text_reaches_a_terminal_as_a_command() {
    for (text, shown) in [
        (&b"plain 'text' \"here\""[..], "plain 'text' \"here\""),
        (b"\x1b[31mred\x07", "\\u{1b}[31mred\\u{7}"),
        (b"a\nb\tc\\", "a\\nb\\tc\\\\"),
        ("größe “x” 漢".as_bytes(), "größe “x” 漢"),
        // A mark of order, one that turns the direction of text, a control of the second set.
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
    // Every character that is no letter to look at.
    for character in (0..=0x10_FFFF).filter_map(char::from_u32) {
        let shown = quoted(character.encode_utf8(&mut [0; 4])).to_string();
        assert!(!shown.chars().any(char::is_control), "{character:?}");
    }
}
