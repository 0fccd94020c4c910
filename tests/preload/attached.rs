//! Tests the preload library in processes that are already running: `llama_sieve_attach` and
//! `llama_sieve_detach`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::common;
use crate::preloaded::{made, preload_library, preloaded, preloaded_of_known_build, warnings};
use crate::programs::{Run, Said, build, generate, model, source};
use crate::toolchain::{Build, Link, empty_folder, our_library, succeed};

/// Returns the path of libllama_sieve.so in a folder that also contains the preload library, as
/// when both are installed.
fn installed() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = empty_folder("c_programs/attach_installed");
        for library in [our_library(Link::Shared).as_path(), preload_library()] {
            let name = library.file_name().expect("a file");
            fs::copy(library, folder.join(name)).expect("the folder was just made");
        }
        folder.join("libllama_sieve.so")
    })
}

/// Builds a library that uses llama.cpp, linked with these options.
fn module(name: &str, options: &[&str]) -> PathBuf {
    let mut module = Build::new(name, &source("attach_module.cpp"));
    for option in ["-shared", "-fPIC", "-fno-gnu-unique"]
        .iter()
        .chain(options)
    {
        module = module.flag(option);
    }
    build(module.with_llama(Link::Shared))
}

/// Imports are resolved and made read-only before any code of the library runs.
const SEALED: [&str; 1] = ["-Wl,-z,relro,-z,now"];

/// Each import is resolved when it is first called.
const LAZY: [&str; 1] = ["-Wl,-z,norelro,-z,lazy"];

fn sealed() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let module = module("attach_sealed", &SEALED);
        let mut readelf = Command::new("readelf");
        let said = succeed(readelf.arg("-dl").arg(&module));
        assert!(said.contains("BIND_NOW") || said.contains("NOW"), "{said}");
        assert!(said.contains("GNU_RELRO"), "{said}");
        module
    })
}

fn lazy() -> &'static Path {
    static MODULE: OnceLock<PathBuf> = OnceLock::new();
    MODULE.get_or_init(|| {
        let module = module("attach_lazy", &LAZY);
        let mut readelf = Command::new("readelf");
        let said = succeed(readelf.arg("-dl").arg(&module));
        assert!(
            !said.contains("NOW") && !said.contains("GNU_RELRO"),
            "{said}"
        );
        module
    })
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Build::new("attach", &source("attach.cpp"));
        build(program.with_llama_h().flag("-pthread"))
    })
}

/// Runs the program in a mode, with two libraries that use llama.cpp.
fn said(run: Run<'_>, mode: &str, sieve: &Path, [first, second]: [&Path; 2]) -> Said {
    let run = run.env("LLAMA_SIEVE_HOST", "b11434").arg(mode);
    let run = run.arg(sieve.display()).arg(model());
    let said = run.arg(first.display()).arg(second.display()).said();
    assert_eq!(said.out.lines().last(), Some("done"), "{said:?}");
    said
}

/// Tests chains made before attaching, while attached and after detaching, and a library that is
/// loaded later. Imports are writable, read-only, or not resolved yet.
#[test]
fn chains_that_are_made_while_it_is_attached_are_ours() {
    for (modules, access) in [([sealed(), lazy()], "r--p"), ([lazy(), sealed()], "rw-p")] {
        let said = said(Run::of(program()), "turns", installed(), modules);
        assert!(said.out.starts_with(access), "{}", said.out);
        assert_eq!(warnings(&said), Vec::<&str>::new());
    }
}

#[test]
fn the_preload_library_is_found_where_the_process_has_left_the_folder() {
    said(Run::of(program()), "left", installed(), [sealed(), lazy()]);
}

/// LLAMA_SIEVE_VERBOSE prints the same lines as with LD_PRELOAD, and tokens are sampled straight
/// from the logits.
#[test]
fn what_is_attached_samples_straight_from_the_logits() {
    let run = Run::of(program()).env("LLAMA_SIEVE_VERBOSE", 1);
    let said = said(run, "turns", installed(), [sealed(), lazy()]);
    let mut lines = said.err.lines();
    let counts = lines.find_map(|line| {
        let line = line.strip_prefix("llama-sieve: preload library: ")?;
        let (direct, rest) = line.split_once(" of ")?;
        let sampled = rest.strip_suffix(" tokens were sampled straight from the logits")?;
        Some((direct.parse::<u32>().ok()?, sampled.parse::<u32>().ok()?))
    });
    let (direct, sampled) = counts.unwrap_or_else(|| panic!("{}", said.err));
    assert!(direct > 300 && direct < sampled, "{direct} of {sampled}");
    for told in ["attach(): ", "detach(): ", "top-k(k=40): ours"] {
        assert!(said.err.contains(told), "{told}: {}", said.err);
    }
}

#[test]
fn what_somebody_else_has_pointed_elsewhere_is_left_alone() {
    for module in [sealed(), lazy()] {
        let said = said(Run::of(program()), "others", installed(), [module, module]);
        let warnings = warnings(&said);
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let names = "left alone: \"llama_sampler_init_top_k\"";
        assert!(warnings[0].contains(names), "{}", warnings[0]);
    }
}

#[test]
fn threads_sample_the_same_meanwhile() {
    for module in [sealed(), lazy()] {
        let said = said(Run::of(program()), "threads", installed(), [module, module]);
        assert_eq!(warnings(&said), Vec::<&str>::new());
    }
}

