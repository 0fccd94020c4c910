//! The sieve from C, compiled as C11 with warnings as errors. What each program checks is in its own source, in c-tests/sieve/.
#![cfg(target_os = "linux")]

#[path = "support/toolchain.rs"]
mod toolchain;

use toolchain::{Build, Link, has_sanitizers, skipped};

#[test]
fn the_sieve_without_llama_cpp() {
    for (name, link) in [
        ("sieve_static", Link::Static),
        ("sieve_shared", Link::Shared),
    ] {
        let build = Build::new(name, "c-tests/sieve/sieve.c").with_ours(link);
        assert_eq!(build.build().succeed(&[]), "the sieve answers\n");
    }
}

#[test]
fn the_sieve_in_a_chain() {
    for (name, link) in [
        ("sieve_chain_static", Link::Static),
        ("sieve_chain_shared", Link::Shared),
    ] {
        let build = Build::new(name, "c-tests/sieve/chain.c");
        let program = build.with_ours(link).with_llama(link).build();
        assert_eq!(program.succeed(&[]), "the sieve in a chain\n");
    }
}

#[test]
fn the_sieve_under_sanitizers() {
    if !has_sanitizers("sieve_probe") {
        skipped("the C compiler has no runtime for -fsanitize=address,undefined");
        return;
    }
    let build = Build::new("sieve_sanitized", "c-tests/sieve/sieve.c").sanitized();
    let program = build.with_ours(Link::Static).build();
    let program = program.env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1");
    assert_eq!(program.succeed(&[]), "the sieve answers\n");
}

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
fn a_batch_without_threads_is_done_by_the_calling_one() {
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
