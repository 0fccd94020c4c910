//! Tests older builds of llama.cpp, which a stand-in imitates (c-tests/preload/old_host.c).

use std::path::PathBuf;

use crate::preloaded::*;
use crate::programs::{Run, Said, build, source};
use crate::toolchain::Build;
use vendor_llama_cpp::paths;

pub struct Old {
    pub program: PathBuf,
}

impl Old {
    /// Builds the host and the program with `macros`, which old_llama.h and old_host.c explain.
    pub fn new(name: &str, macros: &[&str]) -> Self {
        let define = |mut build: Build| {
            for name in macros {
                build = build.flag(format!("-D{name}"));
            }
            build
        };
        let host = Build::new(&format!("preload_old_host_{name}"), &source("old_host.c"));
        let libllama = paths::shared_library();
        let host = host
            .flag("-D_GNU_SOURCE")
            .flag(format!("-DLIBLLAMA=\"{}\"", libllama.display()));
        let host = build(define(host.flag("-shared").flag("-fPIC")));
        let mut program = Build::new(&format!("preload_old_{name}"), &source("old_program.c"));
        if macros.contains(&"AS_ADDON") {
            program = program.flag("-shared").flag("-fPIC");
        }
        let program = build(define(program).flag(host));
        Self { program }
    }

    /// Runs the program without the preload library. Returns its output.
    fn alone(&self) -> Said {
        Run::of(&self.program).said()
    }

    fn preloaded(&self) -> Run<'_> {
        preloaded(&self.program)
    }

    /// Checks that everything is replaced. Calls of penalties and DRY with new values are passed on
    /// to the host unchanged, to find out what they mean.
    fn is_served(&self, run: Run<'_>) {
        let said = run.env("LLAMA_SIEVE_VERBOSE", 1).said();
        assert_eq!(said.out, without(&self.alone().out, &OURS), "{}", said.err);
        assert_eq!(warnings(&said), Vec::<&str>::new(), "{}", said.err);
        let made = made(&said);
        assert!(made.keys().all(|key| key.ends_with(": ours")), "{made:?}");
        for name in ["penalties", "dry", "min-p", "temp", "dist"] {
            assert!(made.contains_key(&format!("{name}: ours")), "{made:?}");
        }
    }
}

