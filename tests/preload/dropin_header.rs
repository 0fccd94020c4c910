//! Tests include/llama_sieve_dropin.h: sources that use only llama.h get this library's samplers.

use std::path::{Path, PathBuf};

use crate::programs::{Run, SAMPLERS, build, constructor, generate, model, source, symbols};
use crate::toolchain::{Build, Link, root};

/// Includes the header on the command line, so that the source stays unchanged.
fn with_header(build: Build) -> Build {
    build.flag("-include").flag("llama_sieve_dropin.h")
}

fn referred_to(file: &Path) -> Vec<String> {
    let mut names = symbols(file, &["--undefined-only"]);
    names.retain(|name| name.starts_with("llama_s"));
    names
}

/// The functions that are replaced in addition to the constructors.
const OTHERS: [(&str, &str); 5] = [
    ("llama_sampler_get_seed", "llama_sieve_get_seed"),
    ("llama_sampler_sample", "llama_sieve_chain_sample"),
    ("llama_sampler_init_grammar", "llama_sieve_init_grammar"),
    (
        "llama_sampler_init_grammar_lazy",
        "llama_sieve_init_grammar_lazy",
    ),
    (
        "llama_sampler_init_grammar_lazy_patterns",
        "llama_sieve_init_grammar_lazy_patterns",
    ),
];
/// The exports of this library that every program of these tests calls.
const CALLED: [&str; 2] = ["llama_sieve_get_seed", "llama_sieve_chain_sample"];

fn is_built_in(name: &str) -> bool {
    let constructors = SAMPLERS.into_iter().map(constructor);
    let others = OTHERS.into_iter().map(|(theirs, _)| theirs.to_owned());
    let mut replaced = constructors.chain(others);
    replaced.any(|known| known == name)
}

fn ours(sampler: &str) -> String {
    constructor(sampler).replace("llama_sampler_", "llama_sieve_")
}

/// Checks that a file refers only to this library's constructors, and to none of llama.cpp's.
fn refers_to_ours_alone(file: &Path) {
    let names = referred_to(file);
    for sampler in SAMPLERS {
        assert!(names.contains(&ours(sampler)), "{sampler}: {names:?}");
    }
    for ours in CALLED {
        assert!(names.iter().any(|name| name == ours), "{ours}: {names:?}");
    }
    let built_in: Vec<_> = names.iter().filter(|name| is_built_in(name)).collect();
    assert_eq!(built_in, Vec::<&String>::new());
}

#[test]
fn a_program_generates_the_same_text() {
    let dropin = Build::new("dropin_generate", &source("generate.cpp"));
    let dropin = with_header(dropin).with_ours(Link::Shared);
    let dropin = build(dropin.with_llama(Link::Shared));
    refers_to_ours_alone(&dropin);
    let run = |program: &Path| Run::of(program).arg(model()).arg(101).arg(20).said();
    assert_eq!(run(generate()), run(&dropin));
}

/// If every candidate is banned, the host's own function still returns one, and so does its
/// replacement under the preload library. Under this library's own names there is no token.
#[test]
fn no_banned_token_comes_out() {
    let plain = Build::new("banned_plain", &source("banned.cpp"));
    let plain = build(plain.with_llama(Link::Shared));
    let dropin = with_header(Build::new("banned_dropin", &source("banned.cpp")));
    let dropin = build(dropin.with_ours(Link::Shared).with_llama(Link::Shared));
    let built_in = Run::of(&plain).arg(model()).said();
    // Two kinds of bans, five chains, and three seeds. A token that the grammar does not allow is
    // not accepted.
    assert_eq!(built_in.out.lines().count(), 2 * 5 * 3, "{}", built_in.out);
    assert_eq!(built_in.out.matches("caught: ").count(), 5 * 3);
    #[cfg(all(
        target_env = "gnu",
        any(target_arch = "x86_64", target_arch = "aarch64")
    ))]
    {
        let run = crate::preloaded::preloaded_of_known_build(&plain).arg(model());
        let made = crate::preloaded::made_alike(run, &built_in);
        assert_eq!(made.get("llama_sampler_sample: ours"), Some(&1), "{made:?}");
    }
    let ours = Run::of(&dropin).arg(model()).said();
    assert_eq!(ours.out.lines().count(), 2 * 5 * 3, "{}", ours.out);
    for line in ours.out.lines() {
        assert!(line.ends_with(": -8 -8 -8"), "{line}");
    }
}

