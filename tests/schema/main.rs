//! Compares JSON Schemas with boon, a validator: texts that the masks allow must be valid, and
//! valid texts must be allowed.

#[path = "../support/mod.rs"]
mod support;

#[path = "../support/converter.rs"]
mod converter;
#[path = "../support/toolchain.rs"]
mod toolchain;

mod elsewhere;
mod llama_cpp;
mod maskbench;
mod random;
mod suite;

use std::sync::Arc;

use llama_sieve::grammar::schema::Options;
use llama_sieve::grammar::schema::formats::ENFORCED;
use llama_sieve::grammar::{Grammar, TokenTexts, VocabularyTree};
use llama_sieve::sampler::Sampler;
use llama_sieve::token::Token;
use serde_json::Value;
use support::{fresh_rng, number_from_env};
use test_crates::boon::{Compiler, Draft, SchemaIndex, Schemas};

/// A vocabulary of every byte except NUL and a few texts. The first token ends a generation.
#[derive(Debug)]
struct Bytes;

const WORDS: [&str; 12] = [
    "\":",
    "\",\"",
    "{\"",
    "\"}",
    "[]",
    "true",
    "null",
    "ab",
    "\\u00",
    "\u{e9}",
    "\u{65e5}\u{672c}",
    "\u{1f600}",
];

impl TokenTexts for Bytes {
    fn n_tokens(&self) -> usize {
        256 + WORDS.len()
    }

    fn is_eog(&self, token: Token) -> bool {
        token == 0
    }

    fn written_out(&self, token: Token, piece: &mut Vec<u8>) {
        piece.clear();
        match u8::try_from(token) {
            Ok(0) => {}
            Ok(byte) => piece.push(byte),
            Err(_) => piece.extend_from_slice(WORDS[token as usize - 256].as_bytes()),
        }
    }
}

fn tree() -> Arc<VocabularyTree> {
    Arc::new(VocabularyTree::new(&Bytes))
}

/// Returns the grammar of a schema; `None` if no value is valid; or the reason why the schema is
/// refused.
fn grammar(
    schema: &Value,
    options: Options,
    tree: &Arc<VocabularyTree>,
) -> Result<Option<Grammar>, String> {
    match Grammar::of_schema(schema.to_string().as_bytes(), options, tree) {
        Ok((grammar, left_out)) => {
            assert!(left_out.is_empty());
            Ok(Some(grammar))
        }
        Err(refused) if refused.what.contains("no value satisfies it") => Ok(None),
        Err(refused) => Err(refused.what),
    }
}

/// True if the text is accepted byte by byte, and may end there.
fn accepts(grammar: &Grammar, text: &str) -> bool {
    let mut grammar = grammar.clone();
    for byte in text.bytes() {
        if !grammar.slot().allowed().allows(Token::from(byte)) {
            return false;
        }
        grammar.accept(Token::from(byte));
    }
    grammar.slot().is_complete()
}

/// Returns a text drawn from the masks; `None` if it gets too long, or a number in it has more
/// digits than the validator's 64-bit numbers.
fn drawn(grammar: &Grammar, below: &mut random::Below<'_>) -> Option<Vec<u8>> {
    const LONG: usize = 200;
    let mut grammar = grammar.clone();
    let mut text = Vec::new();
    let mut piece = Vec::new();
    while text.len() < 3 * LONG {
        let mask = grammar.slot().allowed();
        let n = Bytes.n_tokens() as Token;
        let allowed: Vec<Token> = (0..n).filter(|&token| mask.allows(token)).collect();
        assert!(
            !allowed.is_empty(),
            "no way out of {}",
            String::from_utf8_lossy(&text)
        );
        let digits = text
            .iter()
            .rev()
            .take_while(|byte| matches!(byte, b'0'..=b'9' | b'.'));
        let n_digits = digits.count();
        if n_digits > 15 {
            return None;
        }
        let digit = |&token: &Token| matches!(u8::try_from(token), Ok(b'0'..=b'9' | b'.'));
        let mut ways = allowed.clone();
        if n_digits > 10 && !allowed.iter().all(digit) {
            ways.retain(|token| !digit(token));
        }
        // Tokens that close something are preferred, since short texts test as much as long ones.
        let closing = |&&token: &&Token| matches!(u8::try_from(token), Ok(0 | b'"' | b'}' | b']'));
        let close = ways.iter().find(closing);
        let token = match close {
            Some(&close) if text.len() > LONG || below(4) == 0 => close,
            _ => ways[below(ways.len())],
        };
        if token == 0 {
            return Some(text);
        }
        Bytes.written_out(token, &mut piece);
        text.extend_from_slice(&piece);
        grammar.accept(token);
    }
    None
}

