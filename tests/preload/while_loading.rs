//! Tests the preload library while the dynamic linker is loading another library. The linker then
//! holds its lock: a thread that calls it waits until all constructors have run, and waits forever
//! if one of these waits for that thread.

use std::path::Path;

use crate::loading::{as_library, beside, loader, waiting};
use crate::preloaded::{made, preloaded_of_known_build};
use crate::programs::{Run, model, source};
use crate::toolchain::{Build, Link};

/// Returns the programs of c-tests/preload that make, clone and copy samplers and sample, each with
/// its arguments.
fn programs() -> [(&'static str, Vec<String>); 4] {
    let text = |number: u32| number.to_string();
    [
        ("generate.cpp", vec![model(), text(1), text(2)]),
        ("nested.c", Vec::new()),
        ("grammars.cpp", vec![model(), model()]),
        ("offload.cpp", vec![model()]),
    ]
}

fn program(name: &str, file: &str) -> Build {
    let program = Build::new(name, &source(file)).flag("-D_GNU_SOURCE");
    program.with_llama(Link::Shared)
}

/// Checks that a program prints the same with the preload library, switched on and off, as without
/// it, and that its samplers are ours exactly if the library is on. `run` adds the arguments.
fn check(program: &Path, run: impl Fn(Run<'_>) -> Run<'_>) {
    let built_in = run(Run::of(program)).said();
    assert!(!built_in.out.is_empty());
    for value in ["on", "off"] {
        let ours = preloaded_of_known_build(program).env("LLAMA_SIEVE_PRELOAD", value);
        let said = run(ours.env("LLAMA_SIEVE_VERBOSE", 1)).said();
        assert_eq!(said.out, built_in.out, "{value}");
        let ours = made(&said).keys().any(|key| key.ends_with(": ours"));
        assert_eq!(ours, value == "on", "{value}");
    }
}

fn check_loaded(loader: &Path, with: &str) {
    for (file, arguments) in programs() {
        let name = format!("preload_loading_{with}_{}", file.replace('.', "_"));
        let library = as_library(&name, program(&name, file));
        check(loader, |run| {
            let run = run.arg(library.display());
            arguments
                .iter()
                .fold(run, |run, argument| run.arg(argument))
        });
    }
}

/// llama.cpp comes along with the library that is being loaded, so the first call to the preload
/// library comes from there.
#[test]
fn a_constructor_may_wait_for_samplers_of_a_llama_cpp_that_comes_along() {
    let loader = loader("preload_loading_loader", |build| build);
    check_loaded(&loader, "with");
}

/// The program has loaded llama.cpp before.
#[test]
fn a_constructor_may_wait_for_samplers_of_the_programs_llama_cpp() {
    let loader = loader("preload_loading_linked_loader", |build| {
        let build = build.with_llama(Link::Shared);
        build.flag("-Wl,--no-as-needed")
    });
    check_loaded(&loader, "of_program");
}

/// A driver that takes long to load does not stall threads that make samplers and sample.
#[test]
fn samplers_are_made_while_another_thread_loads_a_library() {
    let (variable, library) = waiting("preload_loading_waiting");
    for (file, arguments) in programs() {
        let name = format!("preload_beside_{}", file.replace('.', "_"));
        let program = beside(&name, program(&name, file));
        check(&program, |run| {
            let run = run.env(variable, &library);
            arguments
                .iter()
                .fold(run, |run, argument| run.arg(argument))
        });
    }
}
