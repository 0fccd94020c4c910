//! Compiles, links and runs C and C++ programs in every way that a host can be built. The source of
//! each, in c-tests/, describes what it checks.

use std::fmt::Write;
use std::fs;

use crate::toolchain::{
    Build, Link, Program, empty_folder, has_sanitizers, our_library, root, said, skipped,
};
use llama_sieve::ffi::host::llama_h::LAYOUT;
use vendor_llama_cpp::paths;

// The header.

#[test]
fn the_header_needs_nothing_from_c() {
    let build = Build::new("header_alone_c", "c-tests/header_alone.c").with_ours(Link::Shared);
    let version = build.build().succeed(&[]);
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_header_needs_nothing_from_cxx() {
    let build = Build::new("header_alone_cpp", "c-tests/header_alone.cpp").with_ours(Link::Static);
    let version = build.build().succeed(&[]);
    assert_eq!(version.trim(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_header_stands_before_and_behind_llama_h() {
    let source = "c-tests/header_with_llama.c";
    for (name, is_cxx, llama_h_first) in [
        ("header_before_llama_h_c", false, false),
        ("header_behind_llama_h_c", false, true),
        ("header_before_llama_h_cpp", true, false),
        ("header_behind_llama_h_cpp", true, true),
    ] {
        let mut build = match is_cxx {
            true => Build::as_cxx(name, source),
            false => Build::new(name, source),
        };
        if llama_h_first {
            build = build.flag("-DLLAMA_H_FIRST");
        }
        let build = build.with_ours(Link::Shared).with_llama(Link::Shared);
        build.build().succeed(&[]);
    }
}

/// Compiles the program on the first page of the header, unchanged, and runs it on the trained
/// model.
#[test]
fn the_uses_on_the_first_page_of_the_header_run() {
    let header = fs::read_to_string(root().join("include/llama_sieve.h"));
    let header = header.expect("the header is there");
    let page = header.split("What to read first").nth(1);
    let page = page.and_then(|page| page.split("*/").next());
    let lines = page.expect("it has the page").lines();
    let mut uses = String::new();
    for line in lines.filter_map(|line| line.strip_prefix(" *     ")) {
        writeln!(uses, "    {line}").expect("a string takes everything");
    }
    let build = Build::new("header_uses", "c-tests/header_uses.c");
    let folder = build.folder().to_owned();
    fs::write(folder.join("header_uses.inc"), uses).expect("the folder is writable");
    let build = build.flag("-I").flag(folder);
    let program = build.with_ours(Link::Shared).with_llama(Link::Shared);
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    let said = program.build().succeed(&[&model]);
    assert!(said.contains(" nats, perplexity "), "{said}");
    assert!(
        said.contains("tokens 1 1, trie and grammar 1 1\n"),
        "{said}"
    );
}

#[test]
fn our_mirrors_of_llama_h_have_its_layout() {
    let build = Build::new("llama_h_layout", "c-tests/llama_h_layout.c").with_llama_h();
    let mut facts = String::new();
    for (name, value) in LAYOUT {
        writeln!(facts, "SAME({name}, {value})").expect("a string takes everything");
    }
    let folder = build.folder().to_owned();
    fs::write(folder.join("llama_h_layout.inc"), facts).expect("the folder is writable");
    build.flag("-I").flag(folder).build().succeed(&[]);
}

#[test]
fn our_constructors_have_the_types_of_the_built_ins() {
    let build = Build::new("llama_h_signatures", "c-tests/llama_h_signatures.cpp").with_llama_h();
    build.build().succeed(&[]);
}

// The same program in every linkage.

fn chain(name: &str, ours: Link, llama: Link) {
    let build = Build::new(name, "c-tests/chain.c");
    let text = build.with_ours(ours).with_llama(llama).build().succeed(&[]);
    assert_eq!(text, "the same tokens\n");
}

#[test]
fn chain_all_static() {
    chain("chain_all_static", Link::Static, Link::Static);
}

#[test]
fn chain_all_static_in_the_other_order() {
    let build = Build::new("chain_llama_first", "c-tests/chain.c");
    let build = build.with_llama(Link::Static).with_ours(Link::Static);
    assert_eq!(build.build().succeed(&[]), "the same tokens\n");
}

#[test]
fn chain_with_a_static_host_and_ours_shared() {
    chain("chain_static_host", Link::Shared, Link::Static);
}

#[test]
fn chain_with_a_shared_host_and_ours_static() {
    chain("chain_static_ours", Link::Static, Link::Shared);
}

#[test]
fn chain_with_a_shared_host_and_ours_static_at_a_fixed_address() {
    let build = Build::new("chain_no_pie", "c-tests/chain.c").flag("-no-pie");
    let build = build.with_ours(Link::Static).with_llama(Link::Shared);
    assert_eq!(build.build().succeed(&[]), "the same tokens\n");
}

#[test]
fn chain_all_shared() {
    chain("chain_all_shared", Link::Shared, Link::Shared);
}

#[test]
fn children_of_threads_that_sample_sample() {
    let build = Build::new("forks", "c-tests/forks.c").flag("-pthread");
    let program = build.with_ours(Link::Static).with_llama(Link::Shared);
    assert_eq!(program.build().succeed(&[]), "every child gave a token\n");
}

#[test]
fn children_of_threads_that_make_constraints_make_some() {
    let source = "c-tests/forks_of_makers.c";
    let build = Build::new("forks_of_makers", source).flag("-pthread");
    let program = build.with_ours(Link::Static).with_llama(Link::Shared);
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    let said = program.build().succeed(&[&model]);
    assert!(said.starts_with("every child made all of them\n"), "{said}");
}

#[test]
fn a_fork_does_not_wait_for_a_mutex_of_the_program() {
    let source = "c-tests/forks_under_a_mutex.c";
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    for (name, flags) in [
        ("forks_under_a_mutex", &["-pthread"][..]),
        (
            "forks_under_an_early_mutex",
            &["-pthread", "-DBEFORE_LIBRARIES"],
        ),
    ] {
        let build = Build::new(name, source);
        let build = flags.iter().fold(build, |build, flag| build.flag(flag));
        let program = build.with_ours(Link::Shared).with_llama(Link::Shared);
        let said = program.build().succeed(&[&model]);
        assert!(said.starts_with("every fork came to its end\n"), "{said}");
    }
}

#[test]
fn handlers_of_forks_may_call_the_library() {
    let build = Build::new("forks_in_handlers", "c-tests/forks_in_handlers.c").flag("-pthread");
    let program = build.with_llama(Link::Shared).build();
    let ours = our_library(Link::Shared).display().to_string();
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    for handler in ["prepare", "parent", "child"] {
        for registered in ["before", "after"] {
            let said = program.succeed(&[&model, &ours, handler, registered]);
            assert!(said.starts_with("no handler waited\n"), "{said}");
        }
    }
}

#[test]
fn denormal_numbers_may_be_flushed() {
    let build = Build::new("float_environment", "c-tests/float_environment.c");
    let program = build.with_ours(Link::Static).with_llama(Link::Shared);
    let said = program.build().succeed(&[]);
    assert_eq!(said, "the same with denormals flushed\n");
}

/// Runs the program without sanitizers, which need more stack.
#[test]
fn the_stack_of_a_coroutine_is_large_enough() {
    let build = Build::new("stack", "c-tests/stack.c");
    let program = build.with_ours(Link::Static).with_llama(Link::Shared);
    let program = program.build();
    assert_eq!(program.succeed(&[]), "every stack was large enough\n");
}

/// Compiles and runs the program of docs/chains.md, unchanged.
#[test]
fn the_documented_chain_runs() {
    let text = std::fs::read_to_string(root().join("docs/chains.md"));
    let text = text.expect("the page is there");
    let program = text
        .split("```c\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next());
    let folder = empty_folder("c_programs/documented_chain_source");
    let source = folder.join("chain.c");
    std::fs::write(&source, program.expect("it has a program")).expect("a new folder");
    let build = Build::new("documented_chain", source.to_str().expect("a plain path"));
    let build = build.with_ours(Link::Shared).with_llama(Link::Shared);
    let said = build.build().succeed(&[]);
    let ids: Vec<&str> = said.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(ids, ["1", "3", "2"]);
}

#[test]
fn chain_under_sanitizers() {
    if !has_sanitizers() {
        return skipped("the C compiler has no runtime for -fsanitize=address,undefined");
    }
    let build = Build::new("chain_sanitized", "c-tests/chain.c").sanitized();
    let build = build.with_ours(Link::Static).with_llama(Link::Static);
    assert_eq!(build.build().succeed(&[]), "the same tokens\n");
}

// Hosts that are not linked, but loaded at run time.

fn dlopen(name: &str, order: &str) {
    let program = Build::new(name, "c-tests/host_dlopen.c")
        .with_llama_h()
        .build();
    let ours = our_library(Link::Shared).display().to_string();
    let libllama = paths::shared_library().display().to_string();
    let text = program.succeed(&[order, &ours, &libllama]);
    assert_eq!(text, "found a local host\n");
}

#[test]
fn a_local_host_is_found_that_came_after_us() {
    dlopen("dlopen_ours_first", "ours-first");
}

#[test]
fn a_local_host_is_found_that_came_before_us() {
    dlopen("dlopen_llama_first", "llama-first");
}

fn late(name: &str, ours: Link) {
    let build = Build::new(name, "c-tests/host_late.c");
    let program = build.with_llama_h().with_ours(ours).build();
    let libllama = paths::shared_library().display().to_string();
    for how in ["found", "bound"] {
        let text = program.succeed(&[how, &libllama]);
        assert_eq!(text, "found a late host\n");
    }
}

#[test]
fn without_a_host_the_library_says_so_and_takes_a_late_one() {
    late("late_shared", Link::Shared);
}

#[test]
fn linked_statically_it_takes_a_late_host_too() {
    late("late_static", Link::Static);
}

#[test]
fn the_host_is_found_under_ld_preload() {
    let build = Build::new("preload", "c-tests/host_preload.c").with_llama(Link::Shared);
    let program = build
        .build()
        .env("LD_PRELOAD", our_library(Link::Shared).display());
    assert_eq!(program.succeed(&[]), "found the host under LD_PRELOAD\n");
}

#[test]
fn the_smoke_program_of_the_cmake_project() {
    for (name, link) in [
        ("smoke_static", Link::Static),
        ("smoke_shared", Link::Shared),
    ] {
        let program = Build::new(name, "c-tests/smoke.c").with_ours(link).build();
        let text = program.succeed(&[]);
        let first = format!("llama-sieve {}", env!("CARGO_PKG_VERSION"));
        assert!(text.starts_with(&first), "{text}");
    }
}

// examples/generate.c

fn generate(name: &str) -> Program {
    let build = Build::new(name, "examples/generate.c");
    build
        .with_ours(Link::Static)
        .with_llama(Link::Static)
        .build()
}

#[test]
fn generate_gives_the_text_of_the_built_in_chain() {
    let program = generate("generate");
    for options in [
        "--seed 42",
        // The random seed, which both chains must share.
        "",
        "--temp 0",
        "--top-k 0 --top-p 1 --min-p 0 -s 7",
        "--typical 0.9 --top-nsigma 2.5 --temp 1.2",
        "--repeat-penalty 1.2 --repeat-last-n 32 -s 3",
        "--presence-penalty 0.3 --frequency-penalty 0.2 -p Blessed",
    ] {
        // One thread, since other tests run on the other cores.
        let mut args = vec!["--compare", "-n", "64", "--threads", "1"];
        args.extend(options.split_whitespace());
        let text = program.succeed(&args);
        assert!(text.contains("\nidentical\n"), "{options:?}: {text}");
        assert!(text.contains("tokens per second"), "{options:?}: {text}");
    }
}

#[test]
fn generate_repeats_itself_with_a_seed() {
    let program = generate("generate_seed");
    let text = |seed| program.output(&["-n", "24", "-t", "1", "-s", seed]).stdout;
    assert!(text("1").starts_with(b"And the LORD said unto"));
    assert_eq!(text("1"), text("1"));
    assert_ne!(text("1"), text("2"));
}

#[test]
fn generate_names_a_wrong_option_and_what_is_allowed() {
    let program = generate("generate_options");
    for (args, code, words) in [
        (&["--top-x", "3"][..], 2, &["--top-x", "--top-k"][..]),
        (&["--top-p"], 2, &["--top-p", "a finite number"]),
        (&["--top-p", "nan"], 2, &["--top-p", "\"nan\"", "finite"]),
        (&["--temp", "0.8x"], 2, &["--temp", "0.8x", "number"]),
        (&["--top-k", "4.5"], 2, &["--top-k", "4.5", "whole number"]),
        (&["--seed", "-2"], 2, &["--seed", "-2", "4294967295"]),
        (&["-n", "0"], 2, &["-n", "\"0\"", "from 1"]),
        (&[""], 2, &["unknown option", "--prompt"]),
        (&["--model", "nowhere.gguf"], 1, &["--model nowhere.gguf"]),
    ] {
        let output = program.output(args);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
        for word in words {
            assert!(text.contains(word), "{args:?}: no {word} in {text}");
        }
    }
    let help = program.output(&["--help"]);
    assert!(help.status.success());
    assert!(said(&help).contains("--repeat-last-n"));
}

#[test]
fn what_the_tokenizer_throws_passes_through_dry() {
    for (name, link) in [
        ("throwing_tokenizer_static", Link::Static),
        ("throwing_tokenizer_shared", Link::Shared),
    ] {
        let build = Build::new(name, "c-tests/throwing_tokenizer.cpp");
        let build = build.with_ours(link).with_llama(link);
        let vocabulary = build.folder().join("vocabulary.gguf");
        let path = vocabulary.to_str().expect("a path in UTF-8").to_owned();
        let text = build.build().succeed(&[path.as_str()]);
        assert_eq!(text, "the exceptions pass\n");
    }
}

/// A sandboxed host may be killed for a system call that samplers do not need.
#[test]
fn no_constructor_and_no_sampler_needs_a_system_call_of_its_own() {
    let build = Build::new("filtered", "c-tests/filtered.c");
    let program = build.with_ours(Link::Shared).with_llama(Link::Shared);
    let model = root().join("models/kjv-tiny.gguf").display().to_string();
    let said = program.build().succeed(&[&model]);
    assert_eq!(said, "no other system call\n");
}

#[test]
fn a_tokenizer_that_recurses_has_the_stack_that_the_header_names() {
    let build = Build::new("deep_tokenizer", "c-tests/deep_tokenizer.cpp");
    let build = build.with_ours(Link::Shared).with_llama(Link::Shared);
    let vocabulary = build.folder().join("vocabulary.gguf");
    let path = vocabulary.to_str().expect("a path in UTF-8").to_owned();
    let text = build.build().succeed(&[path.as_str()]);
    assert_eq!(text, "the stack is enough\n");
}

#[test]
fn a_batch_in_which_a_member_throws_has_written_what_the_header_says() {
    for (name, link) in [
        ("throwing_member_static", Link::Static),
        ("throwing_member_shared", Link::Shared),
    ] {
        let build = Build::new(name, "c-tests/throwing_member.cpp");
        let build = build.with_ours(link).with_llama(link);
        assert_eq!(build.build().succeed(&[]), "the others were written\n");
    }
}
