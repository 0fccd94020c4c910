//! Tests the example `supervisor`: the server that it starts has the library and generates the same
//! text, a server that fails is restarted, signals are passed on, and errors are reported.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::toolchain::{
    Build, Link, assert_ended, empty_folder, our_library, preload_library, root, rust_example, said,
};

/// Returns the supervisor, in an environment without variables of this library; `None` if it was
/// not built.
fn supervisor(test: &str) -> Option<Command> {
    let mut command = Command::new(rust_example("supervisor", test)?);
    for name in ["LD_LIBRARY_PATH", "LD_PRELOAD", "LLAMA_SIEVE_VERBOSE"] {
        command.env_remove(name);
    }
    command.current_dir(root()).args(["--pause", "1"]);
    command.arg("--preload").arg(preload_library());
    Some(command)
}

fn output(command: &mut Command) -> Output {
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Adds shell commands to run under the supervisor, after its options.
fn shell<'a>(supervisor: &'a mut Command, commands: &str) -> &'a mut Command {
    supervisor.args(["sh", "-c", commands])
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Builds a program that samples with llama.cpp.
fn host(name: &str) -> PathBuf {
    let build = Build::new(name, "c-tests/preload/generate.cpp");
    let program = build.with_llama(Link::Shared).build();
    program.path().to_owned()
}

const MODEL: &str = "models/kjv-tiny.gguf";

#[test]
fn the_server_has_the_library_and_says_the_same() {
    let Some(mut supervisor) = supervisor("the_server_has_the_library_and_says_the_same") else {
        return;
    };
    let host = host("supervisor_host");
    let alone = output(
        Command::new(&host)
            .args([MODEL, "5", "1"])
            .current_dir(root()),
    );
    assert!(alone.status.success(), "{}", said(&alone));
    let under = output(supervisor.arg(&host).args([MODEL, "5", "1"]));
    assert!(under.status.success(), "{}", said(&under));
    assert_eq!(under.stdout, alone.stdout);

    let text = errors(&under);
    let file = host.canonicalize().expect("the program is there");
    let news = format!("the library is in {}", file.display());
    for line in [news.as_str(), "it works: tokens are sampled straight"] {
        assert_eq!(text.matches(line).count(), 1, "{line}: {text}");
    }
    assert!(text.contains("ended with 0: ours: "), "{text}");
    // The program makes dozens of samplers; each kind and outcome is reported once.
    let of_temp = |line: &&str| line.starts_with("llama-sieve: preload: temp(");
    assert_eq!(text.lines().filter(of_temp).count(), 1, "{text}");
}

#[test]
fn what_was_preloaded_before_still_is() {
    let Some(mut supervisor) = supervisor("what_was_preloaded_before_still_is") else {
        return;
    };
    let [ours, other] = [preload_library().to_owned(), our_library(Link::Shared)]
        .map(|path| path.display().to_string());
    // The library is not listed twice.
    supervisor.env("LD_PRELOAD", format!("{other}:{ours}"));
    let said = output(shell(
        &mut supervisor,
        "echo $LD_PRELOAD; echo $LLAMA_SIEVE_VERBOSE",
    ));
    let expected = format!("{ours}:{other}\n1\n");
    assert_eq!(String::from_utf8_lossy(&said.stdout), expected);
}

#[test]
fn a_program_that_fails_is_started_again_and_at_last_without_the_library() {
    let Some(mut supervisor) =
        supervisor("a_program_that_fails_is_started_again_and_at_last_without_the_library")
    else {
        return;
    };
    let said = output(shell(
        supervisor.args(["--restarts", "2"]),
        "case $LD_PRELOAD in '') echo without; exit 4;; *) echo with; kill -9 $$;; esac",
    ));
    let text = errors(&said);
    assert_eq!(
        String::from_utf8_lossy(&said.stdout),
        "with\nwith\nwithout\n"
    );
    assert_eq!(said.status.code(), Some(4), "{text}");
    assert_eq!(
        text.matches("ended with 137: the library was in /").count(),
        2,
        "{text}"
    );
    assert!(
        text.contains("ended with 4: it ran without the library"),
        "{text}"
    );
}

