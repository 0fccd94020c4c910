//! Older builds of llama.cpp, which a stand-in plays (c-tests/preload/old_host.c).

use std::path::PathBuf;

use crate::preloaded::*;
use crate::programs::{Run, Said, build, source};
use crate::toolchain::Build;
use vendor_llama_cpp::paths;

pub struct Old {
    pub program: PathBuf,
}

impl Old {
    /// With these macros, which old_llama.h and old_host.c explain.
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

    /// What it says without us.
    fn alone(&self) -> Said {
        Run::of(&self.program).said()
    }

    fn preloaded(&self) -> Run<'_> {
        preloaded(&self.program)
    }

    /// Penalties and dry arrive at the host unchanged, with one warning each, which contains
    /// `reason`. The rest is ours.
    fn keeps_what_has_changed(&self, run: Run<'_>, reason: &str) {
        let said = run.said();
        assert_eq!(said.out, without(&self.alone().out, &OURS));
        let warnings = warnings(&said);
        assert_eq!(warnings.len(), 2, "{}", said.err);
        for (warning, name) in warnings.iter().zip(["penalties", "dry"]) {
            assert!(warning.contains(reason), "{warning}");
            assert!(
                warning.contains(&format!("own {name} is used")),
                "{warning}"
            );
        }
    }
}

/// What the host prints of the calls that never change.
const OURS: [&str; 3] = ["host: min_p(", "host: temp(", "host: dist("];
/// And of the others.
const CHANGED: [&str; 2] = ["host: penalties(", "host: dry("];

/// The lines of `out` that begin with none of these.
fn without(out: &str, beginnings: &[&str]) -> String {
    let lines = out
        .lines()
        .filter(|line| !beginnings.iter().any(|b| line.starts_with(b)));
    lines.map(|line| format!("{line}\n")).collect()
}

/// What the program says when all is ours. What the samplers do is the same.
fn all_ours(old: &Old) -> String {
    without(&without(&old.alone().out, &OURS), &CHANGED)
}

#[test]
fn a_build_with_four_penalties() {
    let old = Old::new("four", &["WITH_SET_SAMPLER"]);
    assert!(
        old.alone()
            .out
            .contains("penalties: penalties 0:4 1:-2.75 2:-0.25")
    );
    old.keeps_what_has_changed(old.preloaded(), "set LLAMA_SIEVE_HOST");
    // Another fault, another warning.
    let misnamed = old.preloaded().env("LLAMA_SIEVE_HOST", "new").said();
    assert_eq!(misnamed.out, without(&old.alone().out, &OURS));
    assert_eq!(warnings(&misnamed).len(), 3, "{}", misnamed.err);
    assert!(misnamed.err.contains("new is neither a build number"));
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", "b9000").said();
    assert_eq!(named.out, all_ours(&old));
    assert_eq!(warnings(&named), Vec::<&str>::new());
}

/// Older builds draw other numbers from a seed.
#[test]
fn a_build_that_draws_other_numbers_keeps_what_draws() {
    let old = Old::new("other_draws", &["WITH_SET_SAMPLER", "OLD_DIST"]);
    let said = old.preloaded().env("LLAMA_SIEVE_HOST", "b9000");
    let said = said.env("LLAMA_SIEVE_VERBOSE", 1).said();
    let kept = without(&without(&old.alone().out, &OURS[..2]), &CHANGED);
    assert_eq!(said.out, kept);
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
    old.keeps_what_has_changed(old.preloaded(), "set LLAMA_SIEVE_HOST");
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", 10_258).said();
    assert_eq!(named.out, all_ours(&old));
}

/// What every build since b10273 has.
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
    old.keeps_what_has_changed(old.preloaded(), "set LLAMA_SIEVE_HOST");
    let named = old.preloaded().env("LLAMA_SIEVE_HOST", 10_400).said();
    assert_eq!(named.out, all_ours(&old));
    // Off is off, and needs no build number.
    let off = old.preloaded().env("LLAMA_SIEVE_PRELOAD", "off").said();
    assert_eq!(off, old.alone());
}

#[test]
fn a_named_build_that_cannot_be() {
    let modern = modern("misnamed", &[]);
    for (build, reason) in [
        (9000, "exports llama_sampler_copy"),
        (99_999, "newer than b11434, the last that was tested"),
    ] {
        let run = modern.preloaded().env("LLAMA_SIEVE_HOST", build);
        modern.keeps_what_has_changed(run, reason);
    }
}

#[test]
fn a_release_and_a_build_number_of_libllama_common_are_known() {
    for (name, macros) in [
        ("release", ["WITH_VERSION=\"0.6.0\""].as_slice()),
        ("number", &["WITH_BUILD_NUMBER=11000"]),
        (
            "number_between_releases",
            &["WITH_VERSION=\"0.6.0-dev\"", "WITH_BUILD_NUMBER=11434"],
        ),
    ] {
        let known = modern(name, macros);
        let said = known.preloaded().said();
        assert_eq!(said.out, all_ours(&known), "{name}: {}", said.err);
        assert_eq!(warnings(&said), Vec::<&str>::new(), "{name}");
    }
}

/// A version between two releases, one that is newer than any tested, and a build number that is
/// none, are no reason to hand over arguments.
#[test]
fn a_build_that_nobody_has_tested_keeps_what_has_changed() {
    for (name, macros) in [
        (
            "between_releases",
            ["WITH_VERSION=\"0.6.0-dev\""].as_slice(),
        ),
        ("next_release", &["WITH_VERSION=\"0.7.0\""]),
        ("no_number", &["WITH_BUILD_NUMBER=1"]),
        ("later_number", &["WITH_BUILD_NUMBER=20000"]),
    ] {
        let unknown = modern(name, macros);
        unknown.keeps_what_has_changed(unknown.preloaded(), "none of those that were tested");
    }
    let macros = [
        "WITH_SET_SAMPLER",
        "WITH_SAMPLER_COPY",
        "PENALTIES_WITH_ANOTHER",
        "DRY_WITHOUT_N_CTX_TRAIN",
        "WITH_VERSION=\"0.7.0-dev\"",
    ];
    let next = Old::new("another_argument", &macros);
    assert!(next.alone().out.contains("host: penalties(7, 32000, 4, 2,"));
    next.keeps_what_has_changed(next.preloaded(), "none of those that were tested");
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
