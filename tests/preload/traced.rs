//! Tests a program whose tokens are recorded in a trace.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common;
use crate::preloaded::{preloaded, preloaded_of_known_build};
use crate::programs::{Run, Said, generate, model};
use crate::schemas::Schema;
use crate::toolchain::{Build, Link, Program, empty_folder};

fn run(program: Run<'_>) -> Said {
    program.arg(model()).arg(1).arg(2).said()
}

/// Returns the lines of a record, after checking each against the committed schema.
fn lines(record: &Path) -> Vec<Value> {
    let schema = Schema::of("docs/trace.schema.json");
    let text = fs::read_to_string(record).expect("the record is there");
    let parsed = text.lines().map(|line| {
        let line = serde_json::from_str(line).expect("JSON");
        schema.check(&line);
        line
    });
    parsed.collect()
}

#[test]
fn a_program_says_the_same_while_it_is_recorded() {
    let record = empty_folder("traced").join("record.jsonl");
    let usual = run(Run::of(generate()));
    let traced = run(preloaded(generate()).env("LLAMA_SIEVE_TRACE", record.display()));
    assert_eq!(usual.out, traced.out);
    let lines = lines(&record);
    let is = |kind: &'static str| move |line: &&Value| line["kind"] == kind;
    assert_eq!(lines.iter().filter(is("start")).count(), 1);
    let tokens: Vec<&Value> = lines.iter().filter(is("token")).collect();
    // 40 texts of 40 tokens. The host has chosen the first token of each text, and one in 256 of
    // the others.
    assert!(tokens.len() > 1400, "{}", tokens.len());
    // The tokens that one chain has chosen without interruption occur in the generated text.
    let text_of = |sequence: &Value| {
        let own = tokens.iter().filter(|line| line["sequence"] == *sequence);
        let texts = own.map(|line| line["token"]["text"].as_str().expect("a text"));
        texts.take(10).collect::<String>()
    };
    let first = text_of(&tokens[0]["sequence"]);
    assert!(usual.out.contains(&first), "{first:?}: {}", usual.out);
}

/// Builds examples/generate.c with additional compiler flags.
fn example(name: &str, flags: &[&str]) -> Program {
    let build = Build::new(name, "examples/generate.c");
    let build = flags.iter().fold(build, Build::flag);
    build
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
}

#[test]
fn the_example_in_c_says_the_same_while_it_is_recorded() {
    let record = empty_folder("traced_example").join("record.jsonl");
    let usual = example("example_usual", &[]);
    // With the drop-in header the example samples straight from the logits. That header comes
    // before the source's own definition of the POSIX version.
    let flags = [
        "-include",
        "llama_sieve_dropin.h",
        "-D_POSIX_C_SOURCE=200809L",
    ];
    let traced = example("example_traced", &flags);
    let traced = traced.env("LLAMA_SIEVE_TRACE", record.display());
    let prompt = "And the LORD said unto";
    for more in [
        "--seed 7",
        "--seed 3 --repeat-penalty 1.2 --presence-penalty 0.3",
        "--seed 7 --top-k 0 --min-p 0 --typical 0.9 --top-nsigma 2.5",
        "--temp 0",
    ] {
        let mut args = vec!["-n", "48", "--threads", "1", "--prompt", prompt];
        args.extend(more.split(' '));
        let (usual, traced) = (usual.output(&args), traced.output(&args));
        assert!(usual.status.success() && traced.status.success(), "{more}");
        let text = String::from_utf8(traced.stdout).expect("text");
        assert_eq!(String::from_utf8(usual.stdout).as_ref(), Ok(&text));
        let texts = lines(&record);
        let texts = texts.iter().filter(|line| line["kind"] == "token");
        let texts = texts.map(|line| line["token"]["text"].as_str().expect("a text"));
        let recorded = texts.collect::<String>();
        // A text may end with a token that is not displayed.
        let recorded = recorded.strip_suffix("<|end|>").unwrap_or(&recorded);
        let said = text.strip_prefix(prompt).expect("the prompt comes first");
        assert!(said.starts_with(recorded), "{more}: {recorded:?}: {said:?}");
        assert!(!recorded.is_empty(), "{more}");
    }
}

/// Returns the text of a token's line; the empty text for an incomplete character.
fn text(line: &Value) -> &str {
    line["token"]["text"].as_str().unwrap_or_default()
}

/// True if the token, alone or with the texts before it, is the trigger that a grammar of the
/// program waits for.
fn is_trigger(before: &[&Value], token: &Value) -> bool {
    let id = token["token"]["id"].as_i64();
    let texts = before[before.len().saturating_sub(3)..].iter();
    let texts: String = texts.map(|line| text(line)).chain([text(token)]).collect();
    matches!(id, Some(7 | 260 | 400)) || texts.contains("the")
}

/// When a grammar outside the chain begins to check, the token before was its trigger.
#[test]
fn a_grammar_outside_the_chain_tells_when_its_trigger_is_complete() {
    let record = empty_folder("traced_common").join("record.jsonl");
    let program = common::program();
    let asked = |run: Run<'_>| run.arg(model()).arg(1).arg(4).said();
    let usual = asked(Run::of(program));
    let run = preloaded_of_known_build(program);
    let traced = asked(run.env("LLAMA_SIEVE_TRACE", record.display()));
    assert_eq!(usual.out, traced.out);
    let lines = lines(&record);
    let tokens = lines.iter().filter(|line| line["kind"] == "token");
    let mut sequences: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
    for line in tokens {
        let of = sequences.entry(line["sequence"].as_u64().expect("a number"));
        of.or_default().push(line);
    }
    let (mut begun, mut others, mut waited) = (0, 0, 0);
    let mut forced: Vec<&str> = Vec::new();
    for of in sequences.values() {
        for line in of.iter().filter(|line| line["grammar"] == "checks") {
            let Some(must) = line["forced"]["text"].as_str() else {
                continue;
            };
            let is_so = must.starts_with(text(line)) || text(line).starts_with(must);
            assert!(is_so, "{line}");
            forced.push(must);
        }
        for (i, pair) in of.windows(2).enumerate() {
            match (pair[0]["grammar"].as_str(), pair[1]["grammar"].as_str()) {
                (Some("waits"), Some("waits")) => waited += 1,
                (Some("waits"), Some("checks")) if is_trigger(&of[..i], pair[0]) => begun += 1,
                // The trigger was among draft tokens, which were accepted without being sampled and
                // have no lines.
                (Some("waits"), Some("checks")) => others += 1,
                (Some("checks"), Some("waits")) => panic!("it waits again: {}", pair[1]),
                _ => {}
            }
        }
    }
    assert!(begun >= 3 && others < begun, "{begun}, {others}");
    assert!(waited >= 20, "{waited}");
    // The first of these tokens was sampled while copies of the chain were still compared.
    for must in [" the the the", " the the", " the"] {
        assert!(forced.contains(&must), "{forced:?}");
    }
}
