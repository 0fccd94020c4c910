//! Gives the shared library its name for the linker, and other linker options.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let os = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if os == "linux" {
        // The number changes when a C name is removed or changes its meaning. rustc-cdylib-link-arg
        // would also give this SONAME to the cdylibs of packages that depend on this one.
        // Executables ignore the SONAME.
        println!("cargo::rustc-link-arg=-Wl,-soname,libllama_sieve.so.0");
        // The library must stay loaded after dlclose, since its code may still run then:
        // destructors of thread-local data, and samplers that are still in use.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
    if os == "macos" {
        // A program finds the library by its own list of folders. Compilers and linkers both accept
        // these two arguments.
        println!("cargo::rustc-cdylib-link-arg=-install_name");
        println!("cargo::rustc-cdylib-link-arg=@rpath/libllama_sieve.dylib");
    }
    link_under_soname();
}

/// Makes the link `libllama_sieve.so.0` next to cargo's `libllama_sieve.so`, so that a program
/// linked there can be run without installation. An installation makes its own link, so a failure
/// here does no harm.
fn link_under_soname() {
    #[cfg(unix)]
    if let Some(out_dir) = std::env::var_os("OUT_DIR") {
        // The path is <target>/<profile>/build/<package>/out; newer versions of cargo have another
        // folder in between.
        let mut folders = std::path::Path::new(&out_dir).ancestors();
        let build = folders.find(|folder| folder.ends_with("build"));
        if let Some(profile) = build.and_then(std::path::Path::parent) {
            let link = profile.join("libllama_sieve.so.0");
            let _ = std::os::unix::fs::symlink("libllama_sieve.so", link);
        }
    }
}
