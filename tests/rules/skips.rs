//! Tests that a check whose tool is missing is skipped with a message, or fails if everything is
//! required.

use std::fs::read_to_string;
use std::process::Command;

use crate::toolchain::{empty_folder, root, said, skipped};

#[test]
#[ignore = "run by the next one"]
fn something_is_missing() {
    skipped("a tool that nobody has");
}

#[test]
fn a_skip_is_listed_and_may_be_a_failure() {
    let list = empty_folder("switches").join("list");
    let tests = std::env::current_exe().expect("a test knows its path");
    let script = root().join("ci/skip");
    let commands = [
        (
            tests,
            &["--ignored", "--exact", "skips::something_is_missing"][..],
            0,
            101,
        ),
        (script, &["a tool that nobody has"][..], 77, 1),
    ];
    for (program, args, skips, fails) in commands {
        for (required, code) in [("0", skips), ("1", fails)] {
            let mut command = Command::new(&program);
            command.args(args).env("LLAMA_SIEVE_REQUIRE_ALL", required);
            let output = command.env("LLAMA_SIEVE_SKIPPED", &list).output();
            let output = output.expect("it runs");
            assert_eq!(output.status.code(), Some(code), "{}", said(&output));
            assert!(said(&output).contains("a tool that nobody has"));
        }
    }
    let listed = read_to_string(&list).expect("what was skipped is listed");
    assert_eq!(listed, "a tool that nobody has\n".repeat(4));

    let mut command = Command::new(root().join("ci/with-skips"));
    let output = command.arg(root().join("ci/skip")).arg("one tool").output();
    let output = output.expect("it runs");
    assert!(said(&output).ends_with("== skipped ==\none tool\n"));
}
