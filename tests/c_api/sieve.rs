//! Tests the sieve from C, in cases that depend on the environment or the process.

use std::fs::{Permissions, metadata, read_to_string, set_permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use crate::toolchain::{Build, Link, our_library, root, skipped, succeed};

fn process(mode: &str) {
    for (name, link) in [("static", Link::Static), ("shared", Link::Shared)] {
        let name = format!("process_{mode}_{name}");
        let build = Build::new(&name, "c-tests/sieve/process.c").with_ours(link);
        let program = build.flag("-pthread").build();
        let program = program.env("RAYON_NUM_THREADS", 64);
        assert_eq!(program.succeed(&[mode]), "every batch gave its tokens\n");
    }
}

#[test]
fn a_batch_whose_threads_cannot_start_is_done_by_the_calling_one() {
    process("limit");
}

#[test]
fn a_batch_has_no_more_threads_than_it_asks_for() {
    process("environment");
}

#[test]
fn a_batch_after_a_fork() {
    process("fork");
}

#[test]
fn batches_in_children_that_were_forked_before_the_first() {
    process("prefork");
}

/// A setuid program has the rights of its owner, who is not the user that starts it.
#[test]
fn a_setuid_program_does_not_read_the_environment() {
    const NOBODY: u32 = 65534;
    let build = || Build::new("environment", "c-tests/sieve/environment.c");
    let usual = build().with_ours(Link::Static).build().succeed(&[]);
    let program = build().with_ours(Link::Static).build();
    let program = program.env("LLAMA_SIEVE_SIMD", "scalar");
    assert_eq!(program.succeed(&[]), "scalar 0\n");
    if chown(program.path(), Some(NOBODY), None).is_err() {
        return skipped("only root can make a setuid program of another user's");
    }
    let setuid = Permissions::from_mode(0o4755);
    set_permissions(program.path(), setuid).expect("root may");
    let text = program.succeed(&[]);
    if text.ends_with(" 0\n") {
        return skipped("setuid programs have no effect in the target directory");
    }
    assert_eq!(text, usual.replace(" 0", " 1"));
}

#[test]
fn an_instruction_set_that_there_is_not_is_reported_once() {
    let build = Build::new("unknown_simd", "c-tests/sieve/environment.c");
    let program = build.with_ours(Link::Static).build();
    let output = program.env("LLAMA_SIEVE_SIMD", "sse\t9").output(&[]);
    let (out, err) = (output.stdout, output.stderr);
    let used = String::from_utf8(out).expect("a name and a number");
    let used = used.split(' ').next().unwrap_or_default();
    assert_eq!(
        String::from_utf8_lossy(&err),
        format!(
            "llama-sieve: warning: LLAMA_SIEVE_SIMD=sse\\t9 is unknown or not supported by this \
             processor; {used} is used\n"
        )
    );
}

#[test]
fn the_library_needs_what_the_readme_says() {
    let mut command = Command::new("readelf");
    let text = succeed(command.arg("--dynamic").arg(our_library(Link::Shared)));
    let needed: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    assert!(needed.contains(&"libc.so.6"), "{text}");
    // The dynamic linker is a part of the C library.
    let known = ["libc.so.", "libm.so.", "ld-linux", "libgcc_s.so."];
    for library in needed {
        assert!(
            known.iter().any(|known| library.starts_with(known)),
            "{library}"
        );
    }
    let readme = read_to_string(root().join("README.md")).expect("it is there");
    assert!(readme.contains("libgcc_s"));
    // The documented size is that of this platform.
    if cfg!(target_arch = "x86_64") && !cfg!(debug_assertions) {
        let said = readme.split("library of about ").nth(1).expect("a size");
        let said: f64 = said
            .split(' ')
            .next()
            .and_then(|n| n.parse().ok())
            .expect("MB");
        let library = metadata(our_library(Link::Shared)).expect("it is built");
        let size = library.len() as f64 / 1e6;
        assert!((size - said).abs() < 0.1 * said, "{size:.2} MB, not {said}");
    }
}
