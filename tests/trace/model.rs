//! Tests the trace of a model's text, sampled straight from a context.

use llama_sieve::ffi::chain::llama_sieve_chain_sample;
use llama_sieve::ffi::samplers::*;
use vendor_llama_cpp::{Context, Model};

use crate::record::{Lines, tokens};
use crate::support::{HostSampler, alone, trained_model};

const TOKENS: usize = 60;

fn chain() -> HostSampler {
    HostSampler::chain(vec![
        HostSampler::new(llama_sieve_init_penalties(0, 64, 1.3, 0.0, 0.0)),
        HostSampler::new(llama_sieve_init_top_k(40)),
        HostSampler::new(llama_sieve_init_min_p(0.05, 1)),
        HostSampler::new(llama_sieve_init_temp(0.8)),
        HostSampler::new(llama_sieve_init_dist(7)),
    ])
}

fn generate(model: &Model) -> Vec<i32> {
    let prompt = model.tokenize("And the LORD said", true);
    let n_ctx = (prompt.len() + TOKENS) as u32;
    let mut context = Context::new(model, n_ctx, 1).expect("a context");
    context.decode(&prompt).expect("it decodes");
    let chain = chain();
    let mut all = Vec::new();
    for _ in 0..TOKENS {
        let (sampler, ctx) = (chain.as_ptr().cast(), context.as_ptr().cast());
        // SAFETY: both live, and the context has logits.
        let token = unsafe { llama_sieve_chain_sample(sampler, ctx, -1) };
        all.push(token);
        context.decode(&[token]).expect("it decodes");
    }
    all
}

#[test]
fn the_texts_of_a_record_are_those_of_the_tokens() {
    let _alone = alone();
    let model = Model::load(trained_model()).expect("the model loads");
    let expected = generate(&model);
    let lines = Lines::begin("n=5");
    let traced = generate(&model);
    let lines = lines.end();
    assert_eq!(traced, expected);
    let found = tokens(&lines);
    assert_eq!(found.len(), TOKENS);
    let mut penalised = 0;
    for (position, (line, &token)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(line["position"], position);
        let pieces = line["top"].as_array().expect("candidates").iter();
        for piece in pieces.chain([&line["token"]]) {
            let id = piece["id"].as_i64().expect("a number") as i32;
            let bytes = model.piece(id);
            match String::from_utf8(bytes.clone()) {
                Ok(text) => assert_eq!(piece["text"], text),
                Err(_) => assert_eq!(piece["bytes"], serde_json::json!(bytes)),
            }
            // The reason for a penalty is the number of times that the token occurs in the window.
            for change in piece["changes"].as_array().into_iter().flatten() {
                let Some(count) = change["count"].as_u64() else {
                    continue;
                };
                let window = &expected[position.saturating_sub(64)..position];
                let occurs = window.iter().filter(|&&other| other == id).count();
                assert_eq!(count, occurs as u64);
                penalised += 1;
            }
        }
        assert_eq!(line["token"]["id"], token);
    }
    assert!(penalised > 20, "{penalised}");
}
