//! A program whose tokens are recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;
use test_crates::boon::{Compiler, Schemas};

use crate::preloaded::preloaded;
use crate::programs::{Run, Said, build, model, source};
use crate::toolchain::{Build, Link, Program, empty_folder};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Build::new("preload_traced", &source("generate.cpp"));
        build(program.with_llama(Link::Shared))
    })
}

fn run(program: Run<'_>) -> Said {
    program.arg(model()).arg(1).arg(2).said()
}

/// The lines of a record, each of which is valid by the committed schema.
fn lines(record: &Path) -> Vec<Value> {
    let schema = include_str!("../../docs/trace.schema.json");
    let schema = serde_json::from_str(schema).expect("the schema is JSON");
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let added = compiler.add_resource("trace.json", schema);
    added.expect("the schema is one");
    let index = compiler.compile("trace.json", &mut schemas);
    let index = index.expect("the schema is one");
    let text = fs::read_to_string(record).expect("the record is there");
    let parsed = text.lines().map(|line| {
        let line = serde_json::from_str(line).expect("JSON");
        let valid = schemas.validate(&line, index);
        assert!(valid.is_ok(), "{line}");
        line
    });
    parsed.collect()
}

#[test]
fn a_program_says_the_same_while_it_is_recorded() {
    let record = empty_folder("traced").join("record.jsonl");
    let usual = run(Run::of(program()));
    let traced = run(preloaded(program()).env("LLAMA_SIEVE_TRACE", record.display()));
    assert_eq!(usual.out, traced.out);
    let lines = lines(&record);
    let is = |kind: &'static str| move |line: &&Value| line["kind"] == kind;
    assert_eq!(lines.iter().filter(is("start")).count(), 1);
    let tokens: Vec<&Value> = lines.iter().filter(is("token")).collect();
    // 40 texts of 40 tokens, of which the host has chosen each first one, and one in 256.
    assert!(tokens.len() > 1400, "{}", tokens.len());
    // What one chain has chosen without a break stands in what is generated.
    let text_of = |sequence: &Value| {
        let own = tokens.iter().filter(|line| line["sequence"] == *sequence);
        let texts = own.map(|line| line["token"]["text"].as_str().expect("a text"));
        texts.take(10).collect::<String>()
    };
    let first = text_of(&tokens[0]["sequence"]);
    assert!(usual.out.contains(&first), "{first:?}: {}", usual.out);
}

/// examples/generate.c, with what the compiler is told beside it.
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
    // It then samples straight from the logits. The source defines the version only behind that.
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
        // At the end of the model's text there is a token that is not shown.
        let recorded = texts.take(40).collect::<String>();
        let said = text.strip_prefix(prompt).expect("the prompt comes first");
        assert!(
            said.starts_with(&recorded),
            "{more}: {recorded:?}: {said:?}"
        );
        assert!(!recorded.is_empty(), "{more}");
    }
}
