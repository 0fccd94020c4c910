//! Gives the shared library its SONAME and, with the feature `header`, writes
//! include/llama_sieve.h.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" {
        // The number changes when a C name goes away or changes its meaning. Not
        // rustc-cdylib-link-arg, which would also reach the cdylibs of packages that depend on this
        // one. Executables have no use for it, and ignore it.
        println!("cargo::rustc-link-arg=-Wl,-soname,libllama_sieve.so.0");
        // Code of ours runs after dlclose: destructors of what threads kept, and samplers that
        // live.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    link_under_soname();
    #[cfg(feature = "header")]
    header::write();
}

/// Makes `libllama_sieve.so.0` beside where cargo will put `libllama_sieve.so`, so that a program
/// linked with it there runs as it is. An install makes its own; where the link cannot be made
/// nothing is lost.
fn link_under_soname() {
    #[cfg(unix)]
    if let Some(out_dir) = std::env::var_os("OUT_DIR") {
        // <target>/<profile>/build/<package>/out, with another folder between in newer cargos.
        let mut folders = std::path::Path::new(&out_dir).ancestors();
        let build = folders.find(|folder| folder.ends_with("build"));
        if let Some(profile) = build.and_then(std::path::Path::parent) {
            let link = profile.join("libllama_sieve.so.0");
            let _ = std::os::unix::fs::symlink("libllama_sieve.so", link);
        }
    }
}

#[cfg(feature = "header")]
mod header {
    use std::path::Path;

    /// Written into the source tree, since the header is committed and compared by CI.
    pub fn write() {
        println!("cargo::rerun-if-changed=cbindgen.toml");
        println!("cargo::rerun-if-changed=src/ffi");
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let config = cbindgen::Config::from_file(root.join("cbindgen.toml"))
            .expect("only the repository has cbindgen.toml");
        // These files and the modules that they declare, not the crate: only what stands in them is
        // for C.
        let mut builder = cbindgen::Builder::new().with_config(config);
        for file in [
            "errors.rs",
            "library.rs",
            "certificate/mod.rs",
            "samplers.rs",
            "seed.rs",
            "trie/mod.rs",
            "grammar/mod.rs",
            "sieve/mod.rs",
            "chain/mod.rs",
            "metrics.rs",
        ] {
            builder = builder.with_src(root.join("src/ffi").join(file));
        }
        let bindings = builder
            .generate()
            .expect("the header cannot be generated from src/ffi");
        let mut text = Vec::new();
        bindings.write(&mut text);
        let text = String::from_utf8(text).expect("the sources are UTF-8");
        std::fs::write(root.join("include/llama_sieve.h"), as_c_prose(&text))
            .expect("include/llama_sieve.h cannot be written");
    }

    /// Rust's documentation marks become words that a C reader knows.
    fn as_c_prose(text: &str) -> String {
        text.replace(" # Safety\n", " The caller guarantees:\n")
            .replace('`', "")
    }
}
