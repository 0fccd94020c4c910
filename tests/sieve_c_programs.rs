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
