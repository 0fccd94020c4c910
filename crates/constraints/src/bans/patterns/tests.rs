//! Compares the tokens that are banned after random texts with those that the crate `regex` finds
//! in the whole text.

use std::sync::Arc;

use llama_sieve_kernels::lcg::Lcg;
use test_crates::regex::bytes::{Regex, RegexBuilder};

use super::tree::Tree;
use super::{Cursor, MAX_BACK, Patterns};
use crate::bans::MAX_STATES;
use crate::bans::order::Order;
use crate::bans::tests::{Random, Vocabulary};
use crate::kernels::bitmap::has;
use crate::token::Token;

const CHARACTERS: [&str; 9] = ["a", "b", "c", "K", "k", "\n", "é", "\u{212A}", "😀"];

fn vocabulary(random: &mut Random) -> Vocabulary {
    let mut texts: Vec<Vec<u8>> = vec![Vec::new()];
    texts.extend(CHARACTERS.iter().map(|text| text.as_bytes().to_vec()));
    texts.extend([0xC3, 0xA9, 0xE2, 0x84, 0xAA, 0xF0, 0x9F, 0, 0xFF].map(|byte| vec![byte]));
    while texts.len() < 80 {
        let n = 1 + random.below(5);
        let characters = (0..n).flat_map(|_| CHARACTERS[random.below(9)].bytes());
        let whole: Vec<u8> = characters.collect();
        let (from, to) = (random.below(whole.len()), 1 + random.below(whole.len()));
        texts.push(whole[from.min(to - 1)..to].to_vec());
    }
    Vocabulary(texts)
}

fn pattern(random: &mut Random, depth: usize) -> String {
    let mut text = String::new();
    for _ in 0..1 + random.below(4) {
        let atom = match random.below(if depth > 2 { 9 } else { 12 }) {
            0..4 => CHARACTERS[random.below(9)].to_owned(),
            4 => ".".to_owned(),
            5 => "[ab]".to_owned(),
            6 => "[^a]".to_owned(),
            7 => ["\\w", "\\s", "[a&&b]", "(?i:k)"][random.below(4)].to_owned(),
            8 => ["(?m:^)", "^", "[^é]", "\\d"][random.below(4)].to_owned(),
            9 => format!("({})", pattern(random, depth + 1)),
            _ => format!(
                "({}|{})",
                pattern(random, depth + 1),
                pattern(random, depth + 1)
            ),
        };
        text += &atom;
        text += ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "+?"][random.below(10)];
    }
    text
}

/// Returns the tokens that a cursor bans. Checks that the cursor's answers for single tokens are
/// the same as for all tokens together.
fn banned(cursor: &Cursor, patterns: &Patterns, n: usize) -> Vec<bool> {
    let mut named = vec![false; n];
    let mut name = |token: Token| named[token as usize] = true;
    patterns.whole().iter().for_each(|&token| name(token));
    let mut count = 0;
    cursor.each(patterns, |token| {
        count += 1;
        name(token);
    });
    assert_eq!(count, cursor.count(patterns));
    let each: Vec<bool> = (0..n as Token)
        .map(|token| cursor.bans(patterns, token))
        .collect();
    assert_eq!(each, named);
    named
}

