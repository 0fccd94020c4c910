//! Compares DRY's sequence breakers, many at once, with the built-in's.

use std::ffi::{CString, c_char};
use std::ptr;

use crate::support::family::vocabulary;
use crate::support::{Array, HostSampler, Rng, compare::same, fresh_rng, replay};
use llama_sieve::ffi::samplers::llama_sieve_init_dry;
use vendor_llama_cpp::sys;

const LAST_N: i32 = 200;

/// Returns the bytes of a token.
fn piece(token: i32) -> Vec<u8> {
    let mut bytes = vec![0_u8; 256];
    // SAFETY: a live vocabulary, and a buffer of that length.
    let n = unsafe {
        let (out, len) = (bytes.as_mut_ptr().cast(), bytes.len() as i32);
        sys::llama_token_to_piece(vocabulary(), token, out, len, 0, true)
    };
    bytes.truncate(usize::try_from(n).expect("there is room"));
    bytes
}

fn tokens(text: &[u8]) -> Vec<i32> {
    let mut tokens = vec![0; 8 * text.len() + 8];
    // SAFETY: a live vocabulary, a text and a buffer of these lengths.
    let n = unsafe {
        let (text, len) = (text.as_ptr().cast(), text.len() as i32);
        let (out, room) = (tokens.as_mut_ptr(), tokens.len() as i32);
        sys::llama_tokenize(vocabulary(), text, len, out, room, false, false)
    };
    tokens.truncate(usize::try_from(n).expect("there is room"));
    tokens
}

/// Returns a part of the text of some tokens, which may begin and end within a token.
fn breaker(rng: &mut Rng, n_vocab: usize) -> Vec<u8> {
    if rng.chance(0.3) {
        // Few letters, so that tokens contain the breaker, end with its beginning, or both.
        let n = 1 + rng.below(4);
        return (0..n).map(|_| rng.pick(b"aeth ")).collect();
    }
    let n = 1 + rng.below(6);
    let mut text: Vec<u8> = (0..n)
        .flat_map(|_| piece(rng.below(n_vocab) as i32))
        .collect();
    text.drain(..rng.below(4).min(text.len()));
    text.truncate(text.len() - rng.below(4).min(text.len()));
    text.retain(|&byte| byte != 0);
    text
}

/// Returns the samplers of both sides with these breakers.
fn pair(breakers: &[CString]) -> [HostSampler; 2] {
    let mut texts: Vec<*const c_char> = breakers.iter().map(|text| text.as_ptr()).collect();
    let (texts, n) = match texts.is_empty() {
        true => (ptr::null_mut(), 0),
        false => (texts.as_mut_ptr(), texts.len()),
    };
    let vocab = vocabulary();
    // SAFETY: the vocabulary lives as long as the process, the breakers during the calls.
    unsafe {
        let ours = llama_sieve_init_dry(vocab.cast(), 1.0, 1.1, 0, LAST_N, texts, n);
        let theirs = sys::llama_sampler_init_dry(vocab, 1.0, 1.1, 0, LAST_N, texts, n);
        [HostSampler::new(ours), HostSampler::new(theirs)]
    }
}

#[test]
fn many_breakers_are_those_of_the_built_in() {
    let mut rng = fresh_rng("many breakers");
    // SAFETY: a live vocabulary.
    let n_vocab = unsafe { sys::llama_vocab_n_tokens(vocabulary()) } as usize;
    let (mut broken, mut cases) = (0, 0);
    for _ in 0..20 {
        let n = rng.pick(&[1, 5, 40, 150]);
        let breakers: Vec<Vec<u8>> = (0..n).map(|_| breaker(&mut rng, n_vocab)).collect();
        let given: Vec<CString> = breakers
            .iter()
            .map(|text| CString::new(text.as_slice()).expect("no NUL"))
            .collect();
        let (with, [without, _]) = (pair(&given), pair(&[]));
        for _ in 0..20 {
            // The end of the text repeats an earlier part, with a breaker somewhere in it.
            let mut text: Vec<i32> = (0..30).map(|_| rng.below(n_vocab) as i32).collect();
            let broken_at = &breakers[rng.below(breakers.len())];
            let from = rng.below(broken_at.len() + 1);
            text.extend(tokens(&broken_at[from..]));
            text.extend((0..rng.below(30)).map(|_| rng.below(n_vocab) as i32));
            let mut arrays = Vec::new();
            for sampler in with.iter().chain([&without]) {
                sampler.reset();
                for &token in text.iter().chain([&7]).chain(&text) {
                    sampler.accept(token);
                }
                let mut array = Array::of_logits((0..n_vocab).map(|i| i as f32 / 100.0));
                sampler.apply(&mut array);
                arrays.push(array);
            }
            let label = format!("{}: {given:?}, {text:?}", replay());
            assert_eq!(same(&arrays[0], &arrays[1]), Ok(()), "{label}");
            broken += usize::from(arrays[0] != arrays[2]);
            cases += 1;
        }
    }
    assert!(
        2 * broken > cases,
        "{broken} of {cases}: the breakers change nothing"
    );
}