#[test]
fn a_program_that_recovers_is_left_alone() {
    let Some(mut supervisor) = supervisor("a_program_that_recovers_is_left_alone") else {
        return;
    };
    let mark = empty_folder("supervisor_recovers").join("mark");
    let commands = format!("test -e {0} && exit 0; : > {0}; exit 3", mark.display());
    let said = output(shell(supervisor.args(["--restarts", "9"]), &commands));
    let text = errors(&said);
    assert!(said.status.success(), "{text}");
    assert_eq!(text.matches(" started with ").count(), 2, "{text}");
}

#[test]
fn signals_arrive_and_end_both() {
    let Some(mut supervisor) = supervisor("signals_arrive_and_end_both") else {
        return;
    };
    // It ends by itself if no signal arrives.
    let commands = "trap 'echo heard' USR1; trap 'kill $!; exit 7' TERM; echo ready
        for _ in 1 2; do sleep 60 >/dev/null 2>&1 & wait; kill $! 2>/dev/null; done; exit 9";
    let command = shell(&mut supervisor, commands);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the supervisor starts");
    let mut lines = BufReader::new(running.stdout.take().expect("a pipe"));
    for (expected, signal) in [("ready\n", libc::SIGUSR1), ("heard\n", libc::SIGTERM)] {
        let mut line = String::new();
        lines.read_line(&mut line).expect("it says something");
        assert_eq!(line, expected);
        let id = libc::pid_t::try_from(running.id()).expect("a number of a process");
        // SAFETY: the function takes two numbers.
        assert_eq!(unsafe { libc::kill(id, signal) }, 0);
    }
    // The signal arrives once, and the server is not restarted.
    let mut rest = String::new();
    lines.read_to_string(&mut rest).expect("it is text");
    assert_eq!(rest, "");
    let said = running.wait_with_output().expect("it ends");
    assert_eq!(said.status.code(), Some(7), "{}", errors(&said));
}

/// Tests a program that loses the environment, a file that is not a library, and wrong options.
#[test]
fn what_does_not_work_is_said() {
    const TEST: &str = "what_does_not_work_is_said";
    let Some(mut lost) = supervisor(TEST) else {
        return;
    };
    let host = host("supervisor_lost");
    let lost = output(lost.args(["env", "-i"]).arg(&host).args([MODEL, "5", "1"]));
    let text = errors(&lost);
    assert!(
        text.contains("no sampler was ours: it asked for none, or started"),
        "{text}"
    );

    let folder = empty_folder("supervisor_wrong");
    let no_library = folder.join("no_library.so");
    fs::write(&no_library, "text").expect("the folder was just made");
    let with = |library: &Path, options: &[&str]| {
        let mut supervisor = supervisor(TEST).expect("it was built");
        output(supervisor.arg("--preload").arg(library).args(options))
    };
    let text = errors(&with(&no_library, &["true"]));
    assert!(
        text.contains("ended with 0: the library was not loaded"),
        "{text}"
    );
    assert!(text.contains("cannot be preloaded"), "{text}");

    let spaced = folder.join("with space.so");
    fs::copy(preload_library(), &spaced).expect("it can be copied");
    for (library, options, code, words) in [
        (spaced.as_path(), &["true"][..], 1, "has a space or a colon"),
        (
            Path::new("nowhere.so"),
            &["true"],
            1,
            "nowhere.so: No such file",
        ),
        (
            preload_library(),
            &["./nothing-here"],
            1,
            "./nothing-here cannot be started",
        ),
        (
            preload_library(),
            &["--restarts", "-1", "true"],
            2,
            "must be a whole number",
        ),
        (preload_library(), &["--such", "true"], 2, "see --help"),
        (preload_library(), &[], 2, "which program?"),
        (preload_library(), &["--help"], 0, "Usage: supervisor"),
    ] {
        let output = with(library, options);
        assert_ended(&output, code, words, &options);
    }
}
