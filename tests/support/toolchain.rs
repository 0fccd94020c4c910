//! Compiles C and C++ programs as a user would, with the library under test and the vendored
//! llama.cpp, and runs them.
#![allow(dead_code)] // Each test binary uses its part.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, OnceLock};

use vendor_llama_cpp::paths;

/// The kind of library that a program is linked with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    Static,
    Shared,
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns an empty folder in the target directory for one test. Tests run in parallel, so each
/// needs its own name. A run under valgrind has its own folders, since `ci/sanitize` runs it in
/// parallel with other tests.
pub fn empty_folder(name: &str) -> PathBuf {
    let mut folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if under_valgrind() {
        folder.push("valgrind");
    }
    folder.push(name);
    if folder.exists() {
        fs::remove_dir_all(&folder).expect("the folder of the last run cannot be removed");
    }
    fs::create_dir_all(&folder).expect("the target directory is not writable");
    folder
}

/// Copies a program that is to be run, by a separate process. A file that this process writes is
/// open for a moment in the children that other tests start, and a file that is open for writing
/// cannot be run.
pub fn copy_program(from: &Path, to: &Path) {
    succeed(Command::new("cp").arg(from).arg(to));
}

/// Returns the path of the library that cargo built for this test: `libllama_sieve.a` or
/// `libllama_sieve.so`, next to the test executable.
pub fn our_library(link: Link) -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its path");
    let folder = test.parent().expect("a test is in a folder");
    let library = folder.join(match link {
        Link::Static => "libllama_sieve.a",
        Link::Shared => "libllama_sieve.so",
    });
    assert!(library.exists(), "cargo built no {}", library.display());
    library
}

/// Returns the preload library, built once, together with the crates that the tests use. All crates
/// then have the same features, so the library inside it is the one that cargo has built for the
/// tests.
pub fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let target = target.parent().expect("it is in the target directory");
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--release", "--locked"])
            .args(["-p", "llama-sieve-preload", "-p", "test-crates"])
            .arg("--target-dir")
            .arg(target)
            .env_remove("CARGO_BUILD_TARGET")
            .current_dir(root());
        succeed(&mut cargo);
        target.join("release/libllama_sieve_preload.so")
    })
}

/// Returns the path of an example in Rust. `cargo test` builds it, but a run of a single test
/// program does not: then reports that `test` is skipped, and returns `None`.
pub fn rust_example(name: &str, test: &str) -> Option<PathBuf> {
    let executable = std::env::current_exe().expect("a test knows its path");
    let profile = executable
        .ancestors()
        .nth(2)
        .expect("a test is in a folder");
    let example = profile.join("examples").join(name);
    if !example.exists() {
        skipped(&format!(
            "{test}: the example was not built; cargo build --release --example {name}"
        ));
        return None;
    }
    Some(example)
}

/// Prints why a test is skipped, even if the test harness captures output, and writes it to the
/// file that LLAMA_SIEVE_SKIPPED names (`ci/with-skips`).
///
/// # Panics
/// If LLAMA_SIEVE_REQUIRE_ALL is 1, so that nothing may be skipped.
pub fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
    if let Some(list) = std::env::var_os("LLAMA_SIEVE_SKIPPED") {
        let list = fs::OpenOptions::new().create(true).append(true).open(list);
        let _ = list.and_then(|mut list| list.write_all(format!("{why}\n").as_bytes()));
    }
    let required = std::env::var_os("LLAMA_SIEVE_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(!required, "LLAMA_SIEVE_REQUIRE_ALL=1, but skipped: {why}");
}

/// A program to be compiled.
pub struct Build {
    folder: PathBuf,
    command: Command,
    /// The libraries, which follow the sources on the command line, since a linker reads from left
    /// to right.
    libraries: Vec<String>,
}

impl Build {
    /// Returns a program to be compiled from `source`, a path in the repository, in the folder
    /// `name`. The language is C11, or C++17 by the file's ending, and warnings are errors.
    pub fn new(name: &str, source: &str) -> Self {
        let is_cxx = source.ends_with(".cpp");
        Self::in_language(name, source, is_cxx)
    }

    /// Returns a program to be compiled as C++, even if `source` is C.
    pub fn as_cxx(name: &str, source: &str) -> Self {
        Self::in_language(name, source, true)
    }

