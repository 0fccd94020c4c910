//! Compares the option `LLAMA_CPP`, which reads schemas like llama.cpp's own converter, with that
//! converter: schemas that it refuses are refused, and for all others the masks are those of its
//! grammar.

use std::ffi::CString;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use llama_sieve::ffi::grammar::schema::{LLAMA_SIEVE_JSON_LLAMA_CPP, llama_sieve_init_json_schema};
use llama_sieve::grammar::parser::Repetitions;
use llama_sieve::grammar::schema::{Options, to_gbnf};
use llama_sieve::grammar::{Grammar, TokenTexts, VocabularyTree};
use llama_sieve::sampler::Sampler;
use llama_sieve::token::Token;
use serde_json::{Value, json};
use vendor_llama_cpp::sys;

use crate::converter::Converter;
use crate::random::{self, Below};
use crate::support::compare::same;
use crate::support::family::vocabulary;
use crate::support::{Array, HostSampler, fresh_rng, number_from_env};
use crate::{Bytes, accepts, tree};

const LLAMA_CPP: Options = Options {
    compact: false,
    closed: false,
    any_order: false,
    lenient: false,
    llama_cpp: true,
};

static TREE: LazyLock<Arc<VocabularyTree>> = LazyLock::new(tree);

fn converter() -> MutexGuard<'static, Converter> {
    static CONVERTER: LazyLock<Mutex<Converter>> =
        LazyLock::new(|| Mutex::new(Converter::new("convert_schemas")));
    CONVERTER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reasons for which only this library refuses a schema: no text satisfies it, the converter
/// computes with numbers that overflow, or it would need an unbounded stack.
const OURS_ALONE: [&str; 6] = [
    "a count behind nothing",
    "no value satisfies it",
    "no integer is between the bounds",
    "beyond 64 bits",
    "or a zero in its name",
    "LLAMA_SIEVE_JSON_MAX_STEPS",
];

/// Returns both grammars of a schema; `None` if both refuse it, or this library does for one of the
/// reasons in [`OURS_ALONE`].
///
/// # Panics
/// If only one is refused for any other reason.
fn both(schema: &str) -> Option<(Grammar, Grammar)> {
    let converted = converter().convert(schema);
    let theirs = converted.clone().and_then(|text| {
        let read = Grammar::new(&text, b"root", Repetitions::Many, &TREE, |_| None);
        read.map_err(|refused| refused.what)
    });
    let ours = Grammar::of_schema(schema.as_bytes(), LLAMA_CPP, &TREE);
    match (ours, theirs) {
        (Ok((ours, _)), Ok(theirs)) => Some((ours, theirs)),
        (Err(_), Err(_)) => None,
        (Err(ours), Ok(_)) if OURS_ALONE.iter().any(|why| ours.what.contains(why)) => None,
        (Err(ours), Ok(_)) => panic!("{schema}: only ours is refused: {}", ours.what),
        (Ok(_), Err(theirs)) => panic!(
            "{schema}: only theirs is refused: {theirs}\n{:?}",
            converted.map(|text| String::from_utf8_lossy(&text).into_owned())
        ),
    }
}

fn allowed(grammar: &Grammar) -> Vec<Token> {
    let mask = grammar.slot().allowed();
    let all = 0..Bytes.n_tokens() as Token;
    all.filter(|&token| mask.allows(token)).collect()
}

/// Walks through both grammars, and compares the masks. Returns the number of steps.
fn walk(schema: &str, ours: &Grammar, theirs: &Grammar, below: &mut Below<'_>) -> usize {
    const LONG: usize = 120;
    let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
    let (mut text, mut piece) = (Vec::new(), Vec::new());
    for step in 0..LONG {
        let tokens = allowed(&ours);
        let others = allowed(&theirs);
        assert!(
            tokens == others,
            "{schema}: behind {:?}: ours {tokens:?}, theirs {others:?}",
            String::from_utf8_lossy(&text)
        );
        assert_eq!(ours.slot().is_complete(), theirs.slot().is_complete());
        let closes = |token: &&Token| matches!(u8::try_from(**token), Ok(b'"' | b'}' | b']'));
        let ascii = tokens.iter().filter(|token| (0x20..0x7F).contains(*token));
        let ascii: Vec<Token> = ascii.copied().collect();
        let token = match (tokens.iter().find(closes), &*ascii) {
            (Some(&close), _) if step > LONG / 3 || below(6) == 0 => close,
            (_, [_, ..]) if below(3) > 0 => ascii[below(ascii.len())],
            _ if tokens.is_empty() => return step,
            _ => tokens[below(tokens.len())],
        };
        if token == 0 {
            return step;
        }
        Bytes.written_out(token, &mut piece);
        text.extend_from_slice(&piece);
        ours.accept(token);
        theirs.accept(token);
    }
    LONG
}

