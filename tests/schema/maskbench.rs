//! Runs `MaskBench` from the file that `ci/maskbench` prepares.
//!
//! A line of the file has the kind (`schema`, or, for an instance, `true` or `false`), a tab, and
//! the text. The text of a schema is preceded by its name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use llama_sieve::grammar::Grammar;
use llama_sieve::grammar::schema::Options;
use llama_sieve::token::Token;
use serde_json::Value;

use crate::support::{fresh_rng, number_from_env};
use crate::{drawn, tree, validator};

/// Returns the lines of the file, as kind and text.
fn lines() -> impl Iterator<Item = (String, String)> {
    let path = std::env::var("LLAMA_SIEVE_MASKBENCH").expect("ci/maskbench sets it");
    let lines = BufReader::new(File::open(path).expect("the file")).lines();
    lines.map(|line| {
        let line = line.expect("text");
        let (kind, text) = line.split_once('\t').expect("a kind and a text");
        (kind.into(), text.into())
    })
}

/// Returns the number of bytes of the text that are accepted, plus one if the text may end there,
/// since the end is a token.
fn accepted(grammar: &Grammar, text: &str) -> usize {
    let tokens: Vec<Token> = text.bytes().map(Token::from).chain([0]).collect();
    grammar.slot().accepts(&tokens)
}

/// Counts of similar schemas, each with the names of the first few.
#[derive(Default)]
struct Tally(BTreeMap<String, (usize, Vec<String>)>);

impl Tally {
    fn add(&mut self, what: String, name: &str) {
        let entry = self.0.entry(what).or_default();
        entry.0 += 1;
        if entry.1.len() < 3 {
            entry.1.push(name.into());
        }
    }

    fn print(&self) {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
        for (what, (n, names)) in all {
            println!("{n:6}  {what}  ({})", names.join(" "));
        }
    }
}

/// Returns the reason why a schema is refused, without details of this schema: the keyword, and the
/// beginning of the message.
fn reason(message: &str) -> String {
    let reason = message.split_once("keyword ").map_or(message, |all| all.1);
    let mut is_quoted = false;
    let mut n_quotes = 0;
    let kept = reason.chars().filter(|&c| {
        is_quoted ^= c == '"';
        n_quotes += usize::from(c == '"');
        !is_quoted || n_quotes < 2 || c == '"'
    });
    kept.take(100).collect()
}

/// Checks that no schema allows an invalid instance. Prints the schemas that are refused or reject
/// a valid one.
#[test]
#[ignore = "ci/maskbench prepares the data and runs it"]
fn instances() {
    let lists = std::env::var("LLAMA_SIEVE_MASKBENCH_OUT");
    let tree = tree();
    let (mut n, mut n_right, mut n_wrong) = (0, 0, [0, 0]);
    let options = Options {
        any_order: std::env::var("LLAMA_SIEVE_MASKBENCH_ORDER").is_ok_and(|order| order == "any"),
        ..Options::default()
    };
    let (mut refused, mut wrong) = (Tally::default(), Vec::new());
    let mut list = String::new();
    let (mut name, mut grammar, mut is_right) = (String::new(), None, false);
    let mut finish = |is_right: &mut bool| n_right += usize::from(std::mem::take(is_right));
    for (kind, text) in lines() {
        if kind == "schema" {
            finish(&mut is_right);
            n += 1;
            let (is, schema) = text.split_once('\t').expect("a name and a schema");
            name = is.into();
            grammar = match Grammar::of_schema(schema.as_bytes(), options, &tree) {
                Ok((grammar, left_out)) => {
                    assert!(left_out.is_empty());
                    Some(grammar)
                }
                Err(why) => {
                    list += &format!("{name}\t{}\n", why.what);
                    refused.add(reason(&why.what), &name);
                    None
                }
            };
            is_right = grammar.is_some();
            continue;
        }
        let is_valid = kind == "true";
        let Some(grammar) = &grammar else { continue };
        let n = accepted(grammar, &text);
        if (n > text.len()) != is_valid {
            is_right = false;
            n_wrong[usize::from(is_valid)] += 1;
            let (is, is_not) = text.split_at(n.min(text.len()));
            wrong.push(format!("{kind}\t{name}\t{is} >>> {is_not}"));
        }
    }
    finish(&mut is_right);
    println!(
        "{n} schemas, {n_right} pass; instances: {} valid rejected, {} invalid accepted",
        n_wrong[1], n_wrong[0]
    );
    refused.print();
    if let Ok(path) = lists {
        list += &wrong.join("\n");
        std::fs::write(path, list).expect("written");
    }
    let shown = wrong
        .iter()
        .take(20)
        .map(|line| line.chars().take(200).collect::<String>());
    println!("{}", shown.collect::<Vec<_>>().join("\n"));
    assert_eq!(n_wrong[0], 0, "nothing invalid is accepted");
}

