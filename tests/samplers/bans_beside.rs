//! Tests banned texts together with a grammar or a JSON Schema: the tokens that both allow are
//! left, whichever comes first, and a dead end is reported. The languages are lists of texts, so
//! that a search of the list finds the tokens that may follow.

use std::ffi::CString;

use llama_sieve::errors::LLAMA_SIEVE_ERROR_NO_CANDIDATE;
use llama_sieve::ffi::bans::LLAMA_SIEVE_BAN_FOLD_CASE;
use llama_sieve::ffi::grammar::llama_sieve_init_grammar;
use llama_sieve::ffi::grammar::schema::{LLAMA_SIEVE_JSON_COMPACT, llama_sieve_init_json_schema};
use llama_sieve::ffi::samplers::llama_sieve_init_dist;
use llama_sieve::last_error;
use vendor_llama_cpp::Model;

use super::bans::{Vocabulary, appears, folded, sampler};
use crate::support::{Array, HostSampler, Rng, fresh_rng, number_from_env, trained_model};

const WORDS: [&str; 10] = [
    "the", "LORD", "children", "of", "Israel", "and", "Moses", "spake", "unto", "Aaron",
];

/// A language, given as a list of texts, and the sampler that allows only these.
struct Language {
    texts: Vec<String>,
    constraint: HostSampler,
}

fn sentences(rng: &mut Rng) -> Vec<String> {
    let sentence = |_| {
        let words: Vec<&str> = (0..1 + rng.below(5)).map(|_| rng.pick(&WORDS)).collect();
        words.join(" ")
    };
    (0..20).map(sentence).collect()
}

fn grammar(vocabulary: &Vocabulary, rng: &mut Rng) -> Language {
    let texts = sentences(rng);
    let choices: Vec<String> = texts.iter().map(|text| format!("\"{text}\"")).collect();
    let grammar = CString::new(format!("root ::= {}", choices.join(" | "))).expect("no NUL");
    let vocab = vocabulary.model.vocab().cast();
    // SAFETY: a live vocabulary, and C strings.
    let made = unsafe { llama_sieve_init_grammar(vocab, grammar.as_ptr(), c"root".as_ptr()) };
    Language {
        texts,
        constraint: HostSampler::new(made),
    }
}

/// Returns the language of arrays of at most two of some texts.
fn schema(vocabulary: &Vocabulary, rng: &mut Rng) -> Language {
    let mut items = sentences(rng);
    items.truncate(6);
    items.sort();
    items.dedup();
    let quoted: Vec<String> = items.iter().map(|item| format!("\"{item}\"")).collect();
    let mut texts = vec!["[]".to_owned()];
    texts.extend(quoted.iter().map(|item| format!("[{item}]")));
    let pairs = quoted
        .iter()
        .flat_map(|a| quoted.iter().map(move |b| (a, b)));
    texts.extend(pairs.map(|(a, b)| format!("[{a},{b}]")));
    let schema = format!(
        r#"{{"type": "array", "maxItems": 2, "items": {{"enum": [{}]}}}}"#,
        quoted.join(", ")
    );
    let schema = CString::new(schema).expect("no NUL");
    let vocab = vocabulary.model.vocab().cast();
    // SAFETY: a live vocabulary, and a C string.
    let made =
        unsafe { llama_sieve_init_json_schema(vocab, schema.as_ptr(), LLAMA_SIEVE_JSON_COMPACT) };
    Language {
        texts,
        constraint: HostSampler::new(made),
    }
}

/// Returns parts of the language's texts, some with letters of the other case.
fn banned(language: &Language, folds: bool, rng: &mut Rng) -> Vec<Vec<u8>> {
    let n = 1 + rng.below(4);
    let part = |_| {
        let text = rng
            .pick(&language.texts.iter().collect::<Vec<_>>())
            .as_bytes();
        let from = rng.below(text.len());
        let n = (1 + rng.below(14)).min(text.len() - from);
        let mut part = text[from..from + n].to_vec();
        if folds && rng.chance(0.5) {
            part.iter_mut()
                .for_each(|byte| *byte ^= u8::from(byte.is_ascii_alphabetic()) << 5);
        }
        part
    };
    (0..n).map(part).collect()
}

