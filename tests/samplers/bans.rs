//! Tests banned texts on vocabularies of llama.cpp: none of them appears, and no other token is
//! banned.

use std::ffi::{CString, c_char};

use llama_sieve::ffi::bans::{
    LLAMA_SIEVE_BAN_FOLD_CASE, LLAMA_SIEVE_BAN_REGEX, llama_sieve_ban_rewind,
    llama_sieve_init_ban_strings,
};
use llama_sieve::ffi::samplers::llama_sieve_init_dist;
use llama_sieve::last_error;
use test_crates::regex;
use vendor_llama_cpp::test_vocabulary::Kind;
use vendor_llama_cpp::{Model, TestVocabulary, sys};

use crate::support::{
    Array, HostSampler, Rng, ban_strings, fresh_rng, number_from_env, trained_model,
};

/// A vocabulary, with the texts of its tokens as hosts display them.
pub struct Vocabulary {
    pub model: Model,
    pub pieces: Vec<Vec<u8>>,
}

impl Vocabulary {
    pub fn new(model: Model) -> Self {
        let piece = |token: i32| {
            let mut bytes = vec![0_u8; 512];
            // SAFETY: a live vocabulary, and a buffer of that length.
            let n = unsafe {
                let (out, length) = (bytes.as_mut_ptr().cast(), bytes.len() as i32);
                sys::llama_token_to_piece(model.vocab(), token, out, length, 0, false)
            };
            bytes.truncate(usize::try_from(n).expect("there is room"));
            if model.is_eog(token) {
                bytes.clear();
            }
            bytes
        };
        let pieces = (0..model.n_vocab() as i32).map(piece).collect();
        Self { model, pieces }
    }

    /// Returns a vocabulary of bytes and short pieces, some of which end within a character.
    pub fn of_bytes(rng: &mut Rng) -> Self {
        let mut tokens = vec![
            (b"</s>".to_vec(), Kind::Control),
            (b"<|x|>".to_vec(), Kind::Control),
        ];
        tokens.extend((0..=255).map(|byte| (vec![byte], Kind::Normal)));
        let mut seen = std::collections::BTreeSet::new();
        while tokens.len() < 4000 {
            let n = 2 + rng.below(5);
            let letters = [b'a', b'e', b't', b' ', b'E', 0xC3, 0xA9, 0x89];
            let text: Vec<u8> = (0..n).map(|_| rng.pick(&letters)).collect();
            if seen.insert(text.clone()) {
                tokens.push((text, Kind::Normal));
            }
        }
        let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR"));
        // A separate file, since another test of this process may write one, too.
        let own = rng.next();
        let path = path.join(format!("bans-{}-{own}.gguf", std::process::id()));
        let loaded = TestVocabulary { tokens, eos: 0 }.load(&path);
        std::fs::remove_file(&path).expect("it was written");
        Self::new(loaded.expect("a vocabulary"))
    }

    /// Returns a text made of tokens, cut off anywhere.
    pub fn text(&self, rng: &mut Rng, folds: bool) -> Vec<u8> {
        loop {
            let n = 2 + rng.below(3);
            let tokens = (0..n).map(|_| rng.below(self.pieces.len()));
            let mut text: Vec<u8> = tokens
                .flat_map(|token| self.pieces[token].clone())
                .collect();
            text.drain(..rng.below(4).min(text.len()));
            text.truncate(text.len() - rng.below(4).min(text.len()));
            text.retain(|&byte| byte != 0);
            let is_text = !folds || std::str::from_utf8(&text).is_ok();
            if is_text && (3..40).contains(&text.len()) {
                return text;
            }
        }
    }
}

pub fn sampler(vocabulary: &Vocabulary, texts: &[Vec<u8>], flags: u32) -> HostSampler {
    ban_strings(vocabulary.model.vocab(), texts, flags, None)
}

/// Folds the case of ASCII letters and "é" if `folds`. The texts of these tests have no other
/// letters with case.
pub fn folded(text: &[u8], folds: bool) -> Vec<u8> {
    if !folds {
        return text.to_vec();
    }
    let mut out = Vec::new();
    for chunk in text.utf8_chunks() {
        out.extend(chunk.valid().to_uppercase().bytes());
        out.extend(chunk.invalid());
    }
    out
}

