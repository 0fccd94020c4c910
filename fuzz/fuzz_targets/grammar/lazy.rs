//! Compares lazy grammars with llama.cpp's. The input has one byte for the grammar, the kind of
//! trigger, and the number of trigger tokens; these tokens; patterns or words, separated by a byte
//! 0; and after a byte 255 the tokens to accept.

use std::ffi::{CString, c_char};

use llama_sieve::ffi::grammar::lazy as sieve;
use vendor_llama_cpp::reference::StdRegex;
use vendor_llama_cpp::sys;

use crate::pair::{self, Pair, quietly};
use crate::pattern::{ends_soon, is_limit, is_tame};
use crate::support::HostSampler;
use crate::{FIRST_BYTE, VOCABULARY, apply, array, check_dead};

/// Grammars in addition to [`pair::OPEN`], which have few stacks, too.
const MORE: [&str; 2] = [
    "root ::= \"<tool>\"? \"{\" [^}]* \"}\"",
    "root ::= <tool> .* | \"<tool>\" [a-z日]*",
];
const MOST_PATTERNS: usize = 4;
const MOST_TOKENS: usize = 40;
/// The byte that means a copy between two tokens.
const COPY: u8 = 0xFE;
const RESET: u8 = 0xFD;

pub fn run(data: &[u8]) {
    let Some((&head, rest)) = data.split_first() else {
        return;
    };
    let n_tokens = usize::from(head >> 4 & 3).min(rest.len());
    let (tokens, rest) = rest.split_at(n_tokens);
    let mut parts = rest.splitn(2, |&byte| byte == 255);
    let texts = parts.next().unwrap_or_default();
    let stream = parts.next().unwrap_or_default();
    let texts = texts.split(|&byte| byte == 0).take(MOST_PATTERNS);
    let wait = Wait {
        grammar: grammar(head),
        are_words: head & 8 != 0,
        tokens: tokens.iter().map(|&byte| token(byte)).collect(),
        texts: texts
            .filter(|text| !text.is_empty() || head & 64 != 0)
            .collect(),
    };
    if !wait.are_words && !wait.texts.iter().all(|text| is_tame(text)) {
        return;
    }
    if let Some(mut pair) = wait.pair() {
        wait.stream(&mut pair, stream);
    }
}

fn grammar(byte: u8) -> &'static str {
    let mut all = pair::OPEN.iter().chain(&MORE);
    all.nth(usize::from(byte % 8)).expect("there are eight")
}

/// Returns the token for a byte, mostly the one with that byte as its text.
fn token(byte: u8) -> i32 {
    let n = VOCABULARY.n_tokens as i32;
    match byte {
        0xF0 => 0,
        0xF1 => 1,
        0xF2.. => (FIRST_BYTE + 256 + i32::from(byte - 0xF2)).min(n - 1),
        _ => FIRST_BYTE + i32::from(byte),
    }
}

struct Wait<'a> {
    grammar: &'a str,
    are_words: bool,
    texts: Vec<&'a [u8]>,
    tokens: Vec<i32>,
}

impl Wait<'_> {
    /// Makes our sampler and the built-in one; `None` if both reject the input, or if it exceeds a
    /// limit of ours.
    fn pair(&self) -> Option<Pair> {
        let text = CString::new(self.grammar).expect("no NUL");
        let texts = self.texts.iter().map(|text| CString::new(*text));
        let texts: Vec<CString> = texts.map(|text| text.expect("split at NUL")).collect();
        let mut list: Vec<*const c_char> = texts.iter().map(|text| text.as_ptr()).collect();
        let (n, n_tokens) = (list.len(), self.tokens.len());
        let (text, root, list) = (text.as_ptr(), c"root".as_ptr(), list.as_mut_ptr());
        let (tokens, vocab) = (self.tokens.as_ptr(), VOCABULARY.model.vocab());
        let of_ours = VOCABULARY.as_ours();
        // SAFETY: C strings, tokens and a vocabulary that live through the call.
        let ours = unsafe {
            match self.are_words {
                true => sieve::llama_sieve_init_grammar_lazy(
                    of_ours, text, root, list, n, tokens, n_tokens,
                ),
                false => sieve::llama_sieve_init_grammar_lazy_patterns(
                    of_ours, text, root, list, n, tokens, n_tokens,
                ),
            }
        };
        let said = llama_sieve::last_error::get();
        if ours.is_null() && is_limit(&said) {
            return None;
        }
        // On an invalid pattern the built-in throws, and leaks its allocations.
        let is_pattern = |text: &&[u8]| StdRegex::new(text).is_some();
        if !self.are_words && !self.texts.iter().all(is_pattern) {
            assert!(ours.is_null());
            return None;
        }
        // SAFETY: as above.
        let theirs = quietly(|| unsafe {
            match self.are_words {
                true => {
                    sys::vendor_llama_grammar_words(vocab, text, root, list, n, tokens, n_tokens)
                }
                false => {
                    sys::vendor_llama_grammar(vocab, text, root, true, list, n, tokens, n_tokens)
                }
            }
        });
        assert_eq!(ours.is_null(), theirs.is_null(), "{said}");
        (!ours.is_null()).then(|| Pair {
            ours: HostSampler::new(ours),
            theirs: HostSampler::new(theirs),
        })
    }

    fn stream(&self, pair: &mut Pair, stream: &[u8]) {
        let regexes: Vec<StdRegex> = match self.are_words {
            true => Vec::new(),
            false => self
                .texts
                .iter()
                .filter_map(|text| StdRegex::new(text))
                .collect(),
        };
        let n = VOCABULARY.n_tokens as i32;
        let mut so_far: Vec<u8> = Vec::new();
        let mut has_begun = false;
        for (i, &byte) in stream.iter().take(MOST_TOKENS).enumerate() {
            let allowed = apply(pair, &array(0..n, byte));
            has_begun |= allowed.len() < VOCABULARY.n_tokens;
            assert_eq!(pair::mask(&pair.ours, VOCABULARY.n_tokens), allowed);
            if byte == RESET || byte == COPY {
                let copy = pair.clone();
                pair.reset();
                if byte == COPY {
                    *pair = copy;
                } else {
                    (so_far, has_begun) = (Vec::new(), false);
                }
                continue;
            }
            let token = token(byte);
            apply(pair, &array([token], byte));
            apply(pair, &array([token, i as i32], byte));
            let is_allowed = allowed.contains(&token);
            if VOCABULARY.eog.contains(&token) && !is_allowed {
                // The built-in would abort on this token.
                pair.ours.accept(token);
                check_dead(pair);
                return;
            }
            so_far.extend_from_slice(&VOCABULARY.pieces[token as usize]);
            if !has_begun && !regexes.iter().all(|regex| ends_soon(regex, &so_far)) {
                return;
            }
            if !pair.accept(token).unwrap_or_else(|what| panic!("{what}")) {
                check_dead(pair);
                pair.reset();
                (so_far, has_begun) = (Vec::new(), false);
            }
        }
    }
}
