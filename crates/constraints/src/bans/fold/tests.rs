use super::*;

#[test]
fn characters_of_one_case_folding_are_equal() {
    for (a, b) in [
        ("Straße", "STRAßE"),
        ("ΟΔΥΣΣΕΥΣ", "οδυσσευς"),
        ("\u{212A}elvin", "kELVIN"),
        ("ſharp", "SHARP"),
        ("Éa", "éA"),
        ("ǅ", "ǆ"),
        ("\u{1E921}", "\u{1E943}"),
    ] {
        let of = |text: &str| {
            let mut bytes = Vec::new();
            fold(text.as_bytes(), &mut bytes);
            bytes
        };
        assert_eq!(of(a), of(b), "{a} {b}");
    }
    assert_ne!(folded('ß'), folded('s'));
    assert_eq!(folded('ß'), folded('ẞ'));
    // The rules of Turkish do not apply.
    assert_eq!(folded('İ'), 'İ');
    assert_eq!(folded('ı'), 'ı');
}

/// Checks that a character and its lower case in std, if that is one character, are in the same
/// class. std has its own tables, so it is an independent oracle.
#[test]
fn folding_agrees_with_the_cases_of_std() {
    let mut differ = 0;
    for character in (0..0x11_0000).filter_map(char::from_u32) {
        let mut lower = character.to_lowercase();
        let (Some(lower), None) = (lower.next(), lower.next()) else {
            continue;
        };
        differ += usize::from(folded(lower) != folded(character));
    }
    // One of the two may have a newer version of Unicode, with a few more letters.
    assert!(differ <= 64, "{differ}");
}

#[test]
fn characters_in_pieces_are_folded_as_whole_ones() {
    let text = "aÉ\u{212A}😀é".as_bytes();
    let mut whole = Vec::new();
    fold(text, &mut whole);
    for cut in 0..text.len() {
        for other in cut..text.len() {
            let (mut pending, mut bytes) = (Pending::default(), Vec::new());
            for part in [&text[..cut], &text[cut..other], &text[other..]] {
                pending.feed(part, |of| bytes.extend_from_slice(of));
            }
            assert!(pending.is_empty());
            assert_eq!(bytes, whole);
        }
    }
}

#[test]
fn what_is_no_character_passes_as_it_is() {
    let every: Vec<Vec<u8>> = vec![
        b"\xC3a".to_vec(),
        b"\xE2\x84a".to_vec(),
        b"\x80\xBF\xFF".to_vec(),
        b"\xF0\x9F\x98\xF0\x9F\x98\x80".to_vec(),
        b"\xED\xA0\x80".to_vec(),
        b"\xE2\x84\xC3\xA9".to_vec(),
    ];
    for text in every {
        let mut expected = Vec::new();
        for chunk in text.utf8_chunks() {
            for character in chunk.valid().chars() {
                expected.extend(folded(character).to_string().bytes());
            }
            expected.extend(chunk.invalid());
        }
        let mut bytes = Vec::new();
        fold(&text, &mut bytes);
        assert_eq!(bytes, expected, "{text:x?}");
    }
}