/// True if a banned text that ends after `from` appears in `text`.
pub fn appears(text: &[u8], from: usize, banned: &[Vec<u8>]) -> bool {
    banned.iter().any(|banned| {
        let first = (from + 1).saturating_sub(banned.len());
        text.get(first..)
            .is_some_and(|text| text.windows(banned.len()).any(|window| window == banned))
    })
}

/// Returns, for each token, true if a sampler bans it.
fn masked(sampler: &HostSampler, n: usize) -> Vec<bool> {
    let mut array = Array::of_logits(std::iter::repeat_n(0.0, n));
    sampler.apply(&mut array);
    let mut masked = vec![false; n];
    for candidate in &array.data {
        masked[candidate.id as usize] = candidate.logit == f32::NEG_INFINITY;
    }
    masked
}

/// Generates `n_tokens` tokens with 500 banned texts, drawn from logits that favour tokens which
/// continue one of them. At every hundredth token the whole vocabulary is checked.
fn generate(vocabulary: &Vocabulary, n_tokens: usize, flags: u32, rng: &mut Rng) {
    let folds = flags == LLAMA_SIEVE_BAN_FOLD_CASE;
    let texts: Vec<Vec<u8>> = (0..500).map(|_| vocabulary.text(rng, folds)).collect();
    let banned: Vec<Vec<u8>> = texts.iter().map(|text| folded(text, folds)).collect();
    let ours = sampler(vocabulary, &texts, flags);
    assert_eq!(ours.name(), "ban-strings");
    let chain = HostSampler::chain(vec![
        ours.clone(),
        HostSampler::new(llama_sieve_init_dist(rng.next() as u32)),
    ]);
    let n = vocabulary.pieces.len();
    let mut written: Vec<u8> = Vec::new();
    let (mut begun, mut compared, mut least) = (0, 0, n);
    let quiet: Vec<f32> = (0..n).map(|_| rng.range(-12.0, -4.0)).collect();
    let mut logits = quiet.clone();
    let mut favoured: Vec<usize> = Vec::new();
    for step in 0..n_tokens {
        for token in favoured.drain(..) {
            logits[token] = quiet[token];
        }
        let wanted = &texts[rng.below(texts.len())];
        let from = rng.below(wanted.len());
        for _ in 0..4 {
            favoured.push(rng.below(n));
        }
        let go_on = |&token: &usize| {
            let piece = &vocabulary.pieces[token];
            !piece.is_empty()
                && (wanted[from..].starts_with(piece) || piece.starts_with(&wanted[from..]))
        };
        if step % 8 == 0 {
            favoured.extend((0..n).filter(go_on).take(20));
        }
        for &token in &favoured {
            logits[token] = rng.range(0.0, 6.0);
        }
        if step % (n_tokens / 400).max(100) == 0 {
            let masked = masked(&ours, n);
            for (token, &is_masked) in masked.iter().enumerate() {
                // In a large vocabulary all masked tokens are checked, and some of the others.
                if n > 5000 && !is_masked && !rng.chance(1000.0 / n as f64) {
                    continue;
                }
                let mut with = written.clone();
                with.extend_from_slice(&vocabulary.pieces[token]);
                let completes = !vocabulary.pieces[token].is_empty()
                    && appears(
                        &folded(&with, folds),
                        folded(&written, folds).len(),
                        &banned,
                    );
                assert_eq!(is_masked, completes, "{token} after {written:x?}");
            }
            compared += 1;
            least = least.min(masked.iter().filter(|&&masked| !masked).count());
        }
        let token = chain.sample_logits(&logits);
        assert!(token >= 0, "{}", last_error::get());
        let before = folded(&written, folds).len();
        written.extend_from_slice(&vocabulary.pieces[token as usize]);
        assert!(
            !appears(&folded(&written, folds), before, &banned),
            "{written:x?}"
        );
        for sampler in [&ours, &chain] {
            sampler.accept(token);
        }
        // SAFETY: a live sampler.
        let back = unsafe { llama_sieve_ban_rewind(ours.as_ptr().cast()) };
        assert!(back >= 0);
        begun += usize::from(back > 0);
        let excess = written.len().saturating_sub(128);
        if excess > 64 {
            // Cut at a character, so that the rest is still read in the same way.
            let cut = (excess..excess + 4).find(|&at| !matches!(written[at], 0x80..0xC0));
            written.drain(..cut.unwrap_or(excess));
        }
    }
    eprintln!(
        "{n} tokens: {n_tokens} written, begun {begun} times, {compared} masks compared, at least {least} left"
    );
    assert!(begun > n_tokens / 1000, "{begun}");
}

