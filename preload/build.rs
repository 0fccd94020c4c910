//! Sets the linker's options, and writes the table of the llama-sieve functions that the library
//! returns by name.

use std::fmt::Write;
use std::path::Path;

/// The file that lists llama-sieve's C functions.
const FUNCTIONS: &str = "../tests/exports.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    write_functions();
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os != "linux" {
        return;
    }
    for argument in [
        // No program is linked with this library, so its SONAME needs no version number.
        "-soname,libllama_sieve_preload.so",
        &inside(),
        // Destructors of threads and live samplers run this library's code even after dlclose.
        "-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// Returns the linker's argument that keeps llama-sieve's C interface, which is linked in, from
/// being exported. Otherwise the calls of a program that has its own copy of llama-sieve would be
/// bound to the copy in this library.
///
/// Zig's linker cannot exclude libraries, so `release/build.py` names a version script for it
/// instead.
fn inside() -> String {
    let variable = "LLAMA_SIEVE_PRELOAD_VERSION_SCRIPT";
    println!("cargo::rerun-if-env-changed={variable}");
    match std::env::var(variable) {
        Ok(script) => format!("--version-script={script}"),
        Err(_) => "--exclude-libs,ALL".to_owned(),
    }
}

/// Writes the table that `src/functions.rs` includes, sorted by name.
fn write_functions() {
    println!("cargo::rerun-if-changed={FUNCTIONS}");
    let list = std::fs::read_to_string(FUNCTIONS).expect("tests/exports.txt is there");
    let mut names: Vec<&str> = list.split_whitespace().collect();
    names.sort_unstable();
    let (mut declared, mut table) = (String::new(), String::new());
    for name in &names {
        writeln!(declared, "    fn {name}();").expect("a string takes all");
        writeln!(table, "    (c\"{name}\", {name}),").expect("a string takes all");
    }
    let code = format!(
        "unsafe extern \"C\" {{\n{declared}}}\n\n\
         static FUNCTIONS: [(&CStr, Function); {}] = [\n{table}];\n",
        names.len()
    );
    let folder = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&folder).join("functions.rs"), code).expect("cargo's own folder");
}
