//! The token trie from C and C++: the published tests of its design, tries that are set by opaque
//! handle, and the limits. What each checks is in its own source, in c-tests/trie/.

use crate::toolchain::{Build, Link, has_sanitizers, root, skipped};

/// The trained model of the repository: its vocabulary has 2048 tokens.
fn model() -> String {
    root().join("models/kjv-tiny.gguf").display().to_string()
}

fn seed_tests(name: &str, ours: Link, llama: Link) {
    let build = Build::new(name, "c-tests/trie/seed_tests.cpp");
    let text = build
        .with_ours(ours)
        .with_llama(llama)
        .build()
        .succeed(&[&model()]);
    assert_eq!(text, "three tests passed\n");
}

#[test]
fn the_published_tests_pass_linked_statically() {
    seed_tests("trie_seed_static", Link::Static, Link::Static);
}

#[test]
fn the_published_tests_pass_linked_shared() {
    seed_tests("trie_seed_shared", Link::Shared, Link::Shared);
}

#[test]
fn the_published_tests_pass_in_a_static_host_that_loads_ours() {
    seed_tests("trie_seed_static_host", Link::Shared, Link::Static);
}

fn handles(build: Build, ours: Link, llama: Link) {
    let program = build.with_ours(ours).with_llama(llama).build();
    let program = program
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    assert_eq!(program.succeed(&[&model()]), "every handle had an answer\n");
}

fn handles_program(name: &str) -> Build {
    Build::new(name, "c-tests/trie/handles.c").flag("-pthread")
}

#[test]
fn tries_by_handle_linked_statically() {
    let build = handles_program("trie_handles_static");
    handles(build, Link::Static, Link::Static);
}

#[test]
fn tries_by_handle_linked_shared() {
    let build = handles_program("trie_handles_shared");
    handles(build, Link::Shared, Link::Shared);
}

#[test]
fn tries_by_handle_under_sanitizers() {
    if !has_sanitizers("trie_handles_probe") {
        skipped(
            "tries_by_handle_under_sanitizers: the C compiler has no runtime for -fsanitize=address,undefined",
        );
        return;
    }
    let build = handles_program("trie_handles_sanitized").sanitized();
    handles(build, Link::Static, Link::Static);
}

fn limits(build: Build, link: Link) {
    let program = build.with_ours(link).with_llama(link).build();
    let program = program
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    assert_eq!(program.succeed(&[&model()]), "every limit holds\n");
}

#[test]
fn limits_and_bans_linked_statically() {
    let build = Build::new("trie_limits_static", "c-tests/trie/limits.c");
    limits(build, Link::Static);
}

#[test]
fn limits_and_bans_linked_shared() {
    let build = Build::new("trie_limits_shared", "c-tests/trie/limits.c");
    limits(build, Link::Shared);
}

#[test]
fn limits_and_bans_under_sanitizers() {
    if !has_sanitizers("trie_limits_probe") {
        skipped(
            "limits_and_bans_under_sanitizers: the C compiler has no runtime for -fsanitize=address,undefined",
        );
        return;
    }
    let build = Build::new("trie_limits_sanitized", "c-tests/trie/limits.c");
    limits(build.sanitized(), Link::Static);
}

fn strings(build: Build, link: Link) {
    let program = build.with_ours(link).with_llama(link).build();
    let program = program
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    assert_eq!(program.succeed(&[&model()]), "every string is a value\n");
}

#[test]
fn plain_strings_linked_statically() {
    let build = Build::new("trie_strings_static", "c-tests/trie/strings.c");
    strings(build, Link::Static);
}

#[test]
fn plain_strings_linked_shared() {
    let build = Build::new("trie_strings_shared", "c-tests/trie/strings.c");
    strings(build, Link::Shared);
}

#[test]
fn plain_strings_under_sanitizers() {
    if !has_sanitizers("trie_strings_probe") {
        skipped("plain_strings: the C compiler has no runtime for -fsanitize=address,undefined");
        return;
    }
    let build = Build::new("trie_strings_sanitized", "c-tests/trie/strings.c");
    strings(build.sanitized(), Link::Static);
}
