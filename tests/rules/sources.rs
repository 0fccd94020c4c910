//! Checks rules of this project in the text of its sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folders with the sources of the product.
const SOURCES: [&str; 5] = [
    "cli/src",
    "src",
    "crates/constraints/src",
    "crates/kernels/src",
    "preload/src",
];

pub fn rust_files(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("readable").path();
        let extension = path.extension().and_then(|e| e.to_str());
        if path.is_dir() {
            found.extend(files(&path, extensions));
        } else if extension.is_some_and(|e| extensions.contains(&e)) {
            found.push(path);
        }
    }
    found
}

pub fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the name and the body of every `extern "C" fn` that is defined (not only declared) in
/// `source`.
fn extern_c_functions(source: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let source = source.replace("extern \"C-unwind\" fn ", "extern \"C\" fn ");
    for (at, _) in source.match_indices("extern \"C\" fn ") {
        let rest = &source[at + "extern \"C\" fn ".len()..];
        let name: String = rest
            .chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect();
        if name.is_empty() {
            continue; // A function pointer type.
        }
        let body = rest.find(" {\n").map_or("", |open| &rest[open + 3..]);
        found.push((name, body.to_owned()));
    }
    found
}

/// The ways in which the body of an export may begin: with the guard, or with a function that only
/// calls it.
const GUARDED: [&str; 8] = [
    "guard(",
    "construct(",
    "construct_selector(",
    "answer(",
    "part(",
    "made(",
    "value(",
    "aloud(",
];

#[test]
fn every_extern_c_function_runs_inside_the_guard() {
    let mut count = 0;
    for path in rust_files(&root().join("src/ffi")) {
        // Functions of a host, and its callbacks.
        if path.starts_with(root().join("src/ffi/tests")) {
            continue;
        }
        for (name, body) in extern_c_functions(&read(&path)) {
            // Called by the dynamic linker within a call of this library. It does nothing that can
            // panic except push to a vector.
            if name == "collect" {
                continue;
            }
            // A host's exceptions pass through these functions, so only this library's own code
            // runs inside the guard.
            const PASSING: [&str; 15] = [
                "accept_or_throw",
                "backend_init",
                "backend_pass_over",
                "llama_sieve_certify",
                "llama_sieve_certify_build",
                "llama_sieve_chain_check",
                "llama_sieve_get_seed",
                "llama_sieve_host_profile",
                "llama_sieve_init_dry",
                "llama_sieve_init_grammar",
                "llama_sieve_init_grammar_lazy",
                "llama_sieve_init_grammar_lazy_patterns",
                "llama_sieve_init_tags",
                "llama_sieve_init_trie_strings",
                "llama_sieve_set_dry_breakers",
            ];
            if PASSING.contains(&name.as_str()) || name.starts_with("llama_sieve_chain_sample") {
                continue;
            }
            let first = body.lines().map(str::trim).find(|line| {
                let declaration = line.starts_with("thread_local!")
                    || line.starts_with("static ")
                    || line.starts_with("//")
                    || line.starts_with('}');
                !line.is_empty() && !declaration
            });
            let first = first.unwrap_or_default();
            assert!(
                GUARDED.iter().any(|guard| first.starts_with(guard)),
                "{}: {name} begins with {first:?}, not with the guard",
                path.display()
            );
            count += 1;
        }
    }
    assert!(count > 15, "only {count} functions were found");
    let source = read(&root().join("src/ffi/samplers.rs"));
    for helper in ["fn construct<", "fn construct_selector<"] {
        let body = source.split(helper).nth(1).expect("the helper exists");
        let body = body.split(" {\n").nth(1).expect("it has a body");
        assert!(body.trim_start().starts_with("settled(made("), "{helper}");
    }
    let source = read(&root().join("src/ffi/failure.rs"));
    for helper in ["fn answer<", "fn made<", "fn value<"] {
        let body = source.split(helper).nth(1).expect("the helper exists");
        let body = body.split(" {\n").nth(1).expect("it has a body");
        assert!(body.trim_start().starts_with("guard("), "{helper}");
    }
}

