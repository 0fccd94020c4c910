//! Tests the token trie from Python, Node and Bun. Each loads libllama and this library in its own
//! way, and must make the same choices as a C program with the same seeds.
//!
//! If a machine lacks a runtime, npm, or the network that npm needs once, the language is skipped,
//! with a message.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::toolchain::{Build, Link, Program, our_library, preload_library, root, said, skipped};
use serde_json::Value;
use vendor_llama_cpp::paths;

const CHOICES: &str =
    "Moses,Aaron,the LORD,Joshua the son of Nun,the king,the king of Assyria,caf\u{e9} \"a\\b\"";
const SEEDS: std::ops::RangeInclusive<u32> = 1..=8;

/// examples/constrained.c, whose choices the examples in other languages must make.
static IN_C: LazyLock<Program> = LazyLock::new(|| {
    let build = Build::new("languages_reference", "examples/constrained.c");
    build
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
});

/// examples/ffi_shim.c as a shared library.
static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
    let build = Build::new("languages_shim", "examples/ffi_shim.c");
    let library = build.folder().join("program");
    build
        .flag("-shared")
        .flag("-fPIC")
        .with_llama(Link::Shared)
        .build();
    library
});

/// Returns the output of the program with `--version`; `None` if that fails.
fn runtime(program: impl AsRef<OsStr>) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(version)
}

/// A language, and how its example is started.
struct Language {
    name: &'static str,
    interpreter: PathBuf,
    script: PathBuf,
}

impl Language {
    /// Returns the command, with the paths of the libraries and of the model in the environment.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.interpreter);
        command.arg(&self.script);
        command.env("LLAMA_SO", paths::shared_library());
        command.env("LLAMA_SIEVE_SO", our_library(Link::Shared));
        command.env("LLAMA_SHIM_SO", &*SHIM);
        command.env("LLAMA_MODEL", root().join("models/kjv-tiny.gguf"));
        // Cargo adds its own folders, which a user does not have.
        command.env_remove("LD_LIBRARY_PATH");
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        let mut command = self.command();
        command.args(args).arg("--model");
        command.arg(root().join("models/kjv-tiny.gguf"));
        let output = command.output();
        output.unwrap_or_else(|error| panic!("{}: {command:?}: {error}", self.name))
    }

    fn check(&self) {
        for seed in SEEDS {
            let seed = seed.to_string();
            let args = ["--choices", CHOICES, "--temp", "2", "--seed", &seed];
            let output = self.output(&args);
            assert!(output.status.success(), "{}: {}", self.name, said(&output));
            let value = String::from_utf8(output.stdout).expect("the example prints UTF-8");
            let value = value.trim_end();
            assert!(CHOICES.split(',').any(|c| c == value), "{value:?}");
            let in_c = IN_C.succeed(&args);
            let line = format!("And the LORD said unto {value}\n");
            assert!(in_c.starts_with(&line), "{}: {value}, C: {in_c}", self.name);
        }
        // With one value every token is forced.
        let output = self.output(&["--choices", "Joshua the son of Nun"]);
        assert_eq!(said(&output), "Joshua the son of Nun\n", "{}", self.name);
        // Errors are reported in words.
        for (args, code, words) in [
            (&["--seed", "x"][..], 2, "--seed"),
            (&["--choices", "a,,b"], 2, "--choices"),
            (&["--sieve-so", "nowhere.so"], 1, "nowhere.so"),
        ] {
            let output = self.output(args);
            let text = said(&output);
            assert_eq!(output.status.code(), Some(code), "{}: {text}", self.name);
            assert!(text.contains(words), "{}: {text}", self.name);
        }
    }
}

/// Copies those files of a folder that differ from their copies, except what npm installed there.
/// Equal files are left alone, since another test may be running them.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the target directory is writable");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let entry = entry.expect("an entry");
        let copy = to.join(entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            let content = fs::read(entry.path()).expect("the file can be read");
            if fs::read(&copy).ok().as_ref() != Some(&content) {
                fs::write(copy, content).expect("the file can be written");
            }
        } else if entry.file_name() != "node_modules" {
            copy_folder(&entry.path(), &copy);
        }
    }
}

/// Returns a copy of an npm project with its packages installed; `None`, with a message, if that is
/// not possible.
fn installed(language: &str, package: &str) -> Option<PathBuf> {
    // Tests of one language share its folder.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Not emptied, so that the packages of the last run are used again.
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("languages")
        .join(language);
    copy_folder(&root().join(language), &folder);
    let manifest = read_json(&folder.join("package.json")).expect("package.json is JSON");
    let kinds = ["dependencies", "devDependencies"];
    let wanted = kinds
        .iter()
        .find_map(|kind| manifest[kind][package].as_str());
    let wanted = wanted.expect("package.json pins the package").to_owned();
    let there = folder
        .join("node_modules")
        .join(package)
        .join("package.json");
    if read_json(&there).is_some_and(|found| found["version"] == wanted.as_str()) {
        return Some(folder);
    }
    if runtime("npm").is_none() {
        skipped(&format!("{language}: there is no npm on this machine"));
        return None;
    }
    let mut install = Command::new(root().join("ci/fetch"));
    install.args(["npm", "install", "--no-audit", "--no-fund"]);
    install.arg("--no-package-lock");
    let output = install.current_dir(&folder).output().expect("npm runs");
    if !output.status.success() {
        let text = said(&output);
        let why = text.lines().find(|line| line.starts_with("npm error"));
        skipped(&format!(
            "{language}: npm cannot install {package} {wanted}: {}",
            why.unwrap_or("it says nothing")
        ));
        return None;
    }
    Some(folder)
}

fn read_json(path: &Path) -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

