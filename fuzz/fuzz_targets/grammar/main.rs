//! Compares grammars and triggers, especially hostile ones, with llama.cpp's. Input after a byte 1
//! is a trigger pattern and a growing text, after a byte 2 a lazy grammar and tokens, after a byte
//! 3 a grammar with a small step limit; any other input is a grammar's text and a list of actions.
#![no_main]

#[allow(dead_code)] // This target does not forbid allocations.
#[path = "../../../tests/process/counting_allocator.rs"]
mod counting_allocator;
#[path = "../../../tests/grammar/pair.rs"]
mod pair;
#[path = "../../../tests/grammar/stacks.rs"]
mod stacks;
#[path = "../../../tests/support/mod.rs"]
mod support;

mod lazy;
mod limits;
mod pattern;
mod walk;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pair::{Pair, Vocabulary};
use support::Array;
use vendor_llama_cpp::TestVocabulary;
use vendor_llama_cpp::test_vocabulary::Kind;

fuzz_target!(init: prepare(), |data: &[u8]| {
    match data.split_first() {
        Some((1, rest)) => pattern::run(rest),
        Some((2, rest)) => lazy::run(rest),
        Some((3, rest)) => limits::run(rest),
        _ => walk::run(data),
    }
});

fn prepare() {
    llama_sieve_fuzz::silence();
    LazyLock::force(&VOCABULARY);
    limits::prepare();
}

/// The token of byte 0. The tokens of the other bytes follow it.
const FIRST_BYTE: i32 = 2;

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let mut tokens = vec![
        (b"</s>".to_vec(), Kind::Control),
        (b"<tool>".to_vec(), Kind::UserDefined),
    ];
    tokens.extend((0..=u8::MAX).map(|byte| (vec![byte], Kind::Normal)));
    let longer: [&[u8]; 16] = [
        b"ab",
        b"aa",
        b"ba\n",
        "é".as_bytes(),
        "日".as_bytes(),
        "日本".as_bytes(),
        b"\xA5\xE6",
        b"\": \"",
        b"{\"",
        b"  ",
        b"0123",
        b"a\0b",
        b"b\xFF",
        "\u{1F600}".as_bytes(),
        b"aaaaaaaaaaaa",
        b"                ",
    ];
    tokens.extend(longer.map(|text| (text.to_vec(), Kind::Normal)));
    tokens.push((b"<unused>".to_vec(), Kind::Unused));
    let path = std::env::temp_dir().join(format!("llama-sieve-fuzz-{}.gguf", std::process::id()));
    let model = TestVocabulary { tokens, eos: 0 }.load(&path);
    let model = model.expect("the vocabulary loads");
    std::fs::remove_file(&path).expect("it was written");
    Vocabulary::new(model)
});

/// Returns candidates of these tokens. Logits and the other fields are derived from `number`.
fn array(tokens: impl IntoIterator<Item = i32>, number: u8) -> Array {
    let mut array = Array::of_logits([]);
    array.data.extend(tokens.into_iter().map(|id| {
        let mixed = (id as u32).wrapping_mul(0x9E37_79B1) >> 16;
        vendor_llama_cpp::sys::llama_token_data {
            id,
            logit: mixed as f32 / 8192.0 - f32::from(number),
            p: f32::from(number) / 256.0,
        }
    }));
    array.sorted = number & 1 != 0;
    array.selected = i64::from(number) % (array.data.len() as i64 + 1) - 1;
    array
}

/// Checks that both samplers leave the same candidates of an array. Returns the allowed tokens.
fn apply(pair: &Pair, input: &Array) -> Vec<i32> {
    let left = pair.apply(input).unwrap_or_else(|what| panic!("{what}"));
    left.allowed()
}

/// Checks that our sampler, when dead, allows only tokens that end the generation.
fn check_dead(pair: &Pair) {
    let vocabulary = &*VOCABULARY;
    assert_ne!(pair::error(&pair.ours), 0);
    assert_eq!(pair::mask(&pair.ours, vocabulary.n_tokens), vocabulary.eog);
    let mut others = array([5, 300, 7], 0);
    pair.ours.apply(&mut others);
    assert_eq!(others.allowed(), vocabulary.eog[..1]);
    // A single candidate always stays in the array; its logit shows whether it is allowed.
    for token in 0..=vocabulary.n_tokens as i32 {
        let mut one = array([token], 0);
        pair.ours.apply(&mut one);
        assert_eq!((one.data.len(), one.data[0].id), (1, token));
        let is_allowed = one.data[0].logit > f32::NEG_INFINITY;
        assert_eq!(is_allowed, vocabulary.eog.contains(&token));
    }
    assert!(!pair::is_complete(&pair.ours));
}
