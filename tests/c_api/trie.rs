//! Runs the published C++ tests of the token trie's design.

use crate::toolchain::{Build, Link, root};

/// Returns the path of the repository's trained model, whose vocabulary has 2048 tokens.
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
