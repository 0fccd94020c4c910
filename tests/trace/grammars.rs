//! Tests the record of a grammar in a trace: what it expected, what it forced, and where it waited
//! for its trigger. If texts are left out, so are the expected and the forced ones.

use llama_sieve::ffi::chain::llama_sieve_chain_sample;
use llama_sieve::ffi::grammar::between::llama_sieve_grammar_forced;
use llama_sieve::ffi::grammar::lazy::llama_sieve_init_grammar_lazy;
use llama_sieve::ffi::grammar::llama_sieve_init_grammar;
use llama_sieve::ffi::grammar::schema::{LLAMA_SIEVE_JSON_COMPACT, llama_sieve_init_json_schema};
use llama_sieve::ffi::host::llama_h::{llama_logit_bias, llama_sampler};
use llama_sieve::ffi::samplers::*;
use llama_sieve::ffi::sieve::*;
use serde_json::Value;
use vendor_llama_cpp::{Context, Model};

use crate::record::{Lines, tokens};
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

/// Returns the token whose text is `text`.
fn token_of(model: &Model, text: &[u8]) -> i32 {
    let mut all = 0..model.n_vocab() as i32;
    let found = all.find(|&token| model.piece(token) == text);
    found.expect("the vocabulary has it")
}

/// Samples and accepts tokens from logits that are largest for the wanted ones.
fn sample(grammar: *mut llama_sampler, model: &Model, wanted: &[i32]) {
    let chain = HostSampler::chain(vec![
        HostSampler::new(grammar),
        HostSampler::new(llama_sieve_init_greedy()),
    ]);
    for &wanted in wanted {
        let mut logits = vec![0.0; model.n_vocab()];
        logits[wanted as usize] = 9.0;
        assert_eq!(chain.sample_logits(&logits), wanted);
        chain.accept(wanted);
    }
}

/// Returns the lines of the tokens that are recorded while `run` runs.
fn recorded_tokens(options: &str, run: impl FnOnce()) -> Vec<Value> {
    let lines = Lines::begin(options);
    run();
    let lines = lines.end();
    tokens(&lines).into_iter().cloned().collect()
}

/// Returns the first stages of the tokens that are recorded while `run` runs.
fn recorded(options: &str, run: impl FnOnce()) -> Vec<Value> {
    let lines = recorded_tokens(options, run);
    lines.iter().map(|line| line["stages"][0].clone()).collect()
}

/// Returns the bytes that must follow, from the function that hosts call.
fn forced(grammar: *const llama_sampler) -> Vec<u8> {
    let mut bytes = vec![0_u8; 1000];
    // SAFETY: the grammar lives, and there is that much room.
    let n = unsafe { llama_sieve_grammar_forced(grammar, bytes.as_mut_ptr().cast(), bytes.len()) };
    bytes.truncate(n);
    bytes
}

/// Returns the bytes of a token or a span of a line.
fn bytes_of(piece: &Value) -> Vec<u8> {
    match piece["text"].as_str() {
        Some(text) => text.into(),
        None => serde_json::from_value(piece["bytes"].clone()).expect("bytes"),
    }
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
    // The expectation is a part of the text.
    let stages = recorded("text=off", || sample(grammar(&model), &model, &text));
    assert!(stages.iter().all(|stage| stage.get("expected").is_none()));
}

/// Samples and accepts tokens like [`sample`], by a sieve with the grammar in a slot.
fn sample_by_sieve(grammar: &HostSampler, model: &Model, wanted: &[i32]) {
    let order = LLAMA_SIEVE_STAGE_SAMPLER;
    let mut stages = llama_sieve_default_stages();
    (stages.stages, stages.n_stages) = (&raw const order, 1);
    let params = llama_sieve_default_params();
    // SAFETY: parameters and stages are whole, sieve and grammar live, and there are that many
    // logits.
    unsafe {
        let sieve = llama_sieve_new(&raw const params);
        assert_eq!(
            llama_sieve_set_sampler(sieve, 0, grammar.as_ptr().cast()),
            0
        );
        assert_eq!(llama_sieve_set_stages(sieve, &raw const stages), 0);
        for &wanted in wanted {
            let mut logits = vec![0.0_f32; model.n_vocab()];
            logits[wanted as usize] = 90.0;
            let n_vocab = model.n_vocab() as i32;
            assert_eq!(llama_sieve_sample(sieve, logits.as_ptr(), n_vocab), wanted);
            llama_sieve_accept(sieve, wanted);
        }
        llama_sieve_free(sieve);
    }
}

