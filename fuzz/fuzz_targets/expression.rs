//! Compares regular expressions with the crate `regex`, choices with the set of their values, and
//! both, after rollbacks, with clones that have accepted the same tokens.
//!
//! The first byte selects an expression or choices. Up to the first byte 0 each byte stands for a
//! part of the expression, or for a letter of a value; after it each byte is a token or a rollback.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use llama_sieve::Token;
use llama_sieve::grammar::{Grammar, TokenTexts, VocabularyTree};
use llama_sieve::sampler::Sampler;
use regex::bytes::{Regex, RegexBuilder};

fuzz_target!(init: prepare(), |data: &[u8]| run(data));

fn prepare() {
    llama_sieve_fuzz::silence();
    LazyLock::force(&TREE);
}

/// The texts of the tokens. The first token ends the generation. Multi-byte characters occur whole
/// and as single bytes.
const TEXTS: [&[u8]; 26] = [
    b"",
    b"a",
    b"b",
    b"B",
    b"c",
    b"1",
    b"\n",
    b" ",
    b"\xC3",
    b"\xA9",
    b"\xE2",
    b"\x82",
    b"\xAC",
    b"\xF0",
    b"\x9F",
    b"\xED",
    b"\xA0",
    b"ab",
    b"a\xC3",
    b"\xA9b",
    b"\xE2\x82",
    b"\xACa",
    b"bb",
    b"\xC3\xA9",
    b"\xE0",
    b"\x80\xAF",
];

#[derive(Debug)]
struct Texts;

impl TokenTexts for Texts {
    fn n_tokens(&self) -> usize {
        TEXTS.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 0
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        piece.extend_from_slice(TEXTS[token as usize]);
    }
}

static TREE: LazyLock<Arc<VocabularyTree>> =
    LazyLock::new(|| Arc::new(VocabularyTree::new(&Texts)));

/// The oracle that decides whether a whole text is valid.
enum Model {
    Regex(Box<Regex>),
    Values(Vec<Vec<u8>>),
}

impl Model {
    fn has(&self, text: &[u8]) -> bool {
        match self {
            Self::Regex(regex) => std::str::from_utf8(text).is_ok() && regex.is_match(text),
            Self::Values(values) => values.iter().any(|value| value == text),
        }
    }
}

fn run(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else {
        return;
    };
    let mut parts = data.splitn(2, |&byte| byte == 0);
    let spelt = parts.next().unwrap_or_default();
    let steps = parts.next().unwrap_or_default();
    let (made, model) = match kind % 2 {
        0 => {
            let pattern = pattern(spelt);
            let made = Grammar::regex(&pattern, &TREE);
            // The group keeps the anchors \A and \z separate from the pattern.
            let regex = RegexBuilder::new(&format!("\\A(?:{pattern})\\z"))
                .size_limit(MOST_MODEL_BYTES)
                .build();
            let Ok(made) = made else {
                let what = made.expect_err("refused").what;
                assert!(!what.is_empty());
                return;
            };
            (made, Model::Regex(Box::new(regex.expect("ours reads it"))))
        }
        _ => {
            let letters = ["a", "b", "B", "c", "1", "é", "€", "\u{1F600}"];
            let values = spelt.chunk_by(|_, &next| next % 16 != 15);
            let letter = |byte: &u8| letters[usize::from(byte % 8)].as_bytes();
            let values: Vec<Vec<u8>> = values
                .map(|value| value.iter().flat_map(letter).copied().collect())
                .collect();
            let texts: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            let made = Grammar::choice(&texts, &TREE);
            let Ok(made) = made else {
                assert!(texts.is_empty());
                return;
            };
            (made, Model::Values(values))
        }
    };
    walk(&made, &model, steps);
}

/// The crate `regex` expands counted repetitions. This many nested ones are at most 27 copies of 24
/// Unicode classes, which fit into its size limit here.
const MOST_COUNTS: usize = 3;
const MOST_MODEL_BYTES: usize = 64 << 20;