/// LLAMA_SIEVE_TEST_BANS raises the number of tokens, and LLAMA_SIEVE_TEST_VOCABULARIES lists more
/// vocabularies: GGUF files, separated by colons.
#[test]
fn no_banned_text_appears_and_nothing_else_is_banned() {
    let mut rng = fresh_rng("bans");
    let n = number_from_env("LLAMA_SIEVE_TEST_BANS", 4000);
    let trained = || Model::load_vocabulary(trained_model()).expect("the model loads");
    let mut all = vec![Vocabulary::of_bytes(&mut rng), Vocabulary::new(trained())];
    if let Ok(paths) = std::env::var("LLAMA_SIEVE_TEST_VOCABULARIES") {
        let load = |path| Vocabulary::new(Model::load_vocabulary(path).expect("a vocabulary"));
        all.extend(paths.split(':').map(load));
    }
    for vocabulary in &all {
        generate(vocabulary, n, 0, &mut rng);
        // Large vocabularies have letters of all scripts, which this test does not fold.
        if vocabulary.pieces.len() < 5000 {
            generate(vocabulary, n, LLAMA_SIEVE_BAN_FOLD_CASE, &mut rng);
        }
    }
}

/// Generates with 40 banned regular expressions, of which some have often begun to match. The crate
/// `regex` must find none of them in the text, and at some tokens exactly the masked tokens must
/// complete a match.
fn generate_with_patterns(vocabulary: &Vocabulary, n_tokens: usize, folds: bool, rng: &mut Rng) {
    let mut texts = vec![
        "e[^a-z]*t.e",
        "(?m)^ *[te]",
        "\\x{e9}{2,}",
        "(t|a)e{1,3} ",
        "[aeiou]{4}",
    ];
    let drawn: Vec<String> = (0..35)
        .map(|_| {
            let text = String::from_utf8_lossy(&vocabulary.text(rng, true)).into_owned();
            let cut = text.char_indices().nth(1).map_or(0, |(at, _)| at);
            let [first, rest] = [&text[..cut], &text[cut..]].map(regex::escape);
            format!("{first}.?{rest}")
        })
        .collect();
    texts.extend(drawn.iter().map(String::as_str));
    let regexes = texts.iter().map(|text| {
        let mut builder = regex::bytes::RegexBuilder::new(text);
        builder
            .case_insensitive(folds)
            .build()
            .expect("it is a pattern")
    });
    let regexes: Vec<regex::bytes::Regex> = regexes.collect();
    let matches = |text: &[u8]| regexes.iter().any(|regex| regex.is_match(text));
    let bytes: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    let flags = LLAMA_SIEVE_BAN_REGEX | if folds { LLAMA_SIEVE_BAN_FOLD_CASE } else { 0 };
    let ours = sampler(vocabulary, &bytes, flags);
    assert_eq!(ours.name(), "ban-strings");
    let dist = HostSampler::new(llama_sieve_init_dist(rng.next() as u32));
    let chain = HostSampler::chain(vec![ours.clone(), dist]);
    let n = vocabulary.pieces.len();
    let (mut written, mut begun): (Vec<u8>, usize) = (Vec::new(), 0);
    for step in 0..n_tokens {
        if step % 50 == 0 {
            // Each text is short, since all of it is searched.
            written.clear();
            ours.reset();
            chain.reset();
        }
        if step % 17 == 0 {
            for (token, is_masked) in masked(&ours, n).into_iter().enumerate() {
                let piece = &vocabulary.pieces[token];
                if !piece.is_empty() && (is_masked || rng.chance(200.0 / n as f64)) {
                    let with = [&written[..], piece].concat();
                    assert_eq!(is_masked, matches(&with), "{token} after {written:x?}");
                }
            }
        }
        let logits: Vec<f32> = (0..n).map(|_| rng.range(-1.0, 1.0)).collect();
        let token = chain.sample_logits(&logits);
        assert!(token >= 0, "{}", last_error::get());
        written.extend_from_slice(&vocabulary.pieces[token as usize]);
        assert!(!matches(&written), "{written:x?}");
        for sampler in [&ours, &chain] {
            sampler.accept(token);
        }
        // SAFETY: a live sampler.
        begun += usize::from(unsafe { llama_sieve_ban_rewind(ours.as_ptr().cast()) } > 0);
    }
    assert!(begun * 4 > n_tokens, "{begun}");
}