#[test]
fn an_unguarded_function_would_be_found() {
    let source = "pub extern \"C\" fn bad(x: i32) -> i32 {\n    x + 1\n}\n";
    let found = extern_c_functions(source);
    assert_eq!(found.len(), 1);
    assert!(
        !GUARDED
            .iter()
            .any(|guard| found[0].1.trim().starts_with(guard))
    );
}

/// Files of src/ffi that make a slice from a pointer and a length that do not come from a C caller,
/// but from the linker, a host's vtable, or another slice.
const WITHOUT_CALLER: [&str; 7] = [
    "chain/mod.rs",
    "chain/workspace.rs",
    "host/build.rs",
    "host/libraries.rs",
    "host/libraries/imports.rs",
    "host/modules.rs",
    "vtable/array.rs",
];

/// True if a line makes a slice from a pointer and a length, or may.
fn follows_a_number(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    ["from_raw_parts", ".add(i)", ".offset("]
        .iter()
        .any(|part| code.contains(part))
}

/// Arrays whose length a C caller passes are checked in one place.
#[test]
fn pointers_with_numbers_are_judged_in_one_place() {
    let ffi = root().join("src/ffi");
    for path in rust_files(&ffi) {
        let name = path
            .strip_prefix(&ffi)
            .expect("inside")
            .display()
            .to_string();
        if name == "given.rs" || name.contains("tests") || WITHOUT_CALLER.contains(&&*name) {
            continue;
        }
        for (number, line) in (1..).zip(read(&path).lines()) {
            assert!(
                !follows_a_number(line),
                "{name}:{number}: {}: see src/ffi/given.rs",
                line.trim()
            );
        }
    }
}

#[test]
fn a_number_that_is_followed_elsewhere_would_be_found() {
    assert!(follows_a_number(
        "    let x = unsafe { std::slice::from_raw_parts(x, n) };"
    ));
    assert!(follows_a_number("    let x = unsafe { *list.add(i) };"));
    assert!(!follows_a_number("    // from_raw_parts"));
}

/// The modules in which all maps and sets name their hasher.
const WITH_HASHERS: [&str; 4] = [
    "crates/constraints/src/grammar/hash.rs",
    "crates/kernels/src/memory.rs",
    "crates/kernels/src/random.rs",
    "src/history.rs",
];

/// True if a source can name a map or set whose hasher asks the operating system for its keys.
fn hashes_by_default(source: &str) -> bool {
    let std = source.split("std::collections::").skip(1);
    let mut named = std.filter_map(|rest| rest.split(';').next());
    let of_lru = ["LruCache::new(", "LruCache::unbounded("];
    named.any(|names| names.contains("HashMap") || names.contains("HashSet"))
        || source.contains("hash::RandomState")
        || source.contains("hash_map::RandomState")
        || of_lru.iter().any(|made| source.contains(made))
}

/// A filter of system calls may kill a process that requests random numbers: see
/// `llama_sieve_kernels::random`.
#[test]
fn no_map_has_the_default_hasher() {
    let named = modules_in_which(hashes_by_default, &WITH_HASHERS);
    assert!(named.is_empty(), "{named:?} have a default hasher");
}

/// Returns the modules, except those in `may`, for which `holds` is true. Tests are left out.
fn modules_in_which(holds: fn(&str) -> bool, may: &[&str]) -> Vec<String> {
    let folders = SOURCES.iter().map(|folder| root().join(folder));
    let files = folders.flat_map(|folder| rust_files(&folder));
    let named = files.filter_map(|path| {
        let name = path.strip_prefix(root()).expect("inside").display();
        let name = name.to_string();
        if may.contains(&&*name) || name.contains("tests") || name.ends_with("models.rs") {
            return None;
        }
        let source = read(&path);
        let product = source.split("#[cfg(test)]\nmod ").next();
        holds(product.unwrap_or_default()).then_some(name)
    });
    named.collect()
}

