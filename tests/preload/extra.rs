//! Tests members that an environment variable adds to every chain of a program.

use crate::preloaded::preloaded;
use crate::programs::{Run, Said, generate, model};
use crate::toolchain::empty_folder;

fn run(program: Run<'_>) -> Said {
    program.arg(model()).arg(1).arg(2).said()
}

/// Returns the texts that the program has generated.
fn texts(said: &Said) -> Vec<&str> {
    let lines = said.out.lines();
    lines.filter_map(|line| line.strip_prefix("  ")).collect()
}

/// Returns the names of the members of each chain that is reported.
fn chains(said: &Said) -> Vec<Vec<&str>> {
    let heads = said.out.lines().filter(|line| line.contains(", seed 1 ("));
    heads
        .map(|line| {
            let names = line.split_once("):").expect("members").1;
            let names = names.split(' ').filter_map(|word| word.split_once('['));
            names.map(|(name, _)| name).collect()
        })
        .collect()
}

#[test]
fn every_chain_has_bans_first_and_the_rest_in_front_of_its_last_member() {
    const BANNED: [&str; 4] = [" the ", " of", "and ", "LORD"];
    let file = empty_folder("extra").join("texts");
    std::fs::write(&file, BANNED.join("\n")).expect("it can be written");
    let extra = format!("ban_strings={};loop_breaker=20;top_h=0.9", file.display());
    let usual = run(preloaded(generate()));
    let program = preloaded(generate()).env("LLAMA_SIEVE_EXTRA", extra);
    let ours = run(program.env("LLAMA_SIEVE_VERBOSE", 1));
    assert_eq!(texts(&ours).len(), 40, "{}", ours.out);
    for text in texts(&ours) {
        assert!(!BANNED.iter().any(|banned| text.contains(banned)), "{text}");
    }
    let with = texts(&usual)
        .into_iter()
        .filter(|text| BANNED.iter().any(|banned| text.contains(banned)));
    assert!(with.count() > 20, "{}", usual.out);
    let (before, after) = (chains(&usual), chains(&ours));
    assert_eq!(before.len(), after.len());
    assert!(before.len() > 15);
    for (before, after) in before.iter().zip(&after) {
        let mut expected = before.clone();
        let last = expected.len() - 1;
        expected.splice(last..last, ["loop-breaker", "top-h"]);
        expected.insert(0, "ban-strings");
        assert_eq!(after, &expected);
    }
    // Reported at load, and once for each chain, although each chain is copied halfway.
    assert!(
        ours.err
            .contains("every chain gets ban-strings, loop-breaker, top-h")
    );
    let n_chains = 2 * before.len();
    let added = ours.err.matches("loop-breaker(): added to a chain").count();
    assert_eq!(added, n_chains, "{}", ours.err);
    assert!(!usual.err.contains("LLAMA_SIEVE_EXTRA"), "{}", usual.err);
}

/// Tests every member that the documentation and messages name, with the name that its sampler
/// reports.
#[test]
fn each_member_can_be_named() {
    let file = empty_folder("extra-all").join("texts");
    std::fs::write(&file, "lord").expect("it can be written");
    let extra = format!(
        "ban_strings_any_case={};top_a=0.1;epsilon_cutoff=1e-5;eta_cutoff=1e-5;p_less=normalised;\
         top_h=0.9;min_k;quadratic=0.1,1.5;loop-breaker",
        file.display()
    );
    let usual = run(preloaded(generate()));
    let ours = run(preloaded(generate()).env("LLAMA_SIEVE_EXTRA", extra));
    let middle = [
        "top-a",
        "epsilon-cutoff",
        "eta-cutoff",
        "p-less",
        "top-h",
        "min-k",
        "quadratic",
        "loop-breaker",
    ];
    for (before, after) in chains(&usual).iter().zip(&chains(&ours)) {
        let mut expected = before.clone();
        let last = expected.len() - 1;
        expected.splice(last..last, middle);
        expected.insert(0, "ban-strings");
        assert_eq!(after, &expected);
    }
    assert!(!chains(&ours).is_empty(), "{}", ours.err);
    for text in texts(&ours) {
        assert!(!text.to_lowercase().contains("lord"), "{text}");
    }
}

#[test]
fn what_is_wrong_is_told_and_left_out() {
    let usual = run(preloaded(generate()));
    let wrong = preloaded(generate()).env("LLAMA_SIEVE_EXTRA", "loop_braker;ban_strings=/nowhere");
    let wrong = run(wrong);
    assert_eq!(wrong.out, usual.out);
    assert!(
        wrong
            .err
            .contains("\"loop_braker\": known are loop_breaker"),
        "{}",
        wrong.err
    );
    assert!(
        wrong.err.contains("the file cannot be read"),
        "{}",
        wrong.err
    );
    // If the samplers are the host's own, so are the chains.
    let off = preloaded(generate()).env("LLAMA_SIEVE_EXTRA", "top_h=0.1");
    let off = run(off.env("LLAMA_SIEVE_PRELOAD", "off"));
    assert_eq!(off.out, usual.out);
}