/// The prefixes of the lines that the host prints for constructors whose parameters have never
/// changed. Calls of these do not reach the host if they are replaced.
const OURS: [&str; 3] = ["host: min_p(", "host: temp(", "host: dist("];
/// Returns the lines of `out` that begin with none of `beginnings`.
fn without(out: &str, beginnings: &[&str]) -> String {
    let lines = out
        .lines()
        .filter(|line| !beginnings.iter().any(|b| line.starts_with(b)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn a_build_with_four_penalties() {
    let old = Old::new("four", &["WITH_SET_SAMPLER"]);
    let penalties = "penalties: penalties 0:4 1:-2.75 2:-0.25";
    assert!(old.alone().out.contains(penalties));
    old.is_served(old.preloaded());
    old.is_served(old.preloaded().env("LLAMA_SIEVE_HOST", "b9000"));
    let misnamed = old.preloaded().env("LLAMA_SIEVE_HOST", "new").said();
    assert_eq!(misnamed.out, without(&old.alone().out, &OURS));
    assert_eq!(warnings(&misnamed).len(), 1, "{}", misnamed.err);
    assert!(misnamed.err.contains("new is neither a build number"));
}

/// Older builds draw other numbers from the same seed.
#[test]
fn a_build_that_draws_other_numbers_keeps_what_draws() {
    let old = Old::new("other_draws", &["WITH_SET_SAMPLER", "OLD_DIST"]);
    let said = old.preloaded().env("LLAMA_SIEVE_VERBOSE", 1).said();
    assert_eq!(said.out, without(&old.alone().out, &OURS[..2]));
    assert!(said.out.contains("host: dist(4242)"));
    let [warning] = warnings(&said)[..] else {
        panic!("{}", said.err);
    };
    assert!(warning.contains("own dist is used: dist: llama.cpp's own differs on"));
    assert_eq!(made(&said).get("min-p: ours"), Some(&1), "{}", said.err);
}

#[test]
fn a_build_with_five_penalties_and_the_old_dry() {
    let old = Old::new("five", &["WITH_SET_SAMPLER", "PENALTIES_WITH_N_VOCAB"]);
    old.is_served(old.preloaded());
}

/// The macros that describe every build since b10273.
const MODERN: [&str; 4] = [
    "WITH_SET_SAMPLER",
    "WITH_SAMPLER_COPY",
    "PENALTIES_WITH_N_VOCAB",
    "DRY_WITHOUT_N_CTX_TRAIN",
];

fn modern(name: &str, more: &[&str]) -> Old {
    Old::new(name, &[&MODERN[..], more].concat())
}

#[test]
fn a_build_with_five_penalties_and_the_new_dry() {
    let old = modern("five_seven", &[]);
    old.is_served(old.preloaded());
    let off = old.preloaded().env("LLAMA_SIEVE_PRELOAD", "off").said();
    assert_eq!(off, old.alone());
}

/// Tests a build number in the environment that the host's calls contradict.
#[test]
fn a_named_build_that_cannot_be() {
    let modern = modern("misnamed", &[]);
    for build in ["b9000", "10272", "b99999", "0.5.0", "v0.6.0"] {
        modern.is_served(modern.preloaded().env("LLAMA_SIEVE_HOST", build));
    }
    let old = Old::new("misnamed_old", &["WITH_SET_SAMPLER"]);
    old.is_served(old.preloaded().env("LLAMA_SIEVE_HOST", "0.6.0"));
}

/// Nothing is decided by versions and build numbers.
#[test]
fn what_a_build_calls_itself_changes_nothing() {
    for (name, macros) in [
        ("release", ["WITH_VERSION=\"0.6.0\""].as_slice()),
        ("between_releases", &["WITH_VERSION=\"0.6.0-dev\""]),
        ("next_release", &["WITH_VERSION=\"0.7.0\""]),
        ("number", &["WITH_BUILD_NUMBER=11000"]),
        ("no_number", &["WITH_BUILD_NUMBER=1"]),
        ("another_number", &["WITH_BUILD_NUMBER=259"]),
        ("later_number", &["WITH_BUILD_NUMBER=99999"]),
        ("old_number", &["WITH_BUILD_NUMBER=10000"]),
        (
            "number_between_releases",
            &["WITH_VERSION=\"0.6.0-dev\"", "WITH_BUILD_NUMBER=11434"],
        ),
    ] {
        let build = modern(name, macros);
        build.is_served(build.preloaded());
    }
}

/// With an argument list of a future version, the host's own sampler is used.
#[test]
fn a_build_with_another_argument_keeps_what_it_has_changed() {
    let macros = [
        "WITH_SET_SAMPLER",
        "WITH_SAMPLER_COPY",
        "PENALTIES_WITH_ANOTHER",
        "DRY_WITHOUT_N_CTX_TRAIN",
        "WITH_VERSION=\"0.7.0-dev\"",
    ];
    let next = Old::new("another_argument", &macros);
    assert!(next.alone().out.contains("host: penalties(7, 32000, 4, 2,"));
    for named in ["", "0.6.0", "b9000"] {
        let said = next.preloaded().env("LLAMA_SIEVE_HOST", named);
        let said = said.env("LLAMA_SIEVE_VERBOSE", 1).said();
        assert_eq!(said.out, without(&next.alone().out, &OURS), "{}", said.err);
        let [warning] = warnings(&said)[..] else {
            panic!("{}", said.err);
        };
        let reason = "its calls have none of the argument lists that are known";
        assert!(warning.contains(&format!("own penalties is used: {reason}")));
        let made = made(&said);
        assert!(made.contains_key(&format!("penalties: llama.cpp's own: {reason}")));
        assert!(made.contains_key("dry: ours"), "{made:?}");
    }
}

#[test]
fn a_build_from_before_samplers_of_others() {
    let macros = ["PENALTIES_WITH_NEWLINES", "WITHOUT_SAMPLER_INIT"];
    let oldest = Old::new("oldest", &macros);
    for run in [
        oldest.preloaded(),
        oldest.preloaded().env("LLAMA_SIEVE_HOST", 4000),
    ] {
        let said = run.said();
        assert_eq!(said.out, oldest.alone().out);
        let [warning] = warnings(&said)[..] else {
            panic!("{}", said.err);
        };
        assert!(warning.contains("the first that takes samplers of others"));
    }
}
