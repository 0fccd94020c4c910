//! Hosts that lack one of the functions that the library asks for, each in turn:
//! c-tests/fake_host.c, compiled once for each, and c-tests/host_without.c.

use crate::toolchain::{Build, Link, Program, has_sanitizers, root, skipped};

/// All of them, as the sources ask for them.
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

fn host_lacking(name: &str) -> Program {
    let build = Build::new(&format!("host_lacking_{name}"), "c-tests/fake_host.c");
    let build = build.flag("-shared").flag("-fPIC");
    build.flag(format!("-DWITHOUT_{name}")).build()
}

fn run(program: &Program) {
    for name in functions().iter().map(String::as_str).chain(["nothing"]) {
        let host = host_lacking(name);
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
    run(&build.build());
}

#[test]
fn a_lacking_host_under_sanitizers() {
    if !has_sanitizers("host_without_probe") {
        skipped("the C compiler has no runtime for -fsanitize=address,undefined");
        return;
    }
    let build = Build::new("host_without_sanitized", "c-tests/host_without.c").sanitized();
    let program = build.with_ours(Link::Static).build();
    run(&program.env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=1"));
}
