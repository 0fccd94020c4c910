//! Tests of the grammars with which the host's are compared.

use super::cases::{Case, Plan, cases};
use super::found::Part;
use super::samples::Samples;
use super::*;
use crate::grammar::TokenTexts;
use crate::grammar::parser::{Repetitions::AsLlamaCpp, parse};

const PARTS: [Part; 8] = [
    Part::Rules,
    Part::Tokens,
    Part::Dash,
    Part::Counts,
    Part::Beyond,
    Part::Words,
    Part::Patterns,
    Part::Triggers,
];

/// A vocabulary of every byte, some words, and one token that ends the generation.
#[derive(Debug)]
struct Bytes {
    letters: bool,
}

const WORDS: [&str; 8] = ["<eog>", " the", "éa", "😀", "€", "ab", "<|x|>", ""];

impl TokenTexts for Bytes {
    fn n_tokens(&self) -> usize {
        255 + WORDS.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 255
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        match token
            .checked_sub(255)
            .and_then(|n| WORDS.get(usize::try_from(n).ok()?))
        {
            Some(word) => piece.extend_from_slice(word.as_bytes()),
            None => {
                let byte = token as u8 + 1;
                let twice = !self.letters && byte.is_ascii_alphabetic();
                piece.extend(std::iter::repeat_n(byte, 1 + usize::from(twice)));
            }
        }
    }
}

fn samples(letters: bool) -> Samples {
    Samples::of(&VocabularyTree::new(&Bytes { letters }))
}

fn all() -> Vec<(Part, Case)> {
    let samples = samples(true);
    let all = PARTS.into_iter().map(|part| {
        let of_part = cases(part, &samples, Some(b"<|x|>")).expect("no NUL");
        assert!(!of_part.is_empty(), "{part:?}");
        of_part.into_iter().map(move |case| (part, case))
    });
    all.flatten().collect()
}

/// Checks that this library reads every text, and that every build of llama.cpp returns from its
/// constructor: older builds hang on a repetition of something nullable.
#[test]
fn all_texts_are_read_and_none_is_hostile() {
    for (part, case) in all() {
        let text = case.text.to_string_lossy();
        let rules = parse(
            case.text.as_bytes(),
            case.root.as_bytes(),
            AsLlamaCpp,
            |_| Some(7),
        );
        let about = rules
            .unwrap_or_else(|error| panic!("{text}: {error}"))
            .about;
        assert!(about.host_comes_back, "{text}");
        // The grammars of a part need no other part.
        let of_part = [
            (Part::Tokens, about.names_tokens),
            (Part::Dash, about.escapes_dash),
            (Part::Counts, (41..=2000).contains(&about.most_repetitions)),
            (Part::Beyond, about.most_repetitions > 2000),
        ];
        for (other, needed) in of_part {
            assert_eq!(needed, part == other, "{part:?}, {text}");
        }
    }
}

#[test]
fn the_texts_have_every_construct() {
    let texts: Vec<String> = all()
        .iter()
        .map(|(_, case)| case.text.to_string_lossy().into_owned())
        .collect();
    let texts = texts.join("\n");
    for construct in [
        "\\x", "\\u", "\\U", "\\t", "\\r", "\\n", "\\\\", "\\\"", "\\[", "\\]", "\\-", "[^", "[]",
        "[^]", "\"\"", " . ", "]*", "]+", "]?", "{2}", "{1,}", "{1,3}", "{0}", "{0,1999}", "| )",
        "|)", "<[", "!<[", "<|x|>", "!<|x|>", "# ", "\r\n", "\n\n", "é", "€", "😀", "-]", "[z-a]",
    ] {
        let is_there = texts.contains(construct) || (construct == "| )" && texts.contains("( |"));
        assert!(is_there, "{construct:?}");
    }
}

/// Checks that there are candidates of each kind, and few enough of them to be tested one by one.
#[test]
fn candidates_of_every_kind_are_there() {
    let samples = samples(true);
    let has = |token: Token| samples.all.iter().any(|candidate| candidate.id == token);
    for byte in (1..=127).chain([0xC3, 0xE2, 0xF0, 0x81, 0xBF - 2]) {
        assert!(has(byte - 1), "{byte:#x}");
    }
    for word in (255..).take(WORDS.len()) {
        assert!(has(word), "{word}");
    }
    let ids: std::collections::HashSet<Token> = samples.all.iter().map(|one| one.id).collect();
    assert_eq!(ids.len(), samples.all.len(), "none is there twice");
    assert!(samples.all.len() < 400);
    let a = samples.letters.expect("letters are there")[0];
    assert_eq!(a, ('a', Token::from(b'a') - 1));
    assert!(samples.ruler.iter().any(|candidate| candidate.id == a.1));
}

#[test]
fn without_letters_nothing_is_proven() {
    for part in PARTS {
        let found = cases(part, &samples(false), None).expect("no NUL");
        assert!(found.is_empty(), "{part:?}");
    }
}

/// Checks that every walk can begin: a grammar that allows nothing would prove nothing.
#[test]
fn the_first_step_of_every_walk_is_possible() {
    let tree = Arc::new(VocabularyTree::new(&Bytes { letters: true }));
    let samples = samples(true);
    for (_, case) in all() {
        let Plan::Walk { .. } = case.plan else {
            continue;
        };
        let rules = parse(
            case.text.as_bytes(),
            case.root.as_bytes(),
            AsLlamaCpp,
            |_| Some(261),
        );
        let compiled = crate::grammar::compiled::Compiled::new(rules.expect("ours"), tree.clone());
        let engine = Arc::new(crate::grammar::engine::Engine::new(compiled));
        let grammar = crate::grammar::Grammar::of(engine).expect("ours");
        let mask = grammar.slot().allowed();
        let may = samples.all.iter().filter(|one| {
            !samples.ends(one.id) && mask.words()[one.id as usize / 64] >> (one.id % 64) & 1 == 1
        });
        assert!(may.count() >= 2, "{}", case.text.to_string_lossy());
    }
}
