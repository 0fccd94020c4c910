//! Tests schemas that are written as the text of a grammar, which llama.cpp's own parser must
//! accept, and schemas in the spans of tags: both must allow the same texts as the schema's own
//! grammar.

use std::ffi::CString;

use llama_sieve::grammar::Grammar;
use llama_sieve::grammar::parser::Repetitions;
use llama_sieve::grammar::schema::{Options, to_gbnf};
use llama_sieve::grammar::tags::Tags;
use serde_json::{Value, json};
use vendor_llama_cpp::sys;

use crate::support::family::vocabulary;
use crate::support::{HostSampler, fresh_rng, number_from_env};
use crate::{accepts, drawn, grammar, random, tree, validator};

/// True if llama.cpp accepts the text as a grammar.
fn is_read_by_the_host(text: &str) -> bool {
    let text = CString::new(text).expect("no NUL");
    // SAFETY: a vocabulary and two C strings.
    let sampler =
        unsafe { sys::llama_sampler_init_grammar(vocabulary(), text.as_ptr(), c"root".as_ptr()) };
    if !sampler.is_null() {
        drop(HostSampler::new(sampler));
    }
    !sampler.is_null()
}

#[test]
fn random_schemas_become_grammars_of_the_same_texts() {
    let mut rng = fresh_rng("schemas as grammars");
    let mut below = |n: usize| rng.below(n);
    let tree = tree();
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300) / 3;
    let (mut n_same, mut n_accepted) = (0, 0);
    for i in 0..n {
        let schema = random::whole(&mut below);
        let options = Options {
            compact: i % 2 == 0,
            any_order: i % 3 == 0,
            ..Options::default()
        };
        let Ok(Some(ours)) = grammar(&schema, options, &tree) else {
            continue;
        };
        let (text, left_out) = to_gbnf(schema.to_string().as_bytes(), options).expect("the same");
        assert!(left_out.is_empty());
        assert!(is_read_by_the_host(&text), "{schema}: {text}");
        let read = Grammar::new(
            text.as_bytes(),
            b"root",
            Repetitions::AsLlamaCpp,
            &tree,
            |_| None,
        );
        let read = read.unwrap_or_else(|error| panic!("{schema}: {text}: {error:?}"));
        for _ in 0..10 {
            let value = random::value(&mut below, 2).to_string();
            assert_eq!(
                accepts(&read, &value),
                accepts(&ours, &value),
                "{schema}: {value}: {text}"
            );
            n_accepted += usize::from(accepts(&ours, &value));
            if let Some(text) =
                drawn(&ours, &mut below).and_then(|text| String::from_utf8(text).ok())
            {
                assert!(accepts(&read, &text), "{schema}: {text}");
            }
        }
        // Conversely, texts drawn from the grammar's text are valid.
        let Some((schemas, index)) = validator(&schema) else {
            continue;
        };
        for _ in 0..5 {
            let Some(text) = drawn(&read, &mut below) else {
                continue;
            };
            let Ok(value) = serde_json::from_slice::<Value>(&text) else {
                // The text contains bytes that are not UTF-8, which the text of a grammar cannot
                // exclude.
                assert!(String::from_utf8(text).is_err(), "{schema}");
                continue;
            };
            assert!(schemas.validate(&value, index).is_ok(), "{schema}: {value}");
            n_same += 1;
        }
    }
    assert!(n_same > n && n_accepted > n, "{n_same} {n_accepted}");
}

#[test]
fn random_schemas_constrain_the_spans_of_tags() {
    let mut rng = fresh_rng("schemas in tags");
    let mut below = |n: usize| rng.below(n);
    let tree = tree();
    let n = number_from_env("LLAMA_SIEVE_TEST_SCHEMAS", 300) / 3;
    let mut n_accepted = 0;
    for _ in 0..n {
        let schema = random::whole(&mut below);
        let description =
            json!({ "tags": [{ "begin": "<t>", "json_schema": schema, "end": "</t>" }] });
        let tags = Tags::read(description.to_string().as_bytes()).expect("a description");
        let tags = Grammar::tags(&tags, &tree, |_| None);
        let Ok(Some(ours)) = grammar(&schema, Options::default(), &tree) else {
            assert!(tags.is_err(), "{schema}");
            continue;
        };
        let tags = tags.unwrap_or_else(|error| panic!("{schema}: {error:?}"));
        assert!(accepts(&tags, "free"));
        for _ in 0..10 {
            let value = random::value(&mut below, 2);
            let is_accepted = accepts(&ours, &value.to_string());
            let text = format!("a <t> {value}</t> and <t>{value} </t>");
            assert_eq!(accepts(&tags, &text), is_accepted, "{schema}: {value}");
            n_accepted += usize::from(is_accepted);
        }
    }
    assert!(n_accepted > n, "{n_accepted}");
}
