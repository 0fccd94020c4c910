//! Tests the preload library while other libraries are loaded, unloaded, loaded again, and
//! finalized.

use std::path::PathBuf;

use crate::preloaded::preloaded;
use crate::programs::{Run, build, source};
use crate::toolchain::Build;

/// Builds a small llama.cpp that samples the token `n`.
fn host(name: &str, n: u32) -> PathBuf {
    let host = Build::new(&format!("{name}_host_{n}"), &source("reloaded.c"));
    let host = host.flag("-shared").flag("-fPIC").flag("-D_GNU_SOURCE");
    // The functions keep their order in the source.
    let host = host.flag("-fno-toplevel-reorder");
    build(host.flag(format!("-DAS_HOST={n}")))
}

/// Nothing that was found in a library is assumed of the next one, even at the same address.
#[test]
fn a_call_reaches_the_library_that_is_loaded() {
    let program = Build::new("preload_reloaded", &source("reloaded.c"));
    let program = build(program.flag("-D_GNU_SOURCE").flag("-pthread"));
    let [first, second] = [1, 2].map(|n| host("preload_reloaded", n));
    let arguments = |run: Run<'_>| run.arg(first.display()).arg(second.display()).said();
    let built_in = arguments(Run::of(&program));
    let round = "1 1 1\n1 1 1\n2 2 2\n2 2 2\n";
    assert_eq!(built_in.out, round.repeat(4));
    for value in ["on", "off", "top-k"] {
        let run = preloaded(&program).env("LLAMA_SIEVE_PRELOAD", value);
        let said = arguments(run);
        assert_eq!(said.out, built_in.out, "{value}");
        let same = said.err.strip_prefix("at the same place: ");
        let same = same.unwrap_or_else(|| panic!("{}", said.err));
        assert_ne!(same, "0\n", "nothing was tried");
    }
}

/// A call to the dynamic linker while a library is finalized does not initialise it again.
#[test]
fn a_library_begins_once() {
    let host = host("preload_ending", 1);
    let library = Build::new("preload_ending", &source("ending.c"));
    let library = library.flag("-shared").flag("-fPIC").flag(&host);
    let library = build(library);
    let program = Build::new("preload_ending_program", &source("ending.c"));
    let program = build(program.flag("-DAS_PROGRAM").flag(&library));
    let built_in = Run::of(&program).said();
    assert_eq!(built_in.out, "begun\nfreed\nended\n");
    for value in ["on", "off"] {
        let run = preloaded(&program).env("LLAMA_SIEVE_PRELOAD", value);
        let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
        assert_eq!(said.out, built_in.out, "{value}");
        let loaded = said.err.matches(" is loaded into ").count();
        assert_eq!(loaded, 1, "{}", said.err);
    }
}
