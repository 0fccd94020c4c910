//! Compares trigger patterns with `std::regex`: which patterns are valid, what matches, where, and
//! with which groups.

use llama_sieve::grammar::limits::MAX_TRIGGER_DEPTH;
use llama_sieve::grammar::triggers::{Budget, Endless, Triggers, Waiting, syntax};
use vendor_llama_cpp::reference::StdRegex;

use crate::support::{Rng, replay};

/// The parts of the random patterns, some of which are not valid.
const ATOMS: [&str; 64] = [
    "a",
    "b",
    "c",
    "0",
    " ",
    "-",
    "_",
    "\n",
    "\u{e9}",
    ".",
    "\\d",
    "\\D",
    "\\w",
    "\\W",
    "\\s",
    "\\S",
    "[ab]",
    "[^ab]",
    "[a-c]",
    "[^a-c0]",
    "[]",
    "[^]",
    "[-a]",
    "[a-]",
    "[a\\-c]",
    "[\\s\\S]",
    "[\\d_]",
    "[\\D]",
    "[[:alpha:]]",
    "[^[:SPACE:]]",
    "[[.hyphen.]]",
    "[[=a=]b]",
    "[[.a.]-c]",
    "[a-c-0]",
    "[--a]",
    "[\\b]",
    "\\x61",
    "\\u0062",
    "\\cb",
    "\\0",
    "\\n",
    "\\.",
    "\\[",
    "]",
    "}",
    "<",
    "[<]",
    "\\/",
    "(?:)",
    "()",
    "\\1",
    "\\2",
    "[b-a]",
    "[a",
    "{",
    "[\\w-a]",
    "[[:nothing:]]",
    "[[.nothing.]]",
    "\\",
    "(?<a>",
    "ab",
    "aa",
    "[\u{e0}-\u{ff}]",
    "[a-\\d]",
];
const ASSERTIONS: [&str; 6] = ["^", "$", "\\b", "\\B", "^", "$"];
const REPETITIONS: [&str; 20] = [
    "*", "+", "?", "*?", "+?", "??", "{0}", "{1}", "{2}", "{0,1}", "{1,2}", "{0,2}?", "{1,}",
    "{0,}?", "{2,1}", "{,2}", "**", "+*", "{1}{2}", "?+",
];
const TEXT: [&str; 14] = [
    "a", "a", "b", "b", "c", "0", " ", "-", "_", "\n", "é", "<", "A", "\0",
];

/// The most steps that this library may take for a search.
pub const STEPS: usize = 20_000;
/// The most accesses to the text that the built-in may make for a search. Even if this library sees
/// immediately that nothing matches, the built-in may try everything.
const LOOKS: usize = 200_000;

/// True if the built-in quickly finishes its search in `text`.
pub fn ends_soon(regex: &StdRegex, text: &[u8]) -> bool {
    regex.ends(text, true, LOOKS) && regex.ends(text, false, LOOKS)
}

pub fn pattern(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    for i in 0..1 + rng.below(if depth == 0 { 3 } else { 2 }) {
        if i > 0 {
            out.push(b'|');
        }
        for _ in 0..rng.below(4) {
            part(rng, depth, out);
        }
    }
}

fn part(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    if rng.chance(0.15) {
        out.extend_from_slice(rng.pick(&ASSERTIONS).as_bytes());
        return;
    }
    if depth < 3 && rng.chance(0.4) {
        let opening = rng.pick(&["(", "(", "(", "(?:", "(?:", "(?=", "(?!"]);
        out.extend_from_slice(opening.as_bytes());
        pattern(rng, depth + 1, out);
        if !rng.chance(0.005) {
            out.push(b')');
        }
        let looks = opening == "(?=" || opening == "(?!";
        if looks && !rng.chance(0.01) {
            return;
        }
    } else if rng.chance(0.6) {
        out.extend_from_slice(rng.pick(&ATOMS[..2]).as_bytes());
    } else {
        out.extend_from_slice(rng.pick(&ATOMS).as_bytes());
    }
    if rng.chance(0.3) {
        out.extend_from_slice(rng.pick(&REPETITIONS).as_bytes());
    }
}

