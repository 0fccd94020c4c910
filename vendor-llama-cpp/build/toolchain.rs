//! The compilers that build llama.cpp, and their flags.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo_env;
use crate::fnv::Fnv;

/// The flags for every cargo profile: those of CMake's Release build type, `-O3 -DNDEBUG`, and
/// those that a shared library and exact arithmetic need.
///
/// The compiled samplers are the reference that this library's results must equal bit for bit, so
/// CFLAGS or CXXFLAGS from the environment must not loosen the arithmetic. These flags come after
/// the flags from the environment. `-w` suppresses the warnings, which concern foreign code.
const COMMON_FLAGS: [&str; 6] = [
    "-O3",
    "-DNDEBUG",
    "-fPIC",
    "-fno-fast-math",
    "-fvisibility=default",
    "-w",
];

/// The language standard that each compiler gets. CMake also requests the GNU dialects.
const C_STANDARD: &str = "-std=gnu11";
const CXX_STANDARD: &str = "-std=gnu++17";

/// A compiler, and the flags of each of its calls.
pub struct Compiler {
    pub path: PathBuf,
    pub flags: Vec<OsString>,
}

/// Everything that compiling and linking need.
pub struct Toolchain {
    pub c: Compiler,
    pub cxx: Compiler,
    /// The name of the C++ standard library: "stdc++" or "c++".
    pub cxx_stdlib: String,
    /// Extra flags of ggml's CPU backend: the instruction set of this machine.
    pub cpu_flags: Vec<&'static str>,
    /// A text that changes when the compilers or their flags change.
    pub fingerprint: String,
}

impl Compiler {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.args(&self.flags);
        command
    }
}

pub fn find() -> Toolchain {
    let mut seen = Fnv::new();
    let c = compiler(false, C_STANDARD, &mut seen);
    let cxx = compiler(true, CXX_STANDARD, &mut seen);
    let cxx_stdlib = cxx_stdlib();
    let cpu_flags = native_flags(&c, &cxx, &mut seen);
    seen.text(&cxx_stdlib);
    Toolchain {
        c,
        cxx,
        cxx_stdlib,
        cpu_flags,
        fingerprint: format!("{:016x}", seen.finish()),
    }
}

fn compiler(is_cxx: bool, standard: &str, seen: &mut Fnv) -> Compiler {
    let tool = cc::Build::new()
        .cpp(is_cxx)
        .no_default_flags(true)
        .inherit_rustflags(false)
        .warnings(false)
        .try_get_compiler()
        .unwrap_or_else(|error| panic!("{}", no_compiler(is_cxx, &error.to_string())));
    assert!(
        !tool.is_like_msvc(),
        "llama.cpp is compiled with gcc or clang only, not with {}",
        tool.path().display()
    );

    let mut flags = tool.args().to_vec();
    flags.push(standard.into());
    flags.extend(COMMON_FLAGS.map(OsString::from));
    let compiler = Compiler {
        path: tool.path().to_path_buf(),
        flags,
    };

    seen.text(&compiler.path.to_string_lossy());
    seen.text(&version(&compiler.path, is_cxx));
    for flag in &compiler.flags {
        seen.text(&flag.to_string_lossy());
    }
    compiler
}

fn version(path: &Path, is_cxx: bool) -> String {
    let output = Command::new(path).arg("--version").output();
    let output = output.unwrap_or_else(|error| {
        let why = format!("{}: {error}", path.display());
        panic!("{}", no_compiler(is_cxx, &why))
    });
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn no_compiler(is_cxx: bool, why: &str) -> String {
    let (language, package, variable) = if is_cxx {
        ("C++17", "g++", "CXX")
    } else {
        ("C11", "gcc", "CC")
    };
    format!(
        "vendor-llama-cpp needs a {language} compiler to compile llama.cpp, and found none: {why}.\n\
         Install one (for example `apt-get install {package}`) or name yours in the environment \
         variable {variable}."
    )
}

fn cxx_stdlib() -> String {
    println!("cargo:rerun-if-env-changed=CXXSTDLIB");
    match std::env::var("CXXSTDLIB") {
        Ok(name) if !name.is_empty() => name,
        _ => String::from("stdc++"),
    }
}

/// Returns the flags of upstream's GGML_NATIVE, which is on by default except when cross-compiling.
///
/// The macros that the compiler predefines for "native" become part of the fingerprint, so that
/// objects in a target directory that is moved to another machine are not used there.
fn native_flags(c: &Compiler, cxx: &Compiler, seen: &mut Fnv) -> Vec<&'static str> {
    if cargo_env("HOST") != cargo_env("TARGET") {
        return Vec::new();
    }
    let flag = match cargo_env("CARGO_CFG_TARGET_ARCH").as_str() {
        "x86_64" => "-march=native",
        "aarch64" => "-mcpu=native",
        _ => return Vec::new(),
    };
    for (compiler, language) in [(c, "c"), (cxx, "c++")] {
        match predefined_macros(compiler, language, flag) {
            Some(macros) => seen.text(&macros),
            None => return Vec::new(),
        }
    }
    vec![flag]
}

fn predefined_macros(compiler: &Compiler, language: &str, flag: &str) -> Option<String> {
    let output = compiler
        .command()
        .args([flag, "-dM", "-E", "-x", language, "/dev/null"])
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