/// Attaching does not wait for a library whose imports the dynamic linker is filling in, and leaves
/// these imports alone, since they are not read-only yet. A call after the library is loaded finds
/// them.
#[test]
fn a_library_that_is_being_filled_in_is_not_touched() {
    let slow = Build::new("attach_slow", &source("attach_slow.c")).flag("-D_GNU_SOURCE");
    let slow = slow.flag("-shared").flag("-fPIC").flag(SEALED[0]);
    let slow = build(slow.with_llama(Link::Shared));
    said(
        Run::of(program()),
        "loading",
        installed(),
        [sealed(), &slow],
    );
}

/// Builds a library with `pages` pages of data, linked with `options`.
fn unloaded(name: &str, pages: u32, options: &str) -> PathBuf {
    let library = Build::new(name, &source("attach_unloading.c"));
    let library = library.flag(format!("-DAS_LIBRARY={pages}"));
    let library = library.flag("-shared").flag("-fPIC").flag(options);
    build(library.with_llama(Link::Shared))
}

/// If another library is loaded at the same addresses meanwhile, neither attaching nor detaching
/// changes the access to its memory.
#[test]
fn libraries_are_unloaded_meanwhile() {
    const LOADS: u32 = 3000;
    let program = Build::new("attach_unloading", &source("attach_unloading.c"));
    let program = program.flag("-D_GNU_SOURCE").flag("-pthread");
    let program = build(program.with_llama(Link::Shared));
    let lazy = "-Wl,-z,relro,-z,lazy";
    let now = "-Wl,-z,relro,-z,now";
    let lazy = [1, 3].map(|pages| unloaded(&format!("attach_lazy_{pages}"), pages, lazy));
    let now = [1, 3].map(|pages| unloaded(&format!("attach_now_{pages}"), pages, now));
    for [first, second] in [
        [&lazy[0], &lazy[1]],
        [&now[0], &now[1]],
        [&now[0], &lazy[1]],
    ] {
        for detach in [0, 1] {
            let run = Run::of(&program).env("LLAMA_SIEVE_HOST", "b11434");
            let run = run.arg(installed().display()).arg(LOADS).arg(detach);
            let said = run.arg(first.display()).arg(second.display()).said();
            assert_eq!(said.out.lines().last(), Some("done"), "{said:?}");
            assert_eq!(warnings(&said), Vec::<&str>::new());
        }
    }
}

#[test]
fn under_ld_preload_there_is_nothing_to_attach_to() {
    let run = preloaded(program()).env("LLAMA_SIEVE_VERBOSE", 1);
    let said = said(run, "preloaded", installed(), [sealed(), sealed()]);
    assert!(said.err.contains("attach(): nothing"), "{}", said.err);
}

#[test]
fn a_missing_preload_library_is_named() {
    let folder = empty_folder("c_programs/attach_alone");
    let library = folder.join("libllama_sieve.so");
    fs::copy(our_library(Link::Shared), &library).expect("the folder was just made");
    let said = said(Run::of(program()), "alone", &library, [sealed(), sealed()]);
    let missing = folder.join("libllama_sieve_preload.so");
    let missing = missing.display().to_string();
    assert!(said.out.contains(&missing), "{}", said.out);
    assert!(
        said.out
            .contains("cargo build --release -p llama-sieve-preload")
    );
}

#[test]
fn a_program_with_llama_cpp_linked_in_is_told_what_to_do() {
    for (name, flag) in [("attach_linked", "-O1"), ("attach_exporting", "-rdynamic")] {
        let program = Build::new(name, &source("attach.cpp")).flag("-DLINKED");
        let program = program.flag("-pthread").flag(flag);
        let program = build(program.with_llama(Link::Static));
        said(Run::of(&program), "linked", installed(), [Path::new(""); 2]);
    }
}

/// Returns a run of a program to which the library is attached before its main function.
fn attached(program: &Path) -> Run<'_> {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let library = Build::new("attach_at_start", &source("attach_at_start.c"));
        let library = library.flag("-shared").flag("-fPIC").flag("-pthread");
        build(library)
    });
    let run = Run::of(program).env("LD_PRELOAD", library.display());
    let run = run.env("LLAMA_SIEVE", installed().display());
    run.env("LLAMA_SIEVE_HOST", "b11434")
}

/// Every constructor, and the functions by which llama-server samples, are replaced as under
/// LD_PRELOAD.
#[test]
fn a_program_has_what_it_has_under_ld_preload() {
    for (program, seeds) in [(generate(), 4), (common::program(), 1)] {
        let arguments = |run: Run<'_>| run.arg(model()).arg(1).arg(seeds).said();
        let built_in = arguments(Run::of(program));
        let verbose = |run: Run<'static>| arguments(run.env("LLAMA_SIEVE_VERBOSE", 1));
        let under_preload = verbose(preloaded_of_known_build(program));
        let ours = verbose(attached(program));
        assert_eq!(ours.out, built_in.out);
        let mut made_ours = made(&ours);
        let imports = made_ours.keys().find(|key| key.starts_with("attach: "));
        let imports = imports.cloned().unwrap_or_else(|| panic!("{}", ours.err));
        made_ours.remove(&imports);
        assert_eq!(made_ours, made(&under_preload));
    }
}

/// Another thread attaches and detaches all the time, also in the middle of sampling a token.
#[test]
fn a_program_that_is_attached_to_and_detached_samples_the_same() {
    for (program, seeds) in [(generate(), 10), (common::program(), 2)] {
        let arguments = |run: Run<'_>| run.arg(model()).arg(1).arg(seeds).said();
        let built_in = arguments(Run::of(program));
        let ours = arguments(attached(program).env("FLIPS", 1));
        assert_eq!(ours.out, built_in.out);
        // The library has not concluded that this llama.cpp samples differently.
        assert!(!ours.err.contains("straight"), "{}", ours.err);
    }
}
