//! `MaskBench`, from a folder of its files, as `ci/maskbench` prepares it: each schema passes, if
//! its valid instances are let through and its invalid ones are not, or is refused by name.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};

use llama_sieve::grammar::Grammar;
use llama_sieve::grammar::schema::Options;
use llama_sieve::token::Token;

use crate::tree;

/// The bytes of the text that are accepted, and one more if it may end there: the first token is
/// the end.
fn accepted(grammar: &Grammar, text: &str) -> usize {
    let tokens: Vec<Token> = text.bytes().map(Token::from).chain([0]).collect();
    grammar.slot().accepts(&tokens)
}

/// Counts of what is alike, and the first few names.
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

/// Why a schema is refused, without what is its own: the keyword, and the begin of the reason.
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

/// The lines of the file: the kind (`schema`, `true` or `false` of an instance), a tabulator, and
/// the text, with the name before that of a schema.
#[test]
#[ignore = "ci/maskbench prepares the data and runs it"]
fn maskbench() {
    let path = std::env::var("LLAMA_SIEVE_MASKBENCH").expect("ci/maskbench sets it");
    let lists = std::env::var("LLAMA_SIEVE_MASKBENCH_OUT");
    let tree = tree();
    let (mut n, mut n_right, mut n_wrong) = (0, 0, [0, 0]);
    let (mut refused, mut wrong) = (Tally::default(), Vec::new());
    let mut list = String::new();
    let (mut name, mut grammar, mut is_right) = (String::new(), None, false);
    let mut finish = |is_right: &mut bool| n_right += usize::from(std::mem::take(is_right));
    for line in BufReader::new(File::open(path).expect("the file")).lines() {
        let line = line.expect("text");
        let (kind, text) = line.split_once('\t').expect("a kind and a text");
        if kind == "schema" {
            finish(&mut is_right);
            n += 1;
            let (is, schema) = text.split_once('\t').expect("a name and a schema");
            name = is.into();
            grammar = match Grammar::of_schema(schema.as_bytes(), Options::default(), &tree) {
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
        let n = accepted(grammar, text);
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
