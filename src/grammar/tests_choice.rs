//! Tests of choices.

use crate::grammar::Grammar;
use crate::grammar::choice::rules;
use crate::grammar::compiled::Compiled;
use crate::grammar::limits::{MAX_CHOICES, MAX_RULES, MAX_TEXT};
use crate::grammar::tests_texts::tree;
use crate::lcg::Lcg;
use crate::sampler::Sampler;
use crate::token::Token;

/// Returns all texts of at most `most` letters of `letters`, including the empty one.
fn texts(letters: &str, most: usize) -> Vec<String> {
    let mut texts = vec![String::new()];
    let mut from = 0;
    for _ in 0..most {
        let to = texts.len();
        for i in from..to {
            for letter in letters.chars() {
                let text = format!("{}{letter}", texts[i]);
                texts.push(text);
            }
        }
        from = to;
    }
    texts
}

#[test]
fn exactly_the_values_can_be_chosen_in_every_tokenization() {
    let pieces = texts("abé", 3);
    let tree = tree(pieces.clone());
    let mut lcg = Lcg(5);
    for _ in 0..200 {
        let n = 1 + (lcg.bits() >> 16) as usize % 6;
        let of = texts("abé", 5);
        let values: Vec<&[u8]> = (0..n)
            .map(|_| of[(lcg.bits() >> 12) as usize % of.len()].as_bytes())
            .collect();
        let mut grammar = Grammar::choice(&values, &tree).expect("values");
        let mut text = Vec::new();
        loop {
            let left = |text: &[u8]| values.iter().any(|value| value.starts_with(text));
            let mask = grammar.slot().allowed();
            for (token, piece) in (0..).zip(&pieces) {
                let longer = [&text, piece.as_bytes()].concat();
                // Token 0 ends the generation, and token 1 has an empty text.
                let expected = !piece.is_empty() && left(&longer);
                assert_eq!(mask.allows(token + 1), expected, "{values:?} {longer:?}");
            }
            let is_complete = values.contains(&&*text);
            assert_eq!(grammar.slot().is_complete(), is_complete);
            assert_eq!(mask.allows(0), is_complete);
            let n = pieces.len() as Token;
            let allowed: Vec<Token> = (1..=n).filter(|&token| mask.allows(token)).collect();
            if allowed.is_empty() {
                assert!(is_complete);
                break;
            }
            let token = allowed[(lcg.bits() >> 12) as usize % allowed.len()];
            text.extend_from_slice(pieces[token as usize - 1].as_bytes());
            grammar.accept(token);
        }
    }
}

#[test]
fn thousands_of_values_are_a_tree() {
    let n = 50_000;
    let values: Vec<String> = (0..n).map(|i| format!("item number {i}")).collect();
    let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
    let rules = rules(&values).expect("values");
    // There is one rule for each position at which texts differ.
    assert!(
        rules.alternatives.len() < n / 4,
        "{}",
        rules.alternatives.len()
    );
    let compiled = Compiled::new(rules, tree([]));
    let mut states = crate::grammar::states::States::default();
    let state = states.initial(&compiled).expect("one stack");
    assert_eq!(states.edges(state).len(), 1);
}

#[test]
fn refusals_name_the_value() {
    let nul: &[u8] = b"a\0b";
    for (values, told) in [
        (vec![], "no value"),
        (vec![&b"a"[..], b"\xFF"], "value 1, \"\\xFF\", is not UTF-8"),
        (vec![nul], "value 0"),
        (
            vec![&b"a"[..]; MAX_CHOICES + 1],
            "LLAMA_SIEVE_CHOICE_MAX_VALUES",
        ),
        (
            vec![&vec![b'a'; MAX_TEXT][..], b"b"],
            "LLAMA_SIEVE_GRAMMAR_MAX_TEXT",
        ),
    ] {
        let error = rules(&values).expect_err(told);
        assert!(error.contains(told), "{error}");
    }
    const { assert!(MAX_CHOICES <= MAX_RULES) };
}

#[test]
fn the_empty_text_is_a_value() {
    let tree = tree(["a".into()]);
    let grammar = Grammar::choice(&[b"", b"a"], &tree).expect("values");
    assert!(grammar.slot().is_complete());
    assert!(grammar.slot().allowed().allows(1));
    let other = Grammar::choice(&[b"a", b""], &tree).expect("values");
    assert!(other.slot().is_complete());
}