#[test]
fn a_grammar_in_a_slot_is_recorded_as_in_a_chain() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let [x, y, e] = [b"x", b"y", b"e"].map(|text| token_of(&model, text));
    for (make, text) in [
        (&grammar as &dyn Fn(&Model) -> _, &[y, e][..]),
        (&|model: &Model| lazy(model, y), &[x, y, e]),
    ] {
        let in_chain = recorded_tokens("", || sample(make(&model), &model, text));
        let grammar = HostSampler::new(make(&model));
        let in_slot = recorded_tokens("", || sample_by_sieve(&grammar, &model, text));
        assert_eq!(in_slot.len(), in_chain.len());
        for (slot, chain) in in_slot.iter().zip(&in_chain) {
            assert_eq!(slot["forced"], chain["forced"]);
            assert_eq!(slot["grammar"], chain["grammar"]);
            let [slot, chain] = [slot, chain].map(|line| &line["stages"][0]);
            assert_eq!(slot["expected"], chain["expected"]);
            assert_eq!(slot["waits"], chain["waits"]);
        }
        let last = &in_slot[text.len() - 1];
        assert_eq!(last["forced"]["text"], "es");
        assert_eq!(last["stages"][0]["expected"], "'e'");
    }
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

const SCHEMA: &std::ffi::CStr = cr#"{
    "type": "object",
    "properties": {
        "name": { "enum": ["Abraham", "Abimelech", "\u00c4gypten"] },
        "a property with a name that is longer than what a line of the record tells of it": {
            "const": 17
        },
        "wise": { "type": "boolean" }
    },
    "required": [
        "name", "a property with a name that is longer than what a line of the record tells of it",
        "wise"
    ],
    "additionalProperties": false
}"#;

/// Returns a bias that makes `token` likely. It is used with half a character, after which few
/// tokens are allowed.
fn likely(model: &Model, token: i32) -> HostSampler {
    let bias = llama_logit_bias { token, bias: 9.0 };
    let n_vocab = model.n_vocab() as i32;
    // SAFETY: one bias is there.
    HostSampler::new(unsafe { llama_sieve_init_logit_bias(n_vocab, 1, &raw const bias) })
}

/// Samples a value of the schema from the model, and returns its first tokens, each with the bytes
/// that the grammar forced before it.
fn values_of_schema(model: &Model, seed: u32) -> Vec<(i32, Vec<u8>)> {
    let vocab = model.vocab().cast();
    // With white space there are more choices.
    let flags = LLAMA_SIEVE_JSON_COMPACT * (seed % 2);
    // SAFETY: the model lives, and the schema is a string.
    let grammar = unsafe { llama_sieve_init_json_schema(vocab, SCHEMA.as_ptr(), flags) };
    assert!(!grammar.is_null());
    let chain = HostSampler::chain(vec![
        HostSampler::new(grammar),
        likely(model, token_of(model, b"\xC3")),
        HostSampler::new(llama_sieve_init_temp(2.0)),
        HostSampler::new(llama_sieve_init_dist(seed)),
    ]);
    let prompt = model.tokenize("And the LORD said", true);
    let mut context = Context::new(model, 200, 1).expect("a context");
    context.decode(&prompt).expect("it decodes");
    let mut all = Vec::new();
    for _ in 0..120 {
        let must = forced(grammar);
        let (sampler, ctx) = (chain.as_ptr().cast(), context.as_ptr().cast());
        // SAFETY: both live, and the context has logits.
        let token = unsafe { llama_sieve_chain_sample(sampler, ctx, -1) };
        all.push((token, must));
        if model.is_eog(token) {
            return all;
        }
        context.decode(&[token]).expect("it decodes");
    }
    all
}

#[test]
fn the_only_continuation_of_a_grammar_is_told() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let (mut whole, mut half, mut cut) = (0, 0, 0);
    for seed in 0..6 {
        let expected = values_of_schema(&model, seed);
        let mut again = Vec::new();
        let lines = recorded_tokens("n=2", || again = values_of_schema(&model, seed));
        assert_eq!(again, expected, "as without a record");
        assert_eq!(lines.len(), expected.len());
        for (line, (token, must)) in lines.iter().zip(&expected) {
            let told = &line["forced"];
            if must.is_empty() {
                assert!(told.is_null(), "{line}");
                continue;
            }
            // The bytes at the cut are ASCII, so that no character is cut.
            let first = &must[..must.len().min(64)];
            assert_eq!(bytes_of(told), first, "{line}");
            assert_eq!(told["n"], first.len());
            let piece = model.piece(*token);
            assert!(
                first.starts_with(&piece) || piece.starts_with(first),
                "{line}"
            );
            whole += usize::from(first.starts_with(&piece));
            half += usize::from(told.get("bytes").is_some());
            cut += usize::from(first.len() < must.len());
        }
        let lines = recorded_tokens("n=2,text=off", || {
            values_of_schema(&model, seed);
        });
        assert!(lines.iter().all(|line| line.get("forced").is_none()));
    }
    assert!(
        whole > 100 && half > 0 && cut > 10,
        "{whole}, {half}, {cut}"
    );
}

#[test]
fn a_grammar_that_waits_forces_nothing() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let [x, y, e] = [b"x", b"y", b"e"].map(|text| token_of(&model, text));
    let lines = recorded_tokens("", || sample(lazy(&model, y), &model, &[x, y, e]));
    let told: Vec<&Value> = lines.iter().map(|line| &line["forced"]["text"]).collect();
    assert_eq!(told, [&Value::Null, &Value::Null, &"es".into()]);
}
