//! Tests the example `constrained`, in Rust and in C: its choices, its measurements, and its
//! messages about wrong options.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::schemas::Schema;
use crate::toolchain::{self, Build, Link, Program, empty_folder, said};
use serde_json::Value;

const PROMPT: &str = "And the LORD said unto";

fn rust_example(test: &str) -> Option<PathBuf> {
    toolchain::rust_example("constrained", test)
}

fn run(example: &PathBuf, args: &[&str]) -> Output {
    let output = Command::new(example).args(args).output();
    output.unwrap_or_else(|error| panic!("{}: {error}", example.display()))
}

fn succeed(example: &PathBuf, args: &[&str]) -> String {
    let output = run(example, args);
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).expect("the example prints UTF-8")
}

/// Runs the example with some options. Returns the JSON record that it prints.
fn record(example: &PathBuf, args: &[&str]) -> Value {
    let text = succeed(example, &[&["--record"], args].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn number(record: &Value, field: &str) -> f64 {
    let number = record[field].as_f64();
    number.unwrap_or_else(|| panic!("{field} is no number in {record}"))
}

fn c_example(name: &str) -> Program {
    let build = Build::new(name, "examples/constrained.c");
    build
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
}

/// Values with common prefixes, one of which is itself a prefix of another.
const MANY: &str = "Abinadab,Jehoshaphat,Jeroboam the son of Nebat,the king,the king of Assyria";

/// Texts that would break a payload or a grammar if they were not escaped.
const ODD: &str = "a \"word\",a \\ b,caf\u{e9},(x) | [y]";

#[test]
fn the_c_example_chooses_what_the_rust_example_does() {
    let Some(rust) = rust_example("the_c_example_chooses_what_the_rust_example_does") else {
        return;
    };
    let c = c_example("constrained");
    for choices in ["Moses,Aaron,the LORD", MANY, ODD] {
        let mut seen = Vec::new();
        for seed in 1..=12 {
            let seed = seed.to_string();
            let args = ["--seed", &seed, "--temp", "2", "--choices", choices];
            let text = succeed(&rust, &args);
            let output = c.output(&args);
            assert!(output.status.success(), "{args:?}: {}", said(&output));
            assert_eq!(String::from_utf8_lossy(&output.stdout), text, "{args:?}");
            let value = text.strip_prefix(&format!("{PROMPT} "));
            let value = value.expect("it prints the prompt first").trim_end();
            assert!(choices.split(',').any(|choice| choice == value), "{text}");
            seen.push(value.to_owned());
        }
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 1, "at this temperature, only {seen:?}");
    }
    let greedy = ["--greedy", "--choices", MANY];
    let text = succeed(&rust, &greedy);
    assert_eq!(String::from_utf8_lossy(&c.output(&greedy).stdout), text);
}

#[test]
fn the_c_example_appends_forced_runs_as_one_batch() {
    let program = c_example("constrained_forced");
    let text = program.succeed(&["--choices", "Joshua the son of Nun"]);
    let first = format!("{PROMPT} Joshua the son of Nun\n\"Joshua the son of Nun\": ");
    let counts = text
        .strip_prefix(&first)
        .unwrap_or_else(|| panic!("{text}"));
    let counts: Vec<&str> = counts.split(' ').collect();
    assert_eq!(counts[0], counts[2], "every token is forced: {text}");
    assert!(
        text.ends_with("of them forced, 1 forward passes\n"),
        "{text}"
    );
}

#[test]
fn a_written_payload_is_read_again() {
    let Some(example) = rust_example("a_written_payload_is_read_again") else {
        return;
    };
    let path = empty_folder("constrained_payload").join("payload.json");
    let path = path
        .to_str()
        .expect("the target directory has a name in UTF-8");
    let seed = ["--seed", "3", "--temp", "2", "--runs", "10"];
    let write = ["--choices", MANY, "--write-payload", path];
    let written = succeed(&example, &[&seed[..], &write].concat());
    let read = succeed(&example, &[&seed[..], &["--payload", path]].concat());
    assert_eq!(written, read);
    assert_eq!(written.lines().count(), 10);

    let json = std::fs::read_to_string(path).expect("it was written");
    let payload: Value = serde_json::from_str(&json).expect("it is JSON");
    let leaves = payload["descriptors"][0]["leaves"].as_array();
    let names: Vec<&str> = leaves
        .expect("a list of values")
        .iter()
        .filter_map(|leaf| leaf["name"].as_str())
        .collect();
    assert_eq!(names.join(","), MANY);

    let wrong = json.replace("\"tokens\":[", "\"tokens\":[999999,");
    std::fs::write(path, wrong).expect("the folder is writable");
    let output = run(&example, &["--payload", path]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("999999"), "{}", said(&output));
}

#[test]
fn the_record_of_a_value_without_choice() {
    let Some(example) = rust_example("the_record_of_a_value_without_choice") else {
        return;
    };
    let args = ["--choices", "Joshua the son of Nun", "--runs", "5"];
    let record = record(&example, &args);
    assert_eq!(record["mode"], "strict-trie-ffi");
    assert_eq!(number(&record, "forced_ratio_mean"), 1.0);
    assert_eq!(number(&record, "forced_ratio_std"), 0.0);
    assert_eq!(number(&record, "value_accuracy"), 1.0);
    // At each step one of the model's 2048 tokens is allowed.
    assert_eq!(number(&record, "skip_ratio_mean"), 2047.0 / 2048.0);
    assert_eq!(number(&record, "skip_ratio_std"), 0.0);
    let total = number(&record, "forward_passes_total");
    assert!(total > 5.0 && total % 5.0 == 0.0, "{record}");
    // One forward pass in each run.
    assert_eq!(number(&record, "forward_passes_saved"), total - 5.0);
}

#[test]
fn the_record_of_choices() {
    let Some(example) = rust_example("the_record_of_choices") else {
        return;
    };
    for args in [
        &["--choices", MANY, "--temp", "2", "--runs", "60"][..],
        &["--choices", ODD, "--runs", "10"],
        &["--greedy", "--choices", MANY, "--runs", "3"],
        &[],
    ] {
        let record = record(&example, &[&["--seed", "1"], args].concat());
        assert_eq!(number(&record, "value_accuracy"), 1.0, "{record}");
        let agreement = number(&record, "token_accuracy");
        assert!(agreement > 0.0 && agreement <= 1.0, "{record}");
        let ratio = number(&record, "forced_ratio_mean");
        for kind in ["skip", "forced"] {
            let mean = number(&record, &format!("{kind}_ratio_mean"));
            assert!((0.0..=1.0).contains(&mean), "{record}");
            let deviation = number(&record, &format!("{kind}_ratio_std"));
            assert!((0.0..=0.5).contains(&deviation), "{record}");
        }
        let saved = number(&record, "forward_passes_saved");
        let total = number(&record, "forward_passes_total");
        assert!(saved >= 0.0 && saved < total, "{record}");
        assert_eq!(ratio > 0.0, saved > 0.0, "{record}");
        assert!(number(&record, "tokens_per_second") > 0.0);
        assert!(number(&record, "tokens_per_second_vs_grammar") > 0.0);
    }
    // All that depends only on the seeds is repeatable.
    let again = || {
        let args = [
            "--seed",
            "9",
            "--choices",
            MANY,
            "--temp",
            "2",
            "--runs",
            "10",
        ];
        let record = record(&example, &args);
        (
            number(&record, "skip_ratio_mean"),
            number(&record, "token_accuracy"),
            number(&record, "forward_passes_saved"),
        )
    };
    assert_eq!(again(), again());
}

/// Runs the trie and the baseline, which is the grammar, with the same values and with prompts from
/// a file, and writes each record to a file. The grammar also allows spellings of a value that the
/// trie does not.
#[test]
fn the_record_of_the_grammar_is_the_baseline() {
    let Some(example) = rust_example("the_record_of_the_grammar_is_the_baseline") else {
        return;
    };
    let folder = empty_folder("constrained_record");
    let path = |name: &str| folder.join(name).display().to_string();
    std::fs::write(
        path("prompts"),
        "And the LORD said unto\n\nAnd he went to\n",
    )
    .expect("the folder is writable");
    let of_mode = |mode: &str| {
        let (prompts, output) = (path("prompts"), path(mode));
        let values = ["--choices", MANY, "--runs", "4", "--seed", "2"];
        let files = ["--prompts", &prompts, "--output", &output, "--mode", mode];
        assert_eq!(succeed(&example, &[&values[..], &files].concat()), "");
        let text = std::fs::read_to_string(output).expect("it was written");
        let record: Value = serde_json::from_str(&text).expect("it is JSON");
        assert_eq!(record["mode"], mode);
        assert_eq!(number(&record, "prompts"), 2.0);
        assert_eq!(number(&record, "value_accuracy"), 1.0);
        record
    };
    let (trie, grammar) = (of_mode("strict-trie-ffi"), of_mode("strict-guided"));
    assert_eq!(number(&grammar, "tokens_per_second_vs_grammar"), 1.0);
    assert_eq!(number(&grammar, "token_accuracy"), 1.0);
    assert_eq!(number(&grammar, "forced_ratio_mean"), 0.0);
    assert_eq!(number(&grammar, "forward_passes_saved"), 0.0);
    assert!(number(&trie, "skip_ratio_mean") > 0.9, "{trie}");
    assert!(number(&grammar, "skip_ratio_mean") > 0.9, "{grammar}");
}

/// Generates text that must satisfy a schema, including tokens that are appended without sampling.
/// These save forward passes.
#[test]
fn the_record_of_a_schema() {
    let Some(example) = rust_example("the_record_of_a_schema") else {
        return;
    };
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/json.schema.json");
    let rules = Schema::of("examples/json.schema.json");
    for seed in 1..=8 {
        let seed = seed.to_string();
        let args = ["--schema", schema, "--seed", &seed];
        let text = succeed(&example, &args);
        let value = text
            .strip_prefix(PROMPT)
            .expect("it prints the prompt first");
        let value: Value = serde_json::from_str(value).unwrap_or_else(|e| panic!("{e}: {text}"));
        rules.check(&value);
    }
    let record = record(
        &example,
        &["--schema", schema, "--runs", "5", "--seed", "1"],
    );
    assert_eq!(record["mode"], "strict-json-schema");
    assert_eq!(number(&record, "value_accuracy"), 1.0);
    // The keys alone are more than a fifth of these values.
    let ratio = number(&record, "forced_ratio_mean");
    assert!((0.2..1.0).contains(&ratio), "{record}");
    let saved = number(&record, "forward_passes_saved");
    let total = number(&record, "forward_passes_total");
    assert!(saved > total / 5.0 && saved < total, "{record}");
    assert!(number(&record, "tokens_per_second_vs_sampled") > 0.0);
}

/// Wrong options, the exit code, and the words that the message must contain.
type Wrong = (&'static [&'static str], i32, &'static [&'static str]);