fn text(rng: &mut Rng, most: usize) -> Vec<u8> {
    let mut text = Vec::new();
    for _ in 0..rng.below(most + 1) {
        text.extend_from_slice(rng.pick(&TEXT).as_bytes());
    }
    if rng.chance(0.1) {
        text.truncate(text.len().saturating_sub(1));
    }
    text
}

/// Returns a text for messages; only the end of a long one.
fn shown(bytes: &[u8]) -> String {
    let from = bytes.len().saturating_sub(1000);
    bytes[from..].escape_ascii().to_string()
}

/// Compares `n` random patterns in this library and in `std::regex`.
pub fn random_patterns(n: usize, rng: &mut Rng) {
    let (mut read, mut found) = (0, 0);
    for _ in 0..n {
        let mut source = Vec::new();
        pattern(rng, 0, &mut source);
        let ours = Triggers::new(&[&source]);
        let theirs = StdRegex::new(&source);
        let context = || format!("{}\n{}", shown(&source), replay());
        assert_eq!(ours.is_ok(), theirs.is_some(), "{ours:?} {}", context());
        let (Ok(ours), Some(theirs)) = (ours, theirs) else {
            continue;
        };
        read += 1;
        for _ in 0..8 {
            let text = text(rng, 9);
            if !ends_soon(&theirs, &text) {
                continue;
            }
            for whole in [true, false] {
                // `std::regex` would take as long.
                let Ok(ours) = ours.matched(0, &text, whole, Budget::of(STEPS)) else {
                    continue;
                };
                let ours = ours.map(|found| found.groups);
                let theirs = theirs.find(&text, whole);
                found += usize::from(theirs.is_some());
                let text = shown(&text);
                assert_eq!(ours, theirs, "whole: {whole}, {text}, {}", context());
            }
        }
    }
    assert!(
        2 * read > n && found > n,
        "{read} read, {found} found of {n}"
    );
}

/// Checks each byte as a literal, and inside and outside each class and range.
pub fn every_byte() {
    let mut patterns: Vec<Vec<u8>> = Vec::new();
    for byte in 1..=u8::MAX {
        patterns.push(vec![byte]);
        patterns.push(vec![b'\\', byte]);
        patterns.push(vec![b'[', byte, b']']);
        patterns.push(vec![b'[', b'\\', byte, b']']);
        patterns.push(vec![b'[', b'a', b'-', byte, b']']);
        patterns.push(vec![b'[', byte, b'-', b'a', b']']);
        patterns.push([b"[[=", &[byte][..], b"=]]"].concat());
        patterns.push(vec![b'(', b'?', byte, b'a', b')']);
    }
    for name in [
        "d", "w", "s", "alnum", "alpha", "blank", "cntrl", "digit", "graph", "lower", "print",
        "punct", "space", "upper", "xdigit", "W", "Alpha", "word", "",
    ] {
        patterns.push(format!("[[:{name}:]]").into());
        patterns.push(format!("[^[:{name}:]]").into());
    }
    for name in "NUL SOH STX ETX EOT ENQ ACK alert backspace tab newline vertical-tab form-feed \
        carriage-return SO SI DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC IS4 IS3 IS2 IS1 space \
        exclamation-mark quotation-mark number-sign dollar-sign percent-sign ampersand apostrophe \
        left-parenthesis right-parenthesis asterisk plus-sign comma hyphen period slash zero one \
        two three four five six seven eight nine colon semicolon less-than-sign equals-sign \
        greater-than-sign question-mark commercial-at A M Z left-square-bracket backslash \
        right-square-bracket circumflex underscore grave-accent a m z left-curly-bracket \
        vertical-line right-curly-bracket tilde DEL"
        .split(' ')
        .chain(["-", "1", "nul", ""])
    {
        patterns.push(format!("[[.{name}.]]").into());
        patterns.push(format!("[[={name}=]]").into());
    }
    for source in &patterns {
        let (ours, theirs) = (Triggers::new(&[source]), StdRegex::new(source));
        assert_eq!(ours.is_ok(), theirs.is_some(), "{}", shown(source));
        let (Ok(ours), Some(theirs)) = (ours, theirs) else {
            continue;
        };
        for byte in 0..=u8::MAX {
            let found = ours
                .matched(0, &[byte], true, Budget::of(STEPS))
                .expect("few steps");
            let found = found.map(|found| found.groups);
            assert_eq!(
                found,
                theirs.find(&[byte], true),
                "{} {byte}",
                shown(source)
            );
        }
    }
}

