//! Checks that all places with a hand-written version agree with Cargo.toml, and that `ci/version`
//! changes them all.

use std::path::Path;

use crate::sources::{read, root};
use crate::stability::header;

const HEADER: &str = "include/llama_sieve.h";

/// Files with the version, each with the text before it. The lock files have it after the names of
/// this project's crates, and the header has it as numbers. The Python package and CMake read
/// Cargo.toml.
const PLACES: [(&str, &str); 8] = [
    ("Cargo.toml", "[workspace.package]\nversion = \""),
    (
        "Cargo.toml",
        "llama-sieve-constraints = { path = \"crates/constraints\", version = \"",
    ),
    (
        "Cargo.toml",
        "llama-sieve-kernels = { path = \"crates/kernels\", version = \"",
    ),
    ("node/package.json", "\n  \"version\": \""),
    ("README.md", "llama-sieve: preload library "),
    ("docs/preload.md", "llama-sieve: preload library "),
    ("docs/supervisors.md", "llama-sieve: preload library "),
    ("Cargo.lock", "name = \"test-crates\"\nversion = \""),
];

const LOCKS: [&str; 2] = ["Cargo.lock", "fuzz/Cargo.lock"];

/// Returns the version in the workspace's Cargo.toml.
fn version() -> String {
    let manifest = read(&root().join("Cargo.toml"));
    let (_, rest) = manifest
        .split_once("[workspace.package]\nversion = \"")
        .expect("it is there");
    rest.split('"').next().unwrap_or_default().to_owned()
}

/// Returns the places below a folder that have a different version.
fn others(folder: &Path, version: &str) -> Vec<String> {
    let mut others = Vec::new();
    for (file, before) in PLACES {
        let text = read(&folder.join(file));
        let mut places = text.split(before).skip(1).peekable();
        assert!(places.peek().is_some(), "{file} has no {before:?}");
        if !places.all(|place| is_there(place, version)) {
            others.push(format!("{file}: {before}"));
        }
    }
    for file in LOCKS {
        let text = read(&folder.join(file));
        let ours: Vec<&str> = text.split("name = \"llama-sieve").skip(1).collect();
        assert!(ours.len() > 2, "{file}: {}", ours.len());
        for crate_of_ours in ours {
            let (name, rest) = crate_of_ours.split_once('"').expect("a name ends");
            // The fuzz crate is never published, and has no version.
            let published = name != "-fuzz";
            if published && !is_there(rest.trim_start_matches("\nversion = \""), version) {
                others.push(format!("{file}: llama-sieve{name}"));
            }
        }
    }
    let declared = header(&read(&folder.join(HEADER))).numbers;
    for (name, number) in ["MAJOR", "MINOR", "PATCH"].iter().zip(version.split('.')) {
        let name = format!("LLAMA_SIEVE_VERSION_{name}");
        if declared.get(&name).map(String::as_str) != Some(number) {
            others.push(format!("{HEADER}: {name}"));
        }
    }
    others
}

/// True if a text begins with exactly this version.
fn is_there(text: &str, version: &str) -> bool {
    let rest = text.strip_prefix(version);
    rest.is_some_and(|rest| !rest.starts_with(|next: char| next == '.' || next.is_ascii_digit()))
}

#[test]
fn every_place_has_the_version() {
    assert_eq!(version(), env!("CARGO_PKG_VERSION"));
    assert_eq!(others(root(), &version()), Vec::<String>::new());
    let page = read(&root().join("docs/stability.md"));
    assert!(page.contains("`ci/version "), "docs/stability.md");
}

/// The newest heading of the changelog, apart from "Unreleased", is the version and its date.
#[test]
fn the_changelog_has_the_version() {
    let text = read(&root().join("CHANGELOG.md"));
    let mut headings = text.lines().filter_map(|line| line.strip_prefix("## "));
    let newest = headings.find(|heading| *heading != "Unreleased");
    let (number, date) = newest
        .and_then(|heading| heading.split_once(" - "))
        .expect("a heading such as ## 0.2.0 - 2026-11-27");
    assert_eq!(number, version());
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = date.split('-').collect();
    assert!(parts.iter().all(|part| digits(part)), "{date}");
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    assert_eq!(lengths, [4, 2, 2], "{date}");
}

#[cfg(target_os = "linux")]
#[test]
fn another_version_is_written_to_every_place() {
    use std::fs;
    use std::process::Command;

    use crate::toolchain::{empty_folder, said, succeed};

    let copy = empty_folder("versions");
    let sources = ["ci/version", "src/ffi/library.rs", HEADER];
    let placed = PLACES.iter().map(|(file, _)| *file);
    for file in sources.into_iter().chain(placed).chain(LOCKS) {
        let path = copy.join(file);
        fs::create_dir_all(path.parent().expect("in a folder")).expect("it can be made");
        fs::copy(root().join(file), path).expect("it can be copied");
    }
    let constants = |version: [&str; 4]| {
        let text = read(&copy.join("src/ffi/library.rs"));
        for (name, number) in ["MAJOR", "MINOR", "PATCH", "NUMBER"].iter().zip(version) {
            let line = format!("pub const LLAMA_SIEVE_VERSION_{name}: c_int = {number};");
            assert!(text.contains(&line), "{line}");
        }
    };

    succeed(Command::new(copy.join("ci/version")).arg("12.0.34"));
    assert_eq!(others(&copy, "12.0.34"), Vec::<String>::new());
    // Cargo.toml, twice a dependency, npm, four outputs, eight crates in locks, and two numbers.
    assert!(others(&copy, &version()).len() > 15);
    constants(["12", "0", "34", "120034"]);
    succeed(Command::new(copy.join("ci/version")).arg(version()));
    assert_eq!(others(&copy, &version()), Vec::<String>::new());

    for wrong in ["", "1", "1.2", "1.2.100", "01.2.3", "1.2.3.4", "1.2.x"] {
        let mut command = Command::new(copy.join("ci/version"));
        let output = command.arg(wrong).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        assert!(said(&output).contains("as in 0.3.0"), "{}", said(&output));
    }
    assert_eq!(others(&copy, &version()), Vec::<String>::new());
}
