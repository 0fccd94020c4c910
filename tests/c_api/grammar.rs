//! Grammars for C programs.

use crate::toolchain::{Build, Link, has_sanitizers, root, skipped};

fn grammar(build: Build, link: Link) {
    let program = build.with_ours(link).with_llama(link).build();
    let program = program
        .env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1")
        .env("UBSAN_OPTIONS", "print_stacktrace=1");
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    let said = program.succeed(&[&model]);
    assert_eq!(said, "every grammar had an answer\n");
}

#[test]
fn grammars_have_an_answer() {
    for (name, link) in [
        ("grammar_static", Link::Static),
        ("grammar_shared", Link::Shared),
    ] {
        grammar(Build::new(name, "c-tests/grammar.c"), link);
    }
}

#[test]
fn grammars_under_sanitizers() {
    if !has_sanitizers("grammar_probe") {
        skipped(
            "grammars_under_sanitizers: the C compiler has no runtime for -fsanitize=address,undefined",
        );
        return;
    }
    let build = Build::new("grammar_sanitized", "c-tests/grammar.c");
    grammar(build.sanitized(), Link::Static);
}
