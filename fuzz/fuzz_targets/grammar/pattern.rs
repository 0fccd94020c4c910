//! Compares a trigger pattern with `std::regex`. The input has the pattern up to the first byte 0,
//! and then a text in pieces, each after a byte with its length.

use llama_sieve::grammar::triggers::{Budget, Endless, Triggers, Waiting};
use vendor_llama_cpp::reference::StdRegex;

/// The limit on the reads of the text by `std::regex`, and on the steps of our matcher.
const LOOKS: usize = 20_000;
/// The limit on the alternatives of `std::regex` at one position of a pattern with back-references.
/// Failing ones do not read the text, and so are not counted as reads.
const MOST_WAYS: usize = 10;

pub fn run(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let source = parts.next().unwrap_or_default();
    let mut text = parts.next().unwrap_or_default();
    let ours = Triggers::new(&[source]);
    let said = ours.as_ref().err().map_or("", String::as_str);
    if is_limit(said) || !is_tame(source) {
        return;
    }
    let theirs = StdRegex::new(source);
    assert_eq!(ours.is_ok(), theirs.is_some(), "{said}");
    let (Ok(ours), Some(theirs)) = (ours, theirs) else {
        return;
    };
    let mut waiting = Waiting::default();
    // A second reading of the pattern, which shares no cached states with the first.
    let cold = Triggers::read(&[source]).expect("it was read before");
    let mut in_the_cold = Waiting::default();
    let mut so_far: Vec<u8> = Vec::new();
    let is_whole = source.first() == Some(&b'^') && source.last() == Some(&b'$');
    while let Some((&length, rest)) = text.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(length % 8)));
        so_far.extend_from_slice(piece);
        text = rest;
        if !ends_soon(&theirs, &so_far) {
            return;
        }
        let mut found = None;
        for whole in [true, false] {
            let Ok(groups) = ours.matched(0, &so_far, whole, Budget::of(LOOKS)) else {
                return;
            };
            // The match must not depend on when the search begins to record visited positions.
            for after in [0, 1, usize::from(length)] {
                let budget = Budget::default().noting_after(after);
                let noting = ours.matched(0, &so_far, whole, budget);
                assert_eq!(noting.as_ref(), Ok(&groups), "whole: {whole}, {after}");
            }
            let groups = groups.map(|found| (found.grammar_begin(), found.groups));
            // At most 64 groups are returned.
            let shown = groups
                .as_ref()
                .map(|(_, groups)| &groups[..groups.len().min(64)]);
            assert_eq!(
                shown,
                theirs.find(&so_far, whole).as_deref(),
                "whole: {whole}"
            );
            if found.is_none() && (!whole || is_whole) {
                found = groups.map(|(begin, _)| begin);
            }
        }
        let before = waiting.clone();
        let (mut budget, mut same) = (Budget::default(), Budget::default());
        let began = waiting.accept_within(&ours, 1, piece, &mut budget);
        let alike = in_the_cold.accept_within(&cold, 1, piece, &mut same);
        assert_eq!((began, budget), (alike, same));
        // With exactly the needed steps the match must succeed, with one step less it must fail,
        // every time.
        let steps = Budget::default().left() - budget.left();
        let again = |steps| {
            let mut budget = Budget::of(steps);
            before.clone().accept_within(&ours, 1, piece, &mut budget)
        };
        assert_eq!(again(steps), began);
        if let Some(fewer) = steps.checked_sub(1) {
            assert_eq!(again(fewer), Err(Endless));
        }
        let began = began.expect("few steps");
        assert_eq!(began, found);
        if began.is_some() {
            return;
        }
        if length >= 128 {
            waiting = waiting.clone();
        }
    }
}

/// True if this error means a limit of ours, beyond which `std::regex` may still accept the
/// pattern.
pub fn is_limit(said: &str) -> bool {
    said.contains("nested") || said.contains("states together")
}

/// True if `std::regex` compiles a pattern in reasonable time, and its reads can be counted.
pub fn is_tame(source: &[u8]) -> bool {
    let count = |bytes: &[u8]| source.iter().filter(|byte| bytes.contains(byte)).count();
    let refers_back = source
        .windows(2)
        .any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit());
    count(b"{") <= 2 && !(refers_back && count(b"|*+?{") > MOST_WAYS)
}

/// True if `std::regex` searches this text within the limit.
pub fn ends_soon(regex: &StdRegex, text: &[u8]) -> bool {
    regex.ends(text, true, LOOKS) && regex.ends(text, false, LOOKS)
}
