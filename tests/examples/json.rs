//! The example `json`: what it generates follows its schema, and is what llama.cpp's own samplers
//! generate.

use std::path::{Path, PathBuf};

use serde_json::Value;
use test_crates::boon::{Compiler, Schemas};
use vendor_llama_cpp::paths;

use crate::toolchain::{Build, Link, Program, assert_ended, compile_common, root, said};

/// The sources of llama.cpp's common library that turn a JSON schema into a grammar.
const SOURCES: [&str; 5] = [
    "json-schema-to-grammar.cpp",
    "json-schema.cpp",
    "json.cpp",
    "trie.cpp",
    "unicode.cpp",
];

/// The rest of the common library is not compiled; of that, those sources need three functions.
const STRINGS: &str = "c-tests/common_strings.cpp";

/// Compiled, and kept: it takes long.
fn common_library() -> Vec<PathBuf> {
    let version = vendor_llama_cpp::model::version();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("common-{version}"));
    std::fs::create_dir_all(&folder).expect("the target directory is not writable");
    let common = paths::source_dir().join("common");
    let sources = SOURCES.iter().map(|name| common.join(name));
    std::thread::scope(|scope| {
        let compile = |source: PathBuf| {
            let object = folder.join(source.with_extension("o").file_name().expect("a file"));
            scope.spawn(move || {
                compile(&source, &object);
                object
            })
        };
        let running: Vec<_> = sources.chain([root().join(STRINGS)]).map(compile).collect();
        let objects = running.into_iter().map(|one| one.join());
        objects.map(|one| one.expect("it compiles")).collect()
    })
}

fn compile(source: &Path, object: &Path) {
    let is_ours = source.starts_with(root());
    if object.exists() && !is_ours {
        return;
    }
    let made = object.with_extension("made");
    compile_common(source, &["-O0"], &made);
    std::fs::rename(made, object).expect("it was just made");
}

fn example() -> Program {
    let mut build = Build::new("json", "examples/json.cpp")
        .flag("-isystem")
        .flag(paths::source_dir().join("common"));
    for object in common_library() {
        build = build.flag(object);
    }
    build
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
}

#[test]
fn the_json_follows_the_schema() {
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/json.schema.json");
    let mut schemas = Schemas::new();
    let index = Compiler::new().compile(schema, &mut schemas);
    let index = index.expect("the schema is valid");
    let program = example();
    let mut seen = Vec::new();
    for seed in 1..=4 {
        let output = program.output(&["--compare", "--seed", &seed.to_string()]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "identical\n");
        let text = String::from_utf8_lossy(&output.stdout);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        if let Err(error) = schemas.validate(&value, index) {
            panic!("{text}: {error}");
        }
        seen.push(value["text"].clone());
    }
    seen.dedup();
    assert!(seen.len() > 1, "only {seen:?}");

    let grammar = program.succeed(&["--grammar"]);
    assert!(
        grammar.contains("root ::= \"{\" space book-kv"),
        "{grammar}"
    );
    for (options, code, what) in [
        (
            ["--temp", "hot"],
            2,
            "--temp is \"hot\", but must be from 0",
        ),
        (
            ["--seed", "1.5"],
            2,
            "--seed is \"1.5\", but must be from 0",
        ),
        (["--no", "such"], 2, "unknown option \"--no\""),
        (["--prompt", "--help"], 0, "\"book\""),
        (
            ["--schema", "none.json"],
            1,
            "cannot read --schema none.json",
        ),
        (["--model", "none.gguf"], 1, "cannot load --model none.gguf"),
        (["-n", "3"], 1, "not complete after 3 tokens"),
    ] {
        let output = program.output(&options);
        assert_ended(&output, code, what, &options);
    }
}
