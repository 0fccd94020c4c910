//! Tests the CMake project: builds it through cargo, runs ctest, installs it, moves it, and uses it
//! from there in a project that finds it only by find_package or pkg-config. Needs cmake and
//! pkg-config; without them the tests are skipped with a message.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use crate::toolchain::{empty_folder, root, skipped, succeed};
use vendor_llama_cpp::paths;

/// The project, built and installed once for all tests of this file; `None` without cmake.
static PROJECT: LazyLock<Option<Project>> = LazyLock::new(Project::build);

struct Project {
    build: PathBuf,
    installed: PathBuf,
}

impl Project {
    fn build() -> Option<Self> {
        if !is_installed("cmake") {
            return None;
        }
        let folder = empty_folder("cmake_install");
        let build = folder.join("build");
        succeed(
            Command::new("cmake")
                .arg("-S")
                .arg(root())
                .arg("-B")
                .arg(&build)
                .args(["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_INSTALL_LIBDIR=lib"])
                .arg(format!("-DCMAKE_C_COMPILER={}", cc()))
                .arg(format!("-DLLAMA_SIEVE_CARGO={}", cargo()))
                // Offline, since cargo has built this test from the same packages. With the crates
                // of the tests, cargo chooses the same features, and finds the library already
                // built.
                .arg("-DLLAMA_SIEVE_CARGO_ARGS=--offline -p test-crates")
                .arg(format!("-DLLAMA_SIEVE_TARGET_DIR={}", cargo_dir())),
        );
        succeed(Command::new("cmake").arg("--build").arg(&build));

        // A package may be unpacked anywhere, so nothing must remember the prefix.
        let prefix = folder.join("prefix");
        let installed = folder.join("moved");
        let mut install = Command::new("cmake");
        install.arg("--install").arg(&build);
        succeed(install.arg("--prefix").arg(&prefix));
        fs::rename(&prefix, &installed).expect("cmake installed into the prefix");
        Some(Self { build, installed })
    }

    fn lib(&self) -> PathBuf {
        self.installed.join("lib")
    }

    fn pkg_config(&self, args: &[&str]) -> Vec<String> {
        let mut command = Command::new("pkg-config");
        command.args(args).arg("llama_sieve");
        let text = succeed(command.env("PKG_CONFIG_PATH", self.lib().join("pkgconfig")));
        text.split_whitespace().map(String::from).collect()
    }
}

fn is_installed(tool: &str) -> bool {
    let output = Command::new(tool).arg("--version").output();
    output.is_ok_and(|output| output.status.success())
}

fn cc() -> String {
    paths::c_compiler().display().to_string()
}

/// Returns the path of the cargo that runs this test.
fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

/// Returns the target directory of this test, which contains the libraries already. Cargo no longer
/// locks it.
fn cargo_dir() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
    let folder = folder.expect("tmp is in the target directory");
    folder.display().to_string()
}

/// Returns the project; prints a note if this machine cannot build it.
fn project() -> Option<&'static Project> {
    if PROJECT.is_none() {
        skipped("cmake is not installed");
    }
    PROJECT.as_ref()
}

/// Returns the project; prints a note if this machine cannot build it or lacks pkg-config.
fn project_and_pkg_config() -> Option<&'static Project> {
    if !is_installed("pkg-config") {
        skipped("pkg-config is not installed");
        return None;
    }
    project()
}

/// Runs a consumer, and checks the version of the library that it prints.
fn check_runs(consumer: &mut Command) {
    consumer.arg(paths::shared_library());
    assert_eq!(succeed(consumer).trim(), env!("CARGO_PKG_VERSION"));
}

/// Compiles the consumer with the flags of pkg-config, as a Makefile does.
fn compile_consumer(name: &str, flags: &[String]) -> PathBuf {
    let program = empty_folder(name).join("consumer");
    let mut command = Command::new(cc());
    command.args(["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    command.arg(root().join("c-tests/consumer/main.c"));
    succeed(command.args(flags).arg("-ldl").arg("-o").arg(&program));
    program
}

#[test]
fn ctest_passes() {
    let Some(project) = project() else { return };
    let mut ctest = Command::new("ctest");
    ctest.current_dir(&project.build).arg("--output-on-failure");
    let text = succeed(ctest.env_remove("LD_LIBRARY_PATH"));
    assert!(text.contains("100% tests passed"), "{text}");
}

#[test]
fn the_shared_library_is_installed_under_its_three_names() {
    let Some(project) = project() else { return };
    let link = |name: &str| {
        let target = fs::read_link(project.lib().join(name));
        let target = target.unwrap_or_else(|error| panic!("{name} is no link: {error}"));
        target.display().to_string()
    };
    let real_name = format!("libllama_sieve.so.{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(link("libllama_sieve.so"), "libllama_sieve.so.0");
    assert_eq!(link("libllama_sieve.so.0"), real_name);
    let is_file = |path: PathBuf| path.symlink_metadata().is_ok_and(|meta| meta.is_file());
    assert!(is_file(project.lib().join(real_name)));
    assert!(is_file(project.lib().join("libllama_sieve.a")));
}

#[test]
fn every_header_is_installed() {
    let Some(project) = project() else { return };
    for header in fs::read_dir(root().join("include")).expect("there are headers") {
        let header = header.expect("the folder is readable");
        let installed = project.installed.join("include").join(header.file_name());
        let same = fs::read(header.path()).ok() == fs::read(&installed).ok();
        assert!(same, "{} is missing or old", installed.display());
    }
}

#[test]
fn the_preload_library_and_the_documents_are_installed() {
    let Some(project) = project() else { return };
    assert!(project.lib().join("libllama_sieve_preload.so").is_file());
    let documents = project.installed.join("share/doc/llama_sieve");
    for name in [
        "README.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "docs/preload.md",
    ] {
        assert!(documents.join(name).is_file(), "{name}");
    }
}

#[test]
fn a_consumer_finds_it_with_find_package() {
    let Some(project) = project() else { return };
    let build = empty_folder("cmake_consumer");
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(root().join("c-tests/consumer"));
    configure.arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_C_COMPILER={}", cc()));
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", project.installed.display());
    succeed(configure.arg(prefix));
    succeed(Command::new("cmake").arg("--build").arg(&build));
    for program in ["use_llama_sieve", "use_llama_sieve_static"] {
        let mut program = Command::new(build.join(program));
        check_runs(program.env_remove("LD_LIBRARY_PATH"));
    }
}

#[test]
fn a_consumer_finds_it_with_pkg_config() {
    let Some(project) = project_and_pkg_config() else {
        return;
    };
    let version = project.pkg_config(&["--modversion"]);
    assert_eq!(version, [env!("CARGO_PKG_VERSION")]);
    let flags = project.pkg_config(&["--cflags", "--libs"]);
    let program = compile_consumer("pkg_config_shared", &flags);
    check_runs(Command::new(program).env("LD_LIBRARY_PATH", project.lib()));
}

#[test]
fn a_consumer_finds_the_static_library_with_pkg_config() {
    let Some(project) = project_and_pkg_config() else {
        return;
    };
    let flags = project.pkg_config(&["--static", "--cflags", "--libs"]);
    // Of a shared and a static library with one name, a linker prefers the shared one, unless the
    // file is named.
    let flags: Vec<_> = flags
        .into_iter()
        .map(|flag| match flag.as_str() {
            "-lllama_sieve" => "-l:libllama_sieve.a".to_owned(),
            _ => flag,
        })
        .collect();
    let program = compile_consumer("pkg_config_static", &flags);
    check_runs(Command::new(program).env_remove("LD_LIBRARY_PATH"));
}