#[test]
fn tokens_with_which_a_pattern_matches_are_banned() {
    let mut random = Random(Lcg(3));
    let (mut begun, mut at_lines, mut refused, mut too_large) = (0, 0, 0, 0);
    let rounds = if cfg!(miri) { 3 } else { 150 };
    for _ in 0..rounds {
        let vocabulary = vocabulary(&mut random);
        let n = vocabulary.0.len();
        let order = Arc::new(Order::new(&vocabulary, false));
        let ignores_case = random.below(4) == 0;
        let texts: Vec<String> = (0..1 + random.below(3))
            .map(|_| pattern(&mut random, 0))
            .collect();
        let regexes: Vec<Regex> = texts
            .iter()
            .map(|text| {
                let mut builder = RegexBuilder::new(text);
                builder
                    .case_insensitive(ignores_case)
                    .build()
                    .expect("it is a pattern")
            })
            .collect();
        let matches = |text: &[u8]| regexes.iter().any(|regex| regex.is_match(text));
        let bytes: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let made = Patterns::new(&bytes, ignores_case, &order);
        if matches(b"") {
            let why = made.err();
            let is_named = why
                .as_ref()
                .is_some_and(|why| why.contains("the empty text"));
            assert!(is_named, "{texts:?}: {why:?}");
            refused += 1;
            continue;
        }
        let patterns = match made {
            Ok(patterns) => patterns,
            Err(why) => {
                assert!(
                    why.contains("LLAMA_SIEVE_BAN_MAX_STATES"),
                    "{texts:?}: {why}"
                );
                too_large += 1;
                continue;
            }
        };
        let mut cursor = Cursor::new();
        let mut written = Vec::new();
        let mut accepted: Vec<Token> = Vec::new();
        for _ in 0..25 {
            let banned = banned(&cursor, &patterns, n);
            for (token, &is_banned) in banned.iter().enumerate() {
                let text = &vocabulary.0[token];
                let with = [&written[..], text].concat();
                let completes = !text.is_empty() && matches(&with);
                assert_eq!(
                    is_banned, completes,
                    "{texts:?}: {token} after {written:x?}"
                );
            }
            let back = cursor.rewind(&patterns);
            let is_begun = banned.iter().filter(|&&banned| banned).count() > patterns.whole().len();
            assert_eq!(back > 0, is_begun && !accepted.is_empty(), "{texts:?}");
            if back > 0 && back < accepted.len() {
                // No match began in the tokens before these, so any others may take their place.
                let mut other = Cursor::new();
                other.accept(&patterns, 1);
                other.accept(&patterns, 1);
                let others = accepted[accepted.len() - back..].iter();
                others.for_each(|&token| other.accept(&patterns, token));
                if !texts.iter().any(|text| text.contains('^')) {
                    let ours = self::banned(&other, &patterns, n);
                    assert!(
                        ours.iter()
                            .zip(&banned)
                            .all(|(ours, banned)| ours >= banned)
                    );
                }
                begun += 1;
            }
            at_lines += usize::from(is_begun && written.last() == Some(&b'\n'));
            let free: Vec<usize> = (0..n).filter(|&token| !banned[token]).collect();
            let token = free[random.below(free.len())];
            written.extend_from_slice(&vocabulary.0[token]);
            accepted.push(token as Token);
            cursor.accept(&patterns, token as Token);
            let mut saved = Vec::new();
            cursor.save(&patterns, &mut |part| saved.extend_from_slice(part));
            let mut loaded = Cursor::new();
            loaded.load(&patterns, &saved).expect("it was saved");
            assert_eq!(loaded.rewind(&patterns), cursor.clone().rewind(&patterns));
            assert!(loaded.load(&patterns, &saved[1..]).is_none());
            assert!(loaded.load(&patterns, &saved[..saved.len() - 1]).is_none());
            cursor.load(&patterns, &saved).expect("it was saved");
        }
    }
    if !cfg!(miri) {
        assert!(begun > 100 && at_lines > 10, "{begun}, {at_lines}");
        assert!(
            refused > 10 && refused + too_large < rounds / 2,
            "{refused}, {too_large}"
        );
    }
}

/// A walk that skips texts with a common prefix finds, in every state, the tokens that are found by
/// testing each token by itself.
#[test]
fn in_every_state_the_tokens_are_those_that_complete_a_match_by_themselves() {
    const PATTERNS: [&[&str]; 6] = [
        &["a+b", "ba{2,4}c", "c\\s+k"],
        &["^b[^k]*a", "(?m:^)k", "cab"],
        &["a.*b"],
        &["[ab]{3}", "é+K", "(?i:k)\\s"],
        &["a[^\\n]{4}c", "b"],
        &["\u{212A}a|aaaaaaaab"],
    ];
    let mut random = Random(Lcg(5));
    let (mut n_banned, mut n_states) = (0, 0);
    let rounds = if cfg!(miri) { 1 } else { 8 };
    for texts in PATTERNS.iter().cycle().take(rounds * PATTERNS.len()) {
        let vocabulary = with_long_texts(&mut random);
        let order = Arc::new(Order::new(&vocabulary, false));
        let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let patterns = Patterns::new(&texts, false, &order).expect("they can be banned");
        for state in 0..patterns.automaton.n_states() as u32 {
            let is_found = |&token: &Token| {
                let text = &vocabulary.0[token as usize];
                has(&patterns.others, token) && patterns.automaton.has_match(state, text)
            };
            let all = 0..vocabulary.0.len() as Token;
            let mut found: Vec<Token> = all.filter(is_found).collect();
            found.sort_unstable_by_key(|&token| order.rank(token));
            let ranges = patterns.ranges(state);
            let ranges = ranges.iter().map(|range| order.tokens(range.clone()));
            assert_eq!(ranges.flatten().copied().collect::<Vec<_>>(), found);
            n_banned += found.len();
            n_states += usize::from(!found.is_empty());
        }
    }
    assert!(
        n_banned > 10 * n_states && n_states > rounds * 20,
        "{n_banned}, {n_states}"
    );
}