/// Checks at which sizes `std::regex` has too many states.
pub fn sizes() {
    for (inner, times) in [
        ("a", 99_996),
        ("(?:a|bc|)*?", 9_000),
        ("(a?)", 20_000),
        ("(?=a)", 25_000),
        ("(?:a{2,4}?){10}(?:b{3,})+", 800),
    ] {
        let source = |n: usize| format!("(?:{inner}){{{n}}}");
        let is_read = |n: usize| syntax::parse(source(n).as_bytes()).is_ok();
        // The largest number of repetitions that this library accepts.
        let (mut low, mut high) = (0, 2 * times + 100_000);
        while low + 1 < high {
            let middle = (low + high) / 2;
            *(if is_read(middle) { &mut low } else { &mut high }) = middle;
        }
        for n in [low, low + 1] {
            let theirs = StdRegex::new(source(n).as_bytes()).is_some();
            assert_eq!(is_read(n), theirs, "{}", source(n));
        }
    }
}

/// The numbers of steps after which a search begins to record visited positions: at once, soon, the
/// library's default, and never.
const NOTES: [Option<usize>; 5] = [Some(0), Some(1), Some(50), None, Some(usize::MAX)];

fn noting(after: Option<usize>, steps: usize) -> Budget {
    let budget = Budget::of(steps);
    after.map_or(budget, |steps| budget.noting_after(steps))
}

/// Compares the matches with those of `std::regex`, for each of `NOTES`. Returns the number of
/// matches; `None` if `std::regex` does not finish quickly.
fn found_alike(source: &[u8], text: &[u8], looks: usize) -> Option<usize> {
    let ours = Triggers::new(&[source]).expect("a pattern");
    let theirs = StdRegex::new(source).expect("a pattern");
    let mut n_found = 0;
    for whole in [true, false] {
        if !theirs.ends(text, whole, looks) {
            return None;
        }
        let theirs = theirs.find(text, whole);
        n_found += usize::from(theirs.is_some());
        for after in NOTES {
            let ours = ours.matched(0, text, whole, noting(after, 100 * looks));
            let ours = ours.map(|found| found.map(|found| found.groups));
            assert_eq!(
                ours,
                Ok(theirs.clone()),
                "whole: {whole}, noting after {after:?}: {} in {}\n{}",
                shown(source),
                shown(text),
                replay()
            );
        }
    }
    Some(n_found)
}

/// Checks lazy runs in loops, mostly on texts that take so many steps that a search begins to
/// record visited positions.
pub fn long_texts() {
    let prose = "The quick brown fox jumps over the lazy dog, and why not. ".repeat(1300);
    let failing = "<t>so why not</b> ".repeat(2000);
    let letters = "a".repeat(16);
    for (pattern, text) in [
        (
            "<t>(?:[^<]*?(?:(X)|y))*</t>",
            format!("{prose}<t>an X, why, y</t>{{"),
        ),
        (
            "<t>(?:[^<]*?(?:(X)|y))*</t>",
            format!("{failing}<t>an X, why, y</t>{{"),
        ),
        (
            "<t>(?:[^<]*?(?:(X)|(y)))*?</t>",
            format!("{failing}<t>a y, X why, y</t>{{"),
        ),
        (
            "<t>(?:([^<])*?(?:(X)|y)+?)+</t>",
            format!("{failing}<t>an X, why, y</t>{{"),
        ),
        ("[ab](?:(a+?))*c", format!("{letters}d aaaac")),
        ("[ab](?:(a+?))*$", format!("{letters}d aaaa")),
        ("(?:(a+?)|(b??))+?c", "aaaaad aaabaac".to_owned()),
        ("(?:(a*?)(?:(a)|(b)))*c", "aaaaad aababac".to_owned()),
    ] {
        let found = found_alike(pattern.as_bytes(), text.as_bytes(), 1 << 26);
        assert_eq!(found, Some(1), "{pattern}");
    }
}