/// Returns a pattern made of parts that are patterns themselves, or open and close groups.
fn pattern(spelt: &[u8]) -> String {
    const PARTS: [&str; 32] = [
        "a",
        "b",
        "B",
        "é",
        "€",
        ".",
        "[ab]",
        "[^a]",
        "\\w",
        "(?i:b)",
        "(?s:.)",
        "\\d",
        "\\n",
        "[é-€]",
        "(",
        "(?:",
        ")",
        ")",
        "|",
        "*",
        "+",
        "?",
        "{2}",
        "{1,3}",
        "{0,2}?",
        "{2,}",
        "^",
        "$",
        "[a&&b]",
        "(?:a|ab)",
        "[[:alpha:]]",
        "\\b",
    ];
    let mut counts = 0;
    let mut pattern = String::new();
    for &byte in spelt.iter().take(24) {
        let part = PARTS[usize::from(byte % 32)];
        counts += usize::from(part.starts_with('{'));
        if !part.starts_with('{') || counts <= MOST_COUNTS {
            pattern.push_str(part);
        }
    }
    // Adds as many closing parentheses as are missing by count. Patterns in which groups are still
    // open are rejected.
    for _ in pattern.matches(")").count()..pattern.matches('(').count() {
        pattern.push(')');
    }
    pattern
}

fn walk(made: &Grammar, model: &Model, steps: &[u8]) {
    let mut grammar = made.clone();
    let mut text: Vec<u8> = Vec::new();
    // Clones from before each token, each with the length of its text.
    let mut before: Vec<(Grammar, usize)> = Vec::new();
    for &step in steps.iter().take(40) {
        if step >= 0xE0 {
            let n = usize::from(step % 8).min(before.len());
            assert_eq!(grammar.slot().rollback(n), Ok(()));
            if n > 0 {
                let (there, length) = &before[before.len() - n];
                assert_eq!(seen(&grammar), seen(there), "{n} taken back");
                text.truncate(*length);
                before.truncate(before.len() - n);
            }
            continue;
        }
        let slot = grammar.slot();
        let Some(mask) = slot.dead().is_none().then(|| slot.allowed()) else {
            before.push((grammar.clone(), text.len()));
            grammar.accept(Token::from(step % TEXTS.len() as u8));
            continue;
        };
        // The text can be compared with the oracle only if its last character is complete.
        if std::str::from_utf8(&text).is_ok() {
            assert_eq!(slot.is_complete(), model.has(&text), "{text:?}");
            assert_eq!(mask.allows(0), model.has(&text), "{text:?}");
        }
        if let Model::Values(values) = model {
            for (token, piece) in (1..).zip(&TEXTS[1..]) {
                let longer = [&text, *piece].concat();
                let expected = values.iter().any(|value| value.starts_with(&longer));
                assert_eq!(mask.allows(token), expected, "{longer:?}");
            }
        }
        let token = Token::from(step % TEXTS.len() as u8);
        let forced = slot.forced();
        let draft = [token, 1, 17, 0];
        let accepted = slot.accepts(&draft);
        assert_eq!(accepted > 0, mask.allows(token));
        let mut going = grammar.clone();
        let one_by_one = draft.iter().take_while(|&&token| {
            let is_allowed = going.slot().allowed().allows(token);
            going.accept(token);
            is_allowed && going.slot().dead().is_none()
        });
        assert_eq!(accepted, one_by_one.count());
        before.push((grammar.clone(), text.len()));
        let was_allowed = mask.allows(token);
        grammar.accept(token);
        assert_eq!(grammar.slot().dead().is_none(), was_allowed, "{token}");
        if was_allowed && token != 0 {
            let piece = TEXTS[token as usize];
            let common = piece.len().min(forced.len());
            assert_eq!(
                piece[..common],
                forced[..common],
                "{text:?} forces {forced:?}"
            );
            text.extend_from_slice(piece);
        }
    }
}

fn seen(grammar: &Grammar) -> (Vec<u64>, bool, bool) {
    let slot = grammar.slot();
    let mask = slot.allowed();
    (
        mask.words().to_vec(),
        slot.is_complete(),
        slot.dead().is_some(),
    )
}