#[test]
fn python_with_ctypes() {
    if runtime("python3").is_none() {
        skipped("python: there is no python3 on this machine");
        return;
    }
    let python = Language {
        name: "python",
        interpreter: "python3".into(),
        script: root().join("examples/python/constrained.py"),
    };
    python.check();
}

#[test]
fn node_with_koffi() {
    let Some(folder) = node_folder() else {
        return;
    };
    let node = Language {
        name: "node",
        interpreter: "node".into(),
        script: folder.join("constrained.mjs"),
    };
    node.check();
}

/// Returns the example's folder with its packages; `None` without node or the packages.
fn node_folder() -> Option<PathBuf> {
    if runtime("node").is_none() {
        skipped("node: there is no node on this machine");
        return None;
    }
    installed("examples/node", "koffi")
}

/// Runs the runner's own tests with node's test runner. They check, among other things, that a
/// constraint is set before its span and cleared after it, even if it is cancelled, and that two
/// streams can run at once.
#[test]
fn the_runner_in_node() {
    let Some(folder) = node_folder() else {
        return;
    };
    let node = Language {
        name: "node",
        interpreter: "node".into(),
        script: "--test".into(),
    };
    let tests = folder.join("runner.test.mjs").display().to_string();
    let output = node.command().arg(tests).output().expect("node runs");
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("pass 7") && text.contains("fail 0"), "{text}");
}

/// The runner's types are right, and the TypeScript compiler rejects a host that calls it with
/// wrong types.
#[test]
fn the_types_of_the_runner() {
    if node_folder().is_none() {
        return;
    }
    let Some(folder) = installed("examples/node", "typescript") else {
        return;
    };
    let check = |project: &str| {
        let mut check = Command::new(folder.join("node_modules/.bin/tsc"));
        check.current_dir(&folder).args(["-p", project]);
        said(&check.output().expect("node_modules/.bin/tsc runs"))
    };
    assert_eq!(check("."), "");
    let host = "import { Stream } from \"./runner.mjs\";
        const stream = new Stream({ llama: null, sieve: null, model: null });
        for await (const step of stream.generate({ prompt: 1, maxTokens: 2 })) step.word;\n";
    let project = r#"{ "extends": "./tsconfig.json", "files": ["host.mjs"] }"#;
    for (name, text) in [("host.mjs", host), ("host.json", project)] {
        fs::write(folder.join(name), text).expect("the folder is writable");
    }
    let text = check("host.json");
    assert_eq!(text.matches("error TS").count(), 2, "{text}");
    assert!(
        text.contains("'word'") && text.contains("'string'"),
        "{text}"
    );
}

/// Returns the package's folder with its dependencies; `None` without node or the dependencies.
pub fn node_package() -> Option<PathBuf> {
    node_folder()?;
    installed("node", "koffi")
}

/// Tests the npm package in Deno: the sieve's tests, and the shortest program.
#[test]
fn the_package_in_deno() {
    let Some(folder) = node_package().and(installed("node", "deno")) else {
        return;
    };
    let deno = folder.join("node_modules/.bin/deno");
    if runtime(&deno).is_none() {
        skipped("deno: the deno that npm installed does not start on this machine");
        return;
    }
    let run = |args: &[&str]| {
        let mut command = Command::new(&deno);
        command.env("LLAMA_SIEVE_LIBRARY", our_library(Link::Shared));
        command.env("NO_COLOR", "1").env_remove("LD_LIBRARY_PATH");
        command.args(args).current_dir(&folder);
        said(&command.output().expect("deno runs"))
    };
    let text = run(&["test", "-A", "--no-check", "test/sieve.test.mjs"]);
    assert!(text.contains("| 13 passed | 0 failed"), "{text}");
    let program = fs::read_to_string(root().join("examples/minimal.mjs")).expect("it is there");
    let program = program.replace("\"llama-sieve\"", "\"./index.mjs\"");
    // Another test runs the program in node, in the same folder.
    fs::write(folder.join("minimal_in_deno.mjs"), program).expect("the folder is writable");
    let tokens = run(&["run", "-A", "minimal_in_deno.mjs"]);
    assert_eq!(tokens, "739 240 529 330 589 405 499 450 ");
}

/// Tests the npm package by its own tests and its types.
#[test]
fn the_package_for_node() {
    let Some(folder) = node_package() else {
        return;
    };
    let package = Language {
        name: "the package for node",
        interpreter: "node".into(),
        script: "--test".into(),
    };
    // With the library of a build, and with the single library of the packages.
    for library in [our_library(Link::Shared).as_path(), preload_library()] {
        for (file, n) in [("sieve", 13), ("host", 12)] {
            let mut tests = package.command();
            tests.env("LLAMA_SIEVE_LIBRARY", library);
            tests.arg(folder.join(format!("test/{file}.test.mjs")));
            let text = said(&tests.output().expect("node runs"));
            let passed = format!("pass {n}");
            assert!(text.contains(&passed) && text.contains("fail 0"), "{text}");
        }
    }
    if installed("node", "typescript").is_some() {
        let mut check = Command::new(folder.join("node_modules/.bin/tsc"));
        check.current_dir(&folder).args(["-p", "test"]);
        assert_eq!(said(&check.output().expect("tsc runs")), "");
    }
}

#[test]
fn bun_with_bun_ffi() {
    let Some(folder) = installed("examples/bun", "bun") else {
        return;
    };
    let bun = folder.join("node_modules/.bin/bun");
    if runtime(&bun).is_none() {
        // The package has no program for some machines, and none is installed if npm runs no
        // scripts.
        skipped("bun: the bun that npm installed does not start on this machine");
        return;
    }
    let bun = Language {
        name: "bun",
        interpreter: bun,
        script: folder.join("constrained.ts"),
    };
    bun.check();
}
