//! Tests the preload library under hosts that sample differently: llama.cpp's own sources, changed
//! in one place at a time. Their builds are unknown, and no list describes them, so the library has
//! to watch them to find out if it may sample in their place.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::altered::{self, PREAMBLE};
use crate::common::{SOURCES, common_library, objects, sampling_with};
use crate::preloaded::{made, preloaded, warnings};
use crate::programs::{Run, Said, build, model};
use crate::toolchain::{Build, Link, compile_common, empty_folder};

/// Precedes each changed source. When the process ends, the host prints how often it has filled an
/// array with all candidates.
const FILLED: &str = r#"
#include <cstdio>
static struct fills {
    int n = 0;
    ~fills() { if (n > 0) std::fprintf(stderr, "host: filled in %d times\n", n); }
} fills;
"#;

/// Changes at the places where llama.cpp's functions fill in the candidates: the original text, and
/// the new one.
const FILLS: [(&str, &str); 2] = [
    (
        "const auto * logits = llama_get_logits_ith(ctx, idx);",
        "const auto * logits = llama_get_logits_ith(ctx, idx);
         fills.n++;
         if (mutant(\"written\")) { const_cast<float *>(logits)[400] = 9.0f; }",
    ),
    (
        "cur[token_id] = llama_token_data{token_id, logits[token_id], 0.0f};",
        "cur[token_id] = llama_token_data{token_id, logits[token_id], 0.0f};
         if (mutant(\"scaled\") || (mutant(\"later\") && fills.n > 1)) {
             cur[token_id].logit *= 0.5f;
         }
         if (mutant(\"reversed\")) {
             const llama_token id = n_vocab - 1 - token_id;
             cur[token_id] = llama_token_data{id, logits[id], 0.0f};
         }",
    ),
];

const IN_FRONT: &str = "
    if (mutant(\"front\")) {
        static llama_sampler * front = llama_sampler_init_top_k(3);
        llama_sampler_apply(front, &cur_p);
    }
    if (mutant(\"passed over\")) { cur_p.selected = 7; } else";

/// The changes that show at the first token, each with its message.
const AT_ONCE: [(&str, &str); 7] = [
    ("scaled", "begins with other candidates than the logits"),
    ("written", "begins with other candidates than the logits"),
    ("reversed", "begins with other candidates than the logits"),
    ("front", "applies something before the chain"),
    ("order", "asks otherwise what a backend has sampled"),
    ("passed over", "does not apply the chain"),
    ("answer", "returns another token than the chain selects"),
];

/// Changes at the places where the common library reads the results of a backend, which has none
/// while the CPU samples.
const BACKEND: [(&str, &str); 2] = [
    (
        "cur[i] = llama_token_data{sampled_ids[i], sampled_logits[i], sampled_probs[i]};",
        "cur[i] = llama_token_data{sampled_ids[i], sampled_logits[i],
                                   mutant(\"no probabilities\") ? 0.0f : sampled_probs[i]};
         if (mutant(\"shuffled\") && i > 0) { std::swap(cur[i], cur[0]); }",
    ),
    (
        "// apply reasoning budget first",
        "if (cur_p.size < 1000 && mutant(\"short cut\")) { return cur_p.data[0].id; }
         if (cur_p.size < 1000 && mutant(\"front of few\")) {
             static llama_sampler * few = llama_sampler_init_top_k(2);
             llama_sampler_apply(few, &cur_p);
         }",
    ),
];

/// Changes that are found only with a backend, each with the warning.
const OF_BACKENDS: [(&str, &str); 4] = [
    ("no probabilities", "takes a backend's candidates otherwise"),
    ("shuffled", "takes a backend's candidates otherwise"),
    ("short cut", "does not apply the chain"),
    ("front of few", "applies something before the chain"),
];

/// Changes at the places where a reasoning budget works on the candidates.
const BUDGETS: [(&str, &str); 3] = [
    (
        "if (cur_p->data[i].id != forced) {",
        "if (mutant(\"halves\")) { cur_p->data[i].logit *= 0.5f; }
         else if (mutant(\"bans\") ? cur_p->data[i].id < 400 : cur_p->data[i].id != forced) {",
    ),
    (
        "// passthrough — don't modify logits",
        "if (mutant(\"always\")) { cur_p->data[0].logit -= 3.0f; }",
    ),
    (
        "return \"reasoning-budget\";",
        "return mutant(\"renamed\") ? \"budget\" : \"reasoning-budget\";",
    ),
];

/// Returns a source file of llama.cpp with these changes.
fn changed(file: &str, changes: &[(&str, &str)]) -> String {
    format!("{PREAMBLE}{FILLED}{}", altered::changed(file, changes))
}

/// Returns the program with the changed common library.
fn common() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let apply = "llama_sampler_apply(chain, &cur_p);";
        let in_front = format!("{IN_FRONT} {apply}");
        let probs = "const float *       sampled_probs  =";
        let order = format!(
            "if (mutant(\"order\")) {{ llama_get_sampled_logits_ith(ctx, idx); }}\n{probs}"
        );
        let answer = "id = cur_p.data[cur_p.selected].id;";
        let changes = [
            &FILLS[..],
            &BACKEND,
            &[
                (apply, &in_front),
                (probs, &order),
                (
                    answer,
                    "id = cur_p.data[mutant(\"answer\") ? 0 : cur_p.selected].id;",
                ),
            ],
        ];
        let folder = empty_folder("c_programs/watched_common_objects");
        let compile = |name: &str, source: String| {
            let file = folder.join(name);
            std::fs::write(&file, source).expect("a writable folder");
            let object = file.with_extension("o");
            compile_common(&file, &["-O1", "-fPIC", "-pthread"], &object);
            object
        };
        let mut objects = objects().to_vec();
        objects[0] = compile(
            SOURCES[0],
            changed("common/sampling.cpp", &changes.concat()),
        );
        objects[1] = compile(SOURCES[1], changed("common/reasoning-budget.cpp", &BUDGETS));
        let library = common_library("watched_common", &objects, false);
        let program = sampling_with("watched_common", "watched.cpp", &library);
        build(program.flag("-DWITH_COMMON").with_llama(Link::Shared))
    })
}

/// Returns the program that uses only the functions of llama.h.
fn sampler() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let apply = "llama_sampler_apply(smpl, &cur_p);\n\n    GGML_ASSERT";
        let in_front = format!("{IN_FRONT} {apply}");
        let token = "const llama_token   sampled_token  =";
        let order =
            format!("if (mutant(\"order\")) {{ llama_get_sampled_probs_ith(ctx, idx); }}\n{token}");
        let answer = "auto token = cur_p.data[cur_p.selected].id;";
        let changes = [
            &FILLS[..],
            &[
                (apply, &in_front),
                (token, &order),
                (
                    answer,
                    "auto token = cur_p.data[mutant(\"answer\") ? 0 : cur_p.selected].id;",
                ),
            ],
        ];
        let folder = empty_folder("c_programs/watched_sampler_library");
        let source = changed("src/llama-sampler.cpp", &changes.concat());
        let library = altered::library(&folder, "llama-sampler.cpp", &source, &[]);
        let program =
            Build::new("watched_sampler", &crate::programs::source("watched.cpp")).flag(&library);
        build(
            program
                .flag(format!("-Wl,-rpath,{}", folder.display()))
                .with_llama_h(),
        )
    })
}

fn programs() -> [(&'static Path, &'static str); 2] {
    [
        (common(), "common_sampler_sample"),
        (sampler(), "llama_sampler_sample"),
    ]
}

/// Runs one chain for `n_tokens` tokens.
fn said(run: Run<'_>, mutant: &str, n_tokens: usize) -> Said {
    let run = run.env("MUTANT", mutant).env("LLAMA_SIEVE_VERBOSE", 1);
    run.arg(model()).arg(1).arg(n_tokens).said()
}

/// Returns how often the host has filled an array with all candidates.
fn fills(said: &Said) -> usize {
    let told = said
        .err
        .lines()
        .find_map(|line| line.strip_prefix("host: filled in "));
    let times = told.and_then(|rest| rest.strip_suffix(" times"));
    times.expect("it tells").parse().expect("a number")
}

/// Returns the number of lines that report the end of sampling in the host's place.
fn ends(said: &Said) -> usize {
    let warnings = warnings(said).into_iter();
    warnings
        .filter(|line| line.contains("straight from the logits any more"))
        .count()
}

fn verify(program: &Path) -> Run<'_> {
    preloaded(program).env("LLAMA_SIEVE_PRELOAD", "verify")
}

/// The host fills an array for the first token, and for one in 256 others, which is compared.
#[test]
fn a_host_of_an_unknown_build_is_watched_now_and_then() {
    for (program, name) in programs() {
        let alone = said(Run::of(program), "", 600);
        assert_eq!(fills(&alone), 600);
        let ours = said(preloaded(program), "", 600);
        assert_eq!(ours.out, alone.out, "{name}");
        assert_eq!(made(&ours).get(&format!("{name}: ours")), Some(&1));
        assert_eq!(fills(&ours), 1 + 599 / 256, "{name}");
        assert_eq!(ends(&ours), 0, "{name}: {}", ours.err);
        // For every token.
        let compared = said(verify(program), "", 600);
        assert_eq!(
            (fills(&compared), &compared.out),
            (600, &alone.out),
            "{name}"
        );
        assert_eq!(ends(&compared), 0, "{name}: {}", compared.err);
        assert_eq!(made(&compared).get(&format!("{name}: ours")), None);
    }
}

/// Without LLAMA_SIEVE_VERBOSE the difference is not reported, since the library has sampled
/// nothing.
#[test]
fn a_host_that_samples_otherwise_does_so() {
    for (program, name) in programs() {
        for (mutant, reason) in AT_ONCE {
            let alone = said(Run::of(program), mutant, 50);
            let ours = said(preloaded(program), mutant, 50);
            assert_eq!(ours.out, alone.out, "{name}, {mutant}");
            assert_eq!(fills(&ours), 50, "{name}, {mutant}");
            assert_eq!(ends(&ours), 0, "{name}, {mutant}: {}", ours.err);
            let made = made(&ours);
            assert_eq!(made.get(&format!("{name}: ours")), None, "{name}, {mutant}");
            // Something that precedes only some chains is not reported as a surprise.
            let is_of_chain = (mutant, name) == ("front", "common_sampler_sample");
            let told = made.get(&format!("{name}: llama.cpp's own: it {reason}"));
            assert_eq!(told.is_some(), !is_of_chain, "{name}, {mutant}: {made:?}");

            let compared = said(verify(program), mutant, 50);
            assert_eq!(compared.out, alone.out, "{name}, {mutant}");
            assert_eq!(
                ends(&compared),
                usize::from(!is_of_chain),
                "{name}, {mutant}"
            );
        }
    }
}

/// The change does not show while the host is watched. The call in which it shows is discarded, and
/// the host is called again.
#[test]
fn a_host_that_takes_answers_otherwise_is_given_none() {
    let name = "common_sampler_sample";
    let alone = said(Run::of(common()), "", 50);
    for (mutant, reason) in OF_BACKENDS {
        assert_eq!(said(Run::of(common()), mutant, 50), alone, "nobody knows");
        let ours = said(preloaded(common()), mutant, 50);
        assert_eq!(ours.out, alone.out, "{mutant}");
        assert_eq!(
            (fills(&ours), ends(&ours)),
            (50, 0),
            "{mutant}: {}",
            ours.err
        );
        let made = made(&ours);
        let told = made.get(&format!("{name}: llama.cpp's own: it {reason}"));
        assert_eq!(told, Some(&1), "{mutant}: {made:?}");
        assert_eq!(made.get(&format!("{name}: ours")), None, "{mutant}");
    }
}

/// Runs one chain for `n_tokens` tokens with a reasoning budget.
fn with_budget(run: Run<'_>, mutant: &str, n_tokens: usize, budget: usize) -> Said {
    let run = run.env("MUTANT", mutant).env("LLAMA_SIEVE_VERBOSE", 1);
    run.arg(model()).arg(1).arg(n_tokens).arg(budget).said()
}

/// Includes the case that the budget forces the end of the reasoning, even at once.
#[test]
fn behind_a_budget_as_many_tokens_are_ours_as_without_one() {
    let after = "common_sampler_sample after a budget: ours";
    for budget in [1000, 4, 1, 0] {
        let alone = with_budget(Run::of(common()), "", 600, budget);
        let forced = alone.out.matches("\n400 ").count();
        assert_eq!(forced > 0, budget < 1000, "{forced} with {budget}");
        let ours = with_budget(preloaded(common()), "", 600, budget);
        assert_eq!(ours.out, alone.out, "{budget}");
        assert_eq!(made(&ours).get(after), Some(&1), "{budget}");
        assert_eq!((fills(&ours), ends(&ours)), (1 + 599 / 256, 0), "{budget}");
        let compared = with_budget(verify(common()), "", 600, budget);
        assert_eq!((fills(&compared), ends(&compared)), (600, 0), "{budget}");
        assert_eq!(compared.out, alone.out, "{budget}");
    }
}

/// A sampler with another name, or one that changes candidates all the time, is not recognized as a
/// budget, and llama.cpp samples everything. Once a budget is used up, its sampler may do anything
/// that shows on two candidates.
#[test]
fn budgets_that_do_otherwise_are_followed_or_left_alone() {
    for (mutant, is_budget) in [
        ("halves", true),
        ("bans", true),
        ("always", false),
        ("renamed", false),
    ] {
        let alone = with_budget(Run::of(common()), mutant, 600, 4);
        let ours = with_budget(preloaded(common()), mutant, 600, 4);
        assert_eq!(ours.out, alone.out, "{mutant}");
        let fills_of_ours = if is_budget { 1 + 599 / 256 } else { 600 };
        assert_eq!(
            (fills(&ours), ends(&ours)),
            (fills_of_ours, 0),
            "{mutant}: {}",
            ours.err
        );
    }
}

/// A later change is found at the next token that is compared, and llama.cpp's token counts.
#[test]
fn a_host_that_changes_is_found_out() {
    for (program, name) in programs() {
        let alone = said(Run::of(program), "later", 600);
        let ours = said(preloaded(program), "later", 600);
        assert_eq!(ends(&ours), 1, "{name}: {}", ours.err);
        let reason = "own {name} begins with other candidates than the logits";
        assert!(
            ours.err.contains(&reason.replace("{name}", name)),
            "{}",
            ours.err
        );
        // The first token is llama.cpp's, the next 255 are this library's, and the rest are
        // llama.cpp's again.
        assert_eq!(fills(&ours), 600 - 255, "{name}");
        let lines = |said: &Said| said.out.lines().map(String::from).collect::<Vec<_>>();
        let (alone, ours) = (lines(&alone), lines(&ours));
        assert_eq!(ours[0], alone[0], "{name}");
        assert_ne!(ours[1..256], alone[1..256], "{name}: the change shows");
        assert_eq!(ours[256..], alone[256..], "{name}");

        // If all tokens are compared, the change never shows.
        let compared = said(verify(program), "later", 600);
        assert_eq!(compared.out.lines().collect::<Vec<_>>(), alone, "{name}");
        assert_eq!((ends(&compared), fills(&compared)), (1, 600), "{name}");
    }
}

/// A change is also found if it shows in the next chain.
#[test]
fn a_host_that_changes_is_found_out_by_the_next_chain() {
    for (program, name) in programs() {
        let run = preloaded(program).env("MUTANT", "later");
        let said = run.arg(model()).arg(3).arg(20).said();
        assert_eq!(ends(&said), 1, "{name}: {}", said.err);
        assert_eq!(fills(&said), 1 + 20 + 20, "{name}");
    }
}
