//! Tests the preload library under hosts whose constructors have other argument lists: llama.cpp's
//! own source, changed, and a program that calls it with the same lists. Nothing reveals their
//! build numbers.

use std::fmt::Write;
use std::path::PathBuf;

use crate::altered;
use crate::preloaded::{made, preloaded, warnings};
use crate::programs::{Run, Said, build, model, source};
use crate::toolchain::{Build, empty_folder};

/// A parameter: its type, its name, and two expressions in terms of today's arguments. The program
/// passes the first, and the host passes the second when it clones a sampler.
type Parameter = [&'static str; 4];

const PARAMETERS: [Parameter; 19] = [
    ["int32_t", "n_vocab", "n_vocab", "n_vocab"],
    ["int32_t", "penalty_last_n", "last_n", "last_n"],
    ["float", "penalty_repeat", "repeat", "repeat"],
    ["float", "penalty_freq", "freq", "freq"],
    ["float", "penalty_present", "present", "present"],
    ["const struct llama_vocab *", "vocab", "vocab", "vocab"],
    ["float", "dry_multiplier", "multiplier", "multiplier"],
    ["float", "dry_base", "base", "base"],
    [
        "int32_t",
        "dry_allowed_length",
        "allowed_length",
        "allowed_length",
    ],
    ["int32_t", "dry_penalty_last_n", "last_n", "last_n"],
    ["const char **", "seq_breakers", "breakers", "breakers"],
    ["size_t", "num_breakers", "n_breakers", "n_breakers"],
    ["int32_t", "n_logit_bias", "n", "n"],
    ["const llama_logit_bias *", "logit_bias", "bias", "bias"],
    // The size of the context, and a window in which -1 means the whole context.
    ["int32_t", "context_size", "last_n == 32 ? 32 : 512", "0"],
    [
        "int32_t",
        "last_n_or_all",
        "last_n == 32 ? -1 : last_n",
        "last_n",
    ],
    // Parameters that no build has had.
    ["[[maybe_unused]] int32_t", "leading", "7", "0"],
    ["float", "more", "0.25f", "0.0f"],
    ["[[maybe_unused]] const char *", "extra", "extra", "nullptr"],
];

/// A constructor: the names of its parameters, and what it does first.
type List = (&'static str, &'static str);

/// Today's list of penalties.
const PENALTIES: List = (
    "n_vocab penalty_last_n penalty_repeat penalty_freq penalty_present",
    "",
);
const DRY: List = (
    "vocab dry_multiplier dry_base dry_allowed_length dry_penalty_last_n seq_breakers num_breakers",
    "",
);
const LOGIT_BIAS: List = ("n_vocab n_logit_bias logit_bias", "");

/// Returns the lists of the host named `name`.
fn lists(name: &str) -> [List; 3] {
    match name {
        "today" => [PENALTIES, DRY, LOGIT_BIAS],
        "old" => [
            (
                "penalty_last_n penalty_repeat penalty_freq penalty_present",
                "const int32_t n_vocab = 0;",
            ),
            (
                "vocab context_size dry_multiplier dry_base dry_allowed_length last_n_or_all \
                 seq_breakers num_breakers",
                "int32_t dry_penalty_last_n = last_n_or_all == -1 ? context_size : last_n_or_all;",
            ),
            LOGIT_BIAS,
        ],
        "leading integer" => [
            (
                "leading n_vocab penalty_last_n penalty_repeat penalty_freq penalty_present",
                "",
            ),
            (
                "leading vocab dry_multiplier dry_base dry_allowed_length dry_penalty_last_n \
                 seq_breakers num_breakers",
                "",
            ),
            ("leading n_vocab n_logit_bias logit_bias", ""),
        ],
        "trailing float" => [
            (
                "n_vocab penalty_last_n penalty_repeat penalty_freq penalty_present more",
                "penalty_present += more;",
            ),
            (
                "vocab dry_multiplier dry_base dry_allowed_length dry_penalty_last_n seq_breakers \
                 num_breakers more",
                "dry_multiplier += more;",
            ),
            (
                "n_vocab n_logit_bias logit_bias more",
                "if (more > 0.0f) { n_logit_bias -= 1; }",
            ),
        ],
        "pointer in the middle" => [
            (
                "n_vocab extra penalty_last_n penalty_repeat penalty_freq penalty_present",
                "",
            ),
            (
                "vocab dry_multiplier dry_base dry_allowed_length dry_penalty_last_n extra \
                 seq_breakers num_breakers",
                "",
            ),
            ("n_vocab extra n_logit_bias logit_bias", ""),
        ],
        "exchanged" => [
            (
                "n_vocab penalty_last_n penalty_repeat penalty_present penalty_freq",
                "",
            ),
            (
                "vocab dry_base dry_multiplier dry_penalty_last_n dry_allowed_length seq_breakers \
                 num_breakers",
                "",
            ),
            ("n_logit_bias n_vocab logit_bias", ""),
        ],
        "pointers exchanged" => [
            (
                "penalty_last_n n_vocab penalty_repeat penalty_freq penalty_present",
                "",
            ),
            (
                "seq_breakers dry_allowed_length dry_penalty_last_n vocab dry_multiplier dry_base \
                 num_breakers",
                "",
            ),
            ("logit_bias n_logit_bias n_vocab", ""),
        ],
        "one fewer" => [
            (
                "n_vocab penalty_last_n penalty_repeat penalty_freq",
                "const float penalty_present = 0.3f;",
            ),
            (
                "vocab dry_multiplier dry_base dry_allowed_length seq_breakers num_breakers",
                "int32_t dry_penalty_last_n = 64;",
            ),
            ("n_logit_bias logit_bias", "const int32_t n_vocab = 0;"),
        ],
        _ => unreachable!("no host is named {name}"),
    }
}

/// Returns the result of `said` for each parameter of a list, separated by commas.
fn of_each(names: &str, said: impl Fn(&Parameter) -> String) -> String {
    let of = |name| PARAMETERS.iter().find(|p| p[1] == name).map(&said);
    let of_each = names.split(' ').map(|name| of(name).expect("a parameter"));
    of_each.collect::<Vec<_>>().join(", ")
}

/// Returns the declaration of a list.
fn declared(names: &str) -> String {
    of_each(names, |[kind, name, ..]| format!("{kind} {name}"))
}

/// Returns the header that declares these lists to host and program.
fn header(lists: &[List; 3]) -> String {
    let mut text = "#include \"llama.h\"\n".to_owned();
    let today = [PENALTIES, DRY, LOGIT_BIAS];
    for ((name, today), list) in ["penalties", "dry", "logit_bias"]
        .iter()
        .zip(today)
        .zip(lists)
    {
        let upper = name.to_uppercase();
        let arguments = of_each(today.0, |p| p[2].to_owned());
        let [list, call, clone] = [
            declared(list.0),
            of_each(list.0, |p| p[2].to_owned()),
            of_each(list.0, |p| p[3].to_owned()),
        ];
        let _ = write!(
            text,
            "extern \"C\" llama_sampler * mutant_{name}({list})
                 __asm__(\"llama_sampler_init_{name}\");
             #define {upper}_CALL({arguments}) {call}
             #define {upper}_CLONE({arguments}) {clone}\n"
        );
    }
    text
}

/// Returns the source of llama.cpp's samplers with these lists.
fn samplers(&[penalties, dry, logit_bias]: &[List; 3]) -> String {
    let mut source = altered::original("src/llama-sampler.cpp");
    for (name, clones, (list, body)) in [
        (
            "penalties",
            "auto * result = llama_sampler_init_penalties(",
            penalties,
        ),
        ("dry", "auto * result = llama_sampler_init_dry(", dry),
        (
            "logit_bias",
            "return llama_sampler_init_logit_bias(",
            logit_bias,
        ),
    ] {
        // The definition of the constructor.
        let start = format!("struct llama_sampler * llama_sampler_init_{name}(");
        let at = source.find(&start).expect("it is defined");
        let end = at + source[at..].find('{').expect("it has a body") + 1;
        let list = declared(list);
        let definition = format!("struct llama_sampler * mutant_{name}({list}) {{ {body}");
        source.replace_range(at..end, &definition);
        // The calls of the constructor.
        let mut found = 0;
        while let Some(at) = source.find(clones) {
            let open = at + clones.len();
            let close = open + source[open..].find(");").expect("the call ends");
            let arguments = source[open..close].to_owned();
            let before = clones
                .split("llama_sampler_init")
                .next()
                .unwrap_or_default();
            let upper = name.to_uppercase();
            let call = format!("{before}mutant_{name}({upper}_CLONE({arguments})");
            source.replace_range(at..close, &call);
            found += 1;
        }
        assert!(found > 0, "{clones}");
    }
    format!("#include \"lists.h\"\n{source}")
}

/// Builds a program and its host.
fn program(name: &str) -> PathBuf {
    let lists = lists(name);
    let name = format!("other_lists_{}", name.replace(' ', "_"));
    let folder = empty_folder(&format!("c_programs/{name}_library"));
    std::fs::write(folder.join("lists.h"), header(&lists)).expect("a writable folder");
    let here = folder.display().to_string();
    let include = ["-I", &here];
    let library = altered::library(&folder, "llama-sampler.cpp", &samplers(&lists), &include);
    let program = Build::new(&name, &source("other_lists.cpp")).flag(&library);
    build(
        program
            .flag(format!("-Wl,-rpath,{here}"))
            .flag("-I")
            .flag(&here)
            .flag("-pthread")
            .with_llama_h(),
    )
}

fn said(run: Run<'_>, settings: &[usize]) -> Said {
    let run = run.env("LLAMA_SIEVE_VERBOSE", 1).arg(model());
    let run = settings.iter().fold(run, |run, setting| run.arg(setting));
    run.said()
}

/// Orders of the settings: each alone, and all of them in one process, forwards, backwards, and
/// from the middle.
const ORDERS: [&[usize]; 10] = [
    &[0],
    &[1],
    &[2],
    &[3],
    &[4],
    &[5],
    &[6],
    &[0, 1, 2, 3, 4, 5, 6, 0, 2],
    &[6, 5, 4, 3, 2, 1, 0, 6],
    &[4, 0, 0, 3, 6, 2, 1, 5],
];

/// Runs the host named `name` in each of the orders, and with all settings at once, in threads.
/// Checks that each run prints the same as without the preload library. Returns what the runs with
/// it have printed.
fn runs_as_alone(name: &str) -> Vec<Said> {
    let program = program(name);
    let in_turn = ORDERS.map(|order| {
        let alone = said(Run::of(&program), order);
        assert_eq!(alone.out.lines().count(), order.len(), "{name}");
        let ours = said(preloaded(&program), order);
        assert_eq!(ours.out, alone.out, "{name}, {order:?}: {}", ours.err);
        ours
    });
    let mut all = Vec::from(in_turn);
    for _ in 0..3 {
        let order = ORDERS[7];
        let alone = said(Run::of(&program), order);
        let ours = said(preloaded(&program).env("IN_THREADS", 1), order);
        assert_eq!(ours.out, alone.out, "{name}, at once: {}", ours.err);
        all.push(ours);
    }
    all
}

/// Checks that each of the three constructors is replaced, or is llama.cpp's own and switched off,
/// although the build is unknown.
fn is_ours(name: &str) {
    let kinds = ["penalties", "dry", "logit-bias"];
    for said in runs_as_alone(name) {
        assert_eq!(warnings(&said), Vec::<&str>::new(), "{name}");
        for key in made(&said).keys() {
            let kind = kinds.iter().find(|kind| key.starts_with(**kind));
            let of_kind = kind.is_some();
            let off = "llama.cpp's own: switched off";
            let shown = "llama.cpp's own: its arguments do not show which list it has";
            let is_well = key.ends_with(": ours") || key.ends_with(off);
            // In a window of one token DRY finds no repetition.
            let is_unseen = key.starts_with("dry") && key.ends_with(shown);
            assert!(!of_kind || is_well || is_unseen, "{name}: {key}");
        }
    }
}

#[test]
fn both_lists_that_there_have_been_are_found_out() {
    is_ours("today");
    is_ours("old");
}

/// Checks that `kinds` stay the host's own as soon as a call shows that their argument lists have
/// changed, and that this is reported. For other kinds the report may depend on the contents of
/// registers and memory that the call does not use.
fn is_kept(name: &str, kinds: &[&str]) {
    let all = runs_as_alone(name);
    // In the first run with all settings everything shows.
    let said = &all[7];
    for kind in kinds {
        let line = format!("own {kind} is used: its calls have none of the argument lists");
        let told = warnings(said).iter().filter(|w| w.contains(&line)).count();
        assert_eq!(told, 1, "{name}, {kind}: {}", said.err);
    }
}

#[test]
fn a_leading_integer() {
    is_kept("leading integer", &["penalties", "logit-bias"]);
}

#[test]
fn a_trailing_float() {
    is_kept("trailing float", &["penalties", "dry", "logit-bias"]);
}

#[test]
fn a_pointer_in_the_middle() {
    is_kept("pointer in the middle", &["penalties", "dry", "logit-bias"]);
}

#[test]
fn arguments_exchanged() {
    is_kept("exchanged", &["penalties", "dry", "logit-bias"]);
}

#[test]
fn pointers_exchanged() {
    // These penalties have the older list with one more argument, which never shows.
    is_kept("pointers exchanged", &["logit-bias"]);
}

#[test]
fn an_argument_fewer() {
    is_kept("one fewer", &["penalties"]);
}