#[test]
fn no_banned_pattern_matches_and_nothing_else_is_banned() {
    let mut rng = fresh_rng("banned patterns");
    let trained = || Model::load_vocabulary(trained_model()).expect("the model loads");
    for vocabulary in [Vocabulary::of_bytes(&mut rng), Vocabulary::new(trained())] {
        for folds in [false, true] {
            generate_with_patterns(&vocabulary, 1000, folds, &mut rng);
        }
    }
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let model = Model::load_vocabulary(trained_model()).expect("the model loads");
    let vocab = model.vocab().cast();
    let text = |text: &std::ffi::CStr| text.as_ptr();
    let long = CString::new(vec![b'a'; 1025]).expect("no NUL");
    let cases: [(&[*const c_char], u32, &str); 10] = [
        (&[text(c"a"), std::ptr::null()], 0, "text 1 is NULL"),
        (&[text(c"a"), text(c"")], 0, "text 1 is empty"),
        (&[long.as_ptr()], 0, "more than 1024 bytes"),
        (&[text(c"\xFF")], 1, "not UTF-8"),
        (&[text(c"a")], 4, "flags is 0x4"),
        (&[text(c"a"), text(c"b(")], 2, "text 1, \"b(\": byte 1"),
        (&[text(c"\\bb")], 3, "a word boundary"),
        (&[text(c"\xFF")], 2, "not UTF-8"),
        (&[text(c"a")], 0x8000_0001, "flags is 0x80000001"),
        (&[text(c"a")], 0, ""),
    ];
    for (texts, flags, told) in cases {
        // SAFETY: a live vocabulary, and as many pointers as the call is told.
        let made =
            unsafe { llama_sieve_init_ban_strings(vocab, texts.as_ptr(), texts.len(), flags) };
        assert_eq!(made.is_null(), !told.is_empty());
        assert!(last_error::get().contains(told), "{}", last_error::get());
        if !made.is_null() {
            drop(HostSampler::new(made));
        }
    }
    // SAFETY: NULL is allowed; a number too large is never followed.
    unsafe {
        let texts = [text(c"a")];
        assert!(llama_sieve_init_ban_strings(std::ptr::null(), texts.as_ptr(), 1, 0).is_null());
        assert!(llama_sieve_init_ban_strings(vocab, std::ptr::null(), 1, 0).is_null());
        assert!(llama_sieve_init_ban_strings(vocab, texts.as_ptr(), usize::MAX, 0).is_null());
        assert!(last_error::get().contains("LLAMA_SIEVE_BAN_MAX_TEXTS"));
        assert!(llama_sieve_ban_rewind(std::ptr::null()) < 0);
        let other = HostSampler::new(llama_sieve_init_dist(1));
        assert!(llama_sieve_ban_rewind(other.as_ptr().cast()) < 0);
        let off = HostSampler::new(llama_sieve_init_ban_strings(vocab, std::ptr::null(), 0, 0));
        assert_eq!(off.name(), "?ban-strings");
        assert_eq!(llama_sieve_ban_rewind(off.as_ptr().cast()), 0);
    }
}
