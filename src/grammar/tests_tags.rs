//! Tests of tags in free text.

use std::sync::Arc;

use crate::grammar::limits::{MAX_TAG_TEXT, MAX_TAG_TEXTS, MAX_TAGS};
use crate::grammar::tags::Tags;
use crate::grammar::tests_texts::tree;
use crate::grammar::{Grammar, VocabularyTree};
use crate::lcg::Lcg;
use crate::sampler::Sampler;
use crate::token::Token;

/// Returns the pieces of the vocabulary. Token 0 ends the generation, and token 1 is the first
/// piece.
fn pieces() -> Vec<String> {
    let singles = "<>/abx12é".chars().map(String::from);
    let more = [
        "<a", "a>", "<a>", "</a>", ">1", "1<", "x<b>", "b>2</", "<<", "a>1</a", "<|t|>",
    ];
    singles.chain(more.map(String::from)).collect()
}

fn numbered(piece: &str) -> Token {
    1 + pieces()
        .iter()
        .position(|own| own == piece)
        .expect("a piece") as Token
}

fn made(json: &str, tree: &Arc<VocabularyTree>) -> Result<Grammar, String> {
    let token = |text: &[u8]| {
        let at = pieces().iter().position(|own| own.as_bytes() == text)?;
        Some(at as Token + 1)
    };
    let tags = Tags::read(json.as_bytes())?;
    Grammar::tags(&tags, tree, token).map_err(|refused| refused.what)
}

const TWO: &str = r#"{"begin": "<a>", "regex": "[12]+", "end": "</a>"},
                     {"begin": "<b>", "regex": "x?", "end": "</"}"#;

fn with(rest: &str) -> String {
    format!("{{\"tags\": [{TWO}]{rest}}}")
}

/// True if a text has the form that the tags require. It is read from left to right, without a
/// grammar.
fn is_right(text: &str, required: bool, once: bool) -> bool {
    let mut rest = text;
    let mut n_spans = 0;
    loop {
        let begin = ["<a>", "<b>"]
            .into_iter()
            .filter_map(|tag| Some((rest.find(tag)?, tag)))
            .min();
        let Some((at, tag)) = begin else {
            return (n_spans > 0 || !required) && (n_spans == 0 || !once || rest.is_empty());
        };
        if once && n_spans > 0 {
            return false;
        }
        rest = &rest[at + 3..];
        n_spans += 1;
        if tag == "<a>" {
            let behind = rest.trim_start_matches(['1', '2']);
            let Some(behind) = behind
                .strip_prefix("</a>")
                .filter(|_| behind.len() < rest.len())
            else {
                return false;
            };
            rest = behind;
        } else {
            let behind = rest.strip_prefix('x').unwrap_or(rest);
            let Some(behind) = behind.strip_prefix("</") else {
                return false;
            };
            rest = behind;
        }
    }
}

/// True if more characters can give `text` that form. A few continuations are tried.
fn may_become_right(text: &str, required: bool, once: bool) -> bool {
    const ENDS: [&str; 13] = [
        "", ">1</a>", "1</a>", "</a>", "/a>", "a>", ">", "></", "x</", "</", "/", "<a>1</a>",
        "b></",
    ];
    ENDS.iter()
        .any(|end| is_right(&format!("{text}{end}"), required, once))
}

#[test]
fn begin_tags_open_spans_in_every_tokenization() {
    let tree = tree(pieces());
    let pieces = pieces();
    let mut lcg = Lcg(9);
    for (required, once) in [(false, false), (true, false), (false, true), (true, true)] {
        let rest = format!(", \"required\": {required}, \"once\": {once}");
        let made = made(&with(&rest), &tree).expect("tags");
        let mut n_complete = 0;
        for _ in 0..60 {
            let mut grammar = made.clone();
            let mut text = String::new();
            for _ in 0..12 {
                let mask = grammar.slot().allowed();
                let is_complete = is_right(&text, required, once);
                assert_eq!(grammar.slot().is_complete(), is_complete, "{text:?}");
                n_complete += usize::from(is_complete);
                for (token, piece) in (1..).zip(&pieces) {
                    let longer = format!("{text}{piece}");
                    let expected = may_become_right(&longer, required, once);
                    assert_eq!(mask.allows(token), expected, "{rest} {longer:?}");
                }
                let n = pieces.len() as Token;
                let allowed: Vec<Token> = (1..=n).filter(|&token| mask.allows(token)).collect();
                if allowed.is_empty() {
                    break;
                }
                let token = allowed[(lcg.bits() >> 12) as usize % allowed.len()];
                text += &pieces[token as usize - 1];
                grammar.accept(token);
            }
        }
        assert!(n_complete > 20, "{n_complete}");
    }
}

