//! Runs programs under the preload library.

use std::collections::BTreeMap;
use std::path::Path;

use crate::programs::{Run, Said};
pub use crate::toolchain::preload_library;

pub fn preloaded(program: &Path) -> Run<'_> {
    Run::of(program).env("LD_PRELOAD", preload_library().display())
}

/// Returns a run of a program with the vendored llama.cpp under the preload library, with
/// llama.cpp's build number in the environment. Nothing else reveals the number: every build
/// between two releases has the same version.
pub fn preloaded_of_known_build(program: &Path) -> Run<'_> {
    preloaded(program).env("LLAMA_SIEVE_HOST", "b11434")
}

/// Returns the number of samplers that were made, by "name: ours" or "name: llama.cpp's own:
/// reason".
pub fn made(said: &Said) -> BTreeMap<String, usize> {
    let mut made = BTreeMap::new();
    for line in said.err.lines() {
        let Some(line) = line.strip_prefix("llama-sieve: preload: ") else {
            continue;
        };
        let (name, rest) = line.split_once('(').expect("a name and arguments");
        let (_, outcome) = rest.split_once("): ").expect("an outcome");
        *made.entry(format!("{name}: {outcome}")).or_default() += 1;
    }
    made
}

/// Runs a program, which must print what it has printed `alone`. Returns what [`made`] does.
pub fn made_alike(run: Run<'_>, alone: &Said) -> BTreeMap<String, usize> {
    let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
    assert_eq!(said.out, alone.out, "{}", said.err);
    made(&said)
}

pub fn warnings(said: &Said) -> Vec<&str> {
    let lines = said.err.lines();
    lines.filter(|l| l.contains("warning")).collect()
}

/// The reason if the user has requested the host's own samplers.
pub const AS_ASKED: &str = "llama.cpp's own: LLAMA_SIEVE_PRELOAD says so";
