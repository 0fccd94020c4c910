//! Gives the library its SONAME. Nothing is ever linked with it, so there is no number in it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libllama_sieve_preload.so");
    }
}
