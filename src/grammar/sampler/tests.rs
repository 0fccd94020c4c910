//! Tests of queries and rollback between tokens. Results are compared with those of clones that
//! accept one token at a time.

use super::*;
use crate::grammar::limits::MAX_FORCED;
use crate::grammar::tests_texts::{tree, tree_of_bytes};
use crate::lcg::Lcg;

/// Returns the pieces of the tests' vocabulary. Token 0 ends the generation, and token 1 is the
/// first piece.
fn pieces() -> Vec<String> {
    let singles = "{}[]\":,. abctruefls0123456789-é\n".chars();
    let singles = singles.map(String::from);
    let more = [
        "true", "fal", "se", "\":", "\",\"", "{\"", "ab", "abc", "cab", "12", "éa", "  ", "tr",
    ];
    singles.chain(more.map(String::from)).collect()
}

const JSON: &str = r#"root ::= object
value ::= object | array | string | number | "true" | "false"
object ::= "{" (string ":" value ("," string ":" value)*)? "}"
array ::= "[" (value ("," value)*)? "]"
string ::= "\"" [abcé ]{0,6} "\""
number ::= "-"? [0-9]+ ("." [0-9]+)?
"#;

fn of_text(text: &str) -> Grammar {
    let tree = tree(pieces());
    Grammar::new(text.as_bytes(), b"root", Repetitions::Many, &tree, |_| None).expect("a grammar")
}

fn lazy(text: &str, patterns: &[&str], tokens: &[Token]) -> Grammar {
    let patterns: Vec<&[u8]> = patterns.iter().map(|pattern| pattern.as_bytes()).collect();
    let triggers = Triggers::new(&patterns).expect("patterns");
    of_text(text).lazy(triggers, tokens)
}

fn grammars() -> Vec<(&'static str, Grammar)> {
    let tree = tree(pieces());
    let regex = |pattern| Grammar::regex(pattern, &tree).expect("a pattern");
    let values: Vec<String> = (0..300).map(|i| format!("a{i}b{}", i % 7)).collect();
    let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
    vec![
        ("json", of_text(JSON)),
        ("regex", regex(r"(?:[abc]{2,5}-|[0-9]+é){1,4}")),
        ("choice", Grammar::choice(&values, &tree).expect("values")),
        (
            "token",
            of_text("root ::= (<[8]> | !<[9]> | \"ab\")* \"true\"\n"),
        ),
        ("deep", of_text("root ::= \"{\" root \"}\" | [0-9]\n")),
        ("lazy", lazy(JSON, &["[ab]+(\\{)", "x$"], &[])),
        ("behind", lazy(JSON, &["(a|b)\\1(\\{[\\s\\S]*)"], &[1])),
        ("empty", Grammar::empty(tree.n_tokens())),
    ]
}

/// Returns the visible state of a grammar, for comparisons.
fn seen(grammar: &Grammar) -> (Vec<u64>, bool, Option<Dead>) {
    let slot = grammar.slot();
    let mask = slot.allowed();
    (mask.words().to_vec(), slot.is_complete(), slot.dead())
}

fn below(lcg: &mut Lcg, n: usize) -> usize {
    (lcg.bits() >> 10) as usize % n
}

/// Returns a random token that is allowed, or sometimes any token.
fn token(lcg: &mut Lcg, grammar: &Grammar) -> Token {
    let n = pieces().len() as Token + 1;
    let any = below(lcg, 24);
    if any == 0 {
        return below(lcg, n as usize + 1) as Token;
    }
    let mask = grammar.slot().allowed();
    let allowed: Vec<Token> = (0..n).filter(|&token| mask.allows(token)).collect();
    match allowed.len() {
        0 => 0,
        n => allowed[below(lcg, n)],
    }
}

#[test]
fn tokens_that_are_taken_back_were_never_there() {
    let mut lcg = Lcg(1);
    for (name, made) in grammars() {
        let (mut waited, mut died) = (0, 0);
        for _ in 0..40 {
            let mut grammar = made.clone();
            let mut before: Vec<Grammar> = Vec::new();
            for _ in 0..60 {
                if below(&mut lcg, 4) == 0 && !before.is_empty() {
                    let n = 1 + below(&mut lcg, before.len().min(9));
                    let was_dead = grammar.slot().dead().is_some();
                    assert_eq!(grammar.slot().rollback(n), Ok(()), "{name}");
                    let there = &before[before.len() - n];
                    assert_eq!(seen(&grammar), seen(there), "{name}, {n} back");
                    died += usize::from(was_dead && there.slot().dead().is_none());
                    waited += usize::from(there.slot().allowed().count() == pieces().len() + 1);
                    before.truncate(before.len() - n);
                } else {
                    before.push(grammar.clone());
                    let token = token(&mut lcg, &grammar);
                    grammar.accept(token);
                }
            }
            let n = before.len();
            if name != "empty" {
                let error = grammar.slot().rollback(n + 1);
                assert_eq!(error, Err(TooFar(n)), "{name}");
                assert_eq!(grammar.slot().rollback(n), Ok(()), "{name}");
                assert_eq!(seen(&grammar), seen(&made), "{name}");
            }
        }
        assert!(died > 0 || name == "empty", "{name}: {died}");
        let waits = matches!(name, "lazy" | "behind" | "empty");
        assert_eq!(waited > 5, waits, "{name}: {waited}");
    }
}

