//! Tests the preload library under llama.cpp's common library, by which llama-server samples.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::preloaded::{AS_ASKED, made, made_alike, preloaded, preloaded_of_known_build};
use crate::programs::{Run, build, model, source};
use crate::toolchain::{Build, Link, compile_common, empty_folder, root, succeed};
use vendor_llama_cpp::paths;

/// The sources of the common library that are needed to sample.
pub const SOURCES: [&str; 5] = [
    "sampling.cpp",
    "reasoning-budget.cpp",
    "log.cpp",
    "trie.cpp",
    "unicode.cpp",
];

/// Returns the object files of the common library, from which all libraries of these tests are
/// linked.
pub fn objects() -> &'static [PathBuf] {
    static OBJECTS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    OBJECTS.get_or_init(|| {
        let folder = empty_folder("c_programs/preload_common_objects");
        let object = |name: &str| folder.join(name).with_extension("o");
        std::thread::scope(|scope| {
            for name in SOURCES {
                let object = object(name);
                scope.spawn(move || compile(name, &[], &object));
            }
        });
        SOURCES.map(object).into()
    })
}

/// Compiles the source `name` of the common library with `flags`.
fn compile(name: &str, flags: &[&str], object: &Path) {
    let source = paths::source_dir().join("common").join(name);
    let flags = [&["-O1", "-fPIC", "-pthread"], flags].concat();
    compile_common(&source, &flags, object);
}

/// Links the common library as a shared library that calls llama.cpp and itself through the dynamic
/// linker, like that of llama.cpp's own build. If `with_llama`, llama.cpp is linked into it.
pub fn common_library(name: &str, objects: &[PathBuf], with_llama: bool) -> PathBuf {
    let folder = empty_folder(&format!("c_programs/{name}_library"));
    let library = folder.join("libllama-common.so");
    let mut link = Command::new(paths::cxx_compiler());
    link.arg("-shared").args(objects);
    if with_llama {
        link.arg("-Wl,--whole-archive").arg(paths::static_library());
        link.arg("-Wl,--no-whole-archive").arg("-ldl");
    }
    // The functions that these sources lack are never called.
    link.args(["-Wl,-z,lazy", "-pthread", "-o"]).arg(&library);
    succeed(&mut link);
    library
}

pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let library = common_library("preload_common", objects(), false);
        let program = sampling_with("preload_common", "common.cpp", &library);
        build(program.with_llama(Link::Shared))
    })
}

/// Returns a program that is linked with the common library `library`.
pub fn sampling_with(name: &str, program: &str, library: &Path) -> Build {
    let folder = library.parent().expect("it is in a folder");
    Build::new(name, &source(program))
        .flag("-isystem")
        .flag(paths::source_dir().join("common"))
        .flag(library)
        .flag(format!("-Wl,-rpath,{}", folder.display()))
        .flag("-Wl,--unresolved-symbols=ignore-in-shared-libs")
        .flag("-pthread")
}

