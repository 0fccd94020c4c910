//! Tests the verdicts of `llama_sieve_certify` on the vendored llama.cpp, and on libraries that
//! differ from it in one point: c-tests/certify.c, c-tests/altered_host.cpp.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::altered::{self, PREAMBLE};
use crate::programs::{Run, SAMPLERS};
use crate::toolchain::{Build, Link, skipped};
use vendor_llama_cpp::paths;

// Constants of llama_sieve.h.
const SIZE_TO_IDS: [i32; 4] = [2, 3, 4, 5];
const SIZE: i32 = 2;
const IDS: i32 = 5;
const LOGITS: i32 = 6;
const PROBABILITIES: i32 = 7;
const ARGUMENTS: i32 = 8;
const VOCABULARY: i32 = 9;
const NOT_MADE: i32 = 10;

fn certify() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Build::new("certify", "c-tests/certify.c");
        crate::programs::build(program.with_llama_h().with_ours(Link::Static))
    })
}

/// Returns the verdicts on the samplers `names` of `library`.
fn verdicts(library: &Path, names: &[&str], build: Option<&str>) -> Vec<i32> {
    verdicts_of(Run::of(certify()), library, names, build)
}

fn verdicts_of(run: Run<'_>, library: &Path, names: &[&str], build: Option<&str>) -> Vec<i32> {
    let mut run = run.arg(library.display());
    for name in names {
        run = run.arg(name);
    }
    if let Some(build) = build {
        run = run.env("LLAMA_SIEVE_HOST", build);
    }
    let said = run.said();
    let numbers = said.out.lines().zip(names).map(|(line, name)| {
        let (said, number) = line.rsplit_once(' ').expect("a name and a number");
        assert_eq!(said, *name);
        number.parse().expect("a number")
    });
    numbers.collect()
}

#[test]
fn the_vendored_samplers_are_equal() {
    let library = paths::shared_library();
    check_all_equal(&library);
}

/// A built-in clones itself by calling its constructor, which the preload library interposes. The
/// clone is then this library's sampler, to which the built-in cannot be copied.
#[test]
#[cfg(all(
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
fn the_vendored_samplers_are_equal_where_their_constructors_are_interposed() {
    let run = crate::preloaded::preloaded(certify());
    let library = paths::shared_library();
    check_equal(verdicts_of(run, &library, &SAMPLERS, Some("b11434")));
}

/// Checks that all samplers of a library have the verdict "equal", except the one that cannot be
/// tried.
fn check_all_equal(library: &Path) {
    check_equal(verdicts(library, &SAMPLERS, Some("b11434")));
}

fn check_equal(verdicts: Vec<i32>) {
    for (name, verdict) in SAMPLERS.iter().zip(verdicts) {
        let expected = if *name == "infill" { VOCABULARY } else { 0 };
        assert_eq!(verdict, expected, "{name}");
    }
}

/// A constructor that may have other arguments in this build is not called.
#[test]
fn of_an_unknown_build_what_has_changed_is_not_called() {
    let names = ["penalties", "dry", "logit-bias", "infill", "dist"];
    let library = paths::shared_library();
    let expected = [ARGUMENTS, ARGUMENTS, ARGUMENTS, VOCABULARY, 0];
    assert_eq!(verdicts(&library, &names, None), expected);
    // Nor is it called if the user names a build that this library cannot be.
    assert_eq!(verdicts(&library, &names, Some("b9000")), expected);
    // A build that the user names is believed if nothing contradicts it.
    let expected = [0, 0, 0, VOCABULARY, 0];
    assert_eq!(verdicts(&library, &names, Some("b99999")), expected);
}

#[test]
fn grammars_cannot_be_tried_without_a_vocabulary() {
    let library = paths::shared_library();
    assert_eq!(verdicts(&library, &["grammar"], None), [VOCABULARY]);
}

#[test]
fn without_a_host_there_is_an_error() {
    assert_eq!(Run::of(certify()).arg("none").said().out, "no host\n");
}

/// Builds a library in which one sampler is changed.
fn altered(what: &str) -> PathBuf {
    let name = format!("altered_{}", what.to_lowercase());
    let host = Build::new(&name, "c-tests/altered_host.cpp");
    let host = host.flag("-shared").flag("-fPIC").flag(format!("-D{what}"));
    crate::programs::build(host.with_llama(Link::Shared))
}

