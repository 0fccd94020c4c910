//! Programs under the preload library.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::programs::{Run, Said};
use crate::toolchain::{root, succeed};
/// Built once. In a target directory of its own: cargo holds the other one locked while it tests.
pub fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args([
                "build",
                "--release",
                "--locked",
                "-p",
                "llama-sieve-preload",
            ])
            .arg("--target-dir")
            .arg(&target)
            .env_remove("CARGO_BUILD_TARGET")
            .current_dir(root());
        succeed(&mut cargo);
        target.join("release/libllama_sieve_preload.so")
    })
}

pub fn preloaded(program: &Path) -> Run<'_> {
    Run::of(program).env("LD_PRELOAD", preload_library().display())
}

/// Returns a run of a program of the vendored llama.cpp under the preload library, with the build
/// number given. Its version is that of any build between two releases, and nothing else tells its
/// build number.
pub fn preloaded_of_known_build(program: &Path) -> Run<'_> {
    preloaded(program).env("LLAMA_SIEVE_HOST", "b11434")
}

/// Counts the samplers that were made, by "name: ours" or "name: llama.cpp's own: reason".
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

pub fn warnings(said: &Said) -> Vec<&str> {
    let lines = said.err.lines();
    lines.filter(|l| l.contains("warning")).collect()
}

/// The host's own samplers are asked for.
pub const AS_ASKED: &str = "llama.cpp's own: LLAMA_SIEVE_PRELOAD says so";
