//! Tests biased texts on vocabularies of llama.cpp, against their definition: a comparison of the
//! text's end with every prefix of every biased text.

use std::ffi::c_char;

use llama_sieve::ffi::bans::{
    LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_REGEX, llama_sieve_ban_rewind,
    llama_sieve_init_ban_strings_bias,
};
use llama_sieve::ffi::samplers::llama_sieve_init_greedy;
use llama_sieve::last_error;
use vendor_llama_cpp::Model;

use super::bans::{Vocabulary, appears, folded};
use crate::support::{Array, HostSampler, Rng, ban_strings, fresh_rng, trained_model};

/// Returns the lengths of the prefixes of a text: each byte, or each character if `folds`.
fn lengths(text: &[u8], folds: bool) -> Vec<usize> {
    let is_end = |&n: &usize| !folds || n == text.len() || !matches!(text[n], 0x80..0xC0);
    (1..=text.len()).filter(is_end).collect()
}

/// Returns the share of the bias that a token with the text `piece` gets after `written`. Both
/// texts are folded if `folds`.
fn share(written: &[u8], piece: &[u8], texts: &[Vec<u8>], folds: bool) -> f64 {
    if piece.is_empty() {
        return 0.0;
    }
    let with = folded(&[written, piece].concat(), folds);
    let before = folded(written, folds).len();
    if appears(&with, before, texts) {
        return 1.0;
    }
    let of = |text: &Vec<u8>| {
        let lengths = lengths(text, folds);
        let begun = |&n: &usize| with.ends_with(&text[..n]) && with.len() - n < before;
        let matched = lengths.iter().rposition(begun);
        matched.map_or(0.0, |m| (m + 1) as f64 / lengths.len() as f64)
    };
    texts.iter().map(of).fold(0.0, f64::max)
}

/// Writes a random text, which often continues one of the biased texts. At each token the whole
/// vocabulary is compared, on an array and straight from the logits.
fn follow(vocabulary: &Vocabulary, n_tokens: usize, flags: u32, rng: &mut Rng) {
    let folds = flags == LLAMA_SIEVE_BAN_FOLD_CASE;
    let bias = rng.pick(&[-8.0_f32, -0.3, 2.5]);
    let texts: Vec<Vec<u8>> = (0..100).map(|_| vocabulary.text(rng, folds)).collect();
    let biased: Vec<Vec<u8>> = texts.iter().map(|text| folded(text, folds)).collect();
    let ours = ban_strings(vocabulary.model.vocab(), &texts, flags, Some(bias));
    assert_eq!(ours.name(), "ban-strings-bias");
    let greedy = HostSampler::new(llama_sieve_init_greedy());
    let chain = HostSampler::chain(vec![ours.clone(), greedy]);
    let n = vocabulary.pieces.len();
    let (mut written, mut parts, mut wholes): (Vec<u8>, usize, usize) = (Vec::new(), 0, 0);
    for step in 0..n_tokens {
        let logits: Vec<f32> = (0..n).map(|_| rng.range(-4.0, 4.0)).collect();
        let mut array = Array::of_logits(logits.iter().copied());
        ours.apply(&mut array);
        let mut expected = logits.clone();
        for (token, logit) in expected.iter_mut().enumerate() {
            let share = share(&written, &vocabulary.pieces[token], &biased, folds);
            parts += usize::from(share > 0.0 && share < 1.0);
            wholes += usize::from(share == 1.0);
            *logit += (f64::from(bias) * share) as f32;
            let about = (share, token, &written);
            assert_eq!(array.data[token].logit, *logit, "{about:x?}");
        }
        let largest = (0..n).max_by(|&a, &b| expected[a].total_cmp(&expected[b]).then(b.cmp(&a)));
        let token = chain.sample_logits(&logits);
        assert_eq!(Some(token as usize), largest, "{}", last_error::get());
        let wanted = &texts[rng.below(texts.len())];
        let from = rng.below(wanted.len());
        let go_on = |&token: &usize| {
            let piece = &vocabulary.pieces[token];
            !piece.is_empty() && wanted[from..].starts_with(piece)
        };
        let continuing: Vec<usize> = (0..n).filter(go_on).collect();
        let next = match step % 3 == 0 || continuing.is_empty() {
            true => rng.below(n),
            false => rng.pick(&continuing),
        };
        for sampler in [&ours, &chain] {
            sampler.accept(next as i32);
        }
        written.extend_from_slice(&vocabulary.pieces[next]);
        let excess = written.len().saturating_sub(128);
        if excess > 64 {
            // Cut at a character, so that the rest is still read in the same way.
            let cut = (excess..excess + 4).find(|&at| !matches!(written[at], 0x80..0xC0));
            written.drain(..cut.unwrap_or(excess));
        }
        // SAFETY: a live sampler.
        assert_eq!(unsafe { llama_sieve_ban_rewind(ours.as_ptr().cast()) }, 0);
    }
    eprintln!(
        "{n} tokens, flags {flags}: {parts} tokens with a part of the bias, {wholes} with all"
    );
    assert!(
        parts > n_tokens && wholes > n_tokens / 10,
        "{parts} {wholes}"
    );
}