fn compare(schema: &str, below: &mut Below<'_>) -> usize {
    let Some((ours, theirs)) = both(schema) else {
        return 0;
    };
    let mut n_steps = 0;
    for _ in 0..6 {
        n_steps += walk(schema, &ours, &theirs, below);
    }
    for _ in 0..8 {
        let value = random::value(below, 2).to_string();
        let is_accepted = accepts(&ours, &value);
        assert_eq!(is_accepted, accepts(&theirs, &value), "{schema}: {value}");
    }
    // Names of members, beginnings of these, and names with the same beginning.
    for name in NAMES
        .into_iter()
        .chain(["^", "^b", "a-", "a.", "abd", "x", "\u{e9}"])
    {
        let text = format!("{{{}:1}}", json!(name));
        let is_accepted = accepts(&ours, &text);
        assert_eq!(is_accepted, accepts(&theirs, &text), "{schema}: {text}");
    }
    n_steps
}

fn one<'a>(below: &mut Below<'_>, all: &[&'a str]) -> &'a str {
    all[below(all.len())]
}

fn object(members: &[(String, String)]) -> String {
    let members = members.iter();
    let members = members.map(|(name, value)| format!("{}: {value}", json!(name)));
    format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
}

const NAMES: [&str; 18] = [
    "a",
    "b",
    "ab",
    "abc",
    "b",
    "a",
    "a-b",
    "a_b",
    "*",
    "",
    "date_time",
    "date",
    "integral part",
    "x^",
    "\u{e9}\u{65e5}",
    "\"q",
    "root",
    "n\n",
];

const PARTS: [&str; 44] = [
    "a",
    "b",
    "ab",
    "abc",
    "\u{e9}",
    "\u{65e5}",
    ".",
    "\\.",
    "\\n",
    "\\-",
    "\\\\",
    "\"",
    "\\\"",
    "[a-c]",
    "[^x]",
    "[]",
    "[^]",
    "[a\\]b]",
    "[\u{e9}-\u{ff}]",
    "[a-]",
    "(",
    ")",
    "(?:",
    "(a|b)",
    "(ab)",
    "|",
    "*",
    "+",
    "?",
    "{2}",
    "{1,}",
    "{0,3}",
    "{,2}",
    "{0}",
    "{2,1}",
    "\\d",
    "\\x41",
    "\\u00e9",
    " ",
    "/",
    "-",
    "]",
    "}",
    "()",
];

fn pattern(below: &mut Below<'_>) -> String {
    if below(8) == 0 {
        return one(
            below,
            &["", "^", "$", "^$", "a", "^a", "^(a$", "^a\\$", "^(?=a)b$"],
        )
        .to_owned();
    }
    let mut text = String::from("^");
    for _ in 0..=below(6) {
        text += one(below, &PARTS);
    }
    text + "$"
}

fn number(below: &mut Below<'_>) -> String {
    match below(6) {
        0 => format!("{}", below(12) as i64 - 4),
        1 => format!("{}", below(1200) as i64 - 400),
        2 => format!("{}.{}", below(40), below(100)),
        3 => one(
            below,
            &["-10", "99", "100", "1000", "-0", "12345", "1e3", "-2.5"],
        )
        .to_owned(),
        4 => format!("{}", 10_i64.pow(below(19) as u32) - below(2) as i64),
        _ => format!("-{}{}", 1 + below(9), "0".repeat(below(17))),
    }
}

fn list(below: &mut Below<'_>, depth: usize) -> String {
    let all: Vec<String> = (0..=below(2)).map(|_| schema(below, depth)).collect();
    format!("[{}]", all.join(","))
}

fn members(below: &mut Below<'_>, depth: usize) -> String {
    let all: Vec<(String, String)> = (0..below(5))
        .map(|_| (one(below, &NAMES).to_owned(), schema(below, depth)))
        .collect();
    object(&all)
}

fn names(below: &mut Below<'_>) -> Value {
    (0..below(4)).map(|_| one(below, &NAMES)).collect()
}

/// Returns a random schema of keywords that the converter reads, and some that it does not.
fn schema(below: &mut Below<'_>, depth: usize) -> String {
    const TYPES: [&str; 7] = [
        "null", "boolean", "integer", "number", "string", "array", "object",
    ];
    const REFERENCES: [&str; 9] = [
        "#/$defs/0",
        "#/$defs/1",
        "#/$defs/a_b",
        "#/$defs/a-b",
        "#/properties/a",
        "#/$defs/0/properties/a",
        "#/$defs/list/0",
        "#",
        "#/nothing",
    ];
    let kind = below(if depth == 0 { 8 } else { 16 });
    let mut all: Vec<(String, String)> = Vec::new();
    let mut say = |keyword: &str, value: String| {
        if !all.iter().any(|(other, _)| other == keyword) || value.len().is_multiple_of(7) {
            all.push((keyword.to_owned(), value));
        }
    };
    match kind {
        0 => say("type", json!(one(below, &TYPES)).to_string()),
        1 => say(
            "enum",
            json!([random::value(below, 1), random::value(below, 2)]).to_string(),
        ),
        2 => say("const", random::value(below, 2).to_string()),
        3 => say("type", "\"integer\"".into()),
        4 => say("type", "\"string\"".into()),
        5 => say("$ref", json!(one(below, &REFERENCES[..7])).to_string()),
        6 => say("$ref", json!(one(below, &REFERENCES)).to_string()),
        7 => say(
            "type",
            json!([one(below, &TYPES), one(below, &TYPES)]).to_string(),
        ),
        8..=10 => say("properties", members(below, depth - 1)),
        11 => say("allOf", list(below, depth - 1)),
        12 => say(one(below, &["anyOf", "oneOf"]), list(below, depth - 1)),
        13 => say("type", "\"array\"".into()),
        14 => say("items", schema(below, depth - 1)),
        _ => say("type", "\"object\"".into()),
    }
    for _ in 0..below(5) {
        match below(if depth == 0 { 14 } else { 22 }) {
            0 => say("minimum", number(below)),
            1 => say("maximum", number(below)),
            2 => say("exclusiveMinimum", number(below)),
            3 => say("exclusiveMaximum", number(below)),
            4 => say("minLength", below(4).to_string()),
            5 => say("maxLength", below(5).to_string()),
            6 => say("pattern", json!(pattern(below)).to_string()),
            7 => {
                let formats = [
                    "date",
                    "time",
                    "date-time",
                    "uuid",
                    "uuid4",
                    "uuid9",
                    "email",
                ];
                say("format", json!(one(below, &formats)).to_string());
            }
            8 => say("minItems", below(4).to_string()),
            9 => say("maxItems", below(4).to_string()),
            10 | 11 => say("required", names(below).to_string()),
            12 => say(
                "additionalProperties",
                one(below, &["true", "false", "{}"]).to_owned(),
            ),
            13 => say(
                one(below, &["title", "uniqueItems", "not", "minProperties"]),
                number(below),
            ),
            14 => say("additionalProperties", schema(below, depth - 1)),
            15 => say("properties", members(below, depth - 1)),
            16 => say("items", list(below, depth - 1)),
            17 => say("prefixItems", list(below, depth - 1)),
            18 => say("items", schema(below, depth - 1)),
            19 => say(
                one(below, &["anyOf", "oneOf", "allOf"]),
                list(below, depth - 1),
            ),
            20 => say("enum", json!([random::value(below, 1)]).to_string()),
            _ => say(
                "type",
                one(below, &["\"string\"", "\"object\"", "\"\"", "null"]).to_owned(),
            ),
        }
    }
    if below(40) == 0 {
        say(
            "type",
            one(below, &["7", "[]", "\"text\"", "[\"string\", 7]", "{}"]).to_owned(),
        );
    }
    object(&all)
}

fn whole(below: &mut Below<'_>) -> String {
    let text = schema(below, 2);
    let definitions = object(&[
        ("0".to_owned(), schema(below, 1)),
        ("1".to_owned(), schema(below, 2)),
        ("a_b".to_owned(), schema(below, 1)),
        ("a-b".to_owned(), schema(below, 1)),
        ("list".to_owned(), list(below, 1)),
    ]);
    match text.len() > 2 {
        true => format!("{}, \"$defs\": {definitions}}}", &text[..text.len() - 1]),
        false => text,
    }
}

#[test]
fn random_schemas_have_the_masks_of_the_converters_grammar() {
    let mut rng = fresh_rng("schemas for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300) * 4;
    let (mut n_converted, mut n_steps) = (0, 0);
    for _ in 0..n {
        let steps = compare(&whole(&mut below), &mut below);
        n_converted += usize::from(steps > 0);
        n_steps += steps;
    }
    println!("{n} schemas, {n_converted} converted, {n_steps} steps");
    assert!(2 * n_converted > n, "{n_converted} of {n} schemas");
}

/// Schemas for each feature, and for each case in which the converter does something unexpected.
const SCHEMAS: [&str; 66] = [
    "{}",
    r#"{"title": "anything", "not": {}, "if": {"type": "null"}, "uniqueItems": true}"#,
    r#"{"type": "object"}"#,
    r#"{"type": "object", "additionalProperties": true, "required": ["a"]}"#,
    r#"{"type": "object", "properties": {}}"#,
    r#"{"additionalProperties": false}"#,
    r#"{"type": "object", "additionalProperties": {"type": "integer"}}"#,
    r#"{"properties": {"b": {}, "a": {"type": "null"}, "c": {}}, "required": ["c", "b", "d"]}"#,
    r#"{"properties": {"a": {}, "b": {}, "c": {}}}"#,
    r#"{"properties": {"a": {}, "b": {}}, "required": ["b"], "additionalProperties": true}"#,
    r#"{"properties": {"ab": {}, "abcd": {}, "x": {}}, "additionalProperties": {"type": "null"}}"#,
    r#"{"properties": {"": {"type": "null"}}, "additionalProperties": true}"#,
    r#"{"properties": {"": {"type": "null"}, "a": {"const": 1}}}"#,
    // A dash between two characters, and a "^", have a meaning in the converter's classes.
    r#"{"properties": {"a-b": {}, "ax": {}, "a\"": {}}, "additionalProperties": true}"#,
    r#"{"properties": {"^a": {}, "a^": {}, "b^": {}}, "additionalProperties": true}"#,
    r#"{"properties": {"\u00e9": {}, "\u65e5\u672c": {}}, "additionalProperties": true}"#,
    r#"{"properties": {"a]": {}}, "additionalProperties": true}"#,
    r#"{"properties": {"a]": {}, "a\\b": {}, "a\u0001\n\t/\u007f": {}}}"#,
    // A member that is named like the mark for unnamed members, and a keyword three times.
    r#"{"properties": {"*": {}, "a": {}}, "additionalProperties": {"type": "null"}}"#,
    r#"{"properties": {"*": {"type": "null"}, "a": {}}}"#,
    r#"{"properties": {"a": {}}, "properties": {"b": {}}, "properties": {"c": {}}}"#,
    r#"{"type": "array"}"#,
    r#"{"type": "array", "minItems": 1}"#,
    r#"{"items": {"type": "boolean"}, "minItems": 2, "maxItems": 3}"#,
    r#"{"items": {"type": "boolean"}, "maxItems": 1}"#,
    r#"{"items": {"type": "boolean"}, "minItems": 1, "maxItems": 1}"#,
    r#"{"items": {"type": "boolean"}, "maxItems": 0}"#,
    r#"{"items": {"type": "boolean"}, "minItems": 2, "maxItems": 1}"#,
    r#"{"items": {"type": "boolean"}, "minItems": 3, "maxItems": 2}"#,
    r#"{"items": [{"type": "null"}, {"type": "integer"}], "minItems": 7}"#,
    r#"{"prefixItems": [{"type": "null"}], "items": {"type": "integer"}}"#,
    r#"{"prefixItems": [], "type": "array"}"#,
    r#"{"prefixItems": {"type": "null"}}"#,
    r#"{"type": "string", "minLength": 2}"#,
    r#"{"maxLength": 2}"#,
    r#"{"minLength": 2, "maxLength": 3}"#,
    r#"{"minLength": 3, "maxLength": 2}"#,
    r#"{"minLength": 3, "maxLength": 0}"#,
    r#"{"maxLength": 4294967297}"#,
    r#"{"maxLength": 2147483647}"#,
    r#"{"minLength": 1.0}"#,
    r#"{"format": "date"}"#,
    r#"{"format": "time"}"#,
    r#"{"type": "string", "format": "date-time", "minLength": 3}"#,
    r#"{"type": "string", "format": "uuid5"}"#,
    r#"{"type": "string", "format": "email"}"#,
    r#"{"type": ["integer", "null", "string"], "minimum": 3, "maxLength": 2}"#,
    r#"{"type": [["null"], []]}"#,
    r#"{"type": null, "minLength": 1}"#,
    r#"{"type": 7, "const": [1, {"b": 1, "a": [null, true, "\u00e9\u0007\"/"]}]}"#,
    r#"{"enum": [1, -0, 1.0, 1e5, 0.1, -0.0, 1e-5, 123456789012345680000, 1e100, 5e-324, 1e15, 999999999999999.0, 12.5e14, 1e-4, "\u0000"]}"#,
    r#"{"type": "string", "enum": [1, "a"], "const": 2}"#,
    r#"{"oneOf": [{"const": 1}, {"const": 2}], "anyOf": [{"const": 3}], "type": "null"}"#,
    r##"{"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"b": {}}}, {"anyOf": [{"properties": {"c": {}}}]}],
        "$defs": {"a": {"properties": {"a": {"type": "null"}}, "required": []}}}"##,
    r#"{"allOf": [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"const": 1}}}]}"#,
    r#"{"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, "2"]}, {"anyOf": [{"enum": [3]}, {"enum": [4]}]}]}"#,
    r#"{"allOf": [{"enum": [1]}, {"type": "integer"}]}"#,
    r#"{"type": "string", "allOf": [{"minLength": 1}]}"#,
    r##"{"$ref": "#/$defs/list", "$defs": {"list": {"properties": {"next": {"$ref": "#/$defs/list"}}}}}"##,
    r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##,
    r##"{"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"const": 1}]}}}"##,
    r##"{"$ref": "#/$defs/a%20b", "$defs": {"a b": {"const": 1}}}"##,
    // Two names, or a name and a rule of the converter, that collide.
    r##"{"items": [{"$ref": "#/$defs/a_b"}, {"$ref": "#/$defs/a-b"}], "$defs": {"a_b": {"const": 1}, "a-b": {"const": 2}}}"##,
    r#"{"properties": {"date_time": {"type": ["integer", "null"]}, "then": {"format": "date-time"}}}"#,
    r#"{"properties": {"integral part": {"const": "x"}, "n": {"type": "integer"}, "f": {"type": "number"}}}"#,
    r##"{"properties": {"ref-x": {"const": 1}, "y": {"$ref": "#/x"}}, "x": {"const": 2}}"##,
];

#[test]
fn each_feature_has_the_masks_of_the_converters_grammar() {
    let mut rng = fresh_rng("features for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let mut n_converted = 0;
    for schema in SCHEMAS {
        n_converted += usize::from(compare(schema, &mut below) > 0);
        // The same with the text of a grammar.
        let Some((ours, _)) = both(schema) else {
            continue;
        };
        let (text, _) = to_gbnf(schema.as_bytes(), LLAMA_CPP).expect("the same");
        let read = Grammar::new(text.as_bytes(), b"root", Repetitions::Many, &TREE, |_| None);
        let read = read.unwrap_or_else(|refused| panic!("{schema}: {text}: {refused:?}"));
        walk(schema, &ours, &read, &mut below);
    }
    assert!(n_converted > 50, "{n_converted}");
}

#[test]
fn integers_have_the_masks_of_the_converters_grammar() {
    let mut rng = fresh_rng("integers for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300);
    let (mut n_converted, mut n_accepted) = (0, 0);
    for _ in 0..n {
        let (a, b) = (number(&mut below), number(&mut below));
        let schema = match below(4) {
            0 => format!(r#"{{"type": "integer", "minimum": {a}}}"#),
            1 => format!(r#"{{"type": "integer", "maximum": {a}}}"#),
            2 => format!(
                r#"{{"type": "integer", "exclusiveMinimum": {a}, "exclusiveMaximum": {b}}}"#
            ),
            _ => format!(r#"{{"type": "integer", "minimum": {a}, "maximum": {b}}}"#),
        };
        let Some((ours, theirs)) = both(&schema) else {
            continue;
        };
        n_converted += usize::from(walk(&schema, &ours, &theirs, &mut below) > 0);
        for _ in 0..20 {
            let text = number(&mut below);
            let is_accepted = accepts(&ours, &text);
            assert_eq!(is_accepted, accepts(&theirs, &text), "{schema}: {text}");
            n_accepted += usize::from(is_accepted);
        }
    }
    assert!(
        2 * n_converted > n && n_accepted > n,
        "{n_converted} {n_accepted}"
    );
}

#[test]
fn patterns_have_the_masks_of_the_converters_grammar() {
    let mut rng = fresh_rng("patterns for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300) * 10;
    let mut n_converted = 0;
    for _ in 0..n {
        let schema = json!({ "pattern": pattern(&mut below) }).to_string();
        if let Some((ours, theirs)) = both(&schema) {
            n_converted += usize::from(walk(&schema, &ours, &theirs, &mut below) > 0);
        }
    }
    println!("{n} patterns, {n_converted} converted");
    assert!(3 * n_converted > n, "{n_converted} of {n}");
}

/// Numbers that the converter rewrites in decimal notation. Only numbers for which it finds the
/// shortest digits are compared: for about one in 700 of all others it writes a digit too many.
#[test]
fn constants_have_the_masks_of_the_converters_grammar() {
    let mut rng = fresh_rng("constants for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300);
    for _ in 0..n {
        let numbers: Vec<String> = (0..10)
            .map(|_| {
                let sign = one(&mut below, &["", "-"]);
                let n_digits = 1 + below(6) as u32;
                let digits = below(10_usize.pow(n_digits));
                let exponent = [-4, -3, -2, -1, 0, 1, 3, 5][below(8)];
                format!("{sign}{digits}e{exponent}")
            })
            .collect();
        let schema = format!(r#"{{"enum": [{}]}}"#, numbers.join(", "));
        let (ours, theirs) = both(&schema).expect("numbers of 64 bits");
        for _ in 0..10 {
            walk(&schema, &ours, &theirs, &mut below);
        }
    }
}

/// Compares with the built-in grammar itself, on the tokens of a trained model.
#[test]
fn the_sampler_has_the_masks_of_the_hosts_own() {
    let mut rng = fresh_rng("schemas for llama.cpp's own grammar");
    let mut n_steps = 0;
    for schema in SCHEMAS {
        let converted = converter().convert(schema);
        let Some(_) = both(schema) else {
            continue;
        };
        let grammar = CString::new(converted.expect("it is converted")).expect("no NUL");
        let schema_text = CString::new(schema).expect("no NUL");
        // SAFETY: a vocabulary and C strings.
        let (ours, theirs) = unsafe {
            let vocab = vocabulary();
            let flags = LLAMA_SIEVE_JSON_LLAMA_CPP;
            (
                llama_sieve_init_json_schema(vocab.cast(), schema_text.as_ptr(), flags),
                sys::llama_sampler_init_grammar(vocab, grammar.as_ptr(), c"root".as_ptr()),
            )
        };
        let (ours, theirs) = (HostSampler::new(ours), HostSampler::new(theirs));
        // SAFETY: a vocabulary.
        let n_tokens = unsafe { sys::llama_vocab_n_tokens(vocabulary()) };
        for _ in 0..24 {
            let mut left = Array::of_logits(vec![0.0; n_tokens as usize]);
            let mut right = left.clone();
            ours.apply(&mut left);
            theirs.apply(&mut right);
            if let Err(difference) = same(&left, &right) {
                panic!("{schema}: {difference}");
            }
            let allowed = left.data.iter().filter(|one| one.logit == 0.0);
            let allowed: Vec<i32> = allowed.map(|one| one.id).collect();
            let token = allowed[rng.below(allowed.len())];
            // SAFETY: a vocabulary.
            if unsafe { sys::llama_vocab_is_eog(vocabulary(), token) } {
                break;
            }
            ours.accept(token);
            theirs.accept(token);
            n_steps += 1;
        }
    }
    assert!(n_steps > 5 * SCHEMAS.len(), "{n_steps}");
}

/// Compares published schemas. Some long ones take the converter minutes.
#[test]
#[ignore = "ci/json-schema-suite gets the schemas and runs it"]
fn published_schemas_have_the_masks_of_the_converters_grammar() {
    const LONG: usize = 400_000;
    let folder = std::env::var("LLAMA_SIEVE_SCHEMAS").expect("a folder of schemas");
    let mut rng = fresh_rng("published schemas for llama.cpp");
    let mut below = |n: usize| rng.below(n);
    let (mut n, mut n_converted, mut n_steps, mut n_long) = (0, 0, 0, 0);
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        if text.len() > LONG {
            n_long += 1;
            continue;
        }
        let steps = compare(&text, &mut below);
        n += 1;
        n_converted += usize::from(steps > 0);
        n_steps += steps;
    }
    println!("{n} schemas, {n_converted} converted, {n_steps} steps; {n_long} are longer");
    assert!(
        2 * n_converted > n && 20 * n_long < n,
        "{n_converted} of {n}, {n_long}"
    );
}