#[test]
fn a_tag_that_is_a_token_is_not_its_text() {
    let tree = tree(pieces());
    let json = r#"{"tags": [{"begin": {"token": "<|t|>"}, "regex": "a+", "end": {"token": 8}}]}"#;
    let mut grammar = made(json, &tree).expect("tags");
    let (tag, end, a) = (numbered("<|t|>"), 8, numbered("a"));
    assert!(!grammar.slot().allowed().allows(end), "it is no free text");
    grammar.accept(numbered("<"));
    assert!(grammar.slot().is_complete() && grammar.slot().allowed().allows(tag));
    grammar.accept(tag);
    assert!(!grammar.slot().is_complete());
    let mask = grammar.slot().allowed();
    assert!(mask.allows(a) && !mask.allows(tag) && !mask.allows(end));
    assert_eq!(mask.count(), 1);
    grammar.accept(a);
    assert_eq!(grammar.slot().accepts(&[a, end, a, tag, a, end, 0]), 7);
    grammar.accept(end);
    assert!(grammar.slot().is_complete());
}

#[test]
fn a_grammar_is_a_content_and_what_needs_no_end_ends_by_itself() {
    let tree = tree(pieces());
    let json = r#"{"tags": [{"begin": "<a>", "grammar": "root ::= x{2} x?\nx ::= [12]", "end": ""},
                            {"begin": "<b>", "grammar": "root ::= <|t|> \"1\""}], "once": true}"#;
    let mut grammar = made(json, &tree).expect("tags");
    let ids =
        |pieces: &[&str]| -> Vec<Token> { pieces.iter().map(|piece| numbered(piece)).collect() };
    let slot = Arc::clone(grammar.slot());
    assert_eq!(slot.accepts(&ids(&["x", "<a>", "1", "2", "1", "1"])), 5);
    assert_eq!(slot.accepts(&ids(&["x<b>", "<|t|>", "1", "x"])), 3);
    grammar.accept(numbered("<a>"));
    assert!(!slot.is_complete());
    grammar.accept(numbered("1"));
    grammar.accept(numbered("1"));
    assert!(slot.is_complete());
}

