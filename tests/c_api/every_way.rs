//! Runs C programs in every way: linked with static libraries, with shared ones, and under
//! sanitizers. The source of each, in c-tests/, describes what it checks.

use crate::toolchain::{Build, Link, has_sanitizers, root, skipped};

enum Way {
    Static,
    Shared,
    Sanitized,
}

/// Builds and runs a program, with the trained model as its argument, whose vocabulary has 2048
/// tokens.
fn run(name: &str, source: &str, with_llama: bool, way: Way, says: &str) {
    let (way, link) = match way {
        Way::Static => ("static", Link::Static),
        Way::Shared => ("shared", Link::Shared),
        Way::Sanitized if has_sanitizers() => ("sanitized", Link::Static),
        Way::Sanitized => {
            return skipped(&format!(
                "{name}: the C compiler has no runtime for -fsanitize=address,undefined"
            ));
        }
    };
    let mut build = Build::new(&format!("{name}_{way}"), source).flag("-pthread");
    if way == "sanitized" {
        build = build.sanitized();
    }
    build = build.with_ours(link);
    if with_llama {
        build = build.with_llama(link);
    }
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    assert_eq!(build.build().succeed(&[&model]), says);
}

macro_rules! in_every_way {
    ($($name:ident: $source:literal, $with_llama:expr, $says:literal;)*) => {$(
        mod $name {
            fn run(way: super::Way) {
                super::run(stringify!($name), $source, $with_llama, way, $says);
            }

            #[test]
            fn linked_statically() {
                run(super::Way::Static);
            }

            #[test]
            fn linked_shared() {
                run(super::Way::Shared);
            }

            #[test]
            fn under_sanitizers() {
                run(super::Way::Sanitized);
            }
        }
    )*};
}

in_every_way! {
    bad_input_has_an_answer: "c-tests/bad_input.c", true, "everything had an answer\n";
    log_callbacks_may_use_what_is_at_work: "c-tests/log.c", true, "every message was delivered\n";
    what_a_thread_uses_is_not_pulled_away: "c-tests/in_use.c", true, "nothing was pulled away\n";
    chains_from_logits_have_an_answer: "c-tests/chain_logits.c", true, "every chain had an answer\n";
    grammars_have_an_answer: "c-tests/grammar.c", true, "every grammar had an answer\n";
    tries_by_handle: "c-tests/trie/handles.c", true, "every handle had an answer\n";
    plain_strings: "c-tests/trie/strings.c", true, "every string is a value\n";
    the_sieve_in_a_chain: "c-tests/sieve/chain.c", true, "the sieve in a chain\n";
    the_sieve_without_llama_cpp: "c-tests/sieve/sieve.c", false, "the sieve answers\n";
    what_a_sieve_tells_without_llama_cpp: "c-tests/sieve/queries.c", false, "the sieve tells\n";
    stages_in_an_order_of_the_callers: "c-tests/sieve/stages.c", false, "the stages answer\n";
    // Compiled against the header of the first version.
    a_program_of_the_first_version: "c-tests/first_version/program.c", false, "as it was\n";
}
