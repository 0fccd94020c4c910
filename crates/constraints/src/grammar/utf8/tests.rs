use super::*;

fn decoded(piece: &[u8], start: Partial) -> (Vec<u32>, i8, u32) {
    let mut chars = Vec::new();
    let end = decode(piece, start, &mut chars);
    (chars, end.missing, end.bits)
}

#[test]
fn characters_and_parts_of_them() {
    let none = Partial::default();
    assert_eq!(
        decoded("aé€".as_bytes(), none),
        (vec![0x61, 0xE9, 0x20AC], 0, 0)
    );
    assert_eq!(decoded(b"a\xE2\x82", none), (vec![0x61], 1, 0x82));
    let begun = Partial {
        bits: 0x82,
        missing: 1,
    };
    assert_eq!(decoded(b"\xACb", begun), (vec![0x20AC, 0x62], 0, 0));
    assert_eq!(decoded(b"b", begun), (vec![], -1, 0));
    assert_eq!(decoded(b"", begun), (vec![], 1, 0x82));
}

#[test]
fn what_is_no_utf_8() {
    let none = Partial::default();
    // A byte that cannot be first makes the whole piece invalid.
    assert_eq!(decoded(b"ab\x80", none), (vec![], -1, 0));
    // Within a token the bytes after the first are not checked.
    assert_eq!(decoded(b"\xC3A", none), (vec![0xC1], 0, 0));
    assert_eq!(decoded(b"\xC0\x80", none), (vec![0], 0, 0));
    assert_eq!(decoded(b"a\0b", none), (vec![0x61], 0, 0));
    assert_eq!(decoded(b"a", Partial::INVALID), (vec![0x61], 0, 0));
    assert_eq!(decoded(b"", Partial::INVALID), (vec![], -1, 0));
}