/// The modules that may use locks other than those of `llama_sieve_kernels::sync`: that module
/// itself, one of a program that is alone in its process, and two whose locks are only tried and
/// never waited for.
const WITH_LOCKS: [&str; 4] = [
    "cli/src/probe.rs",
    "crates/kernels/src/sync.rs",
    "preload/src/attach.rs",
    "src/ffi/sieve/handle.rs",
];

/// True if a source names a lock that a forked child may find held forever.
fn has_a_lock_of_others(source: &str) -> bool {
    const LOCKS: [&str; 6] = ["Mutex", "RwLock", "OnceLock", "LazyLock", "Condvar", "Once"];
    let std = source.split("std::sync::").skip(1);
    let mut named = std.filter_map(|rest| rest.split([';', '>', '(']).next());
    let is_lock = |word: &str| LOCKS.contains(&word);
    let has_lock = |names: &str| {
        let mut words = names.split(|c: char| !c.is_ascii_alphanumeric());
        words.any(is_lock)
    };
    named.any(has_lock) || source.contains("parking_lot::")
}

/// See `llama_sieve_kernels::sync`.
#[test]
fn locks_are_those_that_a_forked_child_can_take() {
    let named = modules_in_which(has_a_lock_of_others, &WITH_LOCKS);
    assert!(named.is_empty(), "{named:?} have a lock of others");
}

#[test]
fn a_lock_of_others_would_be_found() {
    for source in [
        "use std::sync::Mutex;",
        "use std::sync::{\n    Arc, OnceLock,\n};",
        "struct Noted<'a>(&'a std::sync::OnceLock<Verdict>, Verdict);",
        "static X: std::sync::RwLock<u8> = std::sync::RwLock::new(0);",
        "use parking_lot::Mutex;",
    ] {
        assert!(has_a_lock_of_others(source), "{source}");
    }
    assert!(!has_a_lock_of_others(
        "use std::sync::Arc;\nuse crate::sync::Mutex;"
    ));
}

#[test]
fn a_default_hasher_would_be_found() {
    for source in [
        "use std::collections::HashMap;",
        "use std::collections::{\n    BTreeMap, HashSet,\n};",
        "let x: std::collections::HashMap<u8, u8>;",
        "use std::hash::RandomState;",
        "LruCache::new(n)",
    ] {
        assert!(hashes_by_default(source), "{source}");
    }
    assert!(!hashes_by_default(
        "use std::collections::VecDeque;\nHashMap"
    ));
}

#[test]
fn exports_are_only_made_in_ffi() {
    for folder in ["src", "crates"] {
        for path in rust_files(&root().join(folder)) {
            if path.starts_with(root().join("src/ffi")) {
                continue;
            }
            assert!(
                !read(&path).contains("no_mangle"),
                "{} exports a C name",
                path.display()
            );
        }
    }
}

#[test]
fn samplers_sieve_and_metrics_forbid_unsafe_code() {
    for file in ["src/samplers/mod.rs", "src/sieve/mod.rs", "src/metrics.rs"] {
        let source = read(&root().join(file));
        assert!(source.contains("#![forbid(unsafe_code)]"), "{file}");
    }
}

/// Measured times belong in docs/performance.md, with their date and conditions. In a source nobody
/// would measure them again.
#[test]
fn sources_name_no_measured_times() {
    for path in SOURCES
        .map(|folder| rust_files(&root().join(folder)))
        .concat()
    {
        let source = read(&path);
        for (number, line) in source.lines().enumerate() {
            let comment = line.split_once("//").map_or("", |(_, comment)| comment);
            assert!(
                !names_a_time(comment),
                "{}:{}: {}",
                path.display(),
                number + 1,
                comment.trim()
            );
        }
    }
}

