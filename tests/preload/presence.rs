//! Tests the messages of LLAMA_SIEVE_VERBOSE about the preload library itself: that it was loaded,
//! and why no sampler was made.

use std::path::Path;

use crate::preloaded::{preloaded, preloaded_of_known_build};
use crate::programs::{Run, build, generate, model, source};
use crate::toolchain::{Build, Link};
use vendor_llama_cpp::paths;

/// Returns the lines about the library itself.
fn told(run: Run<'_>) -> Vec<String> {
    let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
    let lines = said.err.lines();
    let lines = lines.filter_map(|line| line.strip_prefix("llama-sieve: preload library"));
    lines.map(String::from).collect()
}

/// Returns the reason that is printed at the end. At the beginning there must be exactly one line.
fn reason(run: Run<'_>, program: &Path) -> String {
    let lines = told(run);
    let [loaded, none] = &lines[..] else {
        panic!("{lines:?}");
    };
    check_loaded(loaded, program);
    let file = program.canonicalize().expect("the program is there");
    let beginning = format!(": no sampler was made in {}: ", file.display());
    let reason = none.strip_prefix(&beginning);
    reason.unwrap_or_else(|| panic!("{none}")).to_owned()
}

fn check_loaded(line: &str, program: &Path) {
    let file = program.canonicalize().expect("the program is there");
    let (simd, rest) = ["avx512", "avx2", "neon", "scalar"]
        .into_iter()
        .find_map(|simd| {
            let beginning = format!(" {} ({simd})", env!("CARGO_PKG_VERSION"));
            Some((simd, line.strip_prefix(&beginning)?))
        })
        .unwrap_or_else(|| panic!("{line}"));
    assert_eq!(
        rest,
        format!(" is loaded into {}", file.display()),
        "{simd}"
    );
}

/// The version and the instruction set are printed at the beginning, nothing is printed at the end
/// if samplers were made, and nothing at all without LLAMA_SIEVE_VERBOSE. The names of arguments
/// are those of the build's llama.h.
#[test]
fn a_host_is_told_what_was_loaded() {
    let program = generate();
    let arguments = |run: Run<'static>| run.arg(model()).arg(5).arg(1);
    let lines = told(arguments(preloaded_of_known_build(program)));
    assert_eq!(lines.len(), 2, "{lines:?}");
    check_loaded(&lines[0], program);
    assert_eq!(arguments(preloaded_of_known_build(program)).said().err, "");

    let run = arguments(preloaded_of_known_build(program));
    let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
    for arguments in [
        "penalties(n_vocab=",
        ", last_n=",
        "dry(allowed_length=",
        ", n_breakers=",
        ", multiplier=",
    ] {
        assert!(said.err.contains(arguments), "{arguments}: {}", said.err);
    }
    // Before a call has proven an argument list, the names of some arguments are not known.
    let run = arguments(preloaded(program)).env("LLAMA_SIEVE_PRELOAD", "off");
    let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
    assert!(said.err.contains("penalties(repeat="), "{}", said.err);
}

/// The number at the end: all tokens except the first of each chain and those that are compared, or
/// none if all are compared.
#[test]
fn a_host_is_told_how_many_tokens_were_direct() {
    let counts = |setting: &str| {
        let run = preloaded_of_known_build(generate()).env("LLAMA_SIEVE_PRELOAD", setting);
        let lines = told(run.arg(model()).arg(5).arg(1));
        let counts = lines.iter().find_map(|line| {
            let counts = line.strip_prefix(": ")?;
            let counts = counts.strip_suffix(" tokens were sampled straight from the logits")?;
            let (direct, sampled) = counts.split_once(" of ")?;
            Some((direct.parse::<u32>().ok()?, sampled.parse::<u32>().ok()?))
        });
        counts.unwrap_or_else(|| panic!("{lines:?}"))
    };
    let (direct, sampled) = counts("all");
    assert!(sampled > 400, "{sampled}");
    assert!(
        direct < sampled && direct > sampled * 9 / 10,
        "{direct} of {sampled}"
    );
    assert_eq!(counts("verify"), (0, sampled));
    assert_eq!(counts("off"), (0, sampled));
}

#[test]
fn a_program_without_llama_cpp_has_none() {
    let program = Path::new("/bin/true");
    let reason_of = |run| reason(run, program);
    assert_eq!(reason_of(preloaded(program)), "there is no llama.cpp in it");
    let off = preloaded(program).env("LLAMA_SIEVE_PRELOAD", "off");
    assert_eq!(reason_of(off), "LLAMA_SIEVE_PRELOAD is off");
}

#[test]
fn a_program_with_llama_cpp_linked_in_cannot_be_reached() {
    let program = Build::new("preload_presence_static", &source("generate.cpp"));
    let program = build(program.with_llama(Link::Static));
    let run = preloaded(&program).arg(model()).arg(5).arg(1);
    let reason = reason(run, &program);
    assert!(
        reason.starts_with("llama.cpp is linked into the program"),
        "{reason}"
    );
}

/// Loaded as by Python's ctypes. The child process prints nothing.
#[test]
fn a_program_that_asks_the_library_by_handle_cannot_be_reached() {
    let program = Build::new("preload_presence_handle", &source("only_by_handle.c"));
    let program = build(program.flag("-D_GNU_SOURCE"));
    let library = paths::shared_library();
    let run = preloaded(&program).arg(library.display());
    let reason = reason(run, &program);
    assert!(reason.contains("own handle"), "{reason}");
    let file = library.file_name().expect("a file").to_string_lossy();
    assert!(reason.contains(file.as_ref()), "{reason}");
}