const SETS: [&str; 10] = [
    "a", "b", "X", "<", "[ab]", "[^<]", "[^\\n]", "[abX]", "\\w", "ab",
];
const RUNS: [&str; 12] = [
    "", "", "*?", "*?", "+?", "+?", "*", "+", "??", "{1,}?", "{2,3}?", "{0,2}",
];
const LOOPS: [&str; 12] = [
    "*", "*", "+", "+", "*?", "+?", "?", "", "{1,3}", "{2,}?", "{0,2}?", "{2}",
];

/// Writes runs within nested loops, most of them lazy.
fn loops(rng: &mut Rng, depth: usize, out: &mut Vec<u8>) {
    for _ in 0..1 + rng.below(3) {
        if depth < 3 && rng.chance(0.5) {
            let looks = depth > 0 && rng.chance(0.05);
            let opening = match looks {
                true => rng.pick(&["(?=", "(?!"]),
                false => rng.pick(&["(", "(", "(?:"]),
            };
            out.extend_from_slice(opening.as_bytes());
            for i in 0..1 + rng.below(3) {
                if i > 0 {
                    out.push(b'|');
                }
                loops(rng, depth + 1, out);
            }
            out.push(b')');
            if !looks {
                out.extend_from_slice(rng.pick(&LOOPS).as_bytes());
            }
        } else if rng.chance(0.03) {
            out.extend_from_slice(b"\\1");
        } else {
            out.extend_from_slice(rng.pick(&SETS).as_bytes());
            out.extend_from_slice(rng.pick(&RUNS).as_bytes());
        }
    }
}

/// Checks random loops on short texts, and on long ones of many lines, most of which do not match.
pub fn random_loops(n: usize, rng: &mut Rng) {
    let (mut compared, mut found, mut long) = (0, 0, 0);
    for _ in 0..n {
        let mut source = Vec::new();
        loops(rng, 0, &mut source);
        if rng.chance(0.5) {
            source.extend_from_slice(b"<");
        }
        // The pattern refers to a group that does not exist.
        if StdRegex::new(&source).is_none() {
            assert!(Triggers::new(&[&source]).is_err(), "{}", shown(&source));
            continue;
        }
        for n_lines in [1, 1, 1, 300] {
            let mut text = Vec::new();
            for _ in 0..n_lines {
                for _ in 0..rng.below(16) {
                    text.push(rng.pick(b"aaabbX<"));
                }
                if n_lines > 1 {
                    text.push(b'\n');
                }
            }
            if let Some(n) = found_alike(&source, &text, LOOKS) {
                compared += 1;
                found += n;
                long += usize::from(n_lines > 1);
            }
        }
    }
    println!("{compared} texts, {long} of them long, {found} matches");
    assert!(
        compared > 2 * n && long > n / 4 && found > n,
        "{compared} texts, {long} of them long, {found} matches, of {n} patterns"
    );
}

/// Checks that repetitions make at most two rounds at one position, and which groups the rounds
/// set.
pub fn rounds() {
    // Each round sets one group, so that two groups need two rounds, and three need three.
    let parts = ["()|()|()", "(a?)|(b??)|(a?)", "()\\1|()|(a)"];
    let repetitions = ["*", "+", "*?", "+?", "{0,4}", "{2,}", "{3}", "{1,5}?"];
    let mut twice = 0;
    for part in parts {
        for repetition in repetitions {
            for behind in ["", "$", "b", "\\1", "\\1\\2", "\\1\\2\\3", "\\3\\2"] {
                for around in [false, true] {
                    let inner = format!("(?:{part}){repetition}");
                    let source = match around {
                        true => format!("(?:{inner}|c)*{behind}"),
                        false => format!("{inner}{behind}"),
                    };
                    let ours = Triggers::new(&[source.as_bytes()]).expect("a pattern");
                    let theirs = StdRegex::new(source.as_bytes()).expect("a pattern");
                    for text in ["", "a", "b", "aab", "acb", "ccab"] {
                        if !ends_soon(&theirs, text.as_bytes()) {
                            continue;
                        }
                        for whole in [true, false] {
                            let Ok(ours) =
                                ours.matched(0, text.as_bytes(), whole, Budget::of(STEPS))
                            else {
                                continue;
                            };
                            let ours = ours.map(|found| found.groups);
                            let theirs = theirs.find(text.as_bytes(), whole);
                            assert_eq!(ours, theirs, "{source} in {text}, whole: {whole}");
                            let is_empty = |group: &Option<_>| *group == Some((0, 0));
                            let groups = theirs.unwrap_or_default();
                            twice += usize::from(matches!(
                                &*groups,
                                [_, a, b, None] if is_empty(a) && is_empty(b)
                            ));
                        }
                    }
                }
            }
        }
    }
    assert!(twice > 20, "only {twice} times two rounds at one place");
}