/// The number of walks that ended with a text, the number that ended where nothing could follow,
/// and the number of positions at which a token of the language was banned.
#[derive(Debug, Default)]
struct Seen {
    texts: usize,
    dead_ends: usize,
    banned: usize,
}

/// Generates one text, token by token. At each position, compares the tokens that the two samplers
/// leave with those that the language's texts and the banned texts allow.
fn walk(vocabulary: &Vocabulary, language: &Language, rng: &mut Rng, seen: &mut Seen) {
    let folds = rng.chance(0.5);
    let banned = banned(language, folds, rng);
    let flags = if folds { LLAMA_SIEVE_BAN_FOLD_CASE } else { 0 };
    let bans = sampler(vocabulary, &banned, flags);
    let banned: Vec<Vec<u8>> = banned.iter().map(|text| folded(text, folds)).collect();
    let mut members = vec![language.constraint.clone(), bans];
    if rng.chance(0.5) {
        members.reverse();
    }
    let both = HostSampler::chain(members.clone());
    members.push(HostSampler::new(llama_sieve_init_dist(rng.next() as u32)));
    let chain = HostSampler::chain(members);
    let n = vocabulary.pieces.len();
    let mut written: Vec<u8> = Vec::new();
    loop {
        let mut allowed = Vec::new();
        for (token, piece) in vocabulary.pieces.iter().enumerate() {
            let with = [&written[..], piece].concat();
            let goes_on = match vocabulary.model.is_eog(token as i32) {
                true => language.texts.iter().any(|text| text.as_bytes() == written),
                false => {
                    let mut texts = language.texts.iter();
                    !piece.is_empty() && texts.any(|text| text.as_bytes().starts_with(&with))
                }
            };
            if goes_on && appears(&folded(&with, folds), written.len(), &banned) {
                seen.banned += 1;
            } else if goes_on {
                allowed.push(token as i32);
            }
        }
        let logits: Vec<f32> = (0..n).map(|_| rng.range(-3.0, 3.0)).collect();
        let mut array = Array::of_logits(logits.iter().copied());
        both.apply(&mut array);
        assert_eq!(array.data.len(), n);
        let mut left = array.allowed();
        left.sort_unstable();
        let text = String::from_utf8_lossy(&written);
        assert_eq!(left, allowed, "behind {text:?}, {banned:x?}");
        let token = chain.sample_logits(&logits);
        if allowed.is_empty() {
            assert_eq!(token, LLAMA_SIEVE_ERROR_NO_CANDIDATE, "behind {text:?}");
            let told = last_error::get();
            assert!(told.contains("no candidate above minus infinity"), "{told}");
            seen.dead_ends += 1;
            return;
        }
        assert!(allowed.contains(&token), "{token} behind {text:?}");
        both.accept(token);
        chain.accept(token);
        if vocabulary.model.is_eog(token) {
            seen.texts += 1;
            return;
        }
        written.extend_from_slice(&vocabulary.pieces[token as usize]);
    }
}

#[test]
fn beside_a_grammar_and_a_schema_what_both_let_through_is_left() {
    let mut rng = fresh_rng("bans_beside");
    let model = Model::load_vocabulary(trained_model()).expect("the model loads");
    let vocabulary = Vocabulary::new(model);
    let walks = number_from_env("LLAMA_SIEVE_TEST_WALKS", 200);
    for make in [grammar, schema] {
        let mut seen = Seen::default();
        for _ in 0..walks / 10 {
            let language = make(&vocabulary, &mut rng);
            for _ in 0..10 {
                walk(&vocabulary, &language, &mut rng, &mut seen);
            }
        }
        eprintln!("{seen:?}");
        let Seen {
            texts,
            dead_ends,
            banned,
        } = seen;
        assert!(
            texts > walks / 5 && dead_ends > walks / 50 && banned > walks,
            "{seen:?}"
        );
    }
}
