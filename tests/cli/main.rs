//! Tests the command line, installed as by an archive or a package: the program in `bin`, and the
//! libraries in `lib` next to it.
#![cfg(target_os = "linux")]

mod elves;
mod node;
#[path = "../preload/programs.rs"]
mod programs;
mod running;
mod schema;
#[path = "../support/toolchain.rs"]
mod toolchain;
mod verdicts;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use toolchain::{Link, copy_program, empty_folder, our_library, preload_library, root, succeed};

/// Returns the path of the program, installed as by an archive, with the libraries of this build.
fn installed() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let folder = empty_folder("cli_installed");
        fs::create_dir(folder.join("lib")).expect("the folder was just made");
        fs::create_dir(folder.join("bin")).expect("the folder was just made");
        for library in [&our_library(Link::Shared), preload_library()] {
            let name = library.file_name().expect("a library has a name");
            fs::copy(library, folder.join("lib").join(name)).expect("the folder was just made");
        }
        let program = folder.join("bin/llama-sieve");
        copy_program(&built(), &program);
        program
    })
}

/// Returns the path of the program that cargo builds.
fn built() -> PathBuf {
    let preload = preload_library();
    let folder = preload.parent().expect("it is in a folder");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--release", "--locked", "-p", "llama-sieve-cli"])
        .args(["-p", "llama-sieve-preload", "-p", "test-crates"])
        .arg("--target-dir")
        .arg(folder.parent().expect("it is in the target directory"))
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(root());
    succeed(&mut cargo);
    folder.join("llama-sieve")
}

/// Returns a call of the program, without the variables that the environment of the tests may have.
fn call(arguments: &[&str]) -> Command {
    call_of(installed(), arguments)
}

fn call_of(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(root());
    for name in [
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "LLAMA_SIEVE_HOST",
        "LLAMA_SIEVE_LIBRARY",
        "LLAMA_SIEVE_PRELOAD",
        "LLAMA_SIEVE_PROFILE",
        "LLAMA_SIEVE_VERBOSE",
    ] {
        command.env_remove(name);
    }
    command
}

/// Returns the exit code, the output and the errors of a command.
fn answer(mut command: Command) -> (i32, String, String) {
    let output = command.output();
    let Output {
        status,
        stdout,
        stderr,
    } = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let code = status
        .code()
        .unwrap_or_else(|| panic!("{command:?}: {status}"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
    (code, text(stdout), text(stderr))
}

/// Returns the exit code, the output and the errors of a command that reads `text` from its
/// standard input.
fn answer_to(mut command: Command, text: &str) -> (i32, String, String) {
    let file = empty_folder("cli_given").join("text");
    fs::write(&file, text).expect("the folder was just made");
    command.stdin(fs::File::open(&file).expect("it was just written"));
    answer(command)
}

/// Wrong arguments, each with the words that the error must contain.
const WRONG: [(&[&str], &str); 12] = [
    (&[], "which command?"),
    (&["wrong"], "there is no command \"wrong\""),
    (&["--wrong"], "invalid option '--wrong'"),
    (&["run"], "which program?"),
    (&["run", "--only"], "missing argument"),
    (&["doctor"], "which process, program or library?"),
    (&["doctor", "a", "b"], "unexpected argument \"b\""),
    (
        &["doctor", "no-such-thing"],
        "no process, library or program",
    ),
    (&["doctor", "Cargo.toml"], "no 64-bit library or program"),
    (&["doctor", "/dev/zero"], "no regular file"),
    (&["certify", "no/such/file"], "No such file"),
    (&["schema", "--what"], "invalid option '--what'"),
];

#[test]
fn wrong_arguments_are_answered() {
    for (arguments, says) in WRONG {
        let (code, out, err) = answer(call(arguments));
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(
            err.starts_with("llama-sieve: ") && err.contains(says),
            "{arguments:?}: {err}"
        );
    }
}

#[test]
fn what_a_terminal_would_obey_is_not_repeated() {
    for arguments in [["run", "\u{1b}[2Jno"], ["doctor", "\u{1b}[2Jno"]] {
        let (_, _, err) = answer(call(&arguments));
        assert!(!err.contains('\u{1b}') && err.contains("[2Jno"), "{err:?}");
    }
}

#[test]
fn help_names_every_command_and_each_its_exit_codes() {
    let (code, all, _) = answer(call(&["--help"]));
    assert_eq!(code, 0);
    for command in ["run", "doctor", "certify", "schema"] {
        assert!(all.contains(&format!("\n  {command} ")), "{all}");
        let (code, help, err) = answer(call(&[command, "--help"]));
        assert_eq!((code, err.as_str()), (0, ""));
        assert!(help.contains("\nExit codes: "), "{help}");
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }
}

#[test]
fn help_without_a_reader_is_no_failure() {
    let mut child = call(&["--help"]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = child.stdout(writer).status().expect("it runs");
    assert_eq!(status.code(), Some(0));
}

#[test]
fn versions_of_program_and_library() {
    let version = env!("CARGO_PKG_VERSION");
    let (code, out, _) = answer(call(&["--version"]));
    let begin = format!("llama-sieve {version}; library {version} (");
    assert!(code == 0 && out.starts_with(&begin), "{out}");
}

/// A wheel and an npm package have only the preload library, next to the program.
#[test]
fn the_preload_library_alone_has_all_that_is_needed() {
    let alone = empty_folder("cli_with_preload").join("llama-sieve");
    copy_program(installed(), &alone);
    let library = alone.with_file_name("libllama_sieve_preload.so");
    fs::copy(preload_library(), &library).expect("the folder was just made");
    let mut versions = call_of(&alone, &["--version"]);
    versions.env("LLAMA_SIEVE_VERBOSE", "1");
    let (code, out, err) = answer(versions);
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        code == 0 && out.contains(&format!("; library {version} (")),
        "{out}"
    );
    assert!(out.contains("cli_with_preload"), "{out}");
    // The library prints nothing about itself if it was not preloaded.
    assert_eq!(err, "");
    for arguments in [
        ["schema", "examples/json.schema.json"].as_slice(),
        &["run", "true"],
    ] {
        let expected = answer(call(arguments));
        assert_eq!(expected.0, 0, "{}", expected.2);
        assert_eq!(answer(call_of(&alone, arguments)), expected);
    }
}

/// The libraries are missing, as after an incomplete installation.
#[test]
fn without_the_libraries_it_says_where_they_belong() {
    let alone = empty_folder("cli_alone").join("llama-sieve");
    copy_program(installed(), &alone);
    let (code, _, err) = answer(call_of(&alone, &["run", "true"]));
    assert_eq!(code, 125, "{err}");
    assert!(
        err.contains("is not in") && err.contains("cli_alone"),
        "{err}"
    );
    let (code, _, err) = answer(call_of(&alone, &["schema", "examples/json.schema.json"]));
    assert!(code == 2 && err.contains("cannot be loaded"), "{err}");
    // The environment names the libraries.
    let ours = installed().with_file_name("../lib/libllama_sieve.so");
    let mut named = call_of(&alone, &["schema", "examples/json.schema.json"]);
    named.env("LLAMA_SIEVE_LIBRARY", &ours);
    assert_eq!(answer(named).0, 0);
    let mut named = call_of(&alone, &["run", "true"]);
    named.env("LLAMA_SIEVE_LIBRARY", &ours);
    assert_eq!(answer(named).0, 0);
}
