//! Programs that run while the dynamic linker is loading a library: it holds its lock until the
//! constructors of that library are done.
#![allow(dead_code)] // Each test binary uses its part.

use std::path::PathBuf;

use crate::toolchain::Build;

/// Compiles it, and gives its path.
fn built(build: Build) -> PathBuf {
    let path = build.folder().join("program");
    build.build();
    path
}

fn object(name: &str, source: &str) -> PathBuf {
    built(Build::new(name, source).flag("-fPIC").flag("-c"))
}

/// The program as a library, whose constructor runs its main function on another thread and waits
/// for that: to be [loaded](loader).
pub fn as_library(name: &str, program: Build) -> PathBuf {
    let constructor = object(
        &format!("{name}_constructor"),
        "c-tests/loading/constructor.c",
    );
    let program = program.flag("-shared").flag("-fPIC").flag("-pthread");
    built(program.flag("-Wl,-Bsymbolic").flag(constructor))
}

/// Loads the library that its first argument names, and gives it the others.
pub fn loader(name: &str, with: impl FnOnce(Build) -> Build) -> PathBuf {
    built(with(Build::new(name, "c-tests/loading/loader.c")))
}

/// The program, of which another thread is loading [a library](waiting) until it ends.
pub fn beside(name: &str, program: Build) -> PathBuf {
    let object = object(&format!("{name}_beside"), "c-tests/loading/beside.c");
    built(program.flag(object).flag("-pthread").flag("-rdynamic"))
}

/// Returns the variable and the value by which such a program finds that library.
pub fn waiting(name: &str) -> (&'static str, String) {
    let library = Build::new(name, "c-tests/loading/beside.c").flag("-DAS_LIBRARY");
    let library = built(library.flag("-shared").flag("-fPIC"));
    ("LOADING_LIBRARY", library.display().to_string())
}