/// Compiles a schema for the validator; `None` if it refuses the schema.
fn validator(schema: &Value) -> Option<(Schemas, SchemaIndex)> {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.set_default_draft(Draft::V2020_12);
    compiler
        .add_resource("http://host/schema.json", schema.clone())
        .ok()?;
    let index = compiler.compile("http://host/schema.json", &mut schemas);
    Some((schemas, index.ok()?))
}

/// LLAMA_SIEVE_TEST_SCHEMAS raises the number of schemas for a long run.
#[test]
fn random_schemas_allow_what_is_valid_and_nothing_else() {
    let mut rng = fresh_rng("schemas");
    let mut below = |n: usize| rng.below(n);
    // Drawing single bytes of characters could give a text that is not UTF-8.
    let bytes = tree();
    let any_order = Options {
        any_order: true,
        ..Options::default()
    };
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300);
    let (mut n_refused, mut n_valid, mut n_drawn) = (0, 0, 0);
    for _ in 0..n {
        let schema = random::whole(&mut below);
        let Some((schemas, index)) = validator(&schema) else {
            continue;
        };
        let is_valid = |value: &Value| schemas.validate(value, index).is_ok();
        let Ok(whole) = grammar(&schema, any_order, &bytes) else {
            n_refused += 1;
            continue;
        };
        for _ in 0..20 {
            let value = random::value(&mut below, 2);
            // It suffices that the grammar accepts the members in one order.
            let texts = suite::orders(&value);
            let is_let_through = whole
                .as_ref()
                .is_some_and(|grammar| texts.iter().any(|text| accepts(grammar, text)));
            assert_eq!(is_let_through, is_valid(&value), "{schema}: {value}");
            n_valid += usize::from(is_let_through);
        }
        // Drawn in the order of the schema and in any order, with everything that a text may
        // contain.
        let drawn_from =
            [any_order, Options::default()].map(|options| grammar(&schema, options, &bytes));
        for grammar in drawn_from.iter().flatten().flatten() {
            for _ in 0..4 {
                let Some(text) = drawn(grammar, &mut below) else {
                    continue;
                };
                let shown = String::from_utf8_lossy(&text);
                let value: Value = serde_json::from_slice(&text)
                    .unwrap_or_else(|error| panic!("{schema}: {shown}: {error}"));
                assert!(is_valid(&value), "{schema}: {shown}");
                n_drawn += 1;
            }
        }
    }
    println!(
        "{n} schemas, {n_refused} refused; {n_valid} values were valid, {n_drawn} texts drawn"
    );
    assert!(5 * n_refused < n, "{n_refused} of {n} schemas are refused");
    assert!(n_valid > 2 * n && n_drawn > 2 * n, "{n_valid} {n_drawn}");
}

#[test]
fn texts_of_a_format_are_what_a_validator_takes_for_it() {
    let mut rng = fresh_rng("formats");
    let mut below = |n: usize| rng.below(n);
    let bytes = tree();
    // The validator reads the "?" of a template's "{?name}" as the beginning of a query.
    for format in ENFORCED
        .into_iter()
        .filter(|&format| format != "uri-template")
    {
        let schema = serde_json::json!({ "type": "string", "format": format });
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.enable_format_assertions();
        let add = compiler.add_resource("http://host/schema.json", schema.clone());
        add.expect("a schema");
        let index = compiler.compile("http://host/schema.json", &mut schemas);
        let index = index.expect("a schema");
        let whole = grammar(&schema, Options::default(), &bytes).expect("enforced");
        let whole = whole.expect("a text follows");
        let mut n_drawn = 0;
        for _ in 0..100 {
            let Some(text) = drawn(&whole, &mut below) else {
                continue;
            };
            let value: Value = serde_json::from_slice(&text).expect("JSON");
            let is_valid = schemas.validate(&value, index).is_ok();
            assert!(is_valid, "{format}: {value}");
            n_drawn += 1;
        }
        assert!(n_drawn > 20, "{format}: {n_drawn}");
    }
}
