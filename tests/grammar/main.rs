//! Compares grammars with llama.cpp's own: masks, single tokens and refusals must be equal, on
//! random vocabularies and random grammars.

#[path = "../support/mod.rs"]
mod support;

mod anywhere;
mod borders;
mod lazy;
mod left_recursion;
mod pair;
mod random;
mod real;
mod realistic;
mod stacks;
mod triggers;
mod walk;

use support::{fresh_rng, number_from_env};
use vendor_llama_cpp::Model;

/// Silences the log, since each walk ends with a token that is not allowed, which is reported.
fn silence() {
    llama_sieve::log::set_sink(Some(std::sync::Arc::new(|_, _| {})));
}

/// Returns the number of random grammars. LLAMA_SIEVE_TEST_GRAMMARS raises it for a long run.
fn n_grammars(default: usize) -> usize {
    number_from_env("LLAMA_SIEVE_TEST_GRAMMARS", default)
}

#[test]
fn random_grammars_on_random_vocabularies() {
    silence();
    let mut rng = fresh_rng("grammars");
    let (mut read, mut n_steps) = (0, 0);
    let n = n_grammars(600);
    for vocabulary in 0..n.div_ceil(20) {
        let vocabulary = random::vocabulary(&mut rng, &format!("random-{vocabulary}"));
        for _ in 0..20 {
            let text = random::grammar(&mut rng, &vocabulary);
            let walked = walk::walk(&text, &vocabulary, 20, &mut rng);
            read += usize::from(walked.is_some());
            n_steps += walked.unwrap_or(0);
        }
    }
    println!("{n} grammars, {read} can be read, {n_steps} steps");
    assert!(4 * read > n, "only {read} of {n} grammars can be read");
}

#[test]
fn what_is_no_grammar_is_refused_alike() {
    silence();
    let mut rng = fresh_rng("refusals");
    let vocabulary = random::vocabulary(&mut rng, "refusals");
    let mut refused = 0;
    let n = n_grammars(4000);
    for _ in 0..n {
        let text = random::grammar(&mut rng, &vocabulary);
        let text = random::damaged(&text, &mut rng);
        refused += usize::from(!walk::read_alike(&text, &vocabulary));
    }
    assert!(refused > n / 10, "only {refused} of {n} were refused");
}

#[test]
fn realistic_grammars() {
    silence();
    let mut rng = fresh_rng("realistic");
    let vocabulary = realistic::vocabulary(&mut rng);
    for text in realistic::GRAMMARS {
        for _ in 0..3 {
            assert!(
                walk::walk(text.as_bytes(), &vocabulary, 30, &mut rng).is_some(),
                "{text}"
            );
        }
    }
}

/// LLAMA_SIEVE_TEST_VOCABULARIES lists the vocabularies: GGUF files, separated by colons.
#[test]
#[ignore = "hosts/grammar_walks.py runs it, with what it fetches"]
fn grammars_on_real_vocabularies() {
    silence();
    let paths = std::env::var("LLAMA_SIEVE_TEST_VOCABULARIES").expect("vocabularies are named");
    let n = n_grammars(300);
    for path in paths.split(':') {
        let model = Model::load_vocabulary(path).expect("a vocabulary");
        let vocabulary = pair::Vocabulary::new(model);
        let mut rng = fresh_rng(path);
        real::grammars(&vocabulary, n, &mut rng);
    }
}

#[test]
fn borders() {
    silence();
    let vocabulary = realistic::vocabulary(&mut fresh_rng("borders"));
    borders::wrong_arguments(&vocabulary);
    borders::messages_name_the_place(&vocabulary);
    borders::hostile_texts_end(&vocabulary);
    borders::a_second_request_starts_warm(&vocabulary);
    borders::alternatives_with_many_beginnings();
    borders::tokens_without_texts();
}

#[test]
fn lazy_grammars_in_random_streams() {
    silence();
    let mut rng = fresh_rng("streams");
    let (mut compared, mut begun) = (0, 0);
    let n = n_grammars(1200);
    for vocabulary in 0..n.div_ceil(40) {
        let vocabulary = random::vocabulary(&mut rng, &format!("lazy-{vocabulary}"));
        for _ in 0..40 {
            let streams = lazy::random(&vocabulary, &mut rng);
            compared += streams.compared;
            begun += streams.begun;
        }
    }
    println!("{n} grammars, {compared} streams, in {begun} of which one has begun");
    assert!(2 * begun > n, "only {begun} grammars of {n} have begun");
}

#[test]
fn lazy_grammars_for_calls_of_tools() {
    silence();
    let mut rng = fresh_rng("calls");
    let vocabulary = realistic::vocabulary(&mut rng);
    let begun = lazy::realistic(&vocabulary, &mut rng);
    assert!(begun > 20, "only {begun} have begun");
}

#[test]
fn borders_of_lazy_grammars() {
    silence();
    let vocabulary = realistic::vocabulary(&mut fresh_rng("lazy borders"));
    lazy::limits(&vocabulary);
}

#[test]
fn patterns_are_those_of_std_regex() {
    let mut rng = fresh_rng("patterns");
    triggers::every_byte();
    triggers::random_patterns(n_grammars(20_000), &mut rng);
}

/// Runs `body` on a large stack, since `std::regex` recurses once for each character of a text.
fn on_a_large_stack(body: fn()) {
    let thread = std::thread::Builder::new().stack_size(1 << 30);
    let thread = thread.spawn(body).expect("a thread");
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn patterns_in_long_texts() {
    on_a_large_stack(|| {
        let mut rng = fresh_rng("loops");
        triggers::long_texts();
        triggers::random_loops(n_grammars(1000), &mut rng);
    });
}

#[test]
fn patterns_in_growing_texts() {
    let mut rng = fresh_rng("growing");
    triggers::streams(n_grammars(5000), &mut rng);
}

#[test]
fn patterns_have_the_size_of_std_regex() {
    triggers::sizes();
}

#[test]
fn repetitions_go_around_twice_at_one_place() {
    triggers::rounds();
}

#[test]
fn patterns_that_were_made_to_do_harm() {
    triggers::hostile();
}

#[test]
fn one_budget_for_all_patterns() {
    triggers::budgets();
}

#[test]
fn the_deepest_patterns_on_a_small_stack() {
    triggers::deepest();
}