#[test]
fn biases_of_begun_texts_are_their_definition() {
    let mut rng = fresh_rng("biases of begun texts");
    let trained = || Model::load_vocabulary(trained_model()).expect("the model loads");
    for vocabulary in [Vocabulary::of_bytes(&mut rng), Vocabulary::new(trained())] {
        for flags in [0, LLAMA_SIEVE_BAN_FOLD_CASE] {
            follow(&vocabulary, 30, flags, &mut rng);
        }
    }
}

#[test]
fn what_is_wrong_with_a_bias_is_refused_by_name() {
    let model = Model::load_vocabulary(trained_model()).expect("the model loads");
    let vocab = model.vocab().cast();
    let text = |text: &std::ffi::CStr| text.as_ptr();
    let cases: [(&[*const c_char], u32, f32, &str); 11] = [
        (&[text(c"a")], 0, f32::NAN, "bias is NaN"),
        (&[text(c"a")], 0, f32::INFINITY, "bias is inf"),
        (&[text(c"a")], 0, f32::NEG_INFINITY, "bias is -inf"),
        (
            &[text(c"a")],
            LLAMA_SIEVE_BAN_REGEX,
            1.0,
            "LLAMA_SIEVE_BAN_REGEX",
        ),
        (&[text(c"a")], 3, 1.0, "LLAMA_SIEVE_BAN_REGEX"),
        (&[text(c"a")], 4, 1.0, "flags is 0x4"),
        (&[text(c"a"), std::ptr::null()], 0, 1.0, "text 1 is NULL"),
        (&[text(c"a"), text(c"")], 0, 1.0, "text 1 is empty"),
        (&[text(c"\xFF")], 1, 1.0, "not UTF-8"),
        (&[text(c"a")], 1, -f32::MAX, ""),
        (&[text(c"a")], 0, f32::MIN_POSITIVE, ""),
    ];
    for (texts, flags, bias, told) in cases {
        // SAFETY: a live vocabulary, and as many pointers as the call is told.
        let made = unsafe {
            llama_sieve_init_ban_strings_bias(vocab, texts.as_ptr(), texts.len(), flags, bias)
        };
        assert_eq!(made.is_null(), !told.is_empty());
        assert!(last_error::get().contains(told), "{}", last_error::get());
        if !made.is_null() {
            drop(HostSampler::new(made));
        }
    }
    // SAFETY: NULL is allowed; a number too large is never followed.
    unsafe {
        let texts = [text(c"a")];
        let none = std::ptr::null();
        assert!(llama_sieve_init_ban_strings_bias(none, texts.as_ptr(), 1, 0, 1.0).is_null());
        assert!(llama_sieve_init_ban_strings_bias(vocab, std::ptr::null(), 1, 0, 1.0).is_null());
        let n = usize::MAX;
        assert!(llama_sieve_init_ban_strings_bias(vocab, texts.as_ptr(), n, 0, 1.0).is_null());
        for (n, bias) in [(0, 1.0), (1, 0.0), (1, -0.0)] {
            let texts = texts.as_ptr();
            let off = llama_sieve_init_ban_strings_bias(vocab, texts, n, 0, bias);
            let off = HostSampler::new(off);
            assert_eq!(off.name(), "?ban-strings-bias");
            assert_eq!(llama_sieve_ban_rewind(off.as_ptr().cast()), 0);
        }
    }
}
