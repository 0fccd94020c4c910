//! Tests the preload library under programs that know nothing of it. The source of each program, in
//! c-tests/preload/, describes what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::old_builds::Old;
use crate::preloaded::*;
use crate::programs::{Run, SAMPLERS, Said, build, constructor, generate, model, source, symbols};
use crate::toolchain::{Build, Link, copy_program, our_library, root, skipped, succeed};
use vendor_llama_cpp::paths;

// Exports of the preload library.

#[test]
fn it_exports_the_committed_list() {
    let committed = std::fs::read_to_string(root().join("preload/exports.txt"));
    let committed = committed.expect("the list is there");
    let exported = symbols(preload_library(), &["-D", "--defined-only"]);
    assert_eq!(exported, committed.lines().collect::<Vec<_>>());
    for sampler in SAMPLERS {
        assert!(exported.contains(&constructor(sampler)), "{sampler}");
    }
    // The dynamic linker must not bind a program's own copy of llama-sieve to the preload library,
    // so no name is exported by both.
    let ours = std::fs::read_to_string(root().join("tests/exports.txt"));
    let ours = ours.expect("the list is there");
    assert!(!exported.iter().any(|name| ours.lines().any(|n| n == name)));
}

/// Runs under a filter that kills the process at any system call that sampling does not need.
#[test]
fn it_needs_no_system_call_of_its_own() {
    let program = Build::new("preload_filtered", &source("filtered.cpp"));
    let program = build(program.with_llama(Link::Shared));
    let alone = Run::of(&program).arg(model()).said();
    assert_eq!(alone.out.lines().count(), 16, "{}", alone.out);
    let ours = preloaded(&program).env("LLAMA_SIEVE_VERBOSE", 1);
    let ours = ours.arg(model()).said();
    assert_eq!(ours.out, alone.out);
    for kind in ["logit-bias", "dry", "infill", "grammar"] {
        assert!(
            made(&ours).contains_key(&format!("{kind}: ours")),
            "{kind}: {}",
            ours.err
        );
    }
}

/// With the same soname, ldconfig would take the preload library for libllama_sieve.so.0 if both
/// are installed.
#[test]
fn it_has_a_soname_of_its_own() {
    let mut readelf = Command::new("readelf");
    let said = succeed(readelf.arg("-d").arg(preload_library()));
    assert!(said.contains("[libllama_sieve_preload.so]"), "{said}");
}

#[test]
fn every_stand_in_decides_before_it_calls() {
    let read = |name: &str| {
        let source = std::fs::read_to_string(root().join("preload/src").join(name));
        source.expect("the source is there")
    };
    // Replaced constructors begin in assembly and end with a jump. The code that decides does not
    // call the host.
    let sources = ["lib.rs", "grammars.rs"].map(read);
    let count = |text: &str| {
        sources
            .iter()
            .map(|s| s.matches(text).count())
            .sum::<usize>()
    };
    assert_eq!(count("stand_in!("), 4, "two macros, penalties and dry");
    let decisions = "unsafe extern \"C-unwind\" fn ";
    let deciding: Vec<&str> = sources
        .iter()
        .flat_map(|source| source.split(decisions).skip(1))
        .filter(|function| function.contains("stand_in!("))
        .filter_map(|function| function.split("stand_in!(").next())
        .collect();
    assert_eq!(deciding.len(), 4);
    for function in deciding {
        let name = function.split('(').next().unwrap_or_default();
        let decides = function.contains("choose(&call, ") || function.contains("chosen(&$which");
        assert!(decides, "{name}");
        assert!(
            !function.contains("guard(") && !function.contains("call_host!("),
            "{name}"
        );
    }
    // The other functions decide inside the guard, and call the host outside it.
    let exports = "pub unsafe extern \"C-unwind\" fn ";
    let [library, _] = &sources;
    for function in library.split(exports).skip(1) {
        let name = function.split('(').next().unwrap_or_default();
        let decides = function.contains("choice::other(&HOSTS)");
        assert!(decides && !function.contains("guard("), "{name}");
    }
    assert_eq!(library.matches(exports).count(), 2, "get_seed and copy");
    let sampling = read("sampling.rs");
    for function in sampling.split(exports).skip(1) {
        let name = function.split('(').next().unwrap_or_default();
        assert!(function.contains("call_host!("), "{name}");
    }
    assert!(!sampling.contains("guard("), "routes decide");
    let [library, grammars] = sources;
    for source in [library, sampling, grammars, read("vocabularies.rs")] {
        assert!(!source.contains("extern \"C\" fn"), "a host may throw");
    }
}

