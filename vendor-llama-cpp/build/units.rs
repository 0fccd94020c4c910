//! The list of the compiled files: those of upstream's CMake lists that a CPU-only build needs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cargo_env;
use crate::toolchain::Toolchain;

/// The number of model files that share one translation unit, as in upstream's CMake. They all
/// include the same large headers, so sharing saves most of their compile time.
const UNITY_BATCH: usize = 16;

/// The files of ggml's core. The last two form upstream's thin "ggml" library above "ggml-base".
const GGML_FILES: [&str; 11] = [
    "ggml.c",
    "ggml.cpp",
    "ggml-alloc.c",
    "ggml-backend.cpp",
    "ggml-backend-meta.cpp",
    "ggml-opt.cpp",
    "ggml-threading.cpp",
    "ggml-quants.c",
    "gguf.cpp",
    "ggml-backend-dl.cpp",
    "ggml-backend-reg.cpp",
];

/// The files of ggml's CPU backend, except those of a single architecture.
const CPU_FILES: [&str; 14] = [
    "ggml-cpu.c",
    "ggml-cpu.cpp",
    "repack.cpp",
    "hbm.cpp",
    "quants.c",
    "traits.cpp",
    "amx/amx.cpp",
    "amx/mmq.cpp",
    "tiled/tiled.cpp",
    "tiled/tiled-kernel.cpp",
    "binary-ops.cpp",
    "unary-ops.cpp",
    "vec.cpp",
    "ops.cpp",
];

/// The matrix multiplication that llama.cpp's CMake enables by default (GGML_LLAMAFILE).
const LLAMAFILE: &str = "llamafile/sgemm.cpp";

/// The flag that forbids fusing in libllama's arithmetic. Without it, gcc may fuse multiplications
/// and additions on a target whose baseline has fused multiply-add (aarch64). On x86_64 it changes
/// nothing.
const PLAIN_ARITHMETIC: &str = "-ffp-contract=off";

/// The definitions that make the C library declare the functions that ggml needs.
const POSIX: [&str; 2] = ["-D_XOPEN_SOURCE=600", "-D_GNU_SOURCE"];

/// A call of a compiler.
pub struct Unit {
    pub source: PathBuf,
    pub object: PathBuf,
    pub flags: Vec<String>,
    /// The size of the source in bytes. Large units are compiled first, so that no core is idle at
    /// the end.
    pub weight: u64,
}

impl Unit {
    pub fn is_cxx(&self) -> bool {
        self.source.extension().is_some_and(|end| end == "cpp")
    }
}

/// Returns every unit of llama.cpp. Writes the generated headers and unity files into `build_dir`.
pub fn llama_cpp(root: &Path, tools: &Toolchain, build_dir: &Path) -> Vec<Unit> {
    write_version_headers(root, build_dir);
    let mut units = llama(root, build_dir);
    units.extend(ggml(root, build_dir));
    units.extend(ggml_cpu(root, tools, build_dir));
    units.sort_by_key(|unit| std::cmp::Reverse(unit.weight));
    units
}

/// Returns the unit of this crate's shim, compiled like libllama. The object's name contains a hash
/// of the shim's text, so that an object of an older version is never used.
pub fn shim(root: &Path, shim: &Path, version: u64, build_dir: &Path) -> Unit {
    let mut unit = unit(shim, "shim", build_dir, llama_flags(root, build_dir));
    unit.object = objects(build_dir).join(format!("shim-{version:016x}.o"));
    unit
}

fn llama(root: &Path, build_dir: &Path) -> Vec<Unit> {
    let flags = llama_flags(root, build_dir);
    let core = cpp_files(&root.join("src"));
    let mut units: Vec<Unit> = core
        .iter()
        .map(|file| unit(file, "llama", build_dir, flags.clone()))
        .collect();

    let models = cpp_files(&root.join("src").join("models"));
    for (index, batch) in models.chunks(UNITY_BATCH).enumerate() {
        let path = generated(build_dir).join(format!("models_{index}.cpp"));
        write_if_changed(&path, &unity_text(batch));
        let mut unity = unit(&path, "llama", build_dir, flags.clone());
        unity.weight = batch.iter().map(|file| size(file)).sum();
        units.push(unity);
    }
    units
}

fn llama_flags(root: &Path, build_dir: &Path) -> Vec<String> {
    let mut flags = includes(root, build_dir);
    flags.push(include(&root.join("src")));
    // CMake's target "ggml" passes this definition to every target that links it.
    flags.push(String::from("-DGGML_USE_CPU"));
    flags.push(String::from(PLAIN_ARITHMETIC));
    flags
}

fn ggml(root: &Path, build_dir: &Path) -> Vec<Unit> {
    let dir = root.join("ggml").join("src");
    let mut flags = ggml_flags(root, build_dir);
    flags.push(String::from("-DGGML_USE_CPU"));
    flags.push(String::from(PLAIN_ARITHMETIC));
    GGML_FILES
        .iter()
        .map(|file| unit(&dir.join(file), "ggml", build_dir, flags.clone()))
        .collect()
}

