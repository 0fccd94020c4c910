//! Tests the preload library under programs that use grammars.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::preloaded::{made, made_alike, preloaded, preloaded_of_known_build};
use crate::programs::{Run, build, model, source};
use crate::toolchain::{Build, Link, empty_folder};

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Build::new("preload_grammars", &source("grammars.cpp"));
        build(program.with_llama(Link::Shared))
    })
}

/// Returns the ranges of the model file that contain the texts of its vocabulary, each preceded by
/// its length.
fn texts(file: &[u8]) -> Vec<Range<usize>> {
    let key = b"tokenizer.ggml.tokens";
    let found = file.windows(key.len()).position(|window| window == key);
    let number = |at: usize| {
        let bytes = file[at..at + 8].try_into().expect("8 bytes");
        u64::from_le_bytes(bytes) as usize
    };
    // The key is followed by two types and the number of texts.
    let begin = found.expect("the texts are there") + key.len() + 8;
    let mut at = begin + 8;
    let text = |_| {
        let begin = at;
        at += 8 + number(begin);
        begin..at
    };
    (0..number(begin)).map(text).collect()
}

/// Writes a copy of the model in which the texts of the vocabulary are sorted by `key`. Returns its
/// path.
fn model_in_order_of<K: Ord>(name: &str, key: impl FnMut(&&[u8]) -> K) -> PathBuf {
    let mut bytes = std::fs::read(model()).expect("the model is there");
    // The first two are control tokens.
    let places = texts(&bytes).split_off(2);
    let mut sorted: Vec<_> = places.iter().map(|place| &bytes[place.clone()]).collect();
    sorted.sort_by_cached_key(key);
    let sorted = sorted.concat();
    bytes[places[0].start..][..sorted.len()].copy_from_slice(&sorted);
    let path = empty_folder(name).join("other.gguf");
    std::fs::write(&path, bytes).expect("it can be written");
    path
}

/// Returns the path of a copy of the model in which two texts of the vocabulary are exchanged.
fn other_model() -> &'static Path {
    static OTHER: OnceLock<PathBuf> = OnceLock::new();
    OTHER.get_or_init(|| {
        let bytes = std::fs::read(model()).expect("the model is there");
        let place = |wanted: &[u8]| {
            let mut places = texts(&bytes).into_iter().skip(2);
            places
                .position(|place| &bytes[place][8..] == wanted)
                .expect("it is a token")
        };
        let (one, other) = (place(b"nd"), place(b"in"));
        let mut i = 0;
        model_in_order_of("preload_other_model", |_| {
            let own = i;
            i += 1;
            match own {
                _ if own == one => other,
                _ if own == other => one,
                _ => own,
            }
        })
    })
}

fn arguments(run: Run<'_>) -> Run<'_> {
    run.arg(model()).arg(other_model().display())
}

const OURS: &str = "grammar: ours";

/// Compares plain and lazy grammars, after clones, copies and resets, with exceptions and refusals.
/// Also checks that nothing is kept of a model that was freed.
#[test]
fn grammars_allow_throw_and_refuse_the_same() {
    let built_in = arguments(Run::of(program())).said();
    assert!(built_in.out.lines().count() >= 100, "{}", built_in.out);
    assert!(built_in.out.matches("caught: ").count() >= 60);
    let ours = preloaded_of_known_build(program()).env("LLAMA_SIEVE_VERBOSE", 1);
    let ours = arguments(ours).said();
    assert_eq!(ours.out, built_in.out);
    let made = made(&ours);
    assert!(made.get(OURS).is_some_and(|&n| n >= 80), "{made:?}");
    // There is no warning about texts that the host's own constructor will judge.
    assert!(!ours.err.contains("warning"), "{}", ours.err);
}

/// Grammars are replaced whatever the build is, or is claimed to be.
#[test]
fn grammars_of_an_unknown_build_are_ours_as_well() {
    let built_in = arguments(Run::of(program())).said();
    let says = |run: Run<'_>| {
        let made = made_alike(arguments(run), &built_in);
        made.get(OURS).copied().unwrap_or(0)
    };
    assert!(says(preloaded(program())) >= 80);
    let old = preloaded(program()).env("LLAMA_SIEVE_HOST", "b10400");
    assert!(says(old) >= 80);
    let list = preloaded_of_known_build(program()).env("LLAMA_SIEVE_PRELOAD", "top-k,dist");
    assert_eq!(says(list), 0);
}

