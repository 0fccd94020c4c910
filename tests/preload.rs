//! The preload library under programs that know nothing of it. What each program does is in its own source, in c-tests/preload/.
#![cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

#[path = "../c-tests/preload/programs.rs"]
mod programs;
#[path = "support/toolchain.rs"]
mod toolchain;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use programs::{Run, SAMPLERS, Said, build, constructor, model, source, symbols};
use toolchain::{Build, Link, root, succeed};
use vendor_llama_cpp::paths;

/// Built once. In a target directory of its own: cargo holds the other one locked while it tests.
fn preload_library() -> &'static Path {
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

fn preloaded(program: &Path) -> Run<'_> {
    Run::of(program).env("LD_PRELOAD", preload_library().display())
}

/// How often each sampler was made, by "name: ours" or "name: llama.cpp's own: reason".
fn made(said: &Said) -> BTreeMap<String, usize> {
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

fn warnings(said: &Said) -> Vec<&str> {
    let lines = said.err.lines();
    lines.filter(|l| l.contains("warning")).collect()
}

/// The host's own samplers are asked for.
const AS_ASKED: &str = "llama.cpp's own: LLAMA_SIEVE_PRELOAD says so";

// What it exports.

#[test]
fn it_stands_in_for_the_constructors_and_nothing_else() {
    // Our own C interface comes along.
    let ours = std::fs::read_to_string(root().join("tests/exports.txt"));
    let ours = ours.expect("the list is there");
    let mut stand_ins = symbols(preload_library(), &["-D", "--defined-only"]);
    stand_ins.retain(|name| !ours.lines().any(|known| known == name));
    let mut expected: Vec<String> = SAMPLERS.into_iter().map(constructor).collect();
    expected.push("llama_sampler_get_seed".to_owned());
    expected.sort_unstable();
    assert_eq!(stand_ins, expected);
}

/// Otherwise ldconfig, where both are installed, would take it for libllama_sieve.so.0.
#[test]
fn it_has_a_soname_of_its_own() {
    let mut readelf = Command::new("readelf");
    let said = succeed(readelf.arg("-d").arg(preload_library()));
    assert!(said.contains("[libllama_sieve_preload.so]"), "{said}");
}

#[test]
fn every_stand_in_runs_inside_the_guard() {
    let sources = std::fs::read_to_string(root().join("preload/src/lib.rs"));
    let sources = sources.expect("the source is there");
    let mut count = 0;
    for function in sources.split("pub unsafe extern \"C\" fn ").skip(1) {
        let name = function.split('(').next().unwrap_or_default();
        let body = function.split(" {\n").nth(1).unwrap_or_default();
        let first = body.lines().map(str::trim).find(|line| {
            // Types and constants may come first; rustfmt puts the parts of a long type on lines of their own.
            let declaration = line.starts_with("type ") || line.starts_with("const ");
            let part = line.ends_with(',') || line.starts_with(')');
            !declaration && !part
        });
        assert!(
            first.is_some_and(|l| l.starts_with("guard(")),
            "{name}: {first:?}"
        );
        count += 1;
    }
    assert_eq!(count, 4, "the macro, penalties, dry and get_seed");
}

// A program that is linked with libllama.

fn generate() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Build::new("preload_generate", &source("generate.cpp"));
        build(program.with_llama(Link::Shared))
    })
}

