//! Tests the example `json`: its text satisfies its schema, and is the text that llama.cpp's own
//! samplers generate.

use serde_json::Value;

use crate::converter;
use crate::schemas::Schema;
use crate::toolchain::{Build, Link, Program, assert_ended, said};

fn example() -> Program {
    converter::added_to(Build::new("json", "examples/json.cpp"))
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
}

#[test]
fn the_json_follows_the_schema() {
    let schema = Schema::of("examples/json.schema.json");
    let program = example();
    let mut seen = Vec::new();
    for seed in 1..=4 {
        let output = program.output(&["--compare", "--seed", &seed.to_string()]);
        assert!(output.status.success(), "{}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "identical\n");
        let text = String::from_utf8_lossy(&output.stdout);
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
        schema.check(&value);
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
