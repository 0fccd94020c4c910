//! The costs of the token trie, compared with the built-in grammar sampler on the same choices.
//! Checks that the grammar allows the tokens that the trie allows.

use std::ffi::CString;
use std::hint::black_box;

use llama_sieve::ffi::trie::*;
use vendor_llama_cpp::{Model, test_model};

use crate::Options;
use crate::grammar::theirs;
use crate::measure::{self, floor, median};
use crate::report::Measurement;
use crate::support::arrays::{Rng, peaked};
use crate::support::span::{json, one};
use crate::support::{Array, HostSampler};

const N_VOCAB: usize = 128_256;
const ROUNDS: usize = 41;

/// Returns `n` different names of the kind that a program might have.
fn names(n: usize) -> Vec<String> {
    let verbs = [
        "get", "set", "create", "delete", "list", "update", "send", "open", "close", "find",
    ];
    let nouns = [
        "user", "message", "file", "room", "task", "event", "token", "account", "order", "page",
    ];
    let name = |i: usize| format!("{}_{}_{}", verbs[i % 10], nouns[i / 10 % 10], i / 100);
    (0..n).map(name).collect()
}

fn payload(model: &Model, names: &[String]) -> String {
    let leaf = |name: &String| (name.clone(), model.tokenize(name, false));
    json(&one(names.iter().map(leaf).collect()))
}

/// Returns the median of the nanoseconds of `run` on the values that `prepare` makes.
fn time<T>(mut prepare: impl FnMut() -> T, mut run: impl FnMut(&mut T)) -> f64 {
    let times = (0..ROUNDS).map(|_| measure::time(&mut prepare, &mut run) * 1e3);
    median(times.collect())
}

fn trie_of(model: &Model, json: &str, mode: i32) -> HostSampler {
    let json = CString::new(json).expect("no NUL");
    // SAFETY: the vocabulary lives, the payload is a C string.
    HostSampler::new(unsafe {
        llama_sampler_init_token_trie(model.vocab().cast(), json.as_ptr(), mode)
    })
}

fn grammar_of(model: &Model, names: &[String]) -> HostSampler {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    theirs(model, &format!("root ::= {}", quoted.join(" | ")))
}

fn allowed(array: &Array) -> Vec<i32> {
    let mut ids = array.allowed();
    ids.sort_unstable();
    ids
}

/// Measures every row.
pub fn run(options: &Options, done: &mut dyn FnMut(Measurement)) {
    let mut row = |name: &str, n: usize, ours: f64, theirs: Option<f64>, floor: Option<f64>| {
        if options.wants(name) {
            done(Measurement {
                part: "trie".into(),
                name: name.into(),
                n,
                shape: String::new(),
                ours_ns: ours,
                theirs_ns: theirs,
                floor_ns: floor,
            });
        }
    };
    let model = Model::load(test_model::cached(N_VOCAB, 1)).expect("the model loads");
    let thirty = names(30);
    let json = payload(&model, &thirty);
    let input = peaked(N_VOCAB, &mut Rng(71));
    let grammar = grammar_of(&model, &thirty);
    check(&model, &json, &grammar, &input);

    let floor = floor(&input) * 1e3;
    let theirs = time(|| input.clone(), |array| grammar.apply(array));
    for (what, mode) in [
        ("trie, 30 choices, masking", LLAMA_SIEVE_TRIE_SAMPLED),
        (
            "trie, 30 choices, compact",
            LLAMA_SIEVE_TRIE_SAMPLED | LLAMA_SIEVE_TRIE_COMPACT,
        ),
    ] {
        let trie = trie_of(&model, &json, mode);
        let ours = time(|| input.clone(), |array| trie.apply(array));
        row(what, N_VOCAB, ours, Some(theirs), Some(floor));
    }
    row("trie, accept, 200 children", 0, accept(), None, None);
    let [cached, fresh] = set(&model);
    row("trie, set, 200 names, cached", 0, cached, None, None);
    row("trie, set, 200 names, not cached", 0, fresh, None, None);
}

/// Checks that the grammar allows every token that the trie allows at the beginning. The converse
/// does not hold: a grammar also allows other tokenizations of a value.
fn check(model: &Model, json: &str, grammar: &HostSampler, input: &Array) {
    let (mut ours, mut theirs) = (input.clone(), input.clone());
    trie_of(model, json, LLAMA_SIEVE_TRIE_SAMPLED).apply(&mut ours);
    grammar.apply(&mut theirs);
    let theirs = allowed(&theirs);
    for id in allowed(&ours) {
        assert!(
            theirs.binary_search(&id).is_ok(),
            "the grammar forbids token {id}"
        );
    }
}

/// Returns the nanoseconds of `accept` with 200 children.
fn accept() -> f64 {
    let leaves: Vec<_> = (0..200)
        .map(|i| serde_json::json!({"name": i.to_string(), "tokens": [i * 600, 1, 2]}))
        .collect();
    let json = serde_json::json!({"descriptors": [{"path": "p", "leaves": leaves}]}).to_string();
    let json = CString::new(json).expect("no NUL");
    // SAFETY: NULL is allowed for the vocabulary; the payload is a C string.
    let trie = HostSampler::new(unsafe {
        llama_sampler_init_token_trie(std::ptr::null(), json.as_ptr(), 1)
    });
    let mut rng = Rng(72);
    const BATCH: usize = 1000;
    let both = time(
        || rng.below(200) as i32 * 600,
        |token| {
            for _ in 0..BATCH {
                trie.accept(black_box(*token));
                trie.reset();
            }
        },
    );
    let reset = time(|| (), |()| (0..BATCH).for_each(|_| trie.reset()));
    (both - reset) / BATCH as f64
}

/// Returns the nanoseconds of `set` with 200 names, cached and not cached.
fn set(model: &Model) -> [f64; 2] {
    let json = payload(model, &names(200));
    // SAFETY: the vocabulary lives.
    let slot = HostSampler::new(unsafe { llama_sieve_init_trie_slot(model.vocab().cast()) });
    let set = |json: &str| {
        // SAFETY: the sampler lives, the length is the text's.
        let answer = unsafe {
            llama_sieve_trie_set(slot.as_ptr().cast(), json.as_ptr().cast(), json.len(), 0)
        };
        assert_eq!(answer, 0);
    };
    set(&json);
    let cached = time(|| (), |()| set(&json));
    let mut n = 0;
    let fresh = || {
        n += 1;
        let other = json.replace(r#""path":"p""#, &format!(r#""path":"p{n:04}""#));
        assert_ne!(other, json, "another payload");
        other
    };
    [cached, time(fresh, |json| set(json))]
}