/// The program's fork handlers were registered before the preload library was loaded.
#[test]
fn a_fork_does_not_wait_for_a_mutex_of_the_program() {
    let build_of = Build::new("preload_forks", "c-tests/forks_under_a_mutex.c");
    let flags = ["-pthread", "-DBEFORE_LIBRARIES", "-DBUILT_IN"];
    let build_of = flags.into_iter().fold(build_of, Build::flag);
    let program = build(build_of.with_llama(Link::Shared));
    let said = preloaded_of_known_build(&program).arg(model()).said();
    assert!(
        said.out.starts_with("every fork came to its end\n"),
        "{said:?}"
    );
}

/// This library would exceed its limits at the first token.
#[test]
fn a_grammar_beyond_the_limits_is_the_hosts_own() {
    let large = |run: Run<'static>| run.arg("large").arg(model());
    let built_in = large(Run::of(program())).said();
    let n: usize = built_in.out.trim().parse().expect("a number");
    assert!(n > 1000, "{n}");
    let made = made_alike(large(preloaded(program())), &built_in);
    let limits = "llama.cpp's own: what may come first exceeds the limits of ours";
    let of_host = made.keys().filter(|key| key.contains(limits)).count();
    assert_eq!((of_host, made.get(OURS)), (1, None), "{made:?}");
}

/// A program's first grammar with token elements is tried with tokens that depend on the numbering
/// of the vocabulary. The built-in throws at a token that it allows if a token element begins
/// within that token's text.
#[test]
fn a_first_grammar_with_tokens_does_not_throw_in_any_vocabulary() {
    for seed in 0..16_u64 {
        let shuffled = model_in_order_of("preload_shuffled_model", |text| {
            let mut hasher = DefaultHasher::new();
            (seed, text).hash(&mut hasher);
            hasher.finish()
        });
        let tokens = |run: Run<'_>| run.arg("tokens").arg(shuffled.display()).said();
        let built_in = tokens(Run::of(program()));
        let ours = tokens(preloaded(program()).env("LLAMA_SIEVE_VERBOSE", 1));
        assert_eq!(ours.out, built_in.out, "{seed}");
        assert!(ours.out.lines().count() == 3, "{seed}: {}", ours.out);
        assert_eq!(made(&ours).get(OURS), Some(&3), "{seed}: {}", ours.err);
    }
}

/// For these texts the built-in never returns, or ends the process.
#[test]
fn texts_that_end_a_program_do_not() {
    let run = preloaded_of_known_build(program()).arg("hostile");
    let said = run.env("LLAMA_SIEVE_VERBOSE", 1).arg(model()).said();
    let mut lines = said.out.lines();
    assert!(
        lines.by_ref().take(5).all(|line| line == "1"),
        "{}",
        said.out
    );
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("refused: caught: "))
    );
    assert_eq!(lines.collect::<Vec<_>>(), ["1"]);
    // For four of the texts no sampler was made at all, and that is reported.
    let made = made(&said);
    assert_eq!(made.get(OURS), Some(&1), "{made:?}");
    let none = made
        .iter()
        .filter(|(key, _)| key.starts_with("grammar: none: "));
    assert_eq!(none.map(|(_, count)| count).sum::<usize>(), 4, "{made:?}");
    assert!(!made.keys().any(|key| key.contains("llama.cpp's own")));
}
