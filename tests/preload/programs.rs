//! Compiles and runs the programs of c-tests/preload as a user would, for the tests of the preload
//! library and of the drop-in header.
#![allow(dead_code)] // Each test binary uses its part.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::toolchain::{Build, Link, root};

/// The names, as `llama_sampler_name` reports them, of all samplers that the preload library and
/// the drop-in header replace.
pub const SAMPLERS: [&str; 17] = [
    "greedy",
    "dist",
    "top-k",
    "top-p",
    "min-p",
    "typical",
    "temp",
    "temp-ext",
    "xtc",
    "top-n-sigma",
    "mirostat",
    "mirostat-v2",
    "penalties",
    "dry",
    "adaptive-p",
    "logit-bias",
    "infill",
];

/// Returns the name of a constructor: `llama_sampler_init_top_k` for `top-k`.
pub fn constructor(sampler: &str) -> String {
    format!("llama_sampler_init_{}", sampler.replace('-', "_"))
}

/// Compiles a program. Returns its path.
pub fn build(build: Build) -> PathBuf {
    let path = build.folder().join("program");
    build.build();
    path
}

/// Returns the program that generates text with every sampler. It is linked with libllama.
pub fn generate() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let name = concat!(env!("CARGO_CRATE_NAME"), "_generate");
        let program = Build::new(name, &source("generate.cpp"));
        build(program.with_llama(Link::Shared))
    })
}

/// Returns the path of a source in c-tests/preload.
pub fn source(name: &str) -> String {
    format!("c-tests/preload/{name}")
}

/// Returns the path of the repository's trained model.
pub fn model() -> String {
    root().join("models/kjv-tiny.gguf").display().to_string()
}

/// A run of a program, with its arguments and environment.
pub struct Run<'a> {
    program: &'a Path,
    args: Vec<String>,
    environment: Vec<(&'a str, String)>,
}

/// A program's output.
#[derive(Debug, PartialEq)]
pub struct Said {
    pub out: String,
    pub err: String,
}

impl<'a> Run<'a> {
    pub fn of(program: &'a Path) -> Self {
        Self {
            program,
            args: Vec::new(),
            environment: Vec::new(),
        }
    }

    pub fn arg(mut self, arg: impl ToString) -> Self {
        self.args.push(arg.to_string());
        self
    }

    pub fn env(mut self, name: &'a str, value: impl ToString) -> Self {
        self.environment.push((name, value.to_string()));
        self
    }

    /// Runs the program.
    ///
    /// # Panics
    /// If the program fails.
    pub fn said(self) -> Said {
        let mut command = Command::new(self.program);
        command.args(&self.args).current_dir(root());
        for name in [
            // Cargo adds its own folders, which a user does not have.
            "LD_LIBRARY_PATH",
            "LD_PRELOAD",
            "LLAMA_SIEVE_PRELOAD",
            "LLAMA_SIEVE_HOST",
            "LLAMA_SIEVE_VERBOSE",
            "LLAMA_SIEVE_EXTRA",
        ] {
            command.env_remove(name);
        }
        command.envs(self.environment);
        let output = command.output();
        let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success(),
            "{command:?}: {}\n{out}{err}",
            output.status
        );
        Said { out, err }
    }
}

/// Returns the names of the symbols that `nm` prints with these options, sorted.
pub fn symbols(file: &Path, options: &[&str]) -> Vec<String> {
    let mut command = Command::new("nm");
    command.args(options).arg("--format=posix").arg(file);
    let output = command.output().expect("nm runs (package binutils)");
    assert!(output.status.success(), "{command:?}: {}", output.status);
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    // `name@VERSION` if a library has symbol versions.
    let names = text
        .lines()
        .filter_map(|line| line.split([' ', '@']).next());
    let mut names: Vec<String> = names.map(String::from).collect();
    names.sort_unstable();
    names
}
