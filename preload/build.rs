//! How the library is linked, and which functions of llama-sieve's it gives by name.

use std::fmt::Write;
use std::path::Path;

/// The list of llama-sieve's C functions.
const FUNCTIONS: &str = "../tests/exports.txt";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    write_functions();
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os != "linux" {
        return;
    }
    for argument in [
        // Nothing is ever linked with it, so there is no number in it.
        "-soname,libllama_sieve_preload.so",
        &inside(),
        // Destructors of threads and samplers that live are code of ours.
        "-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}

/// The linker's argument by which llama-sieve's C interface, which comes along, stays inside: a
/// program's own copy of it must not find this one instead.
///
/// Zig's linker has no list of libraries to exclude. For it `ci/release` names a version script.
fn inside() -> String {
    let variable = "LLAMA_SIEVE_PRELOAD_VERSION_SCRIPT";
    println!("cargo::rerun-if-env-changed={variable}");
    match std::env::var(variable) {
        Ok(script) => format!("--version-script={script}"),
        Err(_) => "--exclude-libs,ALL".to_owned(),
    }
}

/// Writes the table that `src/functions.rs` includes, in the order of the names.
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