#[test]
fn a_draft_is_accepted_as_far_as_its_tokens_are_one_by_one() {
    let mut lcg = Lcg(2);
    for (name, made) in grammars() {
        let mut lengths = [0; 9];
        for _ in 0..60 {
            let mut grammar = made.clone();
            for _ in 0..40 {
                let mut going = grammar.clone();
                let draft: Vec<Token> = (0..8)
                    .map(|_| {
                        let token = token(&mut lcg, &going);
                        going.accept(token);
                        token
                    })
                    .collect();
                let mut one_by_one = grammar.clone();
                let allowed = draft.iter().take_while(|&&token| {
                    let is_allowed = one_by_one.slot().allowed().allows(token);
                    one_by_one.accept(token);
                    is_allowed && one_by_one.slot().dead().is_none()
                });
                let expected = allowed.count();
                let before = seen(&grammar);
                assert_eq!(grammar.slot().accepts(&draft), expected, "{name} {draft:?}");
                assert_eq!(seen(&grammar), before, "{name} {draft:?}");
                lengths[expected] += 1;
                grammar.accept(draft[0]);
            }
        }
        assert!(
            lengths[8] > 20 && (name == "empty" || lengths[0] > 20),
            "{name} {lengths:?}"
        );
    }
}

#[test]
fn what_must_follow_is_what_alone_may() {
    let mut lcg = Lcg(3);
    let singles: Vec<Token> = (1..)
        .zip(pieces())
        .filter(|(_, piece)| piece.chars().count() == 1)
        .map(|(token, _)| token)
        .collect();
    for (name, made) in grammars() {
        let mut most = 0;
        for _ in 0..60 {
            let mut grammar = made.clone();
            for _ in 0..30 {
                let forced = grammar.slot().forced();
                let mut going = grammar.clone();
                let mut expected: Vec<u8> = Vec::new();
                loop {
                    let mask = going.slot().allowed();
                    let n_allowed = singles.iter().filter(|&&token| mask.allows(token)).count();
                    let next = singles.iter().find(|&&token| mask.allows(token));
                    let Some(&next) = next.filter(|_| n_allowed == 1 && !mask.allows(0)) else {
                        break;
                    };
                    expected.extend(pieces()[next as usize - 1].as_bytes());
                    going.accept(next);
                }
                assert_eq!(forced, expected, "{name}");
                most = most.max(forced.len());
                let token = token(&mut lcg, &grammar);
                grammar.accept(token);
            }
        }
        // The empty grammar always allows every token, and the grammar of token elements all but a
        // few, so nothing is forced.
        let is_free = matches!(name, "empty" | "token");
        assert_eq!(most > 0, !is_free, "{name}");
    }
}

#[test]
fn a_text_without_end_that_must_follow_is_cut() {
    let endless = of_text("root ::= \"abc\" root\n");
    let forced = endless.slot().forced();
    assert_eq!(forced.len(), MAX_FORCED);
    assert!(forced.starts_with(b"abcabc"));
}

#[test]
fn the_rest_of_a_character_must_follow() {
    // The bytes of "é" are C3 A9, those of "€" are E2 82 AC.
    let texts = [&b"\xC3"[..], b"\xA9", b"\xE2", b"\xE2\x82", b"\xAC", b"a"];
    let tree = tree_of_bytes(texts.map(<[u8]>::to_vec));
    let mut grammar = Grammar::regex("[é€]aé", &tree).expect("a pattern");
    assert_eq!(grammar.slot().forced(), b"");
    grammar.accept(4);
    assert_eq!(grammar.slot().forced(), "€aé".as_bytes()[2..]);
    assert_eq!(grammar.slot().rollback(1), Ok(()));
    grammar.accept(1);
    assert_eq!(grammar.slot().forced(), "éaé".as_bytes()[1..]);
}