    fn in_language(name: &str, source: &str, is_cxx: bool) -> Self {
        let folder = empty_folder(&format!("c_programs/{name}"));
        let mut command = if is_cxx {
            let mut command = Command::new(paths::cxx_compiler());
            command.args(["-std=c++17", "-x", "c++"]);
            command
        } else {
            let mut command = Command::new(paths::c_compiler());
            command.args(["-std=c11", "-x", "c"]);
            command
        };
        command.args(["-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
        command.arg("-I").arg(root().join("include"));
        // `-x` would also apply to the libraries.
        command.arg(root().join(source)).args(["-x", "none"]);
        Self {
            folder,
            command,
            libraries: Vec::new(),
        }
    }

    /// Returns the folder in which the program is built, which may also hold generated sources.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn flag(mut self, flag: impl AsRef<OsStr>) -> Self {
        self.command.arg(flag);
        self
    }

    /// Lets the program include llama.h, as system headers, so that warnings in them do not count.
    pub fn with_llama_h(mut self) -> Self {
        for dir in paths::include_dirs() {
            self.command.arg("-isystem").arg(dir);
        }
        self
    }

    /// Links with this library.
    pub fn with_ours(mut self, link: Link) -> Self {
        let library = our_library(link);
        match link {
            Link::Static => self.libraries.push(library.display().to_string()),
            Link::Shared => self.link_shared(&library),
        }
        self
    }

    /// Links with a shared library. An installed library is found by its soname. One that cargo
    /// built is not, so symbolic links in a separate folder are needed.
    fn link_shared(&mut self, library: &Path) {
        let folder = self.folder.join("lib");
        fs::create_dir_all(&folder).expect("the folder was just made");
        for name in ["libllama_sieve.so", "libllama_sieve.so.0"] {
            std::os::unix::fs::symlink(library, folder.join(name)).expect("cannot make a link");
        }
        self.libraries.push(format!("-L{}", folder.display()));
        self.libraries.push("-lllama_sieve".to_owned());
        self.libraries
            .push(format!("-Wl,-rpath,{}", folder.display()));
    }

    /// Links with llama.cpp.
    pub fn with_llama(mut self, link: Link) -> Self {
        self = self.with_llama_h();
        let library = match link {
            Link::Static => paths::static_library(),
            Link::Shared => paths::shared_library(),
        };
        self.libraries.push(library.display().to_string());
        if link == Link::Shared {
            let folder = library.parent().expect("a library is in a folder");
            self.libraries
                .push(format!("-Wl,-rpath,{}", folder.display()));
        }
        self
    }

    /// Adds gcc's or clang's checks of memory and undefined behaviour.
    pub fn sanitized(mut self) -> Self {
        self.command.args(SANITIZERS);
        self
    }

    /// Compiles and links the program.
    ///
    /// # Panics
    /// If the compiler or the linker reports an error.
    pub fn build(mut self) -> Program {
        let path = self.folder.join("program");
        self.command.args(&self.libraries);
        self.command.args(paths::static_link_args());
        self.command.arg("-o").arg(&path);
        succeed(&mut self.command);
        let program = Program {
            path,
            environment: Vec::new(),
        };
        program
            .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1")
            .env("UBSAN_OPTIONS", "print_stacktrace=1")
    }
}

const SANITIZERS: [&str; 3] = [
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-g",
];

/// True if the compiler has the runtime for [`Build::sanitized`], without which compilers are often
/// installed.
pub fn has_sanitizers() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(|| {
        let folder = empty_folder(concat!("c_programs/probe_of_", env!("CARGO_CRATE_NAME")));
        let (source, program) = (folder.join("main.c"), folder.join("main"));
        fs::write(&source, "int main(void) { return 0; }\n").expect("the folder was just made");
        let mut compile = Command::new(paths::c_compiler());
        compile
            .args(SANITIZERS)
            .arg(&source)
            .arg("-o")
            .arg(&program);
        let works = |command: &mut Command| command.output().is_ok_and(|out| out.status.success());
        works(&mut compile) && works(&mut Command::new(&program))
    });
    *HAS
}

/// The options of memcheck, used if LLAMA_SIEVE_TEST_VALGRIND is set. Any finding makes a program
/// fail.
const VALGRIND: [&str; 5] = [
    "--quiet",
    "--error-exitcode=99",
    "--leak-check=full",
    "--errors-for-leak-kinds=definite",
    "--show-leak-kinds=definite",
];

fn under_valgrind() -> bool {
    std::env::var_os("LLAMA_SIEVE_TEST_VALGRIND").is_some()
}

/// A compiled program.
pub struct Program {
    path: PathBuf,
    environment: Vec<(String, String)>,
}

impl Program {
    /// Returns the path of the program, or of a library that was compiled with `-shared`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.to_owned(), value.to_string()));
        self
    }

    /// Runs the program at the root of the repository. Returns its output and exit code.
    pub fn output(&self, args: &[&str]) -> Output {
        let mut command = self.command(args);
        let output = command.output();
        output.unwrap_or_else(|error| panic!("{command:?}: {error}"))
    }

    /// Runs the program. Returns its output.
    ///
    /// # Panics
    /// If the program fails.
    pub fn succeed(&self, args: &[&str]) -> String {
        succeed(&mut self.command(args))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = if under_valgrind() {
            let mut command = Command::new("valgrind");
            command.args(VALGRIND).arg(&self.path);
            command
        } else {
            Command::new(&self.path)
        };
        command.args(args).current_dir(root());
        // Cargo adds its own folders, which a user does not have.
        command.env_remove("LD_LIBRARY_PATH");
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        command
    }
}

/// Runs a command. Returns its output followed by its errors.
///
/// # Panics
/// If the command fails. The message has all its output.
pub fn succeed(command: &mut Command) -> String {
    let output = command.output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = said(&output);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}",
        output.status
    );
    text
}

/// Compiles a source of llama.cpp's common library, or one that uses its headers.
///
/// # Panics
/// If it does not compile.
pub fn compile_common(source: &Path, flags: &[&str], object: &Path) {
    let mut compile = Command::new(paths::cxx_compiler());
    // Warnings in foreign code are suppressed.
    compile.args(["-std=c++17", "-w", "-c"]).args(flags);
    compile.arg("-I").arg(paths::source_dir().join("common"));
    compile.arg("-I").arg(paths::source_dir().join("vendor"));
    for dir in paths::include_dirs() {
        compile.arg("-I").arg(dir);
    }
    succeed(compile.arg(source).arg("-o").arg(object));
}

/// Checks that a program has ended with the exit code `code`, and has printed `words`.
pub fn assert_ended(output: &Output, code: i32, words: &str, options: &dyn Debug) {
    let text = said(output);
    assert_eq!(output.status.code(), Some(code), "{options:?}: {text}");
    assert!(text.contains(words), "{options:?}: {text}");
}

/// Returns the output and the errors of a program.
pub fn said(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    let err = String::from_utf8_lossy(&output.stderr);
    format!("{out}{err}")
}