#[test]
fn a_program_generates_the_same_text_with_every_sampler() {
    let arguments = |run: Run<'_>| run.arg(model()).arg(1).arg(20).said();
    let built_in = arguments(Run::of(generate()));
    let ours = arguments(preloaded(generate()).env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(built_in.out, ours.out);
    assert_eq!(built_in.err, "");
    assert_eq!(
        built_in.out.matches("seed 20 ").count(),
        20,
        "20 option sets"
    );
    // All of them were ours, also those that were cloned.
    let made = made(&ours);
    let expected = SAMPLERS.map(|name| format!("{name}: ours"));
    assert_eq!(
        made.keys().collect::<BTreeSet<_>>(),
        expected.iter().collect()
    );
    assert!(made.values().all(|&count| count >= 20));
    assert_eq!(warnings(&ours), Vec::<&str>::new());
    // It says nothing unasked.
    let silent = preloaded(generate()).arg(model()).arg(1).arg(1).said();
    assert_eq!(silent.err, "");
}

#[test]
fn the_environment_limits_what_is_ours() {
    let arguments = |run: Run<'_>| run.arg(model()).arg(5).arg(2).said();
    let built_in = arguments(Run::of(generate()));
    let with = |value: &str| {
        let run = preloaded(generate()).env("LLAMA_SIEVE_VERBOSE", 1);
        let said = arguments(run.env("LLAMA_SIEVE_PRELOAD", value));
        assert_eq!(said.out, built_in.out, "{value}");
        said
    };
    let ours = |said: &Said| {
        let made = made(said).into_keys();
        let ours = made.filter_map(|key| key.strip_suffix(": ours").map(String::from));
        ours.collect::<Vec<String>>()
    };

    let off = with("off");
    assert_eq!(ours(&off), Vec::<String>::new());
    assert!(made(&off).keys().all(|key| key.ends_with(AS_ASKED)));
    assert_eq!(warnings(&off), Vec::<&str>::new());

    // Also a mixture in one chain, with its clones.
    for (list, expected) in [
        ("top-k,dist", vec!["dist", "top-k"]),
        ("penalties, dry ,xtc", vec!["dry", "penalties", "xtc"]),
        ("mirostat-v2,logit-bias,", vec!["logit-bias", "mirostat-v2"]),
    ] {
        let limited = with(list);
        assert_eq!(ours(&limited), expected);
        assert_eq!(warnings(&limited), Vec::<&str>::new());
    }
    for all in ["on", "all", ""] {
        assert_eq!(ours(&with(all)).len(), SAMPLERS.len());
    }

    let misspelt = with("topk,dist");
    assert_eq!(ours(&misspelt), ["dist"]);
    let [warning] = warnings(&misspelt)[..] else {
        panic!("{}", misspelt.err);
    };
    assert!(warning.contains("named topk;") && warning.contains("top-k"));
}

#[test]
fn the_samplers_do_what_their_definitions_say() {
    let program = Build::new("preload_sampling_cases", &source("sampling_cases.cpp"));
    let program = build(program.with_llama(Link::Shared));
    let built_in = Run::of(&program).arg(model()).said();
    assert!(built_in.out.ends_with("checks hold\n"));
    let ours = preloaded(&program).arg(model()).said();
    assert_eq!(ours, built_in);
}

// Libraries that come later, and calls that pass us by.

fn addon(name: &str) -> PathBuf {
    let addon = Build::new(name, &source("addon.cpp"));
    let addon = addon.flag("-shared").flag("-fPIC");
    build(addon.with_llama(Link::Shared))
}

fn addon_host(name: &str) -> PathBuf {
    build(Build::new(name, &source("addon_host.c")).flag("-D_GNU_SOURCE"))
}

#[test]
fn an_addon_with_a_private_libllama_gets_ours() {
    let addon = addon("preload_addon");
    let host = addon_host("preload_addon_host");
    let built_in = Run::of(&host).arg(addon.display()).said();
    assert!(built_in.out.starts_with("seed 42:"));
    let ours = preloaded(&host).env("LLAMA_SIEVE_VERBOSE", 1);
    let ours = ours.arg(addon.display()).said();
    assert_eq!(ours.out, built_in.out);
    let expected = ["dist", "min-p", "penalties", "temp", "top-k"];
    let expected = expected.map(|name| (format!("{name}: ours"), 1));
    assert_eq!(made(&ours), BTreeMap::from(expected));
    // Its own constructors are found as well.
    let off = preloaded(&host).env("LLAMA_SIEVE_PRELOAD", "off");
    let off = off
        .env("LLAMA_SIEVE_VERBOSE", 1)
        .arg(addon.display())
        .said();
    assert_eq!(off.out, built_in.out);
    assert!(made(&off).keys().all(|key| key.ends_with(AS_ASKED)));
}

#[test]
fn of_two_private_libllamas_the_first_gets_ours_and_each_its_own_calls() {
    let first = addon("preload_first_addon");
    let macros = [
        "AS_ADDON",
        "WITH_SAMPLER_COPY",
        "PENALTIES_WITH_N_VOCAB",
        "DRY_WITHOUT_N_CTX_TRAIN",
    ];
    let second = Old::new("second_addon", &macros).program;
    let host = addon_host("preload_two_addons_host");
    let arguments = |run: Run<'_>| run.arg(first.display()).arg(second.display()).said();
    let built_in = arguments(Run::of(&host));
    let ours = arguments(preloaded(&host).env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(ours.out, built_in.out);
    assert!(ours.out.contains("host: penalties(1000, 4, "));
    let made = made(&ours);
    assert_eq!(made.get("top-k: ours"), Some(&1));
    let several = "there are several llama.cpp in this process, and ours serve the first";
    let theirs = format!("top-k: llama.cpp's own: {several}");
    assert_eq!(made.get(&theirs), Some(&1));
    let [warning] = warnings(&ours)[..] else {
        panic!("{}", ours.err);
    };
    assert!(warning.contains(several));
}

#[test]
fn what_llama_cpp_makes_for_itself_is_its_own() {
    let program = Build::new("preload_by_handle", &source("by_handle.cpp"));
    let program = build(program.with_llama(Link::Shared).flag("-D_GNU_SOURCE"));
    let library = paths::shared_library();
    let built_in = Run::of(&program).arg(library.display()).said();
    let ours = preloaded(&program).env("LLAMA_SIEVE_VERBOSE", 1);
    let ours = ours.arg(library.display()).said();
    assert_eq!(ours.out, built_in.out);
    let made = made(&ours);
    assert_eq!(made.get("dist: ours"), Some(&1));
    let not_finite = "temp: llama.cpp's own: an argument is not finite";
    assert!(made.contains_key(not_finite) && !made.contains_key("temp: ours"));
    // Into the clones of these, llama.cpp writes what the original had come to: 12 clones each.
    for name in [
        "dist",
        "mirostat",
        "mirostat-v2",
        "xtc",
        "adaptive-p",
        "penalties",
        "dry",
    ] {
        let inside = format!("{name}: llama.cpp's own: called by llama.cpp itself");
        assert_eq!(made.get(&inside), Some(&12), "{name}: {}", ours.err);
    }
}

#[test]
fn without_llama_cpp_nothing_happens() {
    let program = Build::new("preload_no_host", &source("no_host.c"));
    let program = build(program.flag("-D_GNU_SOURCE"));
    assert_eq!(Run::of(&program).said().out, "no constructor\n");
    let said = preloaded(&program).said();
    assert_eq!(said.out, "made: 0\n");
    assert!(said.err.contains("no llama.cpp was found"), "{}", said.err);
}

// Older builds, which a stand-in plays.

struct Old {
    program: PathBuf,
}

impl Old {
    /// With these macros, which old_llama.h and old_host.c explain.
    fn new(name: &str, macros: &[&str]) -> Self {
        let define = |mut build: Build| {
            for name in macros {
                build = build.flag(format!("-D{name}"));
            }
            build
        };
        let host = Build::new(&format!("preload_old_host_{name}"), &source("old_host.c"));
        let host = build(define(host.flag("-shared").flag("-fPIC")));
        let mut program = Build::new(&format!("preload_old_{name}"), &source("old_program.c"));
        if macros.contains(&"AS_ADDON") {
            program = program.flag("-shared").flag("-fPIC");
        }
        let program = build(define(program).flag(host));
        Self { program }
    }

    /// What it says without us.
    fn alone(&self) -> Said {
        Run::of(&self.program).said()
    }

    fn preloaded(&self) -> Run<'_> {
        preloaded(&self.program)
    }

    /// The calls arrive at the host unchanged, and there is one warning, which contains `reason`.
    fn is_left_alone(&self, run: Run<'_>, reason: &str) {
        let said = run.said();
        assert_eq!(said.out, self.alone().out);
        assert!(said.out.contains("host: penalties("));
        let [warning] = warnings(&said)[..] else {
            panic!("{:?}", said.err);
        };
        assert!(warning.contains(reason), "{warning}");
    }
}

/// What ours make of the program's candidates.
const PENALTIES: &str = "penalties: penalties 0:4 1:-2.75 2:-0.25 3:-2.75 4:0 5:-1\n";
const DRY: &str = "dry: dry 0:4 1:-1 2:2 3:-3 4:0 5:-1\n";
/// The context is as long as the history and longer, or shorter.
const DRY_WITH_N_CTX_TRAIN: &str =
    "dry: dry 0:4 1:-1 2:2 3:-7 4:0 5:-1\ndry: dry 0:4 1:-1 2:2 3:-1 4:0 5:-1\n";
const REST: &str =
    "top-k: top-k 0:4 2:2\ntop-p: top-p 0:4\nhost: dist(42)\nseed: 4711\ndist: the host's\n";

#[test]
fn a_build_with_four_penalties() {
    let old = Old::new("four", &["OWN_DRY", "WITH_SET_SAMPLER"]);
    old.is_left_alone(old.preloaded(), "set LLAMA_SIEVE_HOST");
    // Two faults, two warnings.
    let misnamed = old.preloaded().env("LLAMA_SIEVE_HOST", "new").said();
    assert_eq!(misnamed.out, old.alone().out);
    assert_eq!(warnings(&misnamed).len(), 2, "{}", misnamed.err);
    assert!(misnamed.err.contains("new is no build number"));
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", "b9000").said();
    assert_eq!(
        named.out,
        format!("{PENALTIES}{DRY}{DRY_WITH_N_CTX_TRAIN}{REST}")
    );
    assert_eq!(warnings(&named), Vec::<&str>::new());
    // What draws stays the host's, and is named as such.
    let verbose = old.preloaded().env("LLAMA_SIEVE_HOST", 9000);
    let verbose = verbose.env("LLAMA_SIEVE_VERBOSE", 1).said();
    let reason = "dist: llama.cpp's own: it draws other random numbers in this build";
    assert_eq!(made(&verbose).get(reason), Some(&1), "{}", verbose.err);
    assert_eq!(made(&verbose).get("penalties: ours"), Some(&1));
}

#[test]
fn a_build_with_five_penalties_and_the_old_dry() {
    let old = Old::new(
        "five",
        &["OWN_DRY", "WITH_SET_SAMPLER", "PENALTIES_WITH_N_VOCAB"],
    );
    old.is_left_alone(old.preloaded(), "set LLAMA_SIEVE_HOST");
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", 10_258).said();
    assert_eq!(
        named.out,
        format!("{PENALTIES}{DRY}{DRY_WITH_N_CTX_TRAIN}{REST}")
    );
}

#[test]
fn a_build_with_five_penalties_and_the_new_dry() {
    let macros = [
        "OWN_DRY",
        "WITH_SET_SAMPLER",
        "PENALTIES_WITH_N_VOCAB",
        "DRY_WITHOUT_N_CTX_TRAIN",
    ];
    let old = Old::new("five_seven", &macros);
    old.is_left_alone(old.preloaded(), "set LLAMA_SIEVE_HOST");
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", 10_300).said();
    assert_eq!(named.out, format!("{PENALTIES}{DRY}{REST}"));
    // Off is off, and needs no build number.
    let off = old.preloaded().env("LLAMA_SIEVE_PRELOAD", "off").said();
    assert_eq!(off, old.alone());
}

#[test]
fn a_named_build_that_cannot_be() {
    let macros = [
        "WITH_SAMPLER_COPY",
        "PENALTIES_WITH_N_VOCAB",
        "DRY_WITHOUT_N_CTX_TRAIN",
    ];
    let modern = Old::new("modern", &macros);
    modern.is_left_alone(
        modern.preloaded().env("LLAMA_SIEVE_HOST", 9000),
        "exports llama_sampler_copy",
    );
}

#[test]
fn a_build_from_before_samplers_of_others() {
    let macros = ["PENALTIES_WITH_NEWLINES", "WITHOUT_SAMPLER_INIT"];
    let oldest = Old::new("oldest", &macros);
    let reason = "the first that takes samplers of others";
    oldest.is_left_alone(oldest.preloaded(), reason);
    let named = oldest.preloaded().env("LLAMA_SIEVE_HOST", 4000);
    oldest.is_left_alone(named, reason);
}
