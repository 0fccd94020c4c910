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
        // llama-sieve's C interface comes along, and stays inside: a program's own copy of it must
        // not find this one instead.
        "--exclude-libs,ALL",
        // Destructors of threads and samplers that live are code of ours.
        "-z,nodelete",
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{argument}");
    }
}
