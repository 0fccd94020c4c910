//! Compiles the pinned llama.cpp once per target directory, as one static and one shared library.

#[path = "build/fnv.rs"]
mod fnv;
#[path = "build/make.rs"]
mod make;
#[path = "build/source.rs"]
mod source;
#[path = "build/toolchain.rs"]
mod toolchain;
#[path = "build/units.rs"]
mod units;

use std::env;
use std::path::{Path, PathBuf};

use fnv::Fnv;

/// The revision of the build. It must be increased when the build changes although no flag does.
const REVISION: &str = "1";

/// The system libraries that follow the objects or the archive on a link line.
const SYSTEM_LIBRARIES: [&str; 3] = ["m", "pthread", "dl"];

fn main() {
    require_linux();
    let crate_dir = PathBuf::from(cargo_env("CARGO_MANIFEST_DIR"));
    let source = source::find(&crate_dir);
    let tools = toolchain::find();
    let build_dir = build_dir(&source, &tools);
    let shim = crate_dir.join("shim").join("shim.cpp");

    let made = make::libraries(&source, &tools, &shim, &build_dir);

    for path in ["build.rs", "build", "shim", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={path}");
    }
    // Cargo runs this script again if the libraries have been deleted.
    println!("cargo:rerun-if-changed={}", made.stamp.display());

    link_for_rust(&build_dir, &tools.cxx_stdlib);
    tell_crate(&source.root, &build_dir, &tools, &made);
}

fn require_linux() {
    let os = cargo_env("CARGO_CFG_TARGET_OS");
    assert!(
        os == "linux",
        "vendor-llama-cpp compiles llama.cpp for Linux only, not for {os}: \
         the library llama-sieve itself builds without this crate"
    );
}

/// Returns the folder that all cargo profiles share, so that llama.cpp is compiled once for all of
/// them. The folder's name is a hash of everything that determines the objects.
fn build_dir(source: &source::Source, tools: &toolchain::Toolchain) -> PathBuf {
    let mut name = Fnv::new();
    name.text(REVISION);
    name.text(&source.root.to_string_lossy());
    name.text(&source.fingerprint);
    name.text(&tools.fingerprint);
    target_dir().join(format!("llama.cpp-{:016x}", name.finish()))
}

/// Returns the target directory. OUT_DIR is
/// `<target>/[triple/]<profile>/build/<package>-<hash>/out` or, with newer versions of cargo,
/// `.../build/<package>/<hash>/out`. With any other form only the sharing between profiles is lost.
fn target_dir() -> PathBuf {
    let out_dir = PathBuf::from(cargo_env("OUT_DIR"));
    let target_dir = target_dir_above(&out_dir).unwrap_or(out_dir);
    match target_dir.parent() {
        // Miri's target directory is a folder in the common one.
        Some(common) if under_miri() && target_dir.ends_with("miri") => common.to_path_buf(),
        _ => target_dir,
    }
}

fn under_miri() -> bool {
    env::var_os("CARGO_CFG_MIRI").is_some()
}

fn target_dir_above(out_dir: &Path) -> Option<PathBuf> {
    let mut above = out_dir.ancestors().skip(2).take(2);
    let build = above.find(|dir| dir.ends_with("build"))?;
    let above_profile = build.ancestors().nth(2)?;
    if above_profile.file_name()? == cargo_env("TARGET").as_str() {
        return above_profile.parent().map(Path::to_path_buf);
    }
    Some(above_profile.to_path_buf())
}

fn link_for_rust(build_dir: &Path, cxx_stdlib: &str) {
    println!("cargo:rustc-link-search=native={}", build_dir.display());
    // Not bundled into the rlib, since the archive is large and stays in its folder.
    println!(
        "cargo:rustc-link-lib=static:-bundle={}",
        make::STATIC_LIBRARY_NAME
    );
    println!("cargo:rustc-link-lib=dylib={cxx_stdlib}");
    for library in SYSTEM_LIBRARIES {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}

/// Passes the paths to `src/paths.rs`, which reads them with `env!`, and to the build scripts of
/// dependent crates.
fn tell_crate(root: &Path, build_dir: &Path, tools: &toolchain::Toolchain, made: &make::Made) {
    let mut link_args = vec![format!("-l{}", tools.cxx_stdlib)];
    link_args.extend(SYSTEM_LIBRARIES.map(|library| format!("-l{library}")));

    let values = [
        ("SOURCE_DIR", root.display().to_string()),
        ("BUILD_DIR", build_dir.display().to_string()),
        ("STATIC_LIBRARY", made.static_library.display().to_string()),
        ("SHARED_LIBRARY", made.shared_library.display().to_string()),
        ("CC", tools.c.path.display().to_string()),
        ("CXX", tools.cxx.path.display().to_string()),
        ("STATIC_LINK_ARGS", link_args.join(" ")),
    ];
    for (name, value) in &values {
        println!("cargo:rustc-env=VENDOR_LLAMA_{name}={value}");
        println!("cargo:{}={value}", name.to_lowercase());
    }
    println!("cargo:root={}", build_dir.display());
    println!("cargo:include={}", root.join("include").display());
}

fn cargo_env(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo did not set {name} for this build script"))
}
