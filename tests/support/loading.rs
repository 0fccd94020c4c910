//! Builds programs that run while the dynamic linker is loading a library. The linker holds its
//! lock until the constructors of that library have returned.
#![allow(dead_code)] // Each test binary uses its part.

use std::path::PathBuf;

use crate::toolchain::Build;

/// Compiles a program. Returns its path.
fn built(build: Build) -> PathBuf {
    let path = build.folder().join("program");
    build.build();
    path
}

fn object(name: &str, source: &str) -> PathBuf {
    built(Build::new(name, source).flag("-fPIC").flag("-c"))
}

/// Compiles the program as a library, to be [loaded](loader). Its constructor runs the main
/// function on another thread and waits for it.
pub fn as_library(name: &str, program: Build) -> PathBuf {
    let constructor = object(
        &format!("{name}_constructor"),
        "c-tests/loading/constructor.c",
    );
    let program = program.flag("-shared").flag("-fPIC").flag("-pthread");
    built(program.flag("-Wl,-Bsymbolic").flag(constructor))
}

/// Compiles a program that loads the library named by its first argument, and passes it the other
/// arguments.
pub fn loader(name: &str, with: impl FnOnce(Build) -> Build) -> PathBuf {
    built(with(Build::new(name, "c-tests/loading/loader.c")))
}

/// Compiles the program so that another of its threads is loading [a library](waiting) until the
/// program ends.
pub fn beside(name: &str, program: Build) -> PathBuf {
    let object = object(&format!("{name}_beside"), "c-tests/loading/beside.c");
    built(program.flag(object).flag("-pthread").flag("-rdynamic"))
}

/// Returns the environment variable, and its value, by which a program made by [`beside`] finds the
/// library.
pub fn waiting(name: &str) -> (&'static str, String) {
    let library = Build::new(name, "c-tests/loading/beside.c").flag("-DAS_LIBRARY");
    let library = built(library.flag("-shared").flag("-fPIC"));
    ("LOADING_LIBRARY", library.display().to_string())
}
