//! Gives the shared library its SONAME.

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
    if os == "macos" {
        // A program finds it by its own list of folders.
        // Two words, which compilers and linkers take alike.
        println!("cargo::rustc-cdylib-link-arg=-install_name");
        println!("cargo::rustc-cdylib-link-arg=@rpath/libllama_sieve.dylib");
    }
    link_under_soname();
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