fn arguments(run: Run<'_>) -> Run<'_> {
    run.arg(model()).arg(1).arg(4)
}

fn one_seed(run: Run<'_>) -> Run<'_> {
    run.arg(model()).arg(1).arg(1)
}

const SERVED: &str = "common_sampler_sample: ours";

/// Includes grammars, first or last, and reasoning budgets. Tokens and the candidates before them
/// are compared.
#[test]
fn a_server_samples_the_same_from_the_same_candidates() {
    let built_in = arguments(Run::of(program())).said();
    assert!(built_in.out.lines().count() >= 100);
    let made = made_alike(arguments(preloaded_of_known_build(program())), &built_in);
    assert_eq!(made.get(SERVED), Some(&1), "{made:?}");
    let after = "common_sampler_sample after a grammar: ours";
    assert_eq!(made.get(after), Some(&1), "{made:?}");
    let after = "common_sampler_sample after a budget: ours";
    assert_eq!(made.get(after), Some(&1), "{made:?}");
    // Six options, with two samplers for each of four seeds, and some more for reasoning budgets.
    let grammars = made.get("grammar: ours");
    assert!(grammars.is_some_and(|&n| n >= 6 * 2 * 4), "{made:?}");
}

#[test]
fn what_the_user_does_not_want_is_the_hosts() {
    let built_in = arguments(Run::of(program())).said();
    for list in [
        "off",
        "top-k,dist",
        "penalties,dry,top-p,min-p,temp-ext,sample",
    ] {
        let run = preloaded_of_known_build(program()).env("LLAMA_SIEVE_PRELOAD", list);
        let made = made_alike(arguments(run), &built_in);
        assert_eq!(made.get(SERVED), None, "{list}");
    }
}

/// If a budget precedes one chain, that says nothing about another chain to which a member is
/// moved.
#[test]
fn what_moves_to_another_chain_is_sampled_with_as_what_comes_before_that() {
    let library = common_library("preload_moved", objects(), false);
    let program = sampling_with("preload_moved", "moved.cpp", &library);
    let program = build(program.with_llama(Link::Shared));
    let built_in = Run::of(&program).arg(model()).said();
    let lines: Vec<&str> = built_in.out.lines().collect();
    assert!(lines[0].starts_with(" 200") && lines[1].starts_with(" 200"));
    assert!(!lines[2].starts_with(" 100") && !lines[2].starts_with(" 200"));
    let made = made_alike(preloaded(&program).arg(model()), &built_in);
    for served in [SERVED, "common_sampler_sample after a budget: ours"] {
        assert_eq!(made.get(served), Some(&1), "{made:?}");
    }
}

/// With an unknown build some samplers stay the host's own. The library samples with the chain all
/// the same, as long as these samplers are switched off.
#[test]
fn a_server_of_an_unknown_build_is_sampled_for_as_well() {
    let built_in = one_seed(Run::of(program())).said();
    let made = made_alike(one_seed(preloaded(program())), &built_in);
    assert_eq!(made.get(SERVED), Some(&1));
}

/// With every sampler, grammar and option, the drop-ins leave the same bits on copies of a chain as
/// llama.cpp's own function.
#[test]
fn every_token_of_a_server_can_be_compared() {
    let built_in = one_seed(Run::of(program())).said();
    for run in [preloaded_of_known_build(program()), preloaded(program())] {
        let run = run.env("LLAMA_SIEVE_PRELOAD", "verify");
        let said = one_seed(run.env("LLAMA_SIEVE_VERBOSE", 1)).said();
        assert_eq!(said.out, built_in.out);
        let made = made(&said);
        assert!(made.contains_key("top-k: ours"), "{made:?}");
        let sampled = |key: &&String| key.starts_with("common_sampler_sample");
        assert_eq!(made.keys().find(sampled), None);
        // The comparison has not ended, and no token was sampled by this library.
        let lines = said.err.lines();
        let mut of_logits = lines.filter(|line| line.contains("straight from the logits"));
        let last = of_logits.next().unwrap_or_default();
        assert!(last.contains(": 0 of "), "{}", said.err);
        assert_eq!(of_logits.next(), None);
    }
}

/// The host's own penalties, DRY, XTC and others do nothing while they are switched off, so the
/// chain is sampled like one that has only this library's samplers.
#[test]
fn what_is_switched_off_may_be_the_hosts() {
    let built_in = one_seed(Run::of(program())).said();
    let list = "top-k,top-p,min-p,temp-ext,dist,sample";
    let run = preloaded_of_known_build(program()).env("LLAMA_SIEVE_PRELOAD", list);
    let made = made_alike(one_seed(run), &built_in);
    assert_eq!(made.get(SERVED), Some(&1));
    for name in ["penalties", "dry", "typical", "xtc", "top-n-sigma"] {
        let theirs = format!("{name}: {AS_ASKED}");
        assert!(made.contains_key(&theirs), "{name}: {made:?}");
    }
}

/// Tests a common library that contains llama.cpp, as in xllamacpp. Only samplers that the common
/// library makes are replaced there, not those that llama.cpp makes for itself, even while one of
/// its own constructors runs.
#[test]
fn a_server_in_one_library_with_llama_cpp_samples_the_same() {
    let library = common_library("preload_one_library", objects(), true);
    let program = sampling_with("preload_one_library", "common.cpp", &library);
    let program = build(program.with_llama_h());
    let built_in = arguments(Run::of(&program)).said();
    let made = made_alike(arguments(preloaded_of_known_build(&program)), &built_in);
    assert_eq!(made.get(SERVED), Some(&1));
    // The first member of a chain is llama.cpp's own, and the last is this library's.
    let list = "dist,top-k,sample";
    let run = preloaded_of_known_build(&program).env("LLAMA_SIEVE_PRELOAD", list);
    made_alike(arguments(run), &built_in);
}

/// The common library is recognized by the addresses of its code, not by names: in other versions
/// `common_sampler_init` has other arguments, and so another mangled name.
#[test]
fn what_shares_a_library_with_llama_cpp_is_told_from_its_samplers() {
    const OTHERWISE: &str = "-Dcommon_sampler_init=common_sampler_init_otherwise";
    let folder = empty_folder("c_programs/preload_otherwise_objects");
    let object = folder.join("sampling.o");
    compile("sampling.cpp", &[OTHERWISE], &object);
    let mut objects = objects().to_vec();
    objects[0] = object;
    let library = common_library("preload_otherwise", &objects, true);
    let program = sampling_with("preload_otherwise", "common.cpp", &library);
    let program = build(program.flag(OTHERWISE).with_llama_h());
    let built_in = one_seed(Run::of(&program)).said();
    let made = made_alike(one_seed(preloaded_of_known_build(&program)), &built_in);
    assert_eq!(made.get(SERVED), Some(&1), "{made:?}");
    for kind in ["top-k", "top-p", "min-p", "temp-ext", "penalties", "dist"] {
        let ours = made.get(&format!("{kind}: ours"));
        assert!(ours.is_some_and(|&n| n > 0), "{kind}: {made:?}");
    }
}

/// A grammar can die beyond a limit, after a token that is not allowed, or at an end that comes too
/// early. Forbidden tokens are still not sampled. If the end is banned, too, the host throws.
#[test]
fn no_forbidden_token_of_a_dead_grammar_comes_out_silently() {
    let library = common_library("preload_dead", objects(), false);
    let program = sampling_with("preload_dead", "dead_grammars.cpp", &library);
    let program = build(program.with_llama(Link::Shared));
    let run = preloaded_of_known_build(&program).env("LLAMA_SIEVE_VERBOSE", 1);
    let said = run.arg(model()).said();
    // Five states, six options, the grammar first or last, and six tokens. With one option all
    // tokens are forbidden. In the states beyond a limit all are refused, in the other two those
    // that are forbidden.
    let all = 5 * 6 * 2 * 6;
    let forbidden = all / 6;
    let refused = 3 * 6 * 2 * 6 + 2 * 2 * 6;
    let told = format!(
        "{} ends, {forbidden} forbidden tokens, {refused} exceptions\n",
        all - forbidden
    );
    assert_eq!(said.out, told, "{}", said.err);
    let made = made(&said);
    assert_eq!(made.get("grammar: ours"), Some(&(5 * 6 * 2)), "{made:?}");
    assert_eq!(made.get(SERVED), Some(&1), "{made:?}");
}

/// Under this library's own names, where nothing throws, forbidden tokens are not sampled either.
#[test]
fn no_forbidden_token_of_a_dead_grammar_comes_out_of_the_drop_in_header() {
    let folder = empty_folder("c_programs/dropin_dead_objects");
    let object = folder.join("sampling.o");
    let include = root().join("include").display().to_string();
    let flags = ["-I", &include, "-include", "llama_sieve_dropin.h"];
    compile("sampling.cpp", &flags, &object);
    let mut objects = objects().to_vec();
    objects[0] = object;
    let library = common_library("dropin_dead", &objects, false);
    let program = sampling_with("dropin_dead", "dead_grammars.cpp", &library)
        .flag("-include")
        .flag("llama_sieve_dropin.h")
        .flag("-Wl,--no-as-needed");
    let program = build(program.with_ours(Link::Shared).with_llama(Link::Shared));
    let said = Run::of(&program).arg(model()).said();
    let all = 5 * 5 * 2 * 6;
    assert_eq!(
        said.out,
        format!("{all} ends, 0 forbidden tokens, 0 exceptions\n")
    );
    // Each grammar has died once.
    let died = said.err.matches("until the sampler is reset").count();
    assert_eq!(died, 5 * 5 * 2, "{}", said.err);
}