/// Destructors of threads may run after the last `dlclose`, and samplers may outlive it.
#[test]
fn both_libraries_stay_loaded() {
    for library in [preload_library(), &our_library(Link::Shared)] {
        let mut readelf = Command::new("readelf");
        let said = succeed(readelf.arg("-d").arg(library));
        assert!(said.contains("NODELETE"), "{}", library.display());
    }
}

// A program that is linked with libllama.

/// Checks that all samplers were this library's, including clones, and so was sampling. Returns how
/// many of each there were.
fn made_when_all_is_ours(said: &Said) -> BTreeMap<String, usize> {
    let mut made = made(said);
    assert_eq!(made.remove("llama_sampler_sample: ours"), Some(1));
    let expected = SAMPLERS.map(|name| format!("{name}: ours"));
    assert_eq!(
        made.keys().collect::<BTreeSet<_>>(),
        expected.iter().collect()
    );
    assert_eq!(warnings(said), Vec::<&str>::new());
    made
}

#[test]
fn a_program_generates_the_same_text_with_every_sampler() {
    let arguments = |run: Run<'_>| run.arg(model()).arg(1).arg(20).said();
    let built_in = arguments(Run::of(generate()));
    let ours = arguments(preloaded_of_known_build(generate()).env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(built_in.out, ours.out);
    assert_eq!(built_in.err, "");
    assert_eq!(
        built_in.out.matches("seed 20 ").count(),
        20,
        "20 option sets"
    );
    let made = made_when_all_is_ours(&ours);
    assert!(made.values().all(|&count| count >= 20));
    // In the mode that compares, no token differs either.
    let compared = preloaded_of_known_build(generate()).env("LLAMA_SIEVE_PRELOAD", "verify");
    let compared = arguments(compared);
    assert_eq!((compared.out, compared.err.as_str()), (built_in.out, ""));
    // Without LLAMA_SIEVE_VERBOSE it prints nothing.
    let silent = preloaded_of_known_build(generate())
        .arg(model())
        .arg(1)
        .arg(1)
        .said();
    assert_eq!(silent.err, "");
}

#[test]
fn the_environment_limits_what_is_ours() {
    let arguments = |run: Run<'_>| run.arg(model()).arg(5).arg(2).said();
    let built_in = arguments(Run::of(generate()));
    let with = |value: &str| {
        let run = preloaded_of_known_build(generate()).env("LLAMA_SIEVE_VERBOSE", 1);
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

    // Also if one chain mixes both, and is cloned.
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
        // The samplers, and sampling itself.
        assert_eq!(ours(&with(all)).len(), SAMPLERS.len() + 1);
    }

    let misspelt = with("topk,dist");
    assert_eq!(ours(&misspelt), ["dist"]);
    let [warning] = warnings(&misspelt)[..] else {
        panic!("{}", misspelt.err);
    };
    assert!(warning.contains("named \"topk\";") && warning.contains("top-k"));
}

/// The version of a build between two releases does not determine the arguments; the program's
/// calls do.
#[test]
fn of_an_unknown_build_all_is_ours() {
    let arguments = |run: Run<'_>| run.arg(model()).arg(1).arg(2).said();
    let built_in = arguments(Run::of(generate()));
    let ours = arguments(preloaded(generate()).env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(built_in.out, ours.out);
    made_when_all_is_ours(&ours);
}

#[test]
fn a_chain_in_the_graph_is_made_of_the_built_ins() {
    let program = Build::new("preload_offload", &source("offload.cpp"));
    let program = build(program.with_llama(Link::Shared));
    let built_in = Run::of(&program).arg(model()).said();
    assert!(built_in.out.contains("[+penalties] [+top-k] [+top-p]"));
    let made = made_alike(preloaded_of_known_build(&program).arg(model()), &built_in);
    for name in [
        "greedy",
        "dist",
        "top-k",
        "top-p",
        "min-p",
        "temp",
        "temp-ext",
        "penalties",
        "logit-bias",
    ] {
        assert!(made.contains_key(&format!("{name}: ours")), "{made:?}");
    }
}

/// Builds a program whose llama.cpp is compiled from the same source file, as a library.
fn with_host_of_its_own(name: &str, file: &str) -> PathBuf {
    let host = Build::new(&format!("{name}_host"), &source(file));
    let host = build(host.flag("-shared").flag("-fPIC").flag("-DAS_HOST"));
    build(Build::new(name, &source(file)).flag(host))
}

/// The program has a handler for the exception that the host throws.
#[test]
fn what_the_host_throws_reaches_its_handler() {
    let program = with_host_of_its_own("preload_throwing", "throwing.cpp");
    let caught = Run::of(&program).said();
    assert_eq!(caught.out.matches("caught: ").count(), 5, "{}", caught.out);
    for value in ["on", "off", "top-k"] {
        let run = preloaded_of_known_build(&program).env("LLAMA_SIEVE_PRELOAD", value);
        assert_eq!(run.said().out, caught.out, "{value}");
    }
}

/// The host's constructor is jumped to, or called so that its result can be inspected. Both pass
/// all arguments on.
#[test]
fn a_call_with_more_arguments_than_registers_is_passed_on_whole() {
    let program = with_host_of_its_own("preload_whole_call", "whole_call.cpp");
    let alone = Run::of(&program).said();
    assert_eq!(
        alone.out.matches("made nothing").count(),
        3,
        "{}",
        alone.out
    );
    assert_eq!(alone.out.matches("below 0").count(), 3, "{}", alone.out);
    for value in ["on", "off", "top-k"] {
        let run = preloaded(&program).env("LLAMA_SIEVE_PRELOAD", value);
        assert_eq!(run.said().out, alone.out, "{value}");
    }
}

// Libraries that are loaded later, and calls that do not pass through the preload library.

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
    let ours = preloaded_of_known_build(&host).arg(addon.display());
    let expected = ["dist", "min-p", "penalties", "temp", "top-k"];
    let expected = expected.map(|name| (format!("{name}: ours"), 1));
    assert_eq!(made_alike(ours, &built_in), BTreeMap::from(expected));
    // The constructors of llama.cpp itself are found, too.
    let off = preloaded(&host).env("LLAMA_SIEVE_PRELOAD", "off");
    let off = made_alike(off.arg(addon.display()), &built_in);
    assert!(off.keys().all(|key| key.ends_with(AS_ASKED)));
}

/// Each copy first finds the other's functions, and not those of llama.cpp.
#[test]
fn two_copies_find_the_llama_cpp_behind_them() {
    let copy = crate::toolchain::empty_folder("preload_copy").join("libother.so");
    std::fs::copy(preload_library(), &copy).expect("it can be copied");
    let addon = addon("preload_addon_of_two_copies");
    let interposer = Build::new("preload_interposer", &source("interposer.c"));
    let interposer = interposer.flag("-shared").flag("-fPIC");
    let interposer = build(interposer.flag("-D_GNU_SOURCE"));
    let host = addon_host("preload_two_copies_host");
    let built_in = Run::of(&host).arg(addon.display()).said();
    let ours = preload_library();
    for other in [&copy, &interposer] {
        for (first, second) in [(ours, other.as_path()), (other.as_path(), ours)] {
            for value in ["on", "off"] {
                let both = format!("{} {}", first.display(), second.display());
                let run = Run::of(&host).env("LD_PRELOAD", &both);
                let run = run.env("LLAMA_SIEVE_PRELOAD", value);
                let run = run.env("LLAMA_SIEVE_HOST", "b11434");
                let said = run.arg(addon.display()).said();
                assert_eq!(said.out, built_in.out, "{both}, {value}: {}", said.err);
            }
        }
    }
}

#[test]
fn a_sampler_outlives_its_library_and_its_thread() {
    let program = Build::new("preload_dlclose", "c-tests/dlclose.c");
    let program = build(program.flag("-D_GNU_SOURCE"));
    let llama = paths::shared_library();
    for (library, constructor) in [
        (
            our_library(Link::Shared).display().to_string(),
            "llama_sieve_init_dist",
        ),
        (
            preload_library().display().to_string(),
            "llama_sampler_init_dist",
        ),
    ] {
        let run = Run::of(&program).arg(llama.display()).arg(library);
        assert_eq!(run.arg(constructor).said().out, "sampled\n");
    }
}

/// A setuid program must not trust its environment, which the user controls.
#[test]
fn a_setuid_program_does_not_look_at_the_environment() {
    let program = Build::new("preload_setuid", "c-tests/environment.c");
    let program = build(program.flag("-D_GNU_SOURCE").with_ours(Link::Static));
    let said = |program: &Path| {
        let run = Run::of(program).env("LLAMA_SIEVE_SIMD", "scalar");
        run.said().out
    };
    assert_eq!(said(&program), "scalar, trusted\n");
    // In a folder in which any user may run it.
    let name = format!("llama-sieve-setuid-{}", std::process::id());
    let elevated = std::env::temp_dir().join(name);
    copy_program(&program, &elevated);
    let mut elevate = Command::new("sh");
    let command = r#"chown 65534 "$0" && chmod 4755 "$0""#;
    let elevate = elevate.arg("-c").arg(command).arg(&elevated).status();
    let out = said(&elevated);
    std::fs::remove_file(&elevated).expect("it was just made");
    if !elevate.is_ok_and(|status| status.success()) || out.ends_with(", trusted\n") {
        skipped("no setuid program can be made here");
        return;
    }
    assert!(out.ends_with(", not trusted\n"), "{out}");
    assert!(!out.starts_with("scalar,"), "{out}");
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
    let ours = arguments(preloaded_of_known_build(&host).env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(ours.out, built_in.out);
    assert!(ours.out.contains("host: penalties(1000, 4, "));
    let made = made(&ours);
    assert_eq!(made.get("top-k: ours"), Some(&1));
    let several = "there are several llama.cpp in this process, and ours serve the first";
    let theirs = format!("min-p: llama.cpp's own: {several}");
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
    let ours = preloaded_of_known_build(&program).arg(library.display());
    let made = made_alike(ours, &built_in);
    assert_eq!(made.get("dist: ours"), Some(&1));
    let not_finite = "temp: llama.cpp's own: an argument is not finite";
    assert!(made.contains_key(not_finite) && !made.contains_key("temp: ours"));
    // llama.cpp writes the state of the original into the clones of these samplers: 12 clones each.
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
        assert_eq!(made.get(&inside), Some(&12), "{name}: {made:?}");
    }
}

/// With the drop-ins on and off: the functions that llama.cpp calls for each member of a chain are
/// forwarded to it, once for each chain.
#[test]
fn a_chain_in_chains_is_copied_whole() {
    let program = Build::new("preload_nested", &source("nested.c"));
    let program = build(program.with_llama(Link::Shared));
    let built_in = Run::of(&program).said();
    assert!(built_in.out.contains("depth 6, seed 7"), "{}", built_in.out);
    for value in ["on", "off", "penalties", "mirostat-v2"] {
        let run = preloaded_of_known_build(&program).env("LLAMA_SIEVE_PRELOAD", value);
        assert_eq!(run.said().out, built_in.out, "{value}");
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