/// True if a number is followed by micro- or nanoseconds.
fn names_a_time(comment: &str) -> bool {
    let words: Vec<&str> = comment.split([' ', ',', '.', ';', ':', ')']).collect();
    let is_number = |word: &str| word.ends_with(|c: char| c.is_ascii_digit());
    words
        .windows(2)
        .any(|pair| is_number(pair[0]) && ["us", "µs", "ns"].contains(&pair[1]))
}

#[test]
fn a_measured_time_would_be_found() {
    assert!(names_a_time(" costs 2.5 us, once"));
    assert!(names_a_time(" (870 ns instead of 620)"));
    assert!(!names_a_time(" 4 bytes of each use 2 lanes"));
}

/// Values that `{:?}` may show in a message: this library's numbers, and names of enumerations. A
/// caller's text may have any length, so `quoted` and `listed` are for such texts.
const SHOWN_WHOLE: [(&str, &str); 5] = [
    ("preload/src/choice.rs", "value"),
    ("src/ffi/samplers.rs", "parameters"),
    ("src/sieve/state.rs", "kind"),
    ("src/sieve/state.rs", "theirs"),
    ("src/sieve/state.rs", "ours"),
];

/// Returns the names of the values that a line shows by `{:?}`; an empty name for a positional
/// argument.
fn shown_whole(line: &str) -> Vec<&str> {
    let code = line.split("//").next().unwrap_or_default();
    let ends = [":?}", ":#?}"]
        .into_iter()
        .flat_map(|end| code.match_indices(end));
    let name = |(end, _): (usize, &str)| code[..end].rsplit('{').next();
    ends.filter_map(name).collect()
}

#[test]
fn messages_show_no_text_of_others_whole() {
    for folder in SOURCES {
        for path in rust_files(&root().join(folder)) {
            let place = path.strip_prefix(root()).expect("below the root");
            let place = place.to_string_lossy();
            // Tests, including those of the model checker, may show anything.
            if place.contains("/tests") || place == "src/models.rs" {
                continue;
            }
            let source = read(&path);
            let source = source.split("\nmod tests {").next().unwrap_or_default();
            for (number, line) in (1..).zip(source.lines()) {
                for name in shown_whole(line) {
                    let is_known = SHOWN_WHOLE.contains(&(&*place, name));
                    assert!(is_known, "{place}:{number}: {}", line.trim());
                }
            }
        }
    }
}

