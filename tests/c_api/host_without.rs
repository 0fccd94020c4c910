//! Tests hosts that lack one of the functions that the library looks up, each in turn:
//! c-tests/fake_host.c, compiled once for each function, and c-tests/host_without.c.

use crate::toolchain::{Build, Link, Program, has_sanitizers, root, skipped};

/// Returns the names of all host functions that the library looks up, read from its sources.
fn functions() -> Vec<String> {
    let source = root().join("src/ffi/host/linker.rs");
    let source = std::fs::read_to_string(source).expect("the source is there");
    let list = source
        .split("weak_references! {\n")
        .nth(1)
        .expect("the list of functions");
    let list = list.split('}').next().expect("its end");
    let names: Vec<String> = list
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.strip_suffix('"'))
        .map(str::to_owned)
        .collect();
    assert!(names.len() >= 15, "{names:?}");
    names
}

/// Builds a host that lacks the function `name`. `of` is the name of the test: each test builds its
/// own hosts, since another may be loading a host with the same name.
fn host_lacking(name: &str, of: &str) -> Program {
    let build = Build::new(&format!("{of}_lacking_{name}"), "c-tests/fake_host.c");
    let build = build.flag("-shared").flag("-fPIC");
    build.flag(format!("-DWITHOUT_{name}")).build()
}

fn run(program: &Program, of: &str) {
    for name in functions().iter().map(String::as_str).chain(["nothing"]) {
        let host = host_lacking(name, of);
        let path = host.path().display().to_string();
        let expected = match name {
            "llama_sampler_init" => "no host\n",
            _ => "every call had its answer\n",
        };
        assert_eq!(program.succeed(&[&path, name]), expected, "{name}");
    }
}

#[test]
fn a_host_without_a_function_is_told_so() {
    let build = Build::new("host_without", "c-tests/host_without.c").with_ours(Link::Static);
    run(&build.build(), "host");
}

#[test]
fn a_lacking_host_under_sanitizers() {
    if !has_sanitizers() {
        return skipped("the C compiler has no runtime for -fsanitize=address,undefined");
    }
    let build = Build::new("host_without_sanitized", "c-tests/host_without.c").sanitized();
    run(&build.with_ours(Link::Static).build(), "sanitized_host");
}

/// A host that loads libc++ and not libstdc++ is assumed to be built with libc++. Here a library
/// with one of its functions stands in for libc++.
#[test]
fn ties_keep_input_order_in_a_host_with_libcxx() {
    let shared = |name: &str, source: &str| {
        let build = Build::new(name, source).flag("-shared").flag("-fPIC");
        // Linked like a C library, without the C++ library that the other tests need.
        build.flag("-Wl,--as-needed")
    };
    let libcxx = shared("libcxx", "c-tests/libcxx.c").build();
    let host = |name: &str| shared(name, "c-tests/fake_host.c");
    let with = host("host_with_libcxx").flag("-Wl,--no-as-needed");
    let with = with.flag(libcxx.path()).flag("-Wl,--as-needed").build();
    let without = host("host_with_libstdcxx").build();
    let paths = [with, without].map(|host| host.path().display().to_string());
    for (name, link) in [
        ("host_sorts_static", Link::Static),
        ("host_sorts_shared", Link::Shared),
    ] {
        let build = Build::new(name, "c-tests/host_sorts.c").with_ours(link);
        let said = build.build().succeed(&[&paths[0], &paths[1]]);
        assert_eq!(said, "ties as the host's library leaves them\n");
    }
}