/// Returns a pattern in which `\s`, `\S` and `.` are written out as in ECMA-262, since the
/// validator's lack some characters.
fn written_out(pattern: &str) -> String {
    const SPACE: &str =
        r"\t\n\x0b\f\r\x20\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff";
    let (mut written, mut is_in_class) = (String::new(), false);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        match (c, is_in_class) {
            ('\\', _) => match (rest.next(), is_in_class) {
                (Some('s'), true) => written += SPACE,
                (Some('s'), false) => written += &format!("[{SPACE}]"),
                (Some('S'), _) => written += &format!("[^{SPACE}]"),
                (Some(escaped), _) => written.extend(['\\', escaped]),
                (None, _) => written.push('\\'),
            },
            ('.', false) => written += r"[^\n\r\u2028\u2029]",
            _ => {
                is_in_class = c == '[' || is_in_class && c != ']';
                written.push(c);
            }
        }
    }
    written
}

/// Changes a schema to one that the validator can judge, with the same texts or more: patterns are
/// written out, and `multipleOf` with a fraction, which the validator checks in binary, is left
/// out.
fn for_the_validator(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("multipleOf").is_some_and(Value::is_f64) {
                members.remove("multipleOf");
            }
            // The validator requires a template to be a reference, which RFC 6570 does not.
            if members.get("format").and_then(Value::as_str) == Some("uri-template") {
                members.remove("format");
            }
            if let Some(Value::String(pattern)) = members.get_mut("pattern") {
                *pattern = written_out(pattern);
            }
            if let Some(Value::Object(all)) = members.get_mut("patternProperties") {
                *all = std::mem::take(all)
                    .into_iter()
                    .map(|(pattern, schema)| (written_out(&pattern), schema))
                    .collect();
            }
            members.values_mut().for_each(for_the_validator);
        }
        Value::Array(items) => items.iter_mut().for_each(for_the_validator),
        _ => {}
    }
}

/// Checks with the validator that all texts drawn from the masks are valid, for schemas at equal
/// distances in the file.
#[test]
#[ignore = "ci/maskbench prepares the data and runs it"]
fn drawn_texts() {
    let n_schemas = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 2000);
    let n_texts = number_from_env("LLAMA_SIEVE_TEST_TEXTS", 500);
    let mut rng = fresh_rng("maskbench");
    let mut below = |n: usize| rng.below(n);
    let tree = tree();
    let schemas: Vec<String> = lines()
        .filter_map(|(kind, text)| (kind == "schema").then_some(text))
        .collect();
    let (mut n_used, mut n_drawn, mut n_long, mut wrong) = (0, 0, 0, Vec::new());
    // Every 37th schema, again and again, since adjacent schemas are similar. 37 does not divide
    // their number, so each comes once.
    for i in 0..schemas.len() {
        if n_used == n_schemas {
            break;
        }
        let (name, text) = schemas[i * 37 % schemas.len()]
            .split_once('\t')
            .expect("a name and a schema");
        let mut schema: Value = serde_json::from_str(text).expect("JSON");
        for_the_validator(&mut schema);
        let Some((compiled, index)) = validator(&schema) else {
            continue;
        };
        let Ok((grammar, _)) = Grammar::of_schema(text.as_bytes(), Options::default(), &tree)
        else {
            continue;
        };
        n_used += 1;
        for _ in 0..n_texts {
            let Some(text) = drawn(&grammar, &mut below) else {
                n_long += 1;
                continue;
            };
            n_drawn += 1;
            let value: Result<Value, _> = serde_json::from_slice(&text);
            let is_valid = value.is_ok_and(|value| compiled.validate(&value, index).is_ok());
            if !is_valid {
                wrong.push(format!("{name}\t{}", String::from_utf8_lossy(&text)));
                break;
            }
        }
    }
    println!("{n_used} schemas, {n_drawn} texts are drawn, {n_long} get too long");
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(n_used > 0 && n_drawn > n_used * n_texts / 2);
}
