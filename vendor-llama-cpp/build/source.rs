//! Finds llama.cpp's source, in a checkout that the user names or in cargo's registry.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::UNIX_EPOCH;

use crate::fnv::Fnv;

/// The registry package whose `llama.cpp/` folder is compiled.
const PACKAGE: &str = "llama-cpp-sys-2";

/// A llama.cpp source tree.
pub struct Source {
    pub root: PathBuf,
    /// A text that changes when the tree changes.
    pub fingerprint: String,
}

pub fn find(crate_dir: &Path) -> Source {
    println!("cargo:rerun-if-env-changed=LLAMA_CPP_DIR");
    match env::var_os("LLAMA_CPP_DIR") {
        Some(dir) if !dir.is_empty() => from_checkout(Path::new(&dir)),
        _ => from_registry(crate_dir),
    }
}

fn from_checkout(dir: &Path) -> Source {
    let root = fs::canonicalize(dir)
        .unwrap_or_else(|error| stop(&format!("LLAMA_CPP_DIR={}: {error}", dir.display())));
    require_header(&root, "LLAMA_CPP_DIR must name a llama.cpp checkout");

    // A checkout may be edited at any time, so the modification times of its files are part of the
    // fingerprint.
    let mut seen = Fnv::new();
    for part in ["include", "src", "ggml/include", "ggml/src"] {
        println!("cargo:rerun-if-changed={}", root.join(part).display());
        add_tree(&mut seen, &root.join(part));
    }
    let fingerprint = format!("checkout {:016x}", seen.finish());
    Source { root, fingerprint }
}

fn add_tree(seen: &mut Fnv, dir: &Path) {
    let entries =
        fs::read_dir(dir).unwrap_or_else(|error| panic!("reading {}: {error}", dir.display()));
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            add_tree(seen, &path);
            continue;
        }
        let Ok(data) = fs::metadata(&path) else {
            continue;
        };
        let age = data
            .modified()
            .ok()
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        seen.text(&format!("{} {} {age:?}", path.display(), data.len()));
    }
}

fn from_registry(crate_dir: &Path) -> Source {
    let manifest = crate_dir.join("Cargo.toml");
    // Offline first: once the package is fetched, a build must need neither network nor registry.
    let found = package(&manifest, true).or_else(|_| package(&manifest, false));
    let (root, version) = found.unwrap_or_else(|error| {
        panic!(
            "vendor-llama-cpp could not get the source of llama.cpp.\n\
             It is the llama.cpp/ folder inside the crates.io package {PACKAGE}. Either run \
             `cargo fetch` once with access to the registry, or set LLAMA_CPP_DIR to a checkout \
             of llama.cpp (the version this crate's Cargo.toml pins).\n\n{error}"
        )
    });
    require_header(
        &root,
        &format!("the package {PACKAGE} {version} has no llama.cpp in it"),
    );
    let fingerprint = format!("{PACKAGE} {version}");
    Source { root, fingerprint }
}

/// Returns the package's `llama.cpp/` folder and its version, as `cargo metadata` reports them.
fn package(manifest: &Path, offline: bool) -> Result<(PathBuf, String), String> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--manifest-path"]);
    command.arg(manifest);
    if offline {
        command.arg("--offline");
    }
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?} failed:\n{said}"));
    }
    let metadata = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{command:?} printed no JSON: {error}"))?;
    find_package(&metadata).ok_or_else(|| format!("{command:?} does not list {PACKAGE}"))
}

fn find_package(metadata: &serde_json::Value) -> Option<(PathBuf, String)> {
    let packages = metadata.get("packages")?.as_array()?;
    let package = packages
        .iter()
        .find(|package| package.get("name").and_then(|name| name.as_str()) == Some(PACKAGE))?;
    let manifest = Path::new(package.get("manifest_path")?.as_str()?);
    let version = package.get("version")?.as_str()?;
    Some((manifest.parent()?.join("llama.cpp"), String::from(version)))
}

fn require_header(root: &Path, complaint: &str) {
    let header = root.join("include").join("llama.h");
    if !header.is_file() {
        stop(&format!("{complaint}: {} is missing", header.display()));
    }
}

/// Ends the build with only this message.
fn stop(message: &str) -> ! {
    println!("cargo::error={message}");
    std::process::exit(1);
}
