//! A trigger pattern beside `std::regex`: up to the first byte 0 the pattern, then a text, in
//! pieces of as many bytes as the byte in front of each says.

use llama_sieve::grammar::triggers::{Budget, Endless, Triggers, Waiting};
use vendor_llama_cpp::reference::StdRegex;

/// The most times that `std::regex` may look at the text, and the most steps that ours may take.
const LOOKS: usize = 20_000;
/// Ways that it may go at one place, in a pattern with references back: where these fail it does
/// not look at the text.
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
    // Reads the same states for itself alone.
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
            // Whatever is noted of what was begun, the same is found.
            for after in [0, 1, usize::from(length)] {
                let budget = Budget::default().noting_after(after);
                let noting = ours.matched(0, &so_far, whole, budget);
                assert_eq!(noting.as_ref(), Ok(&groups), "whole: {whole}, {after}");
            }
            let groups = groups.map(|found| (found.grammar_begin(), found.groups));
            // No more than 64 groups are handed over.
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
        // The budget decides to the last step, again and again.
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

/// True if patterns were refused that `std::regex` may take.
pub fn is_limit(said: &str) -> bool {
    said.contains("nested") || said.contains("states together")
}

/// True if `std::regex` reads a pattern in reasonable time, and counts what it does with it.
pub fn is_tame(source: &[u8]) -> bool {
    let count = |bytes: &[u8]| source.iter().filter(|byte| bytes.contains(byte)).count();
    let refers_back = source
        .windows(2)
        .any(|pair| pair[0] == b'\\' && pair[1].is_ascii_digit());
    count(b"{") <= 2 && !(refers_back && count(b"|*+?{") > MOST_WAYS)
}

/// True if `std::regex` soon knows what stands in this text.
pub fn ends_soon(regex: &StdRegex, text: &[u8]) -> bool {
    regex.ends(text, true, LOOKS) && regex.ends(text, false, LOOKS)
}
