//! A few patterns and short texts, for Miri. The expected results are those of `std::regex`, with
//! which `tests/grammar/triggers.rs` compares many more.

use super::search::Found;
use super::{Budget, Triggers, Waiting};

type Groups = Vec<Option<(usize, usize)>>;

fn groups(pattern: &str, text: &str) -> Option<Groups> {
    let triggers = Triggers::new(&[pattern.as_bytes()]).expect("a pattern");
    let found = triggers.matched(0, text.as_bytes(), false, Budget::of(1000));
    found.expect("few steps").map(|Found { groups }| groups)
}

#[test]
fn what_matches_and_which_groups() {
    assert_eq!(
        groups("(a|ab)(c|bcd)(d*)", "xabcd"),
        Some(vec![Some((1, 5)), Some((1, 2)), Some((2, 5)), Some((5, 5))])
    );
    assert_eq!(
        groups("(?:(a)|(b))*?c", "abc"),
        Some(vec![Some((0, 3)), Some((0, 1)), Some((1, 2))])
    );
    assert_eq!(groups("(?=(b+))b\\1", "bb"), None);
    assert_eq!(
        groups("\\b(?!b)[[:alpha:]]{2}$", "ba ab"),
        Some(vec![Some((3, 5))])
    );
}

/// Each round sets one group.
#[test]
fn a_repetition_goes_around_twice_at_one_place() {
    let here = Some((0, 0));
    assert_eq!(
        groups("(?:()|()|())*\\1\\2", "a"),
        Some(vec![here, here, here, None])
    );
    assert_eq!(groups("(?:()|()|())*\\1\\2\\3", "a"), None);
}

#[test]
fn what_is_no_pattern_is_refused() {
    for pattern in ["a)", "(a", "[b-a]", "a{2,1}", "\\", "*", "[[:no:]]"] {
        assert!(Triggers::new(&[pattern.as_bytes()]).is_err(), "{pattern}");
    }
}

/// Accepts tokens until a pattern is found. Returns the offset at which the grammar begins, and the
/// tokens from there on, each with its part of the text.
fn waited(patterns: &[&str], tokens: &[&str]) -> Option<(usize, Vec<(i32, String)>)> {
    let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
    let triggers = Triggers::new(&patterns).expect("patterns");
    let mut waiting = Waiting::default();
    for (token, text) in (0..).zip(tokens) {
        let copy = waiting.clone();
        let found = waiting.accept(&triggers, token, text.as_bytes());
        if let Some(begin) = found.expect("few steps") {
            let since = waiting.since(begin).map(|(token, text)| {
                let text = String::from_utf8_lossy(text).into_owned();
                (token, text)
            });
            return Some((begin, since.collect()));
        }
        // A copy continues from the position at which it was made.
        waiting = copy;
        assert_eq!(waiting.accept(&triggers, token, text.as_bytes()), Ok(None));
    }
    None
}

#[test]
fn a_trigger_is_found_behind_many_tokens() {
    let text = |token: i32, text: &str| (token, text.to_owned());
    assert_eq!(
        waited(&["<f=\\d>", "x(<c)"], &["a <", "f=", "7> b", "c"]),
        Some((2, vec![text(0, "<"), text(1, "f="), text(2, "7> b")]))
    );
    assert_eq!(
        waited(&["<f=\\d>", "x(<c)"], &["a x<", "cd"]),
        Some((3, vec![text(0, "<"), text(1, "cd")]))
    );
    assert_eq!(
        waited(&["^(?:[^<]|<(?!t))*(<t)$"], &["<a", "<t"]),
        Some((2, vec![text(1, "<t")]))
    );
    assert_eq!(waited(&["(a)\\1b"], &["a", "b", "a"]), None);
    let words = Triggers::of_words(&[b"a.b", b"(c"]).expect("words");
    let mut waiting = Waiting::default();
    assert_eq!(waiting.accept(&words, 1, b"axb ("), Ok(None));
    assert_eq!(waiting.accept(&words, 2, b"c"), Ok(Some(4)));
}
