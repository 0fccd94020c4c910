//! The record of a grammar: what it expected, where it waited for its trigger, and neither where
//! texts are left out.

use llama_sieve::ffi::chain::llama_sieve_chain_sample_logits;
use llama_sieve::ffi::grammar::lazy::llama_sieve_init_grammar_lazy;
use llama_sieve::ffi::grammar::llama_sieve_init_grammar;
use llama_sieve::ffi::host::llama_h::llama_sampler;
use llama_sieve::ffi::samplers::*;
use serde_json::Value;
use vendor_llama_cpp::Model;

use crate::record::{Lines, Schema, tokens};
use crate::support::{HostSampler, alone, trained_model};

const GRAMMAR: &std::ffi::CStr = c"root ::= \"yes\" | \"no\" | [0-9] [^a]";

fn grammar(model: &Model) -> *mut llama_sampler {
    let vocab = model.vocab().cast();
    // SAFETY: the model lives, and the texts are strings.
    unsafe { llama_sieve_init_grammar(vocab, GRAMMAR.as_ptr(), c"root".as_ptr()) }
}

fn lazy(model: &Model, trigger: i32) -> *mut llama_sampler {
    let vocab = model.vocab().cast();
    // SAFETY: the model lives, the texts are strings, there are no words and one token.
    unsafe {
        llama_sieve_init_grammar_lazy(
            vocab,
            GRAMMAR.as_ptr(),
            c"root".as_ptr(),
            std::ptr::null_mut(),
            0,
            &raw const trigger,
            1,
        )
    }
}

/// The token of this text.
fn token_of(model: &Model, text: &[u8]) -> i32 {
    let mut all = 0..model.n_vocab() as i32;
    let found = all.find(|&token| model.piece(token) == text);
    found.expect("the vocabulary has it")
}

/// Samples and accepts tokens, of which the wanted ones have the largest logits.
fn sample(grammar: *mut llama_sampler, model: &Model, wanted: &[i32]) {
    let chain = HostSampler::chain(vec![
        HostSampler::new(grammar),
        HostSampler::new(llama_sieve_init_greedy()),
    ]);
    for &wanted in wanted {
        let mut logits = vec![0.0; model.n_vocab()];
        logits[wanted as usize] = 9.0;
        let (smpl, n) = (chain.as_ptr().cast(), logits.len() as i32);
        // SAFETY: the chain lives, and there are that many logits.
        let token = unsafe { llama_sieve_chain_sample_logits(smpl, logits.as_ptr(), n) };
        assert_eq!(token, wanted);
        chain.accept(token);
    }
}

/// The first stages of the tokens that are recorded meanwhile.
fn recorded(options: &str, run: impl FnOnce()) -> Vec<Value> {
    let lines = Lines::begin(options);
    run();
    llama_sieve::trace::stop();
    let lines = lines.take();
    let schema = Schema::new();
    lines.iter().for_each(|line| schema.check(line));
    let stages = tokens(&lines).into_iter().map(|line| &line["stages"][0]);
    stages.cloned().collect()
}

#[test]
fn what_a_grammar_expects_is_told() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let text = [b"y", b"e"].map(|text| token_of(&model, text));
    let stages = recorded("", || sample(grammar(&model), &model, &text));
    let expected: Vec<&str> = stages
        .iter()
        .map(|stage| stage["expected"].as_str().expect("a text"))
        .collect();
    assert_eq!(expected, ["'y', 'n', [0-9]", "'e'"]);
    assert!(stages[0]["after"].as_u64() < stages[0]["before"].as_u64());
    // It is a part of the text.
    let stages = recorded("text=off", || sample(grammar(&model), &model, &text));
    assert!(stages.iter().all(|stage| stage.get("expected").is_none()));
}

#[test]
fn a_grammar_is_told_to_wait_until_its_trigger() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let [x, y, e] = [b"x", b"y", b"e"].map(|text| token_of(&model, text));
    let stages = recorded("", || sample(lazy(&model, y), &model, &[x, y, e]));
    let waits: Vec<&Value> = stages.iter().map(|stage| &stage["waits"]).collect();
    assert_eq!(waits, [&1.into(), &1.into(), &Value::Null]);
    let expected: Vec<&Value> = stages.iter().map(|stage| &stage["expected"]).collect();
    assert_eq!(expected, [&Value::Null, &Value::Null, &"'e'".into()]);
}