/// Returns the offset at which a grammar begins, found by `std::regex` alone, in llama.cpp's order.
fn begin(patterns: &[(Vec<u8>, StdRegex)], text: &[u8]) -> Option<usize> {
    patterns.iter().find_map(|(source, regex)| {
        let is_whole = source.first() == Some(&b'^') && source.last() == Some(&b'$');
        let found = if is_whole {
            regex.find(text, true)
        } else {
            None
        };
        let found = found.or_else(|| regex.find(text, false))?;
        let filled = found[1..].iter().flatten().find(|(begin, end)| end > begin);
        filled.or(found[0].as_ref()).map(|&(begin, _)| begin)
    })
}

/// Checks when a pattern is found in a text that grows by tokens, and where the grammar then
/// begins.
pub fn streams(n: usize, rng: &mut Rng) {
    let mut n_found = 0;
    for _ in 0..n {
        let mut sources: Vec<Vec<u8>> = Vec::new();
        while sources.len() < 1 + rng.below(4) {
            let mut source = Vec::new();
            if rng.chance(0.3) {
                source.push(b'^');
            }
            pattern(rng, 1, &mut source);
            if rng.chance(0.3) {
                source.push(b'$');
            }
            // Only patterns that do not match the empty text.
            if StdRegex::new(&source).is_some_and(|regex| regex.find(b"", false).is_none()) {
                sources.push(source);
            }
        }
        let texts: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let triggers = Triggers::new(&texts).expect("std::regex has read them");
        let read = || Triggers::read(&texts).expect("it was read before");
        let theirs = sources.iter().map(|source| {
            let regex = StdRegex::new(source).expect("it was read before");
            (source.clone(), regex)
        });
        let theirs: Vec<_> = theirs.collect();
        for _ in 0..4 {
            let mut waiting = Waiting::default();
            // With tables that no other search has filled, and with a record from the first step
            // on.
            let (cold, mut in_the_cold) = (read(), Waiting::default());
            let mut noting = Waiting::default();
            let mut so_far = Vec::new();
            for token in 0..8 {
                let piece = text(rng, 3);
                so_far.extend_from_slice(&piece);
                let is_short = |pattern: usize| {
                    let whole = triggers.matched(pattern as u32, &so_far, true, Budget::of(STEPS));
                    let part = triggers.matched(pattern as u32, &so_far, false, Budget::of(STEPS));
                    whole.is_ok() && part.is_ok() && ends_soon(&theirs[pattern].1, &so_far)
                };
                if !(0..sources.len()).all(is_short) {
                    break;
                }
                let context = || format!("{sources:?} in {}\n{}", shown(&so_far), replay());
                let (mut budget, mut same) = (Budget::default(), Budget::default());
                let ours = waiting.accept_within(&triggers, token, &piece, &mut budget);
                let alike = in_the_cold.accept_within(&cold, token, &piece, &mut same);
                assert_eq!((ours, budget), (alike, same), "{}", context());
                let mut budget = Budget::default().noting_after(0);
                let alike = noting.accept_within(&triggers, token, &piece, &mut budget);
                assert_eq!(ours, alike, "{}", context());
                let ours = ours.expect("few steps");
                assert_eq!(ours, begin(&theirs, &so_far), "{}", context());
                if ours.is_some() {
                    n_found += 1;
                    break;
                }
                if rng.chance(0.1) {
                    waiting = waiting.clone();
                }
            }
        }
    }
    assert!(
        n_found > n && n_found < 4 * n,
        "{n_found} found of {}",
        4 * n
    );
}