#[test]
fn what_older_builds_did_otherwise_is_seen() {
    for (what, sampler, expected) in [
        ("NOTHING", "dist", [0].as_slice()),
        ("DRAWS_NOTHING_FOR_ONE", "dist", &[0]),
        ("SORTS", "dist", &SIZE_TO_IDS),
        ("SUMS_FLOATS", "dist", &[PROBABILITIES]),
        ("DRAWS_TWICE", "dist", &[4]),
        ("STABLE_TOP_K", "top-k", &SIZE_TO_IDS),
        ("NULL_GREEDY", "greedy", &[NOT_MADE]),
        ("BARE_GREEDY", "greedy", &[0]),
    ] {
        let verdicts = verdicts(&altered(what), &[sampler, "min-p"], None);
        assert!(expected.contains(&verdicts[0]), "{what}: {verdicts:?}");
        assert_eq!(verdicts[1], 0, "{what}: the others are as they were");
    }
}

/// llama.cpp's own source, compiled so that products and sums are fused. The drop-ins then fuse
/// them, too. If they are forced not to, every kind that rounds differently is noticed.
#[test]
#[cfg(target_arch = "x86_64")]
fn a_build_that_fuses_is_seen_where_it_rounds_otherwise() {
    if !is_x86_feature_detected!("fma") {
        skipped("this processor cannot fuse a multiplication and an addition");
        return;
    }
    let library = recompiled("-mfma");
    check_all_equal(&library);
    let run = Run::of(certify()).env("LLAMA_SIEVE_PROFILE", "fusion=none");
    let fused = verdicts_of(run, &library, &SAMPLERS, Some("b11434"));
    for (name, verdict) in SAMPLERS.iter().zip(fused) {
        let expected: &[i32] = match *name {
            "top-k" | "top-p" | "xtc" | "typical" => &[IDS],
            "mirostat" | "mirostat-v2" => &[SIZE],
            "top-n-sigma" | "penalties" | "adaptive-p" => &[LOGITS],
            "temp-ext" => &[LOGITS, PROBABILITIES],
            "infill" => &[VOCABULARY],
            _ => &[0],
        };
        assert!(expected.contains(&verdict), "{name}: {verdict}");
    }
    check_all_equal(&recompiled("-ffp-contract=off"));
}