#[test]
fn a_text_that_is_shown_whole_would_be_found() {
    assert_eq!(shown_whole(r#"format!("no {path:?}; {:?}")"#), ["path", ""]);
    assert_eq!(shown_whole(r#"format!("no {path:#?}")"#), ["path"]);
    assert!(shown_whole(r#"format!("no {path}") // {path:?}"#).is_empty());
}

/// The line width. rustfmt checks it in Rust code, but not in comments.
const COLUMNS: usize = 100;

fn assert_wrapped(path: &Path, is_counted: fn(&str) -> bool) {
    for (number, line) in (1..).zip(read(path).lines()) {
        let columns = line.chars().count();
        let place = path.display();
        assert!(
            columns <= COLUMNS || !is_counted(line),
            "{place}:{number}: {columns} columns"
        );
    }
}

/// Checks comments and documents, except tables and pictures, which cannot be wrapped.
#[test]
fn prose_is_wrapped() {
    let wrapped = |folder: &str, extension: &str, is_prose: fn(&str) -> bool| {
        let files = files(&root().join(folder), &[extension]);
        assert!(!files.is_empty(), "{folder}");
        for path in files {
            assert_wrapped(&path, is_prose);
        }
    };
    for folder in [
        "src",
        "crates",
        "tests",
        "benches",
        "cli/src",
        "preload/src",
        "vendor-llama-cpp/src",
        "fuzz/fuzz_targets",
    ] {
        wrapped(folder, "rs", |line| {
            let comment = line.trim_start().strip_prefix("//");
            // In documentation, tables and code that is indented by four spaces.
            let text = comment.map(|text| text.trim_start_matches(['/', '!']));
            text.is_some_and(|text| !text.starts_with(" |") && !text.starts_with("     "))
        });
    }
    wrapped("docs", "md", |line| !line.starts_with(['|', '!', '[']));
}

#[test]
fn lines_of_c_and_cpp_are_not_longer_than_those_of_rust() {
    // This header stays as it was released.
    let frozen = root().join("c-tests/first_version/llama_sieve.h");
    let mut count = 0;
    for folder in [
        "c-tests",
        "examples",
        "hosts/programs",
        "include",
        "vendor-llama-cpp/shim",
    ] {
        for path in files(&root().join(folder), &["c", "cpp", "h"]) {
            if path == frozen {
                continue;
            }
            assert_wrapped(&path, |_| true);
            count += 1;
        }
    }
    assert!(count > 50, "only {count} files were found");
}

/// Returns the C names that the sources export.
fn exported_names() -> Vec<String> {
    let mut names = Vec::new();
    for path in rust_files(&root().join("src/ffi")) {
        let source = read(&path);
        for after in source.split("#[unsafe(no_mangle)]").skip(1) {
            let (name, _) = extern_c_functions(after).swap_remove(0);
            names.push(name);
        }
    }
    names.sort();
    names
}

#[test]
fn the_header_declares_what_the_sources_export() {
    let header = read(&root().join("include/llama_sieve.h"));
    for name in exported_names() {
        assert!(
            header.contains(&format!("{name}(")),
            "the header lacks {name}; ci/header writes it"
        );
    }
    let declared = header.matches("(void);").count() + header.matches(");\n").count();
    assert!(declared >= exported_names().len());
}

/// Returns the names that are called in `source`: those before a parenthesis.
fn called(source: &str) -> impl Iterator<Item = &str> {
    let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
    let before = source.match_indices('(').map(|(at, _)| &source[..at]);
    before.map(move |text| &text[text.trim_end_matches(is_of_name).len()..])
}

/// Random calls in random order find bugs that no test anticipates, but only in functions that are
/// called.
#[test]
fn the_fuzzer_of_the_c_functions_calls_every_one() {
    let files = rust_files(&root().join("fuzz/fuzz_targets/c_api"));
    let sources: Vec<String> = files.iter().map(|file| read(file)).collect();
    let known: BTreeSet<&str> = sources.iter().flat_map(|source| called(source)).collect();
    for name in exported_names() {
        assert!(known.contains(&*name), "no input calls {name}");
    }
}

#[test]
fn a_function_that_is_not_called_would_be_found() {
    let source = "use a::b;\n// c\nlet e = d::f(3) + g_2(h, f(i));";
    let known: Vec<&str> = called(source).collect();
    assert_eq!(known, ["f", "g_2", "f"]);
}

/// The symbols that the shared library exports are exactly the committed list.
#[test]
#[cfg(target_os = "linux")]
fn the_shared_library_exports_the_committed_list() {
    let library = std::env::current_exe().expect("a path");
    let library = library.with_file_name("libllama_sieve.so");
    let output = std::process::Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(&library)
        .output()
        .expect("nm runs (package binutils)");
    assert!(
        output.status.success(),
        "nm cannot read {}",
        library.display()
    );
    let text = String::from_utf8(output.stdout).expect("names are ASCII");
    let mut exported: Vec<&str> = text.lines().filter_map(|l| l.split(' ').next()).collect();
    exported.sort_unstable();
    let committed = read(&root().join("tests/exports.txt"));
    let committed: Vec<&str> = committed.lines().collect();
    assert_eq!(exported, committed);
    assert_eq!(exported, exported_names());
}