/// Checks patterns and texts that are made to do harm.
pub fn hostile() {
    let n = 200_000;
    let a = "a".repeat(n);
    // On each of these `std::regex` overflows its stack, or practically never finishes.
    for (pattern, text, found) in [
        ("(a+)+b", a.clone(), None),
        ("(a|aa)+$b|c", a.clone(), None),
        ("(?:a|a)*(b)", a.clone() + "b", Some(n)),
        ("(?:a+)+(b)", a.clone() + "b", Some(n)),
        ("^[\\s\\S]*?(b)[\\s\\S]*$", a.clone() + "b" + &a, Some(n)),
        ("^(?:[\\s\\S]|a)*(b)$", a.clone() + "b", Some(n)),
    ] {
        let triggers = Triggers::new(&[pattern.as_bytes()]).expect("a pattern");
        let mut waiting = Waiting::default();
        for (token, piece) in (0..).zip(text.as_bytes().chunks(1000)) {
            match waiting.accept(&triggers, token, piece) {
                Ok(None) => {}
                Ok(at) => assert_eq!(at, found, "{pattern}"),
                Err(_) => panic!("{pattern}"),
            }
        }
    }
    // These searches end with an error.
    for (pattern, text) in [
        ("(a*)*\\1c(?=d)", "a".repeat(3000) + "c"),
        ("(?=(a+)+b)c|a(?=(a+)+b)", "a".repeat(3000)),
    ] {
        let triggers = Triggers::new(&[pattern.as_bytes()]).expect("a pattern");
        assert!(
            Waiting::default()
                .accept(&triggers, 0, text.as_bytes())
                .is_err(),
            "{pattern}"
        );
    }
    for pattern in [
        "(".repeat(1000) + &")".repeat(1000),
        "(?:a{1000}){1000}".into(),
        "a".repeat(2 << 20),
    ] {
        assert!(Triggers::new(&[pattern.as_bytes()]).is_err());
    }
    // Constructs other than parentheses may be nested as deep as `std::regex` allows.
    let stars = "a".to_owned() + &"*".repeat(1000);
    assert!(StdRegex::new(stars.as_bytes()).is_some());
    assert!(Triggers::new(&[stars.as_bytes()]).is_ok());
    // So many states that the tables are dropped again and again.
    let triggers = Triggers::new(&[b"a[ab]{2000}c"]).expect("a pattern");
    let mut rng = Rng(7);
    let (mut one, mut other) = (Waiting::default(), Waiting::default());
    for token in 0..300 {
        let text: Vec<u8> = (0..20).map(|_| rng.pick(b"ab")).collect();
        for waiting in [&mut one, &mut other] {
            assert_eq!(waiting.accept(&triggers, token, &text).ok(), Some(None));
        }
    }
    let (bytes, most) = (triggers.bytes(), triggers.most_bytes());
    assert!(bytes <= most && most < 1 << 20, "{bytes} of {most}");
    let found = one.accept(&triggers, 300, b"c").expect("few steps");
    assert_eq!(
        found.is_some(),
        other
            .accept(&triggers, 300, b"c")
            .expect("few steps")
            .is_some()
    );
}

/// Returns patterns with look-aheads that fail late. Each takes a part of the steps that one call
/// may take.
pub fn costly(n: usize) -> Vec<String> {
    (10..10 + n)
        .map(|i| format!("(a|a){{10}}(?=b{i})"))
        .collect()
}