#[test]
fn refusals_name_the_tag() {
    let tree = tree(pieces());
    let tag = |tag: &str| format!("{{\"tags\": [{tag}]}}");
    let many = vec![r#"{"begin": "<", "regex": "a"}"#; MAX_TAGS + 1].join(",");
    let long = format!(
        r#"{{"begin": "{}", "regex": "a"}}"#,
        "<".repeat(MAX_TAG_TEXT + 1)
    );
    let long_token = format!(
        r#"{{"begin": {{"token": "{}"}}, "regex": "a"}}"#,
        "<".repeat(MAX_TAG_TEXT + 1)
    );
    // The limits for one tag also hold for all tags together.
    let repeated = |n: usize, content: &str| {
        let tag = |i: usize| format!("{{\"begin\": \"<{i}>\", {content}}}");
        (0..n).map(tag).collect::<Vec<_>>().join(", ")
    };
    let classes = repeated(100, &format!("\"regex\": \"{}\"", "\\\\pL".repeat(60)));
    let slow = r#""json_schema": {"enum": ["aaaaaaaaaaaaab"], "pattern": "a.{12}b$"}"#;
    let slow = repeated(100, slow);
    for (json, told) in [
        ("", "EOF"),
        ("[]", "an object with \"tags\""),
        (r#"{"tags": []}"#, "\"tags\" is empty"),
        (r#"{"tags": [], "twice": true}"#, "unknown field `twice`"),
        (
            r#"{"tags": [], "once": true, "once": true}"#,
            "duplicate field `once`",
        ),
        (&tag(r#"{"regex": "a"}"#), "missing field `begin`"),
        (
            &tag(r#"{"begin": 7, "regex": "a"}"#),
            "a text, or {\"token\"",
        ),
        (
            &tag(r#"{"begin": "", "regex": "a"}"#),
            "tag 0: \"begin\" is empty",
        ),
        (
            &tag(r#"{"begin": "a\u0000", "regex": "a"}"#),
            "has NUL in it",
        ),
        (
            &tag(r#"{"begin": "<"}"#),
            "tag 0: it needs one of \"json_schema\", \"regex\" and",
        ),
        (
            &tag(r#"{"begin": "<", "regex": "a", "grammar": "b"}"#),
            "needs one of",
        ),
        (
            &tag(r#"{"begin": "<", "json_schema": {"type": "objects"}}"#),
            "tag 0: \"json_schema\": the schema at \"#\"",
        ),
        (
            &tag(r#"{"begin": "<", "regex": "a("}"#),
            "tag 0: \"regex\": byte 1",
        ),
        (&tag(r#"{"begin": "<", "regex": "[a&&b]"}"#), "no text"),
        (
            &tag(r#"{"begin": "<", "grammar": "root ::= ("}"#),
            "tag 0: \"grammar\": line 1",
        ),
        (
            &tag(r#"{"begin": "<", "grammar": "root ::= root \"a\""}"#),
            "left recursion",
        ),
        (
            &tag(r#"{"begin": {"token": "none"}, "regex": "a"}"#),
            "\"none\" is not one token",
        ),
        (
            &tag(r#"{"begin": {"token": 0}, "regex": "a"}"#),
            "token 0 is none",
        ),
        (
            &tag(r#"{"begin": {"token": -1}, "regex": "a"}"#),
            "token -1 is none",
        ),
        (
            &tag(r#"{"begin": "<", "regex": "a"}, {"begin": "a<b", "regex": "a"}"#),
            "tag 1",
        ),
        (
            &tag(r#"{"begin": "<a", "regex": "a"}, {"begin": "<", "regex": "a"}"#),
            "tag 0: its begin",
        ),
        (
            &tag(r#"{"begin": "ab<", "regex": "a"}, {"begin": "b<", "regex": "a"}"#),
            "of tag 1",
        ),
        (&tag(&many), "LLAMA_SIEVE_TAGS_MAX"),
        (&tag(&long), "LLAMA_SIEVE_TAGS_MAX_BYTES"),
        (&tag(&long_token), "LLAMA_SIEVE_TAGS_MAX_BYTES"),
        (
            &tag(r#"{"begin": "<", "grammar": "root ::= (\"a\" !<[3]>){2}"}"#),
            "tag 0: \"grammar\": !<...>",
        ),
        (&tag(&classes), "LLAMA_SIEVE_PATTERN_MAX_CLASSES"),
        (&tag(&slow), "LLAMA_SIEVE_JSON_MAX_STEPS"),
    ] {
        let error = made(json, &tree).expect_err(told);
        assert!(error.contains(told), "{told}: {error}");
    }
}

/// Time and memory depend on the characters of all tags together.
#[test]
fn the_texts_of_all_tags_are_limited_together() {
    let tree = tree(pieces());
    let of = |n_more: usize| {
        let n = MAX_TAG_TEXTS / MAX_TAG_TEXT;
        let tags = (0..n).map(|i| {
            let begin = format!("<{i:03}>");
            let end = "ab1x".repeat(MAX_TAG_TEXT);
            let n_bytes = MAX_TAG_TEXT - begin.len() + usize::from(i < n_more);
            let end = end.get(i..i + n_bytes).unwrap_or_default();
            format!(r#"{{"begin": "{begin}", "regex": "a", "end": "{end}"}}"#)
        });
        let tags: Vec<String> = tags.collect();
        format!(r#"{{"tags": [{}]}}"#, tags.join(","))
    };
    made(&of(0), &tree).expect("as many as may be");
    let told = made(&of(1), &tree).expect_err("one more");
    assert!(
        told.contains("131073 bytes together") && told.contains("LLAMA_SIEVE_TAGS_MAX_TEXT"),
        "{told}"
    );
}
