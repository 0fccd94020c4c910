use super::*;

#[test]
fn names_and_classes() {
    assert_eq!(named(b"hyphen"), Some(b'-'));
    assert_eq!(named(b"commercial-at"), Some(b'@'));
    assert_eq!(named(b"grave-accent"), Some(b'`'));
    assert_eq!(named(b"DEL"), Some(127));
    assert_eq!(named(b"-"), None);
    assert!(class(b"ALPHA").is_some_and(|set| set.has(b'z') && !set.has(0xE9)));
    assert!(class(b"letters").is_none());
}