/// Checks that the steps of one call are limited for all patterns together, and that the count does
/// not depend on whether the states were known before.
pub fn budgets() {
    let used = |n: usize, triggers: &Triggers, budget: Budget| {
        let texts = costly(n);
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        assert_eq!(triggers.n_patterns(), texts.len());
        let mut left = budget;
        let found = Waiting::default().accept_within(triggers, 0, &[b'a'; 98], &mut left);
        (found, budget.left() - left.left())
    };
    let read = |n: usize| {
        let texts = costly(n);
        let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        Triggers::read(&texts).expect("patterns")
    };
    let most = Budget::default();
    let (found, one) = used(1, &read(1), most);
    assert_eq!(found, Ok(None));
    assert!(one > most.left() / 10, "{one}");
    // Each pattern alone is within the limit, and a hundred together are not.
    let (found, hundred) = used(100, &read(100), most);
    assert_eq!(found, Err(Endless));
    assert!(hundred <= most.left(), "{hundred}");
    let (found, hundred) = used(100, &read(100), Budget::of(1 << 40));
    assert_eq!(found, Ok(None));
    assert!(hundred > 90 * one, "{hundred} for a hundred, {one} for one");
    // Exactly this number of steps is needed, each time.
    let warm = read(2);
    for round in 0..3 {
        let (found, steps) = used(2, &read(2), most);
        assert_eq!(found, Ok(None));
        for triggers in [&warm, &read(2)] {
            assert_eq!(
                used(2, triggers, Budget::of(steps)),
                (Ok(None), steps),
                "{round}"
            );
            assert_eq!(
                used(2, triggers, Budget::of(steps - 1)).0,
                Err(Endless),
                "{round}"
            );
        }
    }
    // The steps of making the states of many patterns count, too, and count again when the states
    // are known.
    let texts: Vec<String> = (0..15_000).map(|i| format!("\\w*{i}(?=a)")).collect();
    let texts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
    let triggers = Triggers::read(&texts).expect("patterns");
    for _ in 0..2 {
        let found = Waiting::default().accept(&triggers, 0, &b"one and two ".repeat(30));
        assert_eq!(found, Err(Endless));
    }
}

/// Runs `body` on a stack of 64 KiB, and returns its result.
pub fn on_a_small_stack<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(64 << 10);
        let thread = thread.spawn_scoped(scope, body).expect("a thread");
        thread.join().expect("no panic")
    })
}

/// Returns patterns with parentheses nested `depth` deep.
pub fn nested(depth: usize) -> Vec<String> {
    let kinds = [
        (1, "(", ")"),
        (1, "(?:", ")"),
        (1, "(?=", ")"),
        (1, "(?!", ")"),
        (1, "(a|", ")*"),
        (1, "(?:b|", ")+?"),
        (1, "(?=b|", ")"),
        (2, "(?:(?=a)a|(", "))*?"),
        (2, "((?!b|", "))"),
        (2, "(?=(", ")b?)"),
    ];
    let nested = kinds.map(|(levels, open, close)| {
        let n = depth / levels;
        open.repeat(n) + "a" + &close.repeat(n)
    });
    nested.into()
}

/// Checks parentheses nested as deep as is allowed, on a small stack.
pub fn deepest() {
    let matched = |pattern: &str, notes_after: usize| {
        let triggers = Triggers::read(&[pattern.as_bytes()]).ok()?;
        let budget = Budget::default().noting_after(notes_after);
        let accepted = Waiting::default().accept(&triggers, 0, b"aaaa");
        let matched = triggers.matched(0, b"aaaa", false, budget);
        assert_eq!(accepted.is_ok(), matched.is_ok(), "{pattern}");
        Some(matched)
    };
    for notes_after in [0, 1 << 30] {
        for depth in [2, 4, MAX_TRIGGER_DEPTH] {
            for pattern in nested(depth) {
                let found = on_a_small_stack(|| matched(&pattern, notes_after));
                let found = found.unwrap_or_else(|| panic!("{pattern} is refused"));
                if depth < MAX_TRIGGER_DEPTH {
                    let found = found.expect("few steps").map(|found| found.groups);
                    let theirs = StdRegex::new(pattern.as_bytes()).expect("a pattern");
                    assert_eq!(found, theirs.find(b"aaaa", false), "{pattern}");
                }
            }
        }
        for pattern in nested(MAX_TRIGGER_DEPTH + 2) {
            let found = on_a_small_stack(|| matched(&pattern, notes_after));
            assert_eq!(found, None, "{pattern}");
        }
    }
}