/// If a backend samples, wholly or in part, the host's own llama_sampler_sample is called.
#[test]
fn chains_in_the_graph_choose_the_same_tokens() {
    let plain = Build::new("dropin_offload_plain", &source("offload.cpp"));
    let plain = build(plain.with_llama(Link::Shared));
    let dropin = with_header(Build::new("dropin_offload", &source("offload.cpp")));
    let dropin = dropin.with_ours(Link::Shared).with_llama(Link::Shared);
    let run = |program: &PathBuf| Run::of(program).arg(model()).arg("no copies").said();
    let (plain, dropin) = (run(&plain), run(&build(dropin)));
    assert!(plain.out.contains("[+penalties] [+top-k] [+top-p]"));
    // In part on the backend, including this library's samplers, and with a draw on the CPU.
    assert!(dropin.out.contains("[+top-k] ") && dropin.out.contains(" [dist]"));
    assert!(plain.out.contains("| detached:"));
    assert_eq!(tokens(&plain.out), tokens(&dropin.out));
}

/// Returns the chosen tokens, without the marks for the part that was computed in the graph.
fn tokens(text: &str) -> Vec<Vec<&str>> {
    let chosen = |line| {
        let words = str::split_whitespace(line).filter(|word| !word.starts_with('['));
        words
            .map(|word| word.trim_start_matches(['T', 'P', 'L']))
            .collect()
    };
    text.lines().map(chosen).collect()
}

/// Compiles dropin_names.c to an object file.
fn names(name: &str, is_cxx: bool, flags: &[&str]) -> PathBuf {
    let source = source("dropin_names.c");
    let mut object = match is_cxx {
        true => Build::as_cxx(name, &source),
        false => Build::new(name, &source),
    };
    for flag in flags {
        object = object.flag(flag);
    }
    build(object.flag("-c").with_llama_h())
}

#[test]
fn calls_and_addresses_are_renamed_in_both_languages_and_orders() {
    for (name, is_cxx, flags) in [
        ("dropin_names_c", false, &[][..]),
        ("dropin_names_cpp", true, &[]),
        ("dropin_names_behind_c", false, &["-DLLAMA_H_FIRST"]),
        ("dropin_names_behind_cpp", true, &["-DLLAMA_H_FIRST"]),
    ] {
        let object = names(name, is_cxx, flags);
        refers_to_ours_alone(&object);
        let names = referred_to(&object);
        for (_, ours) in OTHERS {
            assert!(names.iter().any(|name| name == ours), "{ours}: {names:?}");
        }
        // Chains remain llama.cpp's.
        let kept = "llama_sampler_chain_add";
        assert!(names.iter().any(|name| name == kept), "{names:?}");
    }
}

#[test]
fn it_can_be_switched_off() {
    let flags = ["-DLLAMA_SIEVE_DROPIN_DISABLE"];
    let object = names("dropin_names_off", false, &flags);
    let names = referred_to(&object);
    assert!(!names.iter().any(|name| name.starts_with("llama_sieve_")));
    let built_in = names.iter().filter(|name| is_built_in(name));
    assert_eq!(built_in.count(), SAMPLERS.len() + OTHERS.len());
}

#[test]
fn it_replaces_what_we_have_and_nothing_else() {
    let header = std::fs::read_to_string(root().join("include/llama_sieve_dropin.h"));
    let header = header.expect("the header is there");
    let defined = header.lines().filter_map(|line| {
        let mut words = line.strip_prefix("#define llama_")?.split_whitespace();
        Some((words.next()?, words.next()?))
    });
    let mut defined: Vec<(String, String)> = defined
        .map(|(from, to)| (format!("llama_{from}"), to.to_owned()))
        .collect();
    defined.sort_unstable();
    let pairs = SAMPLERS
        .into_iter()
        .map(|name| (constructor(name), ours(name)));
    let mut expected: Vec<(String, String)> = pairs.collect();
    let others = OTHERS.map(|(theirs, ours)| (theirs.to_owned(), ours.to_owned()));
    expected.extend(others);
    expected.sort_unstable();
    assert_eq!(defined, expected);
}