/// Wrong options of both examples.
const OF_BOTH: [Wrong; 9] = [
    (&["--choice", "a"], 2, &["--choice"]),
    (&["--choices"], 2, &["--choices"]),
    (&["--choices", "a,,b"], 2, &["--choices", "a,,b", "empty"]),
    (&["--choices", " "], 2, &["--choices", "empty"]),
    (&["--temp", "nan"], 2, &["--temp"]),
    (&["--temp", "1x"], 2, &["--temp", "1x"]),
    (&["--seed", "-1"], 2, &["--seed", "-1"]),
    (&["--threads", "0"], 2, &["--threads"]),
    (&["--model", "nowhere.gguf"], 1, &["nowhere.gguf"]),
];

/// Wrong options of the example in Rust alone.
const OF_RUST: [Wrong; 10] = [
    (&["--runs", "0"], 2, &["--runs"]),
    (&["--payload", "p", "--choices", "a"], 2, &["--payload"]),
    (&["--payload", "nowhere.json"], 1, &["nowhere.json"]),
    (&["--schema", "nowhere.json"], 1, &["nowhere.json"]),
    (&["--schema", "Cargo.toml"], 1, &["schema", "line 1"]),
    (&["--schema", "s", "--choices", "a"], 2, &["--schema"]),
    (
        &["--schema", "s", "--mode", "strict-guided"],
        2,
        &["--schema", "--mode"],
    ),
    (&["--prompts", "nowhere.txt"], 1, &["nowhere.txt"]),
    (
        &["--mode", "loose"],
        2,
        &["--mode", "loose", "strict-guided"],
    ),
    (&["--payload", "Cargo.toml"], 1, &["Cargo.toml", "line 1"]),
];

fn check_wrong_options(wrong: &[Wrong], run: impl Fn(&[&str]) -> Output) {
    for &(args, code, words) in wrong {
        let output = run(args);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        for &word in words {
            assert!(text.contains(word), "{args:?}: no {word} in {text}");
        }
    }
    let help = run(&["--help"]);
    assert!(help.status.success());
    assert!(said(&help).contains("--choices A,B,C"));
}

#[test]
fn the_c_example_names_a_wrong_option() {
    let program = c_example("constrained_options");
    check_wrong_options(&OF_BOTH, |args| program.output(args));
}

#[test]
fn the_rust_example_names_a_wrong_option() {
    let Some(example) = rust_example("the_rust_example_names_a_wrong_option") else {
        return;
    };
    check_wrong_options(&OF_BOTH, |args| run(&example, args));
    check_wrong_options(&OF_RUST, |args| run(&example, args));
}
