//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
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