/// Returns a vocabulary in which many texts begin alike, and some are equal.
fn with_long_texts(random: &mut Random) -> Vocabulary {
    let mut texts = vocabulary(random).0;
    while texts.len() < 300 {
        let mut text = texts[random.below(texts.len())].clone();
        let n = random.below(4);
        text.extend((0..n).flat_map(|_| CHARACTERS[random.below(9)].bytes()));
        texts.push(text);
    }
    Vocabulary(texts)
}

/// Checks that `Tree::after` finds, for each text and each prefix longer than the one shared with
/// the previous text, the first later text that does not begin with that prefix.
#[test]
fn a_walk_leaves_out_the_texts_that_begin_alike() {
    let mut random = Random(Lcg(7));
    let vocabulary = with_long_texts(&mut random);
    let order = Order::new(&vocabulary, false);
    let tree = Tree::new(&order);
    let tokens = order.tokens(0..order.n_ranks()).iter();
    let texts: Vec<&[u8]> = tokens.map(|&token| order.key(token)).collect();
    let mut most = 0;
    for (rank, text) in texts.iter().enumerate() {
        for n in tree.common(rank as u32) + 1..=text.len() {
            let later = texts[rank..].iter();
            let alike = later.take_while(|other| other.starts_with(&text[..n]));
            let n_alike = alike.count();
            let after = tree.after(rank as u32, n) as usize;
            assert_eq!(after, rank + n_alike, "{text:x?}, {n}");
            most = most.max(n_alike);
        }
    }
    assert!(most > 20, "{most}");
}

fn made(texts: &[&str]) -> Result<(Vocabulary, Patterns), String> {
    let words =
        ["a", "b", "de", "lve", "d", "\n", " ", "\u{e9}"].map(|text| text.as_bytes().to_vec());
    let vocabulary = Vocabulary(words.into());
    let order = Arc::new(Order::new(&vocabulary, false));
    let texts: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    Ok((vocabulary, Patterns::new(&texts, false, &order)?))
}

/// `rewind` returns the number of tokens since a match began, up to the number that is remembered.
#[test]
fn the_beginning_of_a_match_is_found_again() {
    let (_, patterns) = made(&["de ?lve", "^b+a"]).expect("they can be banned");
    let mut cursor = Cursor::new();
    let mut back = |tokens: &[Token]| {
        tokens
            .iter()
            .for_each(|&token| cursor.accept(&patterns, token));
        cursor.rewind(&patterns)
    };
    assert_eq!([back(&[]), back(&[1]), back(&[1])], [0, 1, 2]);
    // `^` no longer matches here; a token outside the vocabulary has no text.
    assert_eq!(
        [back(&[4]), back(&[2]), back(&[6]), back(&[99])],
        [0, 1, 2, 3]
    );
    assert_eq!(back(&[6]), 0);
    let mut from_the_start = Cursor::new();
    for _ in 0..MAX_BACK + 5 {
        from_the_start.accept(&patterns, 1);
    }
    assert_eq!(from_the_start.rewind(&patterns), MAX_BACK);
    from_the_start.reset();
    assert_eq!(from_the_start.rewind(&patterns), 0);
}

#[test]
fn what_cannot_be_banned_is_refused_by_name() {
    let refusals = [
        ("a(", "unclosed group"),
        ("a*", "the empty text"),
        ("a$", "the end of the text"),
        ("(?m)a$", "the end of a line"),
        ("\\bab", "a word boundary"),
        ("(?Z)a", "unrecognized flag"),
        ("(?-u)\\xFF", "UTF-8"),
        ("((a{1000}){1000}){1000}", "repetitions written out"),
        ("a.{40}b", "LLAMA_SIEVE_BAN_MAX_STATES"),
    ];
    for (text, told) in refusals {
        let Err(why) = made(&["b", text]) else {
            panic!("{text} is not refused");
        };
        assert!(why.starts_with("text 1, ") || told.contains("MAX"), "{why}");
        assert!(why.contains(told), "{text}: {why}");
    }
    let mut empty = "(?:".repeat(40);
    empty += &"){1000000}".repeat(40);
    let deep = made(&[&(empty + "a")]);
    assert!(deep.is_ok(), "{:?}", deep.err());
    // This may be refused or not, but must not take long.
    drop(made(&["([a&&b]{1000000}){1000000}c"]));
    // A pattern without a match bans nothing.
    let (_, patterns) = made(&["[a&&b]"]).expect("it can be banned");
    assert!(patterns.whole().is_empty());
    // Almost as many states as are allowed.
    let (_, patterns) = made(&["a.{10}b"]).expect("it can be banned");
    assert!((1000..MAX_STATES).contains(&patterns.automaton.n_states()));
    let texts: Vec<String> = (0..500).map(|i| format!("w{i}o{}rd", i * 7)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    assert!(made(&texts).is_ok());
}