#[test]
fn at_most_so_many_are_taken_back() {
    let mut grammar = lazy("root ::= [ab]*\n", &["c"], &[]);
    let token = |piece: &str| {
        1 + pieces()
            .iter()
            .position(|own| own == piece)
            .expect("a piece") as Token
    };
    let (a, c) = (token("a"), token("c"));
    for _ in 0..3 * MAX_ROLLBACK {
        grammar.accept(a);
    }
    assert_eq!(
        grammar.slot().rollback(MAX_ROLLBACK + 1),
        Err(TooFar(MAX_ROLLBACK))
    );
    assert_eq!(grammar.slot().rollback(MAX_ROLLBACK), Ok(()));
    let Err(TooFar(most)) = grammar.slot().rollback(MAX_ROLLBACK) else {
        panic!("these are kept no more");
    };
    assert!(most < MAX_ROLLBACK && grammar.slot().dead().is_none());
    assert_eq!(grammar.slot().rollback(most), Ok(()));
    grammar.accept(c);
    assert!(
        grammar.slot().dead().is_some(),
        "c begins it and is not allowed"
    );
    assert_eq!(grammar.slot().rollback(1), Ok(()));
    let mut grammar = lazy("root ::= [abc]*\n", &["c"], &[]);
    grammar.accept(a);
    grammar.accept(c);
    for _ in 0..MAX_ROLLBACK {
        grammar.accept(a);
    }
    assert_eq!(grammar.slot().rollback(MAX_ROLLBACK), Ok(()));
    assert!(grammar.slot().is_complete());
    // The token with which the grammar began is too far back.
    assert_eq!(grammar.slot().rollback(1), Err(TooFar(0)));
    grammar.reset();
    assert_eq!(grammar.slot().rollback(1), Err(TooFar(0)));
}

#[test]
fn only_texts_in_utf_8_follow_a_pattern() {
    // Bytes that begin no character, overlong forms, a surrogate, and a number above the last
    // character.
    let texts = [
        &b"\xE0"[..],
        b"\x9F\xBF",
        b"\xA0\x80",
        b"\xF0",
        b"\x8F\xBF\xBF",
        b"\x90\x80\x80",
        b"\xED",
        b"\xF4",
        b"\xC1\xA1",
        b"\xE0\x9F\xBF",
        b"\xED\xA0\x80",
        b"\xC3ab",
        b"\xF5",
        b"a",
        b"\xC3",
    ];
    let tree = tree_of_bytes(texts.map(<[u8]>::to_vec));
    let any = Grammar::regex("(?s).*", &tree).expect("a pattern");
    let n = texts.len() as Token;
    for first in 1..=n {
        for second in 1..=n {
            let bytes = [texts[first as usize - 1], texts[second as usize - 1]].concat();
            let goes_on = |bytes: &[u8]| {
                std::str::from_utf8(bytes)
                    .map_or_else(|error| error.error_len().is_none(), |_| true)
            };
            let expected = match goes_on(texts[first as usize - 1]) {
                true => 1 + usize::from(goes_on(&bytes)),
                false => 0,
            };
            assert_eq!(any.slot().accepts(&[first, second]), expected, "{bytes:x?}");
            let mut grammar = any.clone();
            grammar.accept(first);
            assert_eq!(grammar.slot().dead().is_none(), expected > 0, "{bytes:x?}");
            if expected > 0 {
                assert_eq!(
                    grammar.slot().allowed().allows(second),
                    expected == 2,
                    "{bytes:x?}"
                );
                grammar.accept(second);
                assert_eq!(grammar.slot().dead().is_none(), expected == 2, "{bytes:x?}");
            }
        }
    }
}

/// A whole draft may take only as many steps as one token. If each token of a draft could take as
/// many, a draft could take seconds.
#[test]
fn a_draft_is_looked_at_as_far_as_the_steps_of_one_call_reach() {
    let tree = tree_of_bytes((b'a'..=b'd').map(|byte| vec![byte]));
    let pattern = "(.*a.{40}|.*b.{40}|.*c.{40}|.*d.{40})*";
    let mut grammar = Grammar::regex(pattern, &tree).expect("a pattern");
    let mut lcg = Lcg(5);
    let draft: Vec<Token> = (0..100_000)
        .map(|_| 1 + (lcg.bits() >> 20) as Token % 4)
        .collect();
    let n = grammar.slot().accepts(&draft);
    assert!((10..draft.len()).contains(&n), "{n}");
    let again = grammar.slot().accepts(&draft);
    assert_eq!(again, n, "whatever is known by now");
    for &token in &draft[..n.min(100)] {
        grammar.accept(token);
    }
    assert_eq!(grammar.slot().dead(), None);
}

#[test]
fn what_must_follow_is_told_as_far_as_it_is_found() {
    let tree = tree_of_bytes([b"a".to_vec(), b"b".to_vec()]);
    let grammar = Grammar::regex("a{100000}b|a{99999}b", &tree).expect("a pattern");
    let forced = grammar.slot().forced();
    assert!(
        forced.len() > 100 && forced.iter().all(|&byte| byte == b'a'),
        "{}",
        forced.len()
    );
}