fn ggml_cpu(root: &Path, tools: &Toolchain, build_dir: &Path) -> Vec<Unit> {
    let dir = root.join("ggml").join("src").join("ggml-cpu");
    let mut flags = ggml_flags(root, build_dir);
    flags.push(include(&dir));
    flags.push(String::from("-DGGML_USE_LLAMAFILE"));
    flags.push(String::from("-DGGML_USE_CPU_REPACK"));
    flags.extend(tools.cpu_flags.iter().map(|flag| String::from(*flag)));

    let mut files: Vec<String> = CPU_FILES.map(String::from).to_vec();
    files.push(String::from(LLAMAFILE));
    match arch_folder() {
        Some(arch) => {
            files.push(format!("arch/{arch}/quants.c"));
            files.push(format!("arch/{arch}/repack.cpp"));
        }
        None => flags.push(String::from("-DGGML_CPU_GENERIC")),
    }
    files
        .iter()
        .map(|file| {
            // Each of two folders contains a quants.c, and the archive needs distinct names.
            let group = format!("ggml-cpu_{}", file.replace('/', "_"));
            let mut unit = unit(&dir.join(file), "ggml-cpu", build_dir, flags.clone());
            unit.object = objects(build_dir).join(format!("{group}.o"));
            unit
        })
        .collect()
}

fn arch_folder() -> Option<&'static str> {
    match cargo_env("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86" | "x86_64" => Some("x86"),
        "arm" | "aarch64" => Some("arm"),
        _ => None,
    }
}

fn ggml_flags(root: &Path, build_dir: &Path) -> Vec<String> {
    let mut flags = includes(root, build_dir);
    flags.push(include(&root.join("ggml").join("src")));
    flags.push(String::from("-DGGML_SCHED_MAX_COPIES=4"));
    flags.extend(POSIX.map(String::from));
    flags
}

fn includes(root: &Path, build_dir: &Path) -> Vec<String> {
    vec![
        include(&root.join("include")),
        include(&root.join("ggml").join("include")),
        include(&generated(build_dir)),
    ]
}

fn include(dir: &Path) -> String {
    format!("-I{}", dir.display())
}

fn unit(source: &Path, group: &str, build_dir: &Path, flags: Vec<String>) -> Unit {
    let file = source.file_name().unwrap_or_default().to_string_lossy();
    Unit {
        source: source.to_path_buf(),
        object: objects(build_dir).join(format!("{group}_{file}.o")),
        flags,
        weight: size(source),
    }
}

fn size(file: &Path) -> u64 {
    fs::metadata(file).map_or(0, |data| data.len())
}

pub fn objects(build_dir: &Path) -> PathBuf {
    build_dir.join("objects")
}

pub fn generated(build_dir: &Path) -> PathBuf {
    build_dir.join("generated")
}

fn cpp_files(dir: &Path) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(dir).unwrap_or_else(|error| panic!("reading {}: {error}", dir.display()));
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|end| end == "cpp"))
        .collect();
    files.sort();
    files
}

fn unity_text(files: &[PathBuf]) -> String {
    files
        .iter()
        .map(|file| format!("#include \"{}\"\n", file.display()))
        .collect()
}

/// Writes the two headers that CMake makes from templates.
fn write_version_headers(root: &Path, build_dir: &Path) {
    let llama = cmake_version(&root.join("CMakeLists.txt"), "LLAMA_VERSION");
    let ggml = cmake_version(&root.join("ggml").join("CMakeLists.txt"), "GGML_VERSION");

    // "-dev" and "unknown" are the defaults of upstream's CMake outside a git checkout.
    fill_template(
        &root.join("src").join("llama-version.h.in"),
        &generated(build_dir).join("llama-version.h"),
        &[
            ("@LLAMA_VERSION@", &format!("{llama}-dev")),
            ("@LLAMA_BUILD_COMMIT@", "unknown"),
        ],
    );
    fill_template(
        &root.join("ggml").join("src").join("ggml-version.h.in"),
        &generated(build_dir).join("ggml-version.h"),
        &[
            ("@GGML_VERSION@", &ggml),
            ("@GGML_BUILD_COMMIT@", "unknown"),
        ],
    );
}

/// Returns "major.minor.patch" from the `set(<prefix>_MAJOR n)` lines of a CMakeLists.txt.
fn cmake_version(file: &Path, prefix: &str) -> String {
    let text = read(file);
    let parts = ["MAJOR", "MINOR", "PATCH"].map(|part| {
        let start = format!("set({prefix}_{part} ");
        let value = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(&start))
            .and_then(|rest| rest.strip_suffix(')'));
        value.unwrap_or_else(|| panic!("{} sets no {prefix}_{part}", file.display()))
    });
    parts.join(".")
}

fn fill_template(template: &Path, to: &Path, values: &[(&str, &str)]) {
    let mut text = read(template);
    for (name, value) in values {
        text = text.replace(name, value);
    }
    write_if_changed(to, &text);
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("reading {}: {error}", file.display()))
}

/// Writes a file unless it already has this text, since a newer time would make its object look
/// old.
fn write_if_changed(file: &Path, text: &str) {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(file, text).unwrap_or_else(|error| panic!("writing {}: {error}", file.display()));
}