/// Changes that fuse a single expression of llama.cpp's source, as no compiler does, or change a
/// draw: the name, the kinds whose results differ, the text in the source, and the new text.
#[rustfmt::skip] // A table.
const CHANGES: &[(&str, &[&str], &str, &str)] = &[
    ("buckets", &["top-k", "top-p", "xtc"],
        "int ib = int(bucket_scale * val + bucket_inter);",
        "int ib = int(M ? std::fma(bucket_scale, val, bucket_inter)
                       : bucket_scale * val + bucket_inter);"),
    ("typical", &["typical"],
        "entropy += -cur_p->data[i].p * logf(cur_p->data[i].p);",
        "const float p = cur_p->data[i].p;
         entropy = M ? std::fma(-p, logf(p), entropy) : entropy + -p * logf(p);"),
    ("entropy", &["temp-ext"],
        "entropy -= prob * logf(prob);",
        "entropy = M ? std::fma(-prob, logf(prob), entropy) : entropy - prob * logf(prob);"),
    ("temperature", &["temp-ext"],
        "min_temp + (max_temp - min_temp) * powf(normalized_entropy, exponent_val);",
        "std::fma(max_temp - min_temp, M ? powf(normalized_entropy, exponent_val) : 0.0f, min_temp);
         if (!M) { dyn_temp += (max_temp - min_temp) * powf(normalized_entropy, exponent_val); }"),
    ("threshold", &["top-n-sigma"],
        "cur_p->data[i].logit < max - (ctx->n * std)",
        "cur_p->data[i].logit < (M ? std::fma(-ctx->n, std, max) : max - (ctx->n * std))"),
    ("estimate", &["mirostat"],
        "sum_ti_bi += t_i * b_i;
        sum_ti_sq += t_i * t_i;",
        "sum_ti_bi = M ? std::fma(t_i, b_i, sum_ti_bi) : sum_ti_bi + t_i * b_i;
         sum_ti_sq = M ? std::fma(t_i, t_i, sum_ti_sq) : sum_ti_sq + t_i * t_i;"),
    // The same line occurs twice: in mirostat, and then in mirostat-v2.
    ("correction", &["mirostat"],
        "ctx->mu = ctx->mu - ctx->eta * e;",
        "ctx->mu = M ? std::fma(-ctx->eta, e, ctx->mu) : ctx->mu - (ctx->eta * e);"),
    ("correction of 2", &["mirostat-v2"],
        "ctx->mu = ctx->mu - ctx->eta * e;",
        "ctx->mu = M ? std::fma(-ctx->eta, e, ctx->mu) : ctx->mu - (ctx->eta * e);"),
    ("penalty", &["penalties"],
        "-= float(count) * ctx->penalty_freq + float(count > 0) * ctx->penalty_present;",
        "-= M ? std::fma(float(count), ctx->penalty_freq, float(count > 0) * ctx->penalty_present)
             : float(count) * ctx->penalty_freq + float(count > 0) * ctx->penalty_present;"),
    ("average", &["adaptive-p"],
        "ctx->original_probs[ctx->pending_token_idx] + ctx->decay * ctx->weighted_sum;",
        "ctx->original_probs[ctx->pending_token_idx] + (M ? 0.0f : ctx->decay * ctx->weighted_sum);
         if (M) { ctx->weighted_sum = std::fma(ctx->decay, before, ctx->weighted_sum); }"),
    ("average before", &[],
        "// update EMA with the original probability of the selected token",
        "const float before = ctx->weighted_sum;"),
    ("half a draw", &["mirostat", "mirostat-v2", "adaptive-p"],
        "    return dist(rng);",
        "    if (chosen(\"half a draw\") && cur_p->size == 1) { rng.discard(1); }
             if (chosen(\"a draw\") && cur_p->size == 1) { rng.discard(2); }
             return dist(rng);"),
    // Other C++ libraries draw like this.
    ("a draw", &[], "", ""),
];

/// If one property is unlike any known profile, the kinds that depend on it are noticed, and no
/// others.
#[test]
fn what_is_fused_alone_is_seen() {
    let texts = CHANGES.iter().map(|(name, _, from, to)| {
        let is_chosen = format!("chosen(\"{name}\")");
        let to = to.replace("!M", &format!("!{is_chosen}"));
        let to = to.replace("(M)", &format!("({is_chosen})"));
        (*from, to.replace("M ?", &format!("{is_chosen} ?")))
    });
    let changes: Vec<(&str, String)> = texts.collect();
    let changes: Vec<(&str, &str)> = changes.iter().map(|(from, to)| (*from, &**to)).collect();
    let changed = altered::changed("src/llama-sampler.cpp", &changes);
    let folder = crate::toolchain::empty_folder("c_programs/fused_alone");
    let source = format!("{PREAMBLE}#define chosen(name) mutant(name)\n{changed}");
    let library = altered::library(&folder, "changed.cpp", &source, &["-ffp-contract=off"]);
    for (name, kinds, ..) in CHANGES {
        let run = Run::of(certify()).env("MUTANT", name);
        let seen = verdicts_of(run, &library, &SAMPLERS, Some("b11434"));
        let seen = SAMPLERS
            .iter()
            .zip(seen)
            .filter(|(_, code)| ![0, VOCABULARY].contains(code));
        let seen: Vec<&str> = seen.map(|(kind, _)| *kind).collect();
        let mut expected = kinds.to_vec();
        expected.sort_by_key(|kind| SAMPLERS.iter().position(|known| known == kind));
        assert_eq!(seen, expected, "{name}");
    }
}

/// Builds a library with llama.cpp's samplers, compiled with this flag.
#[cfg(target_arch = "x86_64")]
fn recompiled(flag: &str) -> PathBuf {
    let source = paths::source_dir();
    let unit = source.join("src/llama-sampler.cpp");
    let name = format!("recompiled{flag}");
    let host = Build::new(&name, &unit.display().to_string());
    let host = host.flag("-w").flag("-O2").flag(flag);
    let host = host.flag("-shared").flag("-fPIC");
    let include = format!("-I{}", source.join("src").display());
    crate::programs::build(host.flag(include).with_llama(Link::Shared))
}
